"""Random shell scripts of the commands that the rules evaluate: on a few files, with the mistakes that people make."""

from __future__ import annotations

from hypothesis import strategies as st

FILES = ("a.txt", "b.txt", "c", "d/e.txt", "d/f", "g.txt")
DIRECTORIES = ("d", "x", "x/y", ".")
_file = st.sampled_from(FILES)
_directory = st.sampled_from(DIRECTORIES)
_word = st.sampled_from(
    (
        "apple",
        "Banana",
        "7",
        "42",
        "-3",
        "a,b,c",
        "x=1",
        "two words",
        "",
        "tab\there",
        "dot.",
        "under_score",
        "007",
        "END",
    )
)
_line = st.lists(_word, min_size=1, max_size=3).map(" ".join)
_number = st.integers(0, 5).map(str)
_patterns = ("a", "an", "^a", "[0-9]", "e$", "b.n", "x=", "[[:digit:]]+", "ap*le", r"\.", "a,b", "^$", "END", "[^a-z]")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


@st.composite
def _write(draw: st.DrawFn) -> str:
    lines, target = draw(st.lists(_line, max_size=5)), draw(_file)
    arrow = draw(st.sampled_from((">", ">", ">>")))
    match draw(st.integers(0, 3)):
        case 0:
            return f"cat {arrow} {target} <<'EOF'\n" + "".join(f"{line}\n" for line in lines) + "EOF"
        case 1:
            return f"cat <<EOF {arrow} {target}\n" + "".join(f"{line} $V\n" for line in lines) + "EOF"
        case 2:
            return f"printf '%s\\n' {' '.join(map(_quoted, lines)) or 'none'} {arrow} {target}"
        case _:
            return f"echo {draw(st.sampled_from(('', '-n ', '-e ')))}{' '.join(map(_quoted, lines))} {arrow} {target}"


_filters = st.one_of(
    st.builds("head -n {}".format, _number),
    st.builds("head -{}".format, st.integers(1, 4)),
    st.builds("tail -n {}".format, st.sampled_from(("1", "2", "+2", "+1", "0"))),
    st.sampled_from(("wc -l", "wc -w", "wc -c", "tac", "rev", "cat -n", "cat", "nl")),
    st.sampled_from(("sort", "sort -r", "sort -n", "sort -u", "sort -rn", "sort -k2", "sort -t, -k2", "sort -k 2 -n")),
    st.sampled_from(("uniq", "uniq -c", "uniq -d", "uniq -u")),
    st.sampled_from(("cut -d, -f2", "cut -d' ' -f1", "cut -d ' ' -f 2-", "cut -c1-3", "cut -c 2,4", "cut -s -d= -f1")),
    st.sampled_from(("awk '{print $1}'", "awk '{print $2, $1}'", "awk -F, '{print $2}'", "awk '{ print $0 }'")),
    st.builds(
        "grep {} {}".format,
        st.sampled_from(("", "-v", "-c", "-i", "-n", "-o", "-E", "-x", "-vc", "-in", "-F", "-q", "-w")),
        st.sampled_from(_patterns).map(_quoted),
    ),
    st.sampled_from(
        (
            "sed 's/a/b/'",
            "sed 's/a/<&>/g'",
            "sed -n '2p'",
            "sed -n '1,2p'",
            "sed '1d'",
            "sed '$d'",
            "sed '/a/d'",
            "sed -n '/a/,/e/p'",
            "sed -E 's/([a-z]+) ([a-z]+)/\\2 \\1/'",
            "sed 's/[0-9]/#/g; s/#/0/'",
            "sed 's|/|:|'",
            "sed '2q'",
            "sed '/^$/d'",
            "sed 's/^/> /'",
            "sed 's/$/!/'",
            "sed '2,3!d'",
        )
    ),
)
_input_filters = st.sampled_from(
    ("tr a-z A-Z", "tr -d a", "tr ' ' '\\n'", "tr -s ' '", "tr '[:lower:]' '[:upper:]'", "tr -d '\\n'")
)
_sums = st.builds("{} {}".format, st.sampled_from(("md5sum", "sha256sum", "sha1sum")), _file)


@st.composite
def _read(draw: st.DrawFn) -> str:
    command = f"{draw(_filters)} {draw(_file)}"
    if draw(st.booleans()):
        command = draw(st.sampled_from((f"cat {draw(_file)}", command, f"cat {draw(_file)} {draw(_file)}")))
    for _ in range(draw(st.integers(0, 2))):
        command += f" | {draw(st.one_of(_filters, _input_filters))}"
    return command + draw(
        st.sampled_from(("", "", "", " 2>/dev/null", " 2>&1", f" > {draw(_file)}", f" >> {draw(_file)}"))
    )


_change = st.one_of(
    st.builds("mkdir {}{}".format, st.sampled_from(("", "-p ")), _directory),
    st.builds("touch {}".format, _file),
    st.builds("{} {} {}".format, st.sampled_from(("cp", "mv", "cp -r")), _file, st.one_of(_file, _directory)),
    st.builds(
        "rm {}{}".format,
        st.sampled_from(("", "-f ", "-r ", "-rf ")),
        st.one_of(_file, _directory.filter(lambda d: d != ".")),
    ),
    st.builds("rmdir {}".format, _directory),
    st.builds("gzip {}".format, _file),
    st.builds("gunzip {}.gz".format, _file),
    st.builds("zcat {}.gz".format, _file),
    st.builds("chmod {} {}".format, st.sampled_from(("644", "+x", "755", "600")), _file),
    st.builds("sed -i {} {}".format, st.sampled_from(("s/a/b/", "1d", "$d", "'/a/d'", "'s/[0-9]/N/g'")), _file),
    st.sampled_from(("cd d", "cd ..", "cd x/y && pwd", "cd .", "V=5", "V='p  q'", "export V=z", "unset V")),
)
_look = st.one_of(
    st.builds("ls {}{}".format, st.sampled_from(("", "-1 ", "-a ", "-A ")), st.one_of(_directory, _file, st.just(""))),
    _sums,
    st.sampled_from(
        ("pwd", "echo $V", 'echo "$V"', "echo \"a  $V b\" 'c'", "echo a   b", "true", "false", "echo $?", ":")
    ),
    st.builds(
        "[ {} {} ] && echo yes || echo no".format,
        st.sampled_from(("-f", "-d", "-e", "-s", "! -f")),
        st.one_of(_file, _directory),
    ),
    st.builds("test {} -lt {}; echo $?".format, _number, _number),
    st.sampled_from(
        ("seq 3", "seq 2 5", "seq 1 2 7", "seq -s, 3", "basename /a/b.txt .txt", "dirname /a/b/c", "basename d/")
    ),
    st.sampled_from(
        ("printf '%s-%s\\n' a b c", "printf '%03d\\n' 7", "printf '%5s|' ab", "printf hi", "printf 'a\\tb\\n'")
    ),
    st.builds("cmp {0} {0}".format, _file),
    st.builds("diff {} {}".format, _file, _file),
    st.builds(
        "wc {} {}".format, st.sampled_from(("", "-l", "-lw")), st.lists(_file, min_size=1, max_size=2).map(" ".join)
    ),
    st.builds("paste {} {} {}".format, st.sampled_from(("-d,", "-s", "-sd,")), _file, _file),
    st.builds("bash {}".format, _file),
)


@st.composite
def _compound(draw: st.DrawFn) -> str:
    first, second = draw(_simple), draw(_simple)
    if "<<" in first + second:
        return f"{first}\n{second}"
    shape = draw(
        st.sampled_from(
            (
                "{} && {}",
                "{} || {}",
                "{}; {}",
                "{}\n{}",
                "( {} ); {}",
                "{{ {}; {}; }}",
                "if {}; then {}; else echo else; fi",
                "for i in 1 b; do echo $i; {}; {}; done",
                'echo "[$( {} )]"; {}',
                "W=$( {} ); {}; echo $W",
                "! {}; {}",
                "{{ {}; {}; }} > g.txt",
            )
        )
    )
    return shape.format(first, second)


_simple = st.one_of(_write(), _read(), _read(), _change, _look)
scripts = st.one_of(_simple, _simple, _compound())
