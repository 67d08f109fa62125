"""What runs inside a sandbox: standard library only, from a read-only copy of this folder."""
