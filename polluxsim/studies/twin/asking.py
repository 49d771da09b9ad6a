"""The situation of a question to the twin: what is known about a live cluster, and what its futures assume.

The twin of a cluster with Slurm simulates futures from the present state of the cluster (see `futures`). A question
first gathers what they need: the state as a world of the simulation, the parameters of the schedulers, the earlier jobs
from which run times are drawn, and the jobs that arrive later. Each of these has several sources. The notes of a
situation say which one was used, and what is assumed.
"""

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
from polluxsim.studies.twin.asks import Ask, NodeNeeds, ask_of
from polluxsim.studies.twin.estimates import fitted_parameters
from polluxsim.studies.twin.futures import Arrivals, FutureSource, no_arrivals, recent_arrivals
from polluxsim.studies.twin.history import Arrival, JobHistory, PastJob, known_at, of_queue, read_history, shifted
from polluxsim.studies.twin.later_priorities import BASIC_PRIORITIES, weights_of
from polluxsim.studies.twin.settings import given_policy, parameters_of, stated
from polluxsim.studies.twin.world import TwinWorld
from polluxsim.workloads.job import Job
from polluxsim.workloads.workload import read_workload

# Values of `arrivals` that are no file.
NONE = "none"
RECENT = "recent"

FIRST_DATE = 365 * 86_400  # a time before this one counts from the start of a recording, and not from 1970 [s]


@dataclass(frozen=True)
class TwinSituation:
    """A live cluster, and all that its futures assume."""

    world: TwinWorld  # the present state, under the parameters of the schedulers
    source: FutureSource  # from where the futures take run times and later jobs
    notes: Sequence[str]  # sentences on what is assumed, left out or missing

    def names(self, asked: Sequence[str]) -> list[str]:
        """Return the names of the asked jobs; without any, those of all pending jobs that have an estimate.

        Raise InvalidInputError if a job neither waits nor runs, or has no estimate.
        """
        pending = [job.name for job in self.world.pending]
        with_estimate = [*pending, *(job.name for job in self.world.running)]
        for name in asked:
            if name in self.world.kept_out:
                raise InvalidInputError(
                    f"job {name} has no estimate, as all pending jobs that {self.world.kept_out[name]}; leave it out"
                )
            if name not in with_estimate:
                hint = did_you_mean(name, with_estimate)
                raise InvalidInputError(
                    f"{name} neither waits nor runs in {self.world.state.source}{hint}; give the id of a job as squeue "
                    "prints it"
                )
        return list(asked) or pending


def situation(
    state: SlurmState,
    *,
    policy: str | None = None,
    history: Path | None = None,
    arrivals: str = RECENT,
    zone: tzinfo = UTC,
) -> TwinSituation:
    """Return the situation of a question about a state.

    Parameters
    ----------
    state
        The present state of the cluster.
    policy
        Slurm's policy with its settings; without it, the configuration of the state, or the parameters whose plans
        agree best with `squeue --start`.
    history
        Output of sacct, or a recorded run, with earlier jobs; without it, the sacct of the state, or the jobs in the
        queue that ended.
    arrivals
        Later jobs: none, recent ones, or the name of a workload file.
    zone
        Time zone of the local times in `history`.

    Raises
    ------
    InvalidConfigError
        If the policy is not Slurm's.
    InvalidInputError
        If a file cannot be read.
    """
    parameters, sentence = _parameters(state, policy)
    past = _past(state, history, zone)
    has_log = history is not None or bool(state.sacct)
    later, about_arrivals = _arrivals(past, state, arrivals, has_log=has_log)
    world = TwinWorld(state, parameters)
    notes = [*state.notes, sentence, *past.notes, _about_run_times(past), about_arrivals]
    notes.append(_about_fair_shares(state))
    for reason, count in Counter(world.kept_out.values()).items():
        notes.append(f"without estimate, and assumed to delay no other job: {count} pending jobs that {reason}")
    if state.missing:
        notes.append(f"missing inputs: {', '.join(state.missing)}")
    return TwinSituation(world, FutureSource(past, later), [note for note in notes if note])


def _parameters(state: SlurmState, policy: str | None) -> tuple[Parameters, str]:
    """Return the parameters of the schedulers, and a sentence on where they come from.

    What the user gives goes before what the state says. The last resort are the parameters that explain the expected
    starts in the queue best.
    """
    if policy is not None:
        return parameters_of(vars(given_policy(policy))), f"parameters of the schedulers: {policy}"
    if state.settings:
        of_config = stated(state.settings)
        # A parameter that is not modelled can change starts, so it is named.
        sentence = "parameters of the schedulers: config.txt"
        if of_config.unused:
            sentence += f", without {', '.join(of_config.unused)}"
        return parameters_of(of_config.values), sentence
    return fitted_parameters(TwinWorld(state, Parameters()))


def _about_fair_shares(state: SlurmState) -> str:
    """Return a sentence on the fair-share factors; empty if the state has none, or its priorities need none."""
    is_basic = any(job.priority > BASIC_PRIORITIES for job in state.jobs)
    if not state.fair_shares or is_basic:
        return ""
    if weights_of(state) is None:
        return "sshare.txt is not used: config.txt states no PriorityWeightFairShare"
    users = number_of(len({user for _, user in state.fair_shares}), "user")
    return f"priorities of later jobs: with the fair-share factors of {users} (sshare.txt)"


def _past(state: SlurmState, history: Path | None, zone: tzinfo) -> JobHistory:
    """Return the earlier jobs that are known at the time of a state."""
    notes: list[str] = []
    jobs: list[PastJob]
    if history is not None:
        jobs, notes = read_history(history, zone)
        if not _has_dates(jobs):
            jobs = shifted(jobs, state.now)
    elif state.sacct:
        # The reader of sacct reads files only. The queries print times in UTC, whatever the zone of another output.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sacct.txt"
            path.write_text(state.sacct, encoding="utf-8")
            jobs, notes = read_history(path)
    else:
        jobs = of_queue(state, ask_of)
    return known_at(jobs, state.now, notes)


def _has_dates(jobs: Sequence[PastJob]) -> bool:
    """Return whether the times of jobs count from 1970; true without jobs.

    A recorded run without a date has times since its own start, which lasts less than a year.
    """
    return not jobs or max(job.submit for job in jobs) >= FIRST_DATE


def _about_run_times(past: JobHistory) -> str:
    """Return a sentence on where the run times of a future come from."""
    count = len(past.ended)
    if not count:
        return (
            "no earlier job is known, so each share of the time limit is equally likely; --history gives earlier jobs"
        )
    return f"run times, failures included: drawn from {number_of(count, 'earlier job')}"


def _arrivals(past: JobHistory, state: SlurmState, arrivals: str, *, has_log: bool) -> tuple[Arrivals, str]:
    """Return the source of the later jobs, and a sentence on them.

    `has_log` tells whether there is a log of earlier jobs. The queue alone lacks most of the jobs that were
    submitted lately and have ended.
    """
    if arrivals == NONE:
        return no_arrivals, "later jobs: none"
    if arrivals == RECENT:
        if not has_log:
            return (
                no_arrivals,
                "later jobs: none, because a state does not tell how many jobs arrive; --history FILE tells it",
            )
        recent = number_of(len(past.recent), "job")
        return recent_arrivals(past), f"later jobs: {recent} of the last {length(past.span)} drawn again, for as long"
    # A cluster whose nodes state no GPUs still has nodes for jobs.
    most_gpus = max([node.gpus for node in state.nodes if node.gpus], default=1)
    later = [_arrival(job, most_gpus, state.now) for job in read_workload(Path(arrivals)).jobs]

    def given(rng: np.random.Generator) -> Sequence[Arrival]:
        """Return the same jobs in each future."""
        return later

    return given, f"later jobs: {number_of(len(later), 'job')} of {arrivals}"


def _arrival(job: Job, most_gpus: int, now: int) -> Arrival:
    """Return a job of a workload as one that arrives later. Second 0 of the workload is now.

    It gets the fewest nodes that can have its GPUs, of which a node has at most `most_gpus`.
    """
    num_nodes = ceil(job.num_replicas / most_gpus)
    limit = UNLIMITED
    if job.time_limit:
        limit = ceil(job.time_limit / 60) * 60  # Slurm keeps limits in whole minutes
    ask = Ask(
        num_nodes=num_nodes,
        gpus=ceil(job.num_replicas / num_nodes),
        cpus=1,
        states_tasks=False,
        limit=limit,
        user=job.user or "",
        kind=NodeNeeds((job.queue,) if job.queue else ()),
    )
    # The kernels count whole seconds, and a job takes at least one.
    duration = None if job.duration is None else max(int(job.duration), 1)
    return Arrival(ask, account="", submit=now + int(job.submit_time), duration=duration)


def check_policy_folder(folders: Sequence[Path]) -> str | None:
    """Return the name of the only policy in folders of configurations; None without any.

    Raise InvalidConfigError if there are several.
    """
    # A policy may be in several of the folders under one name, like a file that replaces another.
    names = sorted({path.stem for folder in folders for path in (folder / "policy").glob("*.yaml")})
    if len(names) > 1:
        raise InvalidConfigError(f"--config-dir has several policies, {', '.join(names)}; choose one with --policy")
    return names[0] if names else None
