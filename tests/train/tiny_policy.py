"""A policy of the tiny Llama that knows the terminal format a little, its rollouts and its GRPO, also as a process."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from obsspec.integrations.trl.function import RolloutFunction
from obsspec.models.adapter import read_adapter
from obsspec.protocols import OnTokens, Policy, WorldModel
from obsspec.rollout.async_collector import AsyncCollector
from obsspec.rollout.collector import Environment, Job, Speculation
from obsspec.rollout.rules import Limits, RolloutRules
from obsspec.rollout.store import RunFolder
from obsspec.speculation.session import SpeculationSettings
from obsspec.tasks.task import Split
from obsspec.testing import oracle, seeded_answers, toy_vocabulary
from obsspec.testing.environment import ScriptedEnvironment
from obsspec.testing.scripts import COMMANDS, toy_renderer
from obsspec.testing.world_model import ScriptedWorldModel, mixture
from obsspec.train.adapter import apply_adapter, save_adapter
from obsspec.train.batches import Batch
from obsspec.train.causal_lm import PackedCausalLM
from obsspec.train.live import open_live_policy
from obsspec.train.llama import Llama
from obsspec.train.policy import make_trainer, saver
from obsspec.train.policy_settings import PolicySettings
from obsspec.train.policy_trainer import PackedGRPOTrainer, last_complete
from obsspec.train.rollouts import Kept, Rollouts
from obsspec.train.transition_log import TransitionWriter
from obsspec.train.update import make_optimizer, update
from obsspec.train.versions import VersionFolder
from obsspec.values import Completion, FinishReason, Priority, Sampling, Tokens
from tests.train.tiny import VOCABULARY, write_tiny

RANK, ALPHA = 4, 8.0
END = toy_vocabulary().control("<|im_end|>")
PROMPTS = [f"task-{i}" for i in range(6)]
SETTINGS = PolicySettings(prompts=2, group=4, micro_batch=4, learning_rate=0.01, keep_every=1, train_threads=1)


def tiny_llama(folder: Path) -> Llama:
    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    return Llama(write_tiny(folder / "tiny.gguf"), rank=RANK, alpha=ALPHA, dtype=torch.float32)


def taught(llama: Llama) -> Llama:
    """So that it often writes a whole command."""
    renderer, optimizer = toy_renderer(), make_optimizer(llama, 0.03)
    prompt = renderer.start("say hello")
    turns = [renderer.call(command) for command in COMMANDS] + [renderer.answer("done")]
    ids = torch.tensor([i for turn in turns for i in (*prompt, *turn)])
    lengths = tuple(len(prompt) + len(turn) for turn in turns)
    rows, at = list[int](), 0
    for turn, length in zip(turns, lengths, strict=True):
        rows += range(at + length - len(turn) - 1, at + length - 1)
        at += length
    picked = torch.tensor(rows)
    batch = Batch(ids, lengths, picked, ids[picked + 1], torch.ones(len(rows)))
    for _ in range(150):
        update(llama, optimizer, batch, 0.03, 1.0)
    return llama


class TinyPolicy:
    """Samples token by token; what comes out is a function of prompt, sampling and weights alone."""

    def __init__(self, llama: Llama, version: str) -> None:
        self._llama, self.weight_version = llama, version

    async def generate(
        self,
        prompt: Tokens,
        sampling: Sampling,
        *,
        priority: Priority = Priority.COMMITTED,
        on_tokens: OnTokens | None = None,
    ) -> Completion:
        with torch.no_grad():
            return self._sample(prompt, sampling)

    def _sample(self, prompt: Tokens, sampling: Sampling) -> Completion:
        random = torch.Generator().manual_seed(sampling.seed)
        ids, logprobs = list(prompt), list[float]()
        while len(logprobs) < sampling.max_tokens and (not logprobs or ids[-1] not in sampling.stop_token_ids):
            hidden = self._llama(torch.tensor(ids), (len(ids),))[-1]
            logp = torch.log_softmax(hidden @ self._llama.embedding.t(), -1)
            ids.append(int(torch.multinomial(logp.exp(), 1, generator=random)))
            logprobs.append(float(logp[ids[-1]]))
        reason = FinishReason.STOP if ids[-1] in sampling.stop_token_ids else FinishReason.LENGTH
        return Completion(tuple(ids[len(prompt) :]), tuple(logprobs), reason, self.weight_version)


class TinyServing:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.opened: list[str] = []

    @asynccontextmanager
    async def open(self, adapter: Path, version: str) -> AsyncGenerator[Policy, None]:
        llama = tiny_llama(self._folder / "serving")
        apply_adapter(llama, read_adapter(adapter))
        self.opened.append(version)
        yield TinyPolicy(llama, version)


class TinyTask(ScriptedEnvironment):
    split = Split.TRAIN


def job(prompt: str, label: str, step: int) -> Job:
    rules = RolloutRules(toy_renderer(), Limits(4, 16, 200), seed=label)
    task = TinyTask(prompt, seeded_answers(prompt), delay_s=lambda call: 0.02)
    return Job(task, rules, group=f"{step}/{prompt}", step=step)


class Guessing:
    """Right half of the time."""

    @asynccontextmanager
    async def open(self, environment: Environment, seed: str) -> AsyncGenerator[WorldModel, None]:
        truth = oracle(seeded_answers(environment.task_id))
        yield ScriptedWorldModel(truth, mixture(seed, right=0.5, trouble=0.2))


@asynccontextmanager
async def tiny_rollouts(
    adapter: Path,
    name: str,
    *,
    serving: TinyServing,
    speculate: bool,
    made: list[Any],
    kept: Kept | None = None,
    log: TransitionWriter | None = None,
) -> AsyncGenerator[Rollouts, None]:
    async with open_live_policy(serving.open(adapter, name)) as live:
        speculation = Speculation(Guessing(), SpeculationSettings(depth=2)) if speculate else None
        collector = AsyncCollector(live, 4, speculation=speculation, log=log)
        rollouts = _Noted(live, serving, collector, job, kept=kept)
        rollouts.made = made
        yield rollouts


class _Noted(Rollouts):
    made: list[Any]

    async def collect(self, prompts: Any, step: int, label: str) -> Any:
        results = await super().collect(prompts, step, label)
        self.made.append(results)
        return results


def tokenizer() -> PreTrainedTokenizerFast:
    words = {f"t{i}": i for i in range(VOCABULARY)}
    plain = Tokenizer(WordLevel(words, unk_token="t0"))
    return PreTrainedTokenizerFast(tokenizer_object=plain, eos_token=f"t{END}", pad_token=f"t{END}")


def start_adapter(folder: Path) -> Path:
    path = folder / "start.safetensors"
    if not path.exists():
        save_adapter(taught(tiny_llama(folder)), path)
    return path


def tiny_model(start: Path, folder: Path) -> PackedCausalLM:
    llama = tiny_llama(folder)
    apply_adapter(llama, read_adapter(start))
    return PackedCausalLM(llama, END)


def train(start: Path, out: Path, steps: int, *, speculate: bool, resumable: bool = False, **changes: Any) -> Any:
    """(trainer, rollouts of each step, serving)"""
    torch.set_num_threads(1)
    model, serving, made = tiny_model(start, out), TinyServing(out), list[Any]()
    settings = replace(SETTINGS, steps=steps, **changes)
    options: dict[str, Any] = {"serving": serving, "speculate": speculate, "made": made}
    save = saver(VersionFolder(out / "policy", "policy"), settings.keep_every)
    with ExitStack() as stack:
        if resumable:
            log = stack.enter_context(TransitionWriter(out / "transitions", "policy"))
            options |= {"kept": Kept(RunFolder(out, {})), "log": log}
        function = stack.enter_context(RolloutFunction(partial(tiny_rollouts, **options), save, END))
        trainer: PackedGRPOTrainer = make_trainer(model, tokenizer(), PROMPTS, function, out, settings, say)
        checkpoint = last_complete(out / "trainer")
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    return trainer, made, serving


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    train(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), speculate=True, resumable=True)
    say("finished")
