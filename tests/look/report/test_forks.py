"""A run after a fork in every view: its name, the sentence on the fork, and both changes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from polluxsim.cli.main import main
from polluxsim.look.plot.usage import usage
from polluxsim.records.storage import read_run
from polluxsim.statistics.forks import from_fork
from polluxsim.statistics.groups import grouped

from .conftest import opened, write_hand_made

if TYPE_CHECKING:
    from pathlib import Path

    from shared_runs import SharedRuns

FORK = 5400.0
SENTENCE = "At 1:30:00 this run was forked from tiresias: SRTF took over from Tiresias."


@pytest.fixture(scope="session")
def what_if(shared_runs: SharedRuns) -> Path:
    """Return the folder of a what-if on a small cluster: Tiresias as it was, and SRTF from 1:30:00."""
    workload = ("workload=philly-like", "workload.num_jobs=30", "workload.hours=2")
    base = shared_runs.run("tiresias", *workload, "cluster.num_nodes=4", "policy.queue_threshold=1800")

    def make(folder: Path) -> None:
        assert main(["whatif", str(base), "--at", "1.5h", "policy=srtf", "-o", str(folder)]) == 0

    return shared_runs.folder("what-if-of-tiresias", make)


def longest(folder: Path) -> str:
    """Return the job that completes last of those that were running or waiting at the fork."""
    jobs = [job for job in read_run(folder).result.job_records if job.submit_time < FORK]
    return max(jobs, key=lambda job: job.completion_time or 0.0).job


def changes(text: str, metric: str) -> list[str]:
    return re.findall(rf"^  {metric}\S*(?: ↓| ↑)? +(\S+) %", text, re.MULTILINE)


def test_each_change_is_given_over_the_whole_run_and_from_the_fork(
    what_if: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(what_if)]) == 0
    said = capsys.readouterr().out
    runs = [read_run(what_if / name).result for name in ("as-it-was", "otherwise")]
    left = [{job.job for job in run.job_records if job.completion_time > FORK} for run in runs]
    assert left[0] == left[1]
    assert 0 < len(left[0]) < 30
    assert "SRTF from 1:30:00 against Tiresias (baseline), over the whole run\n" in said
    assert "SRTF from 1:30:00 against Tiresias (baseline), from the fork at 1:30:00 on\n" in said
    assert f"over the {len(left[0])} jobs not complete at the fork" in said
    means = [[np.mean([job.jct for job in run.job_records if job.job in jobs]) for run in runs]
             for jobs in ({job.job for job in runs[0].job_records}, left[0])]  # fmt: skip
    expected = [f"{100 * (now / before - 1):+.1f}".replace("-", "−") for before, now in means]
    assert changes(said, "average JCT") == expected
    assert expected[0] != expected[1]


def test_means_from_the_fork_on_leave_out_jobs_that_the_fork_cancels_or_adds(
    what_if: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing else changes for the jobs that need no GPUs of the others."""
    base = what_if / "as-it-was"
    job = longest(base)
    (tmp_path / "more.csv").write_text("name,time,application,num_replicas,batch_size\nnew,90000,cifar10,1,128\n")
    added = ["--add", str(tmp_path / "more.csv"), "-o", str(tmp_path / "added")]
    for change in (["--without", job, "-o", str(tmp_path / "without")], added):
        assert main(["whatif", str(base), "--at", "1.5h", *change]) == 0
    said = capsys.readouterr().out
    runs = [read_run(path).result for path in (base, tmp_path / "without" / "otherwise")]
    left = {each.job for each in runs[0].job_records if each.completion_time > FORK} - {job}
    means = [np.mean([each.jct for each in run.job_records if each.job in left]) for run in runs]
    assert f"over the {len(left)} jobs not complete at the fork" in said
    assert f"over the {len(left) + 1} jobs not complete at the fork" in said
    _, without, _, added_after = changes(said, "average JCT")
    assert without == f"{100 * (means[1] / means[0] - 1):+.1f}".replace("-", "−")
    assert added_after == "±0.0"


def test_restarts_and_gpu_time_count_from_the_fork_on(what_if: Path, tmp_path: Path) -> None:
    run = read_run(what_if / "otherwise").result
    part, all_of_it = from_fork(run, FORK, 60.0), from_fork(run, 0.0, 60.0)
    assert 0 < sum(job.num_restarts for job in part.job_records) < sum(job.num_restarts for job in run.job_records)
    assert [job.num_restarts for job in all_of_it.job_records] == [job.num_restarts for job in run.job_records]
    # By hand: `large` grew at 1800 s, lost its node at 3600 s and restarted at 4200 s, and 2 GPUs at 120 s became 4.
    by_hand = from_fork(read_run(write_hand_made(tmp_path / "by-hand")).result, 3000.0, None)
    large = next(job for job in by_hand.job_records if job.job == "large")
    assert large.num_restarts == 2 - 1
    assert large.gpu_seconds == 4 * 600 + 8 * 3000.0


def test_why_and_the_timeline_state_the_fork(what_if: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = what_if / "otherwise"
    job = longest(folder)
    for time in ((), ("--at", "2h")):
        assert main(["why", str(folder), job, *time]) == 0
        assert SENTENCE in " ".join(capsys.readouterr().out.split())
    assert main(["why", str(what_if / "as-it-was"), job]) == 0
    assert "forked" not in capsys.readouterr().out
    assert main(["timeline", str(folder), "-o", str(tmp_path / "run.json")]) == 0
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    assert [(event["name"], event["ts"]) for event in events if event.get("cat") == "fork"] == [(SENTENCE, FORK * 1e6)]


def test_the_figure_of_usage_has_a_named_line_at_the_fork(what_if: Path) -> None:
    figure = usage(grouped([read_run(what_if / name) for name in ("as-it-was", "otherwise")]))
    upper = figure.axes[0]
    assert any(list(line.get_xdata()) == [1.5, 1.5] for line in upper.get_lines())
    assert "SRTF from 1:30:00" in [text.get_text() for text in upper.texts]


def test_the_report_names_the_fork_and_draws_it(browser: Any, what_if: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    assert main(["report", str(what_if), "-o", str(path)]) == 0
    page = opened(browser, path)
    assert page.text("h1").startswith("SRTF from 1:30:00 against Tiresias on 30 jobs")
    assert page.texts(".fork-text") == [f"SRTF from 1:30:00: {SENTENCE}"]
    assert page.text(".fork-name") == "SRTF from 1:30:00"
    panels = len(page.deep("#timeline .chart"))
    assert panels >= 4
    assert len(page.deep("#timeline .fork")) == panels
    both = [page.text(f"#summary .summary{kind}") for kind in (":not(.from-fork)", ".from-fork")]
    shares = [re.findall(r"average JCT.*?([+−][\d.]+) %", " ".join(text.split())) for text in both]
    assert all(shares)
    assert shares[0][0] != shares[1][0]  # the first is that of all jobs
    # The moment and the job's page say it in the words of `why`.
    page.run(
        "document.getElementById('run').value = '1'; document.getElementById('run').dispatchEvent(new Event('change'))"
    )
    page.until("return document.querySelector('#run').value === '1'", "the other run")
    page.run("polluxReport.page.moveTo(3600)")
    assert SENTENCE not in page.texts("#moment-events li")
    page.run("polluxReport.page.moveTo(7200)")
    page.until(f"return document.getElementById('moment-events').innerText.includes({SENTENCE!r})", "the moment's note")
    page.run("location.hash = arguments[0]", f"#job/1/{longest(what_if / 'otherwise')}")
    page.until("return !document.getElementById('job').hidden", "the job's page")
    page.until(f"return document.getElementById('job-changes').innerText.includes({SENTENCE!r})", "the row")
    assert page.deep("#life .fork")
    assert not [entry for entry in page.browser.get_log("browser") if entry["level"] == "SEVERE"]


def test_failures_are_told_in_the_same_sentences(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    folder = write_hand_made(tmp_path / "by-hand")
    assert main(["report", str(folder), "-o", str(path)]) == 0
    page = opened(browser, path)
    page.run("polluxReport.page.moveTo(3700)")
    assert page.texts("#moment-events li") == ["At 1:00:00 node 1 went down (failure), until 1:08:20."]
    page.run("""
      const select = document.getElementById("group-of");
      select.value = "GPUs lost to failures";
      select.dispatchEvent(new Event("change"));
    """)
    assert page.texts("#group-legend li") == ["node 1 0.6 h"]  # 4 GPUs for 500 s
    assert main(["timeline", str(folder), "-o", str(tmp_path / "run.json")]) == 0
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    assert "lost 4 GPUs as node 1 went down (failure)" in [event["name"] for event in events]
    (mark,) = [event for event in events if event.get("cat") == "outage" and event["ph"] == "i"]
    assert mark["args"]["what"] == "At 1:00:00 node 1 went down (failure), until 1:08:20."
