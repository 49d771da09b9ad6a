from __future__ import annotations

import pytest

from polluxsim.common.durations import UNITS
from polluxsim.common.errors import InvalidInputError
from polluxsim.metrics.summary import summarise
from polluxsim.metrics.target import read_target
from polluxsim.records.results import JobRecord, Result, RoundRecord, Status
from polluxsim.statistics.metric_lines import metric_lines


def job(name: str, application: str, submitted: float, completed: float | None, restarts: int = 0) -> JobRecord:
    jct = None if completed is None else completed - submitted
    status = Status.CUT_OFF if completed is None else Status.COMPLETED
    return JobRecord(name, application, submitted, submitted, completed, jct, 0.0, restarts, 3600.0, status)


def test_metrics_by_hand() -> None:
    jobs = tuple(job(f"{i}", "ab"[i % 2], 10.0 * i, 10.0 * i + 100.0 * (i + 1), restarts=i) for i in range(11))
    summary = summarise(Result(jobs, (), (), end_time=1200.0))
    assert (summary.num_jobs, summary.cut_off, summary.not_submitted) == (11, (), ())
    assert (summary.avg_jct, summary.p50_jct) == (600.0, 600.0)
    assert summary.p99_jct == pytest.approx(1000.0 + 0.9 * 100.0)  # linear between the ranks
    assert summary.jct_by_application == {"a": 600.0, "b": 600.0}
    assert summary.makespan == 1200.0
    assert (summary.restarts, summary.gpu_hours) == (55, 11.0)


def test_fairness_and_overheads_by_hand() -> None:
    rhos = (0.5, 1.0, 2.0, 7.5, None)
    jobs = tuple(
        job(f"{i}", "a", 0.0, None if rho is None else 100.0, restarts=i)._replace(
            run_time=60.0 * i, restart_time=6.0 * i, finish_time_fairness=rho
        )
        for i, rho in enumerate(rhos)
    )
    summary = summarise(Result(jobs, (), (), end_time=600.0))
    assert (summary.time_between_restarts, summary.restart_share) == (60.0, pytest.approx(0.1))
    assert (summary.max_fairness, summary.fair_share) == (7.5, 0.5)
    assert summary.p99_fairness == pytest.approx(2.0 + 0.97 * 5.5)  # linear between the ranks
    never = summarise(Result((jobs[0]._replace(finish_time_fairness=None),), (), (), end_time=600.0))
    assert (never.time_between_restarts, never.restart_share) == (None, 0.0)
    assert (never.max_fairness, never.fair_share) == (None, None)


def test_waiting_in_total_counts_the_time_after_a_preemption_too() -> None:
    jobs = (
        job("preempted", "a", 0.0, 100.0)._replace(start_time=10.0, run_time=40.0),
        job("never started", "a", 50.0, None)._replace(start_time=None),
    )
    summary = summarise(Result(jobs, (), (), end_time=150.0))
    assert summary.avg_queueing_delay == (10.0 + 100.0) / 2
    assert summary.avg_waiting_time == (60.0 + 100.0) / 2
    told = {line.label for line in metric_lines([summary])}
    assert {"average time to the first GPU", "average waiting time in total"} <= told


def test_unfinished_jobs_count_with_their_age() -> None:
    jobs = (job("done", "a", 0.0, 100.0), job("running", "a", 50.0, None), job("never", "a", 900.0, None))
    summary = summarise(Result(jobs, (), (), end_time=550.0))
    assert summary.avg_jct == (100.0 + 500.0) / 2
    assert (summary.cut_off, summary.not_submitted) == (("running", "never"), ("never",))
    assert summary.makespan == 550.0
    at_the_end = summarise(Result((*jobs[:2], job("late", "a", 550.0, None)), (), (), end_time=550.0))
    assert (at_the_end.not_submitted, at_the_end.gpu_hours) == ((), 3.0)


def test_no_jobs_have_no_metrics() -> None:
    assert summarise(Result((), (), (), end_time=0.0)) is None


def test_nodes_cost_what_they_did_by_the_last_round_and_their_price_from_then_on() -> None:
    jobs = (job("a", "x", 0.0, 3600.0),)
    rounds = (
        RoundRecord(0.0, 1, 1, 1.0, 1.0, hourly_cost=2.0),
        RoundRecord(1800.0, 1, 1, 1.0, 1.0, None, None, None, 2, 4.0, 1.0),
    )
    assert summarise(Result(jobs, rounds, (), end_time=9000.0)).cost == 1.0 + 4.0 * 2
    assert summarise(Result(jobs, (), (), end_time=9000.0)).cost == 0.0


@pytest.mark.parametrize(("sign", "met"), [("<", [True, False, False]), ("<=", [True, True, False])])
def test_a_target_is_met_below_its_bound_and_at_it_where_it_says_so(sign: str, met: list[bool]) -> None:
    target = read_target(f"p90 wait {sign} 10 min")
    assert [target.is_met(value) for value in (599.0, 600.0, 601.0)] == met


def test_a_target_answers_in_the_unit_of_its_text() -> None:
    for text, told in (
        ("p90 wait < 1h", "p90 wait < 1 h"),
        ("p90 wait < 60 min", "p90 wait < 60 min"),
        ("makespan <= 90s", "makespan <= 90 s"),
        ("mean jct < 0.5d", "mean jct < 0.5 d"),
        ("mean jct < 2:30:00", "mean jct < 2.5 h"),
        ("p99 rho < 2", "p99 rho < 2"),
    ):
        assert str(read_target(text)) == told
    assert read_target("p90 wait < 1h").text_of(3288.0) == "0.913 h"


def test_what_is_no_target_is_told() -> None:
    for text, words in (
        ("p90", "must be .* like"),
        ("p90 wait < soon", "bounds wait by"),
        ("makespan < 0", "bounds makespan"),
        ("makespan < 1hh", "bounds makespan"),
        ("makespan < 1e308d", "bounds makespan"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            read_target(text)


def test_a_length_of_time_is_shown_in_the_unit_that_stands_beside_it() -> None:
    """What stands in a line times its unit is the metric, to the four digits that count."""
    jobs = tuple(
        job(f"{i}", "a", 100.0 * i, 9000.0 * (i + 1), restarts=2)._replace(run_time=5000.0, queueing_delay=70.0)
        for i in range(4)
    )
    summary = summarise(Result(jobs, (), (), end_time=4e4))
    assert summary is not None
    shown = {line.field: line for line in metric_lines([summary]) if line.metric.unit == "h"}
    assert {"avg_jct", "p99_jct", "makespan", "time_between_restarts"} <= set(shown)
    assert len({line.unit for field, line in shown.items() if "jct" in field}) == 1
    for field, line in shown.items():
        value = getattr(summary, field) if "." not in field else summary.jct_by_application["a"]
        assert float(line.texts[0].replace(",", "")) * dict(UNITS)[line.unit] == pytest.approx(value, rel=1e-3)
