"""Adapters in the form that PEFT writes and vLLM loads: a folder with adapter_config.json and its weights."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from obsspec.models.adapter import FORMAT, Adapter
from obsspec.values import ConfigError

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX, _SUFFIX = "base_model.model.", ".weight"
_OTHER_KINDS = ("use_rslora", "use_dora", "rank_pattern", "alpha_pattern", "modules_to_save", "fan_in_fan_out")
_files: Any = importlib.import_module("safetensors.numpy")  # its stubs are partly untyped


def write_peft(adapter: Adapter, folder: Path) -> None:
    """A folder of that name is written over. Errors: `OSError`; `ConfigError` for whole matrices."""
    if adapter.whole:
        raise ConfigError(
            "the weights are whole matrices, which cannot be loaded as a LoRA: "
            "`obsspec export` them and start the server on that folder, or serve them with the embedded engine"
        )
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
    weights = {f"{_PREFIX}{name}{_SUFFIX}": values for name, values in adapter.tensors.items()}
    _files.save_file(weights, folder / WEIGHTS, {"format": "pt"})
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def from_peft(folder: Path, path: Path) -> None:
    """Writes the adapter in `folder` to `path` in this package's format, its factors as they are.

    Raises `ConfigError` for a folder that holds no LoRA of one rank on linear layers.
    """
    try:
        config: dict[str, Any] = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        weights: dict[str, Any] = _files.load_file(folder / WEIGHTS)
        other = [name for name in _OTHER_KINDS if config.get(name)]
        facts = {"format": FORMAT, "alpha": str(config["lora_alpha"]), "rank": str(config["r"])}
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise ConfigError(f"{folder} holds no PEFT adapter ({error}): save one there") from None
    if other or config.get("peft_type") != "LORA":
        raise ConfigError(f"the adapter uses {(other or [config.get('peft_type')])[0]}: only plain LoRA can be served")
    names = {name: name.removeprefix(_PREFIX).removesuffix(_SUFFIX) for name in weights}
    _files.save_file({names[name]: values for name, values in weights.items()}, path, facts)
