"""What the commands tell of a run whose nodes failed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from older_runs import forget_files

import polluxsim
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidInputError
from polluxsim.engine.failures import RecordedFailures, SpotReclaims
from polluxsim.engine.settings import EngineSettings
from polluxsim.hardware.checkpoints import Checkpoints
from polluxsim.look.descriptions import loss_noun
from polluxsim.look.job_progress import NO_LIVES, own_profiles
from polluxsim.look.occupancy import occupancy
from polluxsim.look.report.payload import run_columns
from polluxsim.look.run_facts import cluster_of
from polluxsim.records.results import OutageRecord, Result
from polluxsim.records.storage import OUTAGES_FILE, RUN_FILE, Run, read_run
from polluxsim.statistics.groups import labels_of, settings_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of two jobs, the first of which loses its node for a while."""
    folder = tmp_path_factory.mktemp("failing")
    (folder / "failures.csv").write_text("node,time,down_until,kind\n0,300,900,power supply\n1,1e6,,gone\n")
    jobs = pd.DataFrame({"name": ["a", "b"], "time": [0, 0], "num_replicas": [4, 2], "duration": [600.0, 1000.0]})
    result = polluxsim.simulate(
        jobs,
        policy="fifo",
        cluster=polluxsim.Cluster.uniform(2, 4, RecordedFailures(str(folder / "failures.csv"))),
        settings=EngineSettings(checkpoints=Checkpoints(100.0, 10.0)),
        progress=False,
    )
    result.save(folder / "run")
    return folder / "run"


def test_it_is_read_back_and_says_how_it_was_made(folder: Path) -> None:
    run = read_run(folder)
    assert [outage.kind for outage in run.result.outage_records] == ["power supply"]
    assert run.result.gpu_seconds == 8 * run.result.end_time
    config = run.info["config"]
    assert config["cluster"]["failures"]["_target_"] == "polluxsim.engine.failures.RecordedFailures"
    assert config["engine"]["checkpoints"]["every"] == 100.0


def test_a_run_of_before_outages_were_recorded_is_read(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        if path.name != OUTAGES_FILE:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    info = json.loads((tmp_path / RUN_FILE).read_text())
    del info["gpu_seconds"]
    (tmp_path / RUN_FILE).write_text(json.dumps(info))
    forget_files(tmp_path)
    run = read_run(tmp_path)
    assert (run.result.outage_records, run.result.gpu_seconds) == ((), None)


def test_why_names_the_node(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", str(folder), "a", "--at", "320"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "At 0:05:00 it lost 4 GPUs as node 0 went down (power supply)." in said
    assert main(["why", str(folder), "a"]) == 0
    assert "1 outage that cost 0:01:40" in " ".join(capsys.readouterr().out.split())


def test_the_table_tells_where_gpu_time_went(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", str(folder)]) == 0
    assert "restarts by outage" in capsys.readouterr().out


def test_the_timeline_marks_the_outage_on_every_gpu(folder: Path, tmp_path: Path) -> None:
    assert main(["timeline", str(folder), "-o", str(tmp_path / "run.json")]) == 0
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    outages = [event for event in events if event.get("cat") == "outage"]
    assert [event["name"] for event in outages] == ["power supply", "down", "down", "down", "down"]
    assert {(event["ts"], event["dur"]) for event in outages[1:]} == {(300_000_000, 600_000_000)}
    # Nobody else has a slice on these threads meanwhile.
    threads = {(event["pid"], event["tid"]) for event in outages}
    for event in events:
        if event["ph"] == "X" and event["name"] != "down" and (event["pid"], event["tid"]) in threads:
            assert event["ts"] + event["dur"] <= 300_000_000 or event["ts"] >= 900_000_000


def test_efficiency_is_not_told_where_it_does_not_follow(folder: Path) -> None:
    with pytest.raises(InvalidInputError, match="lose work or stop for checkpoints"):
        own_profiles(read_run(folder))


def test_the_report_hatches_the_node(folder: Path, tmp_path: Path) -> None:
    run = read_run(folder)
    columns = run_columns(run.result, occupancy(run.result, cluster_of(run)), NO_LIVES)
    found = {name: columns[f"down_{name}"].tolist() for name in ("start", "end", "row", "rows")}
    assert found == {"start": [300.0], "end": [900.0], "row": [0], "rows": [4]}
    assert columns["job_failures"].tolist() == [1, 0]
    useful = [
        1 - (job.restart_time + job.checkpoint_time + job.lost_time) / job.run_time for job in run.result.job_records
    ]
    assert columns["job_effective"][1] == pytest.approx(useful[1])
    assert columns["job_effective"][0] < useful[0]  # it waited, too
    assert main(["report", str(folder), "-o", str(tmp_path / "report.html")]) == 0


RECLAIMED = OutageRecord(3600.0, 4100.0, 1, 4, "reclaimed")


@pytest.mark.parametrize(
    ("kinds", "jobs_fail", "word"),
    [
        ((), False, "failure"),
        (("failure", "group failure"), False, "failure"),
        (("reclaimed",), False, "reclaim"),
        (("reclaimed", "failure"), False, "outage"),
        (("power supply",), False, "outage"),
        (("reclaimed",), True, "failure"),
    ],
)
def test_losses_are_worded_by_the_kinds_of_outages(kinds: tuple[str, ...], jobs_fail: bool, word: str) -> None:
    outages = tuple(RECLAIMED._replace(kind=kind) for kind in kinds)
    info = {"config": {"engine": {"job_failures": {"rate": 1.0} if jobs_fail else None}}}
    assert loss_noun([Run("run", info, Result((), (), (), 7200.0, outage_records=outages))]) == word


def test_a_run_with_reclaims_only_has_no_failures_in_its_views(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = polluxsim.simulate(
        pd.DataFrame({"name": ["a"], "time": [0], "num_replicas": [8], "duration": [3000.0]}),
        policy="fifo",
        cluster=polluxsim.Cluster.uniform(2, 4, spot=SpotReclaims(20_000.0, warning=0.0)),
        progress=False,
    )
    assert result.result.outage_records
    folder = tmp_path / "run"
    result.save(folder)
    assert main(["table", str(folder)]) == 0
    assert main(["why", str(folder), "a"]) == 0
    texts = " ".join(capsys.readouterr().out.split())
    assert "restarts by reclaim" in texts
    assert re.search(r"\d reclaims? that cost", texts)
    assert main(["report", str(folder), "-o", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert '"cost of reclaims"' in page
    for text in (texts, page):
        assert not re.search(r"(by|a|of|after|lost to|no) failure", text)


def test_a_run_with_failures_is_told_from_one_without_by_a_word(folder: Path) -> None:
    sound = polluxsim.simulate(policy="fifo", workload="one-job", progress=False)
    failing = polluxsim.simulate(
        policy="fifo",
        workload="one-job",
        cluster=polluxsim.cluster(failures={"_target_": "polluxsim.engine.failures.DrawnFailures", "rate": 2.0}),
        progress=False,
    )
    assert labels_of([settings_of(sound), settings_of(failing)]) == ["FIFO", "drawn failures"]
    others = [settings_of(failing) | {"cluster.failures.rate": rate} for rate in (2.0, 20.0)]
    assert labels_of(others) == ["rate = 2", "rate = 20"]
