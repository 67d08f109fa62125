"""The served file: right weights, right adapter arithmetic, written once and whole."""

from __future__ import annotations

import threading
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from obsspec.models import export, merge
from obsspec.models.adapter import read_adapter
from obsspec.models.export import write_gguf
from obsspec.models.layout import deinterleave, interleave
from obsspec.models.merge import file_model, served_model
from obsspec.models.tokenizer import load_vocabulary
from obsspec.models.weights import GgufWeights, load_weights
from obsspec.values import ConfigError

WIDTH, HEADS, KV_HEADS, HIDDEN = 64, 4, 2, 96
TOKENS = ["<|im_end|>", "a", "ðŁ", "ĺ", "Ċ", "aa"]  # a control token, text, two halves of a character, "\n"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A Llama of one layer in F32, small enough to write in milliseconds."""
    path = tmp_path / "tiny.F32.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 1, 1, 1, 1, 1])
    writer.add_token_merges(["a a"])
    random = np.random.default_rng(1)
    kv = WIDTH * KV_HEADS // HEADS
    shapes = {
        "token_embd": (len(TOKENS), WIDTH),
        "output_norm": (WIDTH,),
        "blk.0.attn_norm": (WIDTH,),
        "blk.0.attn_q": (WIDTH, WIDTH),
        "blk.0.attn_k": (kv, WIDTH),
        "blk.0.attn_v": (kv, WIDTH),
        "blk.0.ffn_up": (HIDDEN, WIDTH),
    }
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", random.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OBSSPEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write_adapter(path: Path, module: str, rows: int, columns: int, **metadata: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(2)
    tensors = {
        f"{module}.lora_A": random.normal(size=(4, columns)).astype(np.float16),
        f"{module}.lora_B": random.normal(size=(rows, 4)).astype(np.float16),
    }
    save_file(tensors, path, {"format": "obsspec-lora-1", "rank": "4", "alpha": "8"} | metadata)
    return tensors


def test_interleaving_is_undone(base: Path) -> None:
    rows = np.arange(24 * 3, dtype=np.float32).reshape(24, 3)
    assert (deinterleave(interleave(rows, 3), 3) == rows).all()
    assert interleave(rows, 3)[:4, 0].tolist() == [0, 12, 3, 15]  # the halves of the first head alternate


def test_weights_have_hugging_face_names_and_rows(base: Path) -> None:
    weights = load_weights(base)
    assert weights["model.embed_tokens.weight"].shape == (len(TOKENS), WIDTH)
    stored = {t.name: t.data for t in gguf.GGUFReader(base).tensors}
    assert (weights["model.layers.0.self_attn.v_proj.weight"] == stored["blk.0.attn_v.weight"]).all()
    query = weights["model.layers.0.self_attn.q_proj.weight"]
    assert (interleave(query, HEADS) == stored["blk.0.attn_q.weight"]).all()
    assert not (query == stored["blk.0.attn_q.weight"]).all()


@pytest.mark.parametrize("module", ["self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj"])
def test_the_served_file_holds_base_plus_scaled_adapter(base: Path, tmp_path: Path, module: str) -> None:
    name = f"model.layers.0.{module}"
    before = load_weights(base)
    rows, columns = before[f"{name}.weight"].shape
    low_rank = write_adapter(tmp_path / "a.safetensors", name, rows, columns)
    after = load_weights(served_model(tmp_path / "a.safetensors", base=base).path)
    product = low_rank[f"{name}.lora_B"].astype(np.float32) @ low_rank[f"{name}.lora_A"].astype(np.float32)
    assert after.keys() == before.keys()
    for key, weight in before.items():
        expected = weight + 2.0 * product if key == f"{name}.weight" else weight
        step = np.abs(expected).max() / 127  # of the coarsest Q8_0 block
        np.testing.assert_allclose(after[key], expected, atol=step)


def test_a_state_dict_survives_export(base: Path, tmp_path: Path) -> None:
    weights = load_weights(base)
    weights["model.norm.weight"] = weights["model.norm.weight"] * 3
    write_gguf(weights, tmp_path / "out.gguf", like=base)
    again = load_weights(tmp_path / "out.gguf")
    assert (again["model.norm.weight"] == weights["model.norm.weight"]).all()
    assert list(tmp_path.glob(".out*")) == []


def test_tokens_that_are_no_whole_characters_lose_their_text_but_no_id(base: Path) -> None:
    path = served_model(base=base).path
    fields = gguf.GGUFReader(path).fields
    assert fields["tokenizer.ggml.token_type"].contents() == [3, 1, 5, 5, 1, 1]
    assert fields["tokenizer.ggml.tokens"].contents() == TOKENS
    assert load_vocabulary(path).encode("a\n") == load_vocabulary(base).encode("a\n") == (1, 4)


def test_the_version_follows_the_content(base: Path, tmp_path: Path) -> None:
    adapter = tmp_path / "a.safetensors"
    write_adapter(adapter, "model.layers.0.mlp.up_proj", HIDDEN, WIDTH)
    plain, adapted = served_model(base=base), served_model(adapter, base=base)
    write_adapter(adapter, "model.layers.0.mlp.up_proj", HIDDEN, WIDTH, alpha="4")
    scaled = served_model(adapter, base=base)
    assert len({plain.version, adapted.version, scaled.version, file_model(base).version}) == 4
    assert served_model(base=base) == plain


def test_the_second_time_nothing_is_written(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = served_model(base=base)
    monkeypatch.setattr(merge, "write_gguf", lambda *_args, **_kwargs: pytest.fail("written again"))
    assert served_model(base=base) == first


def test_an_interrupted_write_leaves_no_file(base: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "_add_tensor", full)
    with pytest.raises(ConfigError, match=r"No space left on device.*OBSSPEC_CACHE"):
        served_model(base=base)
    assert list(cache.iterdir()) == []


def test_writers_at_the_same_time_all_get_a_whole_file(base: Path, cache: Path) -> None:
    expected = GgufWeights(served_model(base=base).path)["model.norm.weight"]
    for file in cache.iterdir():
        file.unlink()
    found: list[np.ndarray] = []

    def make() -> None:
        found.append(GgufWeights(served_model(base=base).path)["model.norm.weight"])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(norm == expected).all() for norm in found] == [True] * 4
    assert [file.suffix for file in cache.iterdir()] == [".gguf"]


def test_progress_ends_at_one(base: Path) -> None:
    seen: list[float] = []
    served_model(base=base, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


@pytest.mark.parametrize(
    ("metadata", "message"),
    [({"format": "other"}, "adapter format other"), ({}, r"model\.layers\.9\.mlp\.up_proj")],
)
def test_a_foreign_adapter_is_a_config_error(
    base: Path, tmp_path: Path, metadata: dict[str, str], message: str
) -> None:
    path = tmp_path / "a.safetensors"
    write_adapter(path, "model.layers.9.mlp.up_proj", HIDDEN, WIDTH, **metadata)
    with pytest.raises(ConfigError, match=message):
        served_model(path, base=base)


def test_an_unreadable_or_halved_adapter_is_a_config_error(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    with pytest.raises(ConfigError, match="not a readable adapter"):
        read_adapter(path)
    path.write_bytes(b"junk" * 10)
    with pytest.raises(ConfigError, match="not a readable adapter"):
        read_adapter(path)
    save_file({"m.lora_A": np.ones((1, 1), np.float16)}, path, {"format": "obsspec-lora-1", "rank": "1", "alpha": "1"})
    with pytest.raises(ConfigError, match=r"lacks m\.lora_B"):
        read_adapter(path)


def test_a_missing_base_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.gguf"):
        served_model(base=tmp_path / "nowhere.gguf")
