"""The trained model is a Llama with W + alpha/rank * B A: its output and every hand-written gradient are checked
against a plain implementation that torch differentiates."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402, N812

from obsspec.models.adapter import read_adapter  # noqa: E402
from obsspec.models.weights import GgufWeights  # noqa: E402
from obsspec.train.adapter import apply_adapter, save_adapter  # noqa: E402
from obsspec.train.llama import Llama  # noqa: E402
from obsspec.train.loss import cross_entropy  # noqa: E402
from obsspec.values import ConfigError  # noqa: E402
from tests.train.tiny import HEADS, KV_HEADS, LAYERS, VOCABULARY, WIDTH, write_tiny  # noqa: E402

HEAD = WIDTH // HEADS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "tiny.gguf")


@pytest.fixture
def model(path: Path) -> Llama:
    return _model(path)


def _model(path: Path, rank: int = 3) -> Llama:
    torch.manual_seed(1)
    model = Llama(path, rank=rank, alpha=6.0, dtype=torch.float32)
    with torch.no_grad():
        for group in model.groups():
            group.b.normal_(0, 0.1)
    model.merge()
    return model


def _reference(weights, factors, ids):
    """One session, the Hugging Face way."""
    position = torch.arange(len(ids)).float()
    angle = torch.outer(position, 10000.0 ** (-torch.arange(HEAD // 2).float() / (HEAD // 2)))
    cos, sin = (f(angle).repeat(1, 2).unsqueeze(1) for f in (torch.cos, torch.sin))

    def linear(x, layer, module):
        name = f"model.layers.{layer}.{module}"
        if f"{name}.weight" in factors:
            return F.linear(x, factors[f"{name}.weight"])
        low, high = factors[f"{name}.lora_A"], factors[f"{name}.lora_B"]
        return F.linear(x, torch.tensor(weights[f"{name}.weight"]) + 2.0 * high @ low)

    def norm(x, name):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * torch.tensor(weights[f"{name}.weight"])

    def turn(x):
        low, high = x.chunk(2, -1)
        return x * cos + torch.cat((-high, low), -1) * sin

    x = torch.tensor(weights["model.embed_tokens.weight"])[ids]
    for i in range(LAYERS):
        h = norm(x, f"model.layers.{i}.input_layernorm")
        q, k, v = (linear(h, i, f"self_attn.{m}_proj").view(len(ids), -1, HEAD) for m in "qkv")
        q, k, v = (t.transpose(0, 1)[None] for t in (turn(q), turn(k), v))
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)[0].transpose(0, 1).reshape(len(ids), WIDTH)
        x = x + linear(out, i, "self_attn.o_proj")
        h = norm(x, f"model.layers.{i}.post_attention_layernorm")
        x = x + linear(F.silu(linear(h, i, "mlp.gate_proj")) * linear(h, i, "mlp.up_proj"), i, "mlp.down_proj")
    return norm(x, "model.norm")


def _factors(model: Llama):
    return {name: t.requires_grad_() for group in model.groups() for name, t in group.tensors().items()}


def _losses(path: Path, model: Llama):
    """The model's loss and the plain one's, both differentiated, and what is trained of the plain one."""
    lengths, weights = (7, 1, 5), GgufWeights(path)
    ids, targets = torch.randint(VOCABULARY, (2, 13))
    row_weights = torch.rand(13)
    loss = cross_entropy(model(ids, lengths), model.unembedding, targets, row_weights)
    loss.backward()

    factors = _factors(model)
    hidden = torch.cat([_reference(weights, factors, part) for part in ids.split(lengths)])
    logits = hidden @ torch.tensor(weights["model.embed_tokens.weight"]).t()
    plain = (F.cross_entropy(logits, targets, reduction="none") * row_weights).sum() / row_weights.sum()
    plain.backward()
    return loss, plain, factors


def test_packed_sessions_and_gradients_equal_the_plain_model(path: Path, model: Llama) -> None:
    loss, plain, factors = _losses(path, model)
    torch.testing.assert_close(loss, plain)
    for group in model.groups():
        low = torch.cat([factors[f"{name}.lora_A"].grad for name in group.names])
        high = torch.cat([factors[f"{name}.lora_B"].grad for name in group.names])
        torch.testing.assert_close(group.a.grad, low, rtol=1e-3, atol=1e-6)
        torch.testing.assert_close(group.b.grad.t(), high, rtol=1e-3, atol=1e-6)


def test_gradients_of_whole_matrices_equal_the_plain_model(path: Path) -> None:
    model = Llama(path, rank=0, alpha=0.0, dtype=torch.float32)
    loss, plain, factors = _losses(path, model)
    torch.testing.assert_close(loss, plain)
    assert len(factors) == 7 * LAYERS
    for group in model.groups():
        expected = torch.cat([factors[f"{name}.weight"].grad for name in group.names])
        torch.testing.assert_close(group.master.grad, expected, rtol=1e-3, atol=1e-6)


def test_an_adapter_becomes_whole_matrices_and_those_a_file_that_loads_again(
    path: Path, model: Llama, tmp_path: Path
) -> None:
    save_adapter(model, tmp_path / "a.safetensors")
    first, second = (Llama(path, rank=0, alpha=0.0, dtype=torch.float32) for _ in range(2))
    apply_adapter(first, read_adapter(tmp_path / "a.safetensors"))
    save_adapter(first, tmp_path / "whole.safetensors")
    whole = read_adapter(tmp_path / "whole.safetensors")
    apply_adapter(second, whole)
    for mine, merged, loaded in zip(model.groups(), first.groups(), second.groups(), strict=True):
        torch.testing.assert_close(merged.weight, mine.weight, atol=2e-3, rtol=0)
        torch.testing.assert_close(loaded.weight, merged.weight, atol=2e-3, rtol=0)
    with pytest.raises(ConfigError, match="--full"):
        apply_adapter(model, whole)


def test_an_untrained_adapter_changes_nothing(path: Path) -> None:
    model = Llama(path, rank=3, alpha=6.0, dtype=torch.float32)
    weights, name = GgufWeights(path), "model.layers.1.mlp.down_proj"
    np.testing.assert_array_equal(model.layers[1].down.weight.numpy(), weights[f"{name}.weight"])


def test_merging_twice_is_merging_once(model: Llama) -> None:
    before = model.layers[0].qkv.weight.clone()
    model.merge()
    assert torch.equal(model.layers[0].qkv.weight, before)


def test_the_shipped_file_merges_to_the_weights_that_were_trained(path: Path, model: Llama, tmp_path: Path) -> None:
    save_adapter(model, tmp_path / "a.safetensors")
    adapter, weights = read_adapter(tmp_path / "a.safetensors"), GgufWeights(path)
    for group in model.groups():
        merged = [adapter.merged(f"{name}.weight", weights[f"{name}.weight"]) for name in group.names]
        np.testing.assert_allclose(np.concatenate(merged), group.weight.numpy(), atol=2e-3)


def test_a_saved_adapter_loads_into_a_new_model(path: Path, model: Llama, tmp_path: Path) -> None:
    save_adapter(model, tmp_path / "a.safetensors")
    other = Llama(path, rank=3, alpha=6.0, dtype=torch.float32)
    apply_adapter(other, read_adapter(tmp_path / "a.safetensors"))
    for mine, loaded in zip(model.groups(), other.groups(), strict=True):
        torch.testing.assert_close(loaded.weight, mine.weight, atol=2e-3, rtol=0)


def test_an_adapter_of_another_rank_is_refused(path: Path, model: Llama, tmp_path: Path) -> None:
    save_adapter(_model(path, rank=2), tmp_path / "a.safetensors")
    with pytest.raises(ConfigError, match="rank 2"):
        apply_adapter(model, read_adapter(tmp_path / "a.safetensors"))
