"""Adapters merged one after another give byte for byte the files that merging each from the start gives."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from obsspec.models.adapter import WHOLE, read_adapter
from obsspec.models.merge import served_model
from obsspec.models.peft_adapter import write_peft
from obsspec.models.remerge import Merger
from obsspec.models.weights import GgufWeights
from obsspec.values import ConfigError
from tests.models.test_merge import HIDDEN, WIDTH, base, cache, write_adapter

__all__ = ["base", "cache"]  # fixtures


def test_the_file_is_that_of_merging_from_the_start(base: Path, tmp_path: Path) -> None:
    merger = Merger(base)
    for module, rows in (("self_attn.q_proj", WIDTH), ("mlp.up_proj", HIDDEN), ("self_attn.k_proj", WIDTH // 2)):
        adapter = tmp_path / f"{module}.safetensors"
        write_adapter(adapter, f"model.layers.0.{module}", rows, WIDTH)
        merger.write(read_adapter(adapter), tmp_path / "merged.gguf")
        assert (tmp_path / "merged.gguf").read_bytes() == served_model(adapter, base=base).path.read_bytes()


def test_whole_matrices_take_the_place_of_the_base_models_and_are_no_lora(base: Path, tmp_path: Path) -> None:
    name, path = "model.layers.0.self_attn.q_proj.weight", tmp_path / "whole.safetensors"
    matrix = np.random.default_rng(3).normal(size=(WIDTH, WIDTH)).astype(np.float16)
    save_file({name: matrix}, path, {"format": WHOLE})
    Merger(base).write(read_adapter(path), tmp_path / "merged.gguf")
    assert (tmp_path / "merged.gguf").read_bytes() == served_model(path, base=base).path.read_bytes()
    served = GgufWeights(tmp_path / "merged.gguf")[name]
    np.testing.assert_allclose(served, matrix, atol=0.02)  # Q8_0
    assert np.abs(served - GgufWeights(base)[name]).max() > 0.5
    with pytest.raises(ConfigError, match="obsspec export"):
        write_peft(read_adapter(path), tmp_path / "peft")


def test_an_adapter_of_another_model_is_refused_and_leaves_nothing(base: Path, tmp_path: Path) -> None:
    write_adapter(tmp_path / "a.safetensors", "model.layers.7.mlp.up_proj", HIDDEN, WIDTH)
    with pytest.raises(ConfigError, match=r"layers\.7"):
        Merger(base).write(read_adapter(tmp_path / "a.safetensors"), tmp_path / "m.gguf")
    assert not list(tmp_path.glob("**/*.part"))


def test_peft_reads_what_was_written(tmp_path: Path) -> None:
    tensors = write_adapter(tmp_path / "a.safetensors", "model.layers.0.mlp.up_proj", HIDDEN, WIDTH)
    write_peft(read_adapter(tmp_path / "a.safetensors"), tmp_path / "peft")
    config = json.loads((tmp_path / "peft" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["target_modules"]) == (4, 8.0, ["up_proj"])
    weights = load_file(tmp_path / "peft" / "adapter_model.safetensors")
    for name, values in tensors.items():
        np.testing.assert_array_equal(weights[f"base_model.model.{name}.weight"], values.astype(np.float32))
