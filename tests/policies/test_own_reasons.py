"""A user's policy with reasons of its own: `why`, the report and `check` use them, also when its module is gone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest
from drawn import begun
from toy import toy_job, toy_workload

from polluxsim.api.results import read
from polluxsim.checks import check
from polluxsim.checks.findings import Fault
from polluxsim.checks.worlds import PROFILES
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidInputError, PolicyError
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.look.report.payload import packed_reasons
from polluxsim.look.why.sentences import sentence
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import Decision, Reason, ReasonKind
from polluxsim.records.results import ReasonText

RECIPES = Path(__file__).parents[2] / "docs" / "policy-recipes.md"
JOBS = "name,time,num_replicas,duration\na,0,2,600\nb,10,1,300\n"
RUN = ["run", "--config-dir", "conf", "policy=mine", "workload.path=jobs.csv", "cluster.num_nodes=1", "-o", "run"]
SAID = "The policy runs one job at a time, and now a. This job needs 1 GPU."
FALSE = """

class BlamesItself(OneByOne):
    def allocate(self, view, rng):
        allocation = self.choose(view)
        def explain(asked):
            return {name: Reason(ANOTHER_RUNS, {"gpus_needed": 1}, (name,)) for name in asked}
        return Decision(allocation, explain=explain)


class Fails(OneByOne):
    def allocate(self, view, rng):
        decision = super().allocate(view, rng)
        kind = ReasonKind("odd", excuses_waiting=lambda job, reason, seen: 1 / 0)
        def explain(asked):
            return {name: Reason(kind, {}) for name in asked if name not in decision.allocation}
        return Decision(decision.allocation, explain=explain)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file with the policy of the documentation, and variants of it with false reasons."""
    found = re.search(r'^```python title="one_by_one.py"\n(.*?)^```$', RECIPES.read_text("utf-8"), re.DOTALL | re.M)
    assert found is not None
    path = tmp_path / "one_by_one.py"
    path.write_text(found[1] + FALSE)
    (tmp_path / "conf" / "policy").mkdir(parents=True)
    (tmp_path / "conf" / "policy" / "mine.yaml").write_text("_target_: one_by_one.OneByOne\n")
    (tmp_path / "jobs.csv").write_text(JOBS)
    monkeypatch.chdir(tmp_path)
    return path


def test_a_run_can_be_explained_without_the_module_of_its_policy(module: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "polluxsim"]
    subprocess.run([*command, *RUN], check=True, capture_output=True)
    module.unlink()
    told = subprocess.run([*command, "why", "run", "b"], check=True, capture_output=True, text=True).stdout
    assert "The policy runs one job at a time, and now a." in " ".join(told.replace("│", " ").split())
    told = subprocess.run([*command, "why", "run", "b", "--at", "1min"], check=True, capture_output=True, text=True)
    assert SAID in " ".join(told.stdout.split())
    for rest in (["report", "run", "-o", "page.html"], ["table", "run"], ["timeline", "run", "-o", "run.trace.json"]):
        subprocess.run([*command, *rest], check=True, capture_output=True)
    run = read("run")
    assert [sentence(record, run.result.reason_texts) for record in run.result.reason_records][:1] == [SAID]
    assert packed_reasons(run.result, run.result.reason_records) in (tmp_path / "page.html").read_text("utf-8")


def test_check_accepts_a_true_excuse_and_refuses_a_false_one(module: Path) -> None:
    assert check(f"{module}:OneByOne", 10) == []
    (finding,) = check(f"{module}:BlamesItself", 10)
    assert finding.fault is Fault.IDLE
    assert "and 'another-runs' is no true reason for it" in finding.message
    (finding,) = check(f"{module}:Fails", 10)
    assert finding.fault is Fault.ERROR
    assert re.search(r"one_by_one.py, line \d+: ZeroDivisionError", finding.message)


def test_a_damaged_text_of_a_reason_is_one_line(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(RUN) == 0
    path = Path("run/run.json")
    info = json.loads(path.read_text())
    for damaged, line in (
        (3, "run/run.json: reasons is 3, must be a mapping"),
        ({"x": 3}, "run/run.json: reasons.x is 3, must be a sentence (text) and units (texts by name)"),
        ({"x": {"sentence": "a", "units": {"b": 1}}}, "must be a sentence (text) and units (texts by name)"),
    ):
        path.write_text(json.dumps({**info, "reasons": damaged}))
        capsys.readouterr()
        assert main(["why", "run", "b"]) == 2
        assert line in capsys.readouterr().err
        with pytest.raises(InvalidInputError, match="make the run again"):
            read("run")
    path.write_text(json.dumps({**info, "reasons": {"another-runs": {"sentence": "[{first", "units": {}}}}))
    capsys.readouterr()
    assert main(["why", "run", "b"]) == 0
    assert "The policy gives the reason another-runs (gpus_needed = 1;" in " ".join(
        capsys.readouterr().out.replace("│", " ").split()
    )


def test_two_kinds_with_one_name_are_an_error() -> None:
    class Unsure:
        def allocate(self, view, rng):  # type: ignore[no-untyped-def]
            return Decision({}, explain=lambda asked: {name: Reason(ReasonKind("x", name), {}) for name in asked})

    rules = EngineSettings(horizon=300.0)
    with pytest.raises(PolicyError, match=r"reasons of two different kinds with the name 'x'; use another name"):
        simulate(toy_workload(toy_job("a"), toy_job("b")), PROFILES, Cluster((1,)), Unsure(), settings=rules)


def test_a_policy_that_takes_over_may_have_another_sentence_for_a_name() -> None:
    """Synergy adds a sentence to the kinds of the policy within it."""

    class Says:
        def __init__(self, sentence: str) -> None:
            self.kind = ReasonKind("x", sentence)

        def allocate(self, view, rng):  # type: ignore[no-untyped-def]
            numbers = {"time": view.time}
            return Decision({}, explain=lambda asked: {name: Reason(self.kind, numbers) for name in asked})

    policy: Policy = Says("The first policy waits.")
    rules = EngineSettings(reasons="rounds")
    run = begun(toy_workload(toy_job("a")), Cluster((1,)), policy, rules)
    for _ in range(2):
        view = run.advance()
        assert view is not None
        run.commit(policy.allocate(view, run.rng))
    copy = deepcopy(run)
    copy.hand_over()
    policy = Says("The second policy waits.")
    view = copy.advance()
    assert view is not None
    copy.commit(policy.allocate(view, copy.rng))
    assert run.result().reason_texts == {"x": ReasonText("The first policy waits.", {})}
    result = copy.result()
    said = {sentence(record, result.reason_texts) for record in result.reason_records}
    assert said == {"The second policy waits."}
    with pytest.raises(PolicyError, match="two different kinds with the name 'x'"):
        second = copy.advance()
        assert second is not None
        copy.commit(Says("The third policy waits.").allocate(second, copy.rng))
