"""The two larger policies of the recipe are short, and correct on clusters that they do not mention."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from polluxsim.checks import check
from polluxsim.checks.driving import take_turn
from polluxsim.checks.laws import IdleGpus
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.simulation import Simulation
from polluxsim.policies.elastic.cluster_size import PendingGpus, Scaled
from polluxsim.records.results import Status
from polluxsim.run.composing import compose
from polluxsim.run.execution import Execution

if TYPE_CHECKING:
    from polluxsim.checks.findings import Finding
    from polluxsim.checks.laws import RunLaws
    from polluxsim.policies.contract.policy import Policy
    from polluxsim.policies.contract.reasons import RoundSeen

RECIPES = Path(__file__).parents[2] / "docs" / "policy-recipes.md"
NAMES = {"greedy.py": "GreedyGoodput", "ageing.py": "ShortestWithAgeing"}
CLUSTERS = {
    "t4-16x4": ("cluster=t4-16x4",),
    "sia-64": ("cluster=sia-64",),
    "failures": ("cluster=t4-16x4", "cluster/failures=rsc-1", "cluster.failures.rate=3000", "engine/checkpoints=epoch"),
    "elastic": ("cluster=elastic",),
}
MOST_LINES = 25


def code(file: str) -> str:
    """Return the code of a policy that the recipe shows."""
    found = re.search(rf'^```python title="{file}"\n(.*?)^```$', RECIPES.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def made(file: str) -> Policy:
    """Return a policy that the recipe shows."""
    namespace: dict[str, Any] = {}
    exec(code(file), namespace)
    policy: Policy = namespace[NAMES[file]]()
    return policy


@dataclass
class Idle:
    """The law about idle GPUs, with its findings."""

    law: IdleGpus
    findings: list[Finding] = field(default_factory=list)

    def check_round(self, this_round: RoundSeen) -> None:
        """Check a round."""
        self.findings += self.law.check_round(this_round)


@pytest.mark.parametrize("file", NAMES)
def test_a_policy_of_the_recipe_is_short_and_mentions_no_kind_of_cluster(file: str) -> None:
    assert len(code(file).splitlines()) <= MOST_LINES
    assert not re.search(r"\btypes?\b|node|health|down|evict|scal", code(file))


@pytest.mark.parametrize("file", NAMES)
def test_check_finds_no_fault_in_a_policy_of_the_recipe(file: str, tmp_path: Path) -> None:
    path = tmp_path / file
    path.write_text(code(file))
    assert check(f"{path}:{NAMES[file]}", 25) == []


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("file", NAMES)
def test_a_policy_of_the_recipe_completes_all_jobs_and_leaves_no_gpu_idle(file: str, cluster: str) -> None:
    words = ["policy=fifo", "workload=philly-like", "workload.num_jobs=25", "workload.largest_request=16", "seed=1"]
    execution = Execution(compose([*words, *CLUSTERS[cluster]]))
    settings = execution.start()[0].scenario.settings
    policy = Scaled(made(file), PendingGpus()) if cluster == "elastic" else made(file)
    workload = execution.workload
    run = Simulation(Scenario.under(policy, workload, execution._profiles, execution.cluster, settings), seed=1)
    idle = Idle(
        IdleGpus(cast("Any", SimpleNamespace(jobs=workload.jobs, is_scaled=cluster == "elastic", placement="anywhere")))
    )
    while (view := run.advance()) is not None:
        take_turn(run, policy, view, laws=cast("RunLaws", idle))
    result = run.result()
    assert all(job.status is Status.COMPLETED for job in result.job_records)
    assert idle.findings == []
