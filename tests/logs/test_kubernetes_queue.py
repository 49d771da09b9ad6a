"""Pods and Workloads of Kueue that run or wait at present."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from polluxsim.cli.main import main
from polluxsim.logs.site.kubernetes_queue import read_kubernetes
from polluxsim.logs.site.queue import Queue, QueuedJob

NOW = datetime(2026, 3, 4, 14, tzinfo=UTC).timestamp()


def pod(name: str, gpus: int, **more: Any) -> dict[str, Any]:
    """Return a pod that waits, or that runs on `node` since `since`."""
    labels = {"training.kubeflow.org/job-name": more["group"]} if "group" in more else {}
    metadata = {"name": name, "namespace": "ml", "creationTimestamp": more.get("created", "2026-03-04T12:00:00Z")}
    requests = {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "4"}
    spec: dict[str, Any] = {"containers": [{"resources": {"requests": requests}}]} | more.get("spec", {})
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    if "node" in more:
        spec["nodeName"] = more["node"]
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": more["since"]}
    status = {"phase": more.get("phase", "Running" if "node" in more else "Pending"), "conditions": [condition]}
    return {"kind": "Pod", "metadata": metadata | {"labels": labels}, "spec": spec, "status": status}


def workload(name: str, pods: int, gpus: int, *conditions: tuple[str, str, str], **spec: Any) -> dict[str, Any]:
    """Return a Workload; conditions are triples of a type, a status and a time."""
    template = {"spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": gpus}}}]}}
    return {
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "ml", "creationTimestamp": "2026-03-04T12:00:00Z"},
        "spec": {"queueName": "team", "podSets": [{"name": "main", "count": pods, "template": template}], **spec},
        "status": {
            "conditions": [
                {"type": kind, "status": status, "lastTransitionTime": time, "reason": "Pending"}
                for kind, status, time in conditions
            ]
        },
    }


def write(path: Path, *items: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"apiVersion": "v1", "items": items, "kind": "List"}), encoding="utf-8")
    os.utime(path, (NOW, NOW))
    return path


def by_name(queue: Queue) -> dict[str, QueuedJob]:
    return {job.name: job for job in queue.jobs}


def test_pods_of_a_job_are_one_job(tmp_path: Path) -> None:
    queue = read_kubernetes(write(
        tmp_path / "pods.json",
        pod("a-0", 8, group="a", node="g1", since="2026-03-04T13:00:00Z"),
        pod("a-1", 8, group="a", node="g2", since="2026-03-04T13:00:10Z"),
        pod("b-0", 4, group="b"),
        pod("b-1", 4, group="b"),
        pod("c", 1, spec={"activeDeadlineSeconds": 600, "priority": 7, "nodeSelector": {
            "nvidia.com/gpu.product": "Tesla-T4"}}),
        pod("d", 1, spec={"schedulingGates": [{"name": "wait"}]}),
        pod("e", 0, node="g1", since="2026-03-04T13:00:00Z"),
        pod("f", 1, phase="Succeeded"),
    ))  # fmt: skip
    jobs = by_name(queue)
    assert (queue.time, queue.time_from) == (NOW, "when the file was written; --taken gives another")
    assert queue.left_out == {"pods without GPUs": 1, "pods that have ended or are ending": 1}
    running = jobs["ml/a"]
    assert (running.num_gpus, running.gpus_per_task, running.started) == (16, 8, NOW - 3600)
    assert running.placement == (("g1", 8), ("g2", 8))
    assert (jobs["ml/b"].num_gpus, jobs["ml/b"].gpus_per_task, jobs["ml/b"].started) == (8, 4, None)
    assert (jobs["ml/c"].time_limit, jobs["ml/c"].priority, jobs["ml/c"].gpu_type) == (600, 7, "Tesla-T4")
    assert jobs["ml/d"].kept_out == "are held (scheduling gates)"


def test_waiting_pods_of_a_job_that_runs_are_a_job_of_their_own(tmp_path: Path) -> None:
    jobs = by_name(read_kubernetes(write(
        tmp_path / "pods.json",
        pod("a-0", 8, group="a", node="g1", since="2026-03-04T13:00:00Z"),
        pod("a-1", 8, group="a"),
    )))  # fmt: skip
    assert {name: (job.num_gpus, job.is_running) for name, job in jobs.items()} == {
        "ml/a": (8, True),
        "ml/a+": (8, False),
    }


def test_workloads(tmp_path: Path) -> None:
    queue = read_kubernetes(write(
        tmp_path / "workloads.json",
        workload("runs", 2, 8, ("Admitted", "True", "2026-03-04T13:30:00Z"), maximumExecutionTimeSeconds=7200),
        workload("waits", 1, 4, ("QuotaReserved", "False", "2026-03-04T12:00:00Z"), priority=100),
        workload("held", 1, 4, active=False, priorityClassRef={"name": "high"}),  # as v1beta2 names it
        workload("done", 1, 4, ("Finished", "True", "2026-03-04T13:00:00Z")),
    ))  # fmt: skip
    jobs = by_name(queue)
    assert list(jobs) == ["ml/runs", "ml/waits", "ml/held"]
    assert (jobs["ml/runs"].started, jobs["ml/runs"].gpus_per_task) == (NOW - 1800, 8)
    assert jobs["ml/runs"].time_limit == 7200
    assert (jobs["ml/waits"].priority, jobs["ml/waits"].partitions) == (100, ("team",))
    assert (jobs["ml/held"].kept_out, jobs["ml/held"].qos) == ("are held (spec.active is false)", "high")
    assert queue.left_out == {"workloads that have finished": 1}
    assert list(queue.notes) == [
        "the quotas of Kueue's ClusterQueues are not modelled: a workload starts when GPUs are free"
    ]


def test_a_waiting_pod_starts_when_a_running_job_reaches_its_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = {"activeDeadlineSeconds": 7200}
    pods = write(
        tmp_path / "pods.json",
        pod("a", 8, node="g1", since="2026-03-04T13:00:00Z", spec=limit),  # until 15:00
        pod("b", 8, node="g2", since="2026-03-04T13:30:00Z", spec=limit),  # until 15:30
        pod("c", 8, created="2026-03-04T13:40:00Z", spec=limit),
        pod("d", 4, created="2026-03-04T13:50:00Z", spec=limit),
    )
    nodes = tmp_path / "nodes.json"
    items = [{"kind": "Node", "metadata": {"name": name}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}
             for name in ("g1", "g2")]  # fmt: skip
    nodes.write_text(json.dumps({"apiVersion": "v1", "items": items}), encoding="utf-8")
    assert main(["when", str(pods), "--site", str(nodes), "--json"]) == 0
    starts = {row["job"]: row["start_p50"] for row in json.loads(capsys.readouterr().out)}
    assert starts == {"ml/c": 3600.0, "ml/d": 5400.0}
