"""Which side chose the batch size of a job: the policy, or the agent of the job."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

from polluxsim.records.results import Result


class BatchChoosers:
    """The sides that chose the batch sizes of the jobs of a run."""

    def __init__(self, result: Result) -> None:
        self._times: defaultdict[str, list[float]] = defaultdict(list)
        self._sides: defaultdict[str, list[str]] = defaultdict(list)
        for record in result.chooser_records:
            self._times[record.job].append(record.time)
            self._sides[record.job].append(record.chosen_by)

    def at(self, job: str, time: float) -> str:
        """Return `policy` or `agent`, after all changes at a time [s]. Before its first record, a job has the agent."""
        # This condition keeps the defaultdict from adding every job that is asked for.
        if job not in self._times:
            return "agent"
        num_changes = bisect_right(self._times[job], time)
        if num_changes == 0:
            return "agent"
        return self._sides[job][num_changes - 1]

    def within(self, job: str, start: float, end: float) -> list[str]:
        """Return the sides that chose from one time to another [s], each once, in order."""
        sides = [self.at(job, start)]
        if job in self._times:
            for time, side in zip(self._times[job], self._sides[job], strict=True):
                # The first side includes a change at the start. A change at the end belongs to the next period.
                if start < time < end:
                    sides.append(side)
        return list(dict.fromkeys(sides))
