"""Answers of `log calibrate` and `log whatif`: tables, sentences, and the numbers for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from typing import Any

from polluxsim.common.durations import HOUR, length
from polluxsim.common.errors import PolluxSimError
from polluxsim.hardware.costs import Price, in_dollars
from polluxsim.look.descriptions import before_run_in, engine_waits, from_before, without_effect
from polluxsim.look.sheets import Block, Sheet
from polluxsim.records.folders import info_of
from polluxsim.studies.log_calibration import Calibration, Match
from polluxsim.studies.log_replays import Case, LogWhatIf, SettingChange
from polluxsim.studies.replayed_jobs import MEAN, Replay, statistic
from polluxsim.studies.reversals import not_monotone
from polluxsim.studies.verdicts import ReplayVerdict, share_in_words

WAITS = "a wait is all time without GPUs from submission to completion"
"""Line that defines the waits of replays."""

LEAST_DIFFERENCE = 0.02  # smallest difference of explained shares that says which rule for nodes a site has


def sheet_of_calibrations(answers: Mapping[str | None, Calibration | PolluxSimError]) -> Sheet:
    """Return the answer of calibrations by partition; None stands for all jobs of the log.

    An error is the reason why a partition cannot be replayed. At least one partition has a calibration.
    """
    parts: list[str | Block] = []
    data: dict[str, Any] = {}
    engines = []
    for partition, answer in answers.items():
        if partition is not None:
            parts.append(f"partition {partition}:")
        if isinstance(answer, PolluxSimError):
            parts.append(_not_replayed(str(answer)))
            data[partition or "all"] = {"not_replayed": str(answer)}
            continue
        parts += _parts_of(answer)
        data[partition or "all"] = _data_of(answer)
        engines.append(answer.matches[0].engine)
    parts += [WAITS, engine_waits(engines[0])]
    sentences = [part for part in parts if not isinstance(part, Block)]
    numbers = {"partitions": data}
    # Without partitions, the numbers are not one level deeper.
    if list(data) == ["all"]:
        numbers = data["all"]
    return Sheet(parts, numbers | {"sentences": sentences})


def _parts_of(found: Calibration) -> Iterator[str | Block]:
    """Yield the verdict, the matches of all replays, and the jobs that are left out."""
    yield from found.cluster
    yield from _verdict_of(found.verdict)
    lines = [["policy", "GPUs", "explains", "off by [h]", "mean wait [h]", "preempted", "rank correlation"]]
    for match in found.matches:
        correlation = "–" if isnan(match.rank_correlation) else f"{match.rank_correlation:.2f}"
        hours = (f"{match.error / HOUR:.2f}", f"{match.mean_wait / HOUR:.2f}")
        explained = share_in_words(match.agreement)
        lines.append([match.policy, str(match.gpus), explained, *hours, f"{match.preemptions:,}", correlation])
    mean = found.recorded.mean() / HOUR
    yield Block(lines, f"{len(found.recorded)} jobs waited {mean:.2f} h on average in the log")
    yield from _placement_in_words(found)
    yield from _limit_in_words(found)
    yield from found.left_out


def _placement_in_words(found: Calibration) -> Iterator[str]:
    """Yield which rule for the nodes of jobs explains the log best; nothing if only one was tried."""
    other = found.anywhere
    if other is None:
        return
    nearest = found.matches[0].agreement
    anywhere = f"with GPUs anywhere (engine.placement=anywhere) it explains {share_in_words(other.agreement)}"
    if other.agreement.explained > nearest.explained + LEAST_DIFFERENCE:
        on_their_nodes = share_in_words(nearest)
        yield f"the site seems to spread jobs over nodes: {anywhere}, and {on_their_nodes} with jobs on their nodes"
    else:
        yield f"jobs keep their nodes in this replay; {anywhere}"


def _limit_in_words(found: Calibration) -> Iterator[str]:
    """Yield whether a limit by user, which the log hints at, explains the waits better."""
    if found.limited is None:
        return
    limit, match = found.limited
    setting = f"engine.limits.all.user_gpus={limit}"
    explained = share_in_words(match.agreement)
    nearest = found.matches[0].agreement
    words = f"with at most {limit} GPUs of each user, {match.policy} on {match.gpus} GPUs explains {explained}"
    if match.agreement.explained > nearest.explained + LEAST_DIFFERENCE:
        yield f"the site seems to limit its users: {words}, and {share_in_words(nearest)} without; add {setting}"
    else:
        yield f"a limit of users does not explain the waits: {words}"


def _verdict_of(verdict: ReplayVerdict) -> Iterator[str | Block]:
    """Yield how much of the waits in a log the nearest replay explains, in all and by partition and size."""
    yield from verdict.sentences()
    groups = [*verdict.by_partition, *verdict.by_size]
    if not groups:
        return
    lines = [["jobs of", "jobs", "wait in the log", "in the replay", "off by", "explains"]]
    for group in groups:
        times = (length(group.recorded), length(group.replayed), length(group.error))
        lines.append([group.name, f"{group.num_jobs:,}", *times, share_in_words(group)])
    yield Block(lines, f"mean waits by group, {verdict.policy} on {verdict.gpus} GPUs")


def _data_of(found: Calibration) -> dict[str, Any]:
    """Return the numbers of a calibration, with times in seconds."""
    anywhere = None
    if found.anywhere is not None:
        anywhere = _data_of_match(found.anywhere)
    return {
        "num_jobs": len(found.recorded),
        "mean_wait_in_log": float(found.recorded.mean()),
        "replays": [_data_of_match(match) for match in found.matches],
        "anywhere": anywhere,
        "limited": _data_of_limited(found),
        "verdict": {
            "grade": str(found.verdict.whole.grade),
            "is_credible": found.verdict.is_credible,
            "groups": [
                group._asdict() | {"explained": group.explained}
                for group in (found.verdict.whole, *found.verdict.by_partition, *found.verdict.by_size)
            ],
        },
    }


def _data_of_limited(found: Calibration) -> dict[str, Any] | None:
    """Return the numbers of the replay with a limit by user; None without it."""
    if found.limited is None:
        return None
    return {"user_gpus": found.limited.user_gpus, **_data_of_match(found.limited.match)}


def _data_of_match(match: Match) -> dict[str, Any]:
    return {
        "policy": match.policy,
        "gpus": match.gpus,
        "explained": match.agreement.explained,
        "error": match.error,
        "mean_wait": match.mean_wait,
        "preemptions": match.preemptions,
        "rank_correlation": match.rank_correlation,
    }


def sheet_of_whatif(found: LogWhatIf, price: Price | None = None) -> Sheet:
    """Return the answer of a what-if of a log, with the cost of the nodes if there is a price and a replayed case."""
    request = found.request
    mean = length(found.recorded.mean())
    nodes = f"{request.nodes[0]} node{'s' * (request.nodes[0] != 1)} of {request.gpus_per_node} GPUs"
    errors = ", ".join(f"{match.policy} is off by {length(match.error)} a job" for match in found.matches)
    infos = {case: info_of(run) for case, run in found.runs.items()}
    first = [*found.cluster, *_verdict_of(found.calibration.verdict), *_limit_in_words(found.calibration)]
    before = [
        f"{len(found.recorded)} jobs waited {mean} on average in the log; replayed on {nodes}: {errors}",
        *from_before(before_run_in(info) for info in infos.values()),
        *found.calibration.left_out,
    ]
    effects = list(found.effects())
    after = [
        *found.left_out(),
        *effects,
        *filter(None, [found.no_interval()]),
        *costs_in_words(found, price),
        *not_monotone(found.waits, request.percentiles[0]),
        WAITS,
        engine_waits(found.matches[0].engine),
        *without_effect((case.policy, info) for case, info in infos.items()),
    ]
    sentences = [part for part in first if not isinstance(part, Block)]
    sentences += before
    sentences += after
    data = {
        "calibration": _data_of(found.calibration),
        "cases": [_data_of_case(found, case, price) for case in found.waits],
        "effects": [_data_of_change(change) for change in found.changes()],
        "sentences": sentences,
        "folder": str(request.place),
    }
    parts: list[str | Block] = [*first, *before]
    if found.runs:  # no case is replayed if no policy explains the waits
        parts.append(table_of_waits(found, price))
    parts += after
    return Sheet(parts, data)


def sheet_of_sections(sheets: Mapping[str, Sheet]) -> Sheet:
    """Return the answers about several partitions as one answer, with a section for each."""
    parts: list[str | Block] = []
    for partition, sheet in sheets.items():
        parts += [f"partition {partition}:", *sheet.parts]
    return Sheet(parts, {"partitions": {partition: sheet.data for partition, sheet in sheets.items()}})


def sheet_without_replay(reason: str) -> Sheet:
    """Return the answer about a partition that cannot be replayed."""
    sentence = _not_replayed(reason)
    return Sheet([sentence], {"not_replayed": reason, "sentences": [sentence]})


def _not_replayed(reason: str) -> str:
    """Return the sentence on a partition that cannot be replayed."""
    return f"not replayed: {reason}"


def _data_of_change(change: SettingChange) -> Mapping[str, Any]:
    """Return the numbers of a change, with the ends of 95 % intervals; times are in seconds."""
    return {
        "change": change.what,
        "num_jobs": len(change.jobs),
        "before": change.before._asdict(),
        "after": change.after._asdict(),
        "ratio": change.ratio._asdict(),
    }


def costs_in_words(found: LogWhatIf, price: Price | None) -> Iterator[str]:
    """Yield the cost of the existing nodes, and the difference of each other number of nodes; nothing without a price.

    Yield nothing either if no case was replayed.
    """
    if price is None or not found.runs:
        return
    existing, *alternatives = dict.fromkeys(found.request.nodes)
    gpus = found.request.gpus_per_node
    present_cost = price.monthly([gpus] * existing)
    nodes_cost = "node costs" if existing == 1 else "nodes cost"
    yield f"{existing} {nodes_cost} {in_dollars(present_cost)} a month, at {price}"
    for nodes in alternatives:
        additional_cost = price.monthly([gpus] * nodes) - present_cost
        difference = nodes - existing
        comparative = "more" if difference > 0 else "fewer"
        noun = "node" if abs(difference) == 1 else "nodes"
        cost_comparative = "more" if additional_cost > 0 else "less"
        yield (f"{abs(difference)} {comparative} {noun}: {in_dollars(abs(additional_cost))} {cost_comparative} a month")


def table_of_waits(found: LogWhatIf, price: Price | None = None) -> Block:
    """Return a table with a row for each case: the mean and the percentiles of the wait, the mean JCT, preemptions."""
    has_failures = list(found.request.failures) != ["off"]
    are_interrupted = any(replay.waits != replay.first_waits for replay in found.replays.values())
    have_others = any(len(replay.waits) > len(found.jobs) for replay in found.replays.values())
    has_limits = bool(found.request.user_gpus)
    # A column that would say nothing in any row is left out.
    head = ["policy", "nodes", "load"]
    if has_failures:
        head.append("failures")
    if has_limits:
        head.append("GPUs of a user")
    head += [f"{statistic_name} wait" for statistic_name in ("mean", *found.request.percentiles)]
    if are_interrupted:
        head.append("mean to first GPU")
    head += ["mean JCT", "preempted", "jobs"]
    if have_others:
        head.append("mean wait of other jobs")
    if price is not None:
        head.append("cost a month")
    lines = [head]
    for case, times in found.waits.items():
        replay = found.replays[case]
        cells = [case.policy, str(case.nodes), f"{case.load:g}"]
        if has_failures:
            cells.append(case.failures)
        if has_limits:
            cells.append("–" if case.user_gpus is None else str(case.user_gpus))
        cells += map(time_cell, times)
        if are_interrupted:
            cells.append(time_cell(statistic(MEAN, replay.first_waits, found.jobs)))
        cells.append(time_cell(statistic(MEAN, replay.jcts, found.jobs)))
        cells.append(f"{replay.num_preemptions(found.jobs):,}")
        cells.append(f"{len(found.jobs):,}")
        if have_others:
            cells.append(_cell_of_other_jobs(replay, found.jobs))
        if price is not None:
            cells.append(in_dollars(price.monthly([found.request.gpus_per_node] * case.nodes)))
        lines.append(cells)
    return Block(lines)


def _cell_of_other_jobs(replay: Replay, jobs: Sequence[str]) -> str:
    """Return the mean wait and the number of the jobs of a replay that are not among some jobs; "–" without any."""
    other_jobs = sorted(replay.waits.keys() - set(jobs))
    if not other_jobs:
        return "–"
    return f"{time_cell(statistic(MEAN, replay.waits, other_jobs))} ({len(other_jobs):,})"


def _data_of_case(found: LogWhatIf, case: Case, price: Price | None) -> Mapping[str, Any]:
    """Return the numbers of a case, with times in seconds."""
    replay = found.replays[case]
    names = (MEAN, *found.request.percentiles)
    numbers: dict[str, Any] = {
        **case._asdict(),
        "waits": dict(zip(names, found.waits[case], strict=True)),
        "mean_jct": statistic(MEAN, replay.jcts, found.jobs),
        "preemptions": replay.num_preemptions(found.jobs),
        "num_jobs": len(found.jobs),
        "run": str(found.runs[case]),
    }
    if price is not None:
        numbers["cost_per_month"] = price.monthly([found.request.gpus_per_node] * case.nodes)
    return numbers


def time_cell(seconds: float) -> str:
    """Return a time [s] as text; "–" for nan, the time without jobs."""
    if isnan(seconds):
        return "–"
    return length(seconds)
