"""A line that says how far a run is, on a terminal only."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from polluxsim.app.counting import JobCount

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polluxsim.engine.simulation import Watcher
    from polluxsim.policies.view import ClusterView
    from polluxsim.records import RoundRecord
    from polluxsim.types import Allocation, Cluster
    from polluxsim.workloads.workload import Workload


@contextmanager
def progress(workload: Workload, cluster: Cluster) -> Iterator[Watcher]:
    """Give a watcher that keeps a progress line on standard error, and does nothing where that is not a terminal."""
    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield ignore
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[state]}"),
    )
    jobs = JobCount(workload)
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task(
            "jobs complete",
            total=jobs.total,
            state="starting; the first run ever compiles its kernels",
        )

        def watch(view: ClusterView, allocation: Allocation, record: RoundRecord) -> None:
            jobs.see(view, record)
            state = (
                f"{record.time / 3600:.1f} h simulated, {record.active_jobs} jobs active, "
                f"{record.gpus_in_use}/{cluster.num_gpus} GPUs in use"
            )
            bar.update(task, completed=jobs.complete, total=jobs.total, state=state)

        yield watch


def ignore(view: ClusterView, allocation: Allocation, record: RoundRecord) -> None:
    """Show nothing."""
