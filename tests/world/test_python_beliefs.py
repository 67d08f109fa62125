"""What the Python replica learns from outcomes."""

from __future__ import annotations

from obsspec.world.python.beliefs import Duels, Reliability, Votes
from obsspec.world.python.styles import Style
from obsspec.world.python.surface import Surface

SITE = "/venv/lib/python3.11/site-packages"


def test_a_new_class_begins_where_the_class_above_it_stands() -> None:
    reliability = Reliability()
    for _ in range(20):
        reliability.add(("plain", "value"), right=True)
    assert reliability.mean(("plain", "value", "never seen")) > 0.85
    assert reliability.mean(("other",)) == reliability.prior
    for _ in range(20):
        reliability.add_said(right=True)
    assert reliability.mean(("other",)) > 0.9  # what is said is right, so this may be


def test_a_class_that_keeps_failing_loses_its_credit_alone() -> None:
    reliability = Reliability()
    for _ in range(30):
        reliability.add(("plain", "value", ""), right=True)
    for _ in range(3):
        reliability.add(("plain", "value", "random"), right=False)
    assert reliability.mean(("plain", "value", "random")) < 0.5 < reliability.mean(("plain", "value", ""))


def test_votes_forget() -> None:
    votes = Votes[str](0.5)
    for _ in range(10):
        votes.add("old")
    votes.add("new")
    votes.add("new")
    assert votes.best() == "new"
    assert votes.best(5.0) is None


def test_a_beaten_way_is_left_alone_until_the_winner_fails() -> None:
    duels = Duels[str]()
    assert set(duels.alive(["a", "b"])) == {"a", "b"}
    for _ in range(4):
        duels.add({"a": True, "b": False})
    assert duels.alive(["b", "a"]) == ["a"]
    for _ in range(20):
        duels.add({"a": False})
    assert set(duels.alive(["a", "b"])) == {"a", "b"}


def test_where_all_are_right_one_is_enough() -> None:
    duels = Duels[str]()
    for _ in range(25):
        duels.add({"a": True, "b": True})
    assert duels.alive(["a", "b"]) == ["a"]
    for _ in range(3):
        duels.add({"a": False})
    assert duels.alive(["a", "b"]) == ["a", "b"]


def test_words_for_silence_are_learnt() -> None:
    surface = Surface()
    assert surface.dress(Style.PRINTS, "", ()) is None  # nobody has seen what the tool shows
    surface.learn(Style.PRINTS, "", (), "[no output]")
    assert surface.dress(Style.PRINTS, "", ()) == "[no output]"


def test_cutting_is_learnt_and_applied_to_other_texts() -> None:
    surface = Surface()
    for letter in "ab":
        text = letter + "x" * 999
        surface.learn(Style.PRINTS, text, (), text[:500] + "...[cut]")
    assert surface.dress(Style.PRINTS, "y" * 600, ()) == "y" * 500 + "...[cut]"
    assert surface.dress(Style.PRINTS, "y" * 400, ()) == "y" * 400
    surface.learn(Style.PRINTS, "z" * 700, (), "z" * 700)  # but this was not cut
    assert surface.dress(Style.PRINTS, "y" * 600, ()) == "y" * 600


def test_a_frame_is_learnt_for_each_style() -> None:
    surface = Surface()
    for number in ("1234", "5678"):
        surface.learn(Style.PRINTS, number + "\n", (), f"Output: {number} (done)")
    assert surface.dress(Style.PRINTS, "4711\n", ()) == "Output: 4711 (done)"
    assert surface.dress(Style.BRIEF, "ValueError: no\n", ()) == "ValueError: no"


def test_white_space_at_the_ends_is_kept_where_the_tool_keeps_it() -> None:
    surface = Surface()
    assert surface.dress(Style.PRINTS, "1234\n", ()) == "1234"
    for _ in range(3):
        surface.learn(Style.PRINTS, "1234\n", (), "1234\n")
    assert surface.dress(Style.PRINTS, "5678\n", ()) == "5678\n"


def test_the_places_of_the_tools_own_files_are_learnt() -> None:
    surface = Surface()
    ours = f"File {SITE}/sympy/core/expr.py:1, in f()\n{SITE}/other.py"
    theirs = "File /usr/lib/python3/sympy/core/expr.py:1, in f()\n/usr/lib/python3/other.py"
    surface.learn(Style.TRACE, ours, (SITE,), theirs)
    assert surface.dress(Style.TRACE, f"File {SITE}/numpy/a.py:2", (SITE,)) == "File /usr/lib/python3/numpy/a.py:2"


def test_the_file_name_in_tracebacks_is_learnt() -> None:
    surface = Surface()
    trace = 'Traceback (most recent call last):\n  File "<string>", line 3, in <module>\nKeyError: 1\n'
    surface.learn(Style.TRACE, trace, (), trace.replace("<string>", "/tmp/main.py").strip())
    other = trace.replace("line 3", "line 7")
    assert surface.dress(Style.TRACE, other, ()) == other.replace("<string>", "/tmp/main.py").strip()


def test_how_numpy_shows_numbers_is_learnt() -> None:
    surface = Surface()
    assert surface.dress(Style.ECHO, "[np.float64(1.5)]\n", ()) == "[np.float64(1.5)]"
    surface.learn(Style.ECHO, "np.int64(3)\n", (), "3")
    assert surface.dress(Style.ECHO, "[np.float64(1.5), np.int64(2)]\n", ()) == "[1.5, 2]"
