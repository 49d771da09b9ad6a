"""The time limit of a decision: a policy that hangs ends its run, wherever it hangs, and no other policy does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from polluxsim.common import process_state
from polluxsim.common.errors import InvalidConfigError, PolicyError
from polluxsim.engine import time_limit
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.policies.contract.view import Decision
from polluxsim.policies.tools.gangs import schedule_gangs
from polluxsim.records.folders import difference
from polluxsim.run.composing import composed
from polluxsim.run.execution import Execution
from polluxsim.run.identity import key_of
from polluxsim.workloads.workload import Job, Workload

LIMIT = 0.2


def spin() -> None:
    while True:
        pass


def sleep() -> None:
    time.sleep(60)


def wait_for_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def swallow() -> None:
    for _ in range(3):
        with suppress(BaseException):
            time.sleep(60)


def raise_something_else() -> None:
    try:
        time.sleep(60)
    except time_limit.DecisionTimeoutError:
        raise ValueError("no") from None


HANGS = [spin, sleep, wait_for_a_lock, swallow, raise_something_else]


class Hanging:
    """First come, first served; in the second round it does something else first, or explains itself with it."""

    def __init__(self, act: Callable[[], object], *, when_explaining: bool = False) -> None:
        self._act = act
        self._when_explaining = when_explaining

    def allocate(self, view: object, rng: np.random.Generator) -> object:
        decision = schedule_gangs(view, view.jobs)
        if view.time < 60.0:
            return decision
        if self._when_explaining:
            return Decision(decision.allocation, explain=lambda _: self._act() or {})
        self._act()
        return decision


def run(policy: object, limit: float | None = LIMIT) -> object:
    jobs = Workload((Job.rigid("a", 0.0, 1, 600.0), Job.rigid("b", 30.0, 1, 600.0)), "drawn")
    return simulate(jobs, {}, Cluster.uniform(1, 2), policy, settings=EngineSettings(decision_limit=limit))


def check_message(error: PolicyError) -> None:
    text = str(error)
    assert "policy Hanging did not decide within 0.2 s in the round at 60 s, " in text
    assert f"{Path(__file__).name}, line " in text
    assert "engine.decision_limit" in text


@pytest.mark.parametrize("hang", HANGS)
def test_a_policy_that_hangs_is_named_with_its_round_and_line(hang: Callable[[], None]) -> None:
    with pytest.raises(PolicyError) as caught:
        run(Hanging(hang))
    check_message(caught.value)


def test_a_reason_that_hangs_is_named() -> None:
    with pytest.raises(PolicyError) as caught:
        run(Hanging(sleep, when_explaining=True))
    check_message(caught.value)


@pytest.mark.parametrize("hang", [spin, swallow])
def test_a_policy_that_hangs_in_another_thread_is_named(hang: Callable[[], None]) -> None:
    """A thread is interrupted between two steps of Python, so its long calls end first."""
    errors: list[PolicyError] = []

    def call() -> None:
        try:
            run(Hanging(lambda: time.sleep(0.5) if hang is swallow else hang()))
        except PolicyError as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(20)
    check_message(errors[0])


def test_many_short_decisions_are_not_interrupted() -> None:
    """Together they take longer than the limit."""
    result = run(Hanging(lambda: time.sleep(LIMIT / 4)))
    assert len(result.job_records) == 2


def test_without_a_limit_a_policy_may_think() -> None:
    run(Hanging(lambda: time.sleep(2 * LIMIT)), limit=None)


def test_compiling_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "KERNELS", __file__)  # as if this file compiled kernels
    run(Hanging(lambda: time.sleep(2 * LIMIT)))


def test_a_policy_that_cannot_be_interrupted_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "GRACE", 0.0)
    said: list[str] = []
    process_state.last_resorts.append(said.append)
    try:
        with pytest.raises(PolicyError):
            run(Hanging(swallow))
    finally:
        process_state.last_resorts.pop()
    assert said
    assert "did not decide within" in said[0]


class SlowToMake:
    """A policy whose constructor hangs."""

    def __init__(self) -> None:
        time.sleep(60)

    def allocate(self, view: object, rng: np.random.Generator) -> object:
        return {}


def test_a_policy_that_hangs_when_it_is_made_is_named() -> None:
    spec = composed({"policy": "fifo", "workload": "one-job"}, {"engine": {"decision_limit": LIMIT}}, 0)
    slow = spec.with_settings("policy", {"_target_": f"{__name__}.SlowToMake"})
    with pytest.raises(PolicyError, match=r"policy SlowToMake was not made within 0\.2 s, .*, line "):
        Execution(slow).simulate()


def test_the_limit_changes_neither_keys_nor_settings() -> None:
    keys, configs = set(), []
    for limit in (60.0, 1.0, None):
        config = composed({"policy": "fifo"}, {"engine": {"decision_limit": limit}}, 0).config
        keys.add(key_of(config))
        configs.append(config)
    assert len(keys) == 1
    assert difference(configs[0], configs[1]) is None


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan"), "a"])
def test_an_invalid_limit_is_refused(limit: object) -> None:
    with pytest.raises(InvalidConfigError, match=r"engine\.decision_limit"):
        EngineSettings(decision_limit=limit)
