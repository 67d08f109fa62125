"""The JSON forms of what goes between a sandbox server and its clients.

Readers raise KeyError, TypeError or ValueError.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from typing import Any

from obsspec.sandbox.spec import Entry, EntryKind, FileSpec, SandboxSpec, Tree
from obsspec.values import Guard, Observation, Refusal, Refused, ToolCall

Json = dict[str, Any]


def dump(data: Any) -> bytes:
    """ASCII, because file names and commands may hold what is not valid UTF-8."""
    return json.dumps(data).encode()


def spec_to_json(spec: SandboxSpec) -> Json:
    return {
        "directories": list(spec.directories),
        "files": [[file.path, _text(file.content), file.mode] for file in spec.files],
        "setup": list(spec.setup),
        "image": spec.image,
    }


def spec_from_json(data: Json) -> SandboxSpec:
    return SandboxSpec(
        directories=tuple(map(str, data["directories"])),
        files=tuple(FileSpec(str(path), b64decode(content), int(mode)) for path, content, mode in data["files"]),
        setup=tuple(map(str, data["setup"])),
        image=str(data["image"]),
    )


def seed_of(spec: SandboxSpec) -> int:
    """The same for equal specs, on every machine."""
    text = json.dumps(spec_to_json(spec), sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def observation_to_json(observation: Observation) -> Json:
    return {
        "text": observation.text,
        "exit_code": observation.exit_code,
        "truncated": observation.truncated,
        "timed_out": observation.timed_out,
        "state_lost": observation.state_lost,
        "empty": observation.empty,
        "raw": _text(observation.raw),
    }


def observation_from_json(data: Json) -> Observation:
    raw = b64decode(data["raw"])
    return Observation(raw=raw, **{name: value for name, value in data.items() if name != "raw"})


def guarded_to_json(call: ToolCall, guard: Guard) -> Json:
    return {"command": call.command, "after": guard.after, "digest": guard.digest}


def guarded_from_json(data: Json) -> tuple[ToolCall, Guard]:
    return shell_call(data["command"]), Guard(int(data["after"]), str(data["digest"]))


def shell_call(command: object) -> ToolCall:
    return ToolCall("shell", {"command": str(command)})


def answer_to_json(answer: Observation | Refused) -> Json:
    """Of a guarded call."""
    return {"refused": answer.why} if isinstance(answer, Refused) else observation_to_json(answer)


def answer_from_json(data: Json) -> Observation | Refused:
    return Refused(Refusal(data["refused"])) if "refused" in data else observation_from_json(data)


def tree_to_json(tree: Tree) -> Json:
    return {path: [entry.kind, entry.mode, _text(entry.content)] for path, entry in tree.items()}


def tree_from_json(data: Json) -> Tree:
    return {path: Entry(EntryKind(kind), int(mode), b64decode(text)) for path, (kind, mode, text) in data.items()}


def _text(data: bytes) -> str:
    return b64encode(data).decode()
