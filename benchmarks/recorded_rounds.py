"""Scheduling problems met in a run of the published simulator, with the answers of its search."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from polluxsim.policies.pollux.problem import Problem, restart_factor

if TYPE_CHECKING:
    from pathlib import Path


class RecordedRound(NamedTuple):
    """A problem, the recorded answer, shape (J, N), and its recorded fitness."""

    problem: Problem
    answer: np.ndarray
    fitness: float


def read_rounds(path: Path) -> list[RecordedRound]:
    """Read the rounds of a file like rounds/pollux-workload-3.jsonl.gz; its README says what a line holds."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [_round(json.loads(line)) for line in lines]


def _round(line: dict[str, Any]) -> RecordedRound:
    jobs, num_nodes = line["jobs"], line["num_nodes"]
    speedups = np.zeros((len(jobs), 2, num_nodes * line["gpus_per_node"] + 1))
    for row, job in zip(speedups, jobs, strict=True):
        for nodes, gpus, speedup in job["speedup"]:
            row[min(nodes, 2) - 1, gpus] = speedup / line["gpus_per_node"]
    delay = line["restart_delay"]
    problem = Problem(
        job_ids=tuple(job["job"] for job in jobs),
        speedups=speedups,
        restart_factors=np.array([restart_factor(job["age"], job["num_restarts"], delay) for job in jobs]),
        max_replicas=np.array([job["max_replicas"] for job in jobs]),
        placements=np.array([job["placement"] for job in jobs]),
        gpus_per_node=np.full(num_nodes, line["gpus_per_node"]),
        fairness_power=float(line["p"]),
    )
    return RecordedRound(problem, np.array([job["answer"] for job in jobs]), line["fitness"])
