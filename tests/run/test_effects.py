"""Settings that have no effect are reported, and names in settings that do not exist are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidConfigError
from polluxsim.engine.failures import DrawnFailures, RecordedFailures
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.sharing import Interleaved, Pairs
from polluxsim.hardware.clusters import Cluster, Repairs
from polluxsim.policies.deadlines.elasticflow import ElasticEdf, ElasticFlow
from polluxsim.policies.elastic.cluster_size import PendingGpus, Scaled
from polluxsim.policies.ordered.classic import EarliestDeadline, Fifo, Priority
from polluxsim.policies.reserving.conservative import Conservative
from polluxsim.policies.reserving.easy import Easy
from polluxsim.policies.reserving.multifactor import Multifactor
from polluxsim.policies.sharing.antman import AntMan
from polluxsim.policies.sharing.muri import Muri
from polluxsim.policies.sized.synergy import Synergy
from polluxsim.policies.tenants.fairness import DominantResourceFairness, FairQueues
from polluxsim.policies.tenants.quotas import Quotas
from polluxsim.run.without_effect import settings_without_effect
from polluxsim.workloads.workload import Job, Workload

PLAIN = [Job.rigid(name, 0.0, 1, 60.0) for name in "ab"]
SAID = [
    Job.rigid("a", 0.0, 1, 60.0, queue="vision", user="ann", deadline=99.0, time_limit=90.0, priority=1.0),
    Job.rigid("b", 0.0, 1, 60.0, queue="speech", user="bob", deadline=90.0, time_limit=90.0, priority=-1.0),
]
NODES = Cluster.uniform(2, 4)


def found(policy, jobs=PLAIN, cluster=NODES, settings=None, agent=None):
    scenario = Scenario.under(policy, Workload(tuple(jobs)), {}, cluster, settings or EngineSettings(), agent)
    return settings_without_effect(policy, scenario)


SHARES = EngineSettings(sharing=Interleaved())
POLICIES = {
    "quotas": (Quotas(), PLAIN, "policy.gpus gives GPUs to no queue of a job, so each job borrows"),
    "quotas of 0": (Quotas({"vision": 0}), SAID, "policy.gpus gives GPUs to no queue of a job, so each job borrows"),
    "quotas where there is no queue": (Quotas({"gpu": 4}), PLAIN, "policy.gpus gives GPUs to no queue of a job"),
    "quotas of one queue": (Quotas({"none": 4}), PLAIN, "all jobs are in queue 'none'"),
    "fair-queues": (FairQueues(), PLAIN, "no job has a queue"),
    "fair-queues of one": (FairQueues(), SAID[:1], "all jobs have the same queue, 'vision'"),
    "drf": (DominantResourceFairness(), PLAIN, "no job has a queue"),
    "drf of users": (DominantResourceFairness(by="user"), PLAIN, "no job has a user"),
    "multifactor": (Multifactor(), PLAIN, "no job has a user: policy.fair_share has no effect"),
    "multifactor's priority": (Multifactor(priority=9.0), PLAIN, "no job has a priority: policy.priority"),
    "multifactor's limits": (Multifactor(overestimate=2.0), SAID, "policy.overestimate has no effect"),
    "easy": (Easy(overestimate=2.0), SAID, "policy.overestimate has no effect: each job has a time limit"),
    "conservative": (Conservative(overestimate=2.0), SAID, "policy.overestimate has no effect"),
    "priority": (Priority(), PLAIN, "no job has a priority"),
    "edf": (EarliestDeadline(), PLAIN, "no job has a deadline"),
    "elastic-edf": (ElasticEdf(), PLAIN, "no job has a deadline"),
    "elasticflow": (ElasticFlow(), PLAIN, "no job has a deadline: each job is admitted"),
    "synergy": (Synergy(Priority()), PLAIN, "no job has a priority"),
    "scaled": (Scaled(Priority(), PendingGpus()), PLAIN, "no job has a priority"),
}


@pytest.mark.parametrize("case", POLICIES)
def test_a_policy_says_what_decides_nothing(case: str) -> None:
    policy, jobs, sentence = POLICIES[case]
    assert any(sentence in said for said in found(policy, jobs)), found(policy, jobs)


@pytest.mark.parametrize(
    "policy",
    [
        Quotas({"vision": 4}), FairQueues({"vision": 2.0}), DominantResourceFairness({"ann": 2.0}, by="user"), Easy(),
        Multifactor(priority=9.0, shares={"ann": 3.0}), Priority(), EarliestDeadline(), ElasticEdf(), ElasticFlow(),
        Fifo(),
    ],
    ids=lambda policy: type(policy).__name__,
)  # fmt: skip
def test_a_policy_that_decides_says_nothing(policy: object) -> None:
    assert found(policy, SAID) == []


def test_policies_that_share_gpus_say_what_they_lack() -> None:
    assert "the stages of no job are known" in found(Muri(), settings=SHARES)[0]
    assert "none runs beside another" in found(AntMan(), settings=SHARES)[0]
    assert found(AntMan(), SAID, settings=SHARES) == []
    assert "does not give the CPUs" in found(Synergy(Fifo()))[0]
    assert "the number of nodes is fixed" in found(Scaled(Fifo(), PendingGpus()))[0]


NAMES = {
    "queue": (
        Quotas({"visoin": 4}),
        "policy.gpus names queue 'visoin', .* 'speech', 'vision'; did you mean vision?",
    ),
    "no quota": (Quotas(borrowing=False), r"no job could start; give GPUs to queues, as policy.gpus=\{speech: 8\}"),
    "weight": (FairQueues({"visoin": 2.0}), "policy.weights names queue 'visoin'"),
    "drf": (DominantResourceFairness({"vision": 2.0}, by="user"), "policy.weights names user 'vision'.* 'ann', 'bob'"),
    "user": (Multifactor(shares={"anne": 2.0}), "policy.shares names user 'anne'.* did you mean ann?"),
    "type": (Quotas({"vision": {"t4": 4}}), "policy.gpus.vision names GPU type 't4', .*use one of 'gpu'"),
}


@pytest.mark.parametrize("case", NAMES)
def test_a_name_that_does_not_exist_is_refused(case: str) -> None:
    policy, message = NAMES[case]
    with pytest.raises(InvalidConfigError, match=message):
        found(policy, SAID)


def test_a_gpu_type_of_restart_delays_is_known_or_of_the_cluster() -> None:
    delays = {"rigid": {"t4": 9.0, "own": 9.0}}
    own = Cluster.of_groups([[1, 4, {"name": "own", "memory": 1, "price": 0}]])
    application = {"restart_delays": {PLAIN[0].application: delays["rigid"]}}
    assert found(Fifo(), cluster=own, settings=EngineSettings(**application)) == []
    with pytest.raises(InvalidConfigError, match="names GPU type 'own'"):
        found(Fifo(), settings=EngineSettings(**application))


def test_pairs_are_of_a_gpu_type_of_their_table(tmp_path: Path) -> None:
    table = tmp_path / "pairs.csv"
    columns = "gpu_type,model,batch_size,gpus,other_model,other_batch_size,steps_per_s,other_steps_per_s"
    table.write_text(f"{columns}\np100,a,1,1,b,1,1.0,1.0\n")
    with pytest.raises(InvalidConfigError, match=r"engine\.sharing\.gpu_type names GPU type 'v100'.* one of 'p100'"):
        found(Fifo(), settings=EngineSettings(sharing=Pairs(str(table))))
    typed = Cluster.of_groups([[1, 4, "p100"]])
    assert found(Fifo(), cluster=typed, settings=EngineSettings(sharing=Pairs(str(table)))) == []
    (said,) = found(Fifo(), cluster=typed, settings=EngineSettings(sharing=Pairs(str(table), "p100")))
    assert "engine.sharing.gpu_type has no effect" in said


FAILS = DrawnFailures(1.0)
SETTINGS = {
    "repairs": ({"cluster": Cluster.uniform(2, 4, repairs=Repairs(1))}, "cluster.repairs has no effect: nodes do not"),
    "repairs of any number": (
        {"cluster": Cluster.uniform(2, 4, FAILS, repairs=Repairs())},
        "cluster.repairs has no effect: crews is null",
    ),
    "rates of 0": ({"cluster": Cluster.uniform(2, 4, DrawnFailures(0.0))}, "cluster.failures has no effect"),
    "group size": (
        {"cluster": Cluster.uniform(2, 4, DrawnFailures(1.0, group_size=2))},
        "cluster.failures.group_size has no effect",
    ),
    "interference": (
        {"cluster": Cluster.uniform(1, 4), "settings": EngineSettings(interference=0.1)},
        "engine.interference has no effect",
    ),
    "free moves": (
        {"settings": EngineSettings(restart_delay=0.0, free_moves=True)},
        "engine.free_moves has no effect",
    ),
    "asking": ({"settings": EngineSettings(ask_at_failures=True)}, "engine.ask_at_failures has no effect"),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_a_setting_that_changes_nothing_is_said(case: str) -> None:
    parts, sentence = SETTINGS[case]
    (said,) = found(Fifo(), **parts)
    assert sentence in said


def test_a_record_of_failures_has_its_own_repairs(tmp_path: Path) -> None:
    (tmp_path / "failures.csv").write_text("node,time,down_until\n1,200,260\n")
    recorded = RecordedFailures(str(tmp_path / "failures.csv"))
    (sentence,) = found(Fifo(), cluster=Cluster.uniform(2, 4, recorded, repairs=Repairs(1)))
    assert sentence == "cluster.repairs has no effect: the file of cluster.failures gives the end of each failure"


def test_settings_that_change_something_are_not_said() -> None:
    cluster = Cluster.uniform(2, 4, FAILS, repairs=Repairs(1))
    assert found(Fifo(), cluster=cluster, settings=EngineSettings(ask_at_failures=True, free_moves=True)) == []


SMALL = ["workload=philly-like", "workload.num_jobs=4", "workload.hours=1"]
LINES = {
    "repairs": (["cluster/repairs=limited"], "cluster.repairs has no effect: nodes do not fail"),
    "sharing": (["engine/sharing=interleaved"], "engine.sharing has no effect: policy Fifo never put jobs on the same"),
    "rate": (["engine/checkpoints=epoch", "engine.checkpoints.expected_rate=9"], "expected_rate has no effect"),
    "bandwidth": (["engine/checkpoints=epoch", "engine.checkpoints.bandwidth=9"], "bandwidth has no effect"),
    "agent": (["agent=kungfu", "workload=philly-like-rigid", "~workload.num_jobs"], "agent has no effect"),
    "delays": (
        ["workload=one-job", "~workload.num_jobs", "~workload.hours", "engine.restart_delays={ncf: 5}"],
        "engine.restart_delays has no effect: no job trains ncf",
    ),
}


@pytest.mark.parametrize("case", LINES)
def test_a_run_prints_a_line_and_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    monkeypatch.chdir(tmp_path)
    words, sentence = LINES[case]
    small = SMALL if not any(word.startswith("workload=") for word in words) else []
    words = [word for word in words if not word.startswith("~")]
    assert main(["run", "policy=fifo", *small, *words, "engine.horizon=7200", "hydra.run.dir=out"]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if sentence in line]
    assert len(lines) == 1
    assert lines[0].startswith("polluxsim: out: ")
    assert any(sentence in said for said in json.loads(Path("out/run.json").read_text())["without_effect"])


def test_a_run_without_one_prints_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "policy=fifo", *SMALL, "hydra.run.dir=out"]) == 0
    assert capsys.readouterr().err == ""
    assert "without_effect" not in json.loads(Path("out/run.json").read_text())
