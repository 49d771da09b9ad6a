"""Show the progress of a run in a line on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from polluxsim.common.durations import HOUR
from polluxsim.common.progress_line import is_shown, progress_line
from polluxsim.engine.simulation import Simulation, Watcher
from polluxsim.hardware.clusters import Cluster
from polluxsim.workloads.workload import Workload


@contextmanager
def progress(workload: Workload, cluster: Cluster) -> Iterator[Watcher]:
    """Yield a watcher that shows a progress line on standard error if it is a terminal, and nothing otherwise."""
    if not is_shown():
        yield ignore
        return
    starting = "starting; the first run ever compiles its kernels"
    with progress_line("jobs complete", num_expected(workload), starting) as show:

        def watch(run: Simulation) -> None:
            record = run.last_round
            if record is None:
                return
            note = (
                f"{(record.time - run.start_time) / HOUR:.1f} h simulated, {record.active_jobs} jobs active, "
                f"{record.gpus_in_use}/{cluster.num_gpus} GPUs in use"
            )
            show(run.num_ended, num_expected(workload, run), note)

        yield watch


def num_expected(workload: Workload, run: Simulation | None = None) -> int:
    """Return the number of jobs that the workload announces, or the number submitted so far if that is larger."""
    expected = len(workload.jobs) + workload.num_followers
    if run is None:
        return expected
    # A run may submit more jobs than its workload announced.
    return max(expected, run.num_jobs)


def ignore(run: Simulation) -> None:
    """Show nothing."""
