"""The Python API: the command line's results to the byte, whatever says what a run is, and clear words for mistakes."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import polluxsim
from polluxsim.api.simulating import starter
from polluxsim.applications.card_files import read_cards
from polluxsim.cli.main import main, parsed
from polluxsim.common.errors import InvalidConfigError, InvalidInputError
from polluxsim.common.shipped import shipped
from polluxsim.engine.failures import DrawnFailures
from polluxsim.policies.ordered.attained_service import Tiresias
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.policies.tools.free_gpus import pack, remove
from polluxsim.records.storage import RUN_FILE, read_run

if TYPE_CHECKING:
    from shared_runs import SharedRuns

ROOT = Path(__file__).parents[2]


@dataclass
class Newest:
    """A policy that remembers the rounds it saw."""

    seen: list[float] = field(default_factory=list)

    def allocate(self, view: Any, rng: object) -> dict[str, Any]:
        self.seen.append(view.time)
        free, allocation = view.gpus_per_node, {}
        for job in reversed(view.jobs):
            if placement := pack(free, job.num_replicas, keep=job.placement):
                allocation[job.job_id] = placement
                free = remove(free, placement)
        return allocation


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a workload of ten small jobs."""
    path = tmp_path_factory.mktemp("workload") / "small.csv"
    table = pd.read_csv(shipped("workloads") / "philly-like-160.csv")
    table[table.application.isin(["cifar10", "ncf"])].head(10).to_csv(path, index=False)
    return path


def simulate(workload: Any, **parts: Any) -> polluxsim.Result:
    return polluxsim.simulate(workload, progress=False, **parts)


def written(folder: Path) -> dict[str, bytes]:
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "timing.parquet"}
    assert RUN_FILE in files
    return files


SAME = [
    ([], {}),
    (
        ["policy=pollux", "policy.p=-10", "seed=3", "cluster.num_nodes=10", "cluster.gpus_per_node=2"],
        {"policy": polluxsim.policy("pollux", p=-10), "seed": np.int64(3), "cluster": (10, 2)},
    ),
    (["policy=tiresias", "engine=osdi21"], {"policy": "tiresias", "settings": "osdi21"}),
    (
        ["policy=tiresias", "engine.round_interval=30.0", "engine.horizon=1800"],
        {"policy": "tiresias", "settings": polluxsim.settings(round_interval=30.0, horizon=1800)},
    ),
    # Objects describe themselves as the configuration would have.
    (["policy=tiresias"], {"policy": Tiresias(), "settings": polluxsim.EngineSettings()}),
    (["policy.p=0.5"], {"policy": Pollux(p=0.5)}),
    (
        ["policy=fifo", "cluster=mixed", "cluster.groups=[[2,4],[1,16]]"],
        {"policy": "fifo", "cluster": polluxsim.Cluster((4, 4, 16))},
    ),
    (
        ["policy=fifo", "cluster=elastic", "cluster.least_nodes=16", "cluster.node_price=3.9"],
        {"policy": "fifo", "cluster": polluxsim.Cluster.elastic(16, 16, 4, 120.0, 3.9)},
    ),
    (
        [
            "policy=fifo",
            "cluster=elastic",
            "cluster.least_nodes=8",
            "cluster/failures=drawn",
            "cluster.failures.rate=5e4",
        ],
        {"policy": "fifo", "cluster": polluxsim.Cluster.elastic(16, 8, 4, 120.0, 3.912, DrawnFailures(5e4))},
    ),
]


@pytest.mark.parametrize(("arguments", "parts"), SAME)
def test_results_are_the_command_line_s_to_the_byte(
    tmp_path: Path, small: Path, arguments: list[str], parts: dict[str, Any]
) -> None:
    assert main(["run", *arguments, f"workload.path={small}", f"hydra.run.dir={tmp_path / 'cli'}"]) == 0
    result = simulate(small, **parts)
    assert result.save(tmp_path / "api") == tmp_path / "api"
    assert written(tmp_path / "api") == written(tmp_path / "cli")


def test_a_result_is_not_saved_over_another_run(small: Path, tmp_path: Path) -> None:
    first, second = (simulate(small, policy="fifo", seed=seed) for seed in (0, 1))
    first.save(tmp_path / "out")
    before = written(tmp_path / "out")
    with pytest.raises(InvalidConfigError, match=r"a finished run of other settings is there \(seed is 0 there, 1"):
        second.save(tmp_path / "out")
    assert written(tmp_path / "out") == before
    assert simulate(small, policy="fifo").save(tmp_path / "out")


def test_the_default_run_is_that_of_the_command_line(shared_runs: SharedRuns) -> None:
    config = read_run(shared_runs.run("pollux")).info["config"]
    result = polluxsim.simulate(settings=polluxsim.settings(horizon=600.0), progress=False)
    assert result.info["config"] == config | {"engine": config["engine"] | {"horizon": 600.0}}
    assert result.name == "pollux"


def test_a_drawn_workload_takes_the_seed_of_the_run(tmp_path: Path) -> None:
    drawn = {"workload.num_jobs": 5, "workload.hours": 1}
    arguments = [f"{name}={value}" for name, value in drawn.items()]
    assert main(["run", "workload=philly-like", *arguments, "seed=4", f"hydra.run.dir={tmp_path / 'cli'}"]) == 0
    simulate(polluxsim.workload("philly-like", num_jobs=5, hours=1), seed=4).save(tmp_path / "api")
    assert written(tmp_path / "api") == written(tmp_path / "cli")


def test_a_workload_may_be_a_file_a_table_or_an_object(small: Path) -> None:
    table = pd.read_csv(small)
    jobs = tuple(
        polluxsim.Job(name, float(time), application, num_replicas, batch_size)
        for name, time, application, num_replicas, batch_size in table.itertuples(index=False, name=None)
    )
    results = [simulate(given, policy="fifo") for given in (str(small), table, polluxsim.Workload(jobs))]
    assert results[0].result == results[1].result == results[2].result
    described = [result.info["config"]["workload"] for result in results]
    assert described[0]["path"] == str(small)
    assert described[1]["sha256"] == described[2]["sha256"]
    other = simulate(table.assign(time=table.time + 1), policy="fifo")
    assert other.info["config"]["workload"]["sha256"] != described[1]["sha256"]


def test_profiles_may_be_a_folder_or_objects(small: Path) -> None:
    by_name = simulate(small, policy="fifo")
    by_folder = simulate(small, policy="fifo", profiles=shipped("traces"))
    by_object = simulate(small, policy="fifo", profiles=read_cards(shipped("traces")))
    assert by_name.result == by_folder.result == by_object.result


def test_a_policy_object_is_fresh_in_every_run(small: Path) -> None:
    policy = Newest()
    first = simulate(small, policy=policy)
    assert policy.seen == []
    assert simulate(small, policy=policy).result == first.result
    assert first.name == "Newest"
    assert first.info["config"]["policy"] == {"object": f"{__name__}.Newest"}


def test_a_policy_that_nobody_can_import_is_described_by_its_name(small: Path) -> None:
    @dataclass
    class Here(Tiresias):
        pass

    described = simulate(small, policy=Here()).info["config"]["policy"]
    assert list(described) == ["object"]
    assert described["object"].endswith("Here")


@pytest.mark.parametrize(
    "cluster", [polluxsim.Cluster((8, 8), node_price=3.9), polluxsim.Cluster((8, 16), least_nodes=2)]
)
def test_a_cluster_that_no_setting_makes_has_no_key(small: Path, cluster: polluxsim.Cluster) -> None:
    info = simulate(small, policy="fifo", cluster=cluster).info
    assert info["config"]["cluster"] == {"object": "polluxsim.hardware.clusters.Cluster"}
    assert info["key"] is None


def test_numbers_of_numpy_are_numbers(small: Path) -> None:
    result = simulate(small, policy=Pollux(p=np.float64(-2.0)))
    assert type(result.info["config"]["policy"]["p"]) is float
    fork = result.at(60).fork(policy=polluxsim.policy(p=np.float64(-3.0)))
    assert fork.info["config"]["policy"]["p"] == -3.0
    assert starter(small, policy="fifo")(np.int64(3))[0].time == 0.0
    quotas = simulate(small, policy=polluxsim.policy("quotas", gpus={"a": np.int64(64)}))
    assert quotas.info["config"]["policy"]["gpus"] == {"a": 64}


def test_a_setting_within_a_setting_has_a_name_with_a_dot(small: Path) -> None:
    policy = polluxsim.policy("scaled", **{"inner.backfill": True})
    result = simulate(small, policy=policy, cluster="elastic")
    assert result.info["config"]["policy"]["inner"]["backfill"] is True
    fork = result.at(60).fork(policy=polluxsim.policy(**{"inner.backfill": False}))
    assert fork.info["config"]["policy"]["inner"]["backfill"] is False


def test_a_run_yaml_of_the_user_may_state_the_policy_itself(tmp_path: Path) -> None:
    own = (shipped("configs") / "run.yaml").read_text(encoding="utf-8").replace("  - policy: pollux\n", "")
    target = "polluxsim.policies.ordered.classic.Fifo"
    (tmp_path / "run.yaml").write_text(f"{own}\npolicy:\n  _target_: {target}\n", encoding="utf-8")
    with polluxsim.config_dirs(tmp_path):
        assert simulate("one-job").name == "Fifo"
        (tmp_path / "run.yaml").write_text("seed: 1\n", encoding="utf-8")
        with pytest.raises(polluxsim.PolluxSimError, match="there is no setting 'workload'"):
            simulate("one-job")


def test_a_file_of_the_user_in_another_encoding_hides_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "mine.yaml").write_bytes("_target_: x # für mich\n".encode("latin-1"))
    with polluxsim.config_dirs(tmp_path):
        for policy in (polluxsim.policy("fifo", backfill="x"), "mine"):
            with pytest.raises(polluxsim.PolluxSimError, match=r"policy\.backfill is 'x'|mine.yaml: not UTF-8 text"):
                simulate("one-job", policy=policy)


def test_a_result_has_tables_and_shows_itself(small: Path, tmp_path: Path) -> None:
    result = simulate(small, policy="fifo")
    assert len(result.jobs) == 10
    assert result.jobs.status.eq("completed").all()
    assert {"time", "active_jobs", "gpus_in_use"} <= set(result.rounds)
    assert {"time", "job", "nodes", "gpus"} <= set(result.allocations)
    assert result.summary().loc["fifo", "avg_jct"] == result.jobs.jct.mean() == result.metrics.avg_jct
    shown = result._repr_html_()
    assert f"{result.metrics.avg_jct / 60:.3f}" in shown
    assert "<svg" in shown
    assert len(shown) < 30_000
    assert repr(result).startswith("Result('fifo', 10 jobs, average JCT ")
    again = polluxsim.read(result.save(tmp_path / "kept"))
    assert (again.name, again.result, again._repr_html_()) == ("kept", result.result, shown.replace("fifo", "kept"))


def test_reasons_are_asked_for_at_a_time_in_any_form(small: Path) -> None:
    result = simulate(small, policy="fifo")
    job = result.jobs.job[0]
    assert result.why(job, "1min") == result.why(job, 60) != ""
    with pytest.raises(polluxsim.PolluxSimError, match="TIME is nan, must be seconds"):
        result.why(job, float("nan"))


def test_runs_side_by_side(small: Path, tmp_path: Path) -> None:
    runs = {f"<{name}>": simulate(small, policy=name) for name in ("fifo", "srtf")}
    both = polluxsim.compare(runs)
    table = both.summary()
    assert list(table.index) == ["<fifo>", "<srtf>"]
    assert table.loc["<srtf>", "jct_by_application.ncf"] == runs["<srtf>"].metrics.jct_by_application["ncf"]
    assert (table.cut_off == 0).all()
    assert "&lt;srtf&gt;" in both._repr_html_()
    assert "<srtf>" not in both._repr_html_()
    assert "average JCT" in repr(both)
    page = both.report(tmp_path / "both.html")
    assert page.read_text(encoding="utf-8").count('class="show-run"') == 2
    assert runs["<fifo>"].report(tmp_path / "one.html").exists()
    with pytest.raises(InvalidInputError, match=r"end in \.html"):
        both.report(tmp_path / "both.pdf")
    assert both.changes().loc[("SRTF", "avg_jct"), "pairs"] == 1
    many = polluxsim.compare({str(index): runs["<fifo>"] for index in range(6)})
    assert many._repr_html_().count("<tr>") == 7
    with pytest.raises(TypeError, match="runs by name"):
        polluxsim.compare([runs["<fifo>"]])  # type: ignore[arg-type]


TABLE = pd.DataFrame(
    {"name": ["a"], "time": [0.0], "application": ["cifar10"], "num_replicas": [1], "batch_size": [128]}
)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"policy": "polux"}, "policy=polux is unknown, must be one of "),
        ({"policy": Newest}, "policy is the class Newest, must be an object: Newest()"),
        ({"policy": 3}, "policy is 3, must be a name"),
        ({"policy": polluxsim.cluster()}, "policy is cluster(), must be a choice of policy"),
        ({"cluster": 16}, "cluster is 16, must be a name"),
        ({"cluster": (0, 4)}, "cluster.num_nodes is 0, must be a whole number from 1"),
        ({"cluster": (2.5, 4)}, "cluster.num_nodes is 2.5, must be a whole number"),
        ({"settings": {"horizon": 3}}, "settings is {'horizon': 3}, must be a name"),
        ({"settings": polluxsim.settings(interval=3)}, "engine.interval is not a setting of"),
        ({"settings": polluxsim.settings(horizon={1, 2})}, "engine.horizon is {1, 2}, must be a number"),
        ({"seed": -1}, "seed is -1, must be a whole number"),
        ({"seed": True}, "seed is True, must be a whole number"),
        ({"metrics": ["mine"]}, "metrics is ['mine'], must be polluxsim.Metric objects by name"),
        ({"profiles": "nowhere"}, "profiles.path is nowhere, must be a folder"),
        ({"profiles": 5}, "profiles is 5, must be a folder"),
        ({"workload": "nowhere.csv"}, "nowhere.csv: no such file"),
        ({"workload": "nowhere"}, "workload=nowhere is unknown; choose from"),
        ({"workload": Path("nowhere")}, "workload=nowhere is unknown; choose from"),
        ({"workload": TABLE.drop(columns="time")}, "DataFrame: missing column 'time'; it must have name, time"),
        ({"workload": TABLE.assign(num_replicas=0)}, "DataFrame, line 1: column 'num_replicas' is 0, must be"),
        ({"workload": pd.concat([TABLE, TABLE])}, "DataFrame, line 2: the name 'a' is also on line 1"),
        ({"workload": TABLE.assign(application="gpt")}, "application 'gpt' has no profile, must be one of bert"),
    ],
)
def test_a_mistake_is_named_in_one_line(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(polluxsim.PolluxSimError) as caught:
        simulate(parts.pop("workload", TABLE), **parts)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_importing_loads_nothing_that_is_slow() -> None:
    code = "import sys, polluxsim; dir(polluxsim); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert not {"numpy", "pandas", "hydra", "pyarrow", "numba", "polluxsim.api"} & set(loaded)
    code += "; polluxsim.simulate, polluxsim.Result"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.returncode == 0
    with pytest.raises(AttributeError, match="nothing"):
        _ = polluxsim.nothing  # type: ignore[attr-defined]


def test_the_names_for_type_checkers_are_those_that_there_are() -> None:
    stub = (ROOT / "polluxsim" / "__init__.pyi").read_text()
    named = {line.rsplit(" ", 1)[1] for line in stub.splitlines() if line.startswith("from")}
    assert named | {"__version__"} == set(polluxsim.__all__)
    assert all(getattr(polluxsim, name) is not None for name in named)


INTERRUPTED = """
import os, signal, polluxsim
class Slow:
    rounds = 0
    def allocate(self, view, rng):
        Slow.rounds += 1
        if Slow.rounds == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return {}
try:
    polluxsim.simulate(policy=Slow(), progress=False)
except KeyboardInterrupt:
    print("stopped after", Slow.rounds)
class Stuck:
    went_on = False
    def allocate(self, view, rng):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        Stuck.went_on = True
        return {}
try:
    polluxsim.simulate(policy=Stuck(), progress=False)
except KeyboardInterrupt:
    print("stuck no more", Stuck.went_on)
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("as before")
"""


@pytest.mark.usefixtures("default_signals")
def test_ctrl_c_ends_the_run_and_not_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=True)
    assert done.stdout == "stopped after 3\nstuck no more False\nas before\n"


def test_a_sweep_in_a_folder_is_that_of_the_command_line_and_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = polluxsim.workload("philly-like", num_jobs=3, hours=1)
    policies: list[Any] = ["fifo", polluxsim.policy("tiresias", queue_threshold=9.0), Tiresias()]
    kept = polluxsim.sweep(small, policy=policies, cluster=(4, 4), seeds=range(2), folder="kept", workers=1)
    in_memory = polluxsim.sweep(small, policy=policies, cluster=(4, 4), seeds=range(2))
    assert kept.frame.avg_jct.tolist() == in_memory.frame.avg_jct.tolist()
    assert [run.info["config"]["seed"] for run in kept.runs] == [0, 1] * 3
    parallel = polluxsim.sweep(small, policy=policies, cluster=(4, 4), seeds=range(2), workers=2)
    assert [run.result for run in parallel.runs] == [run.result for run in in_memory.runs]
    written = {path: path.stat().st_mtime_ns for path in Path("kept").rglob("run.json")}
    assert len(written) == 6
    command = ["run", "-m", "policy=fifo", "seed=0,1", "workload=philly-like", "workload.num_jobs=3"]
    command += ["workload.hours=1", "cluster.num_nodes=4", "cluster.gpus_per_node=4", "-o", "kept", "--workers", "1"]
    assert main(command) == 0
    more = polluxsim.sweep(small, policy=[*policies, "srtf"], cluster=(4, 4), folder=tmp_path / "kept", workers=1)
    assert len(more.frame) == 4
    assert written.items() <= {path: path.stat().st_mtime_ns for path in Path("kept").rglob("run.json")}.items()
    assert len(list(Path("kept").rglob("run.json"))) == 7


def test_a_run_of_a_sweep_may_load_the_class_of_its_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "swept.py").write_text(
        "from dataclasses import dataclass\n\nfrom polluxsim.policies.ordered.classic import Fifo\n\n\n"
        "@dataclass\nclass Mine(Fifo):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    swept = importlib.import_module("swept")
    (run,) = polluxsim.sweep("one-job", policy=[swept.Mine()]).runs
    assert run.at(60).time == 60.0


def test_a_sweep_in_a_folder_names_what_a_configuration_cannot_state(tmp_path: Path) -> None:
    class Mine:
        def allocate(self, view: object, rng: object) -> dict[str, object]:
            return {}

    for arguments, said in (
        (
            {"policy": Mine()},
            "policy is an object of Mine, which a sweep in several processes cannot state; give a",
        ),
        ({"metrics": {"mine": 1}}, "metrics has 'mine', but a sweep in several processes cannot state an object"),
        ({"workers": 0}, "workers is 0, must be a whole number"),
        ({"policy": "polux"}, "policy=polux is unknown"),
    ):
        with pytest.raises(polluxsim.PolluxSimError, match=re.escape(said)):
            polluxsim.sweep(folder=tmp_path / "kept", **arguments)  # type: ignore[arg-type]
    with pytest.raises(polluxsim.PolluxSimError, match="policy is an object of Mine"):
        polluxsim.sweep(policy=Mine(), workers=2)
    with pytest.raises(polluxsim.PolluxSimError, match="the sweep has no runs; give at least one value"):
        polluxsim.sweep(policy=[])
    assert not list(tmp_path.iterdir())


def test_a_request_has_the_defaults_of_its_command() -> None:
    size = parsed(["size", "--target", "p90 wait < 1h"])
    request = polluxsim.SizeRequest("p90 wait < 1h")
    assert (request.seeds, request.folder, request.workers) == (size.seeds, size.output, size.workers)
    assert (request.limit, request.step, request.existing) == (size.limit, size.step, size.existing)
    log = parsed(["log", "calibrate", "log", "--gpus", "8"])
    wanted = polluxsim.CalibrateRequest(Path("log"), [8])
    assert (list(wanted.policies), wanted.gpus_per_node, wanted.folder) == (log.policies, log.gpus_per_node, log.output)
    whatif = parsed(["log", "whatif", "log", "--nodes", "8"])
    other = polluxsim.LogWhatIfRequest(Path("log"), [8])
    assert [list(other.loads), list(other.policies)] == [whatif.load, whatif.policies]
    assert [list(other.failures), list(other.percentiles)] == [whatif.failures, whatif.percentile]
    assert (other.gpus_per_node, other.folder, other.place) == (whatif.gpus_per_node, None, Path("log-whatif"))
    arena, played = parsed(["arena"]), polluxsim.ArenaRequest()
    assert (played.suite, played.folder, played.seeds) == (arena.suite, arena.output, arena.seeds)


def test_studies_are_functions_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["policy=fifo", "workload=philly-like", "workload.num_jobs=5", "workload.hours=1"]
    answer = polluxsim.size(polluxsim.SizeRequest("mean wait < 1h", small, limit=16))
    assert answer.level is not None
    assert list(answer.sentences())
    rows = "".join(f"{number},{60 * number},{60 * number + 30},{600},1\n" for number in range(6))
    Path("log.csv").write_text(f"job,submit,start,duration,gpus\n{rows}")
    assert main(["log", "import", "table", "log.csv", "-o", "log.parquet"]) == 0
    found = polluxsim.calibrate(polluxsim.CalibrateRequest(Path("log.parquet"), [8], ["fifo", "srtf"], workers=1))
    assert {match.policy for match in found.matches} == {"fifo", "srtf"}
    assert len(found.recorded) == 6
    played = polluxsim.arena(
        polluxsim.ArenaRequest(["fifo", "srtf"], scenarios=["rigid"], seeds=1, workers=1, folder=tmp_path / "arena")
    )
    assert set(played.frame().policy) == {"fifo", "srtf"}
    assert {path.name for path in (tmp_path / "arena").iterdir()} >= {"arena.html", "arena.md", "arena.parquet"}
