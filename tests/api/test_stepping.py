"""Runs that are stepped by hand: in steps of time, handed over to another policy, and compared."""

from __future__ import annotations

from copy import deepcopy
from math import nan

import pandas as pd
import pytest
from drawn import POLICIES

import polluxsim
from polluxsim.common.errors import InvalidConfigError, InvalidInputError, TurnError
from polluxsim.engine.futures import Fork
from polluxsim.engine.simulation import Simulation
from polluxsim.policies.contract.policy import Policy, traits_of
from polluxsim.policies.ordered.classic import Fifo
from polluxsim.records.results import Result

SETTINGS = polluxsim.EngineSettings(reasons="none")


def jobs() -> polluxsim.Workload:
    """Return eight gangs that together need two nodes for half an hour."""
    return polluxsim.Workload(
        tuple(
            polluxsim.Job.rigid(
                f"job-{i}", 60.0 + 100.0 * i, (1, 2, 4)[i % 3], 600.0 + 50.0 * i, user="ab"[i % 2], deadline=1e5
            )
            for i in range(8)
        )
    )


def started(policy: Policy) -> Simulation:
    cluster = polluxsim.Cluster((4,))
    return Simulation(polluxsim.Scenario(jobs(), {}, cluster, SETTINGS, traits_of(policy), type(policy).__name__))


def up_to(run: Simulation, policy: Policy, time: float) -> None:
    """Step a run to the first decision at a time or later."""
    while (view := run.advance()) is not None and view.time < time:
        run.commit(policy.allocate(view, run.rng))


def finished(run: Simulation, policy: Policy) -> Result:
    view = run.view or run.advance()
    while view is not None:
        run.commit(policy.allocate(view, run.rng))
        view = run.advance()
    return run.result()


def can_take_over(name: str) -> bool:
    """Return whether a policy schedules rigid jobs, so that it can take over a run of FIFO."""
    return traits_of(POLICIES[name]()) == polluxsim.Traits()


@pytest.mark.parametrize("name", list(filter(can_take_over, sorted(POLICIES))))
def test_a_copy_goes_on_under_any_policy_with_or_without_the_announcement(name: str) -> None:
    """Policies that knew only announced jobs failed with a KeyError."""
    run = started(Fifo())
    up_to(run, Fifo(), 900.0)
    silent, announced = deepcopy(run), deepcopy(run)
    announced.hand_over()
    assert announced.view is not None
    assert [job.job_id for job in announced.view.changes.arrived] == [job.job_id for job in announced.view.jobs]
    for copy in (silent, announced):
        result = finished(copy, POLICIES[name]())
        assert all(job.completion_time is not None for job in result.job_records)
    assert finished(run, Fifo()) == finished(started(Fifo()), Fifo())


@pytest.mark.parametrize("name", ["fifo", "tiresias", "gittins", "themis", "qssf", "fair-queues", "easy"])
def test_a_run_that_is_handed_over_is_a_fork_with_a_new_policy(name: str) -> None:
    run = started(Fifo())
    up_to(run, Fifo(), 900.0)
    assert run.view is not None
    time = run.view.time
    by_fork = started(Fifo())
    while (view := by_fork.advance(before=time)) is not None:
        by_fork.commit(Fifo().allocate(view, by_fork.rng))
    by_fork.fork(Fork(time, by_fork.scenario, has_new_policy=True))
    run.hand_over()
    assert finished(run, POLICIES[name]()) == finished(by_fork, POLICIES[name]())


def test_steps_of_time_change_nothing() -> None:
    run, policy, time = started(Fifo()), Fifo(), 0.0
    while not run.is_over:
        while (view := run.advance(before=time)) is not None:
            run.commit(policy.allocate(view, run.rng))
        assert run.time < max(time, 1.0)
        time += 130.0
    assert run.advance() is None
    assert run.result() == finished(started(Fifo()), Fifo())


@pytest.mark.parametrize("before", ["1h", nan, None])
def test_a_step_to_no_time_is_an_error(before: object) -> None:
    with pytest.raises(InvalidConfigError, match=r"before is .*, must be a finite number"):
        started(Fifo()).advance(before=before)  # type: ignore[arg-type]


def test_a_run_that_is_over_has_no_other_future() -> None:
    run = started(Fifo())
    finished(run, Fifo())
    with pytest.raises(TurnError, match=r"the run is over at .*: fork a copy that was made before"):
        run.fork(Fork(1e6, run.scenario))
    with pytest.raises(TurnError, match="the run is over"):
        run.hand_over()


def test_stepped_runs_are_compared() -> None:
    results = {name: finished(started(POLICIES[name]()), POLICIES[name]()) for name in ("fifo", "srtf")}
    comparison = polluxsim.compare(results)
    table = comparison.summary()
    assert list(table.index) == ["fifo", "srtf"]
    means = {name: pd.Series([job.jct for job in result.job_records]).mean() for name, result in results.items()}
    assert table.avg_jct.to_dict() == pytest.approx(means)
    change = comparison.changes().loc[("srtf", "avg_jct"), "change"]
    assert change == pytest.approx(means["srtf"] / means["fifo"] - 1)
    assert "srtf" in repr(comparison)


def test_what_is_no_result_is_named_in_one_line() -> None:
    run = started(Fifo())
    with pytest.raises(TypeError, match=r"'a' is of type Simulation; step it to its end, and pass its result\(\)"):
        polluxsim.compare({"a": run})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="'a' is of type DataFrame; pass what simulate, read or"):
        polluxsim.compare({"a": pd.DataFrame()})  # type: ignore[dict-item]


@pytest.mark.parametrize("unit", ["minutes", "min", "hours", "seconds", "share", "kWh/", "h/h", "parsec"])
def test_an_unknown_unit_of_a_metric_is_an_error_that_names_the_allowed_ones(unit: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        polluxsim.Metric("wait", unit=unit)
    message = str(error.value)
    assert message.startswith(f"a metric's unit is '{unit}'; give 'h' for values in seconds, '%' for shares of 1")
    assert "kWh" in message
    assert "\n" not in message


@pytest.mark.parametrize("unit", ["", "h", "%", "kWh", "jobs/h", "kg CO₂", "kg CO2/kWh", "$/GPU", "s"])
def test_usual_units_are_allowed(unit: str) -> None:
    assert polluxsim.Metric("x", unit=unit).unit == unit
