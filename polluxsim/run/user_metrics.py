"""The user's metrics: declared by entry points of installed packages, and by the setting `metrics` of a run."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from polluxsim.errors import InvalidConfigError, short
from polluxsim.metrics.declared import Metric
from polluxsim.metrics.summary import Summary

if TYPE_CHECKING:
    from collections.abc import Mapping

GROUP = "polluxsim.metrics"
"""Group of entry points, each of which names a `Metric`."""

TAKEN = {"folder", "key", "policy", "seed", *(field.name for field in fields(Summary))}
"""Columns of a sweep's table that are no user's metrics."""


def user_metrics(config: Mapping[str, Any]) -> dict[str, Metric]:
    """Return the user's metrics of a run by name: of installed packages, then of the run's resolved configuration.

    Raises
    ------
    InvalidConfigError
        If a metric cannot be loaded, is no `Metric` with a function, or has a name that is taken.
    """
    named = {point.name: point.value for point in _entry_points()} | _named(config)
    for name in named:
        _check_name(name)
    return {name: checked(name, _loaded(name, place)) for name, place in named.items()}


def modules(config: Mapping[str, Any]) -> set[str]:
    """Return the top-level modules of the user's metrics of a run."""
    places = [point.value for point in _entry_points()] + [*_named(config).values()]
    return {place.partition(":")[0].partition(".")[0] for place in places}


def checked(name: str, metric: object) -> Metric:
    """Return a metric that the user declared.

    Raises
    ------
    InvalidConfigError
        If it is no `Metric` with a function, or its name is taken.
    """
    _check_name(name)
    if not isinstance(metric, Metric) or metric.value is None:
        kind = "a Metric without a function" if isinstance(metric, Metric) else f"a {type(metric).__name__}"
        raise InvalidConfigError(f"metric {name} is {kind}; give a polluxsim.Metric(TITLE, UNIT, value=FUNCTION)")
    return metric


def _check_name(name: str) -> None:
    if not name.isidentifier() or name in TAKEN:
        why = "a column of polluxsim's own" if name in TAKEN else "not a name of letters, digits and _"
        raise InvalidConfigError(f"metric {short(name)}: its name is {why}; give the metric another name")


@lru_cache(maxsize=1)
def _entry_points() -> tuple[Any, ...]:
    return tuple(entry_points(group=GROUP))


def _named(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the metrics that a configuration names: module and attribute by the metric's name."""
    named = config.get("metrics") or {}
    if not isinstance(named, dict) or not all(isinstance(place, str) for place in named.values()):
        raise InvalidConfigError(f"metrics is {short(named)}; give metrics.NAME=MODULE.ATTRIBUTE")
    return {str(name): place for name, place in named.items()}


def _loaded(name: str, place: str) -> object:
    try:
        return resolve_name(place)
    except (ImportError, AttributeError, ValueError, SyntaxError) as error:
        why = " ".join(str(error).split())
        raise InvalidConfigError(f"metric {name}: {place} cannot be loaded ({why}); give MODULE.ATTRIBUTE") from error
