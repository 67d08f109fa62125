"""A store of counters and texts: what every memory keeps, read in microseconds, written in the background.

A *page* is all counters under one key. Pages that are in use stay in this process; changes go to them at once and to
the file a moment later, in batches, by a thread of the store. What other processes wrote shows up within `refresh_s`.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self, TypeVar

from obsspec.values import ConfigError
from obsspec.world.memory.database import Cell, Database
from obsspec.world.memory.digests import digest
from obsspec.world.memory.page import Page, increase

_Answer = TypeVar("_Answer")


class Backing(Protocol):
    """Where pages and texts come from that are not in this process."""

    def load(self, key: bytes) -> dict[bytes, Cell]: ...

    def text(self, name: bytes) -> str | None: ...


@dataclass(slots=True)
class _Pending:
    changes: dict[bytes, dict[bytes, Cell]] = field(default_factory=dict[bytes, dict[bytes, Cell]])
    texts: dict[bytes, tuple[str, int]] = field(default_factory=dict[bytes, tuple[str, int]])


class Store:
    """Safe for several threads. `path` None: nothing is written, and the bounds in this process are all there is.

    `max_bytes` bounds the file; `max_pages` and `max_text` (characters) what is held in this process. A file that is
    not ours, or can not be used, raises `ConfigError`. A write that fails is tried again (`failed_writes`), a read that
    fails finds nothing (`failed_reads`); `close` raises `ConfigError` if what is left can not be written. A process
    that was forked opens its own store.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        max_bytes: int = 256 << 20,
        max_pages: int = 100_000,
        max_text: int = 64 << 20,
        flush_s: float = 0.2,
        refresh_s: float = 0.5,
        backing: Backing | None = None,
    ) -> None:
        self._database = Database(path, max_bytes) if path is not None else None
        self._backing: Backing | None = self._database or backing
        self._max_pages = max_pages
        self._max_text = max_text
        self._text_size = 0
        self._flush_s = flush_s
        self._refresh_s = refresh_s
        self._lock = threading.RLock()
        self._writing = threading.Lock()
        self._pages: OrderedDict[bytes, Page] = OrderedDict()
        self._texts: OrderedDict[bytes, str] = OrderedDict()
        self._pending = _Pending()
        self._flying = _Pending()
        self._version = 0
        self._looked_s = 0.0
        self._wake = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None
        self.failed_writes = 0
        self.failed_reads = 0

    @property
    def moment(self) -> int:
        """Changes when others have written to the file, as far as that was noticed."""
        return self._version

    def page(self, key: bytes) -> Page:
        """The page of a key; empty if there is none. Do not change it."""
        with self._lock:
            page = self._pages.get(key)
            if page is not None and (self._database is None or self._fresh(page)):
                self._pages.move_to_end(key)
                return page
            return self._load(key)

    def prefetch(self, keys: Sequence[bytes]) -> None:
        """Find out at once which of these pages are empty; most are, and asking for each takes longer."""
        database = self._database
        if database is None:
            return
        with self._lock:
            missing = [key for key in keys if key not in self._pages]
            if not missing:
                return
            known = self._read(lambda _: database.known(missing), set(missing))
            for key in missing:
                if key not in known:
                    self._hold(key, {})

    def add(self, key: bytes, name: bytes, amount: float = 1.0) -> None:
        """Change a counter, and mark it useful now."""
        with self._lock:
            page = self.page(key)
            now = time.time_ns() // 1000
            page.increase(name, amount, now)
            if self._database is not None:
                increase(self._pending.changes.setdefault(key, {}), name, amount, now)
                self._start_writer()

    def keep(self, text: str) -> bytes:
        """Keep a text; the answer is its name."""
        name = digest(text)
        with self._lock:
            self._remember(name, text)
            if self._database is not None:
                self._pending.texts[name] = (text, time.time_ns() // 1000)
        return name

    def text(self, name: bytes) -> str | None:
        """A text by its name; None if it was evicted."""
        with self._lock:
            text = self._texts.get(name)
            if text is not None:
                self._texts.move_to_end(name)
                return text
            if self._backing is None:
                return None
            text = next((each.texts[name][0] for each in (self._pending, self._flying) if name in each.texts), None)
            if text is None:
                text = self._read(lambda backing: backing.text(name), None)
            if text is not None:
                self._remember(name, text)
            return text

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def locked(self) -> Generator[None]:
        """Hold the store still, to read several things at once."""
        with self._lock:
            yield

    def fork(self) -> Store:
        """A store that starts with all that is in this one, and whose changes this one never sees."""
        return Store(max_pages=self._max_pages, max_text=self._max_text, backing=_Parent(self))

    def flush(self) -> None:
        """Write all changes so far; returns when they are in the file. Raises `sqlite3.Error`; nothing is lost."""
        database = self._database
        if database is None:
            return
        with self._writing:
            with self._lock:
                self._flying, self._pending = self._pending, _Pending()
            try:
                if self._flying.changes or self._flying.texts:
                    database.stage(self._flying.changes, self._flying.texts)
                    with self._lock:  # nobody may read between the commit and the moment the changes are forgotten
                        database.commit()
                        self._flying = _Pending()
                    database.tidy()
            finally:
                with self._lock:
                    self._put_back()

    def close(self) -> None:
        """Write what is left and close the file. Raises `ConfigError` if it can not be written."""
        if self._database is None or self._closed:
            return
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        try:
            self.flush()
        except sqlite3.Error as error:
            raise ConfigError(f"can not write to {self._database.path}: {error}; free some space") from error
        finally:
            with self._lock:
                self._database.close()

    def _fresh(self, page: Page) -> bool:
        now = time.monotonic()
        if now - page.loaded_s < self._refresh_s:
            return True
        if now - self._looked_s >= self._refresh_s:
            self._look(now)
        if page.version != self._version:
            return False
        page.loaded_s = now
        return True

    def _look(self, now: float) -> None:
        """See whether others have written, unless our own writer is at it: then the next one looks."""
        if self._database is not None and self._writing.acquire(blocking=False):
            try:
                self._version = self._database.version()
                self._looked_s = now
            finally:
                self._writing.release()

    def _load(self, key: bytes) -> Page:
        return self._hold(key, self._read(lambda backing: backing.load(key), {}))

    def _read(self, question: Callable[[Backing], _Answer], nothing: _Answer) -> _Answer:
        if self._backing is None:
            return nothing
        try:
            return question(self._backing)
        except sqlite3.Error:
            self.failed_reads += 1
            return nothing

    def _hold(self, key: bytes, cells: dict[bytes, Cell]) -> Page:
        for changes in (self._flying.changes, self._pending.changes):
            for name, (amount, last) in changes.get(key, {}).items():
                increase(cells, name, amount, last)
        page = Page(cells, self._version, time.monotonic())
        self._pages[key] = page
        self._pages.move_to_end(key)
        if len(self._pages) > self._max_pages:
            self._pages.popitem(last=False)
        return page

    def _remember(self, name: bytes, text: str) -> None:
        if name not in self._texts:
            self._text_size += len(text)
        self._texts[name] = text
        self._texts.move_to_end(name)
        while self._text_size > self._max_text and len(self._texts) > 1:
            self._text_size -= len(self._texts.popitem(last=False)[1])

    def _put_back(self) -> None:
        """After a failed write: its changes wait for the next one."""
        for key, fields in self._flying.changes.items():
            for name, (amount, last) in fields.items():
                increase(self._pending.changes.setdefault(key, {}), name, amount, last)
        self._pending.texts.update(self._flying.texts)
        self._flying = _Pending()

    def _start_writer(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._write_on, name="obsspec-memory", daemon=True)
            self._thread.start()

    def _write_on(self) -> None:
        while not self._wake.wait(self._flush_s):
            try:
                self.flush()
            except sqlite3.Error:
                self.failed_writes += 1  # busy or full: tried again, and `close` says so if it stays that way


@dataclass(frozen=True, slots=True)
class _Parent:
    """A store as the backing of its fork: copies, so that the fork's changes stay its own."""

    store: Store

    def load(self, key: bytes) -> dict[bytes, Cell]:
        with self.store.locked():
            return dict(self.store.page(key).cells)

    def text(self, name: bytes) -> str | None:
        return self.store.text(name)
