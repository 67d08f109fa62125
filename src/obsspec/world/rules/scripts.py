"""Scripts that a script runs: their trees, where their text is known."""

from __future__ import annotations

import re

from obsspec.world.rules.program import Run, UndeterminedError
from obsspec.world.rules.state import File
from obsspec.world.shell.parse import Unparsed, parse
from obsspec.world.shell.tree import Sequence

_SHEBANG = re.compile(r"#!\s*/(?:usr/)?bin/(?:env )?(?:ba)?sh\n")


def given(words: tuple[str, ...], run: Run) -> Sequence | None:
    """Of `bash FILE`, where the content of the file is known, or `bash -c TEXT`."""
    if words[1:2] == ("-c",):
        return _tree(words[2]) if len(words) == 3 else None
    if len(words) < 2 or words[1].startswith("-"):
        return None
    try:
        return _tree(run.text(words[1]))
    except UndeterminedError:
        return None


def executable(name: str, run: Run) -> Sequence | None:
    """Of `./FILE`, where that is known to be a shell script that may be run."""
    try:
        node = run.node(name)
    except UndeterminedError:
        return None
    text = node.text if isinstance(node, File) and node.runs and not node.doubt else None
    return _tree(text) if text is not None and _SHEBANG.match(text) else None


def _tree(text: str | None) -> Sequence | None:
    tree = parse(text) if text is not None else None
    return None if tree is None or isinstance(tree, Unparsed) or not tree.commands else tree
