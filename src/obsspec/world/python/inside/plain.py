"""Runs one cell as the standard library does: `exec` of its statements, `eval` of a last expression."""

from __future__ import annotations

import ast
import linecache
import sys
import traceback
import types

from .capture import Captured

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILENAME = "<string>"
MAX_REPR = 1 << 16


class Plain:
    """One namespace, that of a module called `__main__`."""

    def __init__(self) -> None:
        self._module = types.ModuleType("__main__")
        self._module.__dict__["__builtins__"] = __builtins__

    def run(self, code: str, number: int) -> dict[str, Any]:
        """All that any convention may show of the run; `number` is not used here."""
        sys.modules["__main__"] = self._module
        said: dict[str, Any] = {}
        with Captured() as captured:
            try:
                said = self._run(code)
            except BaseException as error:  # noqa: BLE001 - whatever the code raises is its result
                said = _describe(error, code)
        clipped = captured.out.clipped or captured.err.clipped
        return {"out": captured.out.text, "err": captured.err.text, "clipped": clipped, **said}

    def _run(self, code: str) -> dict[str, Any]:
        names = self._module.__dict__
        tree = ast.parse(code, FILENAME)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, FILENAME, "exec"), names)  # noqa: S102 - this is what the replica is for
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), FILENAME, "eval"), names)
            if value is None:
                return {}
            names["_"] = value
            return {"value": repr(value)[:MAX_REPR], "text": str(value)[:MAX_REPR]}
        name = _assigned(tree.body)
        return {"assigned": repr(names[name])[:MAX_REPR]} if name in names else {}


def _assigned(body: list[ast.stmt]) -> str:
    """The name that the last statement binds, if it binds just one."""
    last = body[-1] if body else None
    targets = last.targets if isinstance(last, ast.Assign) else [getattr(last, "target", None)]
    if len(targets) == 1 and isinstance(targets[0], ast.Name):
        return targets[0].id
    return ""


def _describe(error: BaseException, code: str) -> dict[str, Any]:
    """An exception in all its forms, without the frames of this file."""
    own = error.__traceback__
    while own is not None and own.tb_frame.f_code.co_filename != FILENAME:
        own = own.tb_next
    hidden = "".join(traceback.format_exception(type(error), error, own))
    linecache.cache[FILENAME] = (len(code), None, [line + "\n" for line in code.split("\n")], FILENAME)
    shown = "".join(traceback.format_exception(type(error), error, own))
    del linecache.cache[FILENAME]
    return {
        "error": type(error).__name__,
        "message": str(error)[:MAX_REPR],
        "repr": repr(error)[:MAX_REPR],
        "hidden": hidden,
        "shown": shown,
        "syntax": isinstance(error, SyntaxError) and own is None,
    }
