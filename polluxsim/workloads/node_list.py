"""A cluster from a list of its nodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.errors import bad_line
from polluxsim.gpu_types import NodeTypes, types_in
from polluxsim.hosts import MIB, NOTHING, Host
from polluxsim.tables import read_rows
from polluxsim.types import Cluster

if TYPE_CHECKING:
    from polluxsim.gpu_types import GpuType
    from polluxsim.tables import Row
    from polluxsim.types import Outages, Repairs

COLUMNS = ("gpu", "model")
HOST_COLUMNS = ("cpu_milli", "memory_mib")


def cluster_of_file(
    path: str,
    failures: Outages | None = None,
    spot: Outages | None = None,
    repairs: Repairs | None = None,
    *,
    hosts: bool = False,
) -> Cluster:
    """Return the cluster of a list of nodes; nodes of a type stand together, else in its order.

    Parameters
    ----------
    path
        CSV or Parquet with a row for each node: its GPUs in `gpu`, and their type in `model`; other columns do not
        matter. Nodes without a GPU are left out. A type that is not known has no memory and no price.
    failures, spot, repairs
        As of the cluster.
    hosts
        Whether CPUs and memory of nodes count: `cpu_milli` [thousandths of a core] and `memory_mib` [MiB].

    Raises
    ------
    InvalidInputError
        If the file cannot be read, or a row is not what it should be.
    """
    nodes = [_node(row, hosts=hosts) for row in read_rows(Path(path), (*COLUMNS, *(HOST_COLUMNS if hosts else ())))]
    there = [(gpus, gpu, host) for gpus, gpu, host in nodes if gpu is not None]
    if not there:
        raise bad_line(path, 1, f"none of {len(nodes)} nodes has a GPU, needed is one or more")
    names = list(dict.fromkeys(gpu.name for _, gpu, _ in there))
    sizes, types, found = zip(*sorted(there, key=lambda node: names.index(node[1].name)), strict=True)
    said = tuple(found) if hosts else ()
    return Cluster(sizes, failures=failures, spot=spot, repairs=repairs, node_types=NodeTypes(types), hosts=said)


def _node(row: Row, *, hosts: bool) -> tuple[int, GpuType | None, Host]:
    gpus = row.integer("gpu", at_least=0)
    if not gpus:
        return gpus, None, NOTHING
    types = types_in(row.text("model"))
    if len(types) != 1:
        raise row.error("model", "one type of GPU")
    host = Host(row.number("cpu_milli", above=0) / 1000, row.number("memory_mib", above=0) * MIB) if hosts else NOTHING
    return gpus, types[0], host
