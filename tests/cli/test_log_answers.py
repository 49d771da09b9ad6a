"""Answers about logs: which jobs they are over, waits with preemptions, and the nodes of the log, by hand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from polluxsim.cli.main import main
from polluxsim.studies.log_replays import Case, wait_effect
from polluxsim.studies.reversals import not_monotone

if TYPE_CHECKING:
    from pathlib import Path

# One node of 8 GPUs; rounds of a replay are every 10 s. `long` holds all GPUs from 10 s on. `short` comes at 100 s.
# Under FIFO, `long` ends at 10 + 1000 = 1010 s, and `short` waits until 1010 s, for 910 s, and ends at 1110 s.
# Under SRTF, `short` preempts at the round at 100 s and ends at 200 s. `long` then restarts: it has 1000 − 90 s left,
# and restarts for D s. So it waits 10 s + 100 s, and ends at 200 + D + 910 s.
TWO_JOBS = """job,submit,start,end,gpus
long,2026-03-02T00:00:00Z,2026-03-02T00:00:10Z,2026-03-02T00:16:50Z,8
short,2026-03-02T00:01:40Z,2026-03-02T00:16:50Z,2026-03-02T00:18:30Z,8
"""

# `wide` needs two nodes of 8 GPUs. On two nodes under FIFO: `a` runs from 10 s to 1010 s, `wide` from 1010 s to 2010 s,
# and `b`, behind `wide`, waits from 60 s to 2010 s, for 1950 s. Without `wide`, `b` would not wait.
WITH_A_WIDE_JOB = """job,submit,start,end,gpus
a,2026-03-02T00:00:00Z,2026-03-02T00:00:10Z,2026-03-02T00:16:50Z,8
wide,2026-03-02T00:00:30Z,2026-03-02T00:16:50Z,2026-03-02T00:33:30Z,16
b,2026-03-02T00:01:00Z,2026-03-02T00:33:30Z,2026-03-02T00:50:10Z,8
"""


def imported(folder: Path, text: str) -> str:
    """Import a log, and return the name of its file in the folder, which is the current one."""
    (folder / "log.csv").write_text(text)
    assert main(["log", "import", "table", "log.csv", "-o", "log.parquet", "--time-zone", "UTC"]) == 0
    return "log.parquet"


def printed(capsys: pytest.CaptureFixture[str], *command: str, status: int = 0) -> str:
    capsys.readouterr()
    assert main(list(command)) == status
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("settings", "delay"), [((), 30), (("engine.restart_delay=0",), 0)])
def test_waits_under_preemption_are_those_by_hand(
    settings: tuple[str, ...], delay: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    log = imported(tmp_path, TWO_JOBS)
    told = printed(
        capsys, "log", "whatif", log, "--nodes", "1", "--policies", "fifo,srtf", "--percentile", "p50", *settings
    )
    # Means of two jobs. FIFO: waits 10 and 910 s, JCTs 1010 and 1010 s.
    # SRTF: waits 110 and 0 s, JCTs 1110 + D and 100 s.
    jct = (1110 + delay + 100) / 2
    assert "fifo is off by 0 s a job" in told
    assert "│ fifo │ 1 │ 1 │ 7.67 min │ 7.67 min │ 7.67 min │ 16.8 min │ 0 │ 2 │" in told
    assert f"│ srtf │ 1 │ 1 │ 55 s │ 55 s │ 5 s │ {jct / 60:.3g} min │ 1 │ 2 │" in told
    assert "srtf in place of fifo: cuts the p50 wait from 7.67 min to 55 s; mean JCT from 16.8 min" in told
    assert "jobs are preempted once (0.5 times a job), before never" in told
    assert f"the engine adds up to 10 s until the next round and {delay} s at each restart" in told


def test_calibration_judges_by_all_time_without_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the wait to the first GPU, SRTF would be off by 455 s a job; in all it is off by (100 + 910) / 2 s."""
    monkeypatch.chdir(tmp_path)
    told = printed(capsys, "log", "calibrate", imported(tmp_path, TWO_JOBS), "--gpus", "8", "--policies", "fifo,srtf")
    assert f"│ srtf │ 8 │ 12 % │ {505 / 3600:.2f} │ {55 / 3600:.2f} │ 1 │" in told


# `wide` runs from 10 s on 16 GPUs for 1000 s. Under SRTF, `short` preempts it at 100 s. One node has room for `short`
# only.
WIDE_IS_PREEMPTED = """job,submit,start,end,gpus
wide,2026-03-02T00:00:00Z,2026-03-02T00:00:10Z,2026-03-02T00:16:50Z,16
short,2026-03-02T00:01:40Z,2026-03-02T00:16:50Z,2026-03-02T00:18:30Z,8
"""

# A window from 1 h on begins with `long`, which needs another hour. Under SRTF, `short` preempts it at 100 s.
LONG_IS_FROM_BEFORE = """job,submit,start,end,gpus
long,2026-03-02T00:00:00Z,2026-03-02T00:00:00Z,2026-03-02T02:00:00Z,8
short,2026-03-02T01:01:40Z,2026-03-02T02:00:00Z,2026-03-02T02:01:40Z,8
"""


def test_preemptions_are_counted_over_the_same_jobs_as_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    log = imported(tmp_path, WIDE_IS_PREEMPTED)
    told = printed(capsys, "log", "whatif", log, "--nodes", "2,1", "--policies", "fifo,srtf")
    assert "│ srtf │ 2 │ 1 │ 0 s │ 0 s │ 0 s │ 100 s │ 0 │ 1 │ 110 s (1) │" in told
    assert "│ srtf │ 1 │ 1 │ 0 s │ 0 s │ 0 s │ 100 s │ 0 │ 1 │ – │" in told
    fewer, _, other_policy = told.partition("1 fewer node: ")[2].partition("srtf in place of fifo")
    assert fewer.startswith("cuts the p95 wait from 15.2 min to 0 s")  # of `short`, after `wide`
    assert "preempted" not in fewer
    assert "preempted once" in other_policy
    told = printed(capsys, "log", "calibrate", log, "--gpus", "16,8", "--policies", "srtf")
    assert "│ srtf │ 16 │ 0 % │ 0.25 │ 0.00 │ 0 │" in told


def test_preemptions_of_jobs_from_before_the_window_are_stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    log = imported(tmp_path, LONG_IS_FROM_BEFORE)
    told = printed(
        capsys, "log", "whatif", log, "--nodes", "1", "--policies", "fifo,srtf", "workload.start=1h", "-o", "out"
    )
    assert "srtf in place of fifo: cuts the p95 wait from 58.3 min to 0 s" in told
    assert (
        "jobs are preempted never, before never; jobs from before the start of the run are preempted once, before never"
    ) in told
    told = printed(
        capsys, "log", "calibrate", log, "--gpus", "8", "--policies", "fifo,srtf", "workload.start=1h", "-o", "sized"
    )
    assert "left out: preemptions of jobs from before the start of the run preempted once, srtf on 8 GPUs" in told


def test_jobs_from_before_the_window_that_a_smaller_cluster_cannot_run_are_stated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    log = imported(tmp_path, LONG_IS_FROM_BEFORE.replace("02:00:00Z,8\nshort", "02:00:00Z,16\nshort"))
    told = printed(capsys, "log", "whatif", log, "--nodes", "2,1", "--policies", "fifo", "workload.start=1h")
    reason = "1 jobs with more than 8 GPUs left out, running or waiting at the start of the window"
    assert f"log.parquet: {reason}, fifo on 1 node" in told
    # `long` holds both nodes until 1 h: `short` waits 3500 s. On one node, without `long`, it does not wait.
    assert "1 fewer node: cuts the p95 wait from 58.3 min to 0 s" in told


def test_waits_that_no_replay_explains_are_named_before_the_effects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both jobs wait for hours on an empty cluster in the log, for a cause that the log does not have."""
    monkeypatch.chdir(tmp_path)
    text = """job,submit,start,end,gpus
    a,2026-03-02T00:00:00Z,2026-03-02T04:00:00Z,2026-03-02T05:00:00Z,4
    b,2026-03-02T01:00:00Z,2026-03-02T05:00:00Z,2026-03-02T06:00:00Z,4
    """
    log = imported(tmp_path, text.replace("    ", ""))
    told = printed(capsys, "log", "whatif", log, "--nodes", "1,+1")
    doubt = "fifo on 8 GPUs explains little of the waits in the log: 0 % of a mean wait of 4 h over 2 jobs"
    # In 7 of 8 h of waiting, nothing runs. In the last one, `a` leaves 4 GPUs to `b`, which needs 4.
    cause = "in 100 % of the waiting time, even the largest waiting job had enough idle GPUs; in 88 % of it no job ran"
    assert told.index(doubt) < told.index("not explained: ") < told.index("likely causes") < told.index(cause)
    assert "node:" not in told
    assert "│ fifo" not in told
    assert doubt in printed(capsys, "log", "calibrate", log, "--gpus", "8", "--policies", "fifo")
    told = printed(capsys, "log", "whatif", imported(tmp_path, TWO_JOBS), "--nodes", "1", "-o", "explained")
    assert told.startswith("fifo on 8 GPUs explains most of the waits in the log: 100 % of a mean wait of 7.67 min")
    assert "not explained" not in told


def test_a_larger_cluster_has_the_jobs_that_a_smaller_one_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    log = imported(tmp_path, WITH_A_WIDE_JOB)
    told = printed(capsys, "log", "whatif", log, "--nodes", "2,1", "--policies", "fifo", "--percentile", "p50")
    # Means over a and b. One node: waits 10 and 950 s. Two nodes: 10 and 1950 s; `wide` waits 980 s.
    assert "compared over jobs that complete in every replay: 2 of 3; left out: 1 other job" in told
    assert "1 too large for 8 GPUs, fifo on 1 node" in told
    assert "│ fifo │ 1 │ 1 │ 8 min │ 8 min │" in told
    assert "│ fifo │ 2 │ 1 │ 16.3 min │ 16.3 min │" in told
    assert "16.3 min (1) │" in told
    effect = "1 fewer node: cuts the p50 wait from 16.3 min to 8 min, over jobs that complete in both: 2"
    assert f"{effect} (1 other job: before, all complete; after, 1 too large for 8 GPUs)" in told
    assert "the log is too short for an interval: it has jobs of 1 day, and an interval needs 4" in told
    told = printed(capsys, "log", "calibrate", log, "--gpus", "8,16", "--policies", "fifo")
    assert "│ fifo │ 16 │ 100 % │ 0.00 │" in told
    assert "left out: 1 other job 1 too large for 8 GPUs, fifo on 8 GPUs" in told


def test_jobs_that_a_horizon_cuts_off_are_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    log = imported(tmp_path, TWO_JOBS)
    few = ("--nodes", "1,+1", "--policies", "fifo", "engine.horizon=1050")
    told = printed(capsys, "log", "whatif", log, *few)
    assert (
        "compared over jobs that complete in every replay: 1 of 2; left out: 1 other job 1 cut off, fifo on 1 node"
        in told
    )
    assert "before, 1 cut off; after, all complete" in told
    told = printed(
        capsys, "log", "whatif", log, "--nodes", "1", "--policies", "fifo,srtf", "engine.horizon=900", status=2
    )
    assert not told


def test_size_takes_the_nodes_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    log = imported(tmp_path, TWO_JOBS)
    find = ("size", "--log", log, "--target", "mean wait < 60s", "--limit", "4", "--existing", "1")
    told = printed(capsys, *find, "policy=fifo")
    assert "each node has 8 GPUs" in told
    assert "least size that meets mean wait < 60 s: 2 nodes, 5 s" in told
    assert "no interval of this size: the log is too short for an interval: it has jobs of 1 day" in told
    assert "the policy is" not in told
    by_default = printed(capsys, *find)
    assert by_default == f"the policy is fifo, because none is given; policy=NAME sets another {told}"
    # A wait is all time without GPUs: SRTF has 55 s on one node, and preempts once.
    told = printed(capsys, *find, "policy=srtf")
    assert "1 node, 55 s" in told
    assert "jobs are preempted once in a run, 0.5 times a job" in told
    told = printed(capsys, *find, "policy=fifo", "--gpus-per-node", "4")
    assert "each node has 4 GPUs" in told
    assert "4 nodes, 5 s" in told
    assert main([*find, "--gpus-per-node", "4", "cluster.gpus_per_node=4"]) == 2
    assert "cluster.gpus_per_node=4 sets in every run what --gpus-per-node" in capsys.readouterr().err


def test_size_takes_the_nodes_of_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Partition `small` has two nodes of 4 GPUs. Each of the two jobs needs both, and 4 nodes take the jobs at once."""
    monkeypatch.chdir(tmp_path)
    head, *rows = TWO_JOBS.splitlines()
    jobs = [f"{head},partition", *(f"{row},small" for row in rows)]
    log = imported(tmp_path, "\n".join(jobs) + "\n")
    nodes = tmp_path / "nodes.txt"
    nodes.write_text("NODELIST|PARTITION|GRES|STATE|CPUS\na|small|gpu:4|idle|8\nb|small|gpu:4|idle|8\n")
    find = ("size", "--log", log, "--nodes-from", str(nodes), "policy=fifo")
    told = printed(capsys, *find, "--target", "mean wait < 60s", "--limit", "6")
    assert told.startswith("partition small has 2 nodes of 4 GPUs, according to nodes.txt")
    assert "least size that meets mean wait < 60 s: 4 nodes, 5 s" in told
    assert "relative to the 2 nodes that exist: +2 nodes" in told
    told = printed(capsys, *find, "--target", "mean wait < 460s", "--highest-load", "--limit", "1", "--step", "0.5")
    assert "2 nodes × 4 GPUs" in told
    assert "highest load that meets mean wait < 460 s: load 0.5, 410 s" in told
    find = (*find, "--target", "mean wait < 60s")
    assert main([*find, "--existing", "2"]) == 2
    assert "--existing and --nodes-from contradict each other; leave one out" in capsys.readouterr().err
    assert main(["size", "--nodes-from", str(nodes), "--target", "mean wait < 60s"]) == 2
    assert "--nodes-from has the nodes of the cluster of a log; add --log" in capsys.readouterr().err
    rows = [f"{rows[0]},small", f"{rows[1]},large"]
    log = imported(tmp_path, "\n".join([f"{head},partition", *rows]) + "\n")
    with nodes.open("a") as file:
        file.write("c|large|gpu:8|idle|8\n")
    assert main(["size", "--log", log, *find[3:]]) == 2
    error = capsys.readouterr().err
    assert "nodes.txt has nodes for 2 partitions of the log, and --target is for one; choose it with" in error
    told = printed(capsys, "size", "--log", log, *find[3:], "--partition", "large", "--limit", "2")
    assert "partition large has 1 node of 8 GPUs, according to nodes.txt" in told


def test_size_states_the_sizes_without_room_for_the_largest_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any size meets the target; `wide` needs two nodes."""
    monkeypatch.chdir(tmp_path)
    log = imported(tmp_path, WITH_A_WIDE_JOB)
    told = printed(capsys, "size", "--log", log, "--target", "mean wait < 9d", "--limit", "3", "policy=fifo")
    assert "sizes below 2 are left out: they have no room for the largest job" in told
    assert "least size that meets mean wait < 9 d: 2 nodes" in told
    told = printed(
        capsys,
        "size",
        "--log",
        log,
        "--target",
        "mean wait < 9d",
        "--limit",
        "3",
        "policy=fifo",
        "workload.most_gpus=8",
    )
    assert "the workload: 1 jobs with more than 8 GPUs left out" in told


def test_rows_that_an_import_drops_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        "JobID|User|State|Submit|Start|End|ElapsedRaw|AllocTRES",
        "1|u|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:00:10|2026-01-01T00:16:50|1000|gres/gpu=8",
        "2|u|CANCELLED|2026-01-01T00:00:05|Unknown|2026-01-01T00:10:00|0|",
    ]
    (tmp_path / "sacct.txt").write_text("\n".join(rows) + "\n")
    told = printed(capsys, "log", "whatif", "sacct.txt", "--nodes", "1", "--policies", "fifo")
    assert "sacct.txt: 1 row dropped: " in told


def test_a_change_below_the_printed_digits_is_none() -> None:
    assert wait_effect(36000.0, 36010.0, "p95") == "leaves the p95 wait at 10 h"
    waits = {Case("fifo", nodes, 1.0, "off"): (0.0, wait) for nodes, wait in ((8, 36000.0), (9, 36010.0))}
    assert list(not_monotone(waits, "p95")) == []
    assert re.match("raises .* from 10 h to 10.1 h", wait_effect(36000.0, 36360.0, "p95"))


# Two nodes of 8 GPUs. `a` holds 5 GPUs of one node, and `b` 5 of the other one. `c` needs 6 GPUs: 6 are free, 3 on each
# node. If jobs keep their nodes, `c` waits for 910 s for the end of `a`; otherwise it starts at once.
NODES = """job,submit,start,end,gpus
a,2026-03-02T00:00:00Z,2026-03-02T00:00:10Z,2026-03-02T00:16:50Z,5
b,2026-03-02T00:00:00Z,2026-03-02T00:00:10Z,2026-03-02T00:50:10Z,5
c,2026-03-02T00:01:40Z,{start}Z,2026-03-02T01:18:30Z,6
"""


@pytest.mark.parametrize(
    ("start", "sentence"),
    [
        ("2026-03-02T00:16:50", "jobs keep their nodes in this replay; with GPUs anywhere (engine.placement=anywhere)"),
        ("2026-03-02T00:01:40", "the site seems to spread jobs over nodes: with GPUs anywhere"),
    ],
)
def test_calibration_says_which_rule_for_nodes_explains_the_log(
    start: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    log = imported(tmp_path, NODES.format(start=start))
    told = printed(capsys, "log", "calibrate", log, "--gpus", "16", "--policies", "fifo")
    assert sentence in told
