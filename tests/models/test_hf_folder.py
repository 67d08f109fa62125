"""The model folder for other engines: the same weights, the same ids."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from obsspec.models.base import base_model_path
from obsspec.models.hf_folder import write_hf_folder
from obsspec.models.shipped_adapter import shipped_adapter
from obsspec.models.tokenizer import load_vocabulary
from obsspec.models.weights import GgufWeights

TEXTS = ["ls -l  12345\n", "wc -c  7 files\t\n\n", "naïve é 漢字 \U0001f600", "x = 3.14 ** 2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hf_folder(tmp_path_factory.mktemp("hf"), shipped_adapter())


def test_the_weights_are_the_merged_ones_under_their_usual_names(folder: Path) -> None:
    written, base = load_file(folder / "model.safetensors"), GgufWeights(base_model_path())
    config = json.loads((folder / "config.json").read_text())
    assert written.keys() == set(base)
    assert written["model.embed_tokens.weight"].shape == (config["vocab_size"], config["hidden_size"])
    assert np.array_equal(written["model.norm.weight"], base["model.norm.weight"])
    adapted = "model.layers.0.self_attn.q_proj.weight"
    assert not np.array_equal(written[adapted], base[adapted])
    assert written[adapted].dtype == np.float32


def test_the_tokenizer_makes_the_same_ids_and_knows_control_tokens(folder: Path) -> None:
    saved, vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json")), load_vocabulary()
    for text in TEXTS:
        assert tuple(saved.encode(text, add_special_tokens=False).ids) == vocabulary.encode(text)
    assert saved.encode("<|im_end|>").ids == [vocabulary.control("<|im_end|>")]
    assert saved.get_vocab_size(with_added_tokens=True) == vocabulary.size
