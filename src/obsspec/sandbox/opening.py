"""What an init is told before its first command."""

from __future__ import annotations

import os
from collections.abc import Mapping

import anyio

from obsspec.sandbox import bubblewrap, canonical, identity
from obsspec.sandbox.channel import Channel, Frame
from obsspec.sandbox.inside import fields as wire
from obsspec.sandbox.inside.shell import Rules
from obsspec.sandbox.limits import Limits
from obsspec.sandbox.profile import Profile
from obsspec.sandbox.spec import SandboxSpec
from obsspec.values import ConfigError, SandboxError

OPEN_S = 120.0


def beginning(
    home: str, limits: Limits, max_characters: int, environment: Mapping[str, str], profile: Profile, *, root: bool
) -> Frame:
    """Under which rules commands run. `root`: they run as root of the sandbox instead of its user."""
    user = (0 if root else identity.UID) if identity.two_users() else None
    rules = Rules(
        home,
        limits.memory_bytes,
        limits.processes,
        limits.file_bytes,
        limits.cpu_s,
        limits.open_files,
        user,
    )
    return [
        *wire.rules(rules),
        wire.number(canonical.byte_limit(max_characters)),
        wire.text(profile.letters()),
        *wire.mapping(environment),
    ]


def opening(spec: SandboxSpec, begin: Frame) -> Frame:
    content = [(file.path, file.mode, file.content) for file in spec.files]
    return [
        b"open",
        *begin,
        *wire.items(map(os.fsencode, spec.directories)),
        wire.number(len(content)),
        *(field for path, mode, data in content for field in (os.fsencode(path), wire.number(mode), data)),
        *wire.items(map(wire.text, spec.setup)),
    ]


async def set_up(channel: Channel, request: Frame | None) -> Frame:
    """The answer to `request`, or the first answer that needs none.

    Raises `ConfigError` if this machine cannot make sandboxes, `SandboxError` if the set-up fails."""
    try:
        with anyio.fail_after(OPEN_S):
            if request is not None:
                await channel.send(request)
            answer = await channel.receive()
    except SandboxError as error:
        if "bwrap: " in str(error):
            raise ConfigError(bubblewrap.refused(str(error))) from error
        raise
    except TimeoutError as error:
        raise SandboxError(f"the set-up took longer than {OPEN_S:g} s") from error
    if answer[0] != b"ok":
        raise SandboxError(answer[1].decode("utf-8", "replace"))
    return answer
