"""Policies of polluxsim in the process of a program: they decide as in this process, if they do not read the oracle."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from polluxsim.checks.random_worlds import Allowed, random_world
from polluxsim.engine.scenario import for_cluster
from polluxsim.engine.simulation import Simulation, run_to_end
from polluxsim.policies.contract.policy import traits_of
from polluxsim.policies.contract.view import ClusterView
from polluxsim.policies.guest.faults import GIB, ProcessLimits, ProgramError, RefusedProgramError
from polluxsim.policies.guest.host import ANYTHING, GuestPolicy, Program
from polluxsim.policies.guest.source import check_source
from polluxsim.run.named_policies import named_policy
from polluxsim.studies.evolution.programs import INITIAL_PROGRAM, random_program

READ_ORACLE = {
    "afs", "allox", "conservative", "easy", "elasticflow", "finish-time-fairness", "first-come-shares", "gandiva-fair",
    "hadar", "isolated", "jsa", "max-min", "max-sum", "min-makespan", "multifactor", "muri-s", "optimus",
    "optimus-online", "proportional-shares", "shockwave", "sjf", "slurm", "srsf", "srtf", "themis", "venn",
    "water-filling",
}  # fmt: skip
"""Policies that read true durations, also as the default of a time limit, in some of the worlds here."""

WITHOUT_WORLD = {"replay"}  # needs the allocations of a run

QUICK = {"fifo", "las", "gittins", "tiresias-l", "fair-queues", "srsf", "gandiva"}  # in the default tier

WORLDS = (2, 12, 24)

ROOMY = ProcessLimits(decision=30.0, start=60.0, memory=8 * GIB)  # for policies with compiled functions

NAMES = sorted(
    path.stem
    for path in (Path(__file__).parents[2] / "configs/policy").glob("*.yaml")
    if path.stem not in WITHOUT_WORLD
)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_a_policy_without_oracle_has_equal_records_in_the_process_of_a_program(name: str) -> None:
    named = named_policy(name)
    traits = traits_of(named.make())
    allowed = Allowed.under(traits)
    refused = False
    for number in WORLDS:
        world = random_world(number, Allowed(allowed.rigid, allowed.types, scaled=False))
        label = named.make().label
        here = run_to_end(Simulation(world.scenario(traits, label), 1), for_cluster(named.make(), world.cluster))
        try:
            with GuestPolicy(Program(policy=named.make(), more=ANYTHING), limits=ROOMY) as guest:
                there = run_to_end(Simulation(world.scenario(traits, label), 1), guest)
        except ProgramError as error:
            assert "oracle" in str(error)
            refused = True
            continue
        assert there == here
        assert there.reason_records == here.reason_records
    assert refused == (name in READ_ORACLE)


def test_views_are_values_without_the_simulation() -> None:
    world = random_world(2, Allowed())
    seen: list[bytes] = []

    class Watched(GuestPolicy):
        def _send(self, message: object) -> None:
            seen.append(pickle.dumps(message))
            super()._send(message)

    with Watched(Program(INITIAL_PROGRAM)) as guest:
        run_to_end(Simulation(world.scenario(guest.traits, guest.label), 1), guest)
    assert len(seen) > 2
    for content in seen:
        assert b"polluxsim.engine" not in content
        assert b"polluxsim.workloads" not in content


def test_a_process_has_no_module_of_the_simulation() -> None:
    source = INITIAL_PROGRAM.replace("return gangs_by", "raise ValueError(sorted(NAMES))\n        return gangs_by")
    source = source.replace("QUANTUM = 3600.0", "import dataclasses\nNAMES = getattr(dataclasses, 's' + 'ys').modules")
    with GuestPolicy(Program(source)) as guest, pytest.raises(ProgramError) as caught:
        guest.allocate(ClusterView(0.0, (4,), []), np.random.default_rng(0))
    assert "polluxsim.policies.guest.process" in str(caught.value) or "numpy" in str(caught.value)
    for package in ("engine", "run", "records", "studies", "checks"):
        assert f"polluxsim.{package}" not in str(caught.value)


def test_the_initial_and_random_programs_are_allowed() -> None:
    check_source(INITIAL_PROGRAM)
    for seed in range(20):
        check_source(random_program(np.random.default_rng(seed)))


USUAL = """
from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np

from polluxsim.policies.tools.free_gpus import FreeGpus


class Kind(Enum):
    SMALL = 1


class Pair(NamedTuple):
    one: float
    two: float


Point = namedtuple("Point", "x y")


@dataclass
class Memory:
    _times: dict = field(default_factory=dict)

    def __lt__(self, other):
        return self._times < other._times


class Candidate:
    def __init__(self):
        super().__init__()
        self._memory = Memory()

    def allocate(self, view, rng):
        for job in view.jobs:
            self._memory._times.setdefault(job.job_id, view.time)
        pair = Pair(1.0, 2.0)._replace(two=float(np.linalg.norm([3.0, 4.0])))
        assert pair.two == 5.0 and Kind.SMALL.name == "SMALL" and Point(1, 2).x == 1
        if __name__ == "__main__":
            return None
        free = FreeGpus.free_in(view)
        placements = {job.job_id: job.placement for job in view.running}
        for job in sorted(view.waiting, key=lambda job: (job.num_replicas, rng.random())):
            placement = free.pack(job.num_replicas)
            if placement:
                placements[job.job_id] = placement
        return placements
"""


def test_usual_python_is_allowed() -> None:
    world = random_world(2, Allowed())
    with GuestPolicy(Program(USUAL)) as guest:
        result = run_to_end(Simulation(world.scenario(guest.traits, guest.label), 1), guest)
        assert guest.decision_ms > 0
    assert all(record.jct is not None or record.status == "cancelled" for record in result.job_records)


@pytest.mark.parametrize(
    "line", ["import os", "from numpy import ctypeslib", "import numpy.f2py", "from . import x", "from math import _x"]
)
def test_other_modules_are_refused(line: str) -> None:
    with pytest.raises(RefusedProgramError, match="line 1: the program may not import"):
        check_source(f"{line}\nclass Candidate: pass")
