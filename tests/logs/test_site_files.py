"""Files as sites keep them: each case of the shared small inputs, and further files of the same kinds.

The right values stand in the README beside the inputs.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidConfigError, InvalidInputError
from polluxsim.logs.importing import import_trace

GPU_HOUR = 3600.0


def imported(name, source, folder, **options):
    """Return the report of an import and the jobs by name."""
    report = import_trace(name, source, folder / "trace.parquet", **options)
    return report, {job["job"]: job for job in pq.read_table(folder / "trace.parquet").to_pylist()}


def gpu_hours(jobs):
    return sum(job["num_gpus"] * job["duration"] for job in jobs.values()) / GPU_HOUR


@pytest.fixture(scope="module")
def site_files(data_folder):
    folder = data_folder / "logs"
    if not folder.is_dir():
        pytest.skip(f"needs {folder}")
    return folder


READ = {
    # format, file: jobs, GPUs, GPU hours, waits [s], options
    ("gavel", "gavel-7-columns.trace"): (1, 1, None, [None], {}),
    ("tiresias", "muri-milliseconds.csv"): (2, 9, 8 * 5000 / 3600 + 400 / 3600, None, {}),
    ("pbs", "pbs.txt"): (1, 4, 4, [196], {}),
    ("pods", "pods.json"): (1, 4, 4, [360], {}),
    ("slurm", "sacct-bar-in-name.txt"): (2, 8, 8, [600, 600], {}),
    ("slurm", "sacct-clock-change.txt"): (2, 8, 8, [1200, 7200], {"time_zone": "Europe/Berlin"}),
    ("slurm", "sacct-json-two-days.json"): (2, 8, 8, [60, 60], {}),
    ("slurm", "sacct-latin1.txt"): (2, 8, 8, [600, 600], {}),
    ("slurm", "sacct-offsets.txt"): (3, 3, 3, [660, 720, 780], {}),
    ("slurm", "sacct-overlap.txt"): (2, 6, 8, [600, 600], {}),
    ("slurm", "sacct-tab.txt"): (1, 4, 4, [600], {}),
    ("slurm", "sacct.txt.gz"): (1, 4, 4, [600], {}),
    ("swf", "small.swf"): (2, 12, 2000 / 3600, [10, 20], {}),
    ("table", "small.swf"): (2, 12, 2000 / 3600, [10, 20], {"columns": "submit=2,wait=3,duration=4,gpus=5"}),
    ("table", "table-clock-durations.csv"): (2, 6, 52, None, {}),
    ("table", "table-gpus-by-nodes.csv"): (2, 16, 16, None, {"columns": "gpus=gpus_per_node*node_count"}),
    ("table", "table-no-limit-words.csv"): (3, 12, 12, None, {}),
    ("table", "table-status-numbers.csv"): (3, 7, 1100 / 3600, [10, 0, 5], {}),
    ("table", "table-tres-memory.csv"): (1, 4, 4, None, {"columns": "gpus=AllocTRES:gres/gpu"}),
    ("volcano", "volcano-elastic.json"): (1, 16, 16, [600], {}),
}


@pytest.mark.parametrize(("name", "file"), READ)
def test_file_is_read(name, file, site_files, tmp_path):
    num_jobs, num_gpus, hours, waits, options = READ[name, file]
    _, jobs = imported(name, site_files / file, tmp_path, **options)
    assert (len(jobs), sum(job["num_gpus"] for job in jobs.values())) == (num_jobs, num_gpus)
    if hours is not None:
        assert gpu_hours(jobs) == pytest.approx(hours)
    if waits is not None:
        assert [jobs[job].get("queueing_delay") for job in sorted(jobs)] == waits


REFUSED = {
    ("volcano", "kai.json"): "a PodGroup of scheduling.run.ai, not of Volcano",
    ("kueue", "kueue-0.15.json"): "1 × finished, but Kueue 0.15 cleared when it began",
    ("kueue", "pods.json"): "1 × a Pod, not a Workload of Kueue; the format pods reads it",
    ("seren", "lfs-pointer.csv"): "a Git LFS pointer, not the file itself; run git lfs pull",
    ("slurm", "pbs.txt"): "an accounting log of PBS; import it with the format pbs",
    ("slurm", "sacct-fixed-width.txt"): "run sacct with --parsable2",
    (
        "slurm",
        "sacct-no-header.txt",
    ): "line 1: this line is a job, not the header of sacct; run sacct without --noheader",
    ("slurm", "squeue.json"): "the queue (squeue --json), not the accounting; give the output of sacct --json",
    ("slurm", "small.swf"): "import it with the format swf",
    ("table", "table-late-first-time.csv"): "line 2: column 'submit' is not a time",
}


@pytest.mark.parametrize(("name", "file"), REFUSED)
def test_refusal_says_what_the_file_is_and_what_helps(name, file, site_files, tmp_path):
    source = site_files / file
    if file == "table-late-first-time.csv":
        source = late_times(tmp_path)
    with pytest.raises(InvalidInputError) as caught:
        imported(name, source, tmp_path)
    assert REFUSED[name, file] in str(caught.value)


def late_times(folder):
    path = folder / "late.csv"
    path.write_text("submit,start,end,gpus\n" + ",,,1\n" * 100 + "3973,3973,7573,1\n4000,4100,7700,2\n")
    return path


def test_the_clock_is_that_of_the_first_row_with_a_submission(tmp_path):
    report, jobs = imported("table", late_times(tmp_path), tmp_path, skip_bad=True)
    assert (report.time_zone, report.origin_time, len(jobs)) == ("", "3973.0", 2)


def test_a_stated_offset_is_no_assumption(site_files, tmp_path):
    report, _ = imported("slurm", site_files / "sacct-offsets.txt", tmp_path)
    assert (report.time_zone, report.time_zone_assumed) == ("UTC+01:00", False)
    assert report.origin_time == "2026-03-02T08:00:00+01:00"


def test_repeats_are_counted_and_say_nothing_suspicious(site_files, tmp_path):
    report, jobs = imported("slurm", site_files / "sacct-overlap.txt", tmp_path)
    reasons = {tally.reason: (tally.count, [place.line for place in tally.places]) for tally in report.dropped}
    assert reasons == {
        "a repeat of a run: equal job, submission and start": (2, [4, 5]), "the header again": (2, [3, 6]),
    }  # fmt: skip
    assert (report.suspicious, jobs["2"]["status"], report.rows_read) == ((), "completed", 6)


def test_accelerators_without_gpu_in_their_name_are_named_and_can_be_counted(site_files, tmp_path):
    report, jobs = imported("kueue", site_files / "kueue-accelerators.json", tmp_path)
    assert {job["num_gpus"] for job in jobs.values()} == {4}
    assert sorted(tally.reason.partition(";")[0] for tally in report.dropped) == [
        "no GPU, but google.com/tpu", "no GPU, but nvidia.com/mig-3g.40gb",
    ]  # fmt: skip
    unit = "gpus,google.com/tpu,nvidia.com/mig-3g.40gb*0.5"
    report, jobs = imported("kueue", site_files / "kueue-accelerators.json", tmp_path, unit=unit)
    assert {name: job["num_gpus"] for name, job in jobs.items()} == {"n/a": 8, "n/b": 1, "n/c": 4}


def test_shares_of_a_gpu_are_named_and_can_be_counted(site_files, tmp_path):
    source = site_files / "sacct-shared-gpu.txt"
    report, jobs = imported("slurm", source, tmp_path)
    assert sorted(tally.reason.partition(";")[0] for tally in report.dropped) == [
        "only shares of a GPU: gres/mps", "only shares of a GPU: gres/shard",
    ]  # fmt: skip
    report, jobs = imported("slurm", source, tmp_path, unit="gpus,gres/shard*0.125,gres/mps*0.01")
    assert {name: job["num_gpus"] for name, job in jobs.items()} == {"1": 1, "2": 1, "3": 4}
    assert report.dropped == ()


def test_numbers_of_states_have_a_meaning_only_on_request(site_files, tmp_path):
    source = site_files / "table-status-numbers.csv"
    report, jobs = imported("table", source, tmp_path)
    assert {job["status"] for job in jobs.values()} == {None}
    assert [tally.count for tally in report.suspicious if "number of unknown meaning" in tally.reason] == [3]
    _, jobs = imported("table", source, tmp_path, columns="status=status:swf")
    assert [jobs[name]["status"] for name in "123"] == ["completed", "failed", "cancelled"]
    with pytest.raises(InvalidConfigError, match="the numbering of status is 'x', must be one of slurm, swf"):
        imported("table", source, tmp_path, columns="status=status:x")


def test_words_for_no_limit(site_files, tmp_path):
    _, jobs = imported("table", site_files / "table-no-limit-words.csv", tmp_path)
    assert [job["time_limit"] for job in jobs.values()] == [60, None, None]


def test_a_cluster_of_cpus(site_files, tmp_path):
    report, jobs = imported("slurm", site_files / "sacct.txt.gz", tmp_path, unit="cpus", cluster_gpus=64)
    assert (report.unit, [job["num_gpus"] for job in jobs.values()]) == ("CPUs", [8])
    report, _ = imported("swf", site_files / "small.swf", tmp_path)
    assert (report.unit, report.cluster_gpus) == ("CPUs", 64)
    with pytest.raises(InvalidConfigError, match="--unit needs a format whose logs state resources other than GPUs"):
        imported("seren", site_files / "sacct-tab.txt", tmp_path, unit="cpus")


# Further files of the same kinds.

HEADER = "JobID|JobName|User|State|Submit|Eligible|Start|End|ElapsedRaw|AllocTRES"
ROW = "1|a|u1|COMPLETED|2026-03-02T08:00:00|2026-03-02T08:00:00|2026-03-02T08:10:00|2026-03-02T09:10:00|3600|gres/gpu=4"


def sacct(folder, *rows, header=HEADER, name="sacct.txt"):
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8", errors="surrogateescape")
    return path


def zstandard(data):
    return pa.Codec("zstd").compress(data, asbytes=True)


@pytest.mark.parametrize(
    ("ending", "compress"),
    [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress), (".zst", zstandard)],
)
def test_compressed_logs(ending, compress, tmp_path):
    plain = sacct(tmp_path, ROW).read_bytes()
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / f"sacct.txt{ending}").write_bytes(compress(plain))
    for source in (folder, folder / f"sacct.txt{ending}"):
        _, jobs = imported("slurm", source, tmp_path)
        assert [job["queueing_delay"] for job in jobs.values()] == [600]
    data = json.dumps({"jobs": [{"job_id": 1, "state": {"current": ["COMPLETED"]}, "time": {
        "submission": 10, "start": 20, "end": 30, "elapsed": 10},
        "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 2}]}}]})  # fmt: skip
    (tmp_path / "a.json.c").write_bytes(compress(data.encode()))
    assert imported("slurm", tmp_path / "a.json.c", tmp_path)[1]["1"]["num_gpus"] == 2
    (tmp_path / "cut").write_bytes(compress(plain)[:-9])
    with pytest.raises(InvalidInputError, match="cut: the compressed data are damaged"):
        imported("slurm", tmp_path / "cut", tmp_path)


@pytest.mark.parametrize("delimiter", ["\t", ";", "^", "~~", ","])
def test_any_delimiter_of_the_header(delimiter, tmp_path):
    row = ROW.replace("gres/gpu=4", "cpu=8,gres/gpu=4,node=1")
    path = sacct(tmp_path, row.replace("|", delimiter), header=HEADER.replace("|", delimiter))
    _, jobs = imported("slurm", path, tmp_path)
    assert (jobs["1"]["num_gpus"], jobs["1"]["queueing_delay"]) == (4, 600)


def test_bytes_that_are_not_utf8_cost_no_job_in_a_name_and_a_row_elsewhere(tmp_path):
    in_name, in_user = ROW.replace("|a|", "|\udce9t\udce9|"), ROW.replace("u1", "\udce9").replace("1|a", "2|a")
    report, jobs = imported("slurm", sacct(tmp_path, in_name, in_user), tmp_path, skip_bad=True)
    assert (jobs["1"]["application"], [tally.reason for tally in report.bad]) == (
        "�t�",
        ["the line must be UTF-8 text"],
    )
    path = tmp_path / "log.csv"
    path.write_bytes(b"job,submit,gpus,duration,user\n\xe9,0,1,60,ann\nb,0,1,60,\xe9\n")
    report, jobs = imported("table", path, tmp_path, skip_bad=True)
    assert (list(jobs), report.bad[0].places[0].line) == (["�"], 3)
    times = {"submission": 10, "start": 20, "end": 30, "elapsed": 10}
    tres = {"allocated": [{"type": "gres", "name": "gpu", "count": 2}]}
    jobs = [
        {"job_id": number, "name": name, "user": user, "state": {"current": ["COMPLETED"]}, "time": times, "tres": tres}
        for number, name, user in ((1, "\udce9", "u"), (2, "n", "\udce9"))
    ]
    text = json.dumps({"jobs": jobs}, ensure_ascii=False)
    path = tmp_path / "sacct.json"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    report, jobs = imported("slurm", path, tmp_path, skip_bad=True)
    assert (list(jobs), [tally.count for tally in report.bad]) == (["1"], [1])


def test_several_outputs_with_the_parts_of_a_gang_are_one_gang(tmp_path):
    part = ROW.removeprefix("1|")
    path = sacct(tmp_path, f"7+0|{part}", f"7+1|{part}", f"7+0|{part}", f"7+1|{part}")
    report, jobs = imported("slurm", path, tmp_path)
    assert (len(jobs), jobs["7+0"]["num_gpus"]) == (1, 8)
    assert report.rows_read == 4 == report.jobs_written + sum(tally.count for tally in report.dropped)


def test_a_requeued_job_is_two_runs(tmp_path):
    later = ROW.replace("T08:10", "T10:10").replace("T09:10", "T11:10")
    report, _ = imported("slurm", sacct(tmp_path, ROW, later), tmp_path)
    assert report.jobs_written == 2


def test_the_longest_row_of_a_job_that_still_runs_stays(tmp_path):
    rows = [
        ROW.replace("COMPLETED", "RUNNING").replace("2026-03-02T09:10:00", "Unknown").replace("3600", str(seconds))
        for seconds in (600, 7200, 1200)
    ]
    report, jobs = imported("slurm", sacct(tmp_path, *rows), tmp_path)
    assert ([job["duration"] for job in jobs.values()], report.dropped[0].count) == ([7200], 2)


def test_local_times_in_autumn_give_the_waits_of_a_clock_without_zones(tmp_path):
    """Jobs around the repeated hour, written in local time, keep the waits that they have in UTC."""
    zone = ZoneInfo("America/New_York")
    first = datetime(2025, 11, 2, 3, 0, tzinfo=ZoneInfo("UTC"))
    rows, waits = [], []
    for number in range(24):
        submit = first + timedelta(minutes=13 * number)
        wait, duration = timedelta(minutes=7 * (number % 9)), timedelta(minutes=30 + 11 * number)
        start, end = submit + wait, submit + wait + duration
        texts = [f"{time.astimezone(zone):%Y-%m-%dT%H:%M:%S}" for time in (submit, submit, start, end)]
        rows.append(
            "|".join([str(number), "a", "u", "COMPLETED", *texts, f"{duration.total_seconds():.0f}", "gres/gpu=1"])
        )
        waits.append(wait.total_seconds())
    _, jobs = imported("slurm", sacct(tmp_path, *rows), tmp_path, time_zone=zone.key)
    assert all(job["queueing_delay"] >= 0 and job["duration"] > 0 for job in jobs.values())
    # A submission in the repeated hour may be either of two instants, if the start allows both.
    unsure = [n for n in range(24) if 5 <= (first + timedelta(minutes=13 * n)).hour < 7]
    for number, wait in enumerate(waits):
        if number not in unsure:
            assert jobs[str(number)]["queueing_delay"] == wait
    columns = "submit=Submit,start=Start,end=End,duration=ElapsedRaw,gpus=AllocTRES:gres/gpu,job=JobID"
    path = tmp_path / "sacct.txt"
    _, table_jobs = imported("table", path, tmp_path, columns=columns, time_zone=zone.key)
    assert {n: job["queueing_delay"] for n, job in table_jobs.items()} == {
        n: j["queueing_delay"] for n, j in jobs.items()
    }


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"PAR1" + b"\0" * 99, "this is a Parquet file"),
        (b"PK\x03\x04" + b"\0" * 99, "this is a ZIP archive or a workbook"),
        (b"\0" * 257 + b"ustar" + b"\0" * 99, "this is a tar archive"),
        ("JobID|State".encode("utf-16"), "this is text in UTF-16"),
        (b"<!DOCTYPE html><html>", "this is a web page"),
        (b" \n\n", "the file is empty"),
        (b"             JOBID PARTITION     NAME     USER ST       TIME  NODES\n", "this is the queue (squeue)"),
        (b"JobId=12 JobName=a\n   UserId=u(1)\n", "this is the output of scontrol show job"),
        (b"1 0 10 100 4 -1 -1 4 3600 -1 1 5 2 -1 1 0 -1 -1\n", "this is a log in the Standard Workload Format"),
        (b'{"apiVersion":"v1","kind":"List","items":[]}', "this is a list of Kubernetes objects"),
    ],
)
def test_other_files_are_recognised(data, what, tmp_path):
    (tmp_path / "log").write_bytes(data)
    for name in ("slurm", "helios"):
        with pytest.raises(InvalidInputError) as caught:
            imported(name, tmp_path / "log", tmp_path)
        assert what in str(caught.value)
        assert str(caught.value).count("\n") == 0


def test_a_numbered_table_needs_no_header(tmp_path):
    (tmp_path / "log").write_text("# a comment\na,10,2,01:00:00\nb,20,4,1-00:00:00\n")
    _, jobs = imported("table", tmp_path / "log", tmp_path, columns="job=1,submit=2,gpus=3,duration=4")
    assert {name: (job["num_gpus"], job["duration"]) for name, job in jobs.items()} == {"a": (2, 3600), "b": (4, 86400)}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("01:00:00", 3600), ("1-02:03:04", 93784), ("2 days 00:00:01", 172801), ("1 day, 0:00:00", 86400), ("90", 90)],
)
def test_durations_in_tables(text, seconds, tmp_path):
    (tmp_path / "log").write_text(f"submit;gpus;duration;wait;time_limit\n0;1;{text};{text};{text}\n")
    _, jobs = imported("table", tmp_path / "log", tmp_path)
    (job,) = jobs.values()
    assert (job["duration"], job["queueing_delay"], job["time_limit"]) == (seconds, seconds, seconds)


@pytest.mark.parametrize("text", ["1:30", "1h", "01:99:00"])
def test_a_duration_of_another_form_is_named(text, tmp_path):
    (tmp_path / "log").write_text(f"submit,gpus,duration\n0,1,{text}\n")
    with pytest.raises(InvalidInputError, match="line 2: column 'duration' is not a number"):
        imported("table", tmp_path / "log", tmp_path)


@pytest.mark.parametrize(
    ("cell", "gpus"),
    [("cpu=8,gres/gpu:a100=4,mem=16G", 4), ("gres/gpu=4,gres/gpu:a100=4", 4), ("gres/gpu:a=1,gres/gpu:b=2", 3)],
)
def test_typed_entries_count_once(cell, gpus, tmp_path):
    (tmp_path / "log").write_text(f"submit;tres\n0;{cell}\n")
    _, jobs = imported("table", tmp_path / "log", tmp_path, columns="gpus=tres:gres/gpu")
    assert [job["num_gpus"] for job in jobs.values()] == [gpus]


def test_a_product_needs_both_columns(tmp_path):
    (tmp_path / "log").write_text("submit,per_node,nodes\n0,4,2\n1,4,x\n")
    with pytest.raises(InvalidInputError, match="line 3: column 'nodes' is not a number of at least 0"):
        imported("table", tmp_path / "log", tmp_path, columns="gpus=per_node*nodes")
    with pytest.raises(InvalidConfigError, match=r"maps gpus to 'node', which is not a column .*did you mean nodes"):
        imported("table", tmp_path / "log", tmp_path, columns="gpus=per_node*node")


def pod(name, created, start, end, *, labels=None, gpus=1, resource="nvidia.com/gpu"):
    run = {"startedAt": f"2026-01-05T{start}Z", "finishedAt": f"2026-01-05T{end}Z"}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "n", "creationTimestamp": f"2026-01-05T{created}Z", "labels": labels or {},
        },
        "spec": {"containers": [{"name": "c", "resources": {"limits": {resource: str(gpus)}}}]},
        "status": {"phase": "Succeeded", "containerStatuses": [{"name": "c", "state": {"terminated": run}}]},
    }  # fmt: skip


def test_pods_of_one_job_are_a_gang_and_a_second_try_is_another_run(tmp_path):
    labels = {"job-name": "train"}
    items = [
        pod("train-a", "10:00:00", "10:06:00", "11:06:00", labels=labels, gpus=4),
        pod("train-b", "10:00:01", "10:07:00", "11:00:00", labels=labels, gpus=4),
        pod("train-c", "12:00:00", "12:01:00", "13:01:00", labels=labels, gpus=4),
        pod("tpu", "10:00:00", "10:06:00", "11:06:00", gpus=8, resource="google.com/tpu"),
    ]
    (tmp_path / "pods.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    report, jobs = imported("pods", tmp_path / "pods.json", tmp_path)
    assert {name: (job["num_gpus"], job["duration"], job["queueing_delay"]) for name, job in jobs.items()} == {
        "n/train": (8, 3600, 360), "n/train#2": (4, 3600, 60),
    }  # fmt: skip
    assert report.rows_read == 4 == report.jobs_written + sum(tally.count for tally in report.dropped)


def test_pods_that_overlapping_outputs_repeat_are_counted_once(tmp_path):
    labels = {"job-name": "train"}
    alone = pod("alone", "09:00:00", "09:06:00", "10:06:00", gpus=2)
    gang = [
        pod("train-a", "10:00:00", "10:06:00", "11:06:00", labels=labels, gpus=4),
        pod("train-b", "10:00:00", "10:06:00", "11:06:00", labels=labels, gpus=4),
    ]
    outputs = [[alone, gang[0]], [alone, *gang]]
    text = "\n".join(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}) for items in outputs)
    (tmp_path / "pods.json").write_text(text)
    report, jobs = imported("pods", tmp_path / "pods.json", tmp_path)
    assert {name: job["num_gpus"] for name, job in jobs.items()} == {"n/alone": 2, "n/train": 8}
    assert {tally.reason: tally.count for tally in report.dropped} == {
        "a repeat of a pod: equal name and creation": 2,
        "another pod of a job, one gang with its first": 1,
    }


def test_the_command_counts_another_unit(tmp_path, capsys):
    path = sacct(tmp_path, ROW.replace("gres/gpu=4", "cpu=16,mem=4G"))
    command = ["log", "import", "slurm", str(path), "-o", str(tmp_path / "t.parquet")]
    assert main(command) == 2
    assert "1 × no GPU (CPU-only)" in capsys.readouterr().err
    assert main([*command, "--unit", "cpus"]) == 0
    out = capsys.readouterr().out
    assert "CPUs per job" in out
    assert "16.00 CPU h in all" in out
    assert main([*command, "--unit", "cpus*x"]) == 2
    assert "--unit has 'cpus*x', which is not" in capsys.readouterr().err


def test_a_swf_job_that_ran_for_an_unknown_time_is_not_one_that_never_ran(tmp_path):
    rest = "-1 -1 4 200 -1 {} 1 1 1 1 1 -1 -1"
    rows = ["1 0 10 -1 4 " + rest.format(1), "2 5 10 100 4 " + rest.format(1), "3 6 -1 -1 -1 " + rest.format(5)]
    (tmp_path / "jobs.swf").write_text("\n".join(rows) + "\n")
    report, jobs = imported("swf", tmp_path / "jobs.swf", tmp_path)
    assert list(jobs) == ["2"]
    assert {tally.reason: tally.count for tally in report.dropped} == {
        "ran for an unknown time": 1, "never ran (no start)": 1,
    }  # fmt: skip
