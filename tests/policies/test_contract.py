"""Every policy that is shipped as a config can be built, named and run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from toy import ToyProfile, toy_job, toy_workload

from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.engine.stage_sharing import Interleaved
from polluxsim.policies.packing import pack
from polluxsim.policies.view import traits_of
from polluxsim.run.composing import composed
from polluxsim.shipped import shipped
from polluxsim.types import Cluster

CONFIGS = sorted(
    path
    for path in (shipped("configs") / "policy").glob("*.yaml")
    if not OmegaConf.missing_keys(OmegaConf.load(path))  # such need a file to be anything
)

RULES = EngineSettings(sharing=Interleaved())  # for those that need some way to share; the toy's jobs cannot


def config_of(path: Path) -> DictConfig:
    """Return a policy's configuration with what is chosen inside it."""
    policy: DictConfig = composed({"policy": path.stem}, {}, 0).policy
    return policy


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_policy_config_builds_a_policy_that_completes_jobs(path: Path) -> None:
    policy = instantiate(config_of(path))
    jobs = [toy_job(f"{i}", 30.0 * i, 1 + i % 4) for i in range(12)]
    result = simulate(toy_workload(*jobs), {"toy": ToyProfile()}, Cluster((4, 2, 1)), policy, settings=RULES)
    assert all(job.jct is not None for job in result.job_records)


def test_the_shipped_policies_are_these() -> None:
    assert {path.stem for path in CONFIGS} >= {"fifo", "srtf", "tiresias", "optimus", "pollux"}


def test_only_pollux_and_autoscalers_let_jobs_choose_their_batch_size() -> None:
    adaptive = {path.stem for path in CONFIGS if traits_of(instantiate(config_of(path))).adaptive}
    assert adaptive == {"pollux", "pollux-remaining", "sia", "autoscale-goodput", "autoscale-throughput"}


def test_packing_takes_the_emptiest_nodes_first_and_keeps_what_it_can() -> None:
    assert pack((1, 4, 2, 4), 5) == ((1, 4), (3, 1))
    assert pack((1, 4, 2, 4), 12) is None
    assert pack((1, 4), 2, keep=((0, 1), (1, 1))) == ((0, 1), (1, 1))
    assert pack((1, 4), 3, keep=((0, 1), (1, 1))) == ((1, 3),)
    assert pack((0, 4), 2, keep=((0, 1), (1, 1))) == ((1, 2),)
