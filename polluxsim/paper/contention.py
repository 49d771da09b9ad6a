"""How a large job and two smaller ones adapt to contention (Figure 6): the large job's phases A, B and C."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from polluxsim.look.plot.job_life import contention_between, life_of
from polluxsim.look.samples import Sample
from polluxsim.paper.phases import Phase, phases

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from polluxsim.models.profile import Profile
    from polluxsim.paper.runs import Runs
    from polluxsim.records import JobRecord
    from polluxsim.storage import Run

LARGE, SMALL = "imagenet", "yolov3"
METRICS = {
    "GPUs": "gpus",
    "batch size": "batch_size",
    "batch size per GPU": "batch_size_per_gpu",
    "efficiency": "efficiency",
}


class Chosen(NamedTuple):
    """The large job of a run that had most of its time before the crowd, and its phases."""

    record: JobRecord
    phases: Mapping[str, Phase]


def adaptation(runs: Runs) -> Iterator[Sample]:
    """Yield what the large job of every run had in each phase; nothing where no job lived through all three."""
    for run in runs.made:
        if (chosen := choose(run.read(), runs.profiles)) is None:
            continue
        for name, phase in chosen.phases.items():
            for metric, field in METRICS.items():
                yield Sample(metric, name, getattr(phase, field), run.workload, run.seed)


def choose(run: Run, profiles: Mapping[str, Profile]) -> Chosen | None:
    """Return the large job that had most time before the crowd, of those that lived through all three phases."""
    found = []
    for record in run.result.job_records:
        if record.application == LARGE and record.completion_time is not None:
            contention = contention_between(run.result, record.submit_time, record.completion_time)
            of_job = phases(life_of(run, record, profiles), contention)
            if len(of_job) == 3:
                found.append(Chosen(record, of_job))
    return max(found, key=lambda chosen: chosen.phases["A"].length, default=None)
