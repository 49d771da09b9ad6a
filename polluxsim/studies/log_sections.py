"""Sections of an answer about a log: partitions with replays of their own, and their nodes from a list of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from polluxsim.common.errors import InvalidInputError, listed
from polluxsim.logs.site.nodes import NodeGroup, NodeList, read_nodes
from polluxsim.logs.trace_table import TraceJob
from polluxsim.metrics.outcomes import number_of
from polluxsim.studies.log_selection import partitions_of


class LogSection(NamedTuple):
    """Jobs of a log that are replayed together, on nodes of their own."""

    partition: str | None  # the partition of the jobs, or several with commas between them; None for all jobs
    nodes: int | None = None  # None if the number must be inferred from the log
    gpus_per_node: int | None = None  # None for the number that the command has
    sentences: Sequence[str] = ()  # on the nodes, and on partitions that share nodes


def sections_of_log(jobs: Sequence[TraceJob]) -> list[LogSection]:
    """Return a section for each partition of a log; one for all jobs if the log has fewer than two partitions."""
    partitions = partitions_of(jobs)
    if len(partitions) < 2:
        return [LogSection(None)]
    return [LogSection(name) for name in partitions]


def sections_of_nodes(path: Path, jobs: Sequence[TraceJob]) -> list[LogSection]:
    """Return the sections of a log whose nodes are listed in a file, as `polluxsim log nodes` reads it.

    Partitions that share nodes are one section, in which each job may use all of these nodes.

    Raises
    ------
    InvalidInputError
        If the file is no list of nodes, if it has no partition of the log, or if the nodes of a section differ in their
        number of GPUs.
    """
    listed_nodes = read_nodes(path)
    partitions_of_nodes = listed_nodes.partitions()
    partitions_of_log = partitions_of(jobs)
    # Without partitions on one of the two sides, jobs cannot be assigned to some of the nodes.
    if not partitions_of_nodes or not partitions_of_log:
        return [_section(listed_nodes, None, listed_nodes.groups)]
    sections = []
    for names, groups in _with_common_nodes(listed_nodes, partitions_of_log):
        sections.append(_section(listed_nodes, names, groups))
    if not sections:
        raise InvalidInputError(
            f"{path}: the nodes are in partition {listed(partitions_of_nodes)}, and the jobs of the log in "
            f"{listed(partitions_of_log)}; give the nodes of the same cluster"
        )
    missing = [name for name in partitions_of_log if name not in partitions_of_nodes]
    if missing:
        count = number_of(sum(job.partition in missing for job in jobs), "job")
        left_out = f"left out: {count} of partition {listed(missing)}, which {path.name} does not have"
        # The sentence is about the whole log, and the first section is read first.
        sections[0] = sections[0]._replace(sentences=[left_out, *sections[0].sentences])
    return sections


def _with_common_nodes(
    nodes: NodeList, partitions_of_log: Sequence[str]
) -> Iterator[tuple[list[str], list[NodeGroup]]]:
    """Yield each set of partitions of a log that share nodes, with the nodes of all of them."""
    remaining = [name for name in partitions_of_log if name in nodes.partitions()]
    while remaining:
        groups = _reachable(nodes, remaining[0])
        partitions = set(chain.from_iterable(group.partitions for group in groups))
        yield [name for name in remaining if name in partitions], groups
        remaining = [name for name in remaining if name not in partitions]


def _reachable(nodes: NodeList, partition: str) -> list[NodeGroup]:
    """Return the nodes of a partition, and of all partitions that share nodes with it, and so on."""
    inside = {partition}
    while True:
        groups = [group for group in nodes.groups if inside & set(group.partitions)]
        larger = inside.union(chain.from_iterable(group.partitions for group in groups))
        if larger == inside:
            return groups
        inside = larger


def _section(nodes: NodeList, names: Sequence[str] | None, groups: Sequence[NodeGroup]) -> LogSection:
    """Return the section of partitions on groups of nodes; all jobs without names.

    Raise InvalidInputError if the nodes have different numbers of GPUs.
    """
    num_nodes = sum(len(group.nodes) for group in groups)
    sizes = sorted({group.gpus for group in groups})
    whose = "the cluster"
    if names:
        whose = f"partition {', '.join(names)}"
    if len(sizes) > 1:
        raise InvalidInputError(
            f"{nodes.source}: the nodes of {whose} have {' and '.join(map(str, sizes))} GPUs, and a replay has equal "
            "nodes; choose a number with --nodes and --gpus-per-node"
        )
    cluster = f"{number_of(num_nodes, 'node')} of {number_of(sizes[0], 'GPU')}"
    fact = f"{whose} has {cluster}"
    if names and len(names) > 1:
        fact = f"partitions {' and '.join(names)} share nodes and are pooled: each job may use all {cluster}"
    partition = None
    if names:
        partition = ",".join(names)  # the form of several partitions that `--partition` takes
    return LogSection(partition, num_nodes, sizes[0], [f"{fact}, according to {nodes.source}"])
