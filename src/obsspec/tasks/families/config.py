"""Edit and read key=value and ini files."""

from __future__ import annotations

from obsspec.sandbox.spec import FileSpec
from obsspec.tasks.checks import AnswerIs, FileIs
from obsspec.tasks.draft import Draft, Draw, misnamed, one, text, told
from obsspec.tasks.task import Step
from obsspec.tasks.words import KEYS

STEMS = ("app", "server", "main", "site", "client", "game", "editor", "default", "local")


def _value(draw: Draw) -> str:
    return draw.pick(draw.words(1)[0], str(draw.number(1, 200)))


def _settings(draw: Draw) -> tuple[str, list[tuple[str, str]]]:
    path = draw.file(draw.pick("conf", "cfg", "env"), *STEMS)
    return path, [(key, _value(draw)) for key in draw.words(draw.count() - 1, KEYS)]


def _lines(settings: list[tuple[str, str]]) -> list[str]:
    return [f"{key}={value}" for key, value in settings]


def change(draw: Draw) -> Draft:
    path, settings = _settings(draw)
    key, old = draw.pick(*settings)
    new = _value(draw)
    while new == old:
        new = _value(draw)
    act = f"sed -i 's/^{key}=.*/{key}={new}/' {path}"
    step = Step(
        acts=one(act),
        looks=(f"cat {path}",),
        reviews=(f"cat {path}", f"grep {key} {path}"),
        blunders=(
            (f"sed 's/^{key}=.*/{key}={new}/' {path}", f"grep {key} {path}", act),
            (f"sed -i 's/^{key}=.*/{key}={new}/' {misnamed(path)}", "ls", act),
        ),
    )
    instruction = draw.pick(
        f"Set {key} to {new} in {path}.",
        f"Change the value of {key} in the config file {path} to {new}.",
        f"In {path}, the setting {key} should be {new}. Fix it.",
    ) + told(draw, path, _lines(settings))
    changed = [(name, new if name == key else value) for name, value in settings]
    checks = (FileIs(path, text(_lines(changed))),)
    return Draft(instruction, (step,), checks, (FileSpec(path, text(_lines(settings))),))


def add(draw: Draw) -> Draft:
    path, settings = _settings(draw)
    used = {key for key, _ in settings}
    key, value = draw.pick(*(key for key in KEYS if key not in used)), _value(draw)
    step = Step(
        acts=one(f"echo '{key}={value}' >> {path}"),
        looks=(f"cat {path}",),
        reviews=(f"cat {path}", f"tail -n 1 {path}"),
        blunders=((f"cat {misnamed(path)}", "ls", f"echo '{key}={value}' >> {path}"),),
    )
    instruction = draw.pick(
        f"Add the setting {key}={value} at the end of {path}.",
        f"The config {path} lacks {key}. Append the line {key}={value}.",
    ) + told(draw, path, _lines(settings))
    checks = (FileIs(path, text([*_lines(settings), f"{key}={value}"])),)
    return Draft(instruction, (step,), checks, (FileSpec(path, text(_lines(settings))),))


def drop(draw: Draw) -> Draft:
    path, settings = _settings(draw)
    key = draw.pick(*settings)[0]
    act = f"sed -i '/^{key}=/d' {path}"
    step = Step(
        acts=one(act),
        looks=(f"cat {path}",),
        reviews=(f"cat {path}",),
        blunders=((f"sed '/^{key}=/d' {path}", f"cat {path}", act),),
    )
    instruction = draw.pick(
        f"Remove the setting {key} from {path}.",
        f"Delete the line of {key} in the config file {path}.",
    ) + told(draw, path, _lines(settings))
    checks = (FileIs(path, text(_lines([pair for pair in settings if pair[0] != key]))),)
    return Draft(instruction, (step,), checks, (FileSpec(path, text(_lines(settings))),))


def read(draw: Draw) -> Draft:
    path, settings = _settings(draw)
    key, value = draw.pick(*settings)
    act = f"grep '^{key}=' {path}"
    step = Step(acts=one(act), looks=(f"cat {path}",), blunders=((f"grep '^{key}=' {misnamed(path)}", "ls", act),))
    instruction = draw.pick(
        f"What is the value of {key} in {path}? Answer with the value only.",
        f"Look up {key} in the config file {path} and answer with its value.",
    ) + told(draw, path, _lines(settings))
    files = (FileSpec(path, text(_lines(settings))),)
    return Draft(instruction, (step,), (AnswerIs(value),), files, answer=value)


def section(draw: Draw) -> Draft:
    path = draw.file("ini", *STEMS)
    first, second = draw.words(2, ("server", "client", "window", "audio", "video", "cache", "network"))
    top, bottom = draw.words(2, KEYS)
    values = [_value(draw) for _ in range(2)]
    new = str(draw.number(201, 300))
    lines = [f"[{first}]", f"{top} = {values[0]}", f"[{second}]", f"{bottom} = {values[1]}"]
    section_name, key = draw.pick((first, top), (second, bottom))
    result = [f"{key} = {new}" if line.startswith(f"{key} =") else line for line in lines]
    act = f"sed -i 's/^{key} = .*/{key} = {new}/' {path}"
    step = Step(
        acts=one(act),
        looks=(f"cat {path}",),
        reviews=(f"cat {path}",),
        blunders=((f"sed -i 's/^{key}=.*/{key}={new}/' {path}", f"cat {path}", act),),
    )
    instruction = draw.pick(
        f"Set {key} to {new} in the section {section_name} of {path}. Lines look like 'key = value'.",
        f"In {path}, change {key} of the [{section_name}] section to {new}. Settings are written 'key = value'.",
    )
    return Draft(instruction, (step,), (FileIs(path, text(result)),), (FileSpec(path, text(lines)),))


KINDS = (change, add, drop, read, section)
