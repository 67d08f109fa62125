# pyright: basic, reportMissingImports=false
"""What a policy run leaves behind beside its rollouts: one line for each step, and the books."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from obsspec.rollout.accounting import Account
from obsspec.rollout.store import json_text, replace_text

Say = Callable[[Any], None]  # a line of text, or a table


def read_account(path: Path) -> Account:
    """The books of the run so far."""
    return Account.from_json(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else Account()


def store_account(path: Path, account: Account) -> None:
    """In one step."""
    replace_text(path, json_text(account.to_json()))


class Books(TrainerCallback):
    """Adds the seconds of the update to the account, and stores it with the step."""

    def __init__(self, path: Path, account: Account) -> None:
        self._path, self._account = path, account

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        now = state.log_history[-1]
        if "step_time" in now:
            self._account.train_s += now["step_time"] - now["rollouts/collect_s"]
            store_account(self._path, self._account)


class Log(TrainerCallback):
    """One line for each step, the file written anew from what the trainer knows: a resumed run repeats nothing."""

    def __init__(self, path: Path, steps: int, say: Say) -> None:
        self._path, self._steps, self._say = path, steps, say

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        replace_text(self._path, "".join(json.dumps(entry) + "\n" for entry in state.log_history))
        now = state.log_history[-1]
        if "reward" in now:
            update_s = now["step_time"] - now["rollouts/collect_s"]
            self._say(
                f"step {state.global_step} of {self._steps}  reward {now['reward']:.3f}  loss {now['loss']:.4f}  "
                f"turns {now['rollouts/turns']:.1f}  match {now.get('rollouts/match', float('nan')):.2f}  "
                f"rollouts {now['rollouts/collect_s']:.0f} s  update {update_s:.0f} s"
            )
