# pyright: basic, reportMissingImports=false
"""What a policy run leaves behind beside its rollouts: one line for each step, and the books."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from obsspec.rollout.accounting import Account
from obsspec.rollout.store import RunFolder, replace_text
from obsspec.train.rollouts import ACCOUNT

Say = Callable[[Any], None]  # a line of text, or a table


class Books(TrainerCallback):
    """Adds the seconds of the update to the account, and stores it with the step."""

    def __init__(self, folder: RunFolder, account: Account) -> None:
        self._folder, self._account = folder, account

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        now = state.log_history[-1]
        if "step_time" in now:
            self._account.train_s += now["step_time"] - now["rollouts/collect_s"]
            self._folder.write_json(ACCOUNT, self._account.to_json())


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
