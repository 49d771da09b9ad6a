"""The policies that the documentation shows run on a cluster of several GPU types."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from polluxsim.engine.simulation import simulate
from polluxsim.policies.contract.policy import Policy, traits_of
from polluxsim.records.results import Status
from polluxsim.run.composing import compose
from polluxsim.run.execution import Execution

BLOCK = re.compile(r'^```python title="(.+?)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/policy-recipes.md", "docs/judging.md", "docs/researchers.md")
WORKLOADS = (
    ("workload=philly-like", "workload.largest_request=16", "workload.num_jobs=25"),
    ("workload=philly-like-rigid", "workload.hours=2"),
)


def shown_policies() -> dict[str, Policy]:
    """Return a policy of each class that a page shows as a file."""
    policies: dict[str, Policy] = {}
    for page in PAGES:
        for block in BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")):
            if "def allocate(" in block[2]:
                namespace: dict[str, Any] = {}
                exec(block[2], namespace)
                kinds = [kind for kind in namespace.values() if isinstance(kind, type) and hasattr(kind, "allocate")]
                policies |= {f"{page} {kind.__name__} {block[1]}": kind() for kind in kinds}
    return policies


POLICIES = shown_policies()


def test_the_pages_show_policies() -> None:
    assert {name.split()[0] for name in POLICIES} == set(PAGES)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda words: words[0].partition("=")[2])
@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_of_the_documentation_runs_on_several_gpu_types(name: str, workload: tuple[str, ...]) -> None:
    if traits_of(POLICIES[name]).needs_profiles and "workload=philly-like-rigid" in workload:
        pytest.skip("the jobs of this workload have no profiles")
    words = ["cluster=sia-64", "policy=fifo", *workload, "seed=1"]
    execution = Execution(compose(words))
    settings, profiles = execution.start()[0].scenario.settings, execution._profiles
    result = simulate(execution.workload, profiles, execution.cluster, POLICIES[name], settings=settings, seed=1)
    assert all(job.status is Status.COMPLETED for job in result.job_records)
