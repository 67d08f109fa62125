"""The adapter that comes with the package: one LoRA that makes the base model both policy and world model."""

from __future__ import annotations

from pathlib import Path

ADAPTER = Path(__file__).parent / "shipped" / "terminal-smollm2-135m.safetensors"


def shipped_adapter() -> Path:
    """Trained with `obsspec train`; a missing file is reported by `read_adapter`."""
    return ADAPTER
