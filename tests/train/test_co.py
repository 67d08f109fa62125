"""Trainers that belong together: one that is killed is started again, and none outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from obsspec.train.co import Child
from obsspec.values import ConfigError

ROOT = Path(__file__).parent.parent.parent
WAIT_S = 30


def count(out: Path) -> None:
    """Kills itself in its first two lives, and ends in its third."""
    with (out / "lives").open("a") as file:
        file.write("x")
    if len((out / "lives").read_text()) < 3:
        os.kill(os.getpid(), signal.SIGKILL)


def refuse(out: Path) -> None:
    raise ConfigError("no such thing")


def sleep(out: Path) -> None:
    (out / "pid").write_text(str(os.getpid()))
    time.sleep(120)


def until_over(child: Child, said: list[str]) -> None:
    while child.running:
        child.process.join(WAIT_S)
        assert child.process.exitcode is not None
        child.look(said.append)


def test_a_process_that_was_killed_is_started_again(tmp_path: Path) -> None:
    said: list[str] = []
    until_over(Child("world", partial(count, tmp_path)), said)
    assert (tmp_path / "lives").read_text() == "xxx"
    assert len(said) == 2
    assert "signal 9" in said[0]


def end(out: Path) -> None:
    """As the world trainer does when it is asked to stop: it finishes, and says nothing is wrong."""
    with (out / "lives").open("a") as file:
        file.write("x")
    if len((out / "lives").read_text()) == 2:
        raise ConfigError("enough")


def test_one_that_goes_on_for_ever_was_stopped_when_it_ends_and_is_started_again(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(ConfigError, match="said why above"):
        until_over(Child("world", partial(end, tmp_path), endless=True), said)
    assert said == ["the world trainer was stopped and is started again"]
    until_over(Child("world", partial(end, tmp_path)), said)  # not so one that has an end
    assert len((tmp_path / "lives").read_text()) == 3


def test_a_process_that_says_what_is_wrong_is_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="said why above"):
        until_over(Child("policy", partial(refuse, tmp_path)), [])


def refuse_in_a_group(out: Path) -> None:
    raise ExceptionGroup("a task", [ConfigError("no such thing")])


def test_what_a_task_of_it_says_is_a_line_and_so_is_an_interruption(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match="said why above"):
        until_over(Child("policy", partial(refuse_in_a_group, tmp_path)), [])
    assert capfd.readouterr().err == "obsspec: no such thing\n"
    child = Child("policy", partial(sleep, tmp_path))
    deadline = time.monotonic() + WAIT_S
    while not (tmp_path / "pid").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(child.process.pid or 0, signal.SIGINT)
    child.process.join(WAIT_S)
    assert (child.process.exitcode, capfd.readouterr().err) == (130, "")


def test_stopping_ends_it(tmp_path: Path) -> None:
    child = Child("world", partial(sleep, tmp_path))
    child.stop()
    assert child.process.exitcode is not None


def test_it_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import time; from functools import partial; from pathlib import Path; from obsspec.train.co import Child\n"
        "from tests.train.test_co import sleep\n"
        f"if __name__ == '__main__': Child('world', partial(sleep, Path({str(tmp_path)!r}))); time.sleep(120)"
    )
    (tmp_path / "parent.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    with subprocess.Popen([sys.executable, tmp_path / "parent.py"], env=environment) as parent:
        deadline = time.monotonic() + WAIT_S
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        parent.kill()
    pid = int((tmp_path / "pid").read_text())
    while Path(f"/proc/{pid}").exists() and "zombie" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline + WAIT_S
        time.sleep(0.05)
