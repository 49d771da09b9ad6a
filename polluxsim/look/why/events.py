"""Sentences on outages of nodes and on forks, which all views share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from polluxsim.common.durations import clock
from polluxsim.look.why.phrases import listed, number_of
from polluxsim.records.folders import policy_name
from polluxsim.records.results import AllocationRecord, OutageRecord, Result
from polluxsim.records.storage import Run, flat
from polluxsim.statistics.forks import fork_of
from polluxsim.statistics.groups import REPLICATES, labels_of

MOST_NODES = 4  # nodes are named by their numbers if there are at most so many, and counted otherwise


def outages_by_node(result: Result) -> dict[tuple[float, int], str]:
    """Return the kind of each outage, by its time [s] and node."""
    return {(outage.time, outage.node): outage.kind for outage in result.outage_records}


def losses(result: Result) -> dict[tuple[str, float], str]:
    """Return the description of each loss of all GPUs of a job because nodes went down, by job and time [s]."""
    outages, found = outages_by_node(result), dict[tuple[str, float], str]()
    placed: dict[str, AllocationRecord] = {}
    for record in result.allocation_records if outages else ():
        before = placed.get(record.job)
        if before is not None and not record.nodes:
            failed = {node: outages[record.time, node] for node in before.nodes if (record.time, node) in outages}
            if failed:
                found[record.job, record.time] = lost(sum(before.gpus), failed)
        placed[record.job] = record
    return found


def lost(gpus: int, failed: Mapping[int, str]) -> str:
    """Return a phrase on a job that lost its GPUs when nodes went down. `failed` contains the kinds of the outages."""
    return f"lost {number_of(gpus, 'GPU')} as {went_down(failed)}"


def went_down(failed: Mapping[int, str]) -> str:
    """Return a phrase on nodes that went down, with the reason. `failed` contains the kind of the outage by node.

    >>> went_down({6: "failure"})
    'node 6 went down (failure)'
    """
    return f"{nodes_text(list(failed))} went down ({', '.join(dict.fromkeys(failed.values()))})"


def outage_sentence(outage: OutageRecord, end_time: float) -> str:
    """Return a sentence on an outage of a node, with its end unless the run ends before, at `end_time` [s]."""
    until = "" if outage.until > end_time else f", until {clock(outage.until)}"
    return f"At {clock(outage.time)} {went_down({outage.node: outage.kind})}{until}."


def nodes_text(nodes: Sequence[int]) -> str:
    """Return nodes by number, or their count if they are many."""
    if len(nodes) > MOST_NODES:
        return f"{len(nodes)} nodes"
    return f"node{'' if len(nodes) == 1 else 's'} {', '.join(map(str, nodes))}"


def fork_sentence(run: Run) -> str:
    """Return a sentence on the fork of a run: parent, time and changes; "" for a run that is not a changed fork."""
    fork = fork_of(run.info)
    if fork is None:
        return ""
    changes = listed(list(_changes(run, fork)) or ["its settings changed"])
    return f"At {clock(fork['time'])} this run was forked from {fork.get('run') or 'another run'}: {changes}."


def _changes(run: Run, fork: Mapping[str, Any]) -> Iterator[str]:
    """Yield a phrase for each change of a fork."""
    if "before" in fork:
        then, now = (flat(info.get("config") or {}) for info in (fork["before"], run.info))
        before, after = labels_of([then, now], pooled=REPLICATES)
        if policy_name(then) != policy_name(now):
            yield f"{after} took over from {before}"
        elif before != after:
            yield f"{after} instead of {before}"
        elif fork.get("new_policy"):
            yield f"{policy_name(now)} started anew"
    if nodes := fork.get("lost_nodes"):
        yield f"{nodes_text(nodes)} went down for good"
    if jobs := fork.get("without"):
        yield f"{listed(jobs)} {'was' if len(jobs) == 1 else 'were'} cancelled"
    if jobs := fork.get("added"):
        yield f"{number_of(len(jobs), 'job')} {'was' if len(jobs) == 1 else 'were'} added"
