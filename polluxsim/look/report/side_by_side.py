"""The summary of the runs side by side: numbers, and how far each run is from the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from polluxsim.durations import HOUR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polluxsim.metrics.summary import Summary


class Cell(NamedTuple):
    """A number in words, and how far it is from the first run's; `verdict` is better, worse or empty."""

    text: str
    difference: str = ""
    verdict: str = ""


class Line(NamedTuple):
    """One metric of all runs; `unit` says what the numbers are, `indented` lines are parts of the one above."""

    label: str
    unit: str
    cells: list[Cell]
    indented: bool = False


def lines(summaries: Sequence[Summary]) -> list[Line]:
    """Return the metrics in which runs are compared; in all of them less is better."""
    found = [Line("jobs", "", [Cell(f"{run.num_jobs:,}") for run in summaries])]
    if any(run.cut_off for run in summaries):
        found.append(Line("cut off", "jobs", [Cell(f"{len(run.cut_off):,}") for run in summaries]))
    if any(run.cancelled for run in summaries):
        found.append(Line("cancelled", "jobs", [Cell(f"{len(run.cancelled):,}") for run in summaries]))
    if any(run.rejected for run in summaries):
        found.append(Line("rejected", "jobs", [Cell(f"{len(run.rejected):,}") for run in summaries]))
    if any(run.deadlines for run in summaries):
        missed = [run.deadlines - run.deadlines_met for run in summaries]
        found.append(Line("deadlines missed", "jobs", _cells(missed, [f"{count:,}" for count in missed])))
    found += [
        _times("average JCT", summaries, [run.avg_jct for run in summaries]),
        _times("median JCT", summaries, [run.p50_jct for run in summaries]),
        _times("99th percentile JCT", summaries, [run.p99_jct for run in summaries]),
        _times("makespan", summaries, [run.makespan for run in summaries]),
        Line("restarts", "", _cells([run.restarts for run in summaries], [f"{run.restarts:,}" for run in summaries])),
        Line("GPU-hours", "", _cells([r.gpu_hours for r in summaries], [f"{r.gpu_hours:,.1f}" for r in summaries])),
    ]
    for name in sorted({name for run in summaries for name in run.jct_by_application}):
        times = [run.jct_by_application.get(name) for run in summaries]
        found.append(_times(name, summaries, times)._replace(indented=True, label=f"mean JCT {name}"))
    return found


def _times(label: str, summaries: Sequence[Summary], seconds: Sequence[float | None]) -> Line:
    texts = [
        "–" if time is None else f"{'≥ ' if run.cut_off else ''}{time / HOUR:,.3f}"
        for run, time in zip(summaries, seconds, strict=True)
    ]
    return Line(label, "h", _cells(seconds, texts))


def _cells(values: Sequence[float | None], texts: Sequence[str]) -> list[Cell]:
    return [
        Cell(text, *_difference(value, values[0])) if number else Cell(text)
        for number, (value, text) in enumerate(zip(values, texts, strict=True))
    ]


def _difference(value: float | None, first: float | None) -> tuple[str, str]:
    """Return how far a value is from the first, in per cent, and whether that is better or worse.

    >>> _difference(3.0, 2.0)
    ('+50.0 %', 'worse')
    """
    if value is None or not first:
        return "", ""
    percent = 100 * (value / first - 1)
    if abs(percent) < 0.05:
        return "±0.0 %", ""
    return f"{percent:+,.1f} %".replace("-", "−"), "worse" if percent > 0 else "better"
