"""The command line of the runner that is uploaded into a provider's sandbox: a daemon, and calls to it.

    python3 -I -S runner start           ->  starts the daemon, unless it runs; answers when it takes requests
    python3 -I -S runner call REQUEST    ->  sends a request (`service`), prints the answer
    python3 -I -S runner call @FILE      ->  the same for a request that is too long for a command line

Both print one line: MARK and a JSON object. There is only ever one daemon in a sandbox: one that has ended has taken
the state with it, so starting another would be to make something up.
"""

from __future__ import annotations

import os
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

MARK = "obsspec-answer:"
LISTEN_S = 1.0  # from binding a socket to listening on it, at the very most
CHUNK = 1 << 16


def main(program: str, arguments: list[str]) -> None:
    """`program` is the file that is being run; the directory beside it is where everything is kept."""
    place = os.path.splitext(os.path.abspath(program))[0]
    if arguments[:1] == ["start"]:
        say(start(program, place))
    elif arguments[:1] == ["call"]:
        say(call(place, arguments[1]))
    elif arguments[:1] == ["init"]:
        from .hosted import HostedInit

        HostedInit().serve()
    else:
        sys.exit("usage: start | call REQUEST")


def say(answer: str) -> None:
    """A line of its own, whatever was printed before it."""
    sys.stdout.write("\n%s%s\n" % (MARK, answer))
    sys.stdout.flush()


def call(place: str, request: str) -> str:
    """The answer of the daemon, or one that says that there is none any more."""
    if request[:1] == "@":
        with open(request[1:], encoding="ascii") as file:
            request = file.read()
    connection = socket.socket(socket.AF_UNIX)
    try:
        _connect(connection, _address(place))
        connection.sendall(request.encode("ascii"))
        connection.shutdown(socket.SHUT_WR)
        parts: list[bytes] = []
        while True:
            data = connection.recv(CHUNK)
            if not data:
                break
            parts.append(data)
    except OSError as error:
        return '{"error": "the runner in the sandbox has ended (%s)"}' % error.strerror
    return b"".join(parts).decode("ascii") or '{"error": "the runner in the sandbox ended"}'


def _connect(connection: socket.socket, address: str) -> None:
    end = time.monotonic() + LISTEN_S
    while True:
        try:
            return connection.connect(address)
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def start(program: str, place: str) -> str:
    """Answers when the daemon takes requests. The second of two starts finds the first one's socket."""
    os.makedirs(place, 0o700, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(_address(place))
    except OSError:
        listener.close()
    else:
        listener.listen(64)
        if os.fork() == 0:
            _become_daemon(program, place, listener)
    return call(place, '{"id": 0, "wait_s": 0, "withdrawn": []}')


def _become_daemon(program: str, place: str, listener: socket.socket) -> NoReturn:
    """In a session of its own, with nothing of whoever started it: an execution ends when nobody holds its pipes."""
    try:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        os.chdir("/")
        nothing = os.open(os.devnull, os.O_RDWR)
        log = os.open(os.path.join(place, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for fd, target in ((nothing, 0), (nothing, 1), (log, 2)):
            os.dup2(fd, target)
        _serve(program, place, listener)
    except BaseException as error:  # noqa: BLE001 - nothing may return into the code of `start`
        os.write(2, ("%r\n" % error).encode())
    finally:
        os._exit(1)


def _serve(program: str, place: str, listener: socket.socket) -> None:
    import asyncio
    import signal

    from .service import Service

    async def serve() -> None:
        await Service([sys.executable, "-I", "-S", program, "init"], place).serve(listener)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    os.environ["OBSSPEC_PLACE"] = os.path.join(place, "state")
    os.mkdir(os.environ["OBSSPEC_PLACE"], 0o700)
    asyncio.run(serve())


def _address(place: str) -> str:
    return os.path.join(place, "socket")
