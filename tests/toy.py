"""Toy applications whose every number can be worked out by hand, in memory and as files of the artifact's layout."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

from polluxsim.checks.worlds import ToyProfile
from polluxsim.workloads.workload import Job, Workload

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["ToyProfile", "toy_job", "toy_workload", "write_artifact", "write_jobs"]


def toy_job(name: str, submit_time: float = 0.0, gpus: int = 1, application: str = "toy", **options: Any) -> Job:
    """Return a job that asks for as many M0 as GPUs: it makes `gpus` M0-steps in every step."""
    return Job(name, submit_time, application, gpus, 10 * gpus, **options)


def toy_workload(*jobs: Job) -> Workload:
    return Workload(tuple(jobs))


def write_artifact(folder: Path, names: Sequence[str] = ("cifar10", "ncf")) -> Path:
    """Write a small artifact layout with smooth made-up measurements; return the folder."""
    known_epochs = {"cifar10": 100, "ncf": 10, "bert": 2, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
    for name in names:
        traces = folder / "traces" / name
        traces.mkdir(parents=True)
        atomic = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
        placements = ["1", "2", "3", "4", "11", "12", "22", "24", "44", "114", "144", "444", "4444"]
        _write(
            traces / "placements.csv",
            ("placement", "local_bsz", "step_time", "sync_time"),
            [(p, m, *_times(len(p), sum(map(int, p)), m)) for p in placements for m in atomic],
        )
        counts = [(n, k) for n in (6, 8, 12, 16) for k in (n, 2 * n, 4 * n)]
        _write(
            traces / "scalability.csv",
            ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time"),
            [(n, k, m, *_times(n, k, m)) for n, k in counts for m in atomic],
        )
        sizes = (128, 512, 2048, 4096) if name != "ncf" else (256, 4096, 32768)
        for size in sizes:
            epochs = range(1, known_epochs[name] + 1)
            rows = [(e * 100.0, e * 100.0 * sizes[0] / size**0.9, 0.5, 1.0, 2.0 + e / 10) for e in epochs]
            _write(traces / f"validation-{size}.csv", ("progress", "iteration", "metric", "grad_sqr", "grad_var"), rows)
    return folder


def _times(nodes: int, gpus: int, atomic: int) -> tuple[float, float]:
    grad = 0.02 + 0.0005 * atomic
    sync = 0.0005 if gpus == 1 else (0.01 if nodes == 1 else 0.03 + 0.005 * nodes)
    return grad + sync, sync


def _write(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def write_jobs(path: Path, *rows: str) -> Path:
    """Write a workload file from its lines after the header."""
    path.write_text("\n".join(["name,time,application,num_replicas,batch_size", *rows]) + "\n")
    return path
