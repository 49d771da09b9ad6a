"""Dates in the input and output of commands, against Python's own calendar and by hand."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

import polluxsim
from polluxsim.cli.main import main
from polluxsim.common.dates import Origin, read_date
from polluxsim.common.errors import InvalidInputError

# Second 0 is 2026-03-28 23:00 in Berlin. The clocks are put forward on 29 March at 2:00. Both jobs need the only node.
# The first round is at 10 s, so that `first` holds the node from then until 10 s after 4:00, which is 4 hours later.
ACROSS_SPRING = """job,submit,start,end,gpus
first,2026-03-28T22:00:00Z,2026-03-28T22:00:00Z,2026-03-29T02:00:00Z,8
second,2026-03-28T22:30:00Z,2026-03-29T02:00:00Z,2026-03-29T03:00:00Z,8
"""

REPLAY = ("run", "workload=trace", "workload.path=log.parquet", "policy=fifo", "cluster.num_nodes=1",
          "cluster.gpus_per_node=8", "-o", "run")  # fmt: skip


Told = Callable[..., str]


def imported(text: str, zone: str) -> None:
    Path("log.csv").write_text(text)
    assert main(["log", "import", "table", "log.csv", "-o", "log.parquet", "--time-zone", zone]) == 0


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Told:
    """Return a function that runs a command on the replay of `ACROSS_SPRING` and returns what it prints."""
    monkeypatch.chdir(tmp_path)
    imported(ACROSS_SPRING, "Europe/Berlin")
    assert main([*REPLAY]) == 0

    def run(*command: str, status: int = 0) -> str:
        capsys.readouterr()
        assert main(list(command)) == status
        captured = capsys.readouterr()
        return " ".join((captured.out + captured.err).split())

    return run


def test_a_date_is_the_time_of_the_run_that_the_zone_of_the_log_gives(told: Told) -> None:
    # 3:30 in summer time is 1:30 UTC, 3 h 30 min after 22:00 UTC.
    by_date = told("why", "run", "second", "--at", "2026-03-29T03:30", "--brief")
    assert by_date == told("why", "run", "second", "--at", "3:30:00", "--brief")
    assert "At 3:30:00 (2026-03-29 03:30:00) second waits without a GPU" in by_date
    assert by_date == told("why", "run", "second", "--at", "2026-03-29T01:30Z", "--brief")
    assert "submitted 0:30:00 (2026-03-28 23:30:00), started 4:00:10 (2026-03-29 04:00:10) after 3:30:10" in told(
        "why", "run", "second"
    )
    forecast = told("when", "run", "--at", "2026-03-29 03:30")
    assert "at 3:30:00 (2026-03-29 03:30:00)" in forecast
    assert re.search(r"│ second │ waits │ \d\d:\d\d:\d\d │ \d\d:\d\d:\d\d – ", forecast)
    days_ahead = told("when", "run", "--at", "2026-03-28 23:45")
    assert re.search(r"│ second │ waits │ Sun Mar 29 \d\d:\d\d │", days_ahead)
    told("whatif", "run", "--at", "2026-03-29T03:30", "policy=srtf", "-o", "forked")
    assert json.loads(Path("forked/otherwise/run.json").read_text())["descent"]["time"] == 3.5 * 3600
    run = polluxsim.read("run")
    assert run.at("2026-03-29T03:30").time == 3.5 * 3600
    assert run.why("second", "2026-03-29T03:30") == run.why("second", "3:30")


@pytest.mark.parametrize(
    ("date", "message"),
    [
        ("2026-03-29T02:30", "2026-03-29T02:30 does not occur in Europe/Berlin, because the clocks are moved there; "
                             "write 2026-03-29T02:30+01:00 or 2026-03-29T02:30+02:00"),
        ("2026-10-25T02:30", "2026-10-25T02:30 occurs twice in Europe/Berlin, because the clocks are moved there; "
                             "write 2026-10-25T02:30+02:00 or 2026-10-25T02:30+01:00"),
        ("2026-03-28", "2026-03-28 is before the start of run, 2026-03-28 23:00:00; give a later date"),
        ("2026-02-30", "--at is 2026-02-30, must be a time like 90min, 1.5h, H:MM:SS, or a number of seconds, or a "
                       "date like 2026-03-04T14:00"),
    ],
)  # fmt: skip
def test_a_date_that_is_no_time_of_the_run_is_refused_in_a_line(told: Told, date: str, message: str) -> None:
    assert message in told("why", "run", "second", "--at", date, status=2)


def test_a_run_without_dates_refuses_a_date(told: Told) -> None:
    told(*REPLAY[:-1], "faster", "workload.load_factor=2")
    message = "2026-03-29T03:30 is a date, but faster has no dates: only replays of a log with dates have them"
    assert message in told("why", "faster", "second", "--at", "2026-03-29T03:30", status=2)


def test_a_window_has_dates(told: Told) -> None:
    window = (*REPLAY[:-1], "window", "workload.since=2026-03-28T23:30")
    told(*window)
    run = polluxsim.read("window")
    assert {job.job: job.submit_time for job in run.result.job_records} == {"first": -1800.0, "second": 0.0}
    assert run.clock(0.0) == "0:00:00 (2026-03-28 23:30:00)"
    told(*REPLAY[:-1], "first", "workload.until=2026-03-28T23:30")
    assert [job.job for job in polluxsim.read("first").result.job_records] == ["first"]
    for settings, message in (
        (("workload.since=2026-03-27",), "before the first submission of the log at 2026-03-28 23:00:00"),
        (("workload.until=2026-03-28",), "must be later than the start of the window at 2026-03-28 23:00:00"),
        (("workload.since=yesterday",), "workload.since is 'yesterday', must be a date like 2026-03-04"),
        (("workload.until=2026-04-01", "workload.hours=3"), "contradict each other; leave one out"),
    ):
        assert message in told(*REPLAY[:-1], "none", *settings, status=2)
        assert not Path("none").exists()


def test_dates_of_seconds_are_those_of_the_calendar() -> None:
    """Draw times over two years in zones with other rules, and compare with datetime's conversion from UTC."""
    draw = random.Random(0)
    for name in ("Europe/Berlin", "America/New_York", "Asia/Shanghai", "Australia/Lord_Howe", "UTC"):
        zone = ZoneInfo(name)
        start = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=draw.randrange(10**7))
        origin = Origin.of(start, name)
        for _ in range(500):
            seconds = draw.randrange(6 * 10**7)
            local = (start + timedelta(seconds=seconds)).astimezone(zone)
            date = read_date(origin.text(seconds))
            assert date is not None
            assert origin.seconds(date) == seconds
            assert origin.text(seconds)[:19] == f"{local:%Y-%m-%d %H:%M:%S}"


def test_the_repeated_hour_is_read_with_an_offset_and_printed_with_one() -> None:
    origin = Origin.of(datetime(2026, 10, 25, 0, 0, tzinfo=UTC), "Europe/Berlin")
    assert [origin.text(seconds) for seconds in (0, 3600, 7200)] == [
        "2026-10-25 02:00:00+02:00", "2026-10-25 02:00:00+01:00", "2026-10-25 03:00:00",
    ]  # fmt: skip
    again = read_date("2026-10-25T02:00+01:00")
    assert again is not None
    assert origin.seconds(again) == 3600
    with pytest.raises(InvalidInputError, match="occurs twice"):
        origin.seconds(again._replace(time=again.time.replace(tzinfo=None)))


def test_a_damaged_origin_is_reported(told: Told) -> None:
    file = Path("run/run.json")
    file.write_text(file.read_text().replace('"zone": "Europe/Berlin"', '"zone": "Europe/Nowhere"'))
    assert "there is no time zone 'Europe/Nowhere'" in told("why", "run", "second", status=2)


def test_a_mapped_log_has_the_dates_of_the_log(told: Told) -> None:
    words = ("run", "workload=mapped", "workload.path=log.parquet", "workload.select.start=0.5", "policy=fifo")
    told(*words, "-o", "mapped")
    assert polluxsim.read("mapped").clock(1800.0) == "0:30:00 (2026-03-29 00:00:00)"
