from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from polluxsim.applications.folder import ProfileFolder
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidConfigError, InvalidInputError
from polluxsim.logs.trace_table import TraceInfo, TraceJob, read_trace, trace_schema, write_trace
from polluxsim.records.storage import read_run
from polluxsim.workloads.mapping import MappedTrace, tuned_configurations
from polluxsim.workloads.past import Past
from polluxsim.workloads.selection import Selection
from polluxsim.workloads.trace import TraceReplay
from polluxsim.workloads.workload import read_workload

HOUR = 3600.0
PROFILES = ProfileFolder().load()
INFO = TraceInfo("test", "none", "", "UTC", "2017-09-25T00:00:00+00:00")
CLASSES = {"S": {"cifar10", "ncf"}, "M": {"deepspeech2", "bert"}, "L": {"yolov3"}, "XL": {"imagenet"}}
# Source: Pollux (OSDI '21), §5.1: size classes by GPU-hours.
LIMITS = {"S": 1, "M": 10, "L": 100, "XL": 1000}

JOBS = [
    TraceJob("short", 0.0, 59.0, 1, "vc", "completed"),
    TraceJob("small", 10.0, 60.0, 1, "vc", "completed"),
    TraceJob("medium", 20.0, HOUR / 2, 4, "vc", "completed"),
    TraceJob("failed", 30.0, HOUR, 4, "vc", "failed"),
    TraceJob("large", 40.0, 50 * HOUR, 1, None, None),
    TraceJob("no gpu", 50.0, HOUR, 0, "vc", "completed"),
    TraceJob("no duration", 60.0, None, 8, "vc", "completed"),
    TraceJob("half", 2 * HOUR, 3 * HOUR, 0.5, "vc", "completed"),
    TraceJob("huge", 3 * HOUR, 999 * HOUR, 1, "vc", "completed"),
    TraceJob("too huge", 3 * HOUR, 125 * HOUR, 8, "vc", "completed"),
]


def write(path: Path, jobs: list[TraceJob]) -> Path:
    write_trace({name: [getattr(job, name) for job in jobs] for name in TraceJob._fields}, INFO, path)
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write(tmp_path / "trace.parquet", JOBS)


def test_a_trace_is_read_back(trace: Path) -> None:
    assert read_trace(trace) == (INFO, JOBS)


def test_classes_by_gpu_time_and_counts_of_what_is_left_out(trace: Path) -> None:
    workload, report = MappedTrace(str(trace), seed=1).map(PROFILES)
    names = [job.application for job in workload.jobs]
    assert [job.submit_time for job in workload.jobs] == [10, 20, 40, 2 * HOUR, 3 * HOUR]
    expected = ["S", "M", "L", "M", "XL"]
    assert all(name in CLASSES[size] for name, size in zip(names, expected, strict=True))
    assert report.jobs == len(JOBS)
    assert report.applications == Counter(names)
    assert report.left_out == {
        "shorter than 60 s": 1,
        "status failed": 1,
        "no GPU": 1,
        "no duration in the trace": 1,
        "1000 GPU-hours or more": 1,
    }
    assert report.jobs == sum(report.applications.values()) + sum(report.left_out.values())


def test_gpu_types_of_the_log_are_kept_where_it_is_said_what_they_stand_for(tmp_path: Path) -> None:
    jobs = [TraceJob(str(i), float(i), HOUR, 1, gpu_type=name) for i, name in enumerate(("T4", "A100", "MISC", None))]
    info = replace(INFO, format="pai2020")
    path = tmp_path / "typed.parquet"
    schema = trace_schema(("gpu_type",), info)
    columns = [[getattr(job, name) if name in TraceJob._fields else None for job in jobs] for name in schema.names]
    pq.write_table(pa.table([pa.array(c, t.type) for c, t in zip(columns, schema, strict=True)], schema=schema), path)
    plain, typed = (
        MappedTrace(str(path), gpu_types=types).load(PROFILES).jobs for types in (None, {"A100": "a100-80"})
    )
    assert [job.gpu_types for job in typed] == [("t4",), ("a100-80",), (), ()]
    assert [replace(job, gpu_types=()) for job in typed] == list(plain)


@pytest.mark.parametrize(
    ("select", "kept"),
    [
        (Selection(start=1.0), [HOUR, 2 * HOUR]),
        (Selection(start=1.0, hours=1.5), [HOUR]),
        (Selection(hours=0.01, min_duration=0), [0, 10, 20]),
        (Selection(statuses=("failed",)), [30, 40]),
        (Selection(statuses=None, min_duration=0, hours=1), [0, 10, 20, 30, 40]),
        (Selection(max_gpu_hours=1, min_duration=0), [0, 10]),
        (Selection(max_gpu_hours=float("inf"), start=3), [0]),
    ],
)
def test_what_is_selected(trace: Path, select: Selection, kept: list[float]) -> None:
    workload, report = MappedTrace(str(trace), select=select).map(PROFILES)
    assert [job.submit_time for job in workload.jobs if job.past is None] == kept
    assert len(JOBS) == len(kept) + report.before + sum(report.left_out.values())
    assert report.before == len(workload.jobs) - len(kept)


def test_a_mapped_window_begins_with_the_jobs_that_run_and_wait_then(tmp_path: Path) -> None:
    """A running job has done the same share of its work as in the log; the draws of the window stay as they are."""
    jobs = [
        TraceJob("ended", 0.0, HOUR, 1, queueing_delay=HOUR),
        TraceJob("runs", HOUR, 4 * HOUR, 1, queueing_delay=HOUR),
        TraceJob("failed", HOUR, 4 * HOUR, 1, status="failed", queueing_delay=HOUR),
        TraceJob("waits", 2 * HOUR, 2 * HOUR, 1, queueing_delay=3 * HOUR),
        *(TraceJob(f"new-{index}", (3.5 + index) * HOUR, 2 * HOUR, 1, queueing_delay=0.0) for index in range(9)),
    ]
    schema = trace_schema(("queueing_delay",), INFO)
    columns = [[getattr(job, name) if name in TraceJob._fields else None for job in jobs] for name in schema.names]
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table([pa.array(c, t.type) for c, t in zip(columns, schema, strict=True)], schema=schema), path)
    workload, report = MappedTrace(str(path), select=Selection(start=3.0)).map(PROFILES)
    runs, waits, *new = workload.jobs
    assert [(job.job_id, job.submit_time) for job in (runs, waits)] == [("runs", -2 * HOUR), ("waits", -HOUR)]
    assert runs.past is not None
    work = PROFILES[runs.application].epoch_end(PROFILES[runs.application].application.num_epochs - 1)
    assert (runs.past.state, runs.past.started, runs.past.progress) == ("running", -HOUR, pytest.approx(work / 4))
    assert waits.past == Past.pending()
    assert (report.before, report.left_out) == (
        2,
        {"submitted outside the window": 1, "status failed, running or waiting at the start of the window": 1},
    )
    assert report.before == 2
    alone = write(tmp_path / "new.parquet", [job._replace(submit_time=job.submit_time - 3 * HOUR) for job in jobs[4:]])
    assert [replace(job, line=0) for job in MappedTrace(str(alone)).load(PROFILES).jobs] == new


def test_limits_of_classes_belong_to_the_next(tmp_path: Path) -> None:
    at = [TraceJob(f"{size}-{side}", 0.0, hours * HOUR - side, 1) for size, hours in LIMITS.items() for side in (1, 0)]
    workload, report = MappedTrace(str(write(tmp_path / "t.parquet", at))).map(PROFILES)
    expected = ["S", "M", "M", "L", "L", "XL", "XL"]
    assert all(job.application in CLASSES[size] for job, size in zip(workload.jobs, expected, strict=True))
    assert report.left_out == {"1000 GPU-hours or more": 1}


def test_even_odds_and_tuned_configurations(tmp_path: Path) -> None:
    """Level 1e-4 for each of two pairs; the seed is fixed."""
    path = write(tmp_path / "t.parquet", [TraceJob(str(i), float(i), (1 + i % 2) * HOUR / 1.5, 1) for i in range(4000)])
    workload, report = MappedTrace(str(path)).map(PROFILES)
    for pair in (CLASSES["S"], CLASSES["M"]):
        counts = [report.applications[name] for name in pair]
        assert sum(counts) == 2000
        assert binom.cdf(min(counts), 2000, 0.5) > 1e-4 / 2
    choices = {name: set(tuned_configurations(profile)) for name, profile in PROFILES.items()}
    found = {name: {job[3:5] for job in map(_row, workload.jobs) if job[2] == name} for name in report.applications}
    assert found == {name: choices[name] for name in found}
    assert workload == MappedTrace(str(path)).load(PROFILES)
    assert workload != MappedTrace(str(path), seed=1).load(PROFILES)


def test_realistic_jobs_keep_the_traces_gpus(tmp_path: Path) -> None:
    jobs = [
        TraceJob("a", 0.0, 100.0, 8),
        TraceJob("b", 0.0, 2 * HOUR, 1.5),
        TraceJob("l", 0.0, 20 * HOUR, 2),  # the one large job of at most a day
        TraceJob("m", 0.0, 30 * HOUR, 1),
    ]
    workload, _ = MappedTrace(str(write(tmp_path / "t.parquet", jobs)), tuned=False).map(PROFILES)
    assert [job.num_replicas for job in workload.jobs] == [8, 2, 2, 2]
    for job in workload.jobs:
        assert job.batch_size == PROFILES[job.application].application.init_batch_size * job.num_replicas


RULE = """
class OnlyLarge:
    def application(self, job, rng):
        return "bert" if job.num_gpus >= 4 else None


class Unknown:
    def application(self, job, rng):
        return "gpt"


class Useless:
    pass


class Broken:
    def application(self, job, rng):
        return {}[job.num_gpus]


class Several:
    def application(self, job, rng):
        return ["bert"]


class NeverMade:
    def __init__(self):
        1 / 0
"""


def test_a_rule_of_ones_own_is_a_class_with_one_method(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_mapping.py").write_text(RULE)
    words = ["workload", "workload=mapped", "workload.path=trace.parquet"]
    any_status = "workload.select.statuses=null"
    assert main([*words, "-o", "w.csv", "workload.rule=my_mapping.OnlyLarge", any_status]) == 0
    printed = capsys.readouterr().out
    assert "w.csv: 2 jobs, 2 × bert\n" in printed
    assert "left out: 4 × no application by the rule" in printed
    assert main([*words, "-o", "v.csv", "workload.rule=my_mapping.Unknown"]) == 2
    assert "job 'small': the rule returned 'gpt', must be one of bert," in capsys.readouterr().err
    assert main([*words, "-o", "v.csv", "workload.rule=my_mapping.Useless"]) == 2
    assert "must be a class with a method application(job, rng)" in capsys.readouterr().err
    for rule, message in (
        ("Broken", "trace.parquet, job 'small': rule Broken failed: KeyError: 1"),
        ("Several", "job 'small': the rule returned ['bert'], must be one of bert,"),
        (
            "NeverMade",
            "workload.rule is 'my_mapping.NeverMade', must be one of gpu-time-class, or a class as module.Class (Zero",
        ),
    ):
        assert main([*words, "-o", "v.csv", f"workload.rule=my_mapping.{rule}"]) == 2
        printed = capsys.readouterr().err
        assert message in printed
        assert printed.count("\n") == 1
    assert not (tmp_path / "v.csv").exists()
    common = ["run", "policy=fifo", "workload=mapped", "workload.path=trace.parquet", "hydra.run.dir=out"]
    capsys.readouterr()
    assert main([*common, "workload.rule=my_mapping.OnlyLarge"]) == 0
    assert "trace.parquet: left out: 4 × no application by the rule" in capsys.readouterr().err
    assert [job.application for job in read_run(tmp_path / "out").result.job_records] == ["bert"]


def test_the_rule_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "traces" / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"<!-- test rule -->\n```python\n(.*?)```", page, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "by_readme.py").write_text(code)
    assert main(["workload", "workload=philly-like-log", "workload.hours=100", "-o", "t.parquet"]) == 0
    mapped = ["workload=mapped", "workload.path=t.parquet", "workload.rule=by_readme.ByVirtualCluster"]
    assert main(["workload", *mapped, "-o", "w.csv"]) == 0
    jobs = read_workload(tmp_path / "w.csv").jobs
    assert {"bert", "cifar10", "yolov3"} <= {job.application for job in jobs}


def test_the_command_and_the_setting_give_the_same_jobs(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "workload=mapped", "workload.path=trace.parquet", "workload.select.hours=2.5", "seed=5",
        "workload.select.min_duration=10",
    ]  # fmt: skip
    assert main(["workload", *words, "-o", "w.csv"]) == 0
    for name, setting in {"command": ["workload.path=w.csv"], "setting": words}.items():
        assert main(["run", "policy=fifo", "engine.horizon=120", f"hydra.run.dir={name}", *setting]) == 0
    jobs = [pq.read_table(tmp_path / name / "jobs.parquet").to_pydict() for name in ("command", "setting")]
    assert jobs[0]["job"] == jobs[1]["job"]
    assert jobs[0]["job"] == ["short", "small", "medium", "large", "half"]
    assert jobs[0]["queue"] == jobs[1]["queue"] == ["vc", "vc", "vc", None, "vc"]


def test_names_and_qos_of_a_log_reach_the_records_of_its_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    info = tmp_path / "trace.parquet"
    schema = trace_schema(("application", "qos"), INFO)
    cells = {"job": ["1", "2"], "submit_time": [0.0, 9.0], "duration": [600.0, 600.0], "num_gpus": [1.0, 1.0]}
    cells |= {"application": ["bert", None], "qos": [None, "high"]}
    columns = [cells.get(field.name, [None, None]) for field in schema]
    pq.write_table(pa.table([pa.array(*pair) for pair in zip(columns, schema.types, strict=True)], schema=schema), info)
    assert main(["workload", "workload=mapped", "workload.path=trace.parquet", "-o", "w.csv"]) == 0
    assert [(job.job_name, job.qos) for job in read_workload(tmp_path / "w.csv").jobs] == [
        ("bert", None),
        (None, "high"),
    ]
    assert main(["run", "policy=fifo", "workload.path=w.csv", "hydra.run.dir=out"]) == 0
    jobs = pq.read_table(tmp_path / "out" / "jobs.parquet").to_pydict()
    assert (jobs["job_name"], jobs["qos"]) == (["bert", None], [None, "high"])
    records = read_run(tmp_path / "out").result.job_records
    assert [(record.job_name, record.qos) for record in records] == [("bert", None), (None, "high")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.parquet"], "nowhere.parquet: no such file"),
        (["w.csv"], "w.csv: the file must be a trace in .parquet; make it with polluxsim log import"),
        (["plain.parquet"], "plain.parquet: not a Parquet file"),
        (
            ["trace.parquet", "workload.rule=mine"],
            "workload.rule is 'mine', must be one of gpu-time-class, or a class as module.Class",
        ),
        (["trace.parquet", "workload.rule=no.Such"], "workload.rule is 'no.Such', must be one of gpu-time-class"),
        (
            ["trace.parquet", "workload.select.statuses=[great]"],
            "workload.select.statuses[0] is 'great', must be one of completed, failed",
        ),
        (["trace.parquet", "workload.select.hours=0"], "hours is 0, must be"),
        (["trace.parquet", "workload.select.start=1y"], "workload.select.start is '1y', must be a number of hours"),
        (
            ["trace.parquet", "workload.select.start=99"],
            "none of 10 jobs is left: 9 × submitted outside the window",
        ),
        (["trace.parquet", "seed=-1"], "seed is -1, must be a whole number of at least 0"),
        (["trace.parquet", "profiles.path=none"], "profiles.path is none, must be a folder with cards"),
        (["trace.parquet", "policy=fifo"], "policy=fifo has no effect: the jobs depend on workload, profiles and seed"),
    ],
)
def test_an_impossible_mapping_is_named(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    arguments: list[str], message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.csv").write_text("name\n")
    (tmp_path / "plain.parquet").write_text("name\n")
    words = ["workload=mapped", f"workload.path={arguments[0]}", *arguments[1:]]
    assert main(["workload", *words, "-o", "out.csv"]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("submit_time", float("nan"), "line 2: column 'submit_time' is nan, must be a number from 0 to 1e+11"),
        ("duration", -1.0, "line 2: column 'duration' is -1.0, must be a number from 0 to 1e+11, or nothing"),
        ("num_gpus", float("inf"), "line 2: column 'num_gpus' is inf"),
    ],
)
def test_a_bad_row_of_a_trace_is_named(tmp_path: Path, column: str, value: float, message: str) -> None:
    jobs = [JOBS[1], JOBS[2]._replace(**{column: value})]
    with pytest.raises(InvalidInputError) as caught:
        read_trace(write(tmp_path / "t.parquet", jobs))
    assert message in str(caught.value)


@given(st.binary(max_size=100), st.integers(0, 4000))
def test_a_broken_trace_is_a_clear_error(tmp_path_factory: pytest.TempPathFactory, content: bytes, place: int) -> None:
    path = write(tmp_path_factory.mktemp("t") / "t.parquet", JOBS)
    whole = path.read_bytes()
    place %= len(whole)
    path.write_bytes(whole[:place] + content + whole[place + len(content) :])
    try:
        read_trace(path)
    except InvalidInputError as error:
        assert str(path) in str(error)
        assert "\n" not in str(error)


def test_settings_that_cannot_be_are_named() -> None:
    for wrong in ({"hours": "x"}, {"min_duration": None}, {"max_gpu_hours": True}, {"start": float("inf")}):
        with pytest.raises(InvalidConfigError, match=rf"{next(iter(wrong))} is .*, must be a"):
            Selection(**wrong)
    for wrong in (5, None):
        with pytest.raises(
            InvalidConfigError, match=rf"workload\.rule is {wrong}, must be one of gpu-time-class, or a cl"
        ):
            MappedTrace("t.parquet", rule=wrong)
        with pytest.raises(InvalidConfigError, match=rf"workload\.select is {wrong}, must be settings"):
            MappedTrace("t.parquet", select=wrong)


def _row(job: object) -> tuple[object, ...]:
    return tuple(getattr(job, name) for name in ("job_id", "submit_time", "application", "num_replicas", "batch_size"))


@pytest.mark.parametrize("statuses", ["failed", 1])
def test_one_status_is_not_a_list_of_letters(statuses: object) -> None:
    with pytest.raises(InvalidConfigError, match=r"statuses is .*, must be a list like \[completed\], or null"):
        Selection(statuses=statuses)


@pytest.mark.parametrize("kind", [MappedTrace, TraceReplay])
@pytest.mark.parametrize("gpu_types", ["t4", 1, ["t4"]])
def test_gpu_types_are_names_by_name(kind: type, gpu_types: object) -> None:
    with pytest.raises(InvalidConfigError, match=r"workload\.gpu_types is .*, must be a mapping of names"):
        kind("log.parquet", gpu_types=gpu_types)
