"""The store behind the memories: what is written stays, whoever else writes, and no file grows without end."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from obsspec.values import ConfigError
from obsspec.world.memory.database import Database
from obsspec.world.memory.digests import digest
from obsspec.world.memory.store import Store

KEY, NAME = digest("key"), digest("name")


def test_what_was_written_is_there_when_the_file_is_opened_again(tmp_path: Path) -> None:
    with Store(tmp_path / "m.db") as store:
        store.add(KEY, NAME, 2)
        store.add(KEY, NAME)
        name = store.keep("an observation")
    with Store(tmp_path / "m.db") as store:
        assert store.page(KEY).count(NAME) == 3
        assert store.text(name) == "an observation"


def test_a_change_is_seen_at_once_before_during_and_after_it_is_written(tmp_path: Path) -> None:
    with Store(tmp_path / "m.db", flush_s=60, max_pages=1) as store:  # a page is dropped as soon as another is used
        store.add(KEY, NAME)
        store.page(digest("other"))
        assert store.page(KEY).count(NAME) == 1
        store.flush()
        store.page(digest("other"))
        assert store.page(KEY).count(NAME) == 1


def test_long_texts_are_kept_once_and_compressed(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with Store(path) as store:
        names = {store.keep("line of output\n" * 20_000) for _ in range(50)}
        odd = store.keep("lone surrogate \udcff")
    with Store(path) as store:
        assert len(names) == 1
        assert store.text(names.pop()) == "line of output\n" * 20_000
        assert store.text(odd) == "lone surrogate \udcff"
    assert path.stat().st_size < 100_000


def test_processes_that_write_at_the_same_time_add_up(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    script = (
        "import sys; from pathlib import Path; from obsspec.world.memory.store import Store\n"
        "with Store(Path(sys.argv[1]), flush_s=0.001) as store:\n"
        "    for _ in range(500): store.add(b'key', b'name')\n"
    )
    others = [subprocess.Popen([sys.executable, "-c", script, str(path)]) for _ in range(3)]
    assert [other.wait(60) for other in others] == [0, 0, 0]
    with Store(path) as store:
        assert store.page(b"key").count(b"name") == 1500


def test_what_others_wrote_shows_up(tmp_path: Path) -> None:
    with Store(tmp_path / "m.db", refresh_s=0) as ours, Store(tmp_path / "m.db") as theirs:
        assert ours.page(KEY).count(NAME) == 0
        theirs.add(KEY, NAME)
        theirs.flush()
        assert ours.page(KEY).count(NAME) == 1
        ours.add(KEY, NAME)
        assert ours.page(KEY).count(NAME) == 2


def test_threads_may_share_a_store(tmp_path: Path) -> None:
    with Store(tmp_path / "m.db", flush_s=0.001, refresh_s=0) as store:

        def work() -> None:
            for number in range(200):
                store.add(KEY, NAME)
                store.keep(str(number))
                store.page(digest(str(number)))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.page(KEY).count(NAME) == 800
    with Store(tmp_path / "m.db") as store:
        assert store.page(KEY).count(NAME) == 800


def test_a_process_killed_while_it_writes_loses_only_what_was_not_yet_written(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    script = (
        "import sys; from pathlib import Path; from obsspec.world.memory.store import Store\n"
        "store = Store(Path(sys.argv[1]), flush_s=0.001); store.add(b'key', b'first'); store.flush()\n"
        "print('ready', flush=True)\n"
        "while True: store.add(b'key', b'later'); store.keep('x' * 1000)\n"
    )
    other = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
    assert other.stdout is not None
    other.stdout.readline()
    os.kill(other.pid, signal.SIGKILL)
    other.wait(60)
    other.stdout.close()
    with Store(path) as store:
        assert store.page(b"key").count(b"first") == 1


def test_a_write_that_fails_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise sqlite3.OperationalError("database is locked")

    store = Store(tmp_path / "m.db", flush_s=60)
    store.add(KEY, NAME)
    name = store.keep("text")
    for method in ("stage", "commit"):
        with monkeypatch.context() as patch:
            patch.setattr(Database, method, refuse)
            with pytest.raises(sqlite3.OperationalError):
                store.flush()
        if method == "commit":
            store._database._writer.execute("ROLLBACK")  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
        assert store.page(KEY).count(NAME) == 1
    store.close()
    with Store(tmp_path / "m.db") as store:
        assert store.page(KEY).count(NAME) == 1
        assert store.text(name) == "text"


def test_a_write_that_never_works_is_said_when_the_store_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    store = Store(tmp_path / "m.db", flush_s=60)
    store.add(KEY, NAME)
    monkeypatch.setattr(Database, "stage", refuse)
    with pytest.raises(ConfigError, match="disk is full"):
        store.close()


def test_the_file_stays_within_its_bound_and_keeps_what_was_useful_last(tmp_path: Path) -> None:
    path, bound = tmp_path / "m.db", 400_000
    with Store(path, max_bytes=bound, max_pages=10, max_text=1) as store:
        kept = store.keep("kept because it is used again and again")
        for number in range(3_000):
            store.add(digest(str(number)), store.keep(f"{number} {os.urandom(200).hex()}"))
            store.add(KEY, store.keep("kept because it is used again and again"))
            if number % 100 == 0:
                store.flush()
        store.flush()
        assert store.page(KEY).count(kept) > 0
        assert store.text(kept) is not None
        assert store.page(digest("0")).cells == {}
        assert store.page(digest("2999")).cells != {}
    assert path.stat().st_size < 1.5 * bound


def test_what_is_held_in_the_process_is_bounded() -> None:
    store = Store(max_pages=10, max_text=1_000)
    names = [store.keep(f"{number:0100}") for number in range(100)]
    for number in range(100):
        store.add(digest(str(number)), NAME)
    assert store.text(names[0]) is None
    assert store.text(names[99]) is not None
    assert store.page(digest("0")).cells == {}
    assert store.page(digest("99")).cells != {}


@pytest.mark.parametrize("what", ["text", "database", "schema", "directory"])
def test_a_file_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path, what: str) -> None:
    path = tmp_path / "m.db"
    if what == "text":
        path.write_text("notes of somebody " * 100)
    elif what == "directory":
        path.mkdir()
    elif what == "database":
        with sqlite3.connect(path) as link:
            link.execute("CREATE TABLE precious (x)")
        link.close()
    else:
        Store(path).close()
        with sqlite3.connect(path) as link:
            link.execute("PRAGMA user_version = 99")
        link.close()
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(ConfigError, match="choose another"):
        Store(path)
    if what in ("text", "database"):
        assert path.read_bytes() == before


def test_a_fork_knows_the_same_and_keeps_what_it_learns_to_itself(tmp_path: Path) -> None:
    with Store(tmp_path / "m.db") as store:
        store.add(KEY, NAME)
        name = store.keep("shared")
        fork = store.fork()
        fork.add(KEY, NAME, 10)
        own = fork.keep("own")
        assert fork.page(KEY).count(NAME) == 11
        assert fork.text(name) == "shared"
        assert store.page(KEY).count(NAME) == 1
        assert store.text(own) is None


def test_the_largest_counter_and_the_sum_of_a_page_follow_its_changes() -> None:
    store = Store()
    store.add(KEY, b"a", 2)
    store.add(KEY, b"b", 1)
    assert (store.page(KEY).best, store.page(KEY).total) == (b"a", 3)
    store.add(KEY, b"b", 1)
    assert (store.page(KEY).best, store.page(KEY).total) == (b"b", 4)
