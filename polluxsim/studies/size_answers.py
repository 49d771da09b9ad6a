"""The answer of a search for the smallest cluster or the highest load, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import isinf
from typing import Any, NamedTuple

from polluxsim.metrics.outcomes import how_often
from polluxsim.metrics.target import Target
from polluxsim.statistics.estimates import LEAST_UNITS, Estimate
from polluxsim.studies.reversals import reversals


class Facts(NamedTuple):
    """What the runs of a level tell besides the metric."""

    gpus_per_node: Sequence[int]  # of each node of the cluster
    preemptions: float  # number of times that the policy took the GPUs of a job; mean over seeds
    incomplete: Counter[str]  # number of jobs that did not complete, by outcome, over all seeds
    num_jobs: int  # over all seeds
    notes: Sequence[str]  # on the jobs that the workload leaves out or changes


class SizeAnswer(NamedTuple):
    """The result of a search."""

    target: Target
    curve: Mapping[float, Estimate]  # the metric of the target at each level that was run, rising [s; 1 for ρ]
    of_sizes: bool  # whether levels are nodes; otherwise they are loads
    level: float | None  # the hardest level that meets the target; None if the search found none
    # The hardest levels at which the lower and the upper end of the metric's 95 % interval meet the target. They are
    # the ends of the 95 % interval of `level`: at the levels between them, the target lies inside the interval.
    ends: tuple[float | None, float | None] | None = None  # None without intervals
    existing: int | None = None  # number of existing nodes
    engine: Mapping[str, Any] = {}  # engine settings of the runs
    same_seeds: bool = False  # whether several seeds gave the same results
    num_seeds: int = 1  # of each level
    facts: Mapping[float, Facts] = {}  # of each level that was run
    first: float | None = None  # smallest level at which the runs can start; None if it is the first level
    too_short: str = ""  # the reason why the days of a log give no interval; "" if they give one
    about_log: str = ""  # sentences on the partitions that the runs pool, and on rows that the import left out

    @property
    def what(self) -> str:
        """Return the quantity that varies."""
        return "nodes" if self.of_sizes else "load"

    @property
    def noun(self) -> str:
        """Return the word for a level in sentences."""
        return "size" if self.of_sizes else "load"

    def in_unit(self, value: float) -> str:
        """Return a value of the metric in the unit of the target, without the unit; "jobs left" for ∞."""
        if isinf(value):
            return "jobs left"
        return self.target.text_of(value).partition(" ")[0]

    def interval(self, estimate: Estimate) -> str:
        """Return the 95 % interval of an estimate as text, or "" if it has none."""
        if estimate.low is None or estimate.high is None:
            return ""
        return f"{self.in_unit(estimate.low)} to {self.in_unit(estimate.high)}"

    def sentences(self) -> Iterator[str]:
        """Yield the answer, its difference from the existing nodes, its interval, and the preemptions at it.

        Then yield a sentence for each level that contradicts a monotone metric.
        """
        target = self.target
        curve = self.curve
        level = self.level
        if level is None:
            best = min(curve, key=lambda level: curve[level].value)
            best_words = f"the best found is {self._at(best)}"
            if isinf(curve[best].value):  # every value is infinite, so none is the best
                best_words = "jobs are left at each"
            yield f"no {self.noun} from {min(curve):g} to {max(curve):g} meets {target}: {best_words}"
        else:
            superlative = "least size" if self.of_sizes else "highest load"
            answer = f"{superlative} that meets {target}: {self._at(level)}"
            is_last_load = not self.of_sizes and level == max(curve)
            if is_last_load:  # a higher load may meet the target too
                answer += ", the highest tried"
            yield answer
            if self.existing is not None:
                yield f"relative to the {self.existing} nodes that exist: {self._more(level)}"
            if self.ends is not None:
                yield self._interval_of_level(*self.ends)
            facts = self.facts.get(level)
            if facts:
                yield from self._preemptions(facts)
        yield from self._not_monotone()

    def _interval_of_level(self, low: float | None, high: float | None) -> str:
        """Return the 95 % interval of the answer, with its ends in rising order."""
        # A low metric needs few nodes, and allows a high load.
        if self.of_sizes:
            first = low
            last = high
            unit = " nodes"
        else:
            first = high
            last = low
            unit = ""
        start = f"below {min(self.curve):g}"
        if first is not None:
            start = f"{first:g}"
        end = f"more than {max(self.curve):g}"
        if last is not None:
            end = f"{last:g}"
        words = f"95 % interval of this {self.noun}: {start} to {end}{unit}"
        if self.existing is not None and first is not None:
            more = f"more than {max(self.curve) - self.existing:+g}"
            if last is not None:
                more = self._more(last)
            words += f" ({first - self.existing:+g} to {more})"
        return words

    def why_no_interval(self) -> str:
        """Return the reason why the answer has no interval; "" if it has one, or if there is no answer.

        The reason for seeds with equal results is `same_seeds`.
        """
        if self.level is None or self.ends is not None or self.same_seeds:
            return ""
        reason = self.too_short
        if not reason:
            runs = "one run" if self.num_seeds == 1 else f"{self.num_seeds} seeds"
            reason = f"it needs {LEAST_UNITS} seeds or more, and each {self.noun} has {runs} (--seeds)"
        return f"no interval of this {self.noun}: {reason}"

    def _preemptions(self, facts: Facts) -> Iterator[str]:
        """Yield how often jobs are preempted at the answer, if they are."""
        if facts.preemptions:
            a_job = facts.preemptions * self.num_seeds / facts.num_jobs
            yield f"jobs are preempted {how_often(facts.preemptions)} in a run, {a_job:.2g} times a job"

    def _more(self, level: float) -> str:
        """Return the difference of a number of nodes from the existing nodes in words."""
        difference = level - (self.existing or 0)
        return f"{difference:+g} node{'s' * (abs(difference) != 1)}"

    def _not_monotone(self) -> Iterator[str]:
        """Yield a sentence for each easier level that misses the target, or is worse than the next harder level."""
        values = {level: estimate.value for level, estimate in self.curve.items()}
        worse = reversals(values, easier_upwards=self.of_sizes)
        for other, estimate in self.curve.items():
            if self._is_easier(other) and not self.target.is_met(estimate.value):
                yield f"not monotone: {self._at(other)} does not meet it"
            elif other in worse:
                harder = worse[other]
                # A difference below the printed digits is none to the reader.
                if self.in_unit(estimate.value) != self.in_unit(self.curve[harder].value):
                    yield f"not monotone: {self._at(other)} is worse than {self._at(harder)}"

    def _is_easier(self, other: float) -> bool:
        """Return whether a level is easier than the answer: more nodes, or a lower load; False without an answer."""
        if self.level is None or other == self.level:
            return False
        return (other > self.level) == self.of_sizes

    def _at(self, level: float) -> str:
        """Return a level and its metric in words."""
        where = f"load {level:g}"
        if self.of_sizes:
            noun = "node" if level == 1 else "nodes"
            where = f"{level:g} {noun}"
        value = self.curve[level].value
        if isinf(value):
            return f"{where}, jobs left"
        return f"{where}, {self.target.text_of(value)}"
