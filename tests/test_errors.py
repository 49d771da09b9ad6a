"""Errors that users see go from worker to parent as they are."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pytest

import polluxsim
from polluxsim.common.errors import InvalidConfigError, PolluxSimError
from polluxsim.common.values import OneOf, Range, check
from polluxsim.engine.settings import EngineSettings
from polluxsim.hardware.clusters import Cluster

EXAMPLES = {
    "path": Path("log.csv"),
    "line": 3,
    "reason": "is broken",
    "found": b"\xff",
    "message": "what is wrong, and why",
}


def kinds() -> list[type[PolluxSimError]]:
    """Return every kind of error of every module."""
    for module in pkgutil.walk_packages(polluxsim.__path__, "polluxsim."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found = [PolluxSimError]
    for kind in found:
        found += kind.__subclasses__()
    return [kind for kind in found if kind.__module__.startswith("polluxsim")]


def made(kind: type[PolluxSimError]) -> PolluxSimError:
    """Return an error with something in every part of it."""
    if kind.__init__ is Exception.__init__:
        return kind("what, its value and what is allowed")
    names = list(inspect.signature(kind).parameters)
    return kind(*(EXAMPLES.get(name, name) for name in names))


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_every_error_crosses_processes(kind: type[PolluxSimError]) -> None:
    error = made(kind)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  (as concurrent.futures does)
    assert (type(again), str(again), vars(again)) == (kind, str(error), vars(error))
    assert len(str(error)) > 10


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: check("a.b", 1.0000001, Annotated[float, Range(least=0, most=1)]),
            "a.b is 1.0000001, must be a number from 0 to 1",
        ),
        (
            lambda: check("a.b", 4.0, Annotated[int, Range(least=1, most=9)]),
            "a.b is 4.0, must be a whole number from 1 to 9",
        ),
        (lambda: check("a.b", 60.0, Annotated[float, Range(most=1)]), "a.b is 60, must be a number ≤ 1"),
        (lambda: check("a.b", ["x"], Annotated[str, OneOf("x")]), "a.b is ['x'], must be one of x"),
        (lambda: Cluster((4, 4), least_nodes="two"), "cluster.least_nodes is 'two', must be 1 to 2, the number of"),
        (lambda: Cluster((4, 4), least_nodes=1.5), "cluster.least_nodes is 1.5, must be 1 to 2, the number of"),
        (
            lambda: EngineSettings(restart_delays={7: {2: -1}}),
            "engine.restart_delays.7.2 is -1, must be a number from 0",
        ),
    ],
)
def test_a_setting_is_named_with_its_own_value(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        make()
    assert str(caught.value).startswith(message)
