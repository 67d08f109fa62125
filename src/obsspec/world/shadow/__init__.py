"""The shadow: what transcripts say of an image's files, laid down in a sandbox, and commands run there."""

from obsspec.world.shadow.model import ShadowWorldModel
from obsspec.world.shadow.rooms import open_rooms

__all__ = ["ShadowWorldModel", "open_rooms"]
