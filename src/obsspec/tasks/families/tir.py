"""Integer questions answered with one line of Python."""

from __future__ import annotations

from math import gcd

from obsspec.tasks.checks import AnswerIs
from obsspec.tasks.draft import Draft, Draw, one
from obsspec.tasks.task import Step
from obsspec.tasks.words import NAMES, WORDS


def _print(expression: str) -> str:
    return f"python3 -c 'print({expression})'"


def _solved(instruction: str, expression: str, value: int, wrong: str, *reviews: str) -> Draft:
    act = _print(expression)
    step = Step(acts=one(act), reviews=reviews, blunders=((_print(wrong), act),))
    return Draft(instruction, (step,), (AnswerIs(str(value)),), answer=str(value))


def arithmetic(draw: Draw) -> Draft:
    a, b, c = draw.number(3, 99), draw.number(3, 60), draw.number(2, 30)
    expression, value, wrong = draw.pick(
        (f"{a} * {b} + {c}", a * b + c, f"{a} * ({b} + {c})"),
        (f"{a} * {b} - {c}", a * b - c, f"{a} * {b} + {c}"),
        (f"{a} + {b} - {c}", a + b - c, f"{a} - {b} - {c}"),
        (f"({a} + {b}) * {c}", (a + b) * c, f"{a} + {b} * {c}"),
    )
    instruction = draw.pick(
        f"What is {expression}? Use Python and answer with the integer.",
        f"Compute {expression} with python3. Give the integer as the answer.",
    )
    return _solved(instruction, expression, value, wrong, _print(f"{value} == {expression}"))


def remainder(draw: Draw) -> Draft:
    a, b = draw.number(100, 999), draw.number(3, 40)
    instruction = draw.pick(
        f"What is the remainder when {a} is divided by {b}? Answer with the integer.",
        f"Find {a} modulo {b} with Python and answer with the integer.",
    )
    return _solved(instruction, f"{a} % {b}", a % b, f"{a} // {b}", _print(f"({a} - {a % b}) % {b}"))


def total(draw: Draw) -> Draft:
    n = draw.number(5, 60)
    instruction = draw.pick(
        f"What is the sum of all integers from 1 to {n}? Answer with the integer.",
        f"Add up the whole numbers 1 to {n} using Python and answer with the sum.",
    )
    return _solved(
        instruction, f"sum(range(1, {n + 1}))", n * (n + 1) // 2, f"sum(range(1, {n}))", _print(f"{n} * {n + 1} // 2")
    )


def divisor(draw: Draw) -> Draft:
    common = draw.number(2, 12)
    a, b = (common * factor for factor in draw.rng.sample(range(2, 21), 2))
    act = f"python3 -c 'import math; print(math.gcd({a}, {b}))'"
    found = gcd(a, b)
    step = Step(
        acts=one(act),
        reviews=(_print(f"{a} % {found}, {b} % {found}"),),
        blunders=((_print(f"math.gcd({a}, {b})").replace("print", "import maths; print"), act),),
    )
    instruction = draw.pick(
        f"What is the greatest common divisor of {a} and {b}? Answer with the integer.",
        f"Use Python to find the gcd of {a} and {b}. Answer with the integer.",
    )
    return Draft(instruction, (step,), (AnswerIs(str(found)),), answer=str(found))


def story(draw: Draw) -> Draft:
    name, thing = draw.pick(*NAMES).title(), draw.pick("boxes", "bags", "trays", "crates", "shelves")
    boxes, each, gone = draw.number(3, 30), draw.number(4, 40), draw.number(2, 9)
    instruction = draw.pick(
        f"{name} has {boxes} {thing} with {each} coins each and gives away {gone} coins. How many are left?",
        f"{name} packs {each} books into each of {boxes} {thing}, then sells {gone} books. How many remain?",
    )
    ending = draw.pick(" Answer with the integer.", " Use Python and answer with the number.")
    packed, left = boxes * each, boxes * each - gone
    step = Step(
        acts=((_print(f"{boxes} * {each} - {gone}"),), (_print(f"{boxes} * {each}"), _print(f"{packed} - {gone}"))),
        reviews=(_print(f"{left} + {gone} == {boxes} * {each}"),),
        blunders=((_print(f"{boxes} * {each} + {gone}"), _print(f"{boxes} * {each} - {gone}")),),
    )
    return Draft(instruction + ending, (step,), (AnswerIs(str(left)),), answer=str(left))


def letters(draw: Draw) -> Draft:
    word = "".join(draw.rng.sample(WORDS, 2))
    letter = draw.pick(*word)
    instruction = draw.pick(
        f"How many times does the letter {letter} occur in {word}? Answer with the integer.",
        f"Count the letter {letter} in the word {word} with Python. Answer with the count.",
    )
    act = f'python3 -c \'print("{word}".count("{letter}"))\''
    step = Step(
        acts=one(act),
        reviews=(f"echo {word} | grep -o {letter} | wc -l",),
        blunders=((f"python3 -c 'print(len(\"{word}\"))'", act),),
    )
    value = str(word.count(letter))
    return Draft(instruction, (step,), (AnswerIs(value),), answer=value)


KINDS = (arithmetic, remainder, total, divisor, story, letters)
