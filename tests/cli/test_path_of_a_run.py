"""A run passes few modules between the command and the decision of its policy."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import pytest

from polluxsim.cli.main import main
from polluxsim.engine import simulation
from polluxsim.engine.recorder import RunRecorder
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.ordered.attained_service import Tiresias
from polluxsim.run import composing

MODULES = {
    "polluxsim.cli.main", "polluxsim.cli.run", "polluxsim.run.execution", "polluxsim.engine.simulation",
    "polluxsim.engine.views", "polluxsim.policies.ordered.attained_service", "polluxsim.engine.decision",
    "polluxsim.engine.state", "polluxsim.engine.recorder",
}  # fmt: skip
"""The modules that `docs/design/path-of-a-run.md` draws."""


def modules_on_the_stack() -> set[str]:
    """Return the modules of the package on the call stack, without this test."""
    modules, frame = set(), sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        modules.add(frame.f_globals.get("__name__", ""))
    return {name for name in modules if name.startswith("polluxsim")}


def test_a_decision_passes_nine_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[str]] = {}
    for owner, name in ((Tiresias, "allocate"), (simulation, "plan_of"), (RunRecorder, "record_allocation")):
        original = getattr(owner, name)

        def watched(*arguments: Any, original: Any = original, name: str = name) -> Any:
            seen.setdefault(name, modules_on_the_stack() | {original.__module__})
            return original(*arguments)

        monkeypatch.setattr(owner, name, watched)
    monkeypatch.chdir(tmp_path)
    assert main(["run", "policy=tiresias", "workload=philly-like", "workload.num_jobs=5", "hydra.run.dir=out"]) == 0
    assert seen.keys() == {"allocate", "plan_of", "record_allocation"}
    assert set.union(*seen.values()) <= MODULES


def test_the_modules_of_the_path_are_drawn() -> None:
    page = (Path(__file__).parents[2] / "docs" / "design" / "path-of-a-run.md").read_text("utf-8")
    assert all(name.removeprefix("polluxsim.").replace(".", "/") in page for name in MODULES)


SETTING = {
    "settled": {"polluxsim.cli.main", "polluxsim.cli.run", "polluxsim.run.composing"},
    "uniform": {"polluxsim.cli.main", "polluxsim.cli.run", "polluxsim.run.execution", "polluxsim.run.building"},
}
"""The modules that `docs/design/path-of-a-setting.md` draws: where settings become plain, and where they are used."""


def test_a_setting_passes_few_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[str]] = {}
    settled, uniform = composing.settled, Cluster.uniform

    def watched_settled(values: Any) -> Any:
        assert values["cluster"]["num_nodes"] == 32
        seen["settled"] = modules_on_the_stack()
        return settled(values)

    def watched_uniform(num_nodes: int, **others: Any) -> Any:
        assert num_nodes == 32
        seen["uniform"] = modules_on_the_stack()
        return uniform(num_nodes, **others)

    watched_uniform.__signature__ = inspect.signature(uniform)  # type: ignore[attr-defined]
    monkeypatch.setattr(composing, "settled", watched_settled)
    monkeypatch.setattr(Cluster, "uniform", staticmethod(watched_uniform))
    monkeypatch.chdir(tmp_path)
    # A word with $ is not remembered, so that Hydra composes the run each time.
    assert (
        main(["run", "policy=fifo", "workload=one-job", "cluster.num_nodes=32", "seed=${oc.decode:'0'}", "-o", "out"])
        == 0
    )
    assert seen == SETTING


def test_the_modules_of_the_path_of_a_setting_are_drawn() -> None:
    page = (Path(__file__).parents[2] / "docs" / "design" / "path-of-a-setting.md").read_text("utf-8")
    names = set.union(*SETTING.values()) - {"polluxsim.cli.main"}
    assert all(name.removeprefix("polluxsim.").replace(".", "/") in page for name in names)
