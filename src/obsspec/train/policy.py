# pyright: basic, reportMissingImports=false
"""`obsspec train policy`: GRPO on the terminal suite, rollouts by the speculative collector, weights back each step."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from itertools import count as counting
from pathlib import Path
from random import Random
from typing import Any

import torch

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from datasets import Dataset
from transformers import PreTrainedTokenizerFast, PrinterCallback
from trl import GRPOConfig

from obsspec.integrations.trl.function import RolloutFunction, finished_reward, reward
from obsspec.models.adapter import Adapter, read_adapter
from obsspec.models.tokenizer import load_vocabulary
from obsspec.rollout.accounting import verified, verified_if_finished
from obsspec.rollout.store import RunFolder
from obsspec.tasks.suite import suite
from obsspec.tasks.task import Split
from obsspec.train import policy_settings, rollout_settings
from obsspec.train.account_table import account_table
from obsspec.train.adapter import model_of, rank_of, save_adapter
from obsspec.train.causal_lm import PackedCausalLM, tokenizer_of
from obsspec.train.policy_log import Books, Log, Say
from obsspec.train.policy_settings import DECAYING, Loss, PolicySettings, Schedule
from obsspec.train.policy_trainer import MarkComplete, MergeAfterStep, PackedGRPOTrainer, last_complete, step_of
from obsspec.train.rollout_settings import Flow, RolloutSettings
from obsspec.train.rollouts import Kept, read_account
from obsspec.train.run import keep_memory, working_type
from obsspec.train.terminal import check_rollouts, known_families, open_rollouts
from obsspec.train.transition_log import TransitionWriter
from obsspec.train.versions import VersionFolder
from obsspec.values import ConfigError

END = "<|im_end|>"
TRAINER, VERSIONS, TRANSITIONS, LOG = "trainer", "policy", "transitions", "log.jsonl"
ENGINES = "engines"


def train_policy(start: Path, out: Path, settings: PolicySettings, rollouts: RolloutSettings, say: Say) -> None:
    """Train, or go on training, until `settings.steps`. Killed at any time, the same call goes on from there."""
    families = known_families(settings.families)  # what is wrong is said before the folder is bound to it
    check_rollouts(rollouts)
    adapter = read_adapter(start)
    rank_of(adapter)
    checkpoint = last_complete(out / TRAINER)
    if checkpoint is not None and step_of(checkpoint) > settings.steps:
        raise ConfigError(f"--steps {settings.steps}: the run has made {step_of(checkpoint)}, give as many or more")
    config = {"start": str(start), **settings.as_config(), **rollouts.as_config()}
    folder = RunFolder(out, config, policy_settings.FREE | rollout_settings.FREE)
    keep_memory()
    torch.set_num_threads(settings.train_threads or len(os.sched_getaffinity(0)))
    model = _model(adapter, settings)
    versions = VersionFolder(out / VERSIONS, "policy")
    with ExitStack() as stack:
        log = stack.enter_context(TransitionWriter(out / TRANSITIONS, "policy"))
        account = read_account(folder)
        kept = Kept(folder, account, before=log.sync, since=step_of(checkpoint) if checkpoint is not None else 0)
        function = RolloutFunction(
            partial(
                open_rollouts,
                rollouts,
                folder=out / ENGINES,
                seed=settings.seed,
                kept=kept,
                log=log,
                account=account,
                flow=Flow(reward=verified if settings.reward_unfinished else verified_if_finished),
            ),
            saver(versions, settings.keep_every),
            model.config.eos_token_id,
        )
        stack.enter_context(function)
        tasks = suite(Split.TRAIN, settings.tasks, families, settings.difficulty, settings.task_seed)
        tokenizer = tokenizer_of(load_vocabulary(), END)
        trainer = make_trainer(model, tokenizer, [task.id for task in tasks], function, out, settings, say)
        trainer.add_callback(Books(folder, account))
        if checkpoint is not None:
            say(f"going on from {checkpoint.name}")
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    final = versions.publish(settings.steps, lambda path: save_adapter(model.llama, path), {"step": settings.steps})
    say(account_table(account))
    say(f"finished after {settings.steps} steps, adapter: {final.adapter}")


def _model(adapter: Adapter, settings: PolicySettings) -> PackedCausalLM:
    llama = model_of(adapter, working_type(settings.precision))
    return PackedCausalLM(llama, load_vocabulary().control(END))


def saver(versions: VersionFolder, keep_every: int) -> Callable[[Any, Path], str]:
    """Each step's adapter is a version; of those before the last two, every so many are kept.

    Who follows may just be opening the version before this one.
    """

    def save(trainer: Any, path: Path) -> str:
        step = int(trainer.state.global_step)
        version = versions.publish(step, lambda p: save_adapter(trainer.model.llama, p), {"step": step})
        path.unlink(missing_ok=True)
        path.symlink_to(version.adapter.resolve())
        versions.drop(step - 2, unless=lambda number: number % keep_every == 0)
        return version.name

    return save


LOSSES = {Loss.ROLLOUT: "grpo", Loss.TOKEN: "dapo"}  # as TRL calls them


def make_trainer(
    model: PackedCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    prompts: list[str],
    function: RolloutFunction,
    out: Path,
    settings: PolicySettings,
    say: Say,
) -> PackedGRPOTrainer:
    """TRL's trainer on these prompts; its checkpoints go to OUT/trainer, its log to OUT/log.jsonl.

    The order of the prompts is fixed here: TRL's own is another one after a resumption.
    """
    order = shuffled(prompts, settings.seed, settings.steps * settings.prompts)
    micro = settings.micro_batch
    args = GRPOConfig(
        output_dir=str(out / TRAINER),
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=settings.prompts * settings.group // micro,
        num_generations=settings.group,
        max_steps=settings.steps,
        learning_rate=settings.learning_rate,
        **_schedule(settings),
        max_grad_norm=settings.clip,
        adam_beta2=0.95,
        weight_decay=0.0,
        beta=0.0,
        epsilon_high=settings.epsilon_high,
        loss_type=LOSSES[settings.loss],
        temperature=1.0,
        logging_steps=1,
        save_strategy="steps",
        save_steps=1,
        save_total_limit=3,
        seed=settings.seed,
        shuffle_dataset=False,
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
    )
    trainer = PackedGRPOTrainer(
        model=model,
        reward_funcs=reward if settings.reward_unfinished else finished_reward,
        args=args,
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in order]),
        processing_class=tokenizer,
        rollout_func=function,
        callbacks=[MergeAfterStep(model), MarkComplete(), Log(out / LOG, settings.steps, say)],
    )
    trainer.remove_callback(PrinterCallback)  # the log has it
    return trainer


def _schedule(settings: PolicySettings) -> dict[str, Any]:
    if settings.schedule is not Schedule.DECAY:
        return {"lr_scheduler_type": settings.schedule.value}
    decaying = {"num_decay_steps": round(DECAYING * settings.steps), "decay_type": "linear"}
    return {"lr_scheduler_type": "warmup_stable_decay", "lr_scheduler_kwargs": decaying}


def shuffled(prompts: Sequence[str], seed: int, count: int) -> list[str]:
    """The first `count` of endless rounds through the prompts, each in an order of its own."""
    rounds = (Random(f"{seed}/{n}").sample(list(prompts), len(prompts)) for n in counting())
    return list(islice(chain.from_iterable(rounds), count))
