"""A finished run, simulated again up to a time: its forks, and the least change that lets a waiting job run."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from operator import index
from typing import Any, Generic, NamedTuple, TypeVar

from polluxsim.common.errors import InvalidConfigError, InvalidInputError, invalid_setting
from polluxsim.common.instants import first_round, just_after
from polluxsim.common.values import NonNegativeInt, PositiveFloat, check
from polluxsim.engine.futures import Fork
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.simulation import Simulation, run_to_end
from polluxsim.hardware.gpu_types import NodeTypes
from polluxsim.hardware.placements import JobId
from polluxsim.metrics.summary import summarise
from polluxsim.models.profile import Profile
from polluxsim.policies.contract.policy import Policy
from polluxsim.records.results import Result as RunResult
from polluxsim.records.storage import Run
from polluxsim.run.composing import composed
from polluxsim.run.execution import Execution
from polluxsim.run.forks import Branch, changed_settings, recorded_descent, spec_of
from polluxsim.run.located import LocatedPaths
from polluxsim.run.spec import Edit, RunSpec, settled
from polluxsim.run.suspicions import suspicious
from polluxsim.run.without_effect import settings_without_effect, unused_in
from polluxsim.workloads.workload import Job

RunT = TypeVar("RunT", bound=Run)

MOST_NODES = 64  # largest number of additional nodes that is tried


@dataclass(frozen=True)
class WhatIfRequest:
    """Changes of a run from a round on."""

    # By configuration group (`policy` or `cluster`): the name of another entry, or None for the present entry, and
    # settings.
    entries: Mapping[str, tuple[str | None, Mapping[str, object]]] = field(default_factory=dict)
    # By configuration group: an object in place of an entry, and its description for run.json.
    objects: Mapping[str, tuple[Any, Mapping[str, object]]] = field(default_factory=dict)
    drop_nodes: Collection[int] = ()  # numbers of nodes that go down for good
    down_nodes: Collection[int] = ()  # numbers of nodes that go down for a time
    down_for: float = 0.0  # this time [s]; above 0 with `down_nodes`, 0 without
    without: Collection[str] = ()  # names of jobs that are cancelled, or never submitted
    added: tuple[Job, ...] = ()  # additional jobs, at their times on the clock of the run [s]
    seed: int | None = None  # seed of the policy's random generator from this round on; None continues the generator

    def config(self, present: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of the fork, given the settings of the run."""
        config = deepcopy(dict(present))
        for group, (name, settings) in self.entries.items():
            if name is None:
                changed = RunSpec(config).with_values(group, settings)
            else:
                changed = composed({group: name}, {group: settings}, 0)
            config[group] = changed.config[group]
        for group, (_, description) in self.objects.items():
            config[group] = dict(description)
        return settled(config)


class RunMoment(Generic[RunT]):
    """A finished run at one of its scheduling rounds, from which forks continue.

    The run is simulated again from its recorded settings, up to the first round at `time` [s] or later. The run may be
    a fork, or a fork of a fork: the edits of all forks are repeated at their times.

    Raise InvalidInputError if the run has no round at `time` or later, was forked after this round, is not reproduced,
    or cannot be simulated again.
    """

    def __init__(self, run: RunT, time: float) -> None:
        self.origin = run
        spec = spec_of(run)
        all_settings = [spec.config, *(edit.settings for edit in spec.edits)]
        self._paths = LocatedPaths(all_settings, run.folder)
        self._execution, self._branch = self._started(self._located(spec.config))
        self.time = self._round_at(time, spec.edits)
        # Up to just before each edit: the branch makes the edit at the round of its time.
        for edit in spec.edits:
            self._branch.advance(edit.time)
            self._branch.change(replace(edit, settings=self._located(edit.settings)), {})
        self._branch.advance(self.time)
        self._check_reproduced()

    def _started(self, config: dict[str, Any]) -> tuple[Execution, Branch]:
        """Return the execution of settings, and the run that it starts."""
        try:
            execution = Execution(RunSpec(config))
            return execution, Branch(config, *execution.start())
        except InvalidInputError as error:
            missing_paths = [path for path in self._paths.missing if path in str(error)]
            if not missing_paths:
                raise
            # The general advice does not help, because the path was right in the folder of the first run.
            problem = str(error).removesuffix("; check the path")
            reason = "its path is relative to the folder in which the run was made"
            raise InvalidInputError(f"{self.origin.name}: {problem}; {reason}; give the command there") from None

    def _round_at(self, time: float, edits: Sequence[Edit]) -> float:
        """Return the time of the first round at a time or later [s].

        Raise InvalidInputError if the run has no such round, or was forked after it.
        """
        run = self.origin
        end_time = run.result.end_time
        interval = self._branch.scenario.settings.round_interval
        # A later time, which may be infinite, has no number of a round.
        round_time = first_round(min(time, end_time), interval) * interval
        if round_time >= end_time:
            problem = f"{run.name} ends at {run.clock(end_time)} and has no round at {run.clock(time)} or later"
            raise InvalidInputError(f"{problem}; name an earlier time")
        if edits and round_time < edits[-1].time:
            problem = f"{run.name} was forked at {run.clock(edits[-1].time)}, after {run.clock(round_time)}"
            raise InvalidInputError(f"{problem}; name a later time, or the run before the fork")
        return round_time

    def _check_reproduced(self) -> None:
        """Raise InvalidInputError if the run had other allocations before the round than it has now."""
        # The allocations stand for the whole run: other jobs, nodes or code would change them.
        recorded = [record for record in self.origin.result.allocation_records if record.time < self.time]
        if recorded != list(self._branch.run.result().allocation_records):
            raise InvalidInputError(
                f"{self.origin.name}: simulated again, it is another run, because files, polluxsim or its libraries "
                "have changed since; make the run again"
            )

    def _located(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings of the run with paths that are found from the present folder."""
        located: dict[str, Any] = self._paths.locate(config)
        return located

    def copied(self) -> tuple[Simulation, Policy]:
        """Return a copy of the run just before the round, and of its policy."""
        branch = self._branch.copy()
        return branch.run, branch.policy

    @property
    def config(self) -> Mapping[str, Any]:
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
        """Return the jobs that earlier forks added."""
        return self._branch.added

    @property
    def left_out(self) -> frozenset[str]:
        """Return the names of the jobs that the forks so far left out."""
        return self._branch.left_out

    def fork_with(self, request: WhatIfRequest) -> RunT:
        """Return the run with changes from this round on, simulated to its end.

        Raise InvalidInputError if a named job is not known or has ended, InvalidConfigError if a setting is invalid or
        must not change, and the errors of the policy.
        """
        branch = self._branch.copy()
        objects = {group: value for group, (value, _) in request.objects.items()}
        edit = branch.change(self._edit_of(request), objects)
        # Before the run, because the policy forgets its jobs while it runs.
        unused = settings_without_effect(branch.policy, branch.scenario)
        result = run_to_end(branch.run, branch.policy)
        unused += unused_in(branch.scenario, result)
        info = self._info_of(branch, edit, result)
        if unused:
            info["without_effect"] = unused
        return replace(self.origin, info=info, result=result)

    def _edit_of(self, request: WhatIfRequest) -> Edit:
        """Return the edit that a request describes. Raise an error if a node, job or setting is invalid."""
        settings = request.config(self.config)
        lost_nodes = _node_numbers("drop_nodes", request.drop_nodes)
        left_out = self._left_out(request.without)
        down_nodes = tuple(sorted(set(_node_numbers("down_nodes", request.down_nodes))))
        if down_nodes:
            check("down_for", request.down_for, PositiveFloat)
        elif request.down_for:
            raise InvalidConfigError("down_for has no effect without down_nodes; name the nodes that go down")
        check("seed", request.seed, NonNegativeInt | None)
        seed = None
        if request.seed is not None:
            seed = index(request.seed)  # run.json cannot state an integer of NumPy
        return Edit(
            self.time,
            changed_settings(self.config, settings),
            lost_nodes=lost_nodes,
            without=left_out,
            added=tuple(replace(job, line=0) for job in request.added),  # the line is one of another file
            seed=seed,
            new_policy="policy" in request.objects or settings["policy"] != self.config["policy"],
            down_nodes=down_nodes,
            down_for=request.down_for,
        )

    def _info_of(self, branch: Branch, edit: Edit, result: RunResult) -> dict[str, Any]:
        """Return the content of run.json of a fork."""
        info = self._execution.lasting_info(summarise(result))
        settings = self._paths.as_written(branch.config)
        settings_before = self._paths.as_written(self.config)
        info["config"] = settings
        info["seed"] = settings["seed"]
        info["nodes"] = branch.scenario.cluster.groups
        info["key"] = None  # a fork is never taken for a run of a sweep
        info["descent"] = recorded_descent(self.origin, settings_before, edit)
        suspicions = suspicious(branch.config, branch.scenario.workload)
        if suspicions:
            info["suspicious"] = suspicions
        return info

    def _left_out(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names of jobs to leave out, each once, without jobs that an earlier fork left out.

        Raise InvalidInputError if a job is unknown, or ended before the round.
        """
        ends = {job.job: job.end_time for job in self.origin.result.job_records}
        distinct = tuple(dict.fromkeys(names))
        for name in distinct:
            if name not in ends:
                raise InvalidInputError(f"{self.origin.name} has no job {name!r}; name one of its {len(ends)} jobs")
            end = ends[name]
            if end is not None and end < self.time:
                raise InvalidInputError(
                    f"job {name!r} ended at {end:g} s, before the fork; name a job that ends at {self.time:g} s or "
                    "later"
                )
        return tuple(name for name in distinct if name not in self.left_out)


def _node_numbers(name: str, nodes: Iterable[int]) -> tuple[int, ...]:
    """Return the numbers of nodes that a setting gives. Raise InvalidConfigError for other values."""
    try:
        return tuple(map(index, nodes))
    except TypeError:
        raise invalid_setting(name, nodes, "whole numbers of nodes in a list, like [3]") from None


class LeastChange(NamedTuple):
    """Alternative changes, each of which would have let a job run; None for a kind of which no change was found."""

    nodes: int | None  # additional nodes, equal to the last node
    fewer_gpus: int | None  # reduction of the GPUs that the user requested
    places: int | None  # places further ahead in the order of submission


class Trial:
    """Tries changes for one submitted job, in a run just before a round.

    `ahead` contains the names of the active jobs that were submitted before the job, in order of submission. If the job
    is not active, these are all active jobs.
    """

    def __init__(self, moment: RunMoment[Any], job_id: JobId) -> None:
        self._moment = moment
        self._job_id = job_id
        run, _ = moment.copied()
        self._scenario = moment.scenario
        run.advance(before=just_after(moment.time))  # jobs that end at the time of the round have ended
        self._job: Job | None = None
        self.ahead: list[JobId] = []
        # Active jobs come in order of submission.
        for job, _ in run.active(moment.time):
            if job.job_id == job_id:
                self._job = job
                break
            self.ahead.append(job.job_id)

    @property
    def is_active(self) -> bool:
        """Return whether the job is active at the round."""
        return self._job is not None

    def least(self) -> LeastChange | None:
        """Return a small change of each kind; None if the job is not active, or if it runs without a change.

        `_least_that_works` states how small a change is.
        """
        job = self._job
        if job is None or self._runs(Fork(self._moment.time, self._scenario)):
            return None
        most_gpus = job.num_replicas - (job.min_replicas or 1)
        if job.speeds:
            most_gpus = 0  # the job runs on fewer GPUs without another request
        most_nodes = MOST_NODES
        if self._scenario.cluster.least_nodes is not None:
            most_nodes = 0  # the policy chooses the number of nodes
        return LeastChange(
            nodes=_least_that_works(most_nodes, self.runs_with_nodes),
            fewer_gpus=_least_that_works(most_gpus, self.runs_with_fewer_gpus),
            places=_least_that_works(len(self.ahead), self.runs_with_places),
        )

    def runs_with_nodes(self, number: int) -> bool:
        """Return whether the job runs with a number of additional nodes."""
        cluster = self._scenario.cluster
        more = replace(
            cluster,
            gpus_per_node=(*cluster.gpus_per_node, *cluster.gpus_per_node[-1:] * number),
            node_types=NodeTypes((*cluster.node_types, *cluster.node_types[-1:] * number)),
            hosts=(*cluster.hosts, *cluster.hosts[-1:] * number),
        )
        return self._runs(Fork(self._moment.time, replace(self._scenario, cluster=more)))

    def runs_with_fewer_gpus(self, number: int) -> bool:
        """Return whether the job runs if its user requests fewer GPUs, by a number."""
        assert self._job is not None
        gpus = self._job.num_replicas - number
        batch_size = self._job.batch_size
        if self._job.is_rigid:
            batch_size = gpus  # a rigid job has one example for each GPU
        smaller = replace(self._job, num_replicas=gpus, batch_size=batch_size)
        return self._runs(Fork(self._moment.time, self._scenario, altered=(smaller,)))

    def runs_with_places(self, number: int) -> bool:
        """Return whether the job runs if it is a number of places further ahead in the order of submission."""
        overtaken = ((self._job_id, self.ahead[-number]),)
        return self._runs(Fork(self._moment.time, self._scenario, overtaken=overtaken))

    def _runs(self, fork: Fork) -> bool:
        """Return whether the job has GPUs after the round of a fork."""
        run, policy = self._moment.copied()
        run.fork(fork)
        view = run.advance()
        # The policy may ask not to be called at this round, and then starts no job in it.
        if view is None or view.time != fork.time:
            return False
        run.commit(run.ask(policy, view))
        return self._job_id in run.allocation


def _least_that_works(most: int, works: Callable[[int], bool]) -> int | None:
    """Return a number from 1 to `most` that works although the number before it does not; 0 counts as one that fails.

    The numbers 1, 2, 4, … and `most` are tried until one works, and then the numbers before it by bisection. If `works`
    is not monotone, a smaller number may work too. Return None if none of the first numbers works.
    """
    if most < 1:
        return None
    fails = 0
    tried = 1
    while not works(tried):
        if tried == most:
            return None
        fails = tried
        tried = min(2 * tried, most)
    # `tried` works, so only the numbers between are left; if all of them fail, the result is `tried`.
    return fails + 1 + bisect_left(range(fails + 1, tried), True, key=works)
