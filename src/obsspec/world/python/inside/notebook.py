"""Runs one cell in IPython's shell, where IPython is installed."""

from __future__ import annotations

import importlib

from .capture import Captured

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Notebook:
    """An `InteractiveShell` without history file, colours and terminal. Raises ImportError."""

    def __init__(self) -> None:
        shells = importlib.import_module("IPython.core.interactiveshell")
        config = importlib.import_module("traitlets.config").Config()
        config.HistoryManager.enabled = False
        self.version = str(importlib.import_module("IPython").__version__)
        # another namespace than IPython's own: that one holds In, Out, exit, quit
        self._shell: Any = shells.InteractiveShell.instance(colors="NoColor", user_ns={}, config=config)
        with Captured():  # what is imported at the first cell, and at the first traceback, is imported here
            self._shell.run_cell("1\nraise ValueError", store_history=False)

    def run(self, code: str, number: int) -> dict[str, Any]:
        """What the shell prints for cell `number`."""
        self._shell.execution_count = number
        said: dict[str, Any] = {}
        with Captured() as captured:
            try:
                result = self._shell.run_cell(code, store_history=True)
                error = result.error_before_exec or result.error_in_exec
                if error is not None:
                    said = {"error": type(error).__name__, "message": str(error)}
                    said["syntax"] = isinstance(result.error_before_exec, SyntaxError)
            except BaseException as error:  # noqa: BLE001 - whatever the code raises is its result
                said = {"error": type(error).__name__, "message": str(error)}
        clipped = captured.out.clipped or captured.err.clipped
        return {"out": captured.out.text, "err": captured.err.text, "clipped": clipped, "cell": True, **said}
