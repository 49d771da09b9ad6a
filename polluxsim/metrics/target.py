"""A target for a cluster: a bound on a metric, as the user writes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import inf
from typing import NamedTuple

import numpy as np

from polluxsim.common.durations import UNITS, from_clock, unit_of
from polluxsim.common.errors import InvalidInputError, short
from polluxsim.metrics.summary import counted, jct, summarise, waiting_time
from polluxsim.records.results import JobRecord, Result

WORDS = re.compile(r"(?:(mean|p50|p90|p95|p99) +(wait|jct|rho)|(makespan)) *(<=|<) *(.+)")
NUMBER = re.compile(r"[\d.]+")
ALLOWED = "'[mean|p50|p90|p95|p99] [wait|jct|rho] < VALUE' or 'makespan < VALUE', like 'p90 wait < 10 min'"


class Target(NamedTuple):
    """A bound on a metric of a run."""

    statistic: str  # "mean", or a percentile like "p90" (linear between ranks); "" for the makespan
    # "wait" (all time without GPUs from submission to completion), "jct", "rho" or "makespan".
    quantity: str
    sign: str  # "<" or "<="
    bound: float  # [s; 1 for ρ]
    unit: tuple[str, int]  # of the text, and its length [s]; ("", 1) for ρ

    @property
    def metric(self) -> str:
        """Return a description of the bounded metric."""
        return f"{self.statistic} {self.quantity}".strip()

    @property
    def heading(self) -> str:
        """Return the metric and the unit of the bound, for a heading."""
        unit, _ = self.unit
        return f"{self.metric} [{unit}]" if unit else self.metric

    def __str__(self) -> str:
        return f"{self.metric} {self.sign} {self.text_of(self.bound)}"

    def text_of(self, value: float) -> str:
        """Return a value of the metric in the unit of the target."""
        unit, size = self.unit
        # Large values have all digits, where `.3g` would write an exponent.
        form = ".3g" if value < 1000 * size else ".0f"
        return f"{value / size:{form}} {unit}".strip()

    def is_met(self, value: float) -> bool:
        """Return whether a value of the metric is within the bound."""
        return value < self.bound or (self.sign == "<=" and value == self.bound)

    def value(self, result: Result, is_meant: Callable[[JobRecord], bool] = lambda _: True) -> float:
        """Return the metric of a run [s; 1 for ρ]; ∞ if jobs were cut off, rejected or never submitted.

        The metric is over the jobs that the target means; the makespan is always over all jobs. Raise InvalidInputError
        if none of these jobs has the quantity.
        """
        summary = summarise(result)
        if summary is not None:
            # A mean over the served jobs could be within the bound, although the cluster is too small.
            if summary.cut_off or summary.not_submitted or summary.rejected:
                return inf
            if self.quantity == "makespan" and summary.makespan is not None:
                return summary.makespan
        values = [value for job, value in self.of_jobs(result) if is_meant(job)]
        if not values:
            raise InvalidInputError(f"no job of the workload has a {self.quantity}, so that no cluster can be judged")
        if self.statistic == "mean":
            return float(np.mean(values))
        return float(np.percentile(values, int(self.statistic.removeprefix("p"))))

    def of_jobs(self, result: Result) -> list[tuple[JobRecord, float]]:
        """Return the jobs that have the quantity of the target, each with its value [s; 1 for ρ]; none for makespan."""
        if self.quantity == "makespan":
            return []
        if self.quantity == "jct":
            return [(job, jct(job, result.end_time)) for job in counted(result)]
        if self.quantity == "wait":
            return [(job, waiting_time(job, result.end_time)) for job in counted(result)]
        ratios = []
        for job in result.job_records:
            if job.finish_time_fairness is not None:
                ratios.append((job, job.finish_time_fairness))
        return ratios


def read_target(text: str) -> Target:
    """Return the target in a text. Raise InvalidInputError if the text states none.

    >>> print(read_target("p90 wait<0:10"), "|", read_target("mean rho <= 1.5"))
    p90 wait < 10 min | mean rho <= 1.5
    """
    match = WORDS.fullmatch(text.strip().lower().replace("≤", "<=").replace("ρ", "rho"))
    if match is None:
        raise InvalidInputError(f"--target is {short(text)}, must be {ALLOWED}")
    statistic, quantity, makespan, sign, value = match.groups()
    has_no_unit = NUMBER.fullmatch(value) is not None
    bound = None
    # `from_clock` reads a number without a unit as seconds, which also serves for ρ. But `rho < 2 h` is an error.
    if quantity != "rho" or has_no_unit:
        bound = from_clock(value)
    # A bound of 0 means the same in all units.
    if quantity != "rho" and has_no_unit and bound:
        problem = f"--target bounds {quantity or makespan} by {value}, which has no unit"
        raise InvalidInputError(f"{problem}; write {value}s, {value}min or {value}h")
    if bound is None or (bound == 0 and sign == "<"):
        advice = "a number > 0" if quantity == "rho" else "a time > 0, like 600s, 10 min, 1.5h or H:MM:SS"
        raise InvalidInputError(f"--target bounds {quantity or makespan} by {short(value)}; give {advice}")
    unit = ("", 1)
    if quantity != "rho":
        unit = _unit(value, bound)
    return Target(statistic or "", quantity or makespan, sign, bound, unit)


def _unit(text: str, bound: float) -> tuple[str, int]:
    """Return the unit that a text of a time names, and its length [s]. A text without a unit has that of its size."""
    for unit in reversed(UNITS):
        if text.endswith(unit[0]):
            return unit
    return unit_of(bound)
