"""The score of a program in the stages of a task.

The score is the geometric mean of bound / mean JCT over the worlds of a stage. A program that is refused, faulty or
late has the score 0. Each world is run in a new process of the program, so that no world sees another one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from polluxsim.checks.driving import FoundError, run_policy
from polluxsim.checks.laws import RunLaws
from polluxsim.checks.random_worlds import Allowed, random_world
from polluxsim.common.errors import InvalidInputError, PolicyError, PolluxSimError
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.elastic.cluster_size import IDLE_TIME, PendingGpus, Scaled
from polluxsim.policies.guest.faults import LateProgramError, ProgramError
from polluxsim.policies.guest.host import GuestPolicy, Program
from polluxsim.policies.guest.source import check_source
from polluxsim.records.results import Result, Status
from polluxsim.statistics.estimates import log_ratios, ratio_of_geometric_means
from polluxsim.studies.evolution.costly_rounds import MOST_DECISIONS, costly_rounds
from polluxsim.studies.evolution.task import FULL, HELD_OUT, SHORT, Task, combined
from polluxsim.studies.evolution.worlds import TaskWorld, mean_jct, run

ROUNDS_TIME = 60.0  # longest time for the comparison of rounds [s]

SUCCESS, ERROR, TIMEOUT = "success", "error", "timeout"

NUMBER_OF = {SHORT: 1.0, FULL: 2.0, HELD_OUT: 3.0}  # value of the metric `stage`

METRICS = (
    "combined_score", "jct_over_bound", "worst_jct_over_bound", "gain", "gain_low", "gain_high", "faults",
    "decision_ms", "stage",
)  # fmt: skip
"""All metrics, in order."""


@dataclass(frozen=True)
class Ran:
    """The run of a program in a world."""

    world: TaskWorld
    mean_jct: float  # [s]
    result: Result


@dataclass(frozen=True)
class Score:
    """What a program reached in a stage.

    Attributes
    ----------
    status
        `success`, `error` or `timeout`.
    stage
        `short`, `full` or `held-out`.
    metrics
        Numbers by the names in `METRICS`.
    faults
        Sentences on what is wrong with the program.
    runs
        The runs in the worlds of the stage; empty if the program is faulty.
    rounds
        The costliest rounds of the program in one world; empty if the program is faulty, and in other stages than the
        full one.
    """

    status: str
    stage: str
    metrics: dict[str, float]
    faults: tuple[str, ...] = ()
    runs: tuple[Ran, ...] = ()
    rounds: str = ""

    @property
    def value(self) -> float:
        """Return the score."""
        return self.metrics["combined_score"]


@dataclass
class _Scorer:
    """Run one program in processes of its own, until a time on the clock `time.monotonic` [s]."""

    source: str
    task: Task
    until: float
    seconds: float = 0.0  # of all decisions
    num_decisions: int = 0
    num_processes: int = field(default=0)

    def guest(self) -> GuestPolicy:
        """Return the program in a new process, with another seed of hashes."""
        self.num_processes += 1
        # A program whose result depends on the order of a set is not right by luck, and a repetition gives the same.
        digest = hashlib.sha256(f"{self.source} {self.num_processes}".encode()).digest()
        hash_seed = int.from_bytes(digest[:4], "big")
        return GuestPolicy(Program(self.source), hash_seed, self.task.limits, self.until)

    def rounds(self, runs: Sequence[Ran]) -> str:
        """Return the costliest rounds of the world that is farthest from its bound, as long as there is time.

        Worlds with more than `MOST_DECISIONS` decisions are only considered if all are.
        """
        candidates = [one for one in runs if len(one.result.round_records) <= MOST_DECISIONS]
        if not candidates:
            candidates = list(runs)
        worst = max(candidates, key=lambda one: one.mean_jct / one.world.bound)
        until = min(self.until, monotonic() + ROUNDS_TIME)

        def make(family: list[GuestPolicy]) -> GuestPolicy:
            return GuestPolicy(Program(self.source), 0, self.task.limits, until, family)

        return costly_rounds(worst.world, self.source, make)

    def count(self, guest: GuestPolicy) -> None:
        """Count the decisions of a process."""
        self.seconds += guest.seconds
        self.num_decisions += guest.num_decisions

    def fault_in_checks(self) -> str | None:
        """Return the first fault of the program in the worlds of `check`, or None."""
        for number in range(self.task.checks):
            fault = self.fault_in_check(number)
            if fault is not None:
                return f"in world {number} of 'polluxsim check': {fault}"
        return None

    def fault_in_check(self, number: int) -> str | None:
        """Return the fault of the program in one world of `check`, or None. Raise LateProgramError if it is late."""
        with self.guest() as guest:
            world = random_world(number, Allowed.under(guest.traits))
            policy: Policy = guest
            if world.is_scaled:
                policy = Scaled(guest, PendingGpus(), idle_time=IDLE_TIME * world.clock)
            laws = RunLaws(world, policy)
            try:
                result = run_policy(world, policy, laws=laws)
            except FoundError as error:
                cause = error.__cause__
                # A late program has another status than a faulty one.
                if isinstance(cause, LateProgramError):
                    raise cause from None
                return f"{error.finding.fault}: {error.finding.message}"
            finally:
                self.count(guest)
        if laws.findings:
            finding = next(iter(laws.findings.values()))
            return f"{finding.fault}: {finding.message}"
        # A program that never starts a job breaks no law, but its run ends with the world.
        if any(record.status is Status.CUT_OFF for record in result.job_records):
            return f"starvation: {result.standstill or 'jobs are not complete at the end of the world'}"
        return None

    def run(self, world: TaskWorld) -> Ran:
        """Return the run of the program in a world."""
        with self.guest() as guest:
            try:
                # The source determines the names of the jobs, so that a changed program meets other names.
                result = run(world, guest, self.source)
            finally:
                self.count(guest)
        return Ran(world, mean_jct(world, result), result)


def score(source: str, task: Task, stage: str) -> Score:
    """Return the score of a program in a stage of a task.

    The short stage first runs the program in the worlds of `check`. No error of the program is raised: the score then
    has the status `error` or `timeout`, and the error as its only fault.
    """
    scorer = _Scorer(source, task, monotonic() + task.stage_limits.of(stage))
    try:
        # Each process checks the source as well, but this is done before the first one is started.
        check_source(source)
        fault = scorer.fault_in_checks() if stage == SHORT else None
        if fault is not None:
            return failed(ERROR, stage, [fault])
        runs = [scorer.run(world) for world in task.worlds_of(stage)]
        rounds = scorer.rounds(runs) if stage == FULL else ""
    # The order matters, because a late program is a PolicyError, too.
    except LateProgramError as error:
        return failed(TIMEOUT, stage, [str(error)])
    except (PolicyError, PolluxSimError) as error:
        return failed(ERROR, stage, [str(error)])
    decision_ms = 1000 * scorer.seconds / max(scorer.num_decisions, 1)
    return replace(_scored(stage, runs, decision_ms), rounds=rounds)


def read_program(path: Path) -> str:
    """Return the source of a program. Raise InvalidInputError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"the program {path} cannot be read: {error.strerror}; give a Python file") from None
    except UnicodeDecodeError:
        raise InvalidInputError(f"the program {path} is no text in UTF-8; give a Python file") from None


def failed(status: str, stage: str, faults: Sequence[str]) -> Score:
    """Return the score of a program that is refused, faulty or late."""
    metrics = dict.fromkeys(METRICS, 0.0)
    # A gain of −100 % is that of a program whose jobs never end.
    metrics |= {"gain": -1.0, "gain_low": -1.0, "gain_high": -1.0}
    metrics |= {"faults": float(len(faults)), "stage": NUMBER_OF[stage]}
    return Score(status, stage, metrics, tuple(faults))


def _scored(stage: str, runs: Sequence[Ran], decision_ms: float) -> Score:
    """Return the score of runs in the worlds of a stage."""
    worlds = [one.world for one in runs]
    values = [one.mean_jct for one in runs]
    ratios = [one.mean_jct / one.world.bound for one in runs]
    # A gain above 0 is a smaller mean JCT than that of the initial program.
    logs = log_ratios([world.initial for world in worlds], values)
    gain = ratio_of_geometric_means(logs).as_change()
    value = combined(worlds, values)
    # A single world has no interval.
    metrics = {
        "combined_score": value,
        "jct_over_bound": float(np.exp(np.mean(np.log(ratios)))),
        "worst_jct_over_bound": max(ratios),
        "gain": gain.value,
        "gain_low": gain.value if gain.low is None else gain.low,
        "gain_high": gain.value if gain.high is None else gain.high,
        "faults": 0.0,
        "decision_ms": decision_ms,
        "stage": NUMBER_OF[stage],
    }
    return Score(SUCCESS, stage, metrics, runs=tuple(runs))


def as_plain(score: Score, artifacts: dict[str, str]) -> dict[str, Any]:
    """Return a score as `evolve score` prints it. Of held-out worlds, only the status, score and gain come back."""
    metrics = score.metrics
    # Whoever learns more about the held-out worlds could write a program for them.
    if score.stage == HELD_OUT:
        metrics = {name: metrics[name] for name in ("combined_score", "gain")}
        artifacts = {}
    return {"status": score.status, "combined_score": score.value, "metrics": metrics, "artifacts": artifacts}


__all__ = ["ERROR", "METRICS", "SUCCESS", "TIMEOUT", "ProgramError", "Score", "as_plain", "read_program", "score"]
