"""Every policy that is shipped as a config can be built, named and run."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING

import pytest
from drawn import policy_config
from hydra.utils import instantiate
from omegaconf import OmegaConf
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.common.shipped import shipped
from polluxsim.engine.futures import Fork
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.sharing import Interleaved
from polluxsim.engine.simulation import Simulation, run_to_end, simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.contract.policy import traits_of
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.policies.tools.free_gpus import pack

if TYPE_CHECKING:
    from polluxsim.workloads.workload import Job, Workload

CONFIGS = sorted(
    path
    for path in (shipped("configs") / "policy").glob("*.yaml")
    if not OmegaConf.missing_keys(OmegaConf.load(path))  # such need a file to be anything
)

RULES = EngineSettings(sharing=Interleaved())  # for those that need some way to share; the toy's jobs cannot


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_policy_config_builds_a_policy_that_completes_jobs(path: Path) -> None:
    policy = instantiate(policy_config(path.stem))
    jobs = [toy_job(f"{i}", 30.0 * i, 1 + i % 4) for i in range(12)]
    result = simulate(toy_workload(*jobs), {"toy": ToyProfile()}, Cluster((4, 2, 1)), policy, settings=RULES)
    assert all(job.jct is not None for job in result.job_records)


def come_and_go(*more: Job) -> Workload:
    """Jobs of which some give up before the round after their submission, and some just at a round."""
    patience = (None, 5.0, None, None, 30.0, 90.0)
    says = ({}, {"user": "ada", "queue": "a"}, {"deadline": 200.0}, {"priority": -1.0})
    jobs = []
    for index in range(24):
        time, left, said = 30.0 * index, patience[index % 6], says[index % 4]
        said |= {"deadline": time + 200.0} if "deadline" in said else {}
        jobs.append(toy_job(f"{index}", time, 1 + index % 4, cancel_time=None if left is None else time + left, **said))
    return toy_workload(*jobs, *more)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
@pytest.mark.parametrize("takes_over", [0.0, 120.0, 240.0, 2500.0])
def test_every_policy_bears_jobs_that_come_and_go_unseen(path: Path, takes_over: float) -> None:
    """From the start, where it takes over with jobs there, and where all that were there had ended."""
    policy = instantiate(policy_config(path.stem))
    jobs = come_and_go(toy_job("late", 2520.0))
    scenario = Scenario.under(Fifo(), jobs, {"toy": ToyProfile()}, Cluster((4, 2, 1)), RULES)
    run = Simulation(scenario)
    then = replace(scenario, traits=traits_of(policy), policy_name="Other")
    run.fork(Fork(takes_over, then, has_new_policy=True))
    first = Fifo()
    while (view := run.advance(before=takes_over)) is not None:
        run.commit(first.allocate(view, run.rng))
    result = run_to_end(run, policy)
    by_name = {job.job: job for job in result.job_records}
    assert by_name["1"].start_time is None
    assert all(by_name[name].completion_time is not None for name in ("0", "2", "3", "late"))


def names_in(policy: object) -> set[str]:
    """Return the texts that a policy holds, and the jobs; what the engine holds is not the policy's."""
    names, seen, left = set[str](), set[int](), [policy]
    while left:
        each = left.pop()
        if isinstance(each, str):
            names.add(each)
        elif type(each).__module__.startswith("polluxsim.engine"):
            names.add(getattr(each, "job_id", ""))
        elif id(each) not in seen and not isinstance(each, type | ModuleType | FunctionType):
            seen.add(id(each))
            left += gc.get_referents(each)
            left += each if isinstance(each, dict) else ()  # a referent only where a key is no text
    return names


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_policy_forgets_who_is_gone(path: Path) -> None:
    """Else a long trace would fill the memory."""
    policy = instantiate(policy_config(path.stem))
    gone = [toy_job(f"gone-{i}", 30.0 * i, 1 + i % 4, user=f"u{i % 2}", deadline=1e4) for i in range(12)]
    late = [toy_job(f"late-{i}", 5000.0 + 90.0 * i, 1 + i % 2) for i in range(4)]
    scenario = Scenario.under(policy, toy_workload(*gone, *late), {"toy": ToyProfile()}, Cluster((4, 2, 1)), RULES)
    run = Simulation(scenario)
    while (view := run.advance()) is not None and view.time < 5300:
        run.commit(policy.allocate(view, run.rng))
    assert {name for name in names_in(policy) if name.startswith("gone-")} == set()


def test_the_shipped_policies_are_these() -> None:
    assert {path.stem for path in CONFIGS} >= {"fifo", "srtf", "tiresias", "optimus", "pollux"}


def test_only_pollux_and_autoscalers_let_jobs_choose_their_batch_size() -> None:
    adaptive = {path.stem for path in CONFIGS if traits_of(instantiate(policy_config(path.stem))).adaptive}
    assert adaptive == {"pollux", "pollux-remaining", "sia", "autoscale-goodput", "autoscale-throughput"}


def test_packing_takes_the_emptiest_nodes_first_and_keeps_what_it_can() -> None:
    assert pack((1, 4, 2, 4), 5) == ((1, 4), (3, 1))
    assert pack((1, 4, 2, 4), 12) is None
    assert pack((1, 4), 2, keep=((0, 1), (1, 1))) == ((0, 1), (1, 1))
    assert pack((1, 4), 3, keep=((0, 1), (1, 1))) == ((1, 3),)
    assert pack((0, 4), 2, keep=((0, 1), (1, 1))) == ((1, 2),)
