"""How far a run is, in a notebook."""

from __future__ import annotations

import sys
from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import TYPE_CHECKING, Any

from polluxsim.durations import HOUR
from polluxsim.run.interrupt import in_main_thread
from polluxsim.run.progress_line import ignore, num_expected, progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from polluxsim.engine.simulation import Simulation, Watcher
    from polluxsim.records import RoundRecord
    from polluxsim.types import Cluster
    from polluxsim.workloads.workload import Workload

REFRESH = 0.25
"""Time between two looks at the bar [s]."""


def progress_shown(workload: Workload, cluster: Cluster, *, wanted: bool) -> AbstractContextManager[Watcher]:
    """Give a watcher that shows how far the run is: a bar in a notebook, a line on a terminal, nothing elsewhere."""
    if not wanted:
        return nullcontext(ignore)
    return _bar(workload) if _in_notebook() else progress(workload, cluster)


@contextmanager
def counting(total: int) -> Iterator[Callable[[int], None]]:
    """Give a function that says how many of several runs are done: in a notebook a bar, elsewhere nothing."""
    if not (_in_notebook() and in_main_thread()):
        yield lambda _: None
        return
    with _display(_progress(0, total, "runs")) as handle:
        yield lambda done: handle(_progress(done, total, "runs"))


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


@contextmanager
def _bar(workload: Workload) -> Iterator[Watcher]:
    """Give a watcher that keeps a bar below the cell, which goes when the run ends."""
    with _display("starting; the first run ever compiles its kernels") as update:
        shown = perf_counter()

        def watch(run: Simulation) -> None:
            nonlocal shown
            if perf_counter() - shown >= REFRESH and run.last_round is not None:
                shown = perf_counter()
                update(bar_html(run.num_ended, num_expected(workload, run), run.last_round))

        yield watch


@contextmanager
def _display(html: str) -> Iterator[Callable[[str], None]]:
    """Show HTML below the cell, give a function that changes it, and take it away in the end."""
    from IPython.display import HTML, display  # noqa: PLC0415  (there only in a notebook)

    show: Any = HTML  # IPython has no types
    handle: Any = display(show(html), display_id=True)
    try:
        yield lambda text: handle.update(show(text))
    finally:
        handle.update(show(""))


def bar_html(complete: int, jobs: int, record: RoundRecord) -> str:
    """Return a bar with what it says."""
    where = f" complete, {record.time / HOUR:.1f} h simulated, {record.active_jobs} jobs active"
    return _progress(complete, jobs, "jobs") + where


def _progress(done: int, total: int, what: str) -> str:
    bar = f'<progress value="{done}" max="{total}" style="width: 16em; vertical-align: middle"></progress>'
    return f"{bar} {done} of {total} {what}"
