"""Errors that users see go from worker to parent as they are."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil
from pathlib import Path

import pytest

import polluxsim
from polluxsim.common.errors import PolluxSimError

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
