"""The page to print of `log whatif`: question, answer, uncertainty, assumptions and two figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from polluxsim.cli.log_answers import WAITS, costs_in_words, table_of_waits
from polluxsim.common.files import atomic_write
from polluxsim.common.phrases import listed
from polluxsim.hardware.costs import Price
from polluxsim.look.descriptions import engine_waits
from polluxsim.look.one_page import CaptionedFigure, OnePage, as_html
from polluxsim.look.plot.waits import draw_shares, draw_waits
from polluxsim.studies.log_replays import OFF, Case, LogWhatIf, failures_in_words
from polluxsim.studies.replayed_jobs import read_replay
from polluxsim.studies.reversals import not_monotone

MOST_BARS = 8  # largest number of cases in a figure


def write_page(found: LogWhatIf, path: Path, price: Price | None = None) -> None:
    """Write the page of a what-if of a log, whole or not at all."""
    text = as_html(page_of(found, price))
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def page_of(found: LogWhatIf, price: Price | None = None) -> OnePage:
    """Return the page of a what-if of a log."""
    return OnePage(
        question=_question(found),
        answer=list(_answer(found, price)),
        uncertainty=list(_uncertainty(found)),
        assumptions=list(_assumptions(found)),
        figures=_figures(found),
        table=table_of_waits(found, price) if found.runs else None,
        more="the output of the command with --json",
    )


def _answer(found: LogWhatIf, price: Price | None) -> Iterator[str]:
    """Yield the effects of the changes and their costs, or that the waits are not explained."""
    if not found.runs:
        yield "the replays do not explain the waits in the log, so there is no answer"
    yield from found.effects()
    yield from costs_in_words(found, price)


def _figures(found: LogWhatIf) -> list[CaptionedFigure]:
    """Return the two figures: waits by case or by group of jobs, and distributions of waits."""
    shares = CaptionedFigure(
        draw_shares(_waits(found)), "Waits in the log and in replays of it: the share of jobs that wait at most a time."
    )
    if found.runs:
        percentile = found.request.percentiles[0]
        return [
            CaptionedFigure(draw_waits(_bars(found), f"{percentile} wait"), f"The {percentile} wait of each case."),
            shares,
        ]
    # Without a replay that explains the log, the figures show how far off the nearest one is.
    verdict = found.calibration.verdict
    bars = {"log": verdict.whole.recorded, f"{verdict.policy}, {verdict.gpus} GPUs": verdict.whole.replayed}
    return [
        CaptionedFigure(draw_waits(bars, "mean wait"), "The mean wait in the log and in the replay nearest to it."),
        shares,
    ]


def base_of(found: LogWhatIf) -> Case:
    """Return the case that is nearest to the log."""
    request = found.request
    return Case(found.matches[0].policy, request.nodes[0], request.loads[0], request.failures[0])


def _question(found: LogWhatIf) -> str:
    """Return the question that the what-if answers."""
    request = found.request
    changes = []
    # The first value of each kind is the present one, and the others are changes.
    nodes = list(dict.fromkeys(request.nodes))
    if len(nodes) > 1:
        changes.append(f"{listed([str(number) for number in nodes[1:]])} nodes in place of {nodes[0]}")
    present_policy = found.matches[0].policy
    other_policies = [policy for policy in request.policies if policy != present_policy]
    if other_policies:
        changes.append(f"{listed(other_policies)} in place of {present_policy}")
    loads = list(dict.fromkeys(request.loads))
    if len(loads) > 1:
        changes.append(f"{listed([f'{load:g}' for load in loads[1:]])} times the load")
    failures = list(dict.fromkeys(request.failures))
    if len(failures) > 1:
        changes.append(listed([failures_in_words(name, request.overrides) for name in failures[1:]]))
    if request.user_gpus:
        limits = listed([str(gpus) for gpus in request.user_gpus])
        changes.append(f"at most {limits} GPUs of each user")
    if not changes:
        return f"How long do jobs wait on {nodes[0]} nodes?"
    return f"How long do jobs wait with {listed(changes)}?"


def _uncertainty(found: LogWhatIf) -> Iterator[str]:
    """Yield how well the replay explains the log, and what contradicts the answer."""
    yield from found.calibration.verdict.sentences()
    if found.runs:
        yield found.no_interval() or "the 95 % intervals are from resampled days of the log"
    yield from not_monotone(found.waits, found.request.percentiles[0])


def _assumptions(found: LogWhatIf) -> Iterator[str]:
    """Yield what the replays assume, and what they leave out."""
    request = found.request
    yield f"the jobs of {Path(request.log).name} arrive as they did, and take as long as they did"
    yield from found.cluster
    yield f"each node has {request.gpus_per_node} GPUs"
    if list(request.failures) == [OFF]:
        yield "no node fails"
    yield WAITS
    yield engine_waits(found.matches[0].engine)
    yield from dict.fromkeys([*found.calibration.left_out, *found.left_out()])


def _bars(found: LogWhatIf) -> Mapping[str, float]:
    """Return the first percentile of the wait [s] by case, of `MOST_BARS` cases, the one nearest to the log first."""
    base = base_of(found)
    cases = [base]
    cases += [case for case in found.waits if case != base]
    # The mean is the first number of each case, and the percentiles follow it.
    return {found.name_of(case): found.waits[case][1] for case in cases[:MOST_BARS]}


def _waits(found: LogWhatIf) -> Mapping[str, np.ndarray]:
    """Return the waits in the log, in the case nearest to it, and in the case with the smallest first percentile [s].

    If no case was replayed, return those in the log and in the replay nearest to it.
    """
    if not found.runs:
        nearest = read_replay(found.calibration.nearest, found.matches[0].gpus)
        name = f"{found.matches[0].policy}, {found.matches[0].gpus} GPUs"
        return {"log": found.recorded, name: np.array(list(nearest.waits.values()))}
    base = base_of(found)
    best = min(found.waits, key=lambda case: found.waits[case][1])
    waits = {"log": found.recorded}
    for case in dict.fromkeys([base, best]):
        waits[found.name_of(case)] = np.array([found.replays[case].waits[job] for job in found.jobs])
    return waits
