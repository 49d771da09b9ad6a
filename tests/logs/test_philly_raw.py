"""The raw Philly log: every figure of the made-up log as expected, and JSON read piece by piece."""

from __future__ import annotations

import json
from datetime import UTC

import pyarrow.parquet as pq
import pytest
from log_samples import SAMPLES

from polluxsim.common.errors import InvalidInputError
from polluxsim.logs.formats import json_rows
from polluxsim.logs.formats.philly import STATUSES
from polluxsim.logs.formats.times import read_time
from polluxsim.logs.importing import import_trace

JOB = {
    "status": "Pass", "vc": "v1", "jobid": "j1", "user": "u1", "submitted_time": "2017-10-02 08:00:00",
    "attempts": [
        {
            "start_time": "2017-10-02 08:00:00", "end_time": "2017-10-02 08:01:00",
            "detail": [{"ip": "m1", "gpus": ["gpu0"]}],
        }
    ],
}  # fmt: skip


def test_made_up_log_gives_the_expected_trace(published_logs, tmp_path):
    folder = published_logs / "philly-fixture"
    expected = {row["jobid"]: row for row in json.loads((folder / "expected.json").read_text())}
    report = import_trace("philly-raw", folder, tmp_path / "trace.parquet")
    rows = pq.read_table(tmp_path / "trace.parquet").to_pylist()
    usable = sorted((row["submitted"], name) for name, row in expected.items() if row["usable_attempts"])
    assert sorted((row["submit_time"], row["job"]) for row in rows) == [
        (read_time(time, UTC) - read_time(usable[0][0], UTC), name) for time, name in usable
    ]
    names = {
        "duration": "run_s_sum_usable", "attempts": "attempts", "usable_attempts": "usable_attempts",
        "gpus_first": "gpus_first", "gpus_max": "gpus_max", "num_nodes": "servers_first",
        "elapsed": "run_s_elapsed_notebook", "gpu_time": "gpu_s_sum_usable",
        "queueing_delay": "queue_s_first",
        "has_hole": "any_hole", "in_philly_csv": "in_pollux_style_csv", "num_gpus": "gpus_first",
    }  # fmt: skip
    for row in rows:
        assert {ours: row[ours] for ours in names} == {
            ours: expected[row["job"]][theirs] for ours, theirs in names.items()
        }
        assert row["status"] == STATUSES[expected[row["job"]]["status"]]
    assert (report.rows_read, report.jobs_written, report.cluster_gpus) == (12, 9, 52)
    assert {tally.reason: tally.count for tally in report.dropped} == {
        "no attempt": 1, "no attempt with both start and end": 1, "no attempt with GPUs for more than 0 s": 1,
    }  # fmt: skip


@pytest.mark.parametrize("chunk", [1, 2, 7, 100, 1 << 16])
def test_pieces_make_no_difference(chunk, tmp_path, monkeypatch):
    monkeypatch.setattr(json_rows, "CHUNK", chunk)
    records = [{**JOB, "jobid": f"jöb-{number}", "user": 'u\n€\\"'} for number in range(20)]
    path = tmp_path / "log"
    path.write_text(json.dumps(records, ensure_ascii=False, indent=1), encoding="utf-8")
    read = list(json_rows.read_objects(path))
    assert [record for _, record in read] == records
    lines = path.read_text(encoding="utf-8").split("\n")
    assert all(lines[line - 1] == " {" for line, _ in read)


def log_of(tmp_path, text):
    path = tmp_path / "cluster_job_log"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("", 1, "the file ends before"),
        ("{}", 1, r"expected \[, the start of a list of jobs; found '\{'"),
        ("[", 1, r"a job must start with \{"),
        ("[\n1]", 2, r"a job must start with \{; found '1'"),
        ("[\n{} {}]", 2, "expected , or ] after a job; found '{'"),
        ("[{}\n", 2, "the file ends before , or ] after a job"),
        ('[{},\n\n{"a": tru}]', 3, "not JSON"),
        ('[{"a": 1', 1, "the file ends within a job"),
        ('[\n{"a": "b', 2, "not JSON: Unterminated string|the file ends within a job"),
        ("[]\n\nx", 3, "the list has ended"),
        ('[{"a": ' + "[" * 100_000, 1, "not JSON that can be read"),
        ('[{"a": ' + "1" * 10_000 + "}]", 1, "not JSON that can be read"),
    ],
)
def test_broken_json_is_named_by_line(text, line, what, tmp_path):
    with pytest.raises(InvalidInputError, match=rf"line {line}: (?:{what})"):
        list(json_rows.read_objects(log_of(tmp_path, text)))


def test_object_without_end_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(json_rows, "CHUNK", 16)
    monkeypatch.setattr(json_rows, "MAX_OBJECT", 64)
    path = log_of(tmp_path, '[{"a": "' + "x" * 10_000)
    read = []
    real = json_rows._Window._read
    monkeypatch.setattr(json_rows._Window, "_read", lambda self, size: (read.append(size), real(self, size)))
    with pytest.raises(InvalidInputError, match="line 1: not JSON"):
        list(json_rows.read_objects(path))
    assert sum(read) < 300


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"status": "Done"}, "key 'status' is not one of Pass, Killed, Failed; found 'Done'"),
        ({"jobid": 7.5}, "key 'jobid' is not a name; found 7.5"),
        ({"user": "\ud800"}, "key 'user' is not a name"),
        (
            {"submitted_time": "yesterday"},
            "key 'submitted_time' is not a time like .*, or None; found 'yesterday'",
        ),
        ({"submitted_time": 1.5}, "key 'submitted_time' is not a time"),
        ({"attempts": {}}, "key 'attempts' is not a list of objects"),
        ({"attempts": [1]}, "key 'attempts' is not a list of objects"),
        ({"attempts": [{}]}, r"key 'attempts\[\].detail' is missing"),
        ({"attempts": [{"detail": [{"ip": "m"}]}]}, r"key 'attempts\[\].detail\[\].gpus' is missing"),
        (
            {"attempts": [{"detail": [{"ip": "m", "gpus": 4}]}]},
            r"key 'attempts\[\].detail\[\].gpus' is not a list",
        ),
    ],
)
def test_bad_job_is_named_and_may_be_skipped(change, reason, tmp_path):
    path = log_of(tmp_path, "[\n" + json.dumps(JOB) + ",\n" + json.dumps({**JOB, **change}) + "]")
    with pytest.raises(InvalidInputError, match=f"cluster_job_log, line 3: {reason}"):
        import_trace("philly-raw", path, tmp_path / "trace.parquet")
    report = import_trace("philly-raw", path, tmp_path / "trace.parquet", skip_bad=True)
    assert (report.jobs_written, report.bad[0].count, report.bad[0].places[0].line) == (1, 1, 3)


def test_end_before_start_is_no_run_time_and_is_told(tmp_path):
    wrong = {
        "start_time": "2017-10-02 09:00:00",
        "end_time": "2017-10-02 08:00:00",
        "detail": JOB["attempts"][0]["detail"],
    }
    path = log_of(tmp_path, json.dumps([{**JOB, "attempts": [wrong, *JOB["attempts"]]}]))
    report = import_trace("philly-raw", path, tmp_path / "trace.parquet")
    assert pq.read_table(tmp_path / "trace.parquet")["duration"].to_pylist() == [60.0]
    assert [tally.reason for tally in report.suspicious] == ["end before start"]


def test_machine_list_gives_the_clusters_size(tmp_path):
    log_of(tmp_path, SAMPLES["philly-raw"].log.read_text())
    assert import_trace("philly-raw", tmp_path, tmp_path / "a.parquet").cluster_gpus is None
    (tmp_path / "cluster_machine_list").write_text(
        "machineId, number of GPUs, single GPU mem\nm1,8, 24GB\nm2,x, 24GB\n"
    )
    with pytest.raises(InvalidInputError, match="cluster_machine_list, line 3: column 'number of GPUs'"):
        import_trace("philly-raw", tmp_path, tmp_path / "a.parquet")
    assert import_trace("philly-raw", tmp_path, tmp_path / "a.parquet", cluster_gpus=5).cluster_gpus == 5
