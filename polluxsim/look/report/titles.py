"""What was run, in words: labels of runs, workloads and clusters out of a run's configuration."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from polluxsim.look.groups import labels_of, settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.storage import Run


def labels(runs: Sequence[Run]) -> list[str]:
    """Return a label for each run: its policy and the settings in which the runs differ, and its folder if need be."""
    found = labels_of([settings_of(run) for run in runs], pooled=())
    many = Counter(found)
    return [f"{label} ({run.name})" if many[label] > 1 else label for label, run in zip(found, runs, strict=True)]


def workload_words(info: Mapping[str, Any]) -> str:
    """Return what was run, like the name of a file or the parameters of a generator.

    >>> workload_words({"config": {"workload": {"_target_": "polluxsim.workloads.philly_like.PhillyLike", "hours": 8}}})
    'Philly Like, hours 8'
    """
    workload = _part(info, "workload")
    if "path" in workload:
        path = workload["path"]
        return "the shipped workload" if path is None else f"workload {PurePath(str(path)).name}"
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", str(workload.get("_target_", "")).rpartition(".")[2])
    told = [
        f"{key} {value}"
        for key, value in workload.items()
        if key not in {"_target_", "seed", "num_jobs"} and not isinstance(value, bool | dict | list)
    ]
    return ", ".join([name or "a workload", *told])


def cluster_words(gpus_per_node: Sequence[int], types: Sequence[str] = ()) -> str:
    """Return the nodes by kind.

    >>> cluster_words([4, 4, 8])
    '2 nodes × 4 GPUs + 1 node × 8 GPUs'
    >>> cluster_words([4, 4], ["t4", "t4"])
    '2 nodes × 4 t4'
    """
    names = types or [""] * len(gpus_per_node)
    return " + ".join(
        f"{count} node{'s' * (count > 1)} × {gpus} {name or 'GPU' + 's' * (gpus > 1)}"
        for (gpus, name), count in Counter(zip(gpus_per_node, names, strict=True)).items()
    )


def engine_words(info: Mapping[str, Any]) -> str:
    """Return how often a policy decides, and what a restart costs; empty where a run does not say.

    >>> engine_words({"config": {"engine": {"round_interval": 60.0, "restart_delay": 30.0}}})
    'rounds every 60 s, a restart costs 30 s'
    """
    engine = _part(info, "engine")
    said = (("rounds every", "round_interval"), ("a restart costs", "restart_delay"))
    return ", ".join(f"{words} {engine[name]:g} s" for words, name in said if engine.get(name) is not None)


def _part(info: Mapping[str, Any], group: str) -> Mapping[str, Any]:
    part = (info.get("config") or {}).get(group)
    return part if isinstance(part, dict) else {}
