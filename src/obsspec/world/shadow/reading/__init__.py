"""What a command and its output say about the files of an image."""

from obsspec.world.shadow.reading.read import read_facts

__all__ = ["read_facts"]
