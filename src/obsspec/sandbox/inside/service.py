"""The daemon in a provider's sandbox: takes requests on a unix socket and runs commands in an init of its own.

A request is one JSON object, an answer is another; a connection carries one of each. Every request has "id", "wait_s"
and "withdrawn" (ids that nobody wants any more), and one of:

    {"open": {directories, files, setup, ...}}                     ->  {"ok": true}
    {"command": text, "number": n}                                 ->  an observation
    {"command": text, "after": n, "digest": h}                     ->  an observation | {"refused": why}
    {"tree": byte limit}                                           ->  {"tree": {path: [kind, mode, content]}}
    {}                                                             ->  {"ok": true}: only to say what is withdrawn

or {"error": one line}. An answer that is not there after `wait_s` is {"pending": true}: ask again under the same id. A
connection that ends withdraws nothing, because providers end executions for reasons of their own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from base64 import b64decode, b64encode

from obsspec.sandbox import output

from . import fields as wire
from .frames import Decoder, encode
from .ledger import Ledger, Request
from .shell import BASH, Rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Json = dict[str, Any]

ANSWER_S = 10.0  # the init answers well within this, beyond the time of the command itself
OPEN_S = 120.0
NOT_INHERITED = ("BASHOPTS", "BASH_ENV", "EUID", "OLDPWD", "PPID", "PWD", "SHELLOPTS", "SHLVL", "UID", "_")


class Service:
    """One sandbox. `program` is what starts its init; `place` is the directory of its files."""

    def __init__(self, program: list[str], place: str) -> None:
        self._program = program
        self._errors = os.path.join(place, "errors")
        self._ledger = Ledger()
        self._more = asyncio.Event()
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()  # held by whoever asks the init
        self._decoder = Decoder()
        self._frames: list[list[bytes]] = []
        self._opened: asyncio.Task[Json] | None = None
        self._timeout_s = 0.0
        self._characters = 0

    async def serve(self, listener: Any) -> None:
        """Until killed, or the init ends: then everything is answered with an error."""
        pipe = asyncio.subprocess.PIPE
        errors = os.open(self._errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._init = await asyncio.create_subprocess_exec(*self._program, stdin=pipe, stdout=pipe, stderr=errors)
        server = await asyncio.start_unix_server(self._connected, sock=listener)
        async with server:
            await self._run_commands()
            await asyncio.sleep(1e9)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = json.loads(await reader.read())
            answer = await self._answer(request)
            writer.write(json.dumps(answer).encode())
            await writer.drain()
        except (ConnectionError, ValueError, KeyError, TypeError) as error:
            sys.stderr.write("request failed: %r\n" % error)  # whoever asked has gone, or gets no answer
        finally:
            writer.close()

    async def _answer(self, request: Json) -> Json:
        self._ledger.withdraw(request["withdrawn"])
        self._tell()
        if "open" in request:
            self._opened = self._opened or asyncio.ensure_future(self._open(request["open"]))
            done, _ = await asyncio.wait({self._opened}, timeout=request["wait_s"])
            return self._opened.result() if done else {"pending": True}
        if "tree" in request:
            return await self._tree(request["tree"])
        if "command" not in request:
            return {"ok": True}
        guard = (request["after"], request["digest"]) if "digest" in request else None
        number = guard[0] + 1 if guard else request["number"]
        self._ledger.ask(Request(request["id"], request["command"], number, guard))
        self._more.set()
        return await self._outcome(request["id"], request["wait_s"])

    async def _outcome(self, id: int, wait_s: float) -> Json:
        end = asyncio.get_running_loop().time() + wait_s
        while True:
            answer = self._ledger.answer(id)
            if answer is not None:
                return answer
            left = end - asyncio.get_running_loop().time()
            try:
                await asyncio.wait_for(self._news.wait(), max(left, 0))
            except asyncio.TimeoutError:
                return {"pending": True}

    def _tell(self) -> None:
        """Wake everybody who waits for an answer."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    # Commands, one after the other -------------------------------------------------------------------------------

    async def _run_commands(self) -> None:
        while not self._ledger.broken:
            self._more.clear()
            request = self._ledger.start()
            self._tell()
            if request is None:
                await self._more.wait()
                continue
            try:
                await self._run(request)
            except (OSError, EOFError, ValueError, asyncio.TimeoutError) as error:
                self._ledger.fail(self._epitaph(error))
        self._tell()

    async def _run(self, request: Request) -> None:
        command = wire.text(request.command)
        if b"\0" in command:
            said = b"bash: the command contains a NUL byte"
            self._record([b"done", b"126", b"", b"", said])
            return
        async with self._turn:
            await self._send([b"run", command, wire.number(self._timeout_s)])
            interrupter = asyncio.ensure_future(self._interrupt())
            try:
                answer = await asyncio.wait_for(self._receive(), self._timeout_s + ANSWER_S)
            finally:
                interrupter.cancel()
        self._record(answer)

    async def _interrupt(self) -> None:
        """Once the command that runs is not wanted any more. The init takes no notice if it has just ended."""
        while not self._ledger.interrupted:
            await self._news.wait()
        await self._send([b"cancel"])

    def _record(self, answer: list[bytes]) -> None:
        _, code, flags, stdout, stderr = answer
        timed_out, lost = b"t" in flags, b"s" in flags
        shown = output.show(
            stdout,
            stderr,
            exit_code=int(code),
            max_characters=self._characters,
            clipped=b"k" in flags,
            timed_out_after_s=self._timeout_s if timed_out else None,
            state_lost=lost,
        )
        observation = {
            "text": shown.text,
            "exit_code": int(code),
            "truncated": shown.truncated,
            "timed_out": timed_out,
            "state_lost": lost,
            "empty": shown.empty,
            "raw": b64encode(stdout + stderr).decode(),
        }
        self._ledger.end(observation, text=shown.text, settled=not (timed_out or lost or b"j" in flags))

    # The init ----------------------------------------------------------------------------------------------------

    async def _open(self, spec: Json) -> Json:
        if not os.access(BASH, os.X_OK):
            return {"error": "the image has no %s: use one that has" % BASH}
        self._timeout_s, self._characters = spec["timeout_s"], spec["characters"]
        environment = {**_inherited(), **spec["environment"], "HOME": spec["home"]}
        files = [field for path, content, mode in spec["files"] for field in _file(path, content, mode)]
        frame = [
            b"open",
            *wire.rules(Rules(spec["home"], 0, 0, 0, 0, 0, user=None)),
            wire.number(spec["bytes"]),
            wire.text(spec["profile"]),
            *wire.mapping(environment),
            *wire.items(map(os.fsencode, spec["directories"])),
            wire.number(len(spec["files"])),
            *files,
            *wire.items(map(wire.text, spec["setup"])),
        ]
        return _ok(await self._asked(frame, OPEN_S))

    async def _tree(self, limit: int) -> Json:
        answer = await self._asked([b"tree", wire.number(limit)], ANSWER_S + OPEN_S)
        if answer[0] != b"ok":
            return _ok(answer)
        flat = answer[1:]
        entries = zip(flat[0::4], flat[1::4], flat[2::4], flat[3::4])
        return {"tree": {os.fsdecode(path): _entry(*rest) for path, *rest in entries}}

    async def _asked(self, frame: list[bytes], seconds: float) -> list[bytes]:
        """The answer of the init, or an error in the form of one."""
        try:
            async with self._turn:
                await self._send(frame)
                return await asyncio.wait_for(self._receive(), seconds)
        except (OSError, EOFError, ValueError, asyncio.TimeoutError) as error:
            self._ledger.fail(self._epitaph(error))
            return [b"error", self._ledger.broken.encode()]

    async def _send(self, frame: list[bytes]) -> None:
        assert self._init.stdin is not None
        self._init.stdin.write(encode(frame))
        await self._init.stdin.drain()

    async def _receive(self) -> list[bytes]:
        assert self._init.stdout is not None
        while not self._frames:
            data = await self._init.stdout.read(1 << 16)
            if not data:
                raise EOFError
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)

    def _epitaph(self, error: BaseException) -> str:
        if isinstance(error, asyncio.TimeoutError):
            return "the sandbox stopped answering and was given up"
        with open(self._errors, "rb") as file:
            said = file.read()[-400:].decode("utf-8", "replace").strip()
        return "the sandbox ended: %s" % (said or "no reason given")


def _inherited() -> dict[str, str]:
    """The variables that the image brings, as far as a shell can set them."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.isascii() and name.isidentifier() and name not in NOT_INHERITED and not name.startswith("OBSSPEC")
    }


def _file(path: str, content: str, mode: int) -> list[bytes]:
    return [os.fsencode(path), wire.number(mode), b64decode(content)]


def _entry(kind: bytes, mode: bytes, content: bytes) -> list[object]:
    return [kind.decode(), int(mode), b64encode(content).decode()]


def _ok(answer: list[bytes]) -> Json:
    return {"ok": True} if answer[0] == b"ok" else {"error": answer[1].decode("utf-8", "replace")}
