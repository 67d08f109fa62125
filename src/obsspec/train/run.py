# pyright: basic, reportMissingImports=false
"""Training and measuring from files: what the command line calls."""

from __future__ import annotations

import ctypes
import platform
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from obsspec.models.adapter import read_adapter
from obsspec.models.base import base_model_path
from obsspec.models.tokenizer import load_vocabulary
from obsspec.render.terminal import TerminalRenderer
from obsspec.train.adapter import model_of
from obsspec.train.batches import Source
from obsspec.train.checks import at_least, positive
from obsspec.train.encode import Example
from obsspec.train.evaluate import Score, evaluate
from obsspec.train.llama import Llama
from obsspec.train.precision import Precision
from obsspec.train.trainer import Settings, Trainer
from obsspec.values import ConfigError

MAX_TOKENS = 1024  # longer sessions are left out
HELD_OUT = 150
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h


@dataclass(frozen=True, slots=True)
class Options:
    sessions: Path
    out: Path
    held_out: Path
    rank: int = 32
    alpha: float = 64.0
    threads: int = 1
    precision: Precision = Precision.AUTO

    def __post_init__(self) -> None:
        at_least(self, rank=1, threads=1)
        positive(self, "alpha")


def train(options: Options, settings: Settings, report: Callable[[str], None]) -> bool:
    """Train, or go on training, until the time is up or the process is told to stop (SIGINT, SIGTERM): then False."""
    keep_memory()
    torch.set_num_threads(options.threads)
    torch.manual_seed(settings.seed)
    dtype = working_type(options.precision)
    report(f"matrix products in {dtype}, {options.threads} threads")
    model = Llama(base_model_path(), rank=options.rank, alpha=options.alpha, dtype=dtype)
    trainer = Trainer(
        model,
        _source(options.sessions),
        _examples(options.held_out, HELD_OUT),
        options.out,
        settings,
        report,
    )
    with asked_to_stop() as stop:
        trainer.run(stop)
    done = trainer.state.trained_s >= settings.minutes * 60
    report(f"finished, adapter in {options.out}" if done else "stopped, the same command goes on from here")
    return done


def measure(sessions: Path, adapter: Path, limit: int, threads: int, precision: Precision) -> Score:
    torch.set_num_threads(threads)
    loaded = read_adapter(adapter)
    model = model_of(loaded, working_type(precision), whole=loaded.whole)
    return evaluate(model, _examples(sessions, limit))


def working_type(precision: Precision) -> torch.dtype:
    if precision is Precision.AUTO:
        fast = torch.cpu._is_amx_tile_supported()  # pyright: ignore[reportPrivateUsage]
        return torch.bfloat16 if fast else torch.float32
    return torch.bfloat16 if precision is Precision.BFLOAT16 else torch.float32


def keep_memory() -> None:
    """Freed activations stay in the process for the next step: handing fresh pages out again costs more than the
    matrix products that fill them. Only glibc can be told so."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, -1)


def _source(path: Path) -> Source:
    if not path.is_file():
        raise ConfigError(f"{path} does not exist: record sessions with `obsspec train record {path}`")
    return Source(path, TerminalRenderer(load_vocabulary()), MAX_TOKENS)


def _examples(path: Path, limit: int) -> list[Example]:
    return _source(path).examples()[:limit]


@contextmanager
def asked_to_stop() -> Generator[Callable[[], bool]]:
    """Inside, SIGINT and SIGTERM set a flag; the handlers of before come back at the end."""
    asked: list[int] = []
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _: asked.append(number)) for number in signals]
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
