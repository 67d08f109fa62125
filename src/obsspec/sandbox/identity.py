"""Which users a sandbox has.

An ordinary user can map only itself: the init and the commands of the sandbox are then the same user, and the init is
safe from them only because it is process number 1. Root can map two: the init runs as the sandbox's root, commands run
as an unprivileged user that owns nothing outside. Only then does the kernel count root's processes against
RLIMIT_NPROC, so this is not optional.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

UID = 1000  # of "user", inside
OUTER_UID = 61_000  # the same user outside; no account is needed
SPARE_UID = 2000  # nobody inside; it is root in forks that pretend to have one
OUTER_SPARE_UID = 61_001
_CAP_SETGID, _CAP_SETUID = 6, 7


@cache
def two_users() -> bool:
    """True if this process may give a sandbox a user of its own."""
    if os.geteuid() != 0:
        return False
    capable = _effective_capabilities() & (1 << _CAP_SETGID) and _effective_capabilities() & (1 << _CAP_SETUID)
    return bool(capable) and _is_mapped(Path("/proc/self/uid_map")) and _is_mapped(Path("/proc/self/gid_map"))


def write_maps(process: int) -> None:
    """Map root and "user" into the new user namespace of `process`."""
    for name in ("uid_map", "gid_map"):
        Path(f"/proc/{process}/{name}").write_text(f"0 0 1\n{UID} {OUTER_UID} 1\n{SPARE_UID} {OUTER_SPARE_UID} 1\n")


def fork_users(*, root: bool) -> tuple[str, str, str]:
    """Of a fork: the map of its own user namespace, who runs its commands, who owns its files ("": as it comes)."""
    if not two_users():
        return ("0 0 1\n", "root", "") if root else (f"{UID} 0 1\n", "one", "")
    return (f"0 {SPARE_UID} 1\n{UID} {UID} 1\n", "root", str(SPARE_UID)) if root else ("", "user", "")


def _effective_capabilities() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def _is_mapped(table: Path) -> bool:
    ranges = [tuple(map(int, line.split())) for line in table.read_text().splitlines()]
    return any(start <= OUTER_UID and start + count > OUTER_SPARE_UID for start, _, count in ranges)
