"""Show the progress of a run in a line on a terminal."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from polluxsim.common.durations import HOUR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polluxsim.engine.simulation import Simulation, Watcher
    from polluxsim.hardware.clusters import Cluster
    from polluxsim.workloads.workload import Workload


@contextmanager
def progress(workload: Workload, cluster: Cluster) -> Iterator[Watcher]:
    """Yield a watcher that shows a progress line on standard error if it is a terminal."""
    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield ignore
        return
    words, state = TextColumn("{task.description}"), TextColumn("{task.fields[state]}")
    columns = (words, BarColumn(), TaskProgressColumn(), TimeRemainingColumn(compact=True), state)
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task(
            "jobs complete", total=num_expected(workload), state="starting; the first run ever compiles its kernels"
        )

        def watch(run: Simulation) -> None:
            if (record := run.last_round) is None:
                return
            state = (
                f"{record.time / HOUR:.1f} h simulated, {record.active_jobs} jobs active, "
                f"{record.gpus_in_use}/{cluster.num_gpus} GPUs in use"
            )
            bar.update(task, completed=run.num_ended, total=num_expected(workload, run), state=state)

        yield watch


def num_expected(workload: Workload, run: Simulation | None = None) -> int:
    """Return the number of jobs that the workload announces, or the number submitted so far if that is larger."""
    expected = len(workload.jobs) + workload.num_followers
    return expected if run is None else max(expected, run.num_jobs)


def ignore(run: Simulation) -> None:
    """Show nothing."""
