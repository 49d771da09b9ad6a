"""How many jobs of a run are complete, for who follows it round by round."""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice
from typing import TYPE_CHECKING

from polluxsim.workloads.workload import NothingFollows

if TYPE_CHECKING:
    from polluxsim.policies.view import ClusterView
    from polluxsim.records import RoundRecord
    from polluxsim.types import JobId
    from polluxsim.workloads.workload import Workload


class JobCount:
    """Counts jobs, those included that follow others and that the workload did not name at the start.

    Parameters
    ----------
    workload
        What is simulated.

    Attributes
    ----------
    numbers
        A number for every job known so far, from 0: in order of submission, followers in the order they were seen.
    complete
        Jobs complete at the last round seen.
    """

    def __init__(self, workload: Workload) -> None:
        self.numbers: dict[JobId, int] = {job.job_id: number for number, job in enumerate(workload.jobs)}
        self.complete = 0
        self._submit_times = [job.submit_time for job in workload.jobs]
        self._has_followers = workload.new_arrivals is not NothingFollows
        self._expected = len(workload.jobs) + workload.num_followers
        self._followers_submit_times = 0.0

    def see(self, view: ClusterView, record: RoundRecord) -> None:
        """Take note of a round; every one that a watcher is told of has to be seen, lest a follower is missed."""
        if self._has_followers:
            for job in view.jobs:
                if job.job_id not in self.numbers:
                    self.numbers[job.job_id] = len(self.numbers)
                    self._followers_submit_times += job.submit_time
        followers = len(self.numbers) - len(self._submit_times)
        self.complete = bisect_right(self._submit_times, record.time) + followers - record.active_jobs

    @property
    def total(self) -> int:
        """Return the jobs that there will be, as far as the workload says, or more where more have come."""
        return max(self._expected, len(self.numbers))

    def submit_times(self, time: float) -> float:
        """Return the sum of the times at which the jobs so far were submitted [s]."""
        return sum(islice(self._submit_times, bisect_right(self._submit_times, time))) + self._followers_submit_times
