"""The GPU types that clusters are made of, each figure with its source."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import isfinite
from typing import Any, NamedTuple

from polluxsim.common.errors import InvalidConfigError, did_you_mean, short


class GpuType(NamedTuple):
    """A type of GPU; figures are 0 if nobody says."""

    name: str  # in clusters, jobs and cards
    memory: float = 0.0  # [GB]
    price: float = 0.0  # rent of one GPU [$/h]
    peak: float = 0.0  # dense half-precision multiplications and additions, by matrix units if it has any [TFLOP/s]
    bandwidth: float = 0.0  # of its memory [GB/s]


class NodeTypes(tuple[GpuType, ...]):
    """The type of each node, by its number; who has which is gone through for once."""

    @cached_property
    def nodes(self) -> Mapping[str, Sequence[int]]:
        """Return the numbers of the nodes of each type, by its name, in order of their first nodes."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for node, gpu in enumerate(self):
            found[gpu.name].append(node)
        return found

    @cached_property
    def types(self) -> Mapping[str, GpuType]:
        """Return the types by name, in the same order; one where there are none to say."""
        return {name: self[nodes[0]] for name, nodes in self.nodes.items()} or {ANY.name: ANY}

    def crew(self, placement: Iterable[tuple[int, int]]) -> tuple[tuple[str, int], ...]:
        """Return how many GPUs of which types a placement has, by name, types in the same order."""
        counts = Counter[str]()
        for node, gpus in placement:
            counts[self[node].name] += gpus
        return tuple((name, counts[name]) for name in self.nodes if counts[name])

    def names_of(self, placement: Iterable[tuple[int, int]]) -> tuple[str, ...]:
        """Return the names of a placement's types, each once; one where there are none to say."""
        return tuple(dict.fromkeys(self[node].name for node, _ in placement)) if self else (ANY.name,)

    def __deepcopy__(self, memo: dict[int, Any]) -> NodeTypes:
        return self


NOBODY_SAYS = NodeTypes()
"""Of a cluster that says nothing of types."""

ANY = GpuType("gpu")
"""The one type of a cluster that says nothing of types."""

# Memory, peak and bandwidth: NVIDIA's data sheets, named below with their revisions. Prices: on demand, a node's price
# over its GPUs; AWS in us-east-1 in November 2025, but where another provider is named. They change, so that a cluster
# may say its own: AWS asked 4.10 for an a100-40, 5.12 for an a100-80 and 12.29 for an h100 before June 2025.
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


def gpu_type(said: Any) -> GpuType:
    """Return the GPU type that a configuration names, or describes: {name: …, memory: …, price: …}.

    Raises
    ------
    InvalidConfigError
        If there is no such type, or the description has other figures than those of a `GpuType`.
    """
    if isinstance(said, str) and said in GPU_TYPES:
        return GPU_TYPES[said]
    if not isinstance(said, Mapping):
        allowed = f"{', '.join(GPU_TYPES)}, or one's own as {{name: …, memory: …, price: …}}"
        raise InvalidConfigError(
            f"cluster: GPU type {short(said)}, allowed are {allowed}{did_you_mean(said, GPU_TYPES)}"
        )
    name, figures = said.get("name"), {key: value for key, value in said.items() if key != "name"}
    if not (isinstance(name, str) and name.strip() and figures.keys() <= set(GpuType._fields)) or not all(
        type(value) in (int, float) and isfinite(value) and value >= 0 for value in figures.values()
    ):
        numbers = ", ".join(GpuType._fields[1:])
        raise InvalidConfigError(f"cluster: GPU type {short(dict(said))}, allowed are a name and numbers: {numbers}")
    return GpuType(name, **{key: float(value) for key, value in figures.items()})


def as_said(gpu: GpuType) -> str | dict[str, Any]:
    """Return a type as `gpu_type` takes it."""
    return gpu.name if GPU_TYPES.get(gpu.name) == gpu else gpu._asdict()


OTHER_NAMES = {
    "v100m16": "v100", "v100m32": "v100-32", "v10016gb": "v100", "v10032gb": "v100-32", "v100l": "v100-32",
    "v100pcie16gb": "v100", "v100pcie32gb": "v100-32", "p100pcie16gb": "p100", "p10016gb": "p100",
    "2080ti": "rtx2080ti", "rtx6000turing": "rtx6000",
    "a100": "a100-40", "a10040gb": "a100-40", "a100pcie40gb": "a100-40",
    "a10080gb": "a100-80", "a10080g": "a100-80", "a100pcie80gb": "a100-80", "a100l": "a100-80",
    "h10080gb": "h100", "h100hbm3": "h100", "h10080gbhbm3": "h100", "h200141gb": "h200",
}  # fmt: skip
"""What logs, lists of nodes and Slurm's GRES call the types that are known, without makers and spaces: see `known_as`.

Of PAI and openb `V100M32`; of NVIDIA's own product names, as `AutoDetect=nvml` writes them into Slurm's GRES,
`nvidia_a100-sxm4-80gb`. An A100 of which nobody says the memory is taken for the one of 40 GB.
"""

NO_TYPE = ("misc", "cpu")
"""What logs say in place of a type, of whom any will do."""

_MAKERS = re.compile(r"nvidia|tesla|geforce|quadro|sxm\d?|[^a-z0-9]")


def known_as(word: str) -> str:
    """Return the name of the type that a log calls so; one that is not known keeps the log's name, in small letters.

    >>> [known_as(word) for word in ("T4", "nvidia_a100-sxm4-80gb", "Tesla V100-SXM2-32GB", "A100_1g.5gb", "MISC")]
    ['t4', 'a100-80', 'v100-32', 'a100_1g.5gb', '']
    """
    name = word.strip().lower()
    if name in NO_TYPE:
        return ""
    if name in GPU_TYPES:
        return name
    short_name = _MAKERS.sub("", name)
    return OTHER_NAMES.get(short_name) or (short_name if short_name in GPU_TYPES else name)


def types_in(said: str | None, other_names: Mapping[str, str] | None = None) -> tuple[GpuType, ...]:
    """Return the types that a log or a list of nodes names, with bars between them; unknown ones have no figures.

    None are named for any type. `other_names` says what some stand for here, before what is known of names.

    >>> [gpu.name for gpu in types_in("T4|V100M32|G2")], types_in("")
    (['t4', 'v100-32', 'g2'], ())
    >>> [gpu.name for gpu in types_in("A100|G2", {"A100": "a100-80", "G2": ""})]
    ['a100-80']
    """
    own = {name.lower(): meant for name, meant in (other_names or {}).items()}
    words = (word.strip() for word in (said or "").split("|"))
    names = dict.fromkeys(own[word.lower()] if word.lower() in own else known_as(word) for word in words)
    return tuple(GPU_TYPES.get(name, GpuType(name)) for name in names if name)


class NamedTypes:
    """The types that the jobs of a log can use, by what it says of each; every word is looked up once.

    Parameters
    ----------
    other_names
        As of `types_in`; None lets all jobs use any type.
    log
        What the log says of each of its jobs.

    Raises
    ------
    InvalidConfigError
        If one of the other names is not in the log, or does not stand for a name.
    """

    def __init__(self, other_names: Mapping[str, str] | None, log: Iterable[str | None]) -> None:
        said = {word.strip() for text in set(log) - {None} for word in str(text).split("|")} - {""}
        known = {word.lower() for word in said}
        for name, meant in (other_names or {}).items():
            if name.lower() not in known:
                there = f"there are {', '.join(sorted(said))}" if said else "its jobs name no GPU type"
                raise InvalidConfigError(
                    f"workload.gpu_types names GPU type {name!r}, which is not in the log: {there}"
                    f"{did_you_mean(name, said)}"
                )
            if not isinstance(meant, str):
                raise InvalidConfigError(
                    f"workload.gpu_types.{name} is {short(meant)}, allowed is the name of a GPU type, or '' for any"
                )
        self._other_names = other_names
        self._known: dict[str | None, tuple[str, ...]] = {}

    def of(self, said: str | None) -> tuple[str, ...]:
        """Return the names of the types, none for any."""
        if self._other_names is None:
            return ()
        if (names := self._known.get(said)) is None:
            names = self._known[said] = tuple(gpu.name for gpu in types_in(said, self._other_names))
        return names
