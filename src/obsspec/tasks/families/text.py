"""Sort, deduplicate, cut, replace and count the lines of text files."""

from __future__ import annotations

from obsspec.sandbox.spec import FileSpec
from obsspec.tasks.checks import AnswerIs, FileIs
from obsspec.tasks.draft import Draft, Draw, misnamed, one, text, told
from obsspec.tasks.task import Step


def _into(source: str, target: str, lines: list[str], result: list[str], step: Step, words: str) -> Draft:
    checks = (FileIs(target, text(result)),)
    return Draft(words, (step,), checks, (FileSpec(source, text(lines)),))


def sort(draw: Draw) -> Draft:
    source, target, lines = draw.file(), draw.file(), draw.words(draw.count())
    backwards = draw.chance(0.3)
    flag, order = ("-r ", "reverse alphabetical") if backwards else ("", "alphabetical")
    act = f"sort {flag}{source} > {target}"
    step = Step(
        acts=one(act, f"sort {flag}-o {target} {source}"),
        looks=(f"cat {source}",),
        reviews=(f"cat {target}",),
        blunders=((f"sort {flag}{misnamed(source)} -o {target}", "ls", act),),
    )
    instruction = draw.pick(
        f"Sort the lines of {source} in {order} order and save the result as {target}.",
        f"Write the lines of {source} to {target} in {order} order.",
        f"Put a sorted copy ({order} order) of {source} into {target}.",
    ) + told(draw, source, lines)
    return _into(source, target, lines, sorted(lines, reverse=backwards), step, instruction)


def numbers(draw: Draw) -> Draft:
    source, target = draw.file(), draw.file()
    # One number of each length, so that sorting as text gives another order.
    values = [draw.number(2, 9), draw.number(10, 19), *draw.rng.sample(range(100, 200), draw.count() - 2)]
    draw.rng.shuffle(values)
    lines = [str(value) for value in values]
    act = f"sort -n {source} > {target}"
    step = Step(
        acts=one(act),
        looks=(f"cat {source}",),
        reviews=(f"cat {target}",),
        blunders=((f"sort {source} > {target}", f"cat {target}", act),),
    )
    instruction = draw.pick(
        f"Sort the numbers in {source} from small to large and write them to {target}.",
        f"{source} has one number per line. Save them in increasing order as {target}.",
    ) + told(draw, source, lines)
    return _into(source, target, lines, [str(value) for value in sorted(values)], step, instruction)


def unique(draw: Draw) -> Draft:
    source, target, kept = draw.file(), draw.file(), draw.words(draw.number(2, 3))
    lines = [*kept, *(draw.pick(*kept) for _ in range(draw.number(1, 2)))]
    draw.rng.shuffle(lines)
    act = f"sort -u {source} > {target}"
    step = Step(
        acts=one(act, f"sort {source} | uniq > {target}"),
        looks=(f"cat {source}",),
        reviews=(f"cat {target}", f"wc -l {target}"),
        blunders=((f"uniq {source} > {target}", f"cat {target}", act),),
    )
    instruction = draw.pick(
        f"Write the sorted unique lines of {source} to {target}.",
        f"{source} has repeated lines. Save each line once, sorted, in {target}.",
    ) + told(draw, source, lines)
    return _into(source, target, lines, sorted(set(lines)), step, instruction)


def first_or_last(draw: Draw) -> Draft:
    source, target, lines = draw.file(), draw.file(), draw.words(draw.count() + 1)
    count = draw.number(1, 3)
    tool, end = draw.pick(("head", "first"), ("tail", "last"))
    result = lines[:count] if tool == "head" else lines[-count:]
    act = f"{tool} -n {count} {source} > {target}"
    step = Step(
        acts=one(act),
        looks=(f"cat {source}",),
        reviews=(f"cat {target}",),
        blunders=((f"{tool} -n {count} {misnamed(source)}", act),),
    )
    amount = f"{end} line" if count == 1 else f"{end} {count} lines"
    instruction = draw.pick(
        f"Save the {amount} of {source} in {target}.",
        f"Take the {amount} of the file {source} and write to {target}.",
    ) + told(draw, source, lines)
    return _into(source, target, lines, result, step, instruction)


def replace(draw: Draw) -> Draft:
    path, words = draw.file(), draw.words(6)
    old, new = words[0], words[1]
    lines = [f"{old} {words[2]}", f"{words[3]} {words[4]}", f"{words[5]} {old}"]
    draw.rng.shuffle(lines)
    act = f"sed -i 's/{old}/{new}/g' {path}"
    step = Step(
        acts=one(act),
        looks=(f"cat {path}",),
        reviews=(f"cat {path}", f"grep {new} {path}"),
        blunders=((f"sed 's/{old}/{new}/g' {path}", f"cat {path}", act),),
    )
    instruction = draw.pick(
        f"In {path}, replace every '{old}' with '{new}'.",
        f"Change the word {old} to {new} everywhere in the file {path}.",
    ) + told(draw, path, lines)
    checks = (FileIs(path, text([line.replace(old, new) for line in lines])),)
    return Draft(instruction, (step,), checks, (FileSpec(path, text(lines)),))


def upper(draw: Draw) -> Draft:
    source, target, lines = draw.file(), draw.file(), draw.words(draw.number(2, 4))
    step = Step(
        acts=one(f"tr 'a-z' 'A-Z' < {source} > {target}"),
        looks=(f"cat {source}",),
        reviews=(f"cat {target}",),
        blunders=((f"tr 'a-z' 'A-Z' < {source}", f"tr 'a-z' 'A-Z' < {source} > {target}"),),
    )
    instruction = draw.pick(
        f"Convert the text of {source} to upper case and save it as {target}.",
        f"Write an all capitals version of {source} to {target}.",
    ) + told(draw, source, lines)
    return _into(source, target, lines, [line.upper() for line in lines], step, instruction)


def join(draw: Draw) -> Draft:
    first, second, target = draw.file(), draw.file(), draw.file()
    top, bottom = draw.words(draw.number(1, 3)), draw.words(draw.number(1, 3))
    step = Step(
        acts=one(f"cat {first} {second} > {target}"),
        looks=(f"cat {first}", f"cat {second}"),
        reviews=(f"cat {target}", f"wc -l {target}"),
        blunders=((f"cat {misnamed(first)}", "ls", f"cat {first} {second} > {target}"),),
    )
    instruction = draw.pick(
        f"Join {first} and {second}, in this order, into a new file {target}.",
        f"Create {target} from the lines of {first} followed by the lines of {second}.",
    ) + told(draw, first, top)
    files = (FileSpec(first, text(top)), FileSpec(second, text(bottom)))
    return Draft(instruction, (step,), (FileIs(target, text([*top, *bottom])),), files)


def count(draw: Draw) -> Draft:
    path, lines = draw.file(), draw.words(draw.number(2, 6))
    step = Step(
        acts=one(f"wc -l {path}", f"wc -l < {path}"),
        looks=(f"cat {path}",),
        blunders=((f"wc -l {misnamed(path)}", "ls", f"wc -l {path}"),),
    )
    instruction = draw.pick(
        f"How many lines are in the file {path}? Answer with the number.",
        f"Count the lines of {path} and give the number as your answer.",
    ) + told(draw, path, lines)
    return Draft(
        instruction, (step,), (AnswerIs(str(len(lines))),), (FileSpec(path, text(lines)),), answer=str(len(lines))
    )


KINDS = (sort, numbers, unique, first_or_last, replace, upper, join, count)
