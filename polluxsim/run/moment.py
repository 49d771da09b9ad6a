"""A finished run, simulated again up to a time, and its forks from there."""

from __future__ import annotations

from dataclasses import replace
from operator import index
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hydra.errors import HydraException
from omegaconf import OmegaConf

from polluxsim.durations import clock, first_round
from polluxsim.engine.simulation import driven
from polluxsim.errors import InvalidConfigError, InvalidInputError
from polluxsim.metrics.summary import summarise
from polluxsim.run.branch import Branch
from polluxsim.run.composing import composed
from polluxsim.run.descent import Edits, lineage, recorded
from polluxsim.run.effects import settings_without_effect, unused_in
from polluxsim.run.execution import Execution, resolved
from polluxsim.run.hydra_words import hydra_in_words
from polluxsim.storage import Run

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from omegaconf import DictConfig

    from polluxsim.engine.scenario import Scenario
    from polluxsim.engine.simulation import Simulation
    from polluxsim.models.profile import Profile
    from polluxsim.policies.view import Policy
    from polluxsim.workloads.workload import Job

RunT = TypeVar("RunT", bound=Run)


class Moment(Generic[RunT]):
    """A finished run at one of its scheduling rounds, from which forks continue.

    The run is simulated again from its recorded settings, up to the first round at `time` [s] or later. The run may be
    a fork, or a fork of a fork: the edits of all forks are repeated at their times.

    Raises
    ------
    InvalidInputError
        If the run ends before `time` or was forked after it, or if the simulation does not reproduce the recorded run.

    Attributes
    ----------
    origin
        The finished run.
    time
        Time of the round [s].
    """

    def __init__(self, run: RunT, time: float) -> None:
        config, forks = lineage(run)
        self.origin = run
        self._execution = Execution(config)
        self._branch = Branch(config, *self._execution.start())
        interval = self._branch.scenario.settings.round_interval
        self.time = first_round(time, interval) * interval
        if run.result.end_time <= self.time:
            raise InvalidInputError(f"{run.name} ends at {run.result.end_time:g} s; name a time before its end")
        if forks and self.time < forks[-1].edits.time:
            what = f"{run.name} was forked at {clock(forks[-1].edits.time)}, after {clock(self.time)}"
            raise InvalidInputError(f"{what}; name a later time, or the run before the fork")
        for fork in forks:
            self._branch.advance(fork.edits.time)
            self._branch.change(fork.edits, fork.config, {})
        self._branch.advance(self.time)
        self._check_past()

    def _check_past(self) -> None:
        again = self._branch.run.result().allocation_records
        before = [record for record in self.origin.result.allocation_records if record.time < self.time]
        if before != list(again):
            what = "simulated again, it is another run, because files, polluxsim or its libraries have changed since"
            raise InvalidInputError(f"{self.origin.name}: {what}; make the run again")

    def copied(self) -> tuple[Simulation, Policy]:
        """Return a copy of the run just before the round, and of its policy."""
        branch = self._branch.copy()
        return branch.run, branch.policy

    @property
    def config(self) -> DictConfig:
        """Return the settings of the run at the round."""
        return self._branch.config

    @property
    def scenario(self) -> Scenario:
        """Return the scenario from the round on. `copied()[0].scenario` differs if a fork at this time changed it."""
        return self._branch.scenario

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """Return the profiles of the run."""
        return self.scenario.profiles

    @property
    def added(self) -> tuple[Job, ...]:
        """Return the jobs that the forks so far added."""
        return self._branch.added

    @property
    def left_out(self) -> frozenset[str]:
        """Return the names of the jobs that the forks so far left out."""
        return self._branch.left_out

    def fork(
        self,
        config: DictConfig,
        given: Mapping[str, Any],
        *,
        drop_nodes: Collection[int] = (),
        without: Iterable[str] = (),
        added: Sequence[Job] = (),
        seed: int | None = None,
    ) -> RunT:
        """Return the run with changes from this round on.

        Parameters
        ----------
        config
            The settings of the fork. They may differ from those of the run in policy and cluster.
        given
            Objects by config group, in place of the objects that `config` describes.
        drop_nodes
            Nodes that go down and stay down.
        without
            Jobs that are cancelled, or never submitted.
        added
            Additional jobs, at their times since the start of the run [s].
        seed
            Seed of the policy's random generator from this round on.

        Raises
        ------
        PolluxSimError
            If a change is impossible.
        """
        settings = resolved(config)
        config, branch = OmegaConf.create(settings), self._branch.copy()
        new_policy = "policy" in given or config.policy != self.config.policy
        nodes, left_out = tuple(map(index, drop_nodes)), self._left_out(without)
        seed = None if seed is None else index(seed)
        edits = Edits(self.time, nodes, left_out, tuple(added), seed, new_policy)
        edits = branch.change(edits, config, given)
        unused = settings_without_effect(branch.policy, branch.scenario)
        result = driven(branch.run, branch.policy)
        unused += unused_in(branch.scenario, result)
        settings |= {} if seed is None else {"seed": seed}
        info = self._execution.info(summarise(result))
        info.pop("without_effect", None)  # of the first ancestor
        info |= {"config": settings, "seed": settings["seed"], "nodes": branch.scenario.cluster.groups, "key": None}
        info |= {"descent": recorded(self.origin, self.config, edits)} | ({"without_effect": unused} if unused else {})
        return replace(self.origin, info=info, result=result)

    def _left_out(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names of jobs to leave out, each once, without jobs that an earlier fork left out.

        Raises
        ------
        InvalidInputError
            If the run has no job of a name, or the job ended before the round.
        """
        ends = {job.job: job.end_time for job in self.origin.result.job_records}
        for name in (found := tuple(dict.fromkeys(names))):
            if name not in ends:
                raise InvalidInputError(f"{self.origin.name} has no job {name!r}")
            if (end := ends[name]) is not None and end < self.time:
                what = f"job {name!r} ended at {end:g} s"
                raise InvalidInputError(f"{what}, before the fork; name a job that ends at {self.time:g} s or later")
        return tuple(name for name in found if name not in self.left_out)


def replaced(config: DictConfig, group: str, part: Any) -> DictConfig:
    """Return a configuration in which one group is replaced."""
    return OmegaConf.create({**config, group: part})


def with_entry(config: DictConfig, group: str, name: str | None, settings: Mapping[str, object]) -> DictConfig:
    """Return a configuration with another entry of a group, or, without a name, with other settings of its entry."""
    if name is None:
        return replaced(config, group, OmegaConf.merge(config[group], dict(settings)))
    try:
        return replaced(config, group, composed({group: name}, {group: settings}, 0)[group])
    except HydraException as error:
        raise InvalidConfigError(hydra_in_words(error)) from None
