"""Change and read permission bits; make symbolic links."""

from __future__ import annotations

from obsspec.sandbox.spec import FileSpec
from obsspec.tasks.checks import AnswerIs, LinkTo, ModeIs
from obsspec.tasks.draft import Draft, Draw, misnamed, one, text, told
from obsspec.tasks.task import Step

MODES = (0o600, 0o640, 0o444, 0o400, 0o755, 0o700, 0o664)


def numeric(draw: Draw) -> Draft:
    path, mode, other = draw.file(), draw.pick(*MODES), draw.file()
    files = (FileSpec(path, text(draw.words(2))), FileSpec(other, text(draw.words(1))))
    show = f"stat -c %a {path}"
    step = Step(
        acts=one(f"chmod {mode:o} {path}"),
        looks=(show,),
        reviews=(show,),
        blunders=((f"chmod {mode:o} {misnamed(path)}", "ls", f"chmod {mode:o} {path}"),),
    )
    instruction = draw.pick(
        f"Set the permissions of {path} to {mode:o} and leave {other} alone.",
        f"Change the mode of the file {path} to {mode:o}. The file {other} must stay as it is.",
    )
    return Draft(instruction, (step,), (ModeIs(path, mode),), files)


def executable(draw: Draw) -> Draft:
    path, word = draw.file("sh", "run", "start", "build", "deploy", "hello", "clean"), " ".join(draw.words(2))
    content = text(["#!/bin/bash", f"echo '{word}'"])
    step = Step(
        acts=one(f"chmod +x {path}"),
        looks=(f"cat {path}", f"./{path}"),
        reviews=(f"./{path}",),
        blunders=((f"chmod +x {misnamed(path)}", f"chmod +x {path}"),),
    )
    instruction = draw.pick(
        f"Make the script {path} executable for everybody. It prints '{word}'.",
        f"The script {path}, which prints '{word}', cannot be run. Make it executable.",
    )
    return Draft(instruction, (step,), (ModeIs(path, 0o755),), (FileSpec(path, content),))


def link(draw: Draw) -> Draft:
    path, name, lines = draw.file(), draw.file("txt", "latest", "current", "link", "short", "newest"), draw.words(2)
    name = draw.pick(name, misnamed(name))
    step = Step(
        acts=one(f"ln -s {path} {name}"),
        looks=(f"cat {path}",),
        reviews=(f"readlink {name}", f"cat {name}"),
        blunders=(
            (f"ln -s {misnamed(path)} {name}", f"cat {name}", f"ln -sf {path} {name}"),
            (f"cp {path} {name}", f"readlink {name}", f"ln -sf {path} {name}"),
        ),
    )
    instruction = draw.pick(
        f"Create a symbolic link {name} that points to {path}.",
        f"Make {name} a symlink to the file {path}.",
    ) + told(draw, path, lines)
    return Draft(instruction, (step,), (LinkTo(name, path),), (FileSpec(path, text(lines)),))


def mode_of(draw: Draw) -> Draft:
    path, mode = draw.file(), draw.pick(*MODES)
    act = f"stat -c %a {path}"
    step = Step(acts=one(act), looks=("ls",), blunders=((f"stat -c %a {misnamed(path)}", "ls", act),))
    instruction = draw.pick(
        f"Which permissions does {path} have, as an octal number? Answer with the number.",
        f"Find the octal mode of the file {path} and answer with it.",
    )
    files = (FileSpec(path, text(draw.words(2)), mode),)
    return Draft(instruction, (step,), (AnswerIs(f"{mode:o}"),), files, answer=f"{mode:o}")


def writable(draw: Draw) -> Draft:
    path, lines, mode = draw.file(), draw.words(2), draw.pick(0o400, 0o444)
    step = Step(
        acts=one(f"chmod u+w {path}"),
        looks=(f"stat -c %a {path}",),
        reviews=(f"stat -c %a {path}",),
        blunders=((f"chmod u-w {path}", f"stat -c %a {path}", f"chmod u+w {path}"),),
    )
    instruction = draw.pick(
        f"The file {path} has mode {mode:o}. Allow its owner to write to it.",
        f"{path} is read only with mode {mode:o}. Give the owner write permission.",
    )
    return Draft(instruction, (step,), (ModeIs(path, mode | 0o200),), (FileSpec(path, text(lines), mode),))


KINDS = (numeric, executable, link, mode_of, writable)
