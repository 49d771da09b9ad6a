"""The simulator as an environment of Gymnasium, with its rewards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from math import inf
from typing import Annotated, Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space
from numpy.typing import NDArray

from polluxsim.api.parts import ClusterLike, ProfilesLike, SettingsLike, WorkloadLike
from polluxsim.api.simulating import starter
from polluxsim.common.errors import InvalidConfigError, TurnError
from polluxsim.common.values import OneOf, Range
from polluxsim.common.written import takes_settings
from polluxsim.engine.simulation import Simulation
from polluxsim.gym.policy import AgentPolicy, Layout, LearnerTurn, Observation, time_left
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.view import ClusterView, JobView
from polluxsim.records.results import Status


@dataclass(slots=True)
class ScoredJob:
    """A job in the system."""

    job: JobView  # view of the job
    alone: float  # time from submission to completion on the requested GPUs alone [s]; ∞ if the reward does not use it
    done: float = 0.0  # share of its work that is done; 0 if the job ended without completing


# Functions of a job and the present time [s] that return the part of the job in the score, by the name of the reward.
REWARDS: Mapping[str, Callable[[ScoredJob, float], float]] = {
    "jobs": lambda scored, now: scored.job.submit_time - now,
    "slowdown": lambda scored, now: (scored.job.submit_time - now) / scored.alone,
    "goodput": lambda scored, now: scored.done * scored.alone * scored.job.num_replicas,
}


@takes_settings("{}")
class RewardLedger:
    """The score of one run.

    Parameters
    ----------
    reward
        `jobs`: minus the time that jobs have spent in the system [job s]; at the end, minus the sum of all JCTs.
        `slowdown`: the same sum with each time divided by the job's time on the requested GPUs alone [1]. At the end,
        the score is minus the sum of all slowdowns. `goodput`: finished work, as its time on the requested GPUs
        multiplied by their number [GPU s].

    Raises
    ------
    InvalidConfigError
        If `reward` is another word.
    """

    def __init__(self, reward: Annotated[str, OneOf(*REWARDS)]) -> None:
        self._score_of = REWARDS[reward]
        self._follows_work = reward == "goodput"
        self._needs_times = reward != "jobs"
        self._open: dict[JobId, ScoredJob] = {}  # jobs in the system
        self._closed = 0.0  # part of ended jobs in the score
        self._last = 0.0  # score at the last call
        self._num_ended = 0

    def earned(self, run: Simulation, view: ClusterView | None) -> float:
        """Return the change of the score since the last call, in its unit. `view` is None at the end of the run."""
        if view is not None:
            for job in view.changes.arrived:
                # A job from before the start of the run (`Job.past`) is no decision of the learner.
                if job.submit_time >= 0:
                    alone = time_left(view, job) if self._needs_times else inf
                    self._open[job.job_id] = ScoredJob(job, alone)
        self._close(run)
        # After the ended jobs are gone, because only views of jobs in the system can be read.
        if view is not None and self._follows_work:
            for scored in self._open.values():
                scored.done = 1.0 - time_left(view, scored.job) / scored.alone
        score_of = self._score_of
        now = run.time
        score = self._closed + sum([score_of(scored, now) for scored in self._open.values()])  # faster than a generator
        earned = score - self._last
        self._last = score
        return earned

    def _close(self, run: Simulation) -> None:
        """Move the jobs that ended since the last call to the closed part of the score.

        Jobs from before the run, and jobs that had not ended when the run did, are in no score from then on.
        """
        for record in run.ended(self._num_ended):
            self._num_ended += 1
            scored = self._open.pop(record.job, None)
            if scored is not None and record.end_time is not None:
                scored.done = 1.0 if record.status is Status.COMPLETED else 0.0
                self._closed += self._score_of(scored, record.end_time)


SEEDS = 2**31  # random seeds of runs are below this number


@takes_settings("{}")
class ClusterEnv(gymnasium.Env[Observation, np.int64]):
    """A cluster on which a learner starts jobs, without preemption. Its Gymnasium id is `polluxsim/Cluster-v0`.

    An action starts one job of the queue on a number of GPUs, or lets time pass. After an invalid action, too, time
    passes. No simulated time passes, and no reward is earned, while the learner starts jobs. Time then passes until the
    next scheduling round at which an event has happened and a job can start. If no job runs and the learner starts
    none, the next decision is at the next round.

    `terminated` is true if all jobs have ended. `truncated` is true at the horizon, or if the simulation stopped
    because no job could progress (`info["standstill"]`). `info` has the `time` [s], the number of `jobs` in the system,
    the `seed` of the run, and the `action_mask` of valid actions (int8).

    Parameters
    ----------
    workload
        As for `polluxsim.simulate`. A generated workload (the default is `philly-like`) changes at each reset. Its seed
        is the `seed` of `reset`, or a random seed. Any other workload is equal in all episodes.
    cluster, profiles, settings
        As for `polluxsim.simulate`.
    reward
        `jobs`, `slowdown` or `goodput`: see `RewardLedger`.
    horizon
        An episode ends at the first decision at this time or later [s]. With None, the episode ends when all jobs have
        ended.
    **layout
        `queue`, `running`, `gpus`, `oracle`: see `Layout`.

    Raises
    ------
    InvalidConfigError
        If a setting is invalid.

    Attributes
    ----------
    layout
        Shapes of the observations, and the actions.
    run
        The present run; None before the first `reset`. At the end of the episode, `run.result()` returns its records.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  (Gymnasium declares it so)

    def __init__(
        self,
        workload: WorkloadLike = "philly-like",
        *,
        cluster: ClusterLike | None = None,
        profiles: ProfilesLike | None = None,
        settings: SettingsLike | None = None,
        reward: str = "jobs",
        horizon: Annotated[float, Range(above=0, most=inf)] | None = None,
        **layout: Any,
    ) -> None:
        names = [field.name for field in fields(Layout)]
        for name in layout:
            if name not in names:
                raise InvalidConfigError(f"there is no setting {name!r}; choose from {', '.join(names)}")
        self.layout = Layout(**layout)
        self._horizon = inf if horizon is None else float(horizon)
        self._reward = reward
        self._ledger = RewardLedger(reward)
        # The run needs a policy for its traits. The environment decides in its place, so that it is never asked.
        waiting = AgentPolicy(lambda observation, mask: 0, self.layout)
        self._begin = starter(workload, policy=waiting, cluster=cluster, profiles=profiles, settings=settings)
        self.run: Simulation | None = None
        self._turn: LearnerTurn | None = None
        self._seed = 0
        arrays: dict[str, Space[Any]] = {name: Box(0.0, 1.0, shape) for name, shape in self.layout.shapes.items()}
        self.observation_space = Dict(arrays)  # type: ignore[assignment]
        self.action_space = Discrete(self.layout.num_actions)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a new run, and simulate it up to its first decision. The first reward covers this time.

        Raise InvalidConfigError if the settings of the engine have a horizon. `options` has no effect.
        """
        super().reset(seed=seed)
        # Gymnasium's generator goes on between episodes, so that each has another seed.
        self._seed = int(self.np_random.integers(SEEDS)) if seed is None else seed
        self.run, _ = self._begin(self._seed)
        if self.run.scenario.settings.horizon is not None:
            raise InvalidConfigError(
                "engine.horizon is set, but the environment has its own horizon; use horizon=SECONDS of the environment"
            )
        self._ledger = RewardLedger(self._reward)
        self._earned = self._to_next_choice(self.run)
        return self._observation(), self._info()

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Start a job or let time pass; return observation, reward, `terminated`, `truncated` and `info`.

        Raise TurnError if there is no episode.
        """
        if self.run is None or self._turn is None:
            raise TurnError("there is no episode, because it has ended or not begun; reset the environment")
        # The learner ends its turn, or its last pick leaves it no other choice.
        if not self._turn.pick(int(action)) or not self._turn.can_pick:
            self.run.commit(self._turn.decision())
            self._earned += self._to_next_choice(self.run)
        earned = self._earned
        self._earned = 0.0
        is_over = self._turn is None or self._turn.view.has_come(self._horizon)
        terminated = is_over and self.run.num_ended == self.run.num_jobs
        truncated = is_over and not terminated
        observation = self._observation()
        info = self._info()
        # Only now: the last observation and info of the episode are those of its last round.
        if is_over:
            self._turn = None
        return observation, earned, terminated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which actions are valid, shape (actions,). Wrappers for masked learners call this method."""
        return self._mask().astype(bool)

    def _to_next_choice(self, run: Simulation) -> float:
        """Simulate up to the next round with a choice, or the end of the episode; return the reward."""
        earned = 0.0
        while True:
            view = run.advance()
            earned += self._ledger.earned(run, view)
            self._turn = None if view is None else LearnerTurn(self.layout, view)
            # A round at which no job can start is passed over: the learner would have one action only.
            if self._turn is None or self._turn.can_pick or self._turn.view.has_come(self._horizon):
                return earned
            run.commit(self._turn.decision())

    def _observation(self) -> Observation:
        """Return the observation of the present round; zeros at the end of the run."""
        if self._turn is None:
            return {name: np.zeros(shape, np.float32) for name, shape in self.layout.shapes.items()}
        return self._turn.observation

    def _mask(self) -> NDArray[np.int8]:
        """Return 1 for each valid action; only action 0 is valid at the end of the run."""
        if self._turn is None:
            return np.array([1] + [0] * (self.layout.num_actions - 1), np.int8)
        return self._turn.mask

    def _info(self) -> dict[str, Any]:
        """Return the `info` of the present round, as the class describes it; empty before the first `reset`."""
        if self.run is None:
            return {}
        jobs = 0 if self._turn is None else len(self._turn.view.jobs)
        info: dict[str, Any] = {"time": self.run.time, "jobs": jobs, "seed": self._seed, "action_mask": self._mask()}
        if self.run.standstill is not None:
            info["standstill"] = self.run.standstill
        return info
