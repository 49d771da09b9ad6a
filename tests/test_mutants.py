"""Any broken file is refused in one clear line or read as it is: no traceback, no hang, no wrong reading.

`POLLUXSIM_MUTANTS=3000 pytest tests/test_mutants.py` takes so many mutants of every kind, in place of a few; what fails
is named by kind and seed.
"""

from __future__ import annotations

import csv
import io
import os
import random
import re
import shutil
import warnings
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import replace
from datetime import UTC
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from log_samples import FIXTURES, SAMPLES
from mutants import READ, REFUSED, Kind, break_table, broken_text, outcome
from older_runs import forget_files
from rich.console import Console
from run_check import inconsistencies
from toy import write_artifact

from polluxsim.applications.folder import ProfileFolder
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidInputError
from polluxsim.common.shipped import shipped
from polluxsim.common.tables import read_number
from polluxsim.hardware.clusters import Cluster
from polluxsim.logs.formats import FORMATS
from polluxsim.logs.importing import import_trace
from polluxsim.logs.site.nodes import read_nodes
from polluxsim.logs.site.queue_files import read_queue
from polluxsim.logs.trace_table import read_trace
from polluxsim.look.occupancy import occupancy
from polluxsim.look.run_facts import cluster_of
from polluxsim.look.side_by_side import SideBySide
from polluxsim.look.timeline import write_timeline
from polluxsim.look.why.story import at, story
from polluxsim.metrics.summary import summarise
from polluxsim.records.storage import read_reasons, read_run, read_timings
from polluxsim.workloads.present import Site, present_jobs
from polluxsim.workloads.simulator_lists import ElasticFlowJobs, MuriJobs
from polluxsim.workloads.trace import TraceReplay
from polluxsim.workloads.workload import Workload, WorkloadFile, read_workload

MUTANTS = int(os.environ.get("POLLUXSIM_MUTANTS", "40"))
NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)

WORKLOAD = """name,time,application,num_replicas,batch_size,duration,user,after,gpu_types,min_replicas,deadline
a,0,cifar10,1,128,,ada,,a100,1,900
b,12.5,ncf,1,32768,,,a,,,
c,60,,4,,90.5,bob,a;b,a100;h100,2,1e4
d,60,,8,,7200,,,,,
"""


ELASTICFLOW = {
    "jobs.txt": "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu\na,0,90,bert,9,64,2\n",
    "bert.csv": "global_batch_size,1,2,4\n64,0.5,0.8,nan\n128,0.25,,1.0\n",
}
MURI = "job_id,num_gpu,submit_time,iterations,model_name,iteration_time,priority\na,4,1500,99,bert,200,0\n"
SHARED = (
    "job_id,num_gpu,submit_time,iterations,model_name,iteration_time,resource_time_0,resource_time_1,resource_time_2\n"
    "a,4,0,900,bert,1000,900,50,0\nb,4,0,900,vgg,1000,50,900,0\nc,2,90000,300,bert,1000,900,50,0\n"
)
SPEEDS = "gpu_type,model,batch_size,gpus,steps_per_s\nv100,LM,5,1,10\nv100,LM,10,1,8\nv100,LM,0,1,2\n"
GAVEL = "LM (batch size 5)\tx\tx\t-s\t1\t119350\t1\tgns\t1\t-1\t99\t30\nLM\tx\tx\t-s\t1\t11\t1\t1\t-1\t60\n"


@cache
def originals(folder: Path) -> Path:
    """Make one whole input of every kind, once."""
    (folder / "w.csv").write_text(WORKLOAD)
    import pandas as pd

    frame = pd.read_csv(io.StringIO(WORKLOAD))
    frame.assign(after=[[], ["a"], ["a", "b"], []]).to_parquet(folder / "w.parquet")
    (folder / "elasticflow").mkdir()
    for name, text in ELASTICFLOW.items():
        (folder / "elasticflow" / name).write_text(text)
    import_trace("slurm", SAMPLES["slurm"].source, folder / "t.parquet")
    write_artifact(folder / "measured", ("ncf",))
    workload = folder / "jobs.csv"
    workload.write_text("\n".join(WORKLOAD.splitlines()[:2]) + "\nb,30,bert,2,24,,,,,,\nc,60,cifar10,4,512,,,,,,\n")
    assert main(["run", "policy=tiresias", f"workload.path={workload}", f"hydra.run.dir={folder / 'run'}"]) == 0
    (folder / "muri.csv").write_text(SHARED)
    shared = ["policy=muri-s", "engine/sharing=interleaved", "workload=muri", f"workload.path={folder / 'muri.csv'}"]
    assert main(["run", *shared, "cluster.num_nodes=1", f"hydra.run.dir={folder / 'shared'}"]) == 0
    for run in ("run", "shared"):
        forget_files(folder / run)  # otherwise only the sizes of broken tables would be noticed
    return folder


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return originals(tmp_path_factory.mktemp("whole"))


def kinds(whole: Path) -> dict[str, Kind]:
    def text(name: str, source: Path, delimiter: str):
        return lambda rng, folder: (folder / name).write_bytes(broken_text(source.read_bytes(), rng, delimiter))

    def table(name: str):
        def write(rng: random.Random, folder: Path) -> None:
            shutil.copy(whole / name, folder)
            break_table(folder / name, rng)

        return write

    def log(rng: random.Random, folder: Path) -> None:
        name = rng.choice(sorted(FORMATS))
        delimiter = getattr(FORMATS[name], "layout", None)
        data = broken_text(SAMPLES[name].log.read_bytes(), rng, delimiter.delimiter if delimiter else '"')
        (folder / name).write_bytes(data)

    def pai(rng: random.Random, folder: Path) -> None:
        shutil.copytree(FIXTURES / "pai", folder, dirs_exist_ok=True)
        path = rng.choice(sorted(folder.iterdir()))
        path.write_bytes(broken_text(path.read_bytes(), rng, ","))

    def supercloud(rng: random.Random, folder: Path) -> None:
        (folder / "table").write_bytes(broken_text((FIXTURES / "supercloud.csv").read_bytes(), rng, ","))

    def card(rng: random.Random, folder: Path) -> None:
        path = rng.choice(sorted(shipped("traces").glob("*.yaml")))
        (folder / "card.yaml").write_bytes(broken_text(path.read_bytes(), rng, rng.choice((":", ",", " "))))

    def measured(rng: random.Random, folder: Path) -> None:
        shutil.copytree(whole / "measured", folder, dirs_exist_ok=True)
        path = rng.choice(sorted(folder.rglob("*.csv")))
        path.write_bytes(broken_text(path.read_bytes(), rng, ","))

    def run(rng: random.Random, folder: Path) -> None:
        shutil.copytree(whole / "run", folder, dirs_exist_ok=True)
        path = rng.choice(sorted(folder.iterdir()))
        if path.suffix == ".parquet":
            break_table(path, rng)
        else:
            path.write_bytes(broken_text(path.read_bytes(), rng, rng.choice((":", ",", " "))))

    def shared(rng: random.Random, folder: Path) -> None:
        shutil.copytree(whole / "shared", folder, dirs_exist_ok=True)
        break_table(folder / "sharing.parquet", rng)

    def elasticflow(rng: random.Random, folder: Path) -> None:
        shutil.copytree(whole / "elasticflow", folder, dirs_exist_ok=True)
        path = folder / rng.choice(sorted(ELASTICFLOW))
        path.write_bytes(broken_text(path.read_bytes(), rng, ","))

    def muri(rng: random.Random, folder: Path) -> None:
        (folder / "m.csv").write_bytes(broken_text(MURI.encode(), rng, ","))

    def gavel(rng: random.Random, folder: Path) -> None:
        (folder / "jobs.trace").write_bytes(broken_text(GAVEL.encode(), rng, "\t"))
        (folder / "throughputs_alone.csv").write_bytes(broken_text(SPEEDS.encode(), rng, ","))

    def config(rng: random.Random, folder: Path) -> None:
        path = rng.choice(CONFIGS)
        name = path.relative_to(shipped("configs"))
        copy = folder / "conf" / (name if name == Path("run.yaml") else name.with_name("mutant.yaml"))
        copy.parent.mkdir(parents=True)
        copy.write_bytes(broken_text(path.read_bytes(), rng, rng.choice((":", ",", " ", "."))))

    found = (
        Kind("config", config, run_with_config),
        Kind("log", log, read_log),
        Kind("sacct-json", text("slurm", FIXTURES / "slurm-json" / "sacct.json", '"'), read_log),
        Kind("kueue", text("kueue", SAMPLES["kueue"].log, '"'), read_log),
        Kind("volcano", text("volcano", SAMPLES["volcano"].log, '"'), read_log),
        Kind("pai", pai, read_pai),
        Kind("table", text("table", SAMPLES["table"].log, ","), read_log),
        Kind("supercloud", supercloud, read_supercloud),
        Kind("card", card, read_profiles),
        Kind("measured", measured, read_profiles),
        Kind("csv", text("w.csv", whole / "w.csv", ","), read_csv),
        Kind("parquet", table("w.parquet"), read_parquet),
        Kind("trace", table("t.parquet"), read_replay),
        Kind("run", run, look_at_run),
        Kind("shared", shared, look_at_shared_run),
        Kind("elasticflow", elasticflow, read_elasticflow),
        Kind("muri", muri, read_muri),
        Kind("gavel", gavel, read_gavel),
        Kind("site", write_site, read_site),
    )
    return {kind.name: kind for kind in found}


CONFIGS = sorted(path for path in shipped("configs").rglob("*.yaml") if "hydra" not in path.parts)
"""Every configuration, `run.yaml` included."""

REPLACED = "takes the place of polluxsim's own entry"
"""What is said of each user's file that has the name of a shipped one."""

LONGEST_LINE = 400
"""Most characters of an error of a command."""

RUN = ["workload=file", "hydra.run.dir=out", "engine.horizon=7200", "policy=fifo"]
"""A short run, but for the part of it that is broken."""

KINDS = (
    "config",
    "log",
    "sacct-json",
    "kueue",
    "volcano",
    "pai",
    "table",
    "supercloud",
    "card",
    "measured",
    "csv",
    "parquet",
    "trace",
    "run",
    "shared",
    "elasticflow",
    "muri",
    "gavel",
    "site",
)


def run_with_config(folder: Path) -> None:
    """Run with a broken configuration: it ends well, or with 2, one line and no folder."""
    (path,) = (folder / "conf").rglob("*.yaml")
    group = path.relative_to(folder / "conf").parent.as_posix()
    (folder / "jobs.csv").write_text("name,time,num_replicas,duration\na,0,1,90\nb,30,2,60\n")
    chosen = [] if group == "." else [f"{group}=mutant"]
    settings = [word for word in RUN if word.partition("=")[0] != group]
    jobs = [] if group == "workload" else ["workload.path=jobs.csv"]
    before = {path.name for path in folder.iterdir()}
    output, errors = io.StringIO(), io.StringIO()
    with chdir(folder), redirect_stdout(output), redirect_stderr(errors), warnings.catch_warnings():
        warnings.simplefilter("default", FutureWarning)
        status = main(["run", "--config-dir", "conf", *chosen, *settings, *jobs])
    if status == 0:
        assert read_run(folder / "out").result
        return
    assert status == 2, status
    lines = [line for line in errors.getvalue().splitlines() if REPLACED not in line]
    assert len(lines) == 1, lines
    assert lines[0].startswith("polluxsim: "), lines[0]
    assert len(lines[0]) <= LONGEST_LINE, lines[0]
    assert {path.name for path in folder.iterdir()} == before, sorted(folder.iterdir())
    raise InvalidInputError(lines[0])


def read_elasticflow(folder: Path) -> None:
    jobs = ElasticFlowJobs(str(folder / "jobs.txt"), str(folder)).load({}).jobs
    assert all(job.speeds[0][0] <= job.num_replicas <= job.speeds[-1][0] for job in jobs)


def read_muri(folder: Path) -> None:
    assert all(job.duration for job in MuriJobs(str(folder / "m.csv")).load({}).jobs)


def read_gavel(folder: Path) -> None:
    assert all(job.duration for job in WorkloadFile(str(folder / "jobs.trace")).load({}).jobs)


def write_site(rng: random.Random, folder: Path) -> None:
    path = rng.choice(sorted((FIXTURES / "site").iterdir()))
    delimiter = rng.choice(("|", " ", '"', ":", "="))
    (folder / path.name).write_bytes(broken_text(path.read_bytes(), rng, delimiter))


def read_site(folder: Path) -> None:
    (source,) = folder.iterdir()
    if source.name.startswith("nodes"):
        nodes = read_nodes(source)
        assert nodes.num_nodes == len(nodes.numbers) > 0
        return
    present = present_jobs(read_queue(source, UTC), Site(Cluster.uniform(6, 8), lambda job: ""))
    assert all(job.duration for job in present.jobs)


def read_log(folder: Path) -> None:
    (source,) = folder.iterdir()
    check_import(source.name, source, folder)


def read_pai(folder: Path) -> None:
    check_import("pai2020", folder, folder)
    import_trace("pai2020", folder, folder / "t.parquet")  # a lenient import refuses hardly any broken table


def read_supercloud(folder: Path) -> None:
    columns = "job=id_job,submit=time_submit,start=time_start,end=time_end,gpus=tres_alloc:1001:1002,status=state"
    check_import("table", folder / "table", folder, columns)


def check_import(name: str, source: Path, folder: Path, columns: str = "") -> None:
    lenient = import_trace(name, source, folder / "t.parquet", skip_bad=True, columns=columns)
    assert lenient.rows_read == lenient.jobs_written + sum(tally.count for tally in (*lenient.dropped, *lenient.bad))
    TraceReplay(str(folder / "t.parquet")).load({})


def read_profiles(folder: Path) -> None:
    for profile in ProfileFolder(str(folder)).load().values():
        limits = profile.application
        assert profile.step_time((1,), limits.min_atomic_batch_size).step_time > 0
        ends = [profile.epoch_end(epoch) for epoch in range(limits.num_epochs)]
        assert ends == sorted(ends)
        assert profile.gradient_statistics(limits.init_batch_size, 0).sqr >= 0


def check_jobs(workload: Workload, rows: dict[int, dict[str, object]]) -> None:
    """Compare jobs with the cells of their rows, read plainly."""
    assert sorted(job.line for job in workload.jobs) == sorted(rows)
    columns = {"submit_time": "time", "num_replicas": "num_replicas", "deadline": "deadline", "duration": "duration"}
    for job in workload.jobs:
        row = rows[job.line]
        for field, column in columns.items():
            cell = row.get(column)
            empty = cell is None or cell != cell or cell == ""  # noqa: PLR0124  (NaN is not itself)
            assert getattr(job, field) == (None if empty else plain(cell)), (field, cell)


def plain(cell: object) -> float:
    assert not isinstance(cell, str) or NUMBER.fullmatch(cell), cell
    assert not isinstance(cell, bool)
    return float(cell)  # type: ignore[arg-type]


def read_csv(folder: Path) -> None:
    (path,) = folder.iterdir()
    workload = read_workload(path)
    reader = csv.reader(io.StringIO(path.read_bytes().decode("utf-8-sig"), newline=""))
    header = [name.strip() for name in next(reader)]
    rows = ((reader.line_num, dict(zip(header, row, strict=True))) for row in reader if row)
    check_jobs(workload, dict(rows))


def read_parquet(folder: Path) -> None:
    (path,) = folder.iterdir()
    check_jobs(read_workload(path), dict(enumerate(pq.read_table(path).to_pylist(), start=1)))


def read_replay(folder: Path) -> None:
    (path,) = folder.iterdir()
    workload = TraceReplay(str(path), cancel=True).load({})
    rows = read_trace(path)[1]
    assert len({job.job_id for job in workload.jobs}) == len(workload.jobs)
    for job in workload.jobs:
        assert (job.submit_time, job.duration) == (rows[job.line - 1].submit_time, rows[job.line - 1].duration)


def look_at_run(folder: Path) -> None:
    run = read_run(folder)
    read_timings(folder)
    reasons = read_reasons(folder) or ()
    screen = Console(file=io.StringIO(), width=120)
    if (summary := summarise(run.result)) is not None:
        screen.print(SideBySide({"run": summary}))
    for job in run.result.job_records[:2]:
        screen.print(story(run, reasons, job))
    write_timeline(run, folder / "timeline.json", packed=False)


def look_at_shared_run(folder: Path) -> None:
    look_at_run(folder)
    run = read_run(folder)
    for job in run.result.job_records:
        assert at(run, (), job, 600.0)
    occupancy(run.result, cluster_of(run))


@pytest.mark.parametrize("name", KINDS)
def test_mutants(name: str, whole: Path, tmp_path: Path) -> None:
    kind = kinds(whole)[name]
    # A configuration is not only read but also run, so a few have to do where no number is asked for.
    count = MUTANTS // 3 if name == "config" and "POLLUXSIM_MUTANTS" not in os.environ else MUTANTS
    outcomes = {seed: outcome(kind, seed, tmp_path / "mutant") for seed in range(count)}
    failures = [f"{name} {seed}: {what}" for seed, what in outcomes.items() if what not in (READ, REFUSED)]
    assert not failures, f"{len(failures)} of {count}:\n" + "\n".join(failures[:20])
    assert {READ, REFUSED} == set(outcomes.values())


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("speed", [1.5], "column 'speed' is 1.5, must be 0 to 1"),
        ("speed", [float("nan")], "column 'speed' is nan, must be a number up to 1e+100"),
        ("nodes", [[-1]], "column 'nodes' is (-1,), must be numbers ≥ 0"),
        ("gpus", [[0, 1]], "column 'gpus' is [0, 1], must be as long as nodes"),
    ],
)
def test_what_no_jobs_share_is_refused(
    whole: Path, tmp_path: Path, column: str, value: list[object], said: str
) -> None:
    shutil.copytree(whole / "shared", tmp_path, dirs_exist_ok=True)
    path = tmp_path / "sharing.parquet"
    table = pq.read_table(path)
    rows = table.set_column(table.schema.names.index("nodes"), "nodes", [[[0]] * len(table)])
    rows = rows.set_column(table.schema.names.index("gpus"), "gpus", [[[0]] * len(table)])
    pq.write_table(rows.set_column(table.schema.names.index(column), column, [value * len(table)]), path)
    with pytest.raises(InvalidInputError) as error:
        read_run(tmp_path)
    assert str(error.value) == f"{path}, line 1: {said}"


@pytest.mark.parametrize("text", ["1_000", "١٢", "½", "0x10", "nan", "inf", "", " ", "1e400", "true", "1 2", "1,5"])
def test_what_is_no_number(text: str) -> None:
    assert read_number(text) is None


@pytest.mark.parametrize("text", ["1", " 1.5 ", "+3", ".5", "5.", "1e3", "1E-3", "-0"])
def test_what_is_a_number(text: str) -> None:
    assert NUMBER.fullmatch(text)
    assert read_number(text) == float(text)


@pytest.mark.parametrize("policy", ["fifo", "tiresias", "pollux"])
def test_runs_are_consistent(policy: str, tmp_path: Path) -> None:
    jobs = ["workload=philly-like", "workload.num_jobs=12", "workload.hours=1", "cluster.num_nodes=12"]
    assert main(["run", f"policy={policy}", *jobs, f"hydra.run.dir={tmp_path}"]) == 0
    run = read_run(tmp_path)
    nodes = [gpus for count, gpus in run.info["nodes"] for _ in range(count)]
    assert inconsistencies(run.result, nodes) == []


@pytest.mark.parametrize(
    ("table", "changes", "what"),
    [
        ("job_records", {"gpu_seconds": 1.0}, "gpu_seconds is 1.0"),
        ("job_records", {"start_time": 1e9}, "not in order"),
        ("job_records", {"completion_time": None}, "completed with completion_time None"),
        ("job_records", {"jct": 1.0}, "jct is 1.0"),
        ("job_records", {"job": "nobody"}, "is no job of the run"),
        ("allocation_records", {"gpus": (5,)}, "5 GPUs of node 0 are held"),
        ("allocation_records", {"time": 1e9}, "not in order of time"),
        ("allocation_records", {"nodes": (99,)}, "GPUs of node 99"),
        ("round_records", {"gpus_in_use": 77}, "77 GPUs in use"),
        ("round_records", {"time": 1e9}, "rounds are not in order"),
    ],
)
def test_a_contradiction_is_found(whole: Path, table: str, changes: dict[str, object], what: str) -> None:
    result = read_run(whole / "run").result
    first, *others = getattr(result, table)
    changed = replace(result, **{table: (first._replace(**changes), *others)})
    assert any(what in found for found in inconsistencies(changed, [4] * 16))
