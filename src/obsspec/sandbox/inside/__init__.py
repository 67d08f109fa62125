"""What runs inside a sandbox, from a read-only copy of this folder: standard library only.

Thousands of sandboxes are opened, so nothing is imported that is slow to import (dataclasses, typing, pathlib, json).
"""
