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
        """Return `policy` or `agent`, after all changes at a time [s]."""
        if job not in self._times:
            return "agent"
        count = bisect_right(self._times[job], time)
        return self._sides[job][count - 1] if count else "agent"

    def within(self, job: str, start: float, end: float) -> list[str]:
        """Return the sides that chose from one time to another [s], each once, in order."""
        sides = [self.at(job, start)]
        if job in self._times:
            pairs = zip(self._times[job], self._sides[job], strict=True)
            sides += [side for time, side in pairs if start < time < end]
        return list(dict.fromkeys(sides))
