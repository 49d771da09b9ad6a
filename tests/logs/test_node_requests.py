"""What logs say about the nodes of a job: its number of nodes, or the GPUs that must be on one node."""

import json
from pathlib import Path

import pytest

from polluxsim.logs.formats.base import gpus_together
from polluxsim.logs.importing import import_trace
from polluxsim.logs.trace_table import TraceJob, read_trace

SACCT = "JobID|Submit|Start|End|State|NNodes|AllocTRES|SubmitLine"


def imported(tmp_path: Path, log_format: str, text: str, **options: str) -> dict[str, TraceJob]:
    """Return the jobs of a log by name."""
    log, trace = tmp_path / "log.txt", tmp_path / "trace.parquet"
    log.write_text(text, encoding="utf-8")
    import_trace(log_format, log, trace, **options)
    return {job.job: job for job in read_trace(trace)[1]}


def sacct_row(job: str, nodes: int, gpus: int, command: str = "") -> str:
    times = "2026-03-01T08:00:00|2026-03-01T08:00:00|2026-03-01T09:00:00"
    return f"{job}|{times}|COMPLETED|{nodes}|cpu=8,gres/gpu={gpus},node={nodes}|{command}"


@pytest.mark.parametrize(
    ("nodes", "gpus", "command", "gpus_per_task"),
    [
        (1, 4, "sbatch --gres=gpu:4 train.sh", None),
        (2, 16, "sbatch -N2 --gres=gpu:8 train.sh", None),
        (2, 11, "sbatch --gpus=11 train.sh", 1),  # nodes with different numbers of GPUs
        (3, 2, "sbatch -N3 --gpus=2 train.sh", None),  # a node without a GPU of the job
        (2, 12, "sbatch --gpus-per-task=a100:4 train.sh", 4),
        (2, 12, "sbatch --gpus-per-task 2 -n 6 train.sh", 2),
        (2, 12, "sbatch --gpus-per-task=5 train.sh", None),  # not what the job got
    ],
)
def test_sacct(tmp_path: Path, nodes: int, gpus: int, command: str, gpus_per_task: int | None) -> None:
    job = imported(tmp_path, "slurm", f"{SACCT}\n{sacct_row('7', nodes, gpus, command)}\n")["7"]
    assert (job.num_nodes, job.gpus_per_task, job.num_gpus) == (nodes, gpus_per_task, gpus)


@pytest.mark.parametrize(("second", "gpus_per_task"), [((1, 4), None), ((1, 8), 4), ((2, 16), 4)])
def test_the_parts_of_a_heterogeneous_job(tmp_path: Path, second: tuple[int, int], gpus_per_task: int | None) -> None:
    rows = [SACCT, sacct_row("7+0", 1, 4), sacct_row("7+1", *second)]
    job = imported(tmp_path, "slurm", "\n".join(rows))["7+0"]
    assert (job.num_nodes, job.gpus_per_task) == (1 + second[0], gpus_per_task)


def test_a_table(tmp_path: Path) -> None:
    text = "submit,duration,gpus,nodes,tasks\n0,60,8,2,\n1,60,8,,2\n"
    jobs = imported(tmp_path, "table", text, columns="gpus_per_task=tasks")
    assert [(job.num_nodes, job.gpus_per_task) for job in jobs.values()] == [(2, None), (None, 2)]


def workload(*pod_sets: tuple[int, int]) -> dict[str, object]:
    """Return a Workload of Kueue that has finished, with pairs of a number of pods and the GPUs of each."""
    condition = {"status": "True", "lastTransitionTime": "2026-03-01T08:10:00Z"}
    finished = condition | {"type": "Finished", "lastTransitionTime": "2026-03-01T09:00:00Z"}
    podsets = []
    for number, (count, gpus) in enumerate(pod_sets):
        containers = [{"resources": {"requests": {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}}}]
        podsets.append({"name": f"set{number}", "count": count, "template": {"spec": {"containers": containers}}})
    return {
        "kind": "Workload",
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "metadata": {"name": "train", "creationTimestamp": "2026-03-01T08:00:00Z"},
        "spec": {"podSets": podsets},
        "status": {"conditions": [condition | {"type": "Admitted"}, finished]},
    }


@pytest.mark.parametrize(
    ("pod_sets", "gpus_per_task"), [([(4, 8)], 8), ([(1, 0), (4, 2)], 2), ([(1, 4), (1, 6)], 2), ([(2, 1)], 1)]
)
def test_the_pods_of_kueue(tmp_path: Path, pod_sets: list[tuple[int, int]], gpus_per_task: int) -> None:
    (job,) = imported(tmp_path, "kueue", json.dumps({"items": [workload(*pod_sets)]})).values()
    assert (job.num_nodes, job.gpus_per_task) == (None, gpus_per_task)


def test_a_pod_that_shares_a_gpu_says_nothing_about_nodes() -> None:
    assert gpus_together([0.25]) is None
