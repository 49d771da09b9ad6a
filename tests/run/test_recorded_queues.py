"""Snapshots of a real Slurm (22.05): its queue, its nodes, and the starts that its backfill plans."""

import gzip
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from polluxsim.hardware.clusters import Cluster
from polluxsim.logs.site.nodes import NodeList, read_nodes
from polluxsim.logs.site.queue import Queue
from polluxsim.logs.site.queue_files import read_queue
from polluxsim.run.composing import compose
from polluxsim.run.forecasts import forecast_of
from polluxsim.run.present import KnownSite, Situation, site_of
from polluxsim.run.resampling import FutureArrivals
from polluxsim.workloads.present import present_jobs

RECORDED = Path(__file__).parents[3] / "shared" / "slurm"

pytestmark = pytest.mark.skipif(
    not (RECORDED / "live.jsonl.gz").is_file(), reason="needs the recordings of Slurm in ../shared/slurm"
)


class Snapshot(NamedTuple):
    """The state of the cluster at one time."""

    queue: Queue
    text_nodes: NodeList
    json_nodes: NodeList
    plans: dict[str, float]  # start that Slurm plans for each waiting job, from the time of the queue [s]


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> list[Snapshot]:
    folder = tmp_path_factory.mktemp("snapshots")
    begin = json.loads((RECORDED / "live.json").read_text(encoding="utf-8"))["t0"]
    with gzip.open(RECORDED / "live.jsonl.gz", "rt", encoding="utf-8") as lines:
        return list(_read(folder, begin, map(json.loads, lines)))


def _read(folder: Path, begin: float, records: Iterator[dict[str, Any]]) -> Iterator[Snapshot]:
    for record in records:
        names = ("squeue", "scontrol", "sinfo")
        texts = (json.dumps(record["squeue"]), record["nodes"], json.dumps(record["sinfo"]))
        for name, text in zip(names, texts, strict=True):
            (folder / name).write_text(text, encoding="utf-8")
        if not record["squeue"]["jobs"]:
            continue
        queue = read_queue(folder / "squeue", UTC, begin + record["at"])
        plans = {}
        for line in record["start"].splitlines():
            job, _, _, start, *_ = line.split("|")
            if start != "N/A":
                plans[job] = datetime.fromisoformat(start).replace(tzinfo=UTC).timestamp() - queue.time
        yield Snapshot(queue, read_nodes(folder / "scontrol"), read_nodes(folder / "sinfo"), plans)


def test_text_and_json_have_the_same_nodes(snapshots: list[Snapshot]) -> None:
    for snapshot in snapshots:
        assert snapshot.text_nodes.groups == snapshot.json_nodes.groups
        assert snapshot.text_nodes.num_gpus == 16


def test_running_jobs_hold_gpus_of_their_nodes(snapshots: list[Snapshot]) -> None:
    assert len(snapshots) > 50
    num_running = 0
    for snapshot in snapshots:
        held = dict.fromkeys(snapshot.text_nodes.numbers, 0)
        for job in snapshot.queue.jobs:
            for node, gpus in job.placement:
                held[node] += gpus
            if job.is_running:
                num_running += 1
                assert sum(gpus for _, gpus in job.placement) == job.num_gpus
        assert all(gpus <= 4 for gpus in held.values())
    assert num_running > 200


def test_forecasts_are_not_later_than_the_plans_of_slurm(snapshots: list[Snapshot]) -> None:
    """If every job runs until its limit, the first waiting job mostly starts when Slurm plans it.

    Slurm's plans take whole nodes, so that Slurm plans many of the following jobs later.
    """
    settings = ["policy=conservative", "engine=log", "engine.round_interval=1"]
    spec = compose(settings)
    differences, of_first = [], []
    for snapshot in snapshots:
        if not snapshot.plans:
            continue
        groups = [group.as_setting() for group in snapshot.text_nodes.groups]
        site = site_of(spec, Cluster.of_groups(groups), snapshot.text_nodes.numbers)
        present = present_jobs(snapshot.queue, site)
        assert not present.kept_out
        known = KnownSite(Situation(spec, "squeue", present, site, None, FutureArrivals()))
        starts = {outlook.job: outlook.starts[0] for outlook in forecast_of(known, forks=1).outlooks}
        of_snapshot = [starts[job] - plan for job, plan in snapshot.plans.items()]
        differences += of_snapshot
        of_first.append(of_snapshot[0])
    assert len(differences) == 312
    assert np.mean(np.array(differences) <= 2) >= 0.97
    assert np.mean(np.abs(of_first) <= 2) >= 0.6
