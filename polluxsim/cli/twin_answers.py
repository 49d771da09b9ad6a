"""The answers of `polluxsim twin` in words, tables and plain values.

Each function `sheet_of_…` makes the answer to one question, for all forms of output. Words and tables have dates, like
squeue. Times in plain values are seconds from the time of the state, so that programs need not know the date.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from io import StringIO
from math import inf, isfinite
from typing import Any

import numpy as np

from polluxsim.common.dates import short_date
from polluxsim.common.durations import length
from polluxsim.common.phrases import number_of
from polluxsim.logs.live.jobs import UNLIMITED
from polluxsim.look.sheets import Block, Sheet
from polluxsim.studies.twin.asking import TwinSituation
from polluxsim.studies.twin.calibrating import SETTLED, TwinCalibration
from polluxsim.studies.twin.changes import Effect
from polluxsim.studies.twin.estimates import LEVELS, JobEstimate, Plans, TimeDistribution
from polluxsim.studies.twin.trying import Tried

NOT_MODELLED = (
    "not modelled: limits of accounts and QOS, preemption, reservations, licences, heterogeneous jobs, memory, and "
    "nodes that fail or return"
)
HEADS = [f"{level} %" for level in LEVELS]


def sheet_of_estimates(asked: TwinSituation, estimates: Sequence[JobEstimate]) -> Sheet:
    """Return the estimates of jobs as an answer: the starts of those that wait, and the ends of all."""
    now = asked.world.state.now
    users = {job.name: job.user for job in asked.world.state.jobs}
    waiting = [estimate for estimate in estimates if estimate.waits]
    parts: list[str | Block] = [_title(asked)]
    if waiting:
        lines = [("job", "user", "starts", "in", *HEADS, "squeue --start")]
        for estimate in waiting:
            lines.append(
                (estimate.name, users[estimate.name], *_cells(estimate.start, now), _at(estimate.expected or inf, now))
            )
        parts.append(Block(lines, "starts", names=2))
    if estimates:
        lines = [("job", "user", "ends", "in", *HEADS)]
        for estimate in estimates:
            lines.append((estimate.name, users[estimate.name], *_cells(estimate.end, now)))
        parts.append(Block(lines, "ends", names=2))
    else:
        parts.append("no job waits")
    parts += _notes(asked)
    rows = []
    for estimate in estimates:
        row: dict[str, Any] = {"job": estimate.name, "waits": estimate.waits}
        row |= _times_as_data("start", estimate.start, now)
        row["start_squeue"] = estimate.expected - now if estimate.expected else None
        row |= _times_as_data("end", estimate.end, now)
        rows.append(row)
    return Sheet(parts, _data(asked, rows))


def sheet_of_tries(asked: TwinSituation, tried: Sequence[Tried]) -> Sheet:
    """Return the starts of a job that is tried, and of other requests, as an answer."""
    now = asked.world.state.now
    lines = [("request", "starts", "in", *HEADS)]
    rows = []
    for other in tried:
        # A request that can never start has no line.
        if other.start is None:
            continue
        wish = other.wish
        limit = "no limit" if wish.limit >= UNLIMITED else f"{wish.limit // 60} min"
        request = f"{number_of(wish.gpus, 'GPU')}, {limit}"
        if wish.partition:
            request += f", {wish.partition}"
        lines.append((request, *_cells(other.start, now)))
        row: dict[str, Any] = {"gpus": wish.gpus, "limit": None if wish.limit >= UNLIMITED else wish.limit}
        row |= {"partition": wish.partition, "change": other.change}
        rows.append(row | _times_as_data("start", other.start, now))
    parts: list[str | Block] = [_title(asked), Block(lines, "if it were submitted now; the first line is the request")]
    # The request itself is the first row.
    if len(rows) == 1:
        parts.append("there is no other request to try")
    parts += ["nothing was submitted", *_notes(asked)]
    return Sheet(parts, _data(asked, rows))


def sheet_of_effects(asked: TwinSituation, effects: Sequence[Effect], change: str) -> Sheet:
    """Return the effects of a change as an answer."""
    now = asked.world.state.now
    lines = [("job", "starts", "with the change", "difference", "80 %")]
    rows = []
    for effect in effects:
        low, high = effect.difference.intervals[80]
        interval = f"{_signed(low)} to {_signed(high)}"
        lines.append(
            (effect.name, _at(effect.before.median, now), _at(effect.after.median, now),
             _signed(effect.difference.median), interval)
        )  # fmt: skip
        row: dict[str, Any] = {"job": effect.name}
        row |= _times_as_data("start", effect.before, now) | _times_as_data("changed_start", effect.after, now)
        # A difference of two times does not count from the time of the state.
        rows.append(row | _times_as_data("difference", effect.difference, 0))
    parts: list[str | Block] = [_title(asked), f"change: {change}"]
    parts.append(Block(lines, "starts of waiting jobs") if effects else "no job waits")
    parts += _notes(asked)
    return Sheet(parts, _data(asked, rows) | {"change": change})


def sheet_of_calibration(result: TwinCalibration, record: str) -> Sheet:
    """Return the errors and the coverage of estimates as an answer. `record` is the name of the recorded run."""
    twin = result.errors(of_squeue=False)
    squeue = result.errors(of_squeue=True)
    parts: list[str | Block] = [
        f"{record}: {len(result.judged):,} estimates of starts in {result.num_snapshots} states "
        f"({result.num_without_jobs} of them without a waiting job)"
    ]
    data: dict[str, Any] = {"estimates": len(result.judged), "states": result.num_snapshots}
    # Errors can be compared only if squeue printed an expected start, too.
    if len(twin):
        lines = [("error", "twin", "squeue --start", "twin / squeue")]
        for name, percentile in (("median", 50), ("90th percentile", 90)):
            mine, theirs = np.percentile(twin, percentile), np.percentile(squeue, percentile)
            ratio = result.ratio(percentile)
            lines.append((name, f"{mine:.0f} s", f"{theirs:.0f} s", f"{ratio:.2f}"))
            data |= {f"error_p{percentile}": mine, f"squeue_error_p{percentile}": theirs, f"ratio_p{percentile}": ratio}
        parts.append(Block(lines, f"{len(twin)} estimates of both"))
    for level in LEVELS:
        parts.append(f"{level} % intervals contain {100 * result.coverage(level):.1f} % of the true starts")
        data[f"coverage_{level}"] = result.coverage(level)
    plans, settled = result.plans, result.settled_plans
    parts.append(f"{_agreement(plans)} plans of the rules are within 2 s of squeue --start")
    parts.append(f"{_agreement(settled)} plans are, in states without an event in the last {SETTLED} s")
    parts.append(f"parameters of the schedulers: {result.parameters}")
    data |= {"plans": plans.compared, "agreeing_plans": plans.agreeing}
    data |= {"settled_plans": settled.compared, "agreeing_settled_plans": settled.agreeing}
    return Sheet(parts, data | {"parameters": result.parameters})


def _agreement(plans: Plans) -> str:
    """Return how many plans agree, in words."""
    if not plans.compared:
        return "0 of 0"
    return f"{plans.agreeing} of {plans.compared} ({100 * plans.agreeing / plans.compared:.1f} %)"


def as_csv(sheet: Sheet) -> str:
    """Return the rows of an answer as CSV. An answer without rows, on a calibration, is one row.

    Times are in seconds from the time of the state, which the first column has.
    """
    rows: Sequence[Mapping[str, Any]] = sheet.data.get("rows", [sheet.data])
    stream = StringIO()
    now = sheet.data.get("now")
    first = {} if now is None else {"now": now}
    names = [*first, *(rows[0] if rows else ())]
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(first | dict(row))
    return stream.getvalue()


def notes_of(sheet: Sheet) -> list[str]:
    """Return the sentences of an answer, without its tables."""
    return [part for part in sheet.parts if isinstance(part, str)]


def _title(asked: TwinSituation) -> str:
    """Return a sentence on the state."""
    state = asked.world.state
    return (
        f"state at {_date(state.now):%Y-%m-%d %H:%M:%S} UTC ({state.source}): {len(state.running)} running and "
        f"{sum(job.is_pending for job in state.jobs)} waiting jobs on {number_of(len(state.nodes), 'node')}"
    )


def _notes(asked: TwinSituation) -> list[str]:
    """Return the sentences on what is assumed, and on what is not modelled."""
    return [*asked.notes, NOT_MODELLED]


def _data(asked: TwinSituation, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return an answer as plain values."""
    state = asked.world.state
    return {"now": _date(state.now).isoformat(), "source": state.source, "rows": rows, "notes": _notes(asked)}


def _times_as_data(name: str, times: TimeDistribution, now: float) -> dict[str, float]:
    """Return a distribution as plain values, from the time of the state [s]."""
    data = {f"{name}_p50": round(times.median - now, 1)}
    for level, (low, high) in times.intervals.items():
        data |= {f"{name}_{level}_low": round(low - now, 1), f"{name}_{level}_high": round(high - now, 1)}
    return data


def _cells(times: TimeDistribution, now: int) -> tuple[str, ...]:
    """Return the median of a time, how far it is ahead, and the intervals. A time in the past is ahead by 0."""
    ahead = length(max(times.median - now, 0)) if isfinite(times.median) else ""
    return _at(times.median, now), ahead, *(_interval(*times.intervals[level], now) for level in LEVELS)


def _interval(low: float, high: float, now: int) -> str:
    """Return an interval in words; a single time if both ends read alike."""
    # Some futures end before the job starts.
    if not isfinite(high):
        return f"{_at(low, now)} or later"
    low_text, high_text = _at(low, now), _at(high, now)
    return low_text if low_text == high_text else f"{low_text} – {high_text}"


def _at(time: float, now: int) -> str:
    """Return a time as clock time, with the date if it is on another day; "unknown" for ∞."""
    return short_date(_date(time), _date(now)) if isfinite(time) else "unknown"


def _date(time: float) -> datetime:
    """Return the date of a time, in UTC."""
    return datetime.fromtimestamp(time, UTC)


def _signed(seconds: float) -> str:
    """Return a difference in words: later is positive."""
    if not isfinite(seconds):
        return "never starts" if seconds > 0 else "starts at all"
    # Starts are whole seconds, and quantiles lie between them.
    if abs(seconds) < 1:
        return "0 s"
    return f"{length(abs(seconds))} {'later' if seconds > 0 else 'earlier'}"
