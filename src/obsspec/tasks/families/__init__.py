"""The families of the procedural suite: each is a tuple of kinds, and a kind turns seeded choices into a draft."""

from __future__ import annotations

from obsspec.tasks.draft import Kind
from obsspec.tasks.families import (
    archives,
    config,
    csv,
    files,
    hashing,
    json,
    logs,
    permissions,
    scripting,
    sqlite,
    text,
    tir,
)

FAMILIES: dict[str, tuple[Kind, ...]] = {
    "archives": archives.KINDS,
    "config": config.KINDS,
    "csv": csv.KINDS,
    "files": files.KINDS,
    "hashing": hashing.KINDS,
    "json": json.KINDS,
    "logs": logs.KINDS,
    "permissions": permissions.KINDS,
    "scripting": scripting.KINDS,
    "sqlite": sqlite.KINDS,
    "text": text.KINDS,
    "tir": tir.KINDS,
}
