"""Create, change and read small JSON files with python3."""

from __future__ import annotations

import json

from obsspec.sandbox.spec import FileSpec
from obsspec.tasks.checks import AnswerIs, FileIs, JsonIs
from obsspec.tasks.draft import Draft, Draw, listing, misnamed, one, text, told
from obsspec.tasks.task import Step
from obsspec.tasks.words import KEYS

STEMS = ("data", "user", "config", "state", "info", "item", "settings", "profile", "record")
Object = dict[str, str | int]


def _value(draw: Draw) -> str | int:
    return draw.pick(draw.words(1)[0], draw.number(1, 200))


def _object(draw: Draw, count: int) -> tuple[str, Object]:
    return draw.file("json", *STEMS), {key: _value(draw) for key in draw.words(count, KEYS)}


def _python(code: str, path: str) -> str:
    return f"python3 -c \"import json; d = json.load(open('{path}')); {code}\""


def create(draw: Draw) -> Draft:
    path, value = _object(draw, 2)
    written = json.dumps(value)
    step = Step(
        acts=one(f"echo '{written}' > {path}"),
        reviews=(f"cat {path}", f"python3 -m json.tool {path}"),
        blunders=((f"echo '{written[:-1]}' > {path}", f"python3 -m json.tool {path}", f"echo '{written}' > {path}"),),
    )
    pairs = listing([f"{key} set to {item}" for key, item in value.items()])
    instruction = draw.pick(
        f"Create a JSON file {path} that holds an object with {pairs}.",
        f"Write a JSON object to {path} with {pairs}.",
    )
    return Draft(instruction, (step,), (JsonIs(path, written),))


def change(draw: Draw) -> Draft:
    path, value = _object(draw, draw.number(2, 3))
    key = draw.pick(*value)
    new = draw.number(201, 400)
    act = _python(f"d['{key}'] = {new}; json.dump(d, open('{path}', 'w'))", path)
    step = Step(
        acts=one(act),
        looks=(f"cat {path}",),
        reviews=(f"cat {path}",),
        blunders=((_python(f"d['{key}'] = {new}; print(d)", path), f"cat {path}", act),),
    )
    instruction = draw.pick(
        f"Set {key} to the number {new} in the JSON file {path} and keep the rest.",
        f"Change the value of {key} in {path} to the number {new}.",
    ) + told(draw, path, [json.dumps(value)])
    checks = (JsonIs(path, json.dumps({**value, key: new})),)
    return Draft(instruction, (step,), checks, (FileSpec(path, text([json.dumps(value)])),))


def read(draw: Draw) -> Draft:
    path, value = _object(draw, draw.number(2, 4))
    key = draw.pick(*value)
    act = _python(f"print(d['{key}'])", path)
    step = Step(
        acts=one(act),
        looks=(f"cat {path}",),
        blunders=((f"cat {misnamed(path)}", "ls", act),),
    )
    instruction = draw.pick(
        f"What is the value of {key} in {path}? Answer with the value only.",
        f"Read the JSON file {path} and answer with the value of {key}.",
    ) + told(draw, path, [json.dumps(value)])
    files = (FileSpec(path, text([json.dumps(value)])),)
    answer = str(value[key])
    return Draft(instruction, (step,), (AnswerIs(answer),), files, answer=answer)


def keys(draw: Draw) -> Draft:
    path, value = _object(draw, draw.number(2, 4))
    target = draw.file()
    act = _python("print(*sorted(d), sep='\\n')", path) + f" > {target}"
    step = Step(
        acts=one(act),
        looks=(f"cat {path}",),
        reviews=(f"cat {target}",),
        blunders=((act.replace("sorted(d)", "sorted(d.values())"), f"cat {target}", act),),
    )
    instruction = draw.pick(
        f"Write the sorted keys of the JSON object in {path} to {target}, one per line.",
        f"List the keys of {path} in sorted order, one per line, in the file {target}.",
    ) + told(draw, path, [json.dumps(value)])
    if any(isinstance(item, int) for item in value.values()):
        step = Step(step.acts, step.looks, step.reviews)
    return Draft(
        instruction, (step,), (FileIs(target, text(sorted(value))),), (FileSpec(path, text([json.dumps(value)])),)
    )


def total(draw: Draw) -> Draft:
    path, values = draw.file("json", *STEMS), [draw.number(1, 99) for _ in range(draw.number(3, 5))]
    what, call, answer = draw.pick(
        ("sum", "sum(d)", sum(values)), ("largest number", "max(d)", max(values)), ("length", "len(d)", len(values))
    )
    act = _python(f"print({call})", path)
    step = Step(acts=one(act), looks=(f"cat {path}",), blunders=((_python(f"print({call[:3]})", path), act),))
    instruction = draw.pick(
        f"{path} holds a JSON list of numbers. What is its {what}? Answer with the number.",
        f"Find the {what} of the JSON list in {path} with python3. Answer with the number.",
    ) + told(draw, path, [json.dumps(values)])
    files = (FileSpec(path, text([json.dumps(values)])),)
    return Draft(instruction, (step,), (AnswerIs(str(answer)),), files, answer=str(answer))


KINDS = (create, change, read, keys, total)
