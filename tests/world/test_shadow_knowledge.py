"""What shadows learn: images and their families, layouts, ways of launching, rewrites, trust. No sandbox."""

from __future__ import annotations

from obsspec.sandbox.placed import PlacedFile
from obsspec.sandbox.spec import EntryKind
from obsspec.values import Context, Exchange, Observation, ToolCall
from obsspec.world.shadow.coverage import Coverage, coverage
from obsspec.world.shadow.facts import Absent, Complete, Exists, Kind, Known, NoProgram, Ordered, StartsIn
from obsspec.world.shadow.filler import filler
from obsspec.world.shadow.harness import Harness
from obsspec.world.shadow.image import Image
from obsspec.world.shadow.images import Images, Link
from obsspec.world.shadow.keeping import Keeping
from obsspec.world.shadow.kinds import OutputKind, output_kind, shows_filler, shows_nothing
from obsspec.world.shadow.launch import Form, Launch, Shell, unwrap
from obsspec.world.shadow.layout import lay_out, read_time
from obsspec.world.shadow.order import merge_order
from obsspec.world.shadow.past import Past, read_past
from obsspec.world.shadow.rewrites import Rewrites
from obsspec.world.shadow.trust import Changes, Signs, Trust
from obsspec.world.shell.effects import UNKNOWN, shell_effects

NOW = 1_750_000_000.0
QUOTED = Launch(Shell(Form.QUOTED, "/bin/bash"))
DIRECT = Launch(Shell(Form.ARGUMENT, "bash"))


def placed(image: Image, variant: int = 0) -> dict[str, PlacedFile]:
    return {file.path: file for file in lay_out(image, variant, NOW)}


def test_newer_facts_win_and_a_changed_size_drops_what_was_known_of_the_content() -> None:
    image = Image()
    image.learn([Exists("/d/f", Known(Kind.FILE, 3, content=b"abc", mode=0o600))])
    image.learn([Exists("/d/f", Known(size=9))])
    assert image.paths["/d/f"] == Known(Kind.FILE, 9, 0o600)
    image.learn([Absent("/d")])
    assert "/d/f" not in image.paths


def test_the_version_changes_only_with_what_is_laid_down() -> None:
    image = Image()
    image.learn([Exists("/d/f")])
    version = image.version
    image.learn([Exists("/d/f"), NoProgram("rsync"), Absent("/nowhere")])
    assert image.version == version
    image.learn([Exists("/d/f", Known(Kind.DIRECTORY))])
    assert image.version > version


def test_files_of_the_machine_are_never_laid_down() -> None:
    image = Image()
    image.learn([Exists("/usr/bin/bash"), Exists("/proc/1"), Exists("/bin/ls")])
    assert not any(path.startswith(("/usr", "/proc", "/bin")) for path in placed(image))


def test_variants_differ_in_all_that_is_not_known_and_in_nothing_else() -> None:
    image = Image()
    image.learn([Exists("/d/known", Known(Kind.FILE, content=b"x")), Exists("/d/guess.txt"), Exists("/d/name")])
    first, second = placed(image, 0), placed(image, 1)
    assert first["/d/known"].content == second["/d/known"].content == b"x"
    assert first["/d/guess.txt"].kind is EntryKind.FILE
    assert second["/d/guess.txt"].kind is EntryKind.DIRECTORY
    assert second.keys() - first.keys()
    image.learn([Complete("/d", frozenset({Kind.FILE, Kind.DIRECTORY}), hidden=True, below=True)])
    assert not [path for path in placed(image, 1).keys() - first.keys() if path.startswith("/d/")]


def test_equal_checksums_are_equal_contents() -> None:
    image = Image()
    sums = (("md5sum", "f32a3a97638afeb2ee2a15cfe335ab72"),)
    image.learn([Exists("/d/a", Known(Kind.FILE, sums=sums)), Exists("/d/b", Known(Kind.FILE, sums=sums))])
    files = placed(image)
    assert files["/d/a"].content == files["/d/b"].content
    image.learn([Exists("/d/a", Known(content=b"hi\n"))])
    assert placed(image)["/d/b"].content == b"hi\n"


def test_entries_are_made_in_the_order_that_lists_them_as_seen() -> None:
    image = Image()
    image.learn(
        [Exists("/d/a.txt"), Exists("/d/b.txt"), Exists("/d/c.txt"), Ordered(("/d/b.txt", "/d/c.txt", "/d/a.txt"))]
    )
    made = [file.path for file in lay_out(image, 0, NOW) if file.path.startswith("/d/")]
    assert made == ["/d/a.txt", "/d/c.txt", "/d/b.txt"]  # the newest is listed first


def test_orders_are_merged() -> None:
    known = ["b", "a"]
    assert merge_order(known, ["b", "x", "a", "y"])
    assert known == ["b", "x", "a", "y"]
    assert not merge_order(known, ["x", "y"])
    merge_order(known, ["y", "x"])
    assert known.index("y") < known.index("x")


def test_filler_has_the_size_lines_and_words_that_were_seen() -> None:
    text = filler(Known(Kind.FILE, 80, counts=(("l", 4), ("w", 9))), "/f", 0).decode()
    assert (len(text), text.count("\n"), len(text.split())) == (80, 4, 9)
    assert filler(Known(Kind.FILE, 80), "/f", 0) != filler(Known(Kind.FILE, 80), "/f", 1)
    assert filler(Known(Kind.FILE, sums=(("md5sum", "d41d8cd98f00b204e9800998ecf8427e"),)), "/f", 0) == b""
    assert shows_filler(text)


def test_large_trees_are_cut_and_differ_where_they_are() -> None:
    image = Image()
    image.learn([Exists(f"/d/{number}", Known(Kind.FILE, 900_000)) for number in range(20)])
    first, second = placed(image, 0), placed(image, 1)
    assert sum(len(file.content) for file in first.values()) < 4 << 20
    cut = [path for path in first if path.startswith("/d/") and len(first[path].content) != 900_000]
    assert cut
    assert all(len(first[path].content) != len(second[path].content) for path in cut)


def test_times_without_a_year_are_the_latest_such_day() -> None:
    found = read_time("Dec 24 10:00", NOW)
    assert found is not None
    assert NOW - 366 * 86_400 < found < NOW
    assert read_time("yesterday", NOW) is None


def test_ids_join_a_family_when_the_same_commands_print_the_same() -> None:
    images = Images()
    listing = "/w/one.txt\n/w/two.txt\n/w/three.txt\n"
    facts = [Exists(path, Known(Kind.FILE)) for path in listing.split()]
    for task in ("first", "second"):
        images.learn(task, "find /w", listing, facts)
    images.add("second", [Exists("/w/more", Known(Kind.FILE, 5))])
    knowledge = images.know("first", "ls /w")
    assert knowledge.link is Link.FAMILY
    assert "/w/more" in knowledge.image.paths


def test_ids_that_contradict_stay_apart() -> None:
    images = Images()
    images.learn("first", "find /w", "/w/one.txt\n/w/two.txt\n", [Exists("/w/one.txt"), Exists("/w/two.txt")])
    images.learn("second", "find /w", "/w/other.md\n/w/more.md\n", [Exists("/w/other.md"), Exists("/w/more.md")])
    assert images.know("second", "cat /w/one.txt").link is not Link.FAMILY
    assert "/w/one.txt" not in images.know("second", "true").image.paths


def test_a_family_is_tried_on_probation_until_it_was_wrong_too_often() -> None:
    images = Images()
    images.learn("first", "find /w", "/w/one.txt\n/w/two.txt\n", [Exists("/w/one.txt"), Exists("/w/two.txt")])
    knowledge = images.know("second", "wc -l /w/one.txt")
    assert knowledge.link is Link.PROBATION
    for _ in range(2):
        images.vouch("second", knowledge, "3 /w/one.txt\n", right=False)
    assert images.know("second", "wc -l /w/one.txt").link is Link.ALONE


def test_a_quoted_launch_breaks_inner_quotes_apart() -> None:
    assert QUOTED.arguments('cut -d " " -f 1') == ("/bin/bash", "-c", "cut -d ", " -f 1")
    assert QUOTED.arguments('echo "') is None
    assert DIRECT.arguments('cut -d " " -f 1') == ("bash", "-c", 'cut -d " " -f 1')
    assert unwrap("execute[ls -l]") == "ls -l"
    assert unwrap("```bash\nls\n```") == "ls"


def test_the_way_of_launching_that_explains_more_is_used() -> None:
    harness = Harness()
    text = 'echo "a  b"'
    assert harness.best(text) == DIRECT
    for _ in range(4):
        harness.record(
            text,
            {harness.best(text): False, QUOTED: True}
            if harness.best(text) != QUOTED
            else {QUOTED: True, DIRECT: False},
        )
    assert harness.best(text) == QUOTED
    assert not harness.doubtful
    harness.record("execute[ls]", {Launch(QUOTED.shell, True): False, Launch(QUOTED.shell, False): True})
    assert not harness.best("execute[ls]").unwrapped
    assert harness.best("```bash\nls\n```").unwrapped


def test_other_ways_are_tried_less_and_less_where_that_tells_nothing() -> None:
    harness = Harness()
    tried = 0
    for _ in range(200):
        if harness.worth_trying(right=False):
            tried += 1
            harness.record("ls", {DIRECT: False, QUOTED: False})
    assert 40 < tried < 80
    harness.record("ls", {DIRECT: False, QUOTED: True})
    assert harness.worth_trying(right=False)


def test_a_message_of_another_version_is_learnt_after_two_examples() -> None:
    rewrites = Rewrites()

    def ours(shell: str) -> str:
        return f"{shell}: -c: line 1: unexpected EOF while looking for matching `''\n"

    def theirs(shell: str, end: int) -> str:
        return ours(shell) + f"{shell}: -c: line {end}: syntax error: unexpected end of file\n"

    for shell in ("bash", "of it"):
        assert rewrites.apply(ours(shell), "echo '", shell) == ours(shell)
        rewrites.learn(ours(shell), "echo '", shell, theirs(shell, 2))
    assert rewrites.apply(ours("x"), "a\nb\nc '", "x") == theirs("x", 4)
    assert rewrites.apply("a.txt\n", "ls", "x") == "a.txt\n"


def test_what_is_no_message_is_never_rewritten() -> None:
    rewrites = Rewrites()
    for _ in range(5):
        rewrites.learn("0\n", "wc", "bash", "4\n")
        rewrites.learn("/a/b\n", "find", "bash", "/a/c\n")
    assert rewrites.apply("0\n/a/b\n", "wc", "bash") == "0\n/a/b\n"


def test_a_rewrite_that_is_wrong_too_often_is_dropped() -> None:
    rewrites = Rewrites()
    for _ in range(2):
        rewrites.learn("x: not here\n", "x", "bash", "x: nothing here\n")
    assert rewrites.apply("x: not here\n", "x", "bash") == "x: nothing here\n"
    for _ in range(2):
        rewrites.learn("x: not here\n", "x", "bash", "x: not here\n")
    assert rewrites.apply("x: not here\n", "x", "bash") == "x: not here\n"


def signs(family: str = "find", kind: OutputKind = OutputKind.EMPTY, covered: Coverage = Coverage.COMPLETE) -> Signs:
    return Signs(kind, True, covered, Link.ALONE, Changes.NONE, family, "/a")


def test_trust_goes_from_coarse_to_fine() -> None:
    trust = Trust()
    for _ in range(10):
        trust.record(signs("find"), True)
        trust.record(signs("grep"), False)
    assert trust.mean(signs("find")) > 0.8
    assert trust.mean(signs("grep")) < 0.2
    assert 0.3 < trust.mean(signs("ls")) < 0.7


def test_what_is_not_covered_has_to_prove_itself() -> None:
    trust = Trust()
    assert trust.mean(signs(covered=Coverage.PARTIAL)) < 0.5 < trust.mean(signs(covered=Coverage.COMPLETE))
    assert trust.mean(signs(kind=OutputKind.SYNTAX, covered=Coverage.PARTIAL)) > 0.5


def test_coverage_of_the_files_that_a_command_looks_at() -> None:
    image = Image()
    image.learn([Exists("/w/a.txt", Known(Kind.FILE)), Absent("/x")])

    def of(script: str) -> Coverage:
        return coverage(image, script, shell_effects(script, "/"))

    assert of("echo a | cut -f 1") is Coverage.NOTHING
    assert of("ls -l /w/a.txt") is Coverage.COMPLETE
    assert of("cat /w/a.txt") is Coverage.CLOSED
    assert of("grep -r a /w") is Coverage.CLOSED
    assert of("find /w | wc -l") is Coverage.NAMED
    image.learn([Exists("/w/a.txt", Known(Kind.FILE, content=b"a"))])
    assert of("cat /w/a.txt") is Coverage.COMPLETE
    assert of("find / -name a") is Coverage.PARTIAL
    assert of("cat /x/y") is Coverage.COMPLETE
    assert of("ls /w") is Coverage.NAMED
    assert of("cat /w/a.txt /w/b.txt") is Coverage.PARTIAL
    assert of("cat /w/`cat /w/b`") is Coverage.PARTIAL
    image.learn([Complete("/w", frozenset({Kind.FILE, Kind.DIRECTORY}), hidden=True, below=True)])
    assert of("ls /w") is Coverage.COMPLETE
    assert of("cat /w/a.txt /w/b.txt") is Coverage.COMPLETE


def test_kinds_of_outputs() -> None:
    for text, kind in (
        ("\n", OutputKind.EMPTY),
        ("12\n", OutputKind.NUMBER),
        ("/a/b\n/a/c\n", OutputKind.LISTING),
        ("-rw-r--r-- 1 root root 3 May 26 09:43 x\n", OutputKind.DETAILS),
        ("bash: line 1: x: command not found\n", OutputKind.MISSING),
        ("bash: -c: line 2: syntax error: unexpected end of file\n", OutputKind.SYNTAX),
        ("cut: option requires an argument -- 'd'\nTry 'cut --help' for more information.\n", OutputKind.ERROR),
        ("The first line\nThe second\n", OutputKind.CONTENT),
    ):
        assert output_kind(text) is kind, text


def test_where_shells_start_is_taken_from_other_images() -> None:
    images = Images()
    assert images.know("a", "ls").image.starts_in == "/"
    images.learn("a", "pwd", "/app\n", [StartsIn("/app")])
    assert images.know("b", "ls").image.starts_in == "/"  # one image alone may be special
    images.learn("b", "pwd", "/app\n", [StartsIn("/app")])
    assert images.know("c", "ls").image.starts_in == "/app"


def test_a_shell_that_lives_on_stays_where_it_went() -> None:
    def rollout(*turns: tuple[str, str]) -> Context:
        exchanges = tuple(
            Exchange((ToolCall("bash", {"command": command}),), (Observation(text),)) for command, text in turns
        )
        return Context((), (), (ToolCall("bash", {"command": "ls"}),), exchanges, "t", "t", len(exchanges))

    def past(*turns: tuple[str, str], keeps: bool = True) -> Past:
        found = read_past(rollout(*turns), Harness(), "/w", keeps=keeps)
        assert found is not None
        return found

    assert past(("cd a", "")).directory == "/w/a"
    assert past(("cd a", ""), ("cd b && ls", "x\n")).directory == "/w/a/b"
    assert past(("cd a", ""), keeps=False).directory == "/w"
    assert past(("cd a", "bash: line 1: cd: a: No such file or directory\n")).directory == "/w"
    assert not past(("cd a", "")).shell
    assert past(("export A=1", "")).shell
    assert past(("cd a && rm x", "")).touched == frozenset({"/w/a/x"})


def test_whether_a_shell_lives_on_is_learnt() -> None:
    keeping = Keeping()
    assert keeping.likely
    for _ in range(4):
        keeping.record(True, right=False)
    assert not keeping.likely
    keeping.record(False, right=True)
    keeping.record(True, right=True, sure=True)
    assert keeping.likely


def test_finding_nothing_in_made_up_content_says_nothing() -> None:
    assert all(map(shows_nothing, ("", "\n", "0\n", "a.log:0\nb.log:0\n", " 0\n")))
    assert not any(map(shows_nothing, ("1\n", "a.log:10\n", "0 a\n")))


def test_relative_paths_count_for_coverage() -> None:
    image = Image()
    image.learn([Exists("/w/a.txt", Known(Kind.FILE, content=b"a"))])

    def of(script: str) -> Coverage:
        return coverage(image, script, UNKNOWN, "/w")

    assert of("x=a.txt; $tool $x") is Coverage.COMPLETE
    assert of("$tool sub/b.txt") is Coverage.PARTIAL
    assert of("$tool -q 3.5") is Coverage.NOTHING
