# pyright: basic, reportMissingImports=false
"""The trained Llama as a transformers model, for trainers that want one: padded batches in, log probabilities out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from obsspec.models.tokenizer import Vocabulary
from obsspec.train.llama import Llama
from obsspec.train.logprobs import log_probs

FACTORS = "factors.pt"


class PackedConfig(PreTrainedConfig):
    model_type = "obsspec-packed-llama"


class PackedCausalLM(PreTrainedModel):
    """Scores completions; padding costs nothing, and neither do the logits of prompts. It does not generate."""

    config_class = PackedConfig

    def __init__(self, llama: Llama, end: int) -> None:
        """`end`: the id that ends a turn."""
        super().__init__(PackedConfig(eos_token_id=end, pad_token_id=end))
        self.llama = llama
        self.generation_config = GenerationConfig(eos_token_id=end, pad_token_id=end)

    def forward(self, **_: Any) -> Any:
        raise NotImplementedError("this model scores completions: use `score`")

    def score(self, ids: Tensor, attended: Tensor, completion: int) -> tuple[Tensor, Tensor]:
        """log p and entropy [batch, completion] of the last `completion` ids [batch, length]; 0 where not attended."""
        present = attended.bool()
        lengths = tuple(int(n) for n in present.sum(1))
        hidden = self.llama(ids[present], lengths)
        wanted = present.clone()
        wanted[:, :-completion] = False
        rows = torch.nonzero(wanted[present]).squeeze(1)
        logp, entropy = log_probs(hidden[rows - 1], self.llama.embedding, ids[wanted])
        out = torch.zeros(ids.shape[0], completion)
        there = wanted[:, -completion:]
        return out.masked_scatter(there, logp), out.masked_scatter(there, entropy)

    def save_pretrained(self, save_directory: Any, **_: Any) -> None:
        """The factors of the adapters alone, in full precision."""
        factors = {name: t for group in self.llama.groups() for name, t in group.tensors().items()}
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(factors, folder / FACTORS)

    def load_factors(self, folder: Path) -> None:
        factors = torch.load(folder / FACTORS, weights_only=True)
        for group in self.llama.groups():
            group.load(factors)
        self.llama.merge()


def tokenizer_of(vocabulary: Vocabulary, end: str) -> PreTrainedTokenizerFast:
    """The vocabulary as transformers knows tokenizers; `end` ends turns and pads."""
    return PreTrainedTokenizerFast(tokenizer_object=vocabulary.tokenizer, eos_token=end, pad_token=end)
