"""Fork runs in drawn worlds to each shipped policy, and check that the policy continues correctly.

    python benchmarks/check_forks.py [--worlds 100] [--policies fifo quotas] [--first 0]

Each run begins under an earlier policy of another kind, or under the policy itself. At a drawn time, the policy takes
over, and nodes and jobs change as well in some of the runs. The script prints a line for each policy: the findings and
the CPU time. Each finding follows with the number of its world. The exit status is 1 if there are findings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from math import inf
from random import Random
from typing import Any, NamedTuple

from check_worlds import run_checks

from polluxsim.checks.checking import made
from polluxsim.checks.driving import FoundError, take_turn
from polluxsim.checks.findings import Fault, Finding, of_error
from polluxsim.checks.laws import RunLaws
from polluxsim.checks.parameters import with_parameters
from polluxsim.checks.random_worlds import Allowed, random_world
from polluxsim.checks.worlds import World
from polluxsim.common.errors import PolluxSimError
from polluxsim.engine.futures import Fork
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.simulation import Simulation
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.policy import Policy, traits_of
from polluxsim.records.results import Result, Status
from polluxsim.run.named_policies import NamedPolicy, named_policy
from polluxsim.workloads.workload import Job

EARLIER = ("fifo", "srtf", "afs", "optimus", "pollux", "sia", "elasticflow", "antman", "gandiva", "muri-s")
"""Policies before a fork: whole gangs, with and without preemption, elastic policies, and policies that share GPUs."""

UNCHANGED = 0.3  # share of the forks under the policy of the run
ODD = 0.8  # share of the forks at times when jobs hold unusual GPUs, if there are such times
ROUND = 60.0  # time between rounds [s]
TABLES = ("round", "allocation", "sharing", "host", "start")  # tables of records with times


class Start(NamedTuple):
    """A run from its beginning: its scenario, and its policy."""

    scenario: Scenario
    policy: Policy

    @classmethod
    def of(cls, guest: NamedPolicy, world: World, *, shares: bool) -> Start:
        """Return the start of a run. Jobs can share GPUs if `shares`, whether or not the policy does."""
        policy = made(guest, world)
        traits = traits_of(policy)
        scenario = world.scenario(replace(traits, shares_gpus=shares), policy.label)
        return cls(replace(scenario, traits=traits), policy)

    def until(self, time: float) -> Simulation:
        """Return the run just before a time [s]."""
        run = Simulation(self.scenario, seed=1)
        _drive(run, self.policy, time)
        return run


def _drive(run: Simulation, policy: Policy, before: float = inf, laws: RunLaws | None = None) -> None:
    while (view := run.advance(before)) is not None:
        take_turn(run, policy, view, laws=laws)


def checked_fork(policy: str, number: int) -> Iterator[Finding]:
    """Yield the faults after a drawn fork to a policy. A number always gives the same world and fork."""
    rng, guest = Random(f"{policy} {number}"), named_policy(policy)
    earlier = guest if rng.random() < UNCHANGED else named_policy(rng.choice(EARLIER))
    traits = [traits_of(each.make()) for each in (earlier, guest)]
    limits = [Allowed.under(each) for each in traits]
    allowed = Allowed(*(all(getattr(each, name) for each in limits) for name in ("rigid", "types", "scaled")))
    world = random_world(number, allowed)
    if number % 2:
        world = replace(world, jobs=tuple(_longer(job) for job in world.jobs))
    world = with_parameters(world, guest, number)
    before = world if earlier is guest else replace(world, parameters=())
    shares = any(each.shares_gpus for each in traits)
    whole = Start.of(earlier, before, shares=shares).until(inf).result()
    time = _time(whole, world, rng)
    start = Start.of(earlier, before, shares=shares)
    run = start.until(time)
    here = start if earlier is guest else Start.of(guest, world, shares=shares)
    ending = {job.job for job in whole.job_records if job.end_time == time}
    active = [job for job, _ in run.active(time) if job.job_id not in ending]
    fork = Fork(time, here.scenario, has_new_policy=here is not start)
    fork = _fork(fork, world, active, {*run.waiting}, rng)
    lost = [(node, time, inf) for node in fork.lost_nodes]
    altered = {job.job_id: job for job in (*world.jobs, *fork.altered, *fork.added)}
    laws = RunLaws(replace(world, jobs=tuple(altered.values()), outages=(*world.outages, *lost)), here.policy)
    what = f"{earlier.name} until {time:g} s"
    what += "".join(f", {name}" for name in CHANGES if getattr(fork, name))
    try:
        run.fork(fork)
        _drive(run, here.policy, laws=laws)
        result = run.result()
        laws.check_end(result)
        findings = [*laws.findings.values(), *_other_past(whole, result, time), *_left(whole, result)]
    except FoundError as error:
        findings = [error.finding]
    except Exception as error:  # noqa: BLE001  (of the engine)
        findings = [of_error(error, f"{type(error).__name__}: {error}")]
    for finding in findings:
        # Promises that the policy itself made before the fork are unknown, or void because jobs have changed.
        if finding.fault not in (Fault.DEADLINE, Fault.RESERVATION) or earlier is not guest:
            yield replace(finding, message=f"{what}: {finding.message}", world=world)


def _longer(job: Job) -> Job:
    """Return the job with a third of its GPUs and, if it has a duration, more work, so that jobs can grow or share.

    Its CPUs become a third as well.
    """
    gpus = -(-job.num_replicas // 3)
    cpus = None if job.cpus is None else job.cpus * gpus / job.num_replicas
    batch_size = job.batch_size if job.speeds else job.batch_size // job.num_replicas * gpus
    duration = None if job.duration is None else 3 * job.duration
    return replace(
        job, num_replicas=gpus, batch_size=batch_size, duration=duration, min_replicas=None, cancel_time=None, cpus=cpus
    )


def _time(whole: Result, world: World, rng: Random) -> float:
    """Return a time of a fork [s], at most a round after a job arrived, ended, got GPUs, or lost them.

    In most runs where jobs shared GPUs or held other numbers of GPUs than requested, one of them just began to do so.
    """
    requests = {job.job_id: job.num_replicas for job in world.jobs}
    more = [each.time for each in whole.allocation_records if sum(each.gpus) > requests[each.job]]
    odd = more or [each.time for each in whole.allocation_records if 0 < sum(each.gpus) < requests[each.job]]
    odd += [each.time for each in whole.sharing_records if each.gpus and each.speed < 1.0]
    times = [each.time for each in whole.allocation_records] + [
        max(each.submit_time, 0.0) for each in whole.job_records
    ]
    time = rng.choice(odd if odd and rng.random() < ODD else [time for time in times if time < whole.end_time])
    return min(time + ROUND * rng.choice([1.0, rng.random()]), whole.end_time)


CHANGES = ("lost_nodes", "without", "added", "seed", "altered", "overtaken")


def _fork(fork: Fork, world: World, active: Sequence[Job], waits: Collection[JobId], rng: Random) -> Fork:
    """Return a fork with drawn changes of nodes and active jobs, after which each job can still start."""
    changes: dict[str, Any] = {}
    likely = 0.4
    if rng.random() < likely / 2 and (nodes := _spare_nodes(world)):
        changes["lost_nodes"] = (rng.choice(nodes),)
    if rng.random() < likely / 2:
        changes["without"] = (left_out := rng.choice(world.jobs).job_id,)
        active = [job for job in active if job.job_id != left_out]
    if rng.random() < likely:
        alike = rng.choice(world.jobs)
        new = replace(alike, job_id="added", submit_time=0.0, past=None, deadline=None, cancel_time=None)
        if not new.speeds and rng.random() < 0.7:
            new = replace(new, num_replicas=1, min_replicas=None, batch_size=1 if new.is_rigid else 10)
        changes["added"] = (replace(new, submit_time=fork.time + rng.choice([0.0, 100.1])),)
    if fork.has_new_policy:
        return fork._replace(**changes)
    if rng.random() < likely:
        changes["seed"] = 2
    if (waiting := [job for job in active if job.job_id in waits and not job.speeds]) and rng.random() < likely:
        changes["altered"] = (_with_another_request(rng.choice(waiting), world, rng),)
    elif (rigid := [job for job in active if job.duration]) and rng.random() < likely:
        job = rng.choice(rigid)
        duration = (job.duration or 0.0) * rng.choice([0.5, 2.0])
        if job.past is None or job.past.progress < duration:
            changes["altered"] = (replace(job, duration=duration),)
    if len(active) > 1 and rng.random() < likely:
        first, second = sorted(rng.sample(range(len(active)), 2))
        changes["overtaken"] = ((active[second].job_id, active[first].job_id),)
    return fork._replace(**changes)


def _spare_nodes(world: World) -> list[int]:
    """Return the nodes without which each job still fits on each GPU type on which it fits with all nodes."""
    if world.least_nodes is not None:
        return []
    types = world.types or ("",) * len(world.nodes)
    found = []
    for node, gpu_type in enumerate(types):
        gpus = sum(count for count, name in zip(world.nodes, types, strict=True) if name == gpu_type)
        if not any(gpus - world.nodes[node] < job.num_replicas <= gpus for job in world.jobs):
            found.append(node)
    return found


def _with_another_request(job: Job, world: World, rng: Random) -> Job:
    """Return the job with another number of GPUs, up to the largest request in the world."""
    most = min(max(each.num_replicas for each in world.jobs), job.max_replicas or 64)
    gpus = rng.randint(job.min_replicas or 1, most)
    return replace(job, num_replicas=gpus, batch_size=gpus if job.is_rigid else job.batch_size)


def _other_past(whole: Result, result: Result, time: float) -> Iterator[Finding]:
    """Yield a finding if the fork changed a record from before its time [s]."""
    for table in TABLES:
        records = [getattr(each, f"{table}_records") for each in (whole, result)]
        one, two = ([repr(record) for record in each if record.time < time] for each in records)
        if one != two:
            pair = next(pair for pair in zip([*one, "none"], [*two, "none"], strict=False) if pair[0] != pair[1])
            yield Finding(Fault.MEMORY, f"the fork changed the past: {pair[0]} became {pair[1]}")


def _left(whole: Result, result: Result) -> Iterator[Finding]:
    """Yield a finding for jobs that wait for ever after a fork, although they end without it."""
    cut_off = {job.job for job in whole.job_records if job.status is Status.CUT_OFF}
    left = [job.job for job in result.job_records if job.status is Status.CUT_OFF and job.job not in cut_off]
    if left:
        what = f"{len(left)} jobs, the first is {left[0]!r}, are not complete at {result.end_time:g} s"
        yield Finding(Fault.STARVATION, result.standstill or what)


def main() -> None:
    run_checks(__doc__, 100, "forks", _check)


def _check(name: str, numbers: Sequence[int]) -> dict[object, tuple[int, Finding]]:
    """Return the first finding of each fault of a policy, with the number of its world."""
    findings = dict[object, tuple[int, Finding]]()
    for number in numbers:
        try:
            for finding in checked_fork(name, number):
                findings.setdefault(finding.kind, (number, finding))
        except (PolluxSimError, FoundError) as error:  # before the fork
            findings.setdefault(("world", str(error)), (number, Finding(Fault.ERROR, str(error))))
    return findings


if __name__ == "__main__":
    main()
