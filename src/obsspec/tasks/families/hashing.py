"""Write checksums to files, check them, compare files."""

from __future__ import annotations

import hashlib

from obsspec.sandbox.spec import FileSpec
from obsspec.tasks.checks import AnswerIs, FileIs
from obsspec.tasks.draft import Draft, Draw, misnamed, one, text, told
from obsspec.tasks.task import Step


def _digest(tool: str, content: bytes) -> str:
    return hashlib.new(tool.removesuffix("sum"), content).hexdigest()


def record(draw: Draw) -> Draft:
    path, lines, tool = draw.file(), draw.words(draw.number(1, 2)), draw.pick("md5sum", "sha1sum", "sha256sum")
    target = f"{misnamed(path)}.{tool.removesuffix('sum')}"
    act = f"{tool} {path} > {target}"
    step = Step(
        acts=one(act),
        looks=(f"cat {path}",),
        reviews=(f"{tool} -c {target}",),
        blunders=((f"{tool} {misnamed(path)}", "ls", act),),
    )
    instruction = draw.pick(
        f"Save the {tool} output for {path} in {target}.",
        f"Run {tool} on {path} and store the result in {target} so that it can be checked later.",
    ) + told(draw, path, lines)
    content = text(lines)
    checks = (FileIs(target, f"{_digest(tool, content)}  {path}\n".encode()),)
    return Draft(instruction, (step,), checks, (FileSpec(path, content),))


def record_two(draw: Draw) -> Draft:
    first, second, target = draw.file(), draw.file(), draw.file("md5", "sums", "check", "hashes", "list")
    files = tuple(FileSpec(path, text(draw.words(2))) for path in (first, second))
    step = Step(
        acts=one(f"md5sum {first} {second} > {target}"),
        looks=("ls",),
        reviews=(f"md5sum -c {target}", f"wc -l {target}"),
        blunders=((f"md5sum {first} > {target}", f"wc -l {target}", f"md5sum {second} >> {target}"),),
    )
    instruction = draw.pick(
        f"Store the md5sum lines of {first} and {second}, in this order, in {target}.",
        f"Create {target} with the md5sum output for {first} followed by {second}.",
    )
    expected = "".join(f"{_digest('md5sum', file.content)}  {file.path}\n" for file in files)
    return Draft(instruction, (step,), (FileIs(target, expected.encode()),), files)


def check(draw: Draw) -> Draft:
    path, target, lines = draw.file(), draw.file("md5", "sums", "check", "hashes"), draw.words(2)
    intact = draw.chance(0.5)
    content = text(lines if intact else lines[:1])
    files = (FileSpec(path, content), FileSpec(target, f"{_digest('md5sum', text(lines))}  {path}\n".encode()))
    answer = "yes" if intact else "no"
    step = Step(
        acts=one(f"md5sum -c {target}"),
        looks=("ls",),
        blunders=((f"md5sum -c {misnamed(target)}", f"md5sum -c {target}"),),
    )
    instruction = draw.pick(
        f"Does {path} still match the checksum stored in {target}? Answer yes or no.",
        f"Check the file {path} against {target} with md5sum. Answer yes if it matches, else no.",
    )
    return Draft(instruction, (step,), (AnswerIs(answer),), files, answer=answer)


def compare(draw: Draw) -> Draft:
    first, second, lines = draw.file(), draw.file(), draw.words(draw.number(2, 3))
    same = draw.chance(0.5)
    other = lines if same else [*lines[:-1], draw.pick("hello", "extra", "other", "final")]
    answer = "yes" if same else "no"
    step = Step(
        acts=one(f"cmp {first} {second} && echo same", f"diff {first} {second} && echo same"),
        looks=(f"cat {first}", f"cat {second}"),
        blunders=((f"cmp {misnamed(first)} {second}", "ls", f"cmp {first} {second} && echo same"),),
    )
    instruction = draw.pick(
        f"Do {first} and {second} have the same content? Answer yes or no.",
        f"Find out whether the files {first} and {second} are identical. Answer yes or no.",
    ) + told(draw, first, lines)
    files = (FileSpec(first, text(lines)), FileSpec(second, text(other)))
    return Draft(instruction, (step,), (AnswerIs(answer),), files, answer=answer)


KINDS = (record, record_two, check, compare)
