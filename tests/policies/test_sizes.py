"""A policy is a page: its class is short unless its rule is long, and the engine knows none by name."""

from __future__ import annotations

import ast
from inspect import getsourcelines
from pathlib import Path

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

import polluxsim
from polluxsim.common.shipped import shipped
from polluxsim.workloads.workload import Job

PAGE = 60
LONGER = {
    "AntMan": "GPUs by number, reserved one by one",
    "DominantResourceFairness": "filling by owner over a table of waiting jobs, and rejection of jobs that never fit",
    "ElasticFlow": "admission, plans, and what becomes of them when somebody is late",
    "FairQueues": "usage at the turns of waiting jobs, and the virtual time",
    "Gandiva": "turns, packing by chance, measuring and parting",
    "Muri": "packs of four, and the numbers of the reasons of each turn",
    "Multifactor": "four factors, and two kinds of fair share",
    "Quotas": "quotas of several GPU types, and the check of their names",
    "RoundsOfShares": "Gavel's rounds on several types, for ten rules of ten lines",
    "Scaled": "any policy, on nodes that go and come",
    "Shockwave": "a market, prospects and windows",
    "Slurm": "two schedulers in turns, and the parameters of slurm.conf",
    "Sia": "configurations, matrix, programme, placing",
    "TiresiasL": "queues by limits, with the time at which each job entered its queue",
    "Themis": "leases, bids, an auction, and GPUs that the auction leaves",
}
"""Classes over a page, and what their rule has that takes more."""

TARGETS = sorted(
    {
        str(config["_target_"])
        for path in (shipped("configs") / "policy").glob("*.yaml")
        if "_target_" in (config := OmegaConf.load(path))
    }
)
ENGINE = sorted((Path(polluxsim.__file__).parent / "engine").glob("*.py"))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.rpartition(".")[2])
def test_a_policy_is_a_page(target: str) -> None:
    source = "".join(getsourcelines(get_class(target))[0])
    length = len(source.splitlines()) - _of_docstrings(ast.parse(source))
    name = target.rpartition(".")[2]
    assert (length > PAGE) == (name in LONGER), f"{name} has {length} lines"


def _of_docstrings(tree: ast.Module) -> int:
    """Return how many lines are docstrings: what a class says of its parameters makes no rule longer."""
    documented = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    texts = [node.body[0] for node in documented if ast.get_docstring(node) is not None]
    return sum(text.end_lineno - text.lineno + 1 for text in texts)


@pytest.mark.parametrize("path", ENGINE, ids=lambda path: path.stem)
def test_the_engine_names_no_policy(path: Path) -> None:
    """It imports of policies what they all see and answer, and says the name of none outside docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    shared = {
        "polluxsim.policies.tools.free_gpus",
        "polluxsim.policies.tools.partitions",
        "polluxsim.policies.tools.pools",
    }
    of_policies = {name for name in imported if name.startswith("polluxsim.policies")}
    assert {name for name in of_policies if not name.startswith("polluxsim.policies.contract.")} <= shared
    names = {target.rpartition(".")[2] for target in TARGETS}
    known = names | {config.stem for config in (shipped("configs") / "policy").glob("*.yaml")}
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    said = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented
    } | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not said & (known - set(Job.__match_args__))  # a job has a priority as well
