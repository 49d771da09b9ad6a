"""Classes keep their former names in users' configurations and in recorded runs, with a warning for each name."""

from __future__ import annotations

import json
import warnings
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import polluxsim
from polluxsim.cli.main import main
from polluxsim.common.former_names import (
    FORMER_MODULES,
    FORMER_NAMES,
    present_name,
    warn_of_former_names,
    with_present_names,
)
from polluxsim.run.building import check_classes
from polluxsim.statistics.groups import labels_of, settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping

PLANTED = {
    "polluxsim.former.place.FirstComeFirstServed": "polluxsim.policies.ordered.classic.Fifo",
    "polluxsim.former.nodes.Nodes": "polluxsim.hardware.clusters.Cluster",
    "polluxsim.former.faults.Faults": "polluxsim.engine.failures.DrawnFailures",
}
"""Lines that a test adds to the table, each of them alone."""

RUN = ["workload=philly-like", "workload.num_jobs=4", "workload.hours=1", "cluster/failures=drawn",
       "cluster.failures.rate=1", "policy=fifo"]  # fmt: skip
FORMER_POLICY, FORMER_CLUSTER, FORMER_FAILURES = PLANTED
FORMER = [f"policy._target_={FORMER_POLICY}", f"cluster._target_={FORMER_CLUSTER}.uniform",
          f"cluster.failures._target_={FORMER_FAILURES}"]  # fmt: skip


@pytest.fixture(autouse=True)
def _planted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for former, present in PLANTED.items():
        monkeypatch.setitem(FORMER_NAMES, former, present)
    monkeypatch.chdir(tmp_path)


def targets(part: Any) -> set[str]:
    """Return the values of `_target_` in settings."""
    inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    own = {part["_target_"]} if isinstance(part, dict) and "_target_" in part else set()
    return own.union(*map(targets, inner))


def renamed(part: Any, names: Mapping[str, str]) -> Any:
    """Return settings with other names of classes."""
    text = json.dumps(part)
    for present, former in names.items():
        text = text.replace(f'"{present}', f'"{former}')
    return json.loads(text)


def warned(lines: str) -> list[str]:
    return sorted(line for line in lines.splitlines() if "is now called" in line)


SAID = sorted(
    f"polluxsim: {former} is now called {present}; a later release removes the old name"
    for former, present in {
        FORMER_POLICY: PLANTED[FORMER_POLICY],
        f"{FORMER_CLUSTER}.uniform": "polluxsim.hardware.clusters.Cluster.uniform",
        FORMER_FAILURES: PLANTED[FORMER_FAILURES],
    }.items()
)


def test_a_configuration_with_former_names_is_the_run_with_the_present_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["run", *RUN, "hydra.run.dir=present"]) == 0
        assert warned(capsys.readouterr().err) == []
        assert main(["run", *RUN, *FORMER, "hydra.run.dir=former"]) == 0
    assert warned(capsys.readouterr().err) == SAID
    present, former = (json.loads(Path(name, "run.json").read_text()) for name in ("present", "former"))
    assert (former["config"], former["key"]) == (present["config"], present["key"])
    assert not FORMER_NAMES.keys() & targets(former["config"])


def test_a_recorded_run_with_former_names_is_as_good(capsys: pytest.CaptureFixture[str]) -> None:
    """Also a fork whose ancestors have them: each command says each name once."""
    assert main(["run", *RUN, "hydra.run.dir=run"]) == 0
    assert main(["whatif", "run", "--at", "10min", "policy=srtf", "-o", "w"]) == 0
    expected = polluxsim.read("w/otherwise")
    names = {present: former for former, present in PLANTED.items()}
    for folder in ("run", "w/otherwise"):
        path = Path(folder, "run.json")
        info = renamed(json.loads(path.read_text()), names)
        assert len(targets(info) - targets(with_present_names(info))) == 3
        path.write_text(json.dumps(info))
    capsys.readouterr()
    commands = (
        ["table", "run"],
        ["when", "run", "--at", "10min", "--forks", "1"],
        ["whatif", "w/otherwise", "--at", "20min", "policy=las", "-o", "v"],
        ["run", *RUN, "hydra.run.dir=run"],  # the same settings, so that the run in the folder is replaced
    )
    for command in commands:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            assert main(command) == 0, command
        assert warned(capsys.readouterr().err) == ([] if command[0] == "run" else SAID)
    assert polluxsim.read("v/as-it-was").result == expected.result
    assert settings_of(polluxsim.read("v/as-it-was"))["cluster.failures._target_"] == PLANTED[FORMER_FAILURES]


def test_runs_with_former_and_present_names_have_equal_settings() -> None:
    run = polluxsim.simulate(polluxsim.workload("philly-like", num_jobs=4), policy="fifo", progress=False)
    run.save("one")
    run.save("two")
    info = renamed(json.loads(Path("two", "run.json").read_text()), {PLANTED[FORMER_POLICY]: FORMER_POLICY})
    Path("two", "run.json").write_text(json.dumps(info))
    with pytest.warns(FutureWarning, match="FirstComeFirstServed is now called .*Fifo"):
        rows = [settings_of(polluxsim.read(name)) for name in ("one", "two")]
    assert rows[0] == rows[1]
    assert labels_of(rows) == ["FIFO", "FIFO"]


@pytest.mark.parametrize("former", [*FORMER_NAMES, *PLANTED])
def test_each_line_leads_to_a_present_name(former: str) -> None:
    present = FORMER_NAMES[former]
    module, _, name = present.rpartition(".")
    assert hasattr(import_module(module), name)
    assert present_name(former) == present == present_name(present)
    assert present_name(f"{former}.of_groups") == f"{present}.of_groups"


def test_a_longer_name_is_another_name() -> None:
    assert present_name(f"{FORMER_POLICY}Other") == f"{FORMER_POLICY}Other"


@pytest.mark.parametrize("former", FORMER_MODULES)
def test_each_former_module_can_be_imported(former: str) -> None:
    assert import_module(FORMER_MODULES[former])
    with pytest.raises(AttributeError, match=f"module '{former}' has no attribute 'Other'"):
        _ = import_module(former).Other


@pytest.mark.parametrize(
    ("former", "present"),
    [
        ("polluxsim.types.Cluster", "polluxsim.hardware.clusters.Cluster"),
        ("polluxsim.types.gpus_by_node", "polluxsim.hardware.placements.gpus_by_node"),
        ("polluxsim.records.JobRecord", "polluxsim.records.results.JobRecord"),
        ("polluxsim.policies.deadlines.EarliestDeadline", "polluxsim.policies.ordered.classic.EarliestDeadline"),
        ("polluxsim.policies.view.Decision", "polluxsim.policies.contract.view.Decision"),
    ],
)
def test_a_former_name_can_be_imported_with_a_warning(former: str, present: str) -> None:
    module, _, name = former.rpartition(".")
    home, _, present_attribute = present.rpartition(".")
    with pytest.warns(FutureWarning, match=f"{former} is now called {present}; a later release removes the old name"):
        found = getattr(import_module(module), name)
    assert found is getattr(import_module(home), present_attribute)


def test_a_former_name_is_checked_as_the_present_one() -> None:
    assert check_classes({"policy": {"_target_": FORMER_POLICY}}, "x") == []
    with pytest.raises(polluxsim.PolluxSimError, match="is not one of polluxsim's classes for workload"):
        check_classes({"workload": {"_target_": FORMER_POLICY}}, "x")


def test_a_name_that_stands_twice_is_said_once() -> None:
    part = {"a": {"_target_": FORMER_POLICY}, "b": [{"_target_": FORMER_POLICY}, {"_target_": 3}, {"_target_": "x.Y"}]}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warn_of_former_names(part)
    assert [str(warning.message) for warning in said] == [
        f"{FORMER_POLICY} is now called polluxsim.policies.ordered.classic.Fifo; a later release removes the old name"
    ]


@pytest.mark.parametrize("former", ["polluxsim.records.Result", "polluxsim.policies.deadlines.EarliestDeadline"])
def test_the_warning_of_a_former_name_is_about_the_line_that_reads_it(former: str) -> None:
    module, _, name = former.rpartition(".")
    with pytest.warns(FutureWarning, match=former) as warned:
        getattr(import_module(module), name)
    assert [Path(warning.filename).name for warning in warned] == [Path(__file__).name]
