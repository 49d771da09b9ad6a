"""What CPUs and memory have to do with what was decided."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.look.why.phrases import number_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.look.why.phrases import Sentence


def with_host(numbers: Mapping[str, float]) -> str:
    """Return what a job has of its nodes' CPUs and memory, as a sentence to follow others; nothing where none is said.

    >>> with_host({"cpus": 9.0, "memory": 62.5, "host_speed": 2.4})
    ' With 9 CPUs and 62.5 GB for each GPU it runs at 2.4 times the speed of its profile or duration.'
    """
    if "host_speed" not in numbers:
        return ""
    has = f"{number_of(_rounded(numbers['cpus']), 'CPU')} and {_rounded(numbers['memory']):g} GB"
    return f" With {has} for each GPU it runs at {numbers['host_speed']:.3g} times the speed of its profile or duration."


def _rounded(number: float) -> float:
    return float(f"{number:.3g}")


def _needs(numbers: Mapping[str, float]) -> str:
    beside = (
        f" with {number_of(_rounded(numbers['cpus_needed']), 'CPU')} and {_rounded(numbers['memory_needed']):g} GB"
        if "cpus_needed" in numbers
        else ""
    )
    return f"{number_of(numbers['gpus_needed'], 'GPU')}{beside}"


def _share(numbers: Mapping[str, float]) -> str:
    return f"the dominant share is now {100 * numbers['dominant_share']:.3g} %"


def _least_share(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return f"It has {_needs(numbers)}, as no other queue had less of what it uses most; {_share(numbers)}."


def _share_waits(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return f"It needs {_needs(numbers)}, and those before it left too little on the nodes; {_share(numbers)}."


OF_HOSTS: Mapping[str, Sentence] = {"least-share": _least_share, "share-waits": _share_waits}
