"""Filter, count and extract lines of log files."""

from __future__ import annotations

from obsspec.sandbox.spec import FileSpec
from obsspec.tasks.checks import AnswerIs, FileIs
from obsspec.tasks.draft import Draft, Draw, misnamed, one, text, told
from obsspec.tasks.task import Step

LEVELS = ("ERROR", "WARN", "INFO")


def _log(draw: Draw, level: str) -> tuple[str, list[str]]:
    path = draw.file("log", "app", "server", "web", "system", "auth", "mail", "job", "sync", "build", "events")
    others = [other for other in LEVELS if other != level]
    levels = [level, *(draw.pick(level, *others) for _ in range(draw.count() - 2)), draw.pick(*others)]
    draw.rng.shuffle(levels)
    words = draw.words(len(levels) * 2)
    return path, [f"{name} {words[2 * i]} {words[2 * i + 1]}" for i, name in enumerate(levels)]


def filtered(draw: Draw) -> Draft:
    level = draw.pick(*LEVELS)
    path, lines = _log(draw, level)
    target = draw.file()
    act = f"grep {level} {path} > {target}"
    step = Step(
        acts=one(act),
        looks=(f"cat {path}",),
        reviews=(f"cat {target}", f"wc -l {target}"),
        blunders=(
            (f"grep {level} {misnamed(path)}", "ls", act),
            (f"grep {level.lower()} {path} > {target}", f"cat {target}", act),
        ),
    )
    instruction = draw.pick(
        f"Copy all {level} lines of {path} to {target}.",
        f"Extract the lines of {path} that contain {level} and save them in {target}.",
        f"We want only the {level} entries of the log {path}. Write them to {target}.",
    ) + told(draw, path, lines)
    checks = (FileIs(target, text([line for line in lines if level in line])),)
    return Draft(instruction, (step,), checks, (FileSpec(path, text(lines)),))


def without(draw: Draw) -> Draft:
    level = draw.pick(*LEVELS)
    path, lines = _log(draw, level)
    target = draw.file()
    act = f"grep -v {level} {path} > {target}"
    step = Step(
        acts=one(act),
        looks=(f"cat {path}",),
        reviews=(f"cat {target}",),
        blunders=((f"grep {level} {path} > {target}", f"cat {target}", act),),
    )
    instruction = draw.pick(
        f"Write the lines of {path} without {level} to {target}.",
        f"Save all lines of the log {path} except the {level} lines in {target}.",
    ) + told(draw, path, lines)
    checks = (FileIs(target, text([line for line in lines if level not in line])),)
    return Draft(instruction, (step,), checks, (FileSpec(path, text(lines)),))


def count(draw: Draw) -> Draft:
    level = draw.pick(*LEVELS)
    path, lines = _log(draw, level)
    answer = str(sum(level in line for line in lines))
    step = Step(
        acts=one(f"grep -c {level} {path}"),
        looks=(f"cat {path}",),
        blunders=((f"grep -c {level} {misnamed(path)}", "ls", f"grep -c {level} {path}"),),
    )
    instruction = draw.pick(
        f"How many {level} lines does {path} have? Answer with the number.",
        f"Count the {level} entries in the log {path} and answer with the count.",
    ) + told(draw, path, lines)
    return Draft(instruction, (step,), (AnswerIs(answer),), (FileSpec(path, text(lines)),), answer=answer)


def count_to_file(draw: Draw) -> Draft:
    level = draw.pick(*LEVELS)
    path, lines = _log(draw, level)
    target = draw.file()
    act = f"grep -c {level} {path} > {target}"
    step = Step(
        acts=one(act),
        looks=(f"cat {path}",),
        reviews=(f"cat {target}",),
        blunders=((f"grep {level} {path} > {target}", f"cat {target}", act),),
    )
    instruction = draw.pick(
        f"Count the {level} lines of {path} and write just the number to {target}.",
        f"Put the number of {level} entries in {path} into the file {target}.",
    ) + told(draw, path, lines)
    checks = (FileIs(target, text([str(sum(level in line for line in lines))])),)
    return Draft(instruction, (step,), checks, (FileSpec(path, text(lines)),))


def second_words(draw: Draw) -> Draft:
    level = draw.pick(*LEVELS)
    path, lines = _log(draw, level)
    target = draw.file()
    act = f"cut -d' ' -f2 {path} > {target}"
    step = Step(
        acts=one(act),
        looks=(f"cat {path}",),
        reviews=(f"cat {target}",),
        blunders=((f"cut -d' ' -f1 {path} > {target}", f"cat {target}", act),),
    )
    instruction = draw.pick(
        f"Write the second word of each line of {path} to {target}.",
        f"Take the second space separated field of every line in {path} and save it in {target}.",
    ) + told(draw, path, lines)
    checks = (FileIs(target, text([line.split()[1] for line in lines])),)
    return Draft(instruction, (step,), checks, (FileSpec(path, text(lines)),))


KINDS = (filtered, without, count, count_to_file, second_words)
