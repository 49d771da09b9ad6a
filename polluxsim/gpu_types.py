"""The GPU types that clusters are made of, each figure with its source."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import isfinite
from typing import Any, NamedTuple

from polluxsim.errors import InvalidConfigError, did_you_mean, short


class GpuType(NamedTuple):
    """A type of GPU.

    Attributes
    ----------
    name
        How clusters, jobs and cards name it.
    memory
        Its memory [GB]; 0 if nobody says.
    price
        Rent of one GPU [$/h]; 0 if nobody says.
    peak
        Dense half-precision multiplications and additions, by matrix units where it has them [TFLOP/s].
    bandwidth
        Of its memory [GB/s].
    """

    name: str
    memory: float = 0.0
    price: float = 0.0
    peak: float = 0.0
    bandwidth: float = 0.0


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

    def __deepcopy__(self, memo: dict[int, Any]) -> NodeTypes:
        return self


NOBODY_SAYS = NodeTypes()
"""Of a cluster that says nothing of types."""

ANY = GpuType("gpu")
"""The one type of a cluster that says nothing of types."""

# Memory, peak and bandwidth: NVIDIA's data sheets of each product. Prices: on-demand lists of us-east-1 and the like, a
# node's price over its GPUs, as of the year given; they change, and a cluster may say its own.
GPU_TYPES = {
    gpu.name: gpu
    for gpu in (
        GpuType("k80", 12, 0.90, 4.4, 240),  # half a board, which has no half precision; AWS p2.xlarge, 2022
        GpuType("p100", 16, 1.46, 21.2, 732),  # Google Cloud, 2023
        GpuType("v100", 16, 3.06, 125, 900),  # AWS p3.2xlarge, 2024
        GpuType("v100-32", 32, 3.90, 125, 900),  # AWS p3dn.24xlarge, 31.212 / 8, 2024
        GpuType("t4", 16, 0.978, 65, 320),  # AWS g4dn.12xlarge, 3.912 / 4, 2024
        GpuType("rtx2080ti", 11, 0.0, 53.8, 616),  # no price: none of the large clouds rents it
        GpuType("rtx6000", 24, 1.50, 130.5, 672),  # Quadro, of Turing; Linode g1-gpu-rtx6000-1, 2024
        GpuType("a10", 24, 1.006, 125, 600),  # that of AWS g5.xlarge, the A10G, 2024
        GpuType("a100-40", 40, 4.096, 312, 1555),  # AWS p4d.24xlarge, 32.773 / 8, 2024
        GpuType("a100-80", 80, 5.121, 312, 2039),  # AWS p4de.24xlarge, 40.966 / 8, 2024
        GpuType("h100", 80, 12.29, 989, 3350),  # SXM; AWS p5.48xlarge, 98.32 / 8, 2024
        GpuType("h200", 141, 10.60, 989, 4800),  # Azure ND96isr H200 v5, 84.80 / 8, 2025
        GpuType("b200", 180, 14.24, 2250, 7700),  # HGX; AWS p6-b200.48xlarge, 113.93 / 8, 2025
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


_OTHER_NAMES = {"v100m16": "v100", "v100m32": "v100-32", "2080ti": "rtx2080ti", "a100": "a100-40", "misc": ""}
"""What some logs and lists of nodes call the types that are known, or say where they know none."""


def types_in(said: str | None) -> tuple[GpuType, ...]:
    """Return the types that a log or a list of nodes names, with bars between them; unknown ones have no figures.

    >>> [gpu.name for gpu in types_in("T4|V100M32|G2")], types_in("")
    (['t4', 'v100-32', 'g2'], ())
    """
    words = (word.strip().lower() for word in (said or "").split("|"))
    names = dict.fromkeys(_OTHER_NAMES.get(word, word) for word in words)
    return tuple(GPU_TYPES.get(name, GpuType(name)) for name in names if name)
