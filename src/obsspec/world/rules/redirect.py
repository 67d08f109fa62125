"""Where the output of a command goes: the terminal, nowhere, or files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from obsspec.world.rules.program import Run, UndeterminedError
from obsspec.world.rules.state import Absent, Directory, File
from obsspec.world.rules.streams import Doubt, Hole, Outcome, Piece
from obsspec.world.shell import expand
from obsspec.world.shell.paths import parent
from obsspec.world.shell.tree import Redirection

_NOWHERE = "/dev/null"


@dataclass(slots=True)
class Routes:
    """`out`, `error`: "1" and "2" for the streams of the surroundings, else a path key or /dev/null.

    `stdin`: None where the input is not known; `given`: whether there is a redirection of the input.
    """

    out: str = "1"
    error: str = "2"
    stdin: str | None = ""
    given: bool = False
    doubt: Doubt = Doubt.NONE
    opened: dict[str, File] = field(default_factory=dict[str, File])

    def send(self, outcome: Outcome, run: Run) -> Outcome:
        """The outcome as the surroundings see it; the files have what was written to them."""
        pieces: list[Piece] = []
        written: dict[str, list[str | Hole]] = {path: [] for path in self.opened}
        for piece in outcome.pieces:
            target = self.error if piece.error else self.out
            if target in ("1", "2"):
                pieces.append(Piece(piece.what, error=target == "2"))
            elif target != _NOWHERE:
                written[target].append(piece.what)
        for path, parts in written.items():
            run.state.tree.put(path, _written(self.opened[path], parts, outcome.doubt))
        return Outcome(tuple(pieces), outcome.code, outcome.doubt | self.doubt)


def _written(before: File, parts: list[str | Hole], doubt: Doubt) -> File:
    if before.text is None or any(isinstance(part, Hole) for part in parts):
        return File()
    return File(before.text + "".join(map(str, parts)), doubt=before.doubt | (doubt & ~Doubt.SUCCESS))


def routes(redirections: Iterable[Redirection], scope: expand.Scope, run: Run) -> Routes | Outcome | None:
    """Opens what the redirections name, in their order. An `Outcome`: the shell could not. None: not determined."""
    made = Routes(stdin=run.stdin)
    for redirection in redirections:
        outcome = _one(redirection, made, scope, run)
        if outcome is not made:
            return outcome
    return made


def _one(redirection: Redirection, made: Routes, scope: expand.Scope, run: Run) -> Routes | Outcome | None:
    if redirection.document is not None:
        if redirection.fd not in (None, 0):
            return None
        made.stdin, made.given = expand.text(redirection.document, scope), True
        return made
    target = expand.fields(redirection.target, scope)
    if target is None or len(target) != 1:
        return None
    operator, name = redirection.operator, target[0]
    if operator in (">&", "<&") and name in ("1", "2"):
        where = made.out if name == "1" else made.error
        if redirection.fd in (None, 1) and operator == ">&":
            made.out = where
        elif redirection.fd == 2:
            made.error = where
        else:
            return None
        return made
    if operator == "<" and redirection.fd in (None, 0):
        return _input(name, made, run)
    if operator in (">", ">>", ">|", "&>", "&>>") and redirection.fd in (None, 1, 2):
        return _output(operator, redirection.fd, name, made, run)
    return None


def _input(name: str, made: Routes, run: Run) -> Routes | Outcome:
    made.given = True
    if name == _NOWHERE:
        made.stdin = ""
        return made
    try:
        text = run.text(name)
    except UndeterminedError:
        made.stdin = None
        return made
    if text is None:
        return run.complain(f"{name}: No such file or directory")
    made.stdin = text
    return made


def _output(operator: str, fd: int | None, name: str, made: Routes, run: Run) -> Routes | Outcome:
    path = name if name == _NOWHERE else run.path(name)
    if name.startswith("/dev/") and name != _NOWHERE:
        raise UndeterminedError
    if path != _NOWHERE:
        node = run.state.tree.get(path)
        if isinstance(node, Directory):
            return run.complain(f"{name}: Is a directory")
        if isinstance(node, Absent) and isinstance(run.state.tree.get(parent(path)), Absent | File):
            return run.complain(f"{name}: No such file or directory")
        append = operator.endswith(">>")
        before = File("") if not append or isinstance(node, Absent) else node if isinstance(node, File) else File()
        made.opened.setdefault(path, before if before.exact else File(before.text, doubt=Doubt.ENDING))
        made.doubt |= Doubt.SUCCESS
        if not append:
            run.state.tree.put(path, File(""))
    if operator.startswith("&") or fd == 2:
        made.error = path
    if fd != 2:
        made.out = path
    return made
