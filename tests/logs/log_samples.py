"""For every format: its sample, and what must come of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parent / "fixtures"


@dataclass(frozen=True)
class Sample:
    """A sample, its jobs in order of submission (some cells of each), and what the report counts."""

    path: str
    jobs: tuple[dict[str, Any], ...]
    dropped: dict[str, int]
    suspicious: dict[str, int]
    origin: str
    cluster_gpus: int | None = None

    @property
    def source(self) -> Path:
        return FIXTURES / self.path

    @property
    def log(self) -> Path:
        """The file with the rows."""
        return self.source if self.source.is_file() else next(self.source.glob("*_log*"))

    @property
    def rows(self) -> int:
        return len(self.jobs) + sum(self.dropped.values())


NO_GPU = "no GPU (CPU-only)"
NEVER_RAN = "never ran (no start)"

SAMPLES = {
    "philly": Sample(
        "philly.csv",
        (
            {"job": "philly-3", "submit_time": 0.0, "duration": 66.0, "num_gpus": 8.0, "tenant": "aaaaa2"},
            {"job": "philly-4", "submit_time": 1800.0, "duration": 120.0, "num_gpus": 2.0, "user": None},
            {"job": "philly-2", "submit_time": 7200.0, "status": "completed", "attempts": None},
        ),
        {},
        {"gpu_time is not duration · num_gpus": 1},
        "2017-10-02T06:00:00+00:00",
        2490,
    ),
    "philly-raw": Sample(
        "philly-raw",
        (
            {
                "job": "application_1_0001", "submit_time": 0.0, "duration": 60.0, "num_gpus": 2.0,
                "user": "u1", "tenant": "v1", "status": "failed",
                "attempts": 2, "usable_attempts": 1, "gpus_first": 1,
                "gpus_max": 2, "num_nodes": 1, "elapsed": 300.0, "gpu_time": 120.0, "queueing_delay": 60.0,
                "has_hole": True, "in_philly_csv": False,
            },
            {
                "job": "application_1_0002", "submit_time": 3600.0, "duration": 3600.0, "num_gpus": 3.0,
                "status": "completed", "attempts": 1, "num_nodes": 2, "gpu_time": 10800.0,
                "in_philly_csv": True,
            },
        ),
        {"no attempt": 1, "no submission time": 1},
        {"an attempt without start or end, not counted in the duration": 1},
        "2017-10-02T07:00:00+00:00",
        10,
    ),
    "itp": Sample(
        "cluster01.csv",
        (
            {"job": "6c0e-01", "submit_time": 0.0, "duration": 600.0, "num_gpus": 1.0, "tenant": "cluster01"},
            {"job": "6c0e-03", "submit_time": 50.0, "duration": 900.0, "num_gpus": 8.0, "status": None},
            {"job": "6c0e-02", "submit_time": 100.0, "duration": 7200.0, "num_gpus": 16.0},
        ),
        {},
        {},
        "1200.0",
    ),
    "helios": Sample(
        "helios",
        (
            {
                "job": "103", "submit_time": 0.0, "duration": 60.0, "num_gpus": 16.0, "user": "uBBB",
                "tenant": "vcB", "status": "cancelled", "num_nodes": 2, "queueing_delay": 30.0,
            },
            {"job": "101", "submit_time": 300.0, "duration": 3600.0, "num_gpus": 8.0, "status": "completed"},
            {"job": "105", "submit_time": 6900.0, "duration": 0.0, "status": "node_fail"},
        ),
        {NO_GPU: 1, NEVER_RAN: 1, "state is not one of COMPLETED, CANCELLED, FAILED, TIMEOUT, NODE_FAIL": 1},
        {"end before start": 1, "start before submission": 1, "duration of 0 s": 1},
        "2020-06-01T00:05:00+08:00",
        104,
    ),
    "seren": Sample(
        "trace_seren.csv",
        (
            {"job": "502", "submit_time": 0.0, "duration": 7200.0, "num_nodes": 4, "application": "Pretrain"},
            {"job": "501", "submit_time": 600.0, "user": "u11", "queueing_delay": 60.0},
            {"job": "504", "submit_time": 1800.0, "duration": 650.0, "status": "timeout", "num_nodes": 1},
        ),
        {NO_GPU: 1},
        {"duration is not end - start": 1},
        "2023-03-01T00:00:00+08:00",
    ),
    "kalos": Sample(
        "trace_kalos.csv",
        (
            {"job": "dlc01", "submit_time": 0.0, "duration": 90.0, "num_gpus": 64.0, "status": "failed"},
            {"job": "dlc06", "submit_time": 300.0, "duration": 60.0, "num_gpus": 8.0, "queueing_delay": 20.0},
        ),
        {
            NO_GPU: 1, NEVER_RAN: 1, "end before start": 1,
            "state is not one of COMPLETED, CANCELLED, FAILED, TIMEOUT, NODE_FAIL": 1,
        },
        {},
        "2023-05-17T19:00:00+08:00",
    ),
    "pai2020": Sample(
        "pai_task_table.csv",
        (
            {
                "job": "job02/worker", "submit_time": 0.0, "duration": 600.0, "num_gpus": 4.0,
                "status": "failed", "num_instances": 4, "gpu_type": "V100",
            },
            {"job": "job01/tensorflow", "submit_time": 162.0, "duration": 38.0, "num_gpus": 0.5},
        ),
        {NO_GPU: 1, NEVER_RAN: 1, "no end": 1, "end before start": 1},
        {"a fraction of a GPU": 1},
        "1970-01-21T11:03:20+08:00",
    ),
    "openb2023": Sample(
        "openb_pod_list_default.csv",
        (
            {
                "job": "pod-2", "submit_time": 0.0, "duration": 8500.0, "num_gpus": 0.46, "status": "running",
                "gpu_type": "T4|P100", "queueing_delay": 0.0, "qos": "BE",
            },
            {"job": "pod-1", "submit_time": 500.0, "duration": 3990.0, "num_gpus": 1.0, "gpu_type": None},
            {"job": "pod-5", "submit_time": 1000.0, "duration": 100.0, "num_gpus": 8.0, "status": "failed"},
        ),
        {NO_GPU: 1, NEVER_RAN: 1},
        {"a fraction of a GPU": 1, "was running when last seen: its duration is a lower bound": 1},
        "500.0",
    ),
    "kueue": Sample(
        "kueue.json",
        (
            {
                "job": "nlp/preempted", "submit_time": 0.0, "duration": 1200.0, "num_gpus": 2.0, "user": None,
                "tenant": "nlp", "status": "failed", "application": None, "num_instances": 1, "gpu_type": None,
                "queueing_delay": None, "partition": "nlp-local", "priority": -5.0, "qos": None,
            },
            {
                "job": "vision/job-train-1a2b", "submit_time": 3600.0, "duration": 3600.0, "num_gpus": 8.0,
                "tenant": "vision", "status": "completed", "application": "train", "num_instances": 3,
                "gpu_type": "a100", "cpus": 16.5, "memory": 129 * 2**30 / 1e9, "queueing_delay": 600.0,
                "time_limit": 7200.0, "partition": "gpu-queue", "priority": 100.0, "qos": "high",
            },
        ),
        {NO_GPU: 1, NEVER_RAN: 1, "no end": 1},
        {},
        "2024-06-01T07:00:00+00:00",
    ),
    "volcano": Sample(
        "volcano.json",
        (
            {
                "job": "vision/alone", "submit_time": 0.0, "duration": None, "num_gpus": 1.0, "status": "running",
                "attempts": None, "application": None, "queueing_delay": None, "partition": "default",
            },
            {
                "job": "vision/train-u1", "submit_time": 1800.0, "duration": 3000.0, "num_gpus": 4.0,
                "tenant": "vision", "status": "completed", "attempts": 2, "application": "train",
                "num_instances": 4, "cpus": 32.0, "memory": 256 * 2**30 / 1e9, "queueing_delay": 600.0,
                "partition": "research", "priority": 1000.0, "qos": "urgent",
            },
        ),
        {NO_GPU: 1, NEVER_RAN: 1, "Volcano Job, counted with its PodGroup": 1, "priority class": 1},
        {},
        "2024-06-01T07:30:00+00:00",
    ),
    "pbs": Sample(
        "pbs.txt",
        (
            {
                "job": "100.pbs", "submit_time": 0.0, "duration": 7200.0, "num_gpus": 8.0, "user": "ann",
                "tenant": "vision", "status": "completed", "attempts": 1, "application": "train", "num_nodes": 2,
                "queueing_delay": 540.0, "time_limit": 86400.0, "partition": "gpu", "eligibility_delay": 60.0,
            },
            {
                "job": "101.pbs", "submit_time": 140.0, "duration": 600.0, "num_gpus": 2.0, "tenant": "a b",
                "status": "cancelled", "queueing_delay": 7600.0, "time_limit": None, "eligibility_delay": None,
            },
        ),
        {NO_GPU: 1, "the submission of a job, not the end of a job": 1, "the start of a job, not the end of a job": 1},
        {},
        "2026-03-04T09:01:00+00:00",
    ),
    "swf": Sample(
        "small.swf",
        (
            {
                "job": "1", "submit_time": 0.0, "duration": 100.0, "num_gpus": 4.0, "user": "5", "tenant": "2",
                "status": "completed", "application": None, "queueing_delay": 10.0, "time_limit": 3600.0,
                "partition": "1",
            },
            {
                "job": "2", "submit_time": 50.0, "duration": 200.0, "num_gpus": 8.0, "status": "failed",
                "application": "3", "queueing_delay": 20.0, "partition": "2",
            },
        ),
        {NEVER_RAN: 1, "part of a job between two checkpoints, counted with the whole job": 1},
        {},
        "2026-03-04T10:00:00+01:00",
        64,
    ),
    "pods": Sample(
        "pods.json",
        (
            {
                "job": "vision/train", "submit_time": 0.0, "duration": 7200.0, "num_gpus": 8.0, "tenant": "vision",
                "status": "completed", "application": "train", "num_instances": 2, "cpus": 16.0, "memory": 128.0,
                "queueing_delay": 600.0, "priority": 10.0, "qos": "high", "num_nodes": 2,
            },
            {
                "job": "vision/notebook", "submit_time": 1800.0, "duration": 3600.0, "num_gpus": 1.0,
                "status": "failed", "queueing_delay": 360.0, "num_nodes": 1,
            },
        ),
        {NO_GPU: 1, NEVER_RAN: 1, "no end": 1, "another pod of a job, one gang with its first": 1},
        {},
        "2026-03-04T09:00:00+00:00",
    ),
    "table": Sample(
        "table.csv",
        (
            {
                "job": "b", "submit_time": 0.0, "duration": 600.0, "num_gpus": 0.5, "user": "bob", "tenant": None,
                "status": "failed", "application": "resnet", "queueing_delay": 60.0, "priority": None, "qos": "low",
            },
            {"job": "a", "submit_time": 1800.0, "duration": 3600.0, "num_gpus": 4.0, "priority": 5.0, "qos": "high"},
        ),
        {NO_GPU: 1, NEVER_RAN: 1, "no end": 1},
        {"a fraction of a GPU": 1},
        "2024-03-01T08:30:00+00:00",
    ),
    "sia": Sample(
        "sia.csv",
        (
            {"job": "bert-2", "submit_time": 0.0, "duration": None, "num_gpus": 4.0, "application": "bert"},
            {"job": "cifar10-1", "submit_time": 10.25, "application": "cifar10", "batch_size": 128},
        ),
        {},
        {},
        "0.25",
    ),
    "gavel": Sample(
        "jobs.trace",
        (
            {"job": "gavel-1", "submit_time": 0.0, "duration": None, "num_gpus": 1.0, "iterations": 97000},
            {"job": "gavel-2", "submit_time": 350.75, "num_gpus": 4.0, "application": "LM (batch size 80)"},
        ),
        {},
        {},
        "0.0",
    ),
    "tiresias": Sample(
        "tiresias.csv",
        (
            {"job": "1", "submit_time": 0.0, "duration": 3600.0, "num_gpus": 4.0, "application": "vgg16"},
            {"job": "2", "submit_time": 60.0, "duration": 90.0, "num_gpus": 1.0, "iterations": 800},
        ),
        {"no GPU": 1},
        {},
        "100.0",
    ),
    "slurm": Sample(
        "slurm/sacct.txt",
        (
            {
                "job": "9002_3", "submit_time": 0.0, "duration": 90000.0, "num_gpus": 6.0, "user": "bob",
                "tenant": "lab2", "status": "cancelled", "attempts": 3, "application": "sweep",
                "num_nodes": 2, "queueing_delay": 0.0, "partition": "gpu", "gpu_type": None, "array_limit": 2,
            },
            {"job": "9001", "submit_time": 3600.0, "num_gpus": 4.0, "queueing_delay": 300.0},
            {"job": "9005", "submit_time": 18000.0, "duration": 1800.0, "status": "running", "tenant": "gpu"},
        ),
        {"job step, counted with its job": 2, NO_GPU: 1, NEVER_RAN: 3},
        {
            "was running when last seen: its duration is a lower bound": 1,
            "GPUs of several types, which can be replayed on any one": 1,
        },
        "2024-03-01T09:00:00+00:00",
    ),
}  # fmt: skip
