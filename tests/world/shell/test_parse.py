"""Scripts become trees that say what bash would do, or are refused; nothing raises."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from obsspec.world.shell import expand
from obsspec.world.shell.parse import Unparsed, parse
from obsspec.world.shell.tree import AndOr, Background, Compound, Pipeline, Sequence, Shape, Simple, Substitution


class Scope:
    """Variables by name; substitutions are not known."""

    def __init__(self, **variables: str) -> None:
        self.variables = variables

    def variable(self, name: str) -> str | None:
        return self.variables.get(name)

    def output(self, part: Substitution) -> str | None:
        return None


def tree(script: str) -> Sequence:
    found = parse(script)
    assert isinstance(found, Sequence), found
    return found


def only(script: str) -> Simple:
    (command,) = tree(script).commands
    assert isinstance(command, Simple)
    return command


def words(script: str, **variables: str) -> tuple[str, ...] | None:
    return expand.all_fields(only(script).words, Scope(**variables))


def document(script: str, **variables: str) -> str | None:
    texts = [r.document for r in only(script).redirections if r.document is not None]
    return expand.text(texts[0], Scope(**variables))


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo a  b", ("echo", "a", "b")),
        ("echo 'a  b' \"c d\"e'f'", ("echo", "a  b", "c def")),
        ('echo "a \\"q\\" \\$x \\n" \\$y', ("echo", 'a "q" $x \\n', "$y")),
        ('echo "it\'s" \'say "hi"\'', ("echo", "it's", 'say "hi"')),
        ("echo $'a\\tb\\x41\\'' z", ("echo", "a\tbA'", "z")),
        ("echo a\\ b \\\n c", ("echo", "a b", "c")),
        ("echo a # a comment", ("echo", "a")),
        ("echo a#b '#c'", ("echo", "a#b", "#c")),
        ("echo ünï '日本'", ("echo", "ünï", "日本")),
        ("echo '' \"\"", ("echo", "", "")),
        ("mkdir -p a/{b,c}/x{1..3}", ("mkdir", "-p", *(f"a/{m}/x{n}" for m in "bc" for n in "123"))),
        ('echo $x "$x" ${x}y', ("echo", "1", "2", "1  2", "1", "2y")),
        ("cat ~/f", ("cat", "/root/f")),
        ("echo *.txt", None),
        ("echo '*.txt' \"?\"", ("echo", "*.txt", "?")),
        ("echo $(ls)", None),
        ("echo $unknown", None),
        ("echo ${x:-1}", None),
    ],
)
def test_words_come_to_what_bash_makes_of_them(script: str, expected: tuple[str, ...] | None) -> None:
    assert words(script, x="1  2", HOME="/root") == expected


def test_here_documents_keep_their_text() -> None:
    assert document("cat > f <<'EOF'\n  $x `y` \\$z \"q\n\nEOF\n") == '  $x `y` \\$z "q\n\n'
    assert document('cat > f <<"EOF"\n$x\nEOF') == "$x\n"
    assert document("cat > f <<EOF\n$x \\$y ${x} \\\\\nEOF", x="1") == "1 $y 1 \\\n"
    assert document("cat <<-EOF > f\n\t\ta\n\tb\t\n\tEOF") == "a\nb\t\n"
    assert document("cat <<EOF\n$(date)\nEOF") is None
    assert document("cat <<E > f\nif then ' \" ( `\nE".replace("`", "")) == "if then ' \" ( \n"
    assert document('cat <<< "a  $x"', x="b") == "a  b\n"


def test_several_here_documents_and_what_follows_them() -> None:
    script = "cat > a <<A && cat <<'B' | wc -l; echo $((1<<2))\none\nA\ntwo <<C\nB\necho \"x <<y\""
    commands = tree(script).commands
    assert len(commands) == 3
    chain = commands[0]
    assert isinstance(chain, AndOr)
    assert isinstance(chain.right, Pipeline)
    inner = chain.right.stages[0]
    assert isinstance(inner, Simple)
    assert inner.redirections[0].document is not None
    assert expand.text(inner.redirections[0].document, Scope()) == "two <<C\n"


def test_redirections_belong_to_the_command_before_them() -> None:
    (chain,) = tree("a && b > f && c 2>&1 | d").commands
    assert isinstance(chain, AndOr)
    assert isinstance(chain.right, Pipeline)
    assert isinstance(chain.left, AndOr)
    right = chain.left.right
    assert isinstance(right, Simple)
    assert [r.operator for r in right.redirections] == [">"]


def test_shapes_of_commands() -> None:
    scripts = {
        "{ a; b; }": Shape.GROUP,
        "(a; b)": Shape.SUBSHELL,
        "if a; then b; elif c; then d; else e; fi": Shape.IF,
        "for i in 1 2; do a; done": Shape.FOR,
        "while a; do b; done": Shape.WHILE,
        "until a; do b; done": Shape.UNTIL,
        "case $x in a|b) c;; *) d;; esac": Shape.CASE,
        "f() { a; }": Shape.FUNCTION,
        "(( x++ ))": Shape.ARITHMETIC,
    }
    for script, shape in scripts.items():
        (command,) = tree(script).commands
        assert isinstance(command, Compound), script
        assert command.shape is shape, script
    assert isinstance(tree("a &").commands[0], Background)
    (negated,) = tree("! a | b").commands
    assert isinstance(negated, Pipeline)
    assert negated.negated


@pytest.mark.parametrize(
    "script",
    [
        "for f in *; do echo $f | md5sum done",
        "echo 'a",
        'echo "a',
        "if a; then b",
        "a=1 for i in x; do y; done",
        "mv a b if [ -f a ]; then c; fi",
        "cat <<EOF\nno end",
        "echo \0",
        "a &&",
        "x" * 200_000,
        "(" * 500 + ")" * 500,
    ],
)
def test_what_is_no_script_is_refused(script: str) -> None:
    assert isinstance(parse(script), Unparsed)


@given(st.text(st.characters(codec=None), max_size=80))
@settings(max_examples=150)
def test_any_text_is_parsed_or_refused(script: str) -> None:
    assert isinstance(parse(script), Sequence | Unparsed)


_pieces = st.sampled_from(
    (
        "a",
        "b c",
        "'q q'",
        '"d $V"',
        "\\ ",
        "$V",
        '"$V"',
        "x\\'y",
        "'$V'",
        '"\\"',
        "{1,2}",
        "#",
        "~",
        "\\\n",
        "-n",
        "=",
        "é",
    )
)


@given(st.lists(_pieces, min_size=1, max_size=6), st.sampled_from(("", " ")))
@settings(max_examples=60, deadline=None)
def test_known_words_are_those_of_bash(pieces: list[str], glue: str) -> None:
    script = "printf '<%s>' " + glue.join(pieces)
    parsed = parse(script)
    if isinstance(parsed, Unparsed) or len(parsed.commands) != 1 or not isinstance(parsed.commands[0], Simple):
        return
    known = expand.all_fields(parsed.commands[0].words, Scope(V="v  w", HOME="/h"))
    if known is None:
        return
    done = subprocess.run(["bash", "-c", script], capture_output=True, env={"V": "v  w", "HOME": "/h"}, check=False)
    assert done.stdout.decode() == "".join(f"<{word}>" for word in known[2:] or [""])
