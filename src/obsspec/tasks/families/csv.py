"""Filter, cut, sort and sum small CSV files."""

from __future__ import annotations

from obsspec.sandbox.spec import FileSpec
from obsspec.tasks.checks import AnswerIs, FileIs
from obsspec.tasks.draft import Draft, Draw, misnamed, one, text, told
from obsspec.tasks.task import Step
from obsspec.tasks.words import CITIES, NAMES

HEADER = "name,city,age"


def _people(draw: Draw) -> tuple[str, list[tuple[str, str, int]]]:
    path = draw.file("csv", "people", "users", "staff", "clients", "guests", "team", "members", "players", "pupils")
    names = draw.words(draw.count() - 1, NAMES)
    cities = draw.words(2, CITIES)
    rows = [(name, draw.pick(*cities), draw.number(18, 80)) for name in names]
    return path, rows


def _lines(rows: list[tuple[str, str, int]]) -> list[str]:
    return [HEADER, *(f"{name},{city},{age}" for name, city, age in rows)]


def _told(draw: Draw, path: str, rows: list[tuple[str, str, int]]) -> str:
    return told(draw, path, _lines(rows)) or f" The columns are {HEADER}."


def column(draw: Draw) -> Draft:
    path, rows = _people(draw)
    target = draw.file()
    number, title = draw.pick((1, "name"), (2, "city"), (3, "age"))
    act = f"tail -n +2 {path} | cut -d, -f{number} > {target}"
    step = Step(
        acts=one(act),
        looks=(f"cat {path}",),
        reviews=(f"cat {target}",),
        blunders=((f"cut -d, -f{number} {path} > {target}", f"cat {target}", act),),
    )
    instruction = draw.pick(
        f"Write the {title} column of {path}, without the header, to {target}.",
        f"Extract column {title} from {path} into {target}. Leave out the header line.",
    ) + _told(draw, path, rows)
    checks = (FileIs(target, text([str(row[number - 1]) for row in rows])),)
    return Draft(instruction, (step,), checks, (FileSpec(path, text(_lines(rows))),))


def by_city(draw: Draw) -> Draft:
    path, rows = _people(draw)
    target, city = draw.file("csv", "result", "part", "chosen", "found", "output"), draw.pick(*rows)[1]
    act = f"grep ,{city}, {path} > {target}"
    step = Step(
        acts=one(act),
        looks=(f"cat {path}",),
        reviews=(f"cat {target}", f"wc -l {target}"),
        blunders=((f"grep ,{city}, {misnamed(path)}", "ls", act),),
    )
    instruction = draw.pick(
        f"Save the rows of {path} whose city is {city} in {target}, without a header.",
        f"Copy only the {city} rows of {path} to {target}. No header is needed.",
    ) + _told(draw, path, rows)
    checks = (FileIs(target, text([line for line in _lines(rows) if f",{city}," in line])),)
    return Draft(instruction, (step,), checks, (FileSpec(path, text(_lines(rows))),))


def rows_count(draw: Draw) -> Draft:
    path, rows = _people(draw)
    answer = str(len(rows))
    step = Step(
        acts=one(f"tail -n +2 {path} | wc -l"),
        looks=(f"cat {path}",),
        blunders=((f"wc -l {path}", f"head -n 1 {path}", f"tail -n +2 {path} | wc -l"),),
    )
    instruction = draw.pick(
        f"How many rows does {path} have, not counting the header? Answer with the number.",
        f"Count the data rows of {path} (the first line is a header). Answer with the count.",
    ) + _told(draw, path, rows)
    files = (FileSpec(path, text(_lines(rows))),)
    return Draft(instruction, (step,), (AnswerIs(answer),), files, answer=answer)


def total(draw: Draw) -> Draft:
    path, rows = _people(draw)
    answer = str(sum(row[2] for row in rows))
    act = f"awk -F, '{{s += $3}} END {{print s}}' {path}"
    step = Step(acts=one(act), looks=(f"cat {path}",), blunders=((act.replace("$3", "$2"), act),))
    instruction = draw.pick(
        f"What is the sum of the age column in {path}? Answer with the number.",
        f"Add up all ages in {path} and answer with the total.",
    ) + _told(draw, path, rows)
    files = (FileSpec(path, text(_lines(rows))),)
    return Draft(instruction, (step,), (AnswerIs(answer),), files, answer=answer)


def ordered(draw: Draw) -> Draft:
    path, rows = _people(draw)
    target = draw.file("csv", "sorted", "ordered", "result", "output", "ranked")
    ages = draw.rng.sample(range(18, 80), len(rows))
    rows = [(name, city, age) for (name, city, _), age in zip(rows, ages, strict=True)]
    act = f"tail -n +2 {path} | sort -t, -k3 -n > {target}"
    step = Step(
        acts=one(act),
        looks=(f"cat {path}",),
        reviews=(f"cat {target}",),
        blunders=((f"sort -t, -k3 -n {path} > {target}", f"cat {target}", act),),
    )
    instruction = draw.pick(
        f"Sort the rows of {path} by age, youngest first, and save them in {target} without the header.",
        f"Write the data rows of {path} ordered by increasing age to {target}. Skip the header.",
    ) + _told(draw, path, rows)
    lines = [f"{name},{city},{age}" for name, city, age in sorted(rows, key=lambda row: row[2])]
    return Draft(instruction, (step,), (FileIs(target, text(lines)),), (FileSpec(path, text(_lines(rows))),))


def append(draw: Draw) -> Draft:
    path, rows = _people(draw)
    used = {row[0] for row in rows}
    row = (draw.pick(*(name for name in NAMES if name not in used)), draw.pick(*CITIES), draw.number(18, 80))
    line = ",".join(str(part) for part in row)
    step = Step(
        acts=one(f"echo '{line}' >> {path}"),
        looks=(f"cat {path}",),
        reviews=(f"cat {path}", f"tail -n 1 {path}"),
        blunders=((f"cat {misnamed(path)}", "ls", f"echo '{line}' >> {path}"),),
    )
    instruction = draw.pick(
        f"Add a row for {row[0]} from {row[1]}, age {row[2]}, at the end of {path}.",
        f"Append {row[0]}, who lives in {row[1]} and is {row[2]}, as a new row of {path}.",
    ) + _told(draw, path, rows)
    checks = (FileIs(path, text([*_lines(rows), line])),)
    return Draft(instruction, (step,), checks, (FileSpec(path, text(_lines(rows))),))


KINDS = (column, by_city, rows_count, total, ordered, append)
