"""Cyclic garbage is looked for less often while a simulation runs."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SELDOM = 50_000
"""Objects that come to be before a young collection; Python's own default is 700."""

_LOCK = Lock()
_BEFORE: list[tuple[int, int, int]] = []


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Collect seldom inside, in all threads, and as before once the last one is out.

    A run makes next to no cycles, but many records that stay. Every full collection goes through all of them and
    through what the process holds besides: a sixth of the time of a long run of rigid jobs.
    """
    with _LOCK:
        _BEFORE.append(_BEFORE[0] if _BEFORE else gc.get_threshold())
        first, *others = _BEFORE[0]
        gc.set_threshold(max(first, SELDOM) if first else 0, *others)
    try:
        yield
    finally:
        with _LOCK:
            before = _BEFORE.pop()
            if not _BEFORE:
                gc.set_threshold(*before)
