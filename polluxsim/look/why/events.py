"""Sentences on outages of nodes and on forks, which all views share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from polluxsim.common.durations import clock, length
from polluxsim.common.phrases import listed, number_of
from polluxsim.records.folders import policy_name
from polluxsim.records.results import AllocationRecord, OutageRecord, Result
from polluxsim.records.storage import Run, flat
from polluxsim.statistics.forks import fork_of
from polluxsim.statistics.groups import REPLICATES, labels_of

MOST_NODES = 4  # nodes are named by their numbers if there are at most so many, and counted otherwise


def outages_by_node(result: Result) -> dict[tuple[float, int], str]:
    """Return the kind of each outage, by its time [s] and node."""
    return {(outage.time, outage.node): outage.kind for outage in result.outage_records}


def failed_nodes(nodes: Iterable[int], time: float, outages: Mapping[tuple[float, int], str]) -> dict[int, str]:
    """Return the nodes that went down at a time [s], with the kind of the outage; `outages` as in `outages_by_node`."""
    kinds = {}
    for node in nodes:
        if (time, node) in outages:
            kinds[node] = outages[time, node]
    return kinds


def losses(result: Result) -> dict[tuple[str, float], str]:
    """Return a phrase for each time [s] at which a job lost all its GPUs because nodes went down, by job and time."""
    outages = outages_by_node(result)
    if not outages:
        return {}
    descriptions = dict[tuple[str, float], str]()
    placed: dict[str, AllocationRecord] = {}
    for record in result.allocation_records:
        before = placed.get(record.job)
        if before is not None and not record.nodes:
            # The round can also take GPUs at the time of an outage, from jobs on other nodes.
            failed = failed_nodes(before.nodes, record.time, outages)
            if failed:
                descriptions[record.job, record.time] = lost(sum(before.gpus), failed)
        placed[record.job] = record
    return descriptions


def lost(gpus: int, failed: Mapping[int, str]) -> str:
    """Return a phrase on a job that lost its GPUs when nodes went down. `failed` contains the kinds of the outages."""
    return f"lost {number_of(gpus, 'GPU')} as {went_down(failed)}"


def went_down(failed: Mapping[int, str]) -> str:
    """Return a phrase on nodes that went down, with the reason. `failed` contains the kind of the outage by node.

    >>> went_down({6: "failure"})
    'node 6 went down (failure)'
    """
    kinds = dict.fromkeys(failed.values())
    return f"{nodes_text(list(failed))} went down ({', '.join(kinds)})"


def outage_sentence(outage: OutageRecord, end_time: float) -> str:
    """Return a sentence on an outage of a node, with its end unless the run ends before, at `end_time` [s]."""
    sentence = f"At {clock(outage.time)} {went_down({outage.node: outage.kind})}"
    if outage.until <= end_time:
        sentence += f", until {clock(outage.until)}"
    return f"{sentence}."


def nodes_text(nodes: Sequence[int]) -> str:
    """Return nodes by number, or their count if they are many."""
    if len(nodes) > MOST_NODES:
        return f"{len(nodes)} nodes"
    noun = "node" if len(nodes) == 1 else "nodes"
    return f"{noun} {', '.join(map(str, nodes))}"


def fork_sentence(run: Run) -> str:
    """Return a sentence on the fork of a run: parent, time and changes; "" for a run that is not a changed fork."""
    fork = fork_of(run.info)
    if fork is None:
        return ""
    changes = listed(list(_changes(run, fork)) or ["its settings changed"])
    return f"At {run.clock(fork['time'])} this run was forked from {fork.get('run') or 'another run'}: {changes}."


def _changes(run: Run, fork: Mapping[str, Any]) -> Iterator[str]:
    """Yield phrases for the changes of a fork.

    All changes of settings and of the policy have one phrase, and each other kind of change has its own. A new seed,
    and a change that the labels of the settings do not show, have none.
    """
    if "before" in fork:
        old_settings = flat(fork["before"].get("config") or {})
        new_settings = flat(run.info.get("config") or {})
        old_label, new_label = labels_of([old_settings, new_settings], pooled=REPLICATES)
        if policy_name(old_settings) != policy_name(new_settings):
            yield f"{new_label} took over from {old_label}"
        elif old_label != new_label:
            yield f"{new_label} instead of {old_label}"
        elif fork.get("new_policy"):
            yield f"{policy_name(new_settings)} started anew"
    if fork.get("lost_nodes"):
        yield f"{nodes_text(fork['lost_nodes'])} went down for good"
    if fork.get("down_nodes"):
        yield f"{nodes_text(fork['down_nodes'])} went down for {length(fork['down_for'])}"
    removed_jobs = fork.get("without")
    if removed_jobs:
        yield f"{listed(removed_jobs)} {_were(removed_jobs)} cancelled"
    added_jobs = fork.get("added")
    if added_jobs:
        yield f"{number_of(len(added_jobs), 'job')} {_were(added_jobs)} added"


def _were(jobs: Sequence[str]) -> str:
    return "was" if len(jobs) == 1 else "were"
