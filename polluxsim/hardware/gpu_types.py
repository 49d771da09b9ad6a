"""GPU types of clusters; each figure has its source."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import inf
from typing import Any, NamedTuple

from polluxsim.common.errors import InvalidConfigError, did_you_mean, invalid_setting
from polluxsim.common.written import as_declared


class GpuType(NamedTuple):
    """A GPU type. Unknown figures are 0."""

    name: str  # name in clusters, jobs and cards
    memory: float = 0.0  # [GB]
    price: float = 0.0  # rent of one GPU [$/h]
    peak: float = 0.0  # dense half-precision operations, by matrix units if it has any [TFLOP/s]
    bandwidth: float = 0.0  # bandwidth of its memory [GB/s]


class NodesByType(dict[str, Sequence[int]]):
    """Numbers of nodes by the name of their type. A type that no node has has no nodes."""

    def __missing__(self, name: str) -> Sequence[int]:
        # The name is not kept, because all policies and the engine read this mapping.
        return ()


class NodeTypes(tuple[GpuType, ...]):
    """GPU type of each node, by node number, with cached summaries."""

    @cached_property
    def nodes(self) -> Mapping[str, Sequence[int]]:
        """Return the numbers of the nodes by name of the type; types are in the order of their first nodes."""
        nodes: defaultdict[str, list[int]] = defaultdict(list)
        for node, gpu in enumerate(self):
            nodes[gpu.name].append(node)
        return NodesByType(nodes)

    @cached_property
    def types(self) -> Mapping[str, GpuType]:
        """Return the types by name, in the order of `nodes`; `ANY` if the cluster states no types."""
        return {name: self[nodes[0]] for name, nodes in self.nodes.items()} or {ANY.name: ANY}

    def crew(self, placement: Iterable[tuple[int, int]]) -> tuple[tuple[str, int], ...]:
        """Return the number of GPUs of a placement by type, in the order of `nodes`.

        The cluster must state types. Types of which the placement has no GPU are left out.
        """
        counts = Counter[str]()
        for node, gpus in placement:
            counts[self[node].name] += gpus
        return tuple((name, counts[name]) for name in self.nodes if counts[name])

    def names_of(self, placement: Iterable[tuple[int, int]]) -> tuple[str, ...]:
        """Return the names of the types of a placement; the name of `ANY` if the cluster states no types."""
        if not self:
            return (ANY.name,)
        return tuple(dict.fromkeys(self[node].name for node, _ in placement))

    def __deepcopy__(self, memo: dict[int, Any]) -> NodeTypes:
        return self  # it never changes


UNKNOWN_TYPES = NodeTypes()  # types of a cluster that states no types
ANY = GpuType("gpu")  # the only type of a cluster that states no types

# Memory, peak and bandwidth: NVIDIA's data sheets, named below with their revisions. Prices: on demand, price of a node
# divided by its GPUs; AWS in us-east-1 in November 2025, unless another provider is named. Prices change, so a cluster
# may state its own: before June 2025, AWS asked 4.10 for an a100-40, 5.12 for an a100-80 and 12.29 for an h100.
GPU_TYPES = {
    gpu.name: gpu
    for gpu in (
        GpuType("k80", 12, 0.90, 4.4, 240),  # BD-07317-001_v05; half a board, in single precision; p2.xlarge
        GpuType("p100", 16, 1.46, 21.2, 732),  # Tesla P100 SXM2, 2016 (PCIe: 18.7); Google Cloud, 2023
        GpuType("v100", 16, 3.06, 125, 900),  # Tesla V100, March 2018, SXM2; p3.2xlarge
        GpuType("v100-32", 32, 3.90, 125, 900),  # ibid.; p3dn.24xlarge, 31.212 / 8
        GpuType("t4", 16, 0.978, 65, 320),  # T4, March 2019; g4dn.12xlarge, 3.912 / 4
        GpuType("rtx2080ti", 11, 0.0, 53.8, 616),  # Turing white paper WP-09183-001_v01; large clouds do not rent it
        GpuType("rtx6000", 24, 1.50, 130.5, 672),  # Quadro, ibid.; Linode g1-gpu-rtx6000-1, 2024
        GpuType("a10", 24, 1.006, 125, 600),  # A10, March 2021; the price is that of the A10G (70 TFLOP/s), g5.xlarge
        GpuType("a100-40", 40, 2.745, 312, 1555),  # A100, June 2021, SXM4; p4d.24xlarge, 21.958 / 8
        GpuType("a100-80", 80, 3.431, 312, 2039),  # ibid.; p4de.24xlarge, 27.447 / 8
        GpuType("h100", 80, 6.88, 989, 3350),  # H100, SXM5; p5.48xlarge, 55.04 / 8
        GpuType("h200", 141, 7.912, 989, 4800),  # H200, SXM; p5en.48xlarge, 63.296 / 8
        GpuType("b200", 180, 14.24, 2250, 7700),  # Blackwell, HGX (DGX: 8,000 GB/s); p6-b200.48xlarge, 113.93 / 8
    )
}


def gpu_type(settings: Any) -> GpuType:
    """Return the GPU type for a name, or for a description {name: …, memory: …, price: …}.

    Raise InvalidConfigError if the settings have another form, or the name is unknown.
    """
    if isinstance(settings, str) and settings in GPU_TYPES:
        return GPU_TYPES[settings]
    what = "a GPU type of the cluster"
    if not isinstance(settings, Mapping):
        must = f"one of {', '.join(GPU_TYPES)}, or {{name: …, memory: …, price: …}}{did_you_mean(settings, GPU_TYPES)}"
        raise invalid_setting(what, settings, must)
    name = as_declared(f"{what}: name", settings.get("name"), "Name")
    figures = {key: value for key, value in settings.items() if key != "name"}
    is_named = isinstance(name, str) and name.strip() and figures.keys() <= set(GpuType._fields)
    if not is_named or not all(type(value) in (int, float) and 0 <= value < inf for value in figures.values()):
        must = f"a name and numbers ≥ 0: {', '.join(GpuType._fields[1:])}"
        raise invalid_setting(what, dict(settings), must)
    return GpuType(str(name), **{key: float(value) for key, value in figures.items()})


def gpu_settings(gpu: GpuType) -> str | dict[str, Any]:
    """Return a type in the form that `gpu_type` reads: its name if it is in `GPU_TYPES`, or its figures."""
    # A cluster may state other figures, like a price, under a known name.
    return gpu.name if GPU_TYPES.get(gpu.name) == gpu else gpu._asdict()


OTHER_NAMES = {
    "v100m16": "v100", "v100m32": "v100-32", "v10016gb": "v100", "v10032gb": "v100-32", "v100l": "v100-32",
    "v100pcie16gb": "v100", "v100pcie32gb": "v100-32", "p100pcie16gb": "p100", "p10016gb": "p100",
    "2080ti": "rtx2080ti", "rtx6000turing": "rtx6000",
    "a100": "a100-40", "a10040gb": "a100-40", "a100pcie40gb": "a100-40",
    "a10080gb": "a100-80", "a10080g": "a100-80", "a100pcie80gb": "a100-80", "a10080gbpcie": "a100-80",
    "a100l": "a100-80",
    "h10080gb": "h100", "h100hbm3": "h100", "h10080gbhbm3": "h100", "h200141gb": "h200",
}  # fmt: skip
"""Names of known types in logs, lists of nodes and Slurm's GRES, without makers and spaces; see `known_as`.

Examples are `V100M32` in PAI and openb, and NVIDIA's product name `nvidia_a100-sxm4-80gb`, which `AutoDetect=nvml`
writes into Slurm's GRES. An A100 without a stated memory has 40 GB.
"""

NO_TYPE = ("misc", "cpu")  # words of logs that mean any type

_LEFT_OUT = re.compile(r"nvidia|tesla|geforce|quadro|sxm\d?|[^a-z0-9]")  # parts of names that `OTHER_NAMES` lacks


def known_as(word: str) -> str:
    """Return the name of the type that a word in a log means; an unknown word is returned in small letters.

    >>> [known_as(word) for word in ("T4", "NVIDIA A100 80GB PCIe", "Tesla V100-SXM2-32GB", "A100_1g.5gb", "MISC")]
    ['t4', 'a100-80', 'v100-32', 'a100_1g.5gb', '']
    """
    name = word.strip().lower()
    if name in NO_TYPE:
        return ""
    if name in GPU_TYPES:
        return name
    short_name = _LEFT_OUT.sub("", name)
    if short_name in OTHER_NAMES:
        return OTHER_NAMES[short_name]
    return short_name if short_name in GPU_TYPES else name


def types_in(text: str | None, other_names: Mapping[str, str] | None = None) -> tuple[GpuType, ...]:
    """Return the types in a text of a log or of a list of nodes, separated by bars; empty if the text means any type.

    `other_names` maps words to names of types and precedes the known names. Unknown types have no figures.

    >>> [gpu.name for gpu in types_in("T4|V100M32|G2")], types_in("")
    (['t4', 'v100-32', 'g2'], ())
    >>> [gpu.name for gpu in types_in("A100|G2", {"A100": "a100-80", "G2": ""})]
    ['a100-80']
    """
    name_of = {word.lower(): name for word, name in (other_names or {}).items()}
    names: dict[str, None] = {}
    for part in (text or "").split("|"):
        word = part.strip()
        name = name_of[word.lower()] if word.lower() in name_of else known_as(word)
        if name:
            names[name] = None
    return tuple(GPU_TYPES.get(name, GpuType(name)) for name in names)


class NamedTypes:
    """GPU types that the jobs of a log can use.

    `other_names` has names of types by words of the log, as in `types_in`; None lets all jobs use any type. `texts` are
    the texts for GPU types in the log. Raise InvalidConfigError if a word is not in the log, or a name is not text.
    """

    def __init__(self, other_names: Mapping[str, str] | None, texts: Iterable[str | None]) -> None:
        words = set[str]()
        for text in set(texts) - {None}:
            words.update(word.strip() for word in str(text).split("|"))
        words.discard("")
        lower_words = {word.lower() for word in words}
        for word, name in (other_names or {}).items():
            if word.lower() not in lower_words:
                why = f"it has {', '.join(sorted(words))}" if words else "its jobs have no GPU type"
                raise InvalidConfigError(
                    f"workload.gpu_types names GPU type {word!r}, which is not in the log: {why}"
                    f"{did_you_mean(word, words)}"
                )
            if not isinstance(name, str):
                must = "the name of a GPU type, or '' for any type"
                raise invalid_setting(f"workload.gpu_types.{word}", name, must)
        self._other_names = other_names
        self._names: dict[str | None, tuple[str, ...]] = {}  # by text, because a log has millions of jobs and few texts

    def of(self, text: str | None) -> tuple[str, ...]:
        """Return the names of the types in a text; empty for any type."""
        if self._other_names is None:
            return ()
        if text not in self._names:
            self._names[text] = tuple(gpu.name for gpu in types_in(text, self._other_names))
        return self._names[text]
