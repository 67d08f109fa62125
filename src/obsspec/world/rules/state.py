"""What a transcript determines of a machine: its files, the directory and the variables of its shell.

Everything is known or not known; nothing is guessed. A path that is not mentioned is not known.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from obsspec.world.rules.streams import Doubt
from obsspec.world.shell.paths import START, parent, root_of, touching, within


@dataclass(frozen=True, slots=True)
class File:
    """A regular file. `text`: None where not known. `exact`: its trailing blanks and line ends are known, too.

    `packed`: for a gzip file, the file in it. `doubt`: what it rests on that this is the file's content. `runs`: it has
    been made executable.
    """

    text: str | None = None
    exact: bool = True
    packed: File | None = None
    doubt: Doubt = Doubt.NONE
    runs: bool = False


@dataclass(frozen=True, slots=True)
class Directory:
    """`names`: all that is in it, None where not known. `hidden`: whether `names` has the dot files, too."""

    names: frozenset[str] | None = None
    hidden: bool = True


@dataclass(frozen=True, slots=True)
class Absent:
    """Nothing is there."""


Node = File | Directory | Absent
Job = frozenset[str] | None
ABSENT = Absent()


class Tree:
    """The files by path. Copies are cheap; a copy and its original never change each other.

    `jobs`: what each background job may write, until it ends; None is anything. Nothing of that is known meanwhile.
    """

    def __init__(self, nodes: dict[str, Node] | None = None, jobs: tuple[Job, ...] = ()) -> None:
        self.nodes = nodes if nodes is not None else {}
        self.jobs = jobs

    def copy(self) -> Tree:
        return Tree(dict(self.nodes), self.jobs)

    def get(self, path: str | None) -> Node | None:
        """What is at `path`; None if that is not known."""
        if path is None or any(job is None or any(touching(path, written) for written in job) for job in self.jobs):
            return None
        return self._kept(path)

    def start_job(self, writes: Job) -> None:
        if writes is None or writes:
            self.jobs += (writes,)

    def end_job(self, writes: Job) -> None:
        """What it wrote is there now."""
        jobs = list(self.jobs)
        if writes in jobs:
            jobs.remove(writes)
        self.jobs = tuple(jobs)
        for path in writes if writes is not None else (None,):
            self.forget(path)

    def _kept(self, path: str) -> Node | None:
        found = self.nodes.get(path)
        if found is not None:
            return found
        if path == "/":
            return Directory()
        above = parent(path)
        if above is None:
            return Directory() if path.startswith(START) else None
        name = path.rpartition("/")[2]
        match self.nodes.get(above) or (self._kept(above) if above != "/" else None):
            case Absent():
                return ABSENT
            case Directory(names, hidden) if names is not None and (hidden or not name.startswith(".")):
                return None if name in names else ABSENT
            case _:
                return None

    def put(self, path: str | None, node: File | Directory) -> None:
        """`node` is at `path` now, and so are all directories above it."""
        if path is None:
            self.forget_all()
            return
        self._forget_aliases(path)
        if isinstance(node, File):
            self._drop(path)
        self.nodes[path] = node
        self._mention(path)

    def put_unknown(self, path: str) -> None:
        """Something is at `path` now."""
        self._forget_aliases(path)
        self._drop(path)
        self._mention(path)

    def remove(self, path: str | None) -> None:
        """Nothing is at `path` any more, nor below it."""
        if path is None:
            self.forget_all()
            return
        self._forget_aliases(path)
        self._drop(path)
        self.nodes[path] = ABSENT
        above = self.nodes.get(parent(path) or "")
        if isinstance(above, Directory) and above.names is not None:
            name = path.rpartition("/")[2]
            self.nodes[parent(path) or ""] = replace(above, names=above.names - {name})

    def forget(self, path: str | None) -> None:
        """Anything may have happened at `path` and below it."""
        if path is None:
            self.forget_all()
            return
        self._forget_aliases(path)
        self._drop(path)
        above = parent(path)
        while above is not None:  # it may have come or gone, and so may what holds it
            found = self.nodes.get(above)
            if isinstance(found, Directory):
                self.nodes[above] = Directory()
                break
            self.nodes.pop(above, None)
            above = parent(above)

    def forget_all(self) -> None:
        self.nodes.clear()

    def move(self, source: str, target: str) -> None:
        """What is known below `source` is now known below `target`, and nothing is at `source`."""
        moved = {target + path[len(source) :]: node for path, node in self.nodes.items() if within(path, source)}
        self.remove(source)
        self.put(target, Directory())
        self.nodes.update(moved)
        if any(job is not None and any(touching(source, written) for written in job) for job in self.jobs):
            self.start_job(frozenset({target}))  # what is open for writing moves along

    def rename_root(self, root: str, name: str) -> None:
        """The unnamed directory `root` turns out to be `name`."""
        nodes = self.nodes
        self.nodes = {path: node for path, node in nodes.items() if not within(path, root)}
        for path, node in nodes.items():
            if within(path, root):
                self.nodes[_renamed(path, root, name)] = node
        self.jobs = tuple(job and frozenset(_renamed(path, root, name) for path in job) for job in self.jobs)

    def _drop(self, path: str) -> None:
        for known in [known for known in self.nodes if within(known, path)]:
            del self.nodes[known]

    def _forget_aliases(self, path: str) -> None:
        """Paths under other roots that may be this one."""
        root = root_of(path)
        for known in [known for known in self.nodes if root_of(known) != root and touching(known, path)]:
            del self.nodes[known]

    def _mention(self, path: str) -> None:
        above, name = parent(path), path.rpartition("/")[2]
        while above is not None:
            found = self.nodes.get(above)
            if isinstance(found, Directory):
                if found.names is None or name in found.names:
                    return
                self.nodes[above] = replace(found, names=found.names | {name})
                return
            self.nodes[above] = Directory()
            above, name = parent(above), above.rpartition("/")[2]


def _renamed(path: str, root: str, name: str) -> str:
    return (name.rstrip("/") + path[len(root) :]) or "/" if within(path, root) else path


@dataclass(slots=True)
class State:
    """`variables`: None for a value that is not known; what is not in it is not known either.

    `shadowed`: names that functions and aliases have taken. `strict`: `set -e` and the like may be on.
    """

    tree: Tree = field(default_factory=Tree)
    cwd: str = START
    variables: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    shadowed: frozenset[str] = frozenset()
    strict: bool = False
    place: Doubt = Doubt.NONE  # what `cwd` rests on
    roots: dict[str, str] = field(default_factory=dict[str, str])  # unnamed directories that turned out to have a name
    lost: int = 0  # how many unnamed directories there have been

    def copy(self) -> State:
        return State(
            self.tree.copy(),
            self.cwd,
            dict(self.variables),
            self.shadowed,
            self.strict,
            self.place,
            dict(self.roots),
            self.lost,
        )

    def adopt(self, other: State) -> None:
        """Become `other`."""
        self.tree, self.cwd, self.variables = other.tree, other.cwd, other.variables
        self.shadowed, self.strict, self.place = other.shadowed, other.strict, other.place
        self.roots, self.lost = other.roots, other.lost

    def adopt_files(self, other: State) -> None:
        """The files of `other`, which a subshell may have changed, and the shell of this."""
        self.tree, self.lost = other.tree, max(self.lost, other.lost)

    def lose_directory(self) -> None:
        """The shell is in a directory that nothing tells."""
        self.lost += 1
        self.cwd = f"{START}{self.lost}"

    def lose_shell(self) -> None:
        """Anything may have become of the shell."""
        self.lose_directory()
        self.variables = {}
        self.strict = True

    def merge(self, other: State) -> None:
        """Either this or `other` is the state: keep what both agree on."""
        self.tree.jobs += tuple(job for job in other.tree.jobs if job not in self.tree.jobs)
        nodes = other.tree.nodes
        differ = [path for path in self.tree.nodes.keys() | nodes.keys() if self.tree.get(path) != other.tree.get(path)]
        for path in differ:
            self.tree.forget(path)
        if self.cwd != other.cwd:
            self.lost = max(self.lost, other.lost)
            self.lose_directory()
        names = self.variables.keys() & other.variables.keys()
        self.variables = {name: self.variables[name] for name in names if self.variables[name] == other.variables[name]}
        self.shadowed |= other.shadowed
        self.strict = self.strict or other.strict
