"""The figures of an evaluation, computed from its rows alone.

Intervals are 95 % percentile bootstrap over tasks: calls of one task are not independent.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (pyarrow is not typed)
from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obsspec.worldeval.store import read_rows

RESAMPLES = 2_000
DEFAULT_TOOL_S = 1.69
Mask = NDArray[np.bool_]
Column = NDArray[Any]

_CODED = ("data", "protocol", "source", "task", "program", "said_by", "error")
_PLAIN = (
    *("call", "candidates", "rank", "confidence", "latency_s", "failed", "trivial", "test"),
    *("tool_s", "replay_s", "replay_equal", "repeat_equal"),
)


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns of the same length. Texts are codes into `words`; numbers and truths that are not known are nan."""

    columns: dict[str, Column]
    words: dict[str, list[str]]

    def __len__(self) -> int:
        return len(self.columns["call"])

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def where(self, mask: Mask) -> Rows:
        return Rows({name: column[mask] for name, column in self.columns.items()}, self.words)

    def only(self, name: str, word: str) -> Rows:
        return self.where(self.columns[name] == self.words[name].index(word))

    def split(self, name: str) -> dict[str, Rows]:
        """Rows by word, in the order of their first rows."""
        codes, first = np.unique(self.columns[name], return_index=True)
        ordered = codes[np.argsort(first)]
        return {self.words[name][code]: self.where(self.columns[name] == code) for code in ordered}


def load(path: Path) -> Rows:
    """The rows that count: those of test tasks."""
    table = read_rows(path, (*_CODED, *_PLAIN))
    columns: dict[str, Column] = {}
    words: dict[str, list[str]] = {}
    for name in _CODED:
        column = table[name].unify_dictionaries().combine_chunks()
        columns[name] = column.indices.to_numpy(zero_copy_only=False) if len(table) else np.zeros(0, dtype=np.int64)
        words[name] = column.dictionary.to_pylist() if len(table) else []
    for name in _PLAIN:
        columns[name] = _numbers(table[name])
    rows = Rows(columns, words)
    return rows.where(rows["test"] == 1)


def summarize(rows: Rows, tool_seconds: float | None = None) -> dict[str, Any]:
    """By data set: what it holds, its ceilings, and by protocol the figures of each source. Shares in 0..1, seconds."""
    return {name: _data(part, tool_seconds) for name, part in rows.split("data").items()}


def _data(rows: Rows, tool_seconds: float | None) -> dict[str, Any]:
    weights, weighed_by = _tool_s(rows, tool_seconds)
    rows = Rows({**rows.columns, "weight": weights}, rows.words)
    protocols = rows.split("protocol")
    calls = next(iter(next(iter(protocols.values())).split("source").values()))
    return {
        **_calls(calls),
        "breadth": int(np.max(rows["candidates"], initial=0)),
        "weighed_by": weighed_by,
        "errors": _errors(rows),
        "protocols": {name: _protocol(part) for name, part in protocols.items()},
    }


def _protocol(rows: Rows) -> dict[str, Any]:
    by_source = rows.split("source")
    best = by_source.get("cascade")
    return {
        "calls": len(next(iter(by_source.values()))),
        "ceiling_repeat": _mean(next(iter(by_source.values()))["repeat_equal"]),
        "sources": {name: figures(part, interval=True) for name, part in by_source.items()},
        "commands": {} if best is None else _commands(by_source),
        "said_by": {} if best is None else _said_by(best),
    }


def _calls(rows: Rows) -> dict[str, Any]:
    """What the data set itself is like: rows of one source."""
    return {
        "calls": len(rows),
        "tasks": len(np.unique(rows["task"])),
        "nonempty": _mean(1.0 - rows["trivial"]),
        "ceiling_replay": _mean(rows["replay_equal"]),
        "replayed": int(np.sum(~np.isnan(rows["replay_equal"]))),
        "repeated": int(np.sum(~np.isnan(rows["repeat_equal"]))),
        "tool_s": _mean(rows["weight"]) if "weight" in rows.columns else float("nan"),
    }


def figures(rows: Rows, *, interval: bool = False) -> dict[str, Any]:
    """What one source did with some calls.

    `exact`: its first candidate was the observation, of all calls; `precision`: of those where it spoke; `top`: any of
    its candidates was. `hideable`: tool time of exact calls, of all tool time that is known.
    """
    exact, spoke, telling = rows["rank"] == 0, rows["candidates"] > 0, rows["trivial"] == 0
    latency = rows["latency_s"]
    found: dict[str, Any] = {
        "calls": len(rows),
        "spoke": _mean(spoke),
        "exact": _mean(exact),
        "exact_nonempty": _mean(exact[telling]),
        "precision": _mean(exact[spoke]),
        "precision_nonempty": _mean(exact[spoke & telling]),
        "top": _mean(rows["rank"] >= 0),
        "confidence": _mean(rows["confidence"][spoke]),
        "hideable": _ratio(np.nansum(rows["weight"] * exact), np.nansum(rows["weight"])),
        "latency_p50_s": _quantile(latency, 0.5),
        "latency_p95_s": _quantile(latency, 0.95),
        "failed": int(np.sum(rows["failed"])),
    }
    if interval:
        pairs = {"exact": (exact, np.ones(len(rows))), "precision": (exact, spoke)}
        pairs["hideable"] = (np.nan_to_num(rows["weight"]) * exact, np.nan_to_num(rows["weight"]))
        found |= {f"{name}_ci": _interval(rows["task"], *pair) for name, pair in pairs.items()}
    return found


def _commands(by_source: dict[str, Rows]) -> dict[str, Any]:
    """Figures of the cascade by program, the most frequent first, with the share that a blind guess gets."""
    blind = by_source["baseline: no output"].split("program")
    parts = by_source["cascade"].split("program")
    ordered = sorted(parts, key=lambda name: (-len(parts[name]), name))
    return {name: figures(parts[name]) | {"no_output": _mean(blind[name]["rank"] == 0)} for name in ordered}


def _said_by(rows: Rows) -> dict[str, Any]:
    """Whose candidate the cascade gave first: how often, of all calls, and how often that was right."""
    spoke = rows.where(rows["candidates"] > 0)
    return {
        name: {
            "share": len(part) / len(rows),
            "precision": _mean(part["rank"] == 0),
            "exact": float(np.sum(part["rank"] == 0)) / len(rows),
            "confidence": _mean(part["confidence"]),
        }
        for name, part in sorted(spoke.split("said_by").items(), key=lambda each: -len(each[1]))
    }


def _errors(rows: Rows) -> dict[str, str]:
    """The first error of each source that had one."""
    failed = rows.where(rows["failed"] == 1)
    return {name: next(iter(part.split("error"))) for name, part in failed.split("source").items()}


def _tool_s(rows: Rows, constant: float | None) -> tuple[Column, str]:
    """The seconds that each call weighs, and where they are from. Calls whose seconds are not known have nan."""
    real = rows["tool_s"]
    if not np.all(np.isnan(real)):
        return real, "seconds that the tools took"
    if constant is None and not np.all(np.isnan(rows["replay_s"])):
        return rows["replay_s"], "seconds of the replay, where there was one"
    seconds = DEFAULT_TOOL_S if constant is None else constant
    return np.full(len(rows), seconds), f"{seconds:g} s a call"


def _interval(tasks: Column, part: Column, whole: Column) -> tuple[float, float]:
    """Of sum(part) / sum(whole), tasks resampled; (nan, nan) with fewer than two tasks."""
    _, inverse = np.unique(tasks, return_inverse=True)
    count = int(inverse.max()) + 1 if len(inverse) else 0
    if count < 2:
        return float("nan"), float("nan")
    parts = np.bincount(inverse, weights=part.astype(np.float64), minlength=count)
    wholes = np.bincount(inverse, weights=whole.astype(np.float64), minlength=count)
    draws = _draws(count)
    below = draws @ wholes
    ratios = (draws @ parts)[below > 0] / below[below > 0]
    if not len(ratios):
        return float("nan"), float("nan")
    low, high = np.percentile(ratios, (2.5, 97.5))
    return float(low), float(high)


@lru_cache(maxsize=2)
def _draws(count: int) -> NDArray[np.float64]:
    """How often each of `count` tasks is drawn, for every resample."""
    draws = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    return draws.astype(np.float64)


def _numbers(column: Any) -> Column:
    """float64; null is nan, true is 1."""
    values = column.combine_chunks().to_numpy(zero_copy_only=False)
    return np.asarray([np.nan if v is None else v for v in values] if values.dtype == object else values, np.float64)


def _mean(values: Column) -> float:
    known = values[~np.isnan(values)] if values.dtype == np.float64 else values
    return float(np.mean(known)) if len(known) else float("nan")


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else float("nan")


def _quantile(values: Column, q: float) -> float:
    return float(np.quantile(values, q)) if len(values) else float("nan")
