"""Sandboxes that can be forked: one bubblewrap, and in it any number of copies of one starting state.

A fork is files, shell state, logical step and process numbering, in namespaces of its own (mounts, processes, network,
IPC), so forks neither see nor disturb each other. Copying is exact: commands print in a fork, byte for byte, what they
print in a `LocalSandbox` of the same spec after the same commands. By nature different: inode numbers, `mount` and
`/proc` listings of the machinery, System V IPC (starts empty in a copy), and the limit on processes, which counts the
forks of one `open_forks` together.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from anyio.abc import Process

from obsspec.sandbox import canonical
from obsspec.sandbox.channel import Channel, Frame, ProcessLink
from obsspec.sandbox.fork import Fork, ForkError, ForkLink, ForkRefusal
from obsspec.sandbox.identity import fork_users
from obsspec.sandbox.inside import fields as wire
from obsspec.sandbox.inside.frames import encode
from obsspec.sandbox.launch import launched
from obsspec.sandbox.limits import Limits
from obsspec.sandbox.local import ENVIRONMENT
from obsspec.sandbox.local_sandbox import LocalSandbox
from obsspec.sandbox.opening import beginning, opening, set_up
from obsspec.sandbox.placed import PlacedFile
from obsspec.sandbox.profile import STANDARD, Profile
from obsspec.sandbox.spec import HOME, SandboxSpec

MAX_FORKS = 64
_ROOT = {
    **ENVIRONMENT,
    "PATH": "/opt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "USER": "root",
}
ROOT_ENVIRONMENT = STANDARD.environment(_ROOT)  # of root, if nothing else is asked for


@dataclass(frozen=True, slots=True)
class ForkIdentity:
    """Who runs the commands, where the first one starts, and with which environment.

    The default is that of a `LocalSandbox`. `root`: as root of the fork, who may write and own everything in it and is
    nobody outside; files of the machine (/usr) then show "nobody" as their owner. `directory` "": HOME.
    """

    root: bool = False
    directory: str = ""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])  # beside the usual variables

    def variables(self, profile: Profile) -> dict[str, str]:
        return {**profile.environment(_ROOT if self.root else ENVIRONMENT), **self.environment}


class Forks:
    """The forks of one starting state. `root` stands at the start until a command runs in it."""

    root: Fork

    def __init__(
        self,
        process: Process,
        control: socket.socket,
        *,
        identity: ForkIdentity,
        profile: Profile,
        whole: bool,
        limits: Limits,
        timeout_s: float,
        max_characters: int,
        max_forks: int,
    ) -> None:
        self._process = process
        self._control = control
        self._limits = limits
        self._timeout_s = timeout_s
        self._max_characters = max_characters
        self._max_forks = max_forks
        shape = (int(whole), *fork_users(root=identity.root), HOME, limits.disk_bytes)
        self._shape = [wire.text(str(part)) for part in shape]
        variables = identity.variables(profile)
        self._begin = beginning(HOME, limits, max_characters, variables, profile, root=identity.root)
        self._living: set[Fork] = set()

    def __len__(self) -> int:
        """How many forks live."""
        return len(self._living)

    async def start(self, spec: SandboxSpec, tree: Sequence[PlacedFile], directory: str) -> None:
        """Make `root`. Raises `ConfigError`, `SandboxError`."""
        self.root = await self.spawn(b"", b"", ())
        if tree:
            await self.root.write(tree)
        await set_up(self.root.channel, opening(spec, self._begin))
        if directory:
            await set_up(self.root.channel, [b"enter", wire.text(directory)])

    async def copy(self, source: bytes, step: bytes, last: bytes) -> Fork:
        """A fork of the one whose number is `source`, which must not change meanwhile. Raises `ForkError`."""
        return await self.spawn(source, last, (b"resume", *self._begin, step))

    async def spawn(self, source: bytes, last: bytes, first: Sequence[bytes]) -> Fork:
        if len(self._living) >= self._max_forks:
            raise ForkError(ForkRefusal.TOO_MANY, f"{len(self._living)} forks live: drop some before making another")
        link = self._connect([b"spawn", source, last, *self._shape])
        channel = Channel(link)
        try:
            number = (await set_up(channel, None))[1]
            if first:
                await set_up(channel, list(first))
        except BaseException:
            link.close()
            raise
        sandbox = LocalSandbox(channel, self._limits, self._timeout_s, self._max_characters)
        fork = Fork(sandbox, link, channel, number, self.copy, self._living.discard)
        self._living.add(fork)
        return fork

    def _connect(self, message: Frame) -> ForkLink:
        """A link to a new process of the forker that has got `message`."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [encode(message)], [theirs.fileno()])
            except OSError as error:
                ours.close()
                raise ForkError(ForkRefusal.CLOSED, f"the forks ended: {os.strerror(error.errno or 0)}") from error
        return ForkLink(ours, ProcessLink(self._process))

    async def close(self) -> None:
        for fork in list(self._living):
            await fork.abandon()


@asynccontextmanager
async def open_forks(
    spec: SandboxSpec,
    *,
    tree: Sequence[PlacedFile] | None = None,
    identity: ForkIdentity | None = None,
    limits: Limits | None = None,
    profile: Profile = STANDARD,
    timeout_s: float = 30.0,
    max_characters: int = canonical.MAX_CHARACTERS,
    max_forks: int = MAX_FORKS,
) -> AsyncGenerator[Forks]:
    """A set-up sandbox that can be forked. Leaving the context, in any way, leaves no process and no file of it.

    `tree` None: files as in a `LocalSandbox`. Otherwise each fork has a root directory of its own, in which everything
    but /usr, /dev and /proc can be written, and `tree` is laid down before the files of `spec`. `limits.disk_bytes` is
    then the half of what a fork may hold. Files are held in memory, once for each fork: `max_forks` bounds the sum.

    Raises `ConfigError` if this machine cannot make sandboxes, `SandboxError` if the set-up fails.
    """
    identity = identity or ForkIdentity()
    limits = limits or Limits()
    control, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    control.setblocking(False)
    with control, inside:
        async with launched(limits, inside.fileno()) as process:
            inside.close()
            forks = Forks(
                process,
                control,
                identity=identity,
                profile=profile,
                whole=tree is not None,
                limits=limits,
                timeout_s=timeout_s,
                max_characters=max_characters,
                max_forks=max_forks,
            )
            try:
                await forks.start(spec, tree or (), identity.directory)
                yield forks
            finally:
                await forks.close()
