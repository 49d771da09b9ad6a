"""The report: every figure on logs small enough to count by hand, and every finding it must make."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_samples import SAMPLES

from polluxsim.logs import importing
from polluxsim.logs.formats import FORMATS
from polluxsim.logs.import_report import as_text
from polluxsim.logs.importing import import_trace

DAY = 86400


def report_of(tmp_path, jobs, **options):
    """Import ITP rows given as (submission, duration, GPUs)."""
    path = tmp_path / "cluster01.csv"
    rows = [f"j{number},{time},{duration},{gpus}" for number, (time, duration, gpus) in enumerate(jobs)]
    path.write_text("\n".join(["job_id,submission_time,duration,num_gpu", *rows]))
    return import_trace("itp", path, tmp_path / "trace.parquet", **options)


def suspicions(report):
    return {tally.reason: (tally.count, [place.line for place in tally.places]) for tally in report.suspicious}


def test_load_by_day_against_capacity(tmp_path):
    jobs = [(0, 3600, 4), (DAY - 1, 7200, 1), (DAY, 36000, 8), (3 * DAY + 5, 0, 2)]
    report = report_of(tmp_path, jobs, cluster_gpus=2)
    assert [(day.day, day.jobs, day.gpu_hours) for day in report.load] == [
        ("0", 2, 6.0), ("1", 1, 80.0), ("2", 0, 0.0), ("3", 1, 0.0),
    ]  # fmt: skip
    assert [day.load for day in report.load] == [6 / 48, 80 / 48, 0, 0]
    assert report.total_gpu_hours == 86
    assert report.mean_load == pytest.approx(86 / (2 * (3 * DAY + 5) / 3600))
    assert (report.larger_than_cluster.count, report.larger_than_cluster.places[0].line) == (2, 2)


def test_the_mean_load_of_a_few_hours_is_not_spread_over_a_day(tmp_path):
    report = report_of(tmp_path, [(0, 3600, 2), (7200, 3600, 2)], cluster_gpus=2)
    assert report.mean_load == 1.0
    assert report_of(tmp_path, [(0, 3600, 2)], cluster_gpus=2).mean_load is None


def test_days_are_those_of_the_logs_clock(tmp_path):
    path = tmp_path / "philly.csv"
    rows = ["2017-10-01 23:59:59,3600,1,3600,a", "2017-10-02 00:00:00,7200,1,7200,a"]
    path.write_text("\n".join(["timestamp,duration,num_gpus,gpu_time,cluster", *rows]))
    report = import_trace("philly", path, tmp_path / "trace.parquet", time_zone="America/Los_Angeles")
    assert [(day.day, day.gpu_hours) for day in report.load] == [("2017-10-01", 1.0), ("2017-10-02", 2.0)]
    assert report.origin_time == "2017-10-01T23:59:59-07:00"


def test_stray_day_does_not_make_a_list_of_all_days_between(tmp_path):
    assert len(report_of(tmp_path, [(0, 1, 1), (90_000_000_000, 1, 1)]).load) == 2


def test_durations_that_are_not_known_are_counted_and_in_no_load(tmp_path):
    report = import_trace("sia", SAMPLES["sia"].source, tmp_path / "trace.parquet")
    assert (report.without_duration, report.total_gpu_hours, report.durations) == (2, 0, ())
    assert "2 jobs without a duration are not in it" in as_text(report)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 99), st.integers(1, 9)), min_size=1, max_size=80))
def test_quantiles_and_histogram_are_exact(tmp_path_factory, jobs):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importing, "BATCH_ROWS", 7)
        patch.setattr(importing, "GROUP_ROWS", 10)
        report = report_of(tmp_path_factory.mktemp("report"), jobs)
    times = sorted(time for time, _, _ in jobs)
    for quantiles, values in (
        (report.durations, [duration for _, duration, _ in jobs]),
        (report.inter_arrivals, np.diff(times)),
    ):
        assert [item.value for item in quantiles] == (
            [np.quantile(values, item.share, method="inverted_cdf") for item in quantiles] if len(values) else []
        )
    counts = np.unique([gpus for _, _, gpus in jobs], return_counts=True)
    assert [tuple(item) for item in report.gpu_counts] == list(zip(*counts, strict=True))
    assert sum(day.jobs for day in report.load) == len(jobs)
    per_second = np.unique(times, return_counts=True)[1]
    in_bursts = int(per_second[per_second >= 10].sum())
    found = suspicions(report).get("one of 10 or more jobs submitted in the same second", (0, []))
    assert found[0] == in_bursts


def test_long_and_empty_durations_are_found(tmp_path):
    report = report_of(tmp_path, [(0, 0, 1), (1, 60 * DAY, 1), (2, 60 * DAY + 1, 1)])
    assert suspicions(report) == {"duration of 0 s": (1, [2]), "duration of more than 60 days": (1, [4])}


def test_bursts_are_found_across_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(importing, "GROUP_ROWS", 4)
    monkeypatch.setattr(importing, "BATCH_ROWS", 4)
    report = report_of(tmp_path, [(0, 1, 1)] * 9 + [(5, 1, 1)] * 11 + [(6, 1, 1)] * 10)
    assert suspicions(report) == {"one of 10 or more jobs submitted in the same second": (21, [11, 22])}


def test_jobs_outside_the_bulk_are_found(tmp_path):
    bulk = [(10 * DAY + number, 1, 1) for number in range(300)]
    report = report_of(tmp_path, [(0, 1, 1), (1, 1, 1), *bulk, (12 * DAY, 1, 1)])
    before, after = (
        f"submitted {side} the bulk (in the {end} 1 %, cut off by a pause of more than a day)"
        for side, end in (("before", "first"), ("after", "last"))
    )
    assert suspicions(report) == {before: (2, [3]), after: (1, [304])}


def test_pause_in_the_midst_of_a_trace_is_no_end_of_its_bulk(tmp_path):
    jobs = [(number, 1, 1) for number in range(100)] + [(5 * DAY + number, 1, 1) for number in range(100)]
    assert suspicions(report_of(tmp_path, jobs)) == {}


def test_first_places_only_are_kept(tmp_path):
    report = report_of(tmp_path, [(number, 0, 1) for number in range(50)])
    assert suspicions(report) == {"duration of 0 s": (50, [2, 3, 4, 5, 6])}
    assert "50  duration of 0 s (cluster01.csv line 2, 3, 4, 5, 6, ...)" in as_text(report)


@pytest.mark.parametrize("name", FORMATS)
def test_text_and_json_tell_the_same(name, tmp_path):
    report = import_trace(name, SAMPLES[name].source, tmp_path / "trace.parquet")
    text, data = as_text(report), json.loads(json.dumps(report.as_json(), allow_nan=False))
    assert text.isascii() or "·" in text
    assert "\x1b" not in text
    for tally in (*report.dropped, *report.suspicious):
        assert f"{tally.count:,}  {tally.reason} (" in text
        assert {"reason": tally.reason, "count": tally.count} in [
            {key: one[key] for key in ("reason", "count")} for one in data["dropped"] + data["suspicious"]
        ]
    assert f"rows read     {report.rows_read:>10,}" in text
    assert data["durations"] == [{"share": item.share, "value": item.value} for item in report.durations]
    assert data["load"][0]["gpu_hours"] == report.load[0].gpu_hours
    assert max(map(len, text.splitlines())) < 200


def test_long_lists_are_shortened_in_the_text_not_in_the_json(tmp_path):
    jobs = [(number * DAY, 3600, number + 1) for number in range(100)]
    report = report_of(tmp_path, jobs, cluster_gpus=100)
    assert len(report.as_json()["load"]) == len(report.as_json()["gpu_counts"]) == 100
    text = as_text(report)
    assert "in 80 other counts" in text
    assert "  95 to 99 " in text
    assert len(text.splitlines()) < 70


def test_more_than_a_hundredth_is_a_bulk_of_its_own(tmp_path):
    bulk = [(10 * DAY + number, 1, 1) for number in range(300)]
    assert suspicions(report_of(tmp_path, [(number, 1, 1) for number in range(5)] + bulk)) == {}
    assert suspicions(report_of(tmp_path, [*bulk, *((12 * DAY + number, 1, 1) for number in range(5))])) == {}
