"""The scenarios that policies are compared on, as `experiments/arena.yaml` says them."""

from __future__ import annotations

from typing import Any, NamedTuple

import yaml

from polluxsim.errors import InvalidConfigError, allowed_among
from polluxsim.shipped import shipped


class Scenario(NamedTuple):
    """A difference from the default run."""

    name: str
    title: str  # what it is
    overrides: tuple[str, ...]  # Hydra's


class Suite(NamedTuple):
    """Scenarios, and the seeds that each is drawn with."""

    name: str
    scenarios: tuple[Scenario, ...]
    seeds: range


def read_suite(name: str, only: tuple[str, ...] = (), seeds: int | None = None) -> Suite:
    """Return a suite, `quick` or `full`, with all of its scenarios or only some, and its number of seeds or another.

    Raises
    ------
    InvalidConfigError
        If there is no such scenario, or no seed.
    """
    said = _said()
    known = said["scenarios"]
    if unknown := [word for word in only if word not in known]:
        raise InvalidConfigError(f"there is no scenario {unknown[0]!r}, {allowed_among(unknown[0], known)}")
    count = said["seeds"][name] if seeds is None else seeds
    if count < 1:
        raise InvalidConfigError(f"--seeds is {count}, allowed is a whole number ≥ 1")
    scenarios = tuple(
        Scenario(key, known[key]["title"], (*known[key]["overrides"], *known[key][name])) for key in only or known
    )
    return Suite(name, scenarios, range(1, count + 1))


def default_policies() -> list[str]:
    """Return the policies that are compared where none are named."""
    return list(_said()["policies"])


def _said() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((shipped("experiments") / "arena.yaml").read_text(encoding="utf-8"))
    return found
