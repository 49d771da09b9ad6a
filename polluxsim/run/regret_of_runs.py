"""The regret of the decisions of a finished run, which is simulated again, and whose regrets are stored in its folder.

There are two tasks. A `_RoundTask` lets another policy decide single rounds of the run. A `_PathTask` lets the policy
of the run take over from the other policy at some rounds of its run. Both have a file for their finished rounds, so
that a command that is interrupted continues with the missing ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from inspect import Parameter, signature
from time import monotonic
from typing import Any, NamedTuple, TypeAlias

from polluxsim.common.errors import InvalidInputError
from polluxsim.records.bounds import digest_of_jobs
from polluxsim.records.folders import policy_name
from polluxsim.records.regret import RegretPath, Regrets, Takeover
from polluxsim.records.regret_files import (
    ENDING,
    PATH,
    REGRET,
    ComparisonFile,
    StoredRegret,
    regret_as_json,
    regret_from_json,
)
from polluxsim.records.storage import Run, flat
from polluxsim.run.building import get_object
from polluxsim.run.claim import DESCENT
from polluxsim.run.decision_walk import (
    NotComparableError,
    Walk,
    course_of,
    jct_changes,
    num_counted,
    outcomes_in,
    total_jct,
)
from polluxsim.run.forks import spec_of
from polluxsim.run.identity import key_of
from polluxsim.run.interrupt import SweepInterrupted
from polluxsim.run.moment import RunMoment
from polluxsim.run.named_policies import NamedPolicy, named_policy
from polluxsim.run.one_round import OtherPolicy, RoundTrials, Takeovers, check_other, walk_of_other
from polluxsim.run.regret import RegretRequest
from polluxsim.run.spec import as_plain
from polluxsim.run.user_exits import exits_raised
from polluxsim.run.workers import as_finished, workers

WORTH_PROCESSES = 10.0  # several processes simulate the forks if one process would take longer than this [s]

Report: TypeAlias = Callable[[int, int], object]
"""Called with the numbers of finished rounds and of all rounds."""


@dataclass(frozen=True)
class ComparedRun:
    """A finished run, and the policy with which its decisions are compared.

    The run is simulated again from its beginning, or from its last fork if it is a fork.
    """

    run: Run
    named: NamedPolicy  # the other policy

    @cached_property
    def moment(self) -> RunMoment[Any]:
        """Return the run before its first decision, or before the first decision after its last fork."""
        # The decisions before the last fork are those of another run.
        edits = spec_of(self.run).edits
        return RunMoment(self.run, edits[-1].time if edits else 0.0)

    @cached_property
    def other(self) -> OtherPolicy:
        """Return the other policy, which may be that of the run with equal settings."""
        is_own = _with_defaults(self.named.settings) == _with_defaults(self.moment.config["policy"])
        return OtherPolicy(self.named.label, self.named.make, is_own)

    @property
    def seed(self) -> int:
        """Return the seed of the run."""
        seed: int = self.moment.config["seed"]
        return seed

    def trials(self, seeds: int) -> RoundTrials:
        """Return the trials of the other policy in single rounds, with a number of repetitions."""
        return RoundTrials(self.moment.copied, self.other, outcomes_in(self.run.result), self.seed, seeds)

    def takeovers(self) -> Takeovers:
        """Return the takeovers by the policy of the run in single rounds of the run of the other policy."""
        return Takeovers(self.moment.copied, self.other, outcomes_in(self.run.result))

    def check(self) -> None:
        """Raise InvalidConfigError or InvalidInputError if the other policy cannot decide in the run."""
        check_other(self.other, self.moment.scenario)

    def check_reproduced(self, walk: Walk) -> None:
        """Raise InvalidInputError if the run has other allocations than it had, after it was simulated again."""
        # Every other decision shows in the allocations.
        if list(self.run.result.allocation_records) != list(walk.run.result().allocation_records):
            raise InvalidInputError(
                f"{self.run.name}: simulated again, it is another run, because files, polluxsim or its libraries have "
                "changed since; make the run again"
            )

    def about(self, kind: str, **facts: object) -> dict[str, Any]:
        """Return what is compared, for its file. Stored rounds are used only if these values are equal."""
        config = {**self.moment.config, "policy": self.named.settings}
        return {
            "kind": kind,
            "policy": self.named.name,
            "key": key_of(config),
            "run": self.run.info.get("key"),
            "jobs": digest_of_jobs(self.run.info),
            **facts,
        }

    def course(self, num_rounds: int, **facts: object) -> dict[str, Any]:
        """Return facts about the run, for the file of a comparison."""
        outcomes = outcomes_in(self.run.result)
        return {
            "own_policy": policy_name(flat(dict(self.moment.config))),
            "other_policy": self.other.name,
            "num_rounds": num_rounds,
            "num_jobs": num_counted(outcomes),
            "total_jct": total_jct(outcomes),
            **facts,
        }


def _with_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a policy, and of the objects in them, with the defaults of their classes."""
    # A setting that is stated with its default value makes no other policy.
    filled: dict[str, Any] = {}
    for name, parameter in signature(get_object(settings["_target_"])).parameters.items():
        if parameter.default is not Parameter.empty:
            filled[name] = as_plain(parameter.default)
    for name, value in settings.items():
        is_part = isinstance(value, Mapping) and "_target_" in value
        filled[name] = _with_defaults(value) if is_part else as_plain(value)
    return filled


@dataclass(frozen=True)
class _RoundTask:
    """Single rounds of a run that another policy decides."""

    compared: ComparedRun
    seeds: int

    kind = REGRET

    @property
    def suffix(self) -> str:
        """Return the end of the name of the file. Repetitions have a file of their own."""
        return "" if self.seeds == 1 else f"-{self.seeds}-seeds"

    def about(self) -> dict[str, Any]:
        """Return what is compared."""
        return self.compared.about(REGRET, seeds=self.seeds)

    def course(self) -> dict[str, Any]:
        """Simulate the run once, and return facts about it."""
        walk = Walk(*self.compared.moment.copied())
        course = course_of(walk)
        self.compared.check_reproduced(walk)
        return self.compared.course(len(course.times), is_drawn=course.is_drawn)

    def numbers(self, request: RegretRequest, num_rounds: int) -> list[int]:
        """Return the numbers of the rounds that the other policy decides."""
        return request.numbers(num_rounds)

    def rounds(self) -> Callable[[int], dict[str, Any]]:
        """Return a function from the number of a round to its values. The numbers must rise, or it takes longer."""
        trials = self.compared.trials(self.seeds)
        return lambda number: regret_as_json(trials.regret(number))


@dataclass(frozen=True)
class _PathTask:
    """Rounds of the run of another policy at which the policy of the run takes over."""

    compared: ComparedRun

    kind = PATH
    suffix = ""

    def about(self) -> dict[str, Any]:
        """Return what is compared."""
        return self.compared.about(PATH)

    def course(self) -> dict[str, Any]:
        """Simulate the run of the other policy once, and return facts about it."""
        walk = walk_of_other(self.compared.moment.copied, self.compared.other)
        course = course_of(walk)
        num_rounds = len(course.times)
        # A takeover after the last round is the run of the other policy itself.
        last = Takeover(num_rounds, walk.run.time, course.total_jct)
        try:
            jct_changes(outcomes_in(self.compared.run.result), course.outcomes)
        except NotComparableError as error:
            last = Takeover(num_rounds, walk.run.time, None, str(error))
        return self.compared.course(num_rounds, last=last._asdict())

    def numbers(self, request: RegretRequest, num_rounds: int) -> list[int]:
        """Return the numbers of the rounds at which the policy of the run takes over."""
        return request.takeover_numbers(num_rounds)

    def rounds(self) -> Callable[[int], dict[str, Any]]:
        """Return a function from the number of a round to its values. The numbers must rise, or it takes longer."""
        takeovers = self.compared.takeovers()
        return lambda number: takeovers.takeover(number)._asdict()


_Task: TypeAlias = _RoundTask | _PathTask


class _Finished(NamedTuple):
    """The finished rounds of a task."""

    course: Mapping[str, Any]  # facts about the run
    rounds: list[Mapping[str, Any]]  # values of each round of the request, in rising order


def regrets_of_run(
    run: Run, policy: str, request: RegretRequest, report: Report = lambda done, total: None, processes: int = 1
) -> Regrets:
    """Return the regret of the decisions of a finished run, compared with a policy as the user names it.

    Finished rounds are stored in the folder of the run, if it has one, and are not simulated again. At most `processes`
    processes simulate the others.

    Raise InvalidConfigError if there is no such policy or it cannot decide in this run, and InvalidInputError if the
    run is not reproduced.
    """
    compared = ComparedRun(run, named_policy(policy))
    compared.check()
    course, rounds = _finished(_RoundTask(compared, request.seeds), request, report, processes)
    return Regrets(rounds=tuple(map(regret_from_json, rounds)), **course)


def path_of_run(
    run: Run, policy: str, request: RegretRequest, report: Report = lambda done, total: None, processes: int = 1
) -> RegretPath:
    """Return the way from a finished run to the run of another policy, in steps that add up.

    It is stored as the regrets of `regrets_of_run` are. Raise the errors of `regrets_of_run`, and InvalidInputError if
    the run is a fork.
    """
    if DESCENT in run.info:
        raise InvalidInputError(
            f"{run.name} is a fork, and a path begins with the first decision of a run; leave out --path, or name a "
            "run that is no fork"
        )
    compared = ComparedRun(run, named_policy(policy))
    compared.check()
    course, rounds = _finished(_PathTask(compared), request, report, processes)
    facts = dict(course)
    takeovers = [Takeover(**values) for values in (*rounds, facts.pop("last"))]
    return RegretPath(takeovers=tuple(takeovers), **facts)


def _finished(task: _Task, request: RegretRequest, report: Report, processes: int) -> _Finished:
    """Return the rounds of a request. Those that the folder of the run lacks are simulated and stored there.

    Raise SweepInterrupted at Ctrl-C, if a folder has finished rounds from which the next command continues.
    """
    about = task.about()
    file = _file_of(task)
    stored = None if file is None else file.read()
    # Rounds of another run in the folder, or of other settings, are replaced.
    if stored is None or stored.about != about:
        stored = StoredRegret(about, task.course(), {})
    # A line that an earlier command left incomplete must be gone before another one is added.
    if file is not None:
        file.begin(stored)
    numbers = task.numbers(request, stored.course["num_rounds"])
    missing = [number for number in numbers if number not in stored.rounds]
    done = len(numbers) - len(missing)
    report(done, len(numbers))
    try:
        for values in _simulated(task, missing, processes):
            stored.rounds[values["number"]] = values
            if file is not None:
                file.add(values)
            done += 1
            report(done, len(numbers))
    except KeyboardInterrupt:
        if file is None or not done:
            raise
        message = f"interrupted, {done} of {len(numbers)} rounds are kept; the same command continues"
        raise SweepInterrupted(message) from None
    return _Finished(stored.course, [stored.rounds[number] for number in numbers])


def _file_of(task: _Task) -> ComparisonFile | None:
    """Return the file with the finished rounds of a task; None if the run has no folder."""
    folder = task.compared.run.folder
    if folder is None:
        return None
    # A label like las(queue_threshold=3600) has characters that a file name should not have.
    label = re.sub(r"[^\w.=-]+", "-", task.compared.named.label)
    return ComparisonFile(folder / f"{task.kind}-{label}{task.suffix}{ENDING}")


def _simulated(task: _Task, numbers: Sequence[int], processes: int) -> Iterator[dict[str, Any]]:
    """Yield the values of rounds in any order. Several processes simulate them if one would take long."""
    if not numbers:
        return
    # The first round tells how long the others take, at least roughly.
    started = monotonic()
    values_of = task.rounds()
    yield values_of(numbers[0])
    further = numbers[1:]
    count = min(processes, len(further))
    if count <= 1 or (monotonic() - started) * len(further) < WORTH_PROCESSES:
        for number in further:
            yield values_of(number)
        return
    # A copy without what was simulated, which another process cannot get.
    begin = partial(_begin_worker, replace(task, compared=replace(task.compared)))
    with workers(count, begin) as pool:
        # Each process gets its rounds in rising order, and simulates the run once up to the last of them.
        tasks = [(number, _round_in_worker, (number,)) for number in further]
        for _, future in as_finished(pool, tasks, count):
            yield future.result()


_rounds_in_worker: list[Callable[[int], dict[str, Any]]] = []  # in a worker process, the function of its task


def _begin_worker(task: _Task) -> None:
    """Prepare a worker process for its rounds."""
    with exits_raised():
        _rounds_in_worker.append(task.rounds())


def _round_in_worker(number: int) -> dict[str, Any]:
    """Return the values of a round, in a worker process that is prepared."""
    with exits_raised():
        return _rounds_in_worker[-1](number)
