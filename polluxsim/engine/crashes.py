"""Jobs that fail by themselves, whatever node they are on."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

from polluxsim.durations import HOUR
from polluxsim.engine.agenda import Rank
from polluxsim.engine.streams import Stream, uniforms
from polluxsim.records import Status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polluxsim.engine.agenda import Happening
    from polluxsim.engine.job import ActiveJob
    from polluxsim.engine.state import State
    from polluxsim.engine.training import Training
    from polluxsim.engine.world import World


class Crashes:
    """Lets jobs fail as the settings say."""

    def __init__(self, state: State, training: Training, world: World, seed: int) -> None:
        self._state = state
        self._training = training
        self._world = world
        self._seed = seed

    def draw_anew(self, seed: int) -> None:
        """Let jobs fail at other times from now on."""
        self._seed = seed
        self.expect(self._state.jobs.running)

    def expect(self, jobs: Iterable[ActiveJob]) -> None:
        """Call the failures of jobs that were just given GPUs; by then they may have others."""
        agenda, failures = self._state.agenda, self._state.scenario.settings.job_failures
        if failures is None or not failures.rate:
            return
        for job in jobs:
            (life,) = uniforms(self._seed, (Stream.CRASHES, job.order, job.serial), 1)
            time = agenda.now - log(life) * HOUR / failures.rate
            agenda.at(time, Rank.ARRIVAL, self._crash, (job, job.tenure.since, self._seed), order=job.order)

    def _crash(self, event: Happening) -> None:
        """Take the GPUs of a job that still has the same, and end it if it failed too often."""
        (job, since, seed), failures = event.about, self._state.scenario.settings.job_failures
        if not job.placement or (job.tenure.since, self._seed) != (since, seed) or failures is None:
            return
        self._training.evict(job)
        losses = job.tenure.losses
        num_crashes = losses.num_crashes + 1
        job.tenure.losses = losses._replace(num_crashes=num_crashes)
        if num_crashes > failures.retries:
            self._world.end(job, Status.FAILED)
