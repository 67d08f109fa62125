# pyright: basic, reportMissingImports=false
"""`obsspec train policy`: GRPO on the terminal suite, rollouts by the speculative collector, weights back each step."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig

from obsspec.integrations.trl.function import RolloutFunction, reward
from obsspec.models.adapter import read_adapter
from obsspec.models.base import base_model_path
from obsspec.models.tokenizer import load_vocabulary
from obsspec.rollout.store import RunFolder
from obsspec.tasks.suite import suite
from obsspec.tasks.task import Split
from obsspec.train.adapter import apply_adapter, rank_of, save_adapter
from obsspec.train.causal_lm import PackedCausalLM, tokenizer_of
from obsspec.train.llama import Llama
from obsspec.train.policy_settings import PolicySettings
from obsspec.train.policy_trainer import MarkComplete, MergeAfterStep, PackedGRPOTrainer, last_complete
from obsspec.train.rollouts import Kept
from obsspec.train.run import keep_memory, working_type
from obsspec.train.terminal import RolloutSettings, known_families, open_rollouts
from obsspec.train.transition_log import TransitionWriter
from obsspec.train.versions import VersionFolder

END = "<|im_end|>"
TRAINER, VERSIONS, TRANSITIONS, LOG, ENGINES = "trainer", "policy", "transitions", "log.jsonl", "engines"
Say = Callable[[str], None]


def train_policy(start: Path, out: Path, settings: PolicySettings, rollouts: RolloutSettings, say: Say) -> None:
    """Train, or go on training, until `settings.steps`. Killed at any time, the same call goes on from there."""
    logging.getLogger("httpx").setLevel(logging.WARNING)
    config = {"start": str(start), **settings.as_config(), **rollouts.as_config()}
    folder = RunFolder(out, config)
    keep_memory()
    torch.set_num_threads(settings.train_threads or len(os.sched_getaffinity(0)))
    model = _model(start, settings)
    versions = VersionFolder(out / VERSIONS, "policy")
    with ExitStack() as stack:
        log = stack.enter_context(TransitionWriter(out / TRANSITIONS, "policy"))
        kept = Kept(folder)
        function = RolloutFunction(
            partial(open_rollouts, rollouts, folder=out / ENGINES, seed=settings.seed, kept=kept, log=log),
            _saver(versions, settings.keep_every),
            model.config.eos_token_id,
        )
        stack.enter_context(function)
        trainer = _trainer(model, function, out, settings, say)
        checkpoint = last_complete(out / TRAINER)
        if checkpoint is not None:
            say(f"going on from {checkpoint.name}")
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    final = versions.publish(settings.steps, lambda path: save_adapter(model.llama, path), {"step": settings.steps})
    say(f"finished after {settings.steps} steps, adapter: {final.adapter}")


def _model(start: Path, settings: PolicySettings) -> PackedCausalLM:
    adapter = read_adapter(start)
    rank = rank_of(adapter)
    dtype = working_type(settings.precision)
    llama = Llama(base_model_path(), rank=rank, alpha=adapter.scale * rank, dtype=dtype)
    apply_adapter(llama, adapter)
    return PackedCausalLM(llama, load_vocabulary().control(END))


def _saver(versions: VersionFolder, keep_every: int) -> Callable[[Any, Path], str]:
    """Each step's adapter is a version; those between every so many go when the next one is there."""

    def save(trainer: Any, path: Path) -> str:
        step = int(trainer.state.global_step)
        version = versions.publish(step, lambda p: save_adapter(trainer.model.llama, p), {"step": step})
        shutil.copyfile(version.adapter, path)
        versions.drop(step - 1, unless=lambda number: number % keep_every == 0)
        return version.name

    return save


def _trainer(
    model: PackedCausalLM, function: RolloutFunction, out: Path, settings: PolicySettings, say: Say
) -> PackedGRPOTrainer:
    families = known_families(settings.families)
    tasks = suite(Split.TRAIN, settings.tasks, families, settings.difficulty, settings.task_seed)
    micro = settings.micro_batch
    args = GRPOConfig(
        output_dir=str(out / TRAINER),
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=settings.prompts * settings.group // micro,
        num_generations=settings.group,
        max_steps=settings.steps,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=settings.warmup_steps,
        max_grad_norm=settings.clip,
        adam_beta2=0.95,
        weight_decay=0.0,
        beta=0.0,
        epsilon_high=settings.epsilon_high,
        temperature=1.0,
        logging_steps=1,
        save_strategy="steps",
        save_steps=1,
        save_total_limit=3,
        seed=settings.seed,
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
    )
    return PackedGRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=args,
        train_dataset=Dataset.from_list([{"prompt": task.id} for task in tasks]),
        processing_class=tokenizer_of(load_vocabulary(), END),
        rollout_func=function,
        callbacks=[MergeAfterStep(model), MarkComplete(), _Log(out / LOG, settings.steps, say)],
    )


class _Log(TrainerCallback):
    """One line for each step, the file written anew from what the trainer knows: a resumed run repeats nothing."""

    def __init__(self, path: Path, steps: int, say: Say) -> None:
        self._path, self._steps, self._say = path, steps, say

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        part = self._path.with_suffix(".part")
        part.write_text("".join(json.dumps(entry) + "\n" for entry in state.log_history), encoding="utf-8")
        part.replace(self._path)
        now = state.log_history[-1]
        if "reward" in now:
            self._say(
                f"step {state.global_step} of {self._steps}  reward {now['reward']:.3f}  loss {now['loss']:.4f}  "
                f"turns {now['rollouts/turns']:.1f}  match {now.get('rollouts/match', float('nan')):.2f}  "
                f"rollouts {now['rollouts/collect_s']:.0f} s  training {now['step_time']:.0f} s"
            )
