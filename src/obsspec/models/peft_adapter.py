"""Adapters in the form that PEFT writes and vLLM loads: a folder with adapter_config.json and its weights."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.numpy import save_file

from obsspec.models.adapter import Adapter


def write_peft(adapter: Adapter, folder: Path) -> None:
    """Any number of adapted modules of one rank; a folder of that name is written over. Errors: `OSError`."""
    folder.mkdir(parents=True, exist_ok=True)
    rank = next(len(values) for name, values in adapter.tensors.items() if name.endswith(".lora_A"))
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": adapter.scale * rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({module.rpartition(".")[2] for module in adapter.modules}),
        "base_model_name_or_path": None,
        "inference_mode": True,
    }
    weights = {f"base_model.model.{name}.weight": values for name, values in adapter.tensors.items()}
    save_file(weights, folder / "adapter_model.safetensors", {"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
