"""What a sandbox may use."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from obsspec.values import ConfigError

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Hard limits of one sandbox, in bytes and counts, and how each is enforced.

    memory_bytes: address space of each process (RLIMIT_AS).
    processes: processes and threads of the sandbox's user (RLIMIT_NPROC in a user namespace of its own).
    disk_bytes: size of HOME, and again of /tmp (each a tmpfs of this size); /dev/shm and /run have a few MiB.
    file_bytes: largest file (RLIMIT_FSIZE).
    cpu_s: processor time of each process, so that a busy background job ends (RLIMIT_CPU).
    open_files: of each process (RLIMIT_NOFILE).
    tree_bytes: most that `tree()` reads; more is a `SandboxError`.

    Files of HOME, /tmp, /dev/shm and /run are held in memory. So a sandbox can use `processes * memory_bytes` and its
    disks at the very most; there is no lower limit of the sum.
    """

    memory_bytes: int = 1024 * MIB
    processes: int = 128
    disk_bytes: int = 64 * MIB
    file_bytes: int = 64 * MIB
    cpu_s: int = 120
    open_files: int = 256
    tree_bytes: int = 16 * MIB

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 1:
                raise ConfigError(f"the sandbox limit {name} is {value}: it must be at least 1")
