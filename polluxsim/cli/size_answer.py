"""The answer of `size`: a table of the levels, sentences, and the numbers for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from polluxsim.hardware.costs import Price, in_dollars
from polluxsim.look.descriptions import cluster_words, engine_waits
from polluxsim.look.sheets import Block, Sheet
from polluxsim.metrics.outcomes import counts_in_words, number_of
from polluxsim.studies.size_answers import SizeAnswer


def sheet_of_size(
    answer: SizeAnswer, price: Price | None = None, *, before: Sequence[str], after: Sequence[str]
) -> Sheet:
    """Return the answer of a search, with sentences before and after, and the cost of each size if nodes have a price.

    A price is for sizes only, not for loads.
    """
    first = [*before, *_clusters_and_jobs(answer)]
    last = [*answer.sentences(), *_costs(answer, price), *after, engine_waits(answer.engine)]
    data = {
        "target": str(answer.target),
        "levels": [_data_of_level(answer, level, price) for level in answer.curve],
        "answer": answer.level,
        "interval": answer.ends,
        "existing": answer.existing,
        "sentences": [*first, *last],
    }
    return Sheet([*first, _table(answer, price), *last], data)


def _table(answer: SizeAnswer, price: Price | None) -> Block:
    """Return a table with a row for each level: the metric, and the jobs that it leaves out."""
    # A column that would be empty in every row is left out.
    have_intervals = any(estimate.low is not None for estimate in answer.curve.values())
    have_preemptions = any(facts.preemptions for facts in answer.facts.values())
    leave_out_jobs = any(facts.incomplete for facts in answer.facts.values())
    head = [answer.what, answer.target.heading]
    if have_intervals:
        head.append("95 % interval")
    if have_preemptions:
        head.append("preempted")
    if leave_out_jobs:
        head.append("jobs left out")
    if price is not None:
        head.append("cost a month")
    lines = [head]
    for level, estimate in answer.curve.items():
        facts = answer.facts[level]
        cells = [f"{level:g}", answer.in_unit(estimate.value)]
        if have_intervals:
            cells.append(answer.interval(estimate))
        if have_preemptions:
            cells.append(f"{facts.preemptions:,.4g}")
        if leave_out_jobs:
            cells.append(counts_in_words(facts.incomplete) or "none")
        if price is not None:
            cells.append(in_dollars(price.monthly(facts.gpus_per_node)))
        lines.append(cells)
    return Block(lines, names=0)


def _costs(answer: SizeAnswer, price: Price | None) -> Iterator[str]:
    """Yield a sentence on the cost of the answer, and of its difference from the existing nodes."""
    if price is None or answer.level is None:
        return
    sizes = answer.facts[answer.level].gpus_per_node
    cost = price.monthly(sizes)
    nodes_cost = "1 node costs" if len(sizes) == 1 else f"{len(sizes)} nodes cost"
    yield f"{nodes_cost} {in_dollars(cost)} a month, at {price}"
    # The existing nodes are like the nodes of the answer. If these differ, the price of the existing nodes is unknown.
    if answer.existing is not None and len(set(sizes)) == 1:
        additional_cost = cost - price.monthly(list(sizes[:1]) * answer.existing)
        comparative = "more" if additional_cost >= 0 else "less"
        words = f"{in_dollars(abs(additional_cost))} {comparative} a month"
        yield f"relative to the {number_of(answer.existing, 'node')} that exist: {words}"


def _data_of_level(answer: SizeAnswer, level: float, price: Price | None) -> Mapping[str, Any]:
    """Return the numbers of a level. The metric is in seconds, or 1 for ρ; null if jobs are left."""
    estimate = answer.curve[level]
    facts = answer.facts[level]
    numbers: dict[str, Any] = {
        answer.what: level,
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "meets_target": answer.target.is_met(estimate.value),
        "preemptions": facts.preemptions,
        "jobs_left_out": dict(facts.incomplete),
    }
    if price is not None:
        numbers["cost_per_month"] = price.monthly(facts.gpus_per_node)
    return numbers


def _clusters_and_jobs(answer: SizeAnswer) -> Iterator[str]:
    """Yield sentences on the clusters, on sizes that are left out, and on the jobs of the runs."""
    facts = answer.facts[min(answer.curve)]
    sizes = set[int]()
    for facts_of_level in answer.facts.values():
        sizes.update(facts_of_level.gpus_per_node)
    if not answer.of_sizes:
        yield f"cluster: {cluster_words(facts.gpus_per_node)}"
    elif len(sizes) == 1:
        yield f"each node has {min(sizes)} GPU{'s' * (min(sizes) > 1)}"
    else:
        largest = answer.facts[max(answer.curve)]
        yield f"clusters from {cluster_words(facts.gpus_per_node)} to {cluster_words(largest.gpus_per_node)}"
    if answer.first is not None:
        yield f"sizes below {answer.first:g} are left out: they have no room for the largest job"
    for note in facts.notes:
        yield f"the workload: {note}"
