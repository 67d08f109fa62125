"""The child process of the embedded engine: `python -m obsspec.policy.llama_process`, llama-server on loopback.

Prints one JSON line, {"url", "snapshots"}, when it answers requests. Lives until its standard input closes, which
happens however its parent ends, and removes its snapshot directory.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

_ROOM = 512 << 20  # bytes; a container's /dev/shm is often 64 MiB


def main() -> None:
    settings = _arguments()
    snapshots = tempfile.mkdtemp(prefix="obsspec-slots-", dir=_memory_directory())
    try:
        server: Any = importlib.import_module("xllamacpp").Server(_parameters(settings, snapshots))
        sys.stdout.write(json.dumps({"url": server.listening_address, "snapshots": snapshots}) + "\n")
        sys.stdout.flush()
        sys.stdin.buffer.read()
    finally:
        shutil.rmtree(snapshots, ignore_errors=True)
    os._exit(0)  # the server's threads have no other end


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--exact", action="store_true")
    for name in ("port", "threads", "slots", "context", "batch"):
        parser.add_argument(f"--{name}", type=int, required=True)
    return parser.parse_args()


def _parameters(settings: argparse.Namespace, snapshots: str) -> Any:
    llama: Any = importlib.import_module("xllamacpp")
    params = llama.CommonParams()
    params.model.path = settings.model
    params.hostnames, params.port = ["127.0.0.1"], settings.port
    params.n_parallel, params.n_ctx = settings.slots, settings.slots * settings.context
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.threads
    params.n_batch, params.n_ubatch = settings.batch, 1 if settings.exact else settings.batch
    params.no_extra_bufts = settings.exact
    params.flash_attn_type = llama.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.kv_unified = False
    # The client chooses slots and keeps snapshots itself: no second cache, no copies behind its back.
    params.cache_ram_mib, params.cache_idle_slots, params.n_ctx_checkpoints = 0, False, 0
    params.slot_save_path = f"{snapshots}/"
    params.endpoint_slots, params.ui, params.warmup = True, False, True
    params.verbosity = 2  # warnings and errors
    return params


def _memory_directory() -> Path | None:
    """Where snapshots cost no disk access; None is the ordinary temporary directory."""
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= _ROOM:
        return memory
    return None


if __name__ == "__main__":
    main()
