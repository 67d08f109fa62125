"""Adopting the rollout function: a PEFT model, TRL's own `GRPOTrainer`, and the lines of the page on TRL."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
trl = pytest.importorskip("trl")
peft = pytest.importorskip("peft")

from datasets import Dataset  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402
from tokenizers.models import WordLevel  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: E402

from obsspec.integrations.trl import finished_reward, reward, rollout_func  # noqa: E402
from obsspec.integrations.trl.function import RolloutFunction, as_trl  # noqa: E402
from obsspec.models.adapter import read_adapter  # noqa: E402
from obsspec.protocols import Policy  # noqa: E402
from obsspec.rollout.collector import RolloutResult, Verdict  # noqa: E402
from obsspec.rollout.rules import Limits  # noqa: E402
from obsspec.rollout.trajectory import Trajectory  # noqa: E402
from obsspec.testing import ScriptedPolicy, seeded_answers, terminal_script, toy_vocabulary  # noqa: E402
from obsspec.testing.environment import ScriptedEnvironment  # noqa: E402
from obsspec.testing.scripts import toy_renderer  # noqa: E402
from obsspec.values import ConfigError, StopReason  # noqa: E402

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")]

END = toy_vocabulary().control("<|im_end|>")


class Serving:
    """Scripted engines; notes the factors of each adapter that it was given."""

    def __init__(self) -> None:
        self.adapters: list[dict[str, Any]] = []
        self.versions: list[str] = []
        self.policies: list[ScriptedPolicy] = []

    @asynccontextmanager
    async def open(self, adapter: Path, version: str) -> AsyncGenerator[Policy, None]:
        self.adapters.append(dict(read_adapter(adapter).tensors))
        self.versions.append(version)
        self.policies.append(ScriptedPolicy(terminal_script(), weight_version=version))
        yield self.policies[-1]


class Task(ScriptedEnvironment):
    def __init__(self, prompt: str) -> None:
        super().__init__(prompt, seeded_answers(prompt), delay_s=lambda call: 0.01)


def tokenizer() -> PreTrainedTokenizerFast:
    plain = Tokenizer(WordLevel({f"t{i}": i for i in range(300)}, unk_token="t0"))
    return PreTrainedTokenizerFast(tokenizer_object=plain, eos_token=f"t{END}", pad_token=f"t{END}")


def trainer(function: RolloutFunction, out: Path, *, adapter: bool = True, steps: int = 3, save: str = "no") -> Any:
    config = LlamaConfig(
        vocab_size=300, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4
    )
    arguments = trl.GRPOConfig(
        output_dir=str(out),
        per_device_train_batch_size=4,
        num_generations=4,
        max_steps=steps,
        learning_rate=0.01,
        report_to=[],
        use_cpu=True,
        bf16=False,
        save_strategy=save,
        save_steps=1,
        logging_steps=1,
        disable_tqdm=True,
    )
    return trl.GRPOTrainer(
        model=LlamaForCausalLM(config),
        args=arguments,
        train_dataset=Dataset.from_list([{"prompt": f"task {i}"} for i in range(8)]),
        processing_class=tokenizer(),
        peft_config=peft.LoraConfig(target_modules="all-linear", r=4, lora_alpha=8) if adapter else None,
        reward_funcs=reward,
        rollout_func=function,
    )


def test_a_peft_model_is_trained_and_its_adapter_reaches_the_engine_at_every_step(tmp_path: Path) -> None:
    serving = Serving()
    with rollout_func(Task, serving, toy_renderer(), limits=Limits(4, 30, 300)) as function:
        made = trainer(function, tmp_path)
        made.train()
    history = [entry for entry in made.state.log_history if "reward" in entry]
    assert any(entry["grad_norm"] > 0 for entry in history)
    assert len(serving.versions) == len(set(serving.versions)) == 3
    changed = [
        any((before[name] != after[name]).any() for name in before)
        for before, after in zip(serving.adapters, serving.adapters[1:], strict=False)
    ]
    assert changed == [True, True]
    assert all(not policy.open for policy in serving.policies)
    assert set(serving.adapters[0]) == {
        f"model.layers.{layer}.{module}_proj.lora_{half}"
        for layer in range(2)
        for module in ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate", "mlp.up", "mlp.down")
        for half in "AB"
    }


@pytest.mark.parametrize("steps", [1, 2])
def test_training_again_publishes_the_weights_of_now_under_names_never_used(tmp_path: Path, steps: int) -> None:
    serving = Serving()
    with rollout_func(Task, serving, toy_renderer(), limits=Limits(4, 30, 300)) as function:
        made = trainer(function, tmp_path, steps=steps)
        made.train()
        made.train()
    assert len(serving.versions) == len(set(serving.versions)) == 2 * steps
    first, again = serving.adapters[0], serving.adapters[steps]
    assert any((first[name] != again[name]).any() for name in first)


def test_a_run_that_goes_on_from_an_earlier_checkpoint_uses_no_name_twice(tmp_path: Path) -> None:
    serving = Serving()
    with rollout_func(Task, serving, toy_renderer(), limits=Limits(4, 30, 300)) as function:
        made = trainer(function, tmp_path, steps=2, save="steps")
        made.train()
        made.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    assert len(serving.versions) == len(set(serving.versions)) == 3
    same = [(serving.adapters[1][name] == values).all() for name, values in serving.adapters[2].items()]
    assert all(same)  # the checkpoint's


def test_a_model_without_an_adapter_is_a_sentence(tmp_path: Path) -> None:
    with (
        rollout_func(Task, Serving(), toy_renderer()) as function,
        pytest.raises(ConfigError, match="peft_config"),
    ):
        trainer(function, tmp_path, adapter=False).train()


def test_another_version_of_trl_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("obsspec.integrations.trl.versions.version", lambda name: "1.17.0")
    with pytest.raises(ConfigError, match=r"trl 1\.17\.0 is installed"):
        rollout_func(Task, Serving(), toy_renderer())


def test_a_rollout_in_which_a_part_failed_has_no_reward_and_no_token() -> None:
    failed = Trajectory("x", stop=StopReason.ENGINE_ERROR)
    cut = Trajectory("x", ids=[1, 2, 3, 9, 9], mask=[0, 1, 1, 0, 0], logprobs=[0, -1, -2, 0, 0], stop=StopReason.FINAL)
    results = [RolloutResult("t", str(i), "g", t, Verdict(1.0)) for i, t in enumerate((failed, cut))]
    rows = as_trl(results, END)
    assert rows["verdict"] == [None, 1.0]
    assert (rows["completion_ids"], rows["env_mask"]) == ([[END], [2, 3]], [[0], [1, 1]])
    assert rows["logprobs"] == [[0.0], [-1, -2]]


def test_a_rollout_that_ran_into_a_limit_earns_nothing_whatever_it_left_behind() -> None:
    stops = (
        StopReason.FINAL,
        StopReason.TURN_LIMIT,
        StopReason.CONTEXT_LIMIT,
        StopReason.CUT,
        StopReason.SANDBOX_ERROR,
    )
    results = [RolloutResult("t", stop, "g", Trajectory("x", stop=stop), Verdict(1.0)) for stop in stops]
    rows = as_trl(results, END)
    told = {"prompts": [], "completions": [], "verdict": rows["verdict"], "finished": rows["finished"]}
    assert finished_reward(**told) == [1.0, 0.0, 0.0, 0.0, None]
    assert reward(**told) == [1.0, 1.0, 1.0, 1.0, None]
