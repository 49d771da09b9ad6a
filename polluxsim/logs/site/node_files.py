"""Read the nodes of a site from the output of `sinfo`, `scontrol show nodes` and `kubectl get nodes`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from polluxsim.common.errors import InvalidInputError, bad_line
from polluxsim.logs.formats.base import CPU, BadRowError
from polluxsim.logs.formats.json_rows import JsonRow, is_json, json_rows
from polluxsim.logs.formats.kubernetes_resources import Resources
from polluxsim.logs.formats.log_rows import LogRow, read_lines
from polluxsim.logs.formats.opening import head_of
from polluxsim.logs.site.hostlist import expanded


class SiteNode(NamedTuple):
    """One node of a site."""

    name: str
    gpus: int  # GPUs, or CPUs if they count in place of GPUs
    gpu_type: str  # as the site names it; "" if the site does not say
    partitions: tuple[str, ...] = ()  # empty if the site has none
    out: str = ""  # why it takes no jobs, like "drained"; "" if it takes jobs


OUT_STATES = {
    "down": "down", "error": "down", "fail": "failing", "failing": "failing", "failg": "failing", "unknown": "down",
    "unk": "down", "no_respond": "not responding", "not_responding": "not responding", "future": "not in use",
    "drain": "drained", "drained": "drained", "draining": "drained", "drng": "drained", "maint": "in maintenance",
    "reserved": "reserved", "resv": "reserved", "inval": "down", "invalid_reg": "down", "boot_fail": "down",
    "powered_down_for_maintenance": "in maintenance", "perfctrs": "reserved",
}  # fmt: skip
"""Words for states of Slurm's nodes in which a node takes no jobs, in small letters (sinfo, NODE STATE CODES)."""

MARKS = {"*": "not responding", "$": "in maintenance"}
"""Marks after the state of a node in sinfo, for nodes that take no jobs."""

OTHER_MARKS = "~#!%@^-+"
"""Marks of sinfo for nodes that take jobs, perhaps after they are switched on."""

GRES_GPU = re.compile(r"gpu(?::([^:,(=\d][^:,(=]*))?(?::(\d{1,5}))?(?:\([^)]*\))?(?=,|$)", re.ASCII)
"""GPUs in a list of GRES, like gpu:a100:8(S:0-1); gpu alone is one."""

TRES_GPU = re.compile(r"gres/gpu(?::([^=,]+))?=(\d{1,5})", re.ASCII)
"""GPUs in a list of TRES, like gres/gpu=8 or gres/gpu:a100=8."""

KUBERNETES_TYPES = (
    "nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "gpu.nvidia.com/model", "amd.com/gpu.product-name",
    "k8s.amazonaws.com/accelerator", "accelerator",
)  # fmt: skip
"""Labels of Kubernetes nodes with the GPU type."""

RECORD = re.compile(rb"\s*(?:\S+: )?NodeName=\S+ ")


def nodes_in(path: Path, unit: str) -> Iterable[SiteNode]:
    """Return the nodes in a file, in order. With the unit `cpus`, CPUs count in place of GPUs.

    Raise InvalidInputError if the file is no list of nodes or a value is invalid, perhaps only while nodes are yielded.
    """
    if not path.is_file():
        raise InvalidInputError(f"{path}: no such file; check the path")
    if is_json(path):
        return _in_json(path, unit)
    if RECORD.match(head_of(path)):
        return _in_records(path, unit)
    return _in_table(path, unit)


def _whole(gpus: float, row: JsonRow | LogRow, key: str) -> int:
    """Return the GPUs of a node; raise BadRowError if they are not whole."""
    if gpus % 1:
        raise row.error(key, "a whole number of GPUs")
    return int(gpus)


def _in_json(path: Path, unit: str) -> Iterator[SiteNode]:
    """Yield the nodes of `kubectl get nodes`, `scontrol show nodes` or `sinfo` in JSON."""
    head = head_of(path)
    if b'"items"' in head or b'"apiVersion"' in head:
        for row in json_rows(path, "items", None):
            yield _kubernetes_node(row, unit)
        return
    try:
        # A list, because a file without the key shows it only at its end.
        nodes = [_slurm_node(row, unit) for row in json_rows(path, "nodes", None)]
    except BadRowError:  # a kind of InvalidInputError, about a row of the list
        raise
    except InvalidInputError as error:
        if "no list 'nodes'" not in str(error):
            raise
        lines = json_rows(path, "sinfo", None)
        yield from _merged(chain.from_iterable(_of_sinfo(line, unit) for line in lines))
        return
    yield from nodes


def _words(row: JsonRow, key: str) -> list[str]:
    """Return the words of a text or of a list of texts, in small letters."""
    value = row.values.get(key)
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return [word.lower() for word in value]
    if isinstance(value, str):
        return [word.lower() for word in re.split(r"[+,\s]+", value) if word]
    if value is None:
        return []
    raise row.error(key, "a text, or a list of texts")


def _slurm_node(row: JsonRow, unit: str) -> SiteNode:
    """Return a node of `scontrol show nodes --json`, and of `sinfo --json` before Slurm 23.02."""
    # Newer versions have the flags, like DRAIN, in the list of states.
    states = [*_words(row, "state"), *_words(row, "state_flags")]
    gres = row.word("gres") or ""
    tres = row.word("tres") or ""
    cpus = row.optional_count("cpus") or 0
    number, gpu_type = _gpus_of(gres, tres)
    if unit == CPU:
        number = cpus
    partitions = row.values.get("partitions") or []
    if not isinstance(partitions, list) or not all(isinstance(name, str) for name in partitions):
        raise row.error("partitions", "a list of names")
    return SiteNode(row.text("name"), number, gpu_type, tuple(partitions), _why_out(states))


def _of_sinfo(row: JsonRow, unit: str) -> Iterator[SiteNode]:
    """Yield the nodes of one line of `sinfo --json` since Slurm 23.02, which has equal nodes of one partition."""
    states = _words(row.child("node"), "state")
    number, gpu_type = _gpus_of(row.child("gres").word("total") or "", "")
    cpus = row.child("cpus")
    if unit == CPU:
        number = cpus.optional_count("maximum") or 0
    partition = row.child("partition").word("name")
    partitions: tuple[str, ...] = ()
    if partition is not None:
        partitions = (partition,)
    names = row.child("nodes").values.get("nodes")
    if not isinstance(names, list):
        raise row.error("nodes", "an object with the list of nodes")
    for name in names:
        yield SiteNode(str(name), number, gpu_type, partitions, _why_out(states))


def _why_out(states: Iterable[str]) -> str:
    """Return why a node takes no jobs, by the words of its state; "" if it takes jobs."""
    for state in states:
        word = state.rstrip("*$" + OTHER_MARKS)
        if word in OUT_STATES:
            return OUT_STATES[word]
        # The word of the state counts before its mark.
        for mark, reason in MARKS.items():
            if state.endswith(mark):
                return reason
    return ""


def _gpus_of(gres: str, tres: str) -> tuple[int, str]:
    """Return the GPUs of a node and their type, several with bars between them, from its lists of resources."""
    typed = dict[str, int]()
    untyped = 0
    if gres in ("(null)", "N/A"):  # Slurm's words for nothing
        gres = ""
    for name, number in GRES_GPU.findall(gres):
        if name:
            typed[name] = typed.get(name, 0) + int(number or 1)
        else:
            untyped += int(number or 1)
    total = sum(typed.values()) + untyped
    if not total:  # TRES may count GPUs that GRES does not list
        of_tres = {name: int(number) for name, number in TRES_GPU.findall(tres)}
        total = of_tres.pop("", 0) or sum(of_tres.values())
        typed = of_tres
    return total, "|".join(typed)


PAIR = re.compile(r"(\w+)=(\S*)")


def _in_records(path: Path, unit: str) -> Iterator[SiteNode]:
    """Yield the nodes of `scontrol show nodes`, whose records begin with NodeName."""
    record = ""
    first = 1  # line of the record
    for line, text in read_lines(path):
        if isinstance(text, BadRowError):
            raise text
        if "NodeName=" in text.split(" ", 1)[0] or re.match(r"\S+: NodeName=", text):
            if record:
                yield _of_record(path, first, record, unit)
            record = ""
            first = line
        record += f" {text.strip()}"
    if record:
        yield _of_record(path, first, record, unit)


def _of_record(path: Path, line: int, record: str, unit: str) -> SiteNode:
    """Return the node of one record."""
    values = dict[str, str]()
    for key, value in PAIR.findall(record):
        values.setdefault(key, value)  # a text at the end, like a comment, may have pairs too
    row = LogRow(path, line, values)
    name = row.name("NodeName")
    if not row.has("State"):
        raise bad_line(path, line, f"node {name} has no State; give the output of scontrol show nodes as a whole")
    number, gpu_type = _gpus_of(values.get("Gres", ""), values.get("CfgTRES", ""))
    cpus = row.optional_count("CPUTot") or 0
    if unit == CPU:
        number = cpus
    states = values["State"].lower().split("+")
    # Without the empty name of an empty list.
    partitions = tuple(filter(None, values.get("Partitions", "").split(",")))
    return SiteNode(name, number, gpu_type, partitions, _why_out(states))


NODE_COLUMNS = ("NODELIST", "HOSTNAMES", "HOSTNAME")


def _in_table(path: Path, unit: str) -> Iterator[SiteNode]:
    """Yield the nodes of `sinfo`, whose first line has the names of the columns."""
    return _merged(_rows(path, unit))


ADVICE = "give the output of sinfo -N -o '%N|%P|%G|%T|%c'"


def _rows(path: Path, unit: str) -> Iterator[SiteNode]:
    """Yield the nodes of each line; a node in several partitions has several lines."""
    lines = read_lines(path)
    first_line, first = next(lines, (1, ""))
    if isinstance(first, BadRowError):
        raise first
    header = _cells(first)
    names = next((column for column in NODE_COLUMNS if column in header), None)
    if names is None:
        raise bad_line(path, first_line, f"this is not a list of nodes: it lacks a column NODELIST; {ADVICE}")
    needed = ["STATE", "GRES"]
    if unit == CPU:
        needed = ["STATE", "CPUS"]
    for column in needed:
        if column not in header:
            raise bad_line(path, first_line, f"the list has no column {column}; {ADVICE}")
    for line, text in lines:
        if isinstance(text, BadRowError):
            raise text
        cells = _cells(text)
        if cells == header:  # sinfo --iterate repeats it
            continue
        if len(cells) != len(header):
            raise bad_line(path, line, f"{len(cells)} cells below {len(header)} names of columns; {ADVICE}")
        row = LogRow(path, line, dict(zip(header, cells, strict=True)))
        yield from _of_row(row, names, unit)


def _cells(text: str) -> list[str]:
    """Return the cells of a line, which bars or blanks separate."""
    if "|" not in text:
        return text.split()
    return [cell.strip() for cell in text.split("|")]


def _of_row(row: LogRow, names: str, unit: str) -> Iterator[SiteNode]:
    """Yield the nodes of a line of `sinfo`."""
    nodes = expanded(row.values[names])
    if nodes is None:
        raise row.error(names, "a list of nodes like a[01-04],b1")
    number, gpu_type = _gpus_of(row.values.get("GRES", ""), "")
    if unit == CPU:
        number = row.count("CPUS")
    partition = row.values.get("PARTITION", "").rstrip("*")  # the star marks the default partition
    partitions: tuple[str, ...] = ()
    if partition:
        partitions = (partition,)
    out = _why_out([row.values["STATE"].lower()])
    for name in nodes:
        yield SiteNode(name, number, gpu_type, partitions, out)


def _merged(nodes: Iterable[SiteNode]) -> Iterator[SiteNode]:
    """Yield each node once, with all its partitions."""
    by_name = dict[str, SiteNode]()
    for node in nodes:
        earlier = by_name.get(node.name)
        if earlier is None:
            by_name[node.name] = node
            continue
        partitions = tuple(dict.fromkeys((*earlier.partitions, *node.partitions)))
        # The lines of a node differ in its partition only, but one of them may say that it is out.
        by_name[node.name] = earlier._replace(partitions=partitions, out=earlier.out or node.out)
    yield from by_name.values()


TAINTS = ("NoSchedule", "NoExecute")


def _kubernetes_node(row: JsonRow, unit: str) -> SiteNode:
    """Return a node of `kubectl get nodes -o json`."""
    kind = row.word("kind") or "Node"
    if kind != "Node":
        raise row.error("kind", "Node; give the output of kubectl get nodes -o json")
    metadata = row.child("metadata")
    spec = row.child("spec")
    status = row.child("status")
    amounts = status.child("capacity")
    if status.has("allocatable"):  # without what the system of the node keeps
        amounts = status.child("allocatable")
    resources = Resources.of(amounts)
    if unit == CPU:
        number = int(resources.cpus or 0)
    else:
        number = _whole(resources.gpus, amounts, "allocatable")
    labels = metadata.child("labels")
    gpu_type = next((labels.text(label) for label in KUBERNETES_TYPES if labels.has(label)), "")
    out = _why_out_in_kubernetes(spec, status)
    return SiteNode(metadata.text("name"), number, gpu_type, (), out)


def _why_out_in_kubernetes(spec: JsonRow, status: JsonRow) -> str:
    """Return why a node of Kubernetes takes no jobs; "" if it takes jobs."""
    conditions = {condition.text("type"): condition.word("status") for condition in status.children("conditions")}
    # A node without the condition is taken for ready, because small clusters may not report it.
    if conditions.get("Ready", "True") != "True":
        return "not ready"
    if spec.values.get("unschedulable") is True:
        return "cordoned"
    for taint in spec.children("taints"):
        if taint.word("key") not in GPU_TAINTS and taint.word("effect") in TAINTS:
            return "with a taint that keeps jobs off"
    return ""


GPU_TAINTS = ("nvidia.com/gpu", "amd.com/gpu", "gpu", "sku", "dedicated")
"""Keys of taints that only keep jobs without GPUs off a node."""
