"""Make the situation of a question to the twin: the state, the parameters, the history and the later arrivals."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from math import ceil
from pathlib import Path

import numpy as np

from polluxsim.common.durations import length
from polluxsim.common.errors import InvalidConfigError, InvalidInputError, did_you_mean
from polluxsim.common.phrases import number_of
from polluxsim.logs.live.jobs import UNLIMITED
from polluxsim.logs.live.state import SlurmState
from polluxsim.policies.slurm.parameters import Parameters
from polluxsim.studies.twin.asks import Ask, Kind, ask_of
from polluxsim.studies.twin.estimates import fitted_parameters
from polluxsim.studies.twin.futures import Arrivals, Source, no_arrivals, recent_arrivals
from polluxsim.studies.twin.history import Arrival, History, PastJob, known_at, of_queue, read_history, shifted
from polluxsim.studies.twin.later_priorities import BASIC_PRIORITIES, weights_of
from polluxsim.studies.twin.settings import given_policy, parameters_of, stated
from polluxsim.studies.twin.world import World
from polluxsim.workloads.workload import read_workload

NONE = "none"
RECENT = "recent"


@dataclass(frozen=True)
class Situation:
    """A world, from where its futures come, and sentences on what is assumed."""

    world: World
    source: Source
    notes: Sequence[str]

    def names(self, asked: Sequence[str]) -> list[str]:
        """Return the names of the asked jobs; without any, those of all pending jobs.

        Raise InvalidInputError if a job is not in the queue, or has no estimate.
        """
        pending = [job.name for job in self.world.pending]
        known = [*pending, *(job.name for job in self.world.running)]
        for name in asked:
            if name in self.world.kept_out:
                raise InvalidInputError(
                    f"job {name} has no estimate, as all pending jobs that {self.world.kept_out[name]}; leave it out"
                )
            if name not in known:
                raise InvalidInputError(
                    f"{name} neither waits nor runs in {self.world.state.source}{did_you_mean(name, known)}; give the "
                    "id of a job as squeue prints it"
                )
        return list(asked) or pending


def situation(
    state: SlurmState,
    *,
    policy: str | None = None,
    history: Path | None = None,
    arrivals: str = RECENT,
    zone: tzinfo = UTC,
) -> Situation:
    """Return the situation of a question about a state.

    Parameters
    ----------
    policy
        Slurm's policy with its settings; without it, the configuration of the state, or the parameters whose plans
        agree best with `squeue --start`.
    history
        Output of sacct, or a recorded run, with earlier jobs; without it, the sacct of the state, or the jobs in the
        queue that ended.
    arrivals
        Later jobs: none, recent ones, or the name of a workload file.
    zone
        Time zone of an output of sacct.
    """
    parameters, sentence = _parameters(state, policy)
    past = _past(state, history, zone)
    later, about_arrivals = _arrivals(past, state, arrivals, has_log=history is not None or bool(state.sacct))
    world = World(state, parameters)
    notes = [*state.notes, sentence, *past.notes, _about_run_times(past), about_arrivals]
    notes.append(_about_fair_shares(state))
    for reason, count in Counter(world.kept_out.values()).items():
        notes.append(f"without estimate, and assumed to delay no other job: {count} pending jobs that {reason}")
    if state.missing:
        notes.append(f"missing inputs: {', '.join(state.missing)}")
    return Situation(world, Source(past, later), [note for note in notes if note])


def _parameters(state: SlurmState, policy: str | None) -> tuple[Parameters, str]:
    """Return the parameters of the schedulers, and a sentence on where they come from."""
    if policy is not None:
        return parameters_of(vars(given_policy(policy))), f"parameters of the schedulers: {policy}"
    if state.settings:
        of_config = stated(state.settings)
        sentence = "parameters of the schedulers: config.txt"
        if of_config.unused:
            sentence += f", without {', '.join(of_config.unused)}"
        return parameters_of(of_config.values), sentence
    return fitted_parameters(World(state, Parameters()))


def _about_fair_shares(state: SlurmState) -> str:
    """Return a sentence on the fair-share factors; empty if the state has none, or its priorities need none."""
    is_basic = any(job.priority > BASIC_PRIORITIES for job in state.jobs)
    if not state.fair_shares or is_basic:
        return ""
    if weights_of(state) is None:
        return "sshare.txt is not used: config.txt states no PriorityWeightFairShare"
    users = number_of(len({user for _, user in state.fair_shares}), "user")
    return f"priorities of later jobs: with the fair-share factors of {users} (sshare.txt)"


def _past(state: SlurmState, history: Path | None, zone: tzinfo) -> History:
    """Return the earlier jobs that are known at the time of a state."""
    notes: list[str] = []
    jobs: list[PastJob]
    if history is not None:
        jobs, notes = read_history(history, zone)
        if jobs and max(job.submit for job in jobs) < 86_400 * 365:
            jobs = shifted(jobs, state.now)
    elif state.sacct:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sacct.txt"
            path.write_text(state.sacct, encoding="utf-8")
            jobs, notes = read_history(path)
    else:
        jobs = of_queue(state, ask_of)
    return known_at(jobs, state.now, notes)


def _about_run_times(past: History) -> str:
    """Return a sentence on the run times."""
    count = len(past.ended)
    if not count:
        return (
            "no earlier job is known, so each share of the time limit is equally likely; --history gives earlier jobs"
        )
    return f"run times, failures included: drawn from {number_of(count, 'earlier job')}"


def _arrivals(past: History, state: SlurmState, arrivals: str, *, has_log: bool) -> tuple[Arrivals, str]:
    """Return the later jobs, and a sentence on them."""
    if arrivals == NONE:
        return no_arrivals, "later jobs: none"
    if arrivals == RECENT:
        if not has_log:
            return no_arrivals, "later jobs: none, because no log of earlier jobs is given (--history)"
        recent = number_of(len(past.recent), "job")
        return recent_arrivals(past), f"later jobs: {recent} of the last {length(past.span)} drawn again, for as long"
    jobs = read_workload(Path(arrivals)).jobs
    most = max((node.gpus for node in state.nodes), default=1) or 1
    later = []
    for job in jobs:
        gpus = job.num_replicas
        num_nodes = ceil(gpus / most)
        limit = ceil(job.time_limit / 60) * 60 if job.time_limit else UNLIMITED
        kind = Kind((job.queue,) if job.queue else ())
        ask = Ask(num_nodes, ceil(gpus / num_nodes), 1, False, limit, job.user or "", kind)
        duration = None if job.duration is None else max(int(job.duration), 1)
        later.append(Arrival(ask, "", state.now + int(job.submit_time), duration))

    def given(rng: np.random.Generator) -> Sequence[Arrival]:
        return later

    return given, f"later jobs: {number_of(len(later), 'job')} of {arrivals}"


def check_policy_folder(folders: Sequence[Path]) -> str | None:
    """Return the name of the only policy in folders of configurations; None without any.

    Raise InvalidConfigError if there are several.
    """
    names = sorted({path.stem for folder in folders for path in (folder / "policy").glob("*.yaml")})
    if len(names) > 1:
        raise InvalidConfigError(f"--config-dir has several policies, {', '.join(names)}; choose one with --policy")
    return names[0] if names else None
