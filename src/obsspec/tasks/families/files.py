"""Create, append, copy, move, rename and delete files."""

from __future__ import annotations

from obsspec.sandbox.spec import FileSpec
from obsspec.tasks.checks import Absent, FileIs, IsDirectory
from obsspec.tasks.draft import Draft, Draw, misnamed, one, text, told, write_lines
from obsspec.tasks.task import Step


def create(draw: Draw) -> Draft:
    path, line = draw.file(), " ".join(draw.words(draw.number(2, 4)))
    wrong = line.rsplit(" ", 1)[0]
    step = Step(
        acts=one(f"echo '{line}' > {path}", f"printf '{line}\\n' > {path}"),
        reviews=(f"cat {path}",),
        blunders=((f"echo '{wrong}' > {path}", f"cat {path}", f"echo '{line}' > {path}"),),
    )
    instruction = draw.pick(
        f"Create a file named {path} that contains the single line '{line}'.",
        f"Write the line '{line}' to a new file called {path}.",
        f"I need a file {path} with exactly one line: '{line}'. Please make it.",
    )
    return Draft(instruction, (step,), (FileIs(path, text([line])),))


def create_lines(draw: Draw) -> Draft:
    path, lines = draw.file(), draw.words(draw.number(2, 4))
    step = Step(
        acts=write_lines(path, lines),
        reviews=(f"cat {path}", f"wc -l {path}"),
        blunders=((f"echo '{' '.join(lines)}' > {path}", f"cat {path}", write_lines(path, lines)[0][0]),),
    )
    listed = ", ".join(lines)
    instruction = draw.pick(
        f"Create {path} with these words, one per line: {listed}.",
        f"Make a file called {path} that lists {listed}, each on its own line.",
        f"Write the words {listed} to {path}, one word per line.",
    )
    return Draft(instruction, (step,), (FileIs(path, text(lines)),))


def append(draw: Draw) -> Draft:
    path, lines = draw.file(), draw.words(draw.number(2, 3))
    line = " ".join(draw.words(2))
    step = Step(
        acts=one(f"echo '{line}' >> {path}"),
        looks=(f"cat {path}",),
        reviews=(f"cat {path}", f"tail -n 1 {path}"),
        blunders=((f"cat {misnamed(path)}", "ls", f"echo '{line}' >> {path}"),),
    )
    instruction = draw.pick(
        f"Append the line '{line}' to the end of {path}.",
        f"Add '{line}' as a new last line of the file {path}.",
        f"The file {path} needs one more line at the end: '{line}'. Add it.",
    ) + told(draw, path, lines)
    return Draft(instruction, (step,), (FileIs(path, text([*lines, line])),), (FileSpec(path, text(lines)),))


def copy(draw: Draw) -> Draft:
    source, target, lines = draw.file(), draw.file(), draw.words(draw.number(1, 3))
    step = Step(
        acts=one(f"cp {source} {target}"),
        looks=(f"cat {source}",),
        reviews=(f"cat {target}", "ls"),
        blunders=((f"cp {misnamed(source)} {target}", "ls", f"cp {source} {target}"),),
    )
    instruction = draw.pick(
        f"Copy {source} to {target}.",
        f"Make a copy of the file {source} and call it {target}.",
        f"Please duplicate {source} under the name {target}.",
    ) + told(draw, source, lines)
    checks = (FileIs(target, text(lines)),)
    return Draft(instruction, (step,), checks, (FileSpec(source, text(lines)),))


def rename(draw: Draw) -> Draft:
    source, target, lines = draw.file(), draw.file(), draw.words(draw.number(1, 3))
    step = Step(
        acts=one(f"mv {source} {target}"),
        looks=("ls",),
        reviews=("ls", f"cat {target}"),
        blunders=(
            (f"mv {misnamed(source)} {target}", "ls", f"mv {source} {target}"),
            (f"mv {source} {misnamed(target)}", "ls", f"mv {misnamed(target)} {target}"),
        ),
    )
    instruction = draw.pick(
        f"Rename the file {source} to {target}.",
        f"The file {source} should be called {target} instead. Rename it.",
        f"Change the name of {source} to {target} and keep its content.",
    ) + told(draw, source, lines)
    checks = (Absent(source), FileIs(target, text(lines)))
    return Draft(instruction, (step,), checks, (FileSpec(source, text(lines)),))


def move(draw: Draw) -> Draft:
    source, folder, lines = draw.file(), draw.directory(), draw.words(draw.number(1, 3))
    step = Step(
        acts=one(f"mv {source} {folder}/"),
        looks=("ls",),
        reviews=(f"ls {folder}", f"cat {folder}/{source}"),
        blunders=((f"mv {misnamed(source)} {folder}/", "ls", f"mv {source} {folder}/"),),
    )
    instruction = draw.pick(
        f"Move {source} into the directory {folder}, which is empty.",
        f"The folder {folder} is empty. Put the file {source} there.",
        f"Please move the file {source} to the empty {folder} folder.",
    ) + told(draw, source, lines)
    checks = (Absent(source), FileIs(f"{folder}/{source}", text(lines)))
    return Draft(instruction, (step,), checks, (FileSpec(source, text(lines)),), (folder,))


def delete(draw: Draw) -> Draft:
    gone, kept = draw.file(), draw.file()
    files = tuple(FileSpec(path, text(draw.words(2))) for path in (gone, kept))
    step = Step(
        acts=one(f"rm {gone}"),
        looks=("ls",),
        reviews=("ls",),
        blunders=((f"rm {misnamed(gone)}", "ls", f"rm {gone}"),),
    )
    instruction = draw.pick(
        f"There are two files, {gone} and {kept}. Delete {gone} and keep {kept}.",
        f"Remove the file {gone} but leave {kept} alone.",
        f"We no longer need {gone}. Delete it, but do not touch {kept}.",
    )
    return Draft(instruction, (step,), (Absent(gone),), files)


def collect(draw: Draw) -> Draft:
    source, folder, lines = draw.file(), draw.directory(), draw.words(2)
    step = Step(
        acts=((f"mkdir {folder}", f"cp {source} {folder}/"), (f"mkdir {folder} && cp {source} {folder}/",)),
        reviews=(f"ls {folder}", f"cat {folder}/{source}"),
        blunders=((f"cp {source} {folder}/", f"mkdir {folder}", f"cp {source} {folder}/"),),
    )
    instruction = draw.pick(
        f"Create a directory {folder} and copy {source} into it.",
        f"Make a new folder called {folder} with a copy of {source} in it.",
    ) + told(draw, source, lines)
    checks = (IsDirectory(folder), FileIs(f"{folder}/{source}", text(lines)))
    return Draft(instruction, (step,), checks, (FileSpec(source, text(lines)),))


KINDS = (create, create_lines, append, copy, rename, move, delete, collect)
