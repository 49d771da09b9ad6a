"""Advice in messages can be followed, and values of the command line mean what their user wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import polluxsim
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidConfigError, InvalidInputError

JOBS = "name,time,num_replicas,duration,queue\na,0,4,600,1001\nb,0,4,600,vision\n"
SMALL = ["cluster.num_nodes=1", "cluster.gpus_per_node=4", "workload.path=w.csv"]
POLICIES = """
class Assigns:
    def allocate(self, view, rng):
        view.jobs[0].batch_size = 3

class Keys:
    def allocate(self, view, rng):
        return {view.jobs[0]: ((0, 4),)}

class Rejects:
    def allocate(self, view, rng):
        from polluxsim import Decision
        return Decision({}, rejected=(view.jobs[0],))

class Numbers:
    def allocate(self, view, rng):
        return {0: ((0, 4),)}

class Nothing:
    def allocate(self, view, rng):
        return {}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a workload and the user's policies."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("w.csv").write_text(JOBS)
    Path("own_advice.py").write_text(POLICIES)
    Path("conf/policy").mkdir(parents=True)
    for name in ("Assigns", "Keys", "Rejects", "Numbers", "Nothing", "Missing", "py.Missing"):
        Path(f"conf/policy/{name.lower()}.yaml").write_text(f"_target_: own_advice.{name}\n")
    Path("conf/policy/elsewhere.yaml").write_text("_target_: no_such_module.Mine\n")
    Path("conf/policy/mine.yaml").write_text("_target_: polluxsim.policies.ordered.classic.Fifo\nbackfill: true\n")
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the line of a command that ends with status 2."""
    capsys.readouterr()
    assert main(list(words)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


OWN = ["--config-dir", "conf"]
MESSAGES = {
    "a batch size": (
        [*OWN, "policy=assigns"],
        "return a Decision with batch_sizes={job.job_id: BatchSize(total=64)}, or choose agent=NAME",
    ),
    "views as keys": ([*OWN, "policy=keys"], "gave GPUs to the view of job 'a', must name the job: use job.job_id"),
    "views to reject": ([*OWN, "policy=rejects"], "rejected the view of job 'a', must name the job: use job.job_id"),
    "numbers as keys": ([*OWN, "policy=numbers"], "gave GPUs to job 0, which is not active; name a job by job.job_id"),
    "a missing class": ([*OWN, "policy=missing"], "own_advice has no class Missing; it has Assigns, Keys, "),
    "a file as module": ([*OWN, "policy=py.missing"], "must be a module without .py, and a class: own_advice.Missing"),
    "a missing module": ([*OWN, "policy=elsewhere"], "there is no module no_such_module; start in the folder of"),
    "a class as policy": (
        ["policy=own_advice.py:Keys"],
        "write the line '_target_: own_advice.Keys' to conf/policy/NAME",
    ),
    "a part": (["policy=fifo", "cluster.failures.rate=6.5"], "choose cluster/failures=drawn, or leave the setting out"),
    "another policy's": (
        ["policy=fifo", "policy.p=-1"],
        "but pollux, pollux-remaining, sia have it; choose policy=pollux",
    ),
    "another cluster's": (["cluster.groups=[[1,4]]"], "choose cluster=mixed, or leave the setting out"),
    "nodes below 0": (
        ["policy=fifo", "cluster.num_nodes=-4"],
        "cluster.num_nodes is -4, must be a whole number from 1",
    ),
    "several values": (
        ["policy=fifo,srtf"],
        "policy=fifo,srtf names several values; name one, or make a run of each with",
    ),
    "several values of a range": (
        ["policy=fifo", "seed=range(0,3)"],
        "seed=range(0,3) names several values; name one, or make a run of each with",
    ),
    "null as a key": (
        ["policy=quotas", "policy.gpus={null: 4}"],
        "policy.gpus: null without quotes is no name of a key; write the mapping in a YAML file",
    ),
    "a key of digits": (
        ["policy=quotas", "+policy.gpus.01=4"],
        "the key ends with a number; write policy.gpus={01: 4}",
    ),
    "an open bracket": (
        ["policy=quotas", "policy.gpus={a: 4"],
        "polluxsim: policy.gpus={a: 4: must be KEY=VALUE in the",
    ),
    "two signs": (["policy==fifo"], "policy==fifo: must be KEY=VALUE in the grammar of Hydra; close each bracket"),
    "no part": (["policy=scaled", "policy/scale=null"], "policy.scale is missing; choose one with policy/scale=NAME"),
    "no policy": (["policy=null"], "each run needs one; choose one with policy=NAME"),
    "nothing to leave out": (["policy=fifo", "policy/scale=null"], "policy/scale=null has no effect, because no"),
    "none": (["agent=none"], "agent=null chooses none"),
    "a table": (["w.csv"], "write workload.path=w.csv"),
    "blanks": (["policy", "=", "fifo"], "'policy' has no value; write a setting as KEY=VALUE, without blanks"),
    "a relative number": (
        ["cluster.num_nodes=+2"],
        "write cluster.num_nodes=2; 'polluxsim whatif RUN --at TIME cluster",
    ),
    "a duration": (
        ["engine.horizon=3x"],
        "engine.horizon is '3x', must be a number of seconds, or a duration with a unit",
    ),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_a_message_says_what_to_do(here: Path, capsys: pytest.CaptureFixture[str], case: str) -> None:
    words, message = MESSAGES[case]
    last = [] if "num_nodes" in " ".join(words) or "groups" in " ".join(words) else SMALL[:1]
    assert message in refused(capsys, "run", *SMALL[1:], *last, "-o", "out", *words)


FOLLOWED = {
    "cluster/failures=drawn cluster.failures.rate=6.5": 0,
    "policy=tiresias policy.queue_threshold=16h": 0,
    "cluster=mixed cluster.groups=[[1,4]]": 0,
    "agent=null": 0,
}


@pytest.mark.parametrize("words", FOLLOWED)
def test_the_advice_can_be_followed(here: Path, words: str) -> None:
    given = words.split()
    nodes = [] if "cluster=mixed" in given else SMALL[:2]
    policy = [] if "policy=tiresias" in given else ["policy=fifo"]
    assert main(["run", *policy, *nodes, SMALL[2], "-o", "out", *given]) == FOLLOWED[words]


@pytest.mark.parametrize(("mark", "name"), [(";", "semicolons"), ("\t", "tabs")])
def test_another_separator_is_named(here: Path, capsys: pytest.CaptureFixture[str], mark: str, name: str) -> None:
    Path("other.csv").write_text(JOBS.replace(",", mark))
    message = f"other.csv, line 1: the columns are separated by {name}, must be separated by commas"
    assert message in refused(capsys, "run", "policy=fifo", "workload.path=other.csv", "-o", "out")
    assert f"separated by {name}" in refused(capsys, "log", "whatif", "other.csv", "--nodes", "1,2")


def test_a_target_needs_a_unit(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["size", "policy=fifo", SMALL[1], SMALL[2], "--target"]
    assert "wait by 1, which has no unit; write 1s, 1min or 1h" in refused(capsys, *words, "p90 wait < 1")
    assert "makespan by 600, which has no unit" in refused(capsys, *words, "makespan < 600")
    assert main([*words, "p90 wait < 1h"]) == 0


def test_a_run_without_a_started_job_has_status_1(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *OWN, "policy=nothing", *SMALL, "-o", "none"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("polluxsim: none: no job ever got a GPU, so that the metrics say nothing about the policy; ")
    assert Path("none/run.json").is_file()
    assert main(last.partition("'polluxsim ")[2].partition("'")[0].replace("JOB", "a").split()) == 0
    assert main(["run", "-m", *OWN, "policy=nothing,fifo", *SMALL, "-o", "sweep"]) == 1
    assert "1 of 2 runs (" in capsys.readouterr().err.splitlines()[-1]


def test_sweeps_name_null_units_and_own_policies(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "-m", "--workers", "1", *OWN, "policy=mine,srtf", "engine.horizon=null,3h,10800"]
    assert main([*words, *SMALL, "-o", "sweep"]) == 0
    assert capsys.readouterr().out.endswith("wrote sweep/sweep.parquet: 4 runs\n")
    assert main([*words, *SMALL, "-o", "sweep"]) == 0
    assert capsys.readouterr().out.endswith("4 runs, 4 of them found finished\n")
    matching = ["policy=mine", "policy=srtf", "engine.horizon=null", "engine.horizon=180min", "agent=null"]
    for baseline in (*matching, "policy.backfill=true", "cluster/failures=null", "engine=exact"):
        assert main(["table", "sweep", "--baseline", baseline]) == 0, baseline
    assert main(["compare", "sweep", "--baseline", "policy=mine"]) == 0
    for baseline in ("policy=las", "engine.horizn=null", "cluster/failures=rsc-1", "engine.horizon=4h", "policy=null"):
        line = refused(capsys, "table", "sweep", "--baseline", baseline)
        assert f"no run is the baseline '{baseline}'; give a setting that a run has" in line
    infos = [json.loads(path.read_text()) for path in Path("sweep").rglob("run.json")]
    assert {info.get("policy_entry") for info in infos} == {"mine", None}


def test_sweeps_take_null_for_a_group(here: Path) -> None:
    words = ["run", "-m", "--workers", "1", "policy=fifo", "cluster/failures=null,llama-3", "agent=null", *SMALL]
    assert main([*words, "-o", "sweep"]) == 0
    for baseline in ("cluster/failures=null", "cluster/failures=llama-3"):
        assert main(["table", "sweep", "--baseline", baseline]) == 0, baseline
    names = [path.parent.relative_to("sweep").as_posix() for path in Path("sweep").rglob("run.json")]
    assert sum("cluster/failures=null" in name and "agent=null" in name for name in names) == 1


def test_a_fork_takes_nodes_relative_to_its_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "policy=fifo", "cluster.num_nodes=2", *SMALL[1:], "-o", "base"]) == 0
    for given, nodes in {"+2": 4, "-1": 1, "3": 3}.items():
        assert main(["whatif", "base", "--at", "1min", f"cluster.num_nodes={given}", "-o", f"fork{given}"]) == 0
        assert (
            json.loads(Path(f"fork{given}/otherwise/run.json").read_text())["config"]["cluster"]["num_nodes"] == nodes
        )
    at = ["whatif", "base", "--at", "1min", "-o", "x"]
    assert "the run has 2 nodes, of which at least 1 must stay" in refused(capsys, *at, "cluster.num_nodes=-2")
    assert "the run has 1 node, which must stay" in refused(
        capsys, "whatif", "fork-1/otherwise", "--at", "2min", "-o", "x", "cluster.num_nodes=-1"
    )
    for setting in ("cluster.failures.rate=6.5", "cluster.spot.rate=1"):
        message = refused(capsys, *at, setting)
        part = setting.partition("=")[0].rpartition(".")[0]
        assert f"{part} cannot be changed in the middle of a run" in message
        assert "change only the number of nodes, or make a new run" in message
    assert "only cluster.num_nodes can be relative" in refused(capsys, *at, "policy.backfill=+2")
    assert "policy is null, but each run needs one" in refused(capsys, *at, "policy=null")
    assert main(["whatif", "base", "--at", "1min", "policy=las(quantum=2h)", "-o", "las"]) == 0
    assert json.loads(Path("las/otherwise/run.json").read_text())["config"]["policy"]["quantum"] == 7200.0


def test_a_merged_mapping_has_each_name_once(here: Path) -> None:
    assert main(["run", "policy=quotas(gpus={1001: 2})", *SMALL, "-o", "base"]) == 0
    assert main(["whatif", "base", "--at", "1min", "policy.gpus={1001: 1, vision: 2}", "-o", "fork"]) == 0
    gpus = json.loads(Path("fork/otherwise/run.json").read_text())["config"]["policy"]["gpus"]
    assert gpus == {"1001": 1, "vision": 2}


def test_remarks_are_recorded_and_printed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "policy=tiresias(queue_threshold=16)", *SMALL, "-o", "odd"]) == 0
    sentence = "policy.queue_threshold is 16 GPU s, less than a round (60 s); for 16 h, write 16h"
    assert f"odd: {sentence}" in capsys.readouterr().err
    assert json.loads(Path("odd/run.json").read_text())["suspicious"] == [sentence]


def test_python_says_what_to_pass(here: Path) -> None:
    where = {"cluster": (1, 4)}
    with pytest.raises(InvalidConfigError, match=r"seeds is 3, must be several seeds; write range\(3\), or \[3\]"):
        polluxsim.sweep("w.csv", policy="fifo", seeds=3, **where)
    with pytest.raises(InvalidConfigError, match=r"or a list of values: \['fifo', 'srtf'\]"):
        polluxsim.sweep("w.csv", policy=("fifo", "srtf"), **where)
    run, policy = polluxsim.start("w.csv", policy="fifo", **where)
    while (view := run.advance()) is not None:
        run.commit(policy.allocate(view, run.rng))
    with pytest.raises(TypeError, match=r"is of type Simulation; step it to its end, and pass its result"):
        polluxsim.compare({"a": run})
    with pytest.raises(InvalidInputError, match="there is no run to compare"):
        polluxsim.compare({})
