"""The published logs, whole."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from polluxsim.logs.importing import import_trace


def test_all_itp_jobs(published_logs, tmp_path):
    report = import_trace("itp", published_logs / "itp", tmp_path / "itp.parquet")
    assert (report.rows_read, report.jobs_written, report.dropped, report.bad) == (69_351, 69_351, (), ())
    table = pq.read_table(tmp_path / "itp.parquet", columns=["tenant", "submit_time"])
    counts = {item["values"]: item["counts"] for item in table["tenant"].value_counts().to_pylist()}
    assert (counts["cluster04"], counts["cluster10"], len(counts)) == (15_802, 260, 10)
    assert table["submit_time"][0].as_py() == 0
    assert [(item.num_gpus, item.jobs) for item in report.gpu_counts[:2]] == [(1, 57_682), (2, 1_483)]
    durations = {item.share: item.value for item in report.durations}
    assert (durations[0], durations[1]) == (600, 1_573_360)
    assert sum(day.jobs for day in report.load) == 69_351


def test_all_rows_of_philly_csv(published_logs, tmp_path):
    report = import_trace("philly", published_logs / "osdi21/traces/philly.csv", tmp_path / "philly.parquet")
    assert (report.rows_read, report.jobs_written, report.dropped, report.bad) == (82_247, 82_247, (), ())
    assert report.origin_time == "2017-09-04T10:30:41+00:00"
    assert (report.cluster_gpus, report.larger_than_cluster.count) == (2490, 0)
    durations = {item.share: item.value for item in report.durations}
    assert (durations[0], durations[0.5], durations[1]) == (1, 1144, 4_628_226)
    # gpu_time summed over the file's rows, by another road.
    lines = (published_logs / "osdi21/traces/philly.csv").read_text().splitlines()[1:]
    gpu_seconds = [float(line.split(",")[3]) for line in lines if line]
    assert report.total_gpu_hours == pytest.approx(sum(gpu_seconds) / 3600)
    assert [(item.num_gpus, item.jobs) for item in report.gpu_counts][:4] == [
        (1, 76627),
        (2, 1818),
        (4, 1870),
        (8, 1643),
    ]
