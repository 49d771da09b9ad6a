"""How far a run is, in a notebook."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

from polluxsim.app.progress import ignore, num_expected, progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polluxsim.engine.simulation import Simulation, Watcher
    from polluxsim.records import RoundRecord
    from polluxsim.types import Cluster
    from polluxsim.workloads.workload import Workload

REFRESH = 0.25
"""Time between two looks at the bar [s]."""


@contextmanager
def progress_shown(workload: Workload, cluster: Cluster, *, wanted: bool) -> Iterator[Watcher]:
    """Give a watcher that shows how far the run is: a bar in a notebook, a line on a terminal, nothing elsewhere."""
    if not wanted:
        yield ignore
    elif _in_notebook():
        with _bar(workload) as watch:
            yield watch
    else:
        with progress(workload, cluster) as watch:
            yield watch


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


@contextmanager
def _bar(workload: Workload) -> Iterator[Watcher]:
    """Give a watcher that keeps a bar below the cell, which goes when the run ends."""
    from IPython.display import HTML, display  # noqa: PLC0415  (there only in a notebook)

    show: Any = HTML  # IPython has no types
    handle: Any = display(show("starting; the first run ever compiles its kernels"), display_id=True)  # type: ignore[no-untyped-call]
    shown = perf_counter()

    def watch(run: Simulation) -> None:
        nonlocal shown
        if perf_counter() - shown >= REFRESH and run.last_round is not None:
            shown = perf_counter()
            handle.update(show(bar_html(run.num_ended, num_expected(workload, run), run.last_round)))

    try:
        yield watch
    finally:
        handle.update(show(""))


def bar_html(complete: int, jobs: int, record: RoundRecord) -> str:
    """Return a bar with what it says."""
    return (
        f'<progress value="{complete}" max="{jobs}" style="width: 16em; vertical-align: middle"></progress> '
        f"{complete} of {jobs} jobs complete, {record.time / 3600:.1f} h simulated, {record.active_jobs} jobs active"
    )
