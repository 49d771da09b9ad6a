"""What CPUs and memory have to do with what was decided."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.look.why.phrases import number_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.look.why.phrases import Sentence


def with_host(numbers: Mapping[str, float]) -> str:
    """Return what a job has of its nodes' CPUs and memory, as a sentence to follow others; nothing where none is said.

    >>> with_host({"cpus": 9.0, "memory_shares": 2.0, "host_speed": 2.4})
    " With 9 CPUs for each GPU and 2 times its GPUs' part of the memory it is 2.4 times as fast as its profile says."
    """
    if "host_speed" not in numbers:
        return ""
    memory = f"{numbers['memory_shares']:.3g} times its GPUs' part of the memory"
    speed = f"it is {numbers['host_speed']:.3g} times as fast as its profile says"
    return f" With {number_of(_rounded(numbers['cpus']), 'CPU')} for each GPU and {memory} {speed}."


def _rounded(number: float) -> float:
    return float(f"{number:.3g}")


def _needs(numbers: Mapping[str, float]) -> str:
    beside = ""
    if "cpus_needed" in numbers:
        memory = f"{100 * numbers['memory_part']:.3g} % of all memory"
        beside = f" with {number_of(_rounded(numbers['cpus_needed']), 'CPU')} and {memory}"
    return f"{number_of(numbers['gpus_needed'], 'GPU')}{beside}"


def _share(numbers: Mapping[str, float]) -> str:
    return f"the dominant share is now {100 * numbers['dominant_share']:.3g} %"


def _least_share(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return f"It has {_needs(numbers)}, as no other queue had less of what it uses most; {_share(numbers)}."


def _share_waits(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return f"It needs {_needs(numbers)}, and those before it left too little on the nodes; {_share(numbers)}."


OF_HOSTS: Mapping[str, Sentence] = {"least-share": _least_share, "share-waits": _share_waits}
