"""Programs that polluxsim writes: the initial one, and random ones that order jobs by a formula.

The numbers of a random program stand in its source as constants, like `SERVICE = 1.0`. `changed_program` reads them
there, so that a program is fully described by its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polluxsim.policies.contract.policy import Policy, as_policy
from polluxsim.policies.guest.source import CLASS
from polluxsim.studies.evolution.worlds import TaskWorld, mean_jct, run

START, END = "# EVOLVE-BLOCK-START", "# EVOLVE-BLOCK-END"

INITIAL_PROGRAM = f'''"""A policy of whole jobs. Change the block, and keep the name of the class."""

{START}
import math

from polluxsim.policies.contract.view import Traits
from polluxsim.policies.tools.gangs import gangs_by

QUANTUM = 3600.0  # attained service is counted in quanta of this size [GPU s]


class {CLASS}:
    """Least attained service: the jobs that have had the fewest quanta of GPU time come first."""

    traits = Traits(slices_time=True)  # jobs take turns on GPUs

    def allocate(self, view, rng):
        """Return a decision: which job gets which GPUs until the next round.

        `view.time` is the time [s], and `view.jobs` has the jobs that are submitted and have not ended, in order of
        submission. A job has `job_id`, `submit_time` [s], `num_replicas` (the GPUs that it requests),
        `attained_service` [GPU s], `num_restarts`, `placement` (empty while it waits) and `queue`. After each change of
        its GPUs, it does not train for `view.delay_of(job)` [s]. `gangs_by` gives GPUs to whole jobs in ascending order
        of a key. A job that fits may overtake. Its answer is valid until a job arrives or ends, or until `lasts_until`.
        """
        return gangs_by(view, quanta, lambda job: {{}}, lasts_until=next_quantum(view))


def quanta(job):
    """Return the number of whole quanta that a job has had. A millionth of a quantum allows for rounding."""
    return math.floor(job.attained_service / QUANTUM + 1e-6)


def next_quantum(view):
    """Return the time at which the first running job completes its quantum [s]."""
    times_left = [((quanta(job) + 1) * QUANTUM - job.attained_service) / job.num_replicas for job in view.jobs]
    return view.time + min(times_left, default=math.inf)
{END}
'''
"""The policy LAS, as a program that may be changed."""

# Weights of the terms of a random key, among which each is drawn.
SERVICE = (-1.0, 0.0, 0.5, 1.0, 1.0, 1.0, 2.0)  # of the service that a job has had
EXPECTED = (0.0, 0.0, 0.5, 1.0, 1.0, 2.0)  # of the service that similar jobs would still need
GPUS = (-1.0, 0.0, 0.0, 0.5, 1.0, 2.0)  # of the GPUs that it requests
WAITED = (-1.0, -0.5, 0.0, 0.0, 0.5)  # of the time since its submission
RUNNING = (0.0, 0.0, 0.2, 0.5, 1.0, 3.0)  # by how much a running job comes earlier

SCALES = (60.0, 600.0, 3600.0, 14400.0)  # service and times from which the logarithms grow [s]
INTERVALS = (300.0, 600.0, 1800.0)  # time between decisions without an event [s]


def random_program(rng: np.random.Generator) -> str:
    """Return the source of a random program, which orders jobs by a sum of logarithms; running jobs come earlier."""
    # The order of the draws is part of the result of a seed.
    values = {
        "service": float(rng.choice(SERVICE)),
        "expected": float(rng.choice(EXPECTED)),
        "gpus": float(rng.choice(GPUS)),
        "waited": float(rng.choice(WAITED)),
        "running": float(rng.choice(RUNNING)),
        "service_scale": float(rng.choice(SCALES)),
        "unknown_scale": float(rng.choice(SCALES)),
        "waited_scale": float(rng.choice(SCALES)),
        "interval": float(rng.choice(INTERVALS)),
    }
    return program_of(values)


def changed_program(source: str, rng: np.random.Generator) -> str:
    """Return the source of a random program with other values of one or two of its numbers."""
    values = _values_in(source)
    names = sorted(values)
    for name in rng.choice(names, size=int(rng.integers(1, 3)), replace=False):
        value = values[str(name)]
        # Times stay above 0, because they are multiplied. Weights may become 0 or change their sign.
        if str(name).endswith(("scale", "interval")):
            changed = value * float(rng.choice([0.5, 0.7, 1.5, 2.0]))
        else:
            changed = value + float(rng.choice([-0.5, -0.2, 0.2, 0.5]))
        values[str(name)] = round(changed, 3)
    return program_of(values)


def program_of(values: dict[str, float]) -> str:
    """Return the source of a random program with these numbers, by the names of its constants in small letters."""
    numbers = "\n".join(f"{name.upper()} = {value!r}" for name, value in values.items())
    return f'''"""A policy of jobs that run on the GPUs that they request, by 'polluxsim evolve search'."""

{START}
import math

from polluxsim.policies.contract.view import Traits
from polluxsim.policies.tools.gangs import gangs_by

{numbers}


class {CLASS}:
    """Jobs in ascending order of a sum of logarithms. Jobs of a queue with equal GPUs need similar services."""

    traits = Traits(slices_time=True, remembers="the services of jobs that ended, by queue and GPUs")

    def __init__(self):
        self.jobs = {{}}
        self.services = {{}}

    def allocate(self, view, rng):
        """Return a decision, which stands for an interval unless a job arrives or ends."""
        self.learn(view)

        def key(job):
            service = math.log1p(job.attained_service / SERVICE_SCALE)
            expected = math.log1p(self.service_left(job) / SERVICE_SCALE)
            waited = math.log1p((view.time - job.submit_time) / WAITED_SCALE)
            value = SERVICE * service + EXPECTED * expected + GPUS * math.log(job.num_replicas) + WAITED * waited
            if job.placement:
                value -= RUNNING
            return round(value, 6)

        return gangs_by(view, key, lambda job: {{}}, lasts_until=view.time + INTERVAL)

    def learn(self, view):
        """Remember the service of the last job that ended of each queue and number of GPUs."""
        for name in view.changes.ended:
            job = self.jobs.pop(name, None)
            if job is not None and job.attained_service > 0:
                self.services[job.queue, job.num_replicas] = job.attained_service
        for job in view.changes.arrived:
            self.jobs[job.job_id] = job

    def service_left(self, job):
        """Return the expected service until a job ends [GPU s]. A job that has had more needs as much again."""
        total = self.services.get((job.queue, job.num_replicas), UNKNOWN_SCALE * job.num_replicas)
        if job.attained_service < total:
            return total - job.attained_service
        return job.attained_service
{END}
'''


def _values_in(source: str) -> dict[str, float]:
    """Return the numbers of a random program, by the names of its constants in small letters."""
    values = {}
    for line in source.splitlines():
        name, equals, value = line.partition(" = ")
        # Only the constants have names in capital letters.
        if equals and name.isupper():
            values[name.lower()] = float(value)
    return values


def trusted(source: str) -> Policy:
    """Return the policy of a program that polluxsim itself wrote; it runs in this process, without guards."""
    names: dict[str, Any] = {"__name__": "program"}
    # The future imports of this module are no part of the program.
    exec(compile(source, "<program>", "exec", dont_inherit=True), names)
    return as_policy(names[CLASS]())


def mean_jcts_of(source: str, worlds: Sequence[TaskWorld]) -> list[float]:
    """Return the mean JCTs of a program that polluxsim itself wrote, one for each world [s]."""
    mean_jcts = []
    for world in worlds:
        # A new policy for each world, because a program remembers the jobs of its run.
        result = run(world, trusted(source), source)
        mean_jcts.append(mean_jct(world, result))
    return mean_jcts
