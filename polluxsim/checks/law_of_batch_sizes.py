"""The law that a job runs at the batch size that the policy chose, until the next decision."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import NamedTuple

from polluxsim.checks.findings import Fault, Finding
from polluxsim.checks.law import Law
from polluxsim.hardware.placements import JobId
from polluxsim.models.batch_size import BatchSize
from polluxsim.policies.contract.reasons import RoundSeen
from polluxsim.records.results import AllocationRecord, ChooserRecord, Result


class BatchSizeChoice(NamedTuple):
    """The batch size that a policy chose for a job on a number of GPUs."""

    size: BatchSize
    gpus: int

    def agrees(self, record: AllocationRecord) -> bool:
        """Return whether a record has this batch size, up to the rounding of the parts of the GPUs."""
        passes = self.gpus * (record.accumulation_steps + 1)
        if self.size.per_gpu is not None:
            has_steps = record.accumulation_steps == self.size.accumulation_steps
            return has_steps and record.batch_size == self.size.per_gpu * passes
        # Each part of a GPU is rounded to whole examples, by less than 1.
        return abs(record.batch_size - (self.size.total or 0)) < passes


class BatchSizes(Law):
    """The records of a run show the batch sizes that the policy chose, and that the policy chose them."""

    def __init__(self) -> None:
        self._decisions: list[tuple[float, Mapping[JobId, BatchSizeChoice]]] = []

    def check_round(self, this_round: RoundSeen) -> Iterator[Finding]:
        """Note the batch sizes of a decision."""
        choices = {}
        for job_id, size in this_round.batch_sizes.items():
            choices[job_id] = BatchSizeChoice(size, this_round.held[job_id])
        self._decisions.append((this_round.time, choices))
        yield from ()

    def check_end(self, result: Result) -> Iterator[Finding]:
        """Yield a finding for each job whose records differ from a choice of the policy."""
        if not any(choices for _, choices in self._decisions):
            return
        allocations: defaultdict[JobId, list[AllocationRecord]] = defaultdict(list)
        for record in result.allocation_records:
            allocations[record.job].append(record)
        choosers: defaultdict[JobId, list[ChooserRecord]] = defaultdict(list)
        for chooser in result.chooser_records:
            choosers[chooser.job].append(chooser)
        # A decision holds until the next one, the last decision until the end.
        for (time, choices), (until, _) in pairwise([*self._decisions, (inf, {})]):
            for job_id, choice in choices.items():
                yield from _check_choice(job_id, choice, time, until, allocations[job_id], choosers[job_id])


def _check_choice(
    job_id: JobId,
    choice: BatchSizeChoice,
    time: float,
    until: float,
    allocations: Sequence[AllocationRecord],
    choosers: Sequence[ChooserRecord],
) -> Iterator[Finding]:
    """Yield a finding for each record of a job that differs from a choice at `time`, which holds until `until` [s].

    `allocations` and `choosers` are all records of the job, in order of time.
    """
    chosen_by = None
    # The last record up to the decision counts.
    for chooser in choosers:
        if chooser.time <= time:
            chosen_by = chooser.chosen_by
    if choice.size.this_epoch_only:
        if chosen_by == "agent":  # the epoch ended at the time of the decision
            return
        # Nothing records when the epoch ends, so only the record at the time of the decision must agree.
        until = time
    if chosen_by != "policy":
        yield _finding(job_id, time, choice, "the records do not say that the policy chose it")
    for record in _in_force(allocations, time, until):
        if not choice.agrees(record):
            steps = f"{record.accumulation_steps} accumulation steps"
            runs = f"the job runs with {record.batch_size} examples and {steps} at {record.time:g} s"
            yield _finding(job_id, time, choice, runs)


def _in_force(records: Sequence[AllocationRecord], time: float, until: float) -> list[AllocationRecord]:
    """Return the last record up to `time`, and those between `time` and `until` [s]; none after the loss of all GPUs.

    `records` are those of one job, in order of time.
    """
    in_force: list[AllocationRecord] = []
    for record in records:
        if record.time <= time:
            in_force = [record]
        elif record.time < until:
            in_force.append(record)
    for index, record in enumerate(in_force):
        if not record.nodes:
            return in_force[:index]
    return in_force


def _finding(job_id: JobId, time: float, choice: BatchSizeChoice, what: str) -> Finding:
    return Finding(Fault.BATCH_SIZE, f"the policy chose {choice.size!r} of job {job_id!r} at {time:g} s, but {what}")
