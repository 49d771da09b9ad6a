"""Bounds on the metrics of a run, as the folder of the run stores them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isclose, isfinite
from pathlib import Path
from typing import Any

from polluxsim.common.errors import InvalidInputError
from polluxsim.common.files import atomic_write
from polluxsim.records.completeness import FILES

BOUND_FILE = "bound.json"
ROUNDING = 1e-9  # share by which parts differ that are equal
REMEDY = "delete this file, and give 'polluxsim bound' again"

PART_WORDS = {
    "alone": "each job alone",
    "SRPT": "SRPT on one machine",
    "programme": "linear programme",
    "prices": "prices",
    "work": "work that is left",
}
"""Parts of bounds, and what tables call them."""


@dataclass(frozen=True)
class MetricBound:
    """A bound on a metric."""

    parts: Mapping[str, float]  # bounds by part, at least one [unit of the metric]
    is_upper: bool = False

    @property
    def part(self) -> str:
        """Return the sharpest part. Of parts that are equal up to rounding, the first one counts.

        >>> MetricBound({"alone": 600.0, "prices": 600.0000001}).part
        'alone'
        """
        return next(name for name, value in self.parts.items() if isclose(value, self._best, rel_tol=ROUNDING))

    @property
    def value(self) -> float:
        """Return the bound."""
        return self.parts[self.part]

    @property
    def _best(self) -> float:
        values = self.parts.values()
        return min(values) if self.is_upper else max(values)

    def gap(self, value: float) -> float | None:
        """Return the distance of a value from the bound, as a share of the bound; None if the bound is 0.

        It is positive if a better value may be possible.

        >>> MetricBound({"alone": 50.0, "prices": 100.0}).gap(138.0)
        0.38
        """
        if not self.value:
            return None
        distance = self.value - value if self.is_upper else value - self.value
        return distance / self.value

    def is_broken_by(self, value: float, tolerance: float = 1e-6) -> bool:
        """Return whether a value is better than the bound by more than a share, for rounding."""
        slack = tolerance * max(abs(self.value), 1.0)
        return value > self.value + slack if self.is_upper else value < self.value - slack


@dataclass(frozen=True)
class RunBound:
    """Bounds on the metrics of a run, by name, and what they do not cover.

    Attributes
    ----------
    metrics
        Bounds for any schedule; empty if there is none.
    at_rounds
        Bounds for schedules in which jobs start at rounds only; empty if nobody asked for them.
    sentences
        What the bounds do not cover, and why.
    values
        Values of the run.
    """

    metrics: Mapping[str, MetricBound]
    at_rounds: Mapping[str, MetricBound] = field(default_factory=dict)
    sentences: tuple[str, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)

    def gap(self, metric: str) -> float | None:
        """Return the distance of the run from the bound on a metric, as a share of the bound; None if unknown."""
        bound = self.metrics.get(metric)
        if bound is None or metric not in self.values:
            return None
        return bound.gap(self.values[metric])

    @property
    def broken(self) -> tuple[str, ...]:
        """Return the metrics in which the run is better than a bound. Then polluxsim or a profile has a defect."""
        names = {}
        for bounds in (self.metrics, self.at_rounds):
            for name, bound in bounds.items():
                if name in self.values and bound.is_broken_by(self.values[name]):
                    names[name] = bound
        return tuple(names)

    def merged(self, before: RunBound) -> RunBound:
        """Return these bounds, and those of other metrics from before."""
        return RunBound(
            {**before.metrics, **self.metrics},
            {**before.at_rounds, **self.at_rounds},
            self.sentences,
            {**before.values, **self.values},
        )


def stored_bound(folder: Path | None, info: Mapping[str, Any]) -> RunBound | None:
    """Return the bounds that the folder of a run stores; None if there are none, or those of an earlier run in it.

    `info` is the content of run.json. Raise InvalidInputError if the file is damaged.
    """
    if folder is None or not (folder / BOUND_FILE).is_file():
        return None
    path = folder / BOUND_FILE
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["jobs"] != digest_of_jobs(info):
            return None
        values = {str(name): float(value) for name, value in stored["values"].items()}
        sentences = tuple(map(str, stored["sentences"]))
        return RunBound(_read(stored["metrics"]), _read(stored["at_rounds"]), sentences, values)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError(f"{path}: damaged, or not written by polluxsim ({error}); {REMEDY}") from None


def _read(values: Mapping[str, Any]) -> dict[str, MetricBound]:
    """Return the bounds in a part of the file. Raise ValueError if a bound is not a finite number."""
    bounds = {}
    for name, value in values.items():
        parts = {str(part): float(number) for part, number in value["parts"].items()}
        if not parts or not all(map(isfinite, parts.values())):
            raise ValueError(f"{name} has no bound")
        bounds[str(name)] = MetricBound(parts, bool(value["is_upper"]))
    return bounds


def store_bound(folder: Path, info: Mapping[str, Any], bound: RunBound) -> None:
    """Store bounds in the folder of a run. `info` is the content of run.json."""
    stored = {
        "jobs": digest_of_jobs(info),
        "metrics": as_json(bound.metrics),
        "at_rounds": as_json(bound.at_rounds),
        "sentences": list(bound.sentences),
        "values": dict(bound.values),
    }
    with atomic_write(folder / BOUND_FILE) as temporary:
        temporary.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def as_json(bounds: Mapping[str, MetricBound]) -> dict[str, Any]:
    """Return bounds as plain values."""
    return {name: {"parts": dict(bound.parts), "is_upper": bound.is_upper} for name, bound in bounds.items()}


def digest_of_jobs(info: Mapping[str, Any]) -> str | None:
    """Return the digest of the jobs of a run, so that the bounds of another run are not taken for those of this run."""
    file = (info.get(FILES) or {}).get("jobs.parquet")
    return file.get("sha256") if isinstance(file, Mapping) else None
