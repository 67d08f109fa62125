"""Write small shell and Python scripts and run them."""

from __future__ import annotations

from obsspec.sandbox.spec import FileSpec
from obsspec.tasks.checks import AnswerIs, FileIs
from obsspec.tasks.draft import Draft, Draw, misnamed, one, text, told
from obsspec.tasks.task import Step

SHELL = ("hello", "run", "greet", "show", "job", "start", "task")
PYTHON = ("main", "calc", "tool", "demo", "prog", "solve")


def greet(draw: Draw) -> Draft:
    script, target, line = draw.file("sh", *SHELL), draw.file(), " ".join(draw.words(2))
    body = f"echo '{line}'"
    write, run = f'echo "{body}" > {script}', f"bash {script} > {target}"
    step = Step(
        acts=((write, run),),
        reviews=(f"cat {target}", f"cat {script}"),
        blunders=((run, write, run),),
    )
    instruction = draw.pick(
        f"Write a shell script {script} with the one line {body} and save its output in {target}.",
        f"Create {script} that consists of {body}. Run it with bash and send the output to {target}.",
    )
    return Draft(instruction, (step,), (FileIs(script, text([body])), FileIs(target, text([line]))))


def calculate(draw: Draw) -> Draft:
    script, target = draw.file("py", *PYTHON), draw.file()
    a, b = draw.number(3, 40), draw.number(3, 40)
    sign, value = draw.pick(("*", a * b), ("+", a + b))
    body = f"print({a} {sign} {b})"
    write, run = f"echo '{body}' > {script}", f"python3 {script} > {target}"
    step = Step(
        acts=((write, run),),
        reviews=(f"cat {target}",),
        blunders=((f"echo '{body[:-1]}' > {script}", f"cat {script}", write, run),),
    )
    instruction = draw.pick(
        f"Write {body} to {script} and save what it prints with python3 in {target}.",
        f"Create the Python script {script} with the line {body}. Run it and put the output in {target}.",
    )
    return Draft(instruction, (step,), (FileIs(script, text([body])), FileIs(target, text([str(value)]))))


def loop(draw: Draw) -> Draft:
    target, word, count = draw.file(), draw.words(1)[0], draw.number(2, 5)
    act = f"for i in $(seq {count}); do echo {word} $i; done > {target}"
    step = Step(
        acts=one(act),
        reviews=(f"cat {target}", f"wc -l {target}"),
        blunders=((act.replace(f" > {target}", ""), act),),
    )
    instruction = draw.pick(
        f"Use a bash loop to write the lines '{word} 1' to '{word} {count}' to {target}.",
        f"Fill {target} with {count} lines: '{word} 1' up to '{word} {count}'. Use a for loop.",
    )
    lines = [f"{word} {i}" for i in range(1, count + 1)]
    return Draft(instruction, (step,), (FileIs(target, text(lines)),))


def run(draw: Draw) -> Draft:
    script, a, b = draw.file("py", *PYTHON), draw.number(3, 40), draw.number(3, 40)
    body, answer = [f"a = {a}", f"b = {b}", "print(a * b)"], str(a * b)
    act = f"python3 {script}"
    step = Step(
        acts=one(act),
        looks=(f"cat {script}",),
        blunders=((f"python3 {misnamed(script)}", "ls", act), (f"bash {script}", f"python3 {script}")),
    )
    instruction = draw.pick(
        f"Run the Python script {script} and answer with the number that it prints.",
        f"What number does {script} print? Run it with python3 and answer with the number.",
    ) + told(draw, script, body)
    return Draft(instruction, (step,), (AnswerIs(answer),), (FileSpec(script, text(body)),), answer=answer)


def fix(draw: Draw) -> Draft:
    script, target, line = draw.file("sh", *SHELL), draw.file(), " ".join(draw.words(2))
    bad, good = [f"ehco {line}"], [f"echo {line}"]
    act = f"sed -i 's/ehco/echo/' {script}"
    run_it = f"bash {script} > {target}"
    step = Step(
        acts=((act, run_it),),
        looks=(f"cat {script}",),
        reviews=(f"cat {target}",),
        blunders=((run_it, act, run_it),),
    )
    instruction = draw.pick(
        f"The script {script} says ehco instead of echo. Fix it, run it with bash and save the output in {target}.",
        f"Repair the typo ehco (should be echo) in {script}. Then write its output to {target}.",
    )
    checks = (FileIs(script, text(good)), FileIs(target, text([line])))
    return Draft(instruction, (step,), checks, (FileSpec(script, text(bad)),))


KINDS = (greet, calculate, loop, run, fix)
