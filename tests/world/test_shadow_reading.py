"""What a command and its output say about files: facts, and nothing that is not certain."""

from __future__ import annotations

import pytest

from obsspec.world.shadow.facts import Absent, Complete, Exists, Fact, Kind, NoProgram, Ordered, StartsIn
from obsspec.world.shadow.reading import read_facts


def known(facts: list[Fact], path: str) -> Exists:
    found = [fact for fact in facts if isinstance(fact, Exists) and fact.path == path]
    assert len(found) == 1, facts
    return found[0]


def test_find_tells_kinds_order_and_that_nothing_is_missing() -> None:
    facts = read_facts("find data -type f", "data/b.txt\ndata/a.txt\n", "/srv")
    assert known(facts, "/srv/data/a.txt").known.kind is Kind.FILE
    assert Ordered(("/srv/data/b.txt", "/srv/data/a.txt")) in facts
    assert Complete("/srv/data", frozenset({Kind.FILE}), hidden=True, below=True) in facts


def test_a_filter_leaves_lines_out_so_nothing_is_complete() -> None:
    for command in ("find /d -type f | head -2", "find /d -name '*.txt'", "ls /d | grep a"):
        assert not any(isinstance(fact, Complete) for fact in read_facts(command, "/d/a.txt\n", "/")), command


def test_sorting_hides_the_order_of_the_file_system() -> None:
    facts = read_facts("find /d | sort", "/d\n/d/a\n/d/b\n", "/")
    assert not any(isinstance(fact, Ordered) for fact in facts)
    assert known(facts, "/d/a")


def test_long_listings_tell_modes_sizes_times_and_links() -> None:
    output = "total 8\n-rwxr-xr-x 1 root root 31 May 26 09:43 run.sh\nlrwxrwxrwx 1 root root 4 May 26 09:43 l -> data\n"
    facts = read_facts("cd /w && ls -l", output, "/")
    script = known(facts, "/w/run.sh").known
    assert (script.kind, script.mode, script.size, script.time) == (Kind.FILE, 0o755, 31, "May 26 09:43")
    assert known(facts, "/w/l").known.target == "data"
    assert Complete("/w", frozenset({Kind.FILE, Kind.DIRECTORY}), hidden=False, below=False) in facts


def test_sections_of_a_listing_belong_to_their_directories() -> None:
    facts = read_facts("ls /a /b", "/a:\none\n\n/b:\ntwo\n", "/")
    assert known(facts, "/a/one")
    assert known(facts, "/b/two")


def test_contents_sums_and_counts() -> None:
    assert known(read_facts("cat /f.txt", "hello\n", "/"), "/f.txt").known.content == b"hello\n"
    assert known(read_facts("head -n 3 /f.txt", "a\nb\n", "/"), "/f.txt").known.content == b"a\nb\n"
    assert known(read_facts("head -n 2 /f.txt", "a\nb\n", "/"), "/f.txt").known.content is None
    digest = "d41d8cd98f00b204e9800998ecf8427e"
    sums = read_facts("find /d -type f -exec md5sum {} + | sort", f"{digest}  /d/x\n", "/")
    assert known(sums, "/d/x").known.sums == (("md5sum", digest),)
    counts = read_facts("wc -lc /d/x /d/y", " 1 12 /d/x\n 2 30 /d/y\n 3 42 total\n", "/")
    assert known(counts, "/d/x").known.size == 12
    assert not any(isinstance(fact, Exists) and "total" in fact.path for fact in counts)


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("cat: /x/y: No such file or directory", Absent("/x/y")),
        ("ls: cannot access 'z.txt': No such file or directory", Absent("/w/z.txt")),
        ("bash: line 1: rsync: command not found", NoProgram("rsync")),
        ("find: 'compress': No such file or directory", NoProgram("compress")),
    ],
)
def test_messages(line: str, fact: Fact) -> None:
    assert fact in read_facts("anything; at all", line + "\n", "/w")


def test_only_a_pipeline_of_plain_words_is_read() -> None:
    for script in ("cat $(ls)", "cat /a; cat /b", "cat /a > /b", "if true; then cat /a; fi", "cat '/a"):
        assert read_facts(script, "hello\n", "/") == [], script


def test_the_directory_that_commands_start_in() -> None:
    assert read_facts("pwd", "/app\n", "/") == [StartsIn("/app")]
    assert read_facts("pwd | cat", "/tmp\n", "/") == []


def test_messages_of_the_harness_are_no_files() -> None:
    assert read_facts("ls /w", "Command timed out", "/") == []


def test_an_endless_output_is_not_read() -> None:
    assert read_facts("find /", "/a/b\n" * 100_000, "/") == []
