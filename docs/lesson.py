"""Write the page on which goodput and a round of Pollux can be played with: `python docs/lesson.py`.

One HTML file that needs no network. All numbers are those of the shipped cards and of a run, none is made up here:
throughput by GPUs and batch size as the engine takes it, efficiency by epoch, and rounds as Pollux put them.
"""

from __future__ import annotations

import argparse
import json
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polluxsim.applications.card_files import read_cards
from polluxsim.common.shipped import shipped
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation
from polluxsim.engine.truth import GroundTruth
from polluxsim.hardware.clusters import Cluster
from polluxsim.look.colours import application_colour
from polluxsim.models.batch_size import split_batch_size
from polluxsim.models.efficiency import efficiency
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.policies.pollux.problem import SPEEDUP_FLOOR, SpeedupTables, build_problem
from polluxsim.workloads.workload import Job, Workload

if TYPE_CHECKING:
    from polluxsim.models.profile import Profile
    from polluxsim.policies.contract.view import ClusterView

PAGE = Path(__file__).parent / "lesson" / "lesson.html"
TITLES = {
    "bert": "BERT",
    "cifar10": "ResNet-18 on CIFAR-10",
    "deepspeech2": "DeepSpeech2",
    "imagenet": "ResNet-50 on ImageNet",
    "ncf": "NeuMF on MovieLens",
    "yolov3": "YOLOv3",
}
GPUS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
PER_NODE, NODES = 4, 4
BATCHES, MOMENTS = 25, 21
P = -1.0
MOST_ROUNDS = 12

# Jobs of the small cluster on the page: application and time of submission [s].
ARRIVALS = (
    ("cifar10", 0.0),
    ("bert", 30.0),
    ("yolov3", 60.0),
    ("cifar10", 300.0),
    ("ncf", 600.0),
    ("deepspeech2", 900.0),
)


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "-o", "--output", type=Path, default=PAGE.parent.parent / "lesson.html", help="default: %(default)s"
    )
    options = parser.parse_args()
    options.output.write_text(page(), encoding="utf-8")


def page() -> str:
    """Return the text of the page."""
    profiles = read_cards(shipped("traces"))
    data = {
        "gpus": GPUS,
        "applications": [_application(name, profile) for name, profile in profiles.items() if name in TITLES],
        "rounds": rounds(profiles),
        "power": P,
        "floor": SPEEDUP_FLOOR * PER_NODE,
        "nodes": [PER_NODE] * NODES,
    }
    text = PAGE.read_text(encoding="utf-8")
    for name in ("lesson.css", "lesson.js"):
        text = text.replace(f"/* {name} */", (PAGE.parent / name).read_text(encoding="utf-8"))
    return text.replace('"DATA"', json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/"))


def _application(name: str, profile: Profile) -> dict[str, Any]:
    limits, truth = profile.application, GroundTruth(profile)
    wanted = np.geomspace(limits.init_batch_size, limits.max_batch_size, BATCHES)
    batches = sorted({round(size) for size in wanted})
    throughput = []
    for gpus in GPUS:
        shape = (min(gpus, PER_NODE),) * ceil(gpus / PER_NODE)
        row: list[float | None] = []
        for size in batches:
            if size // gpus < limits.min_atomic_batch_size or sum(shape) != gpus:
                row.append(None)
                continue
            choice = split_batch_size(limits, size, gpus)
            row.append(_short(choice.batch_size(gpus) / truth.optimiser_step_time(shape, choice)))
        throughput.append(row)
    epochs = [round(moment * (limits.num_epochs - 1) / (MOMENTS - 1)) for moment in range(MOMENTS)]
    worth = [
        [_short(efficiency(profile.gradient_statistics(limits.init_batch_size, epoch), size / limits.init_batch_size))
         for size in batches]
        for epoch in epochs
    ]  # fmt: skip
    return {
        "name": name, "title": TITLES[name], "colour": application_colour(name), "initial": limits.init_batch_size,
        "epochs": epochs, "batches": batches, "throughput": throughput, "efficiency": worth,
    }  # fmt: skip


def rounds(profiles: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rounds of a small run in which the GPUs of a job changed, with Pollux's problem and its decision."""
    names = [f"{application}-{number}" for number, (application, _) in enumerate(ARRIVALS)]
    jobs = tuple(
        Job(name, time, application, 1, profiles[application].application.init_batch_size)
        for name, (application, time) in zip(names, ARRIVALS, strict=True)
    )
    policy = Pollux(p=P)
    cluster = Cluster.uniform(NODES, PER_NODE)
    run = Simulation(Scenario.under(policy, Workload(jobs), profiles, cluster, EngineSettings()), seed=1)
    found: list[dict[str, Any]] = []
    tables = SpeedupTables()
    while len(found) < MOST_ROUNDS and (view := run.advance()) is not None:
        problem = build_problem(view, tables, P, avoid_interference=True)
        decision = policy.allocate(view, run.rng)
        after = {job_id: tuple(placement) for job_id, placement in decision.allocation.items()}
        if any(after.get(job.job_id, ()) != job.placement for job in view.jobs):
            found.append(_round(view, problem, decision.fitness, after))
        run.commit(decision)
    return found


def _round(view: ClusterView, problem: Any, fitness: float | None, after: dict[str, Any]) -> dict[str, Any]:
    # People count 1 as the speed of the fair share.
    unscaled = view.num_gpus / len(view.gpus_per_node)
    jobs = {job.job_id: job for job in view.jobs}
    rows = []
    for row, job_id in enumerate(problem.job_ids):
        most = int(problem.max_replicas[row])
        speedups = problem.speedups[row, :, : most + 1] * unscaled
        rows.append({
            "job": job_id, "application": job_id.rpartition("-")[0], "knows": jobs[job_id].goodput is not None,
            "before": jobs[job_id].placement, "after": after.get(job_id, ()),
            "factor": _short(float(problem.restart_factors[row])),
            "speedups": [[_short(value) for value in kind] for kind in speedups.tolist()],
        })  # fmt: skip
    return {
        "time": view.time,
        "share": ceil(view.num_gpus / len(jobs)),
        "fitness": _short(fitness * unscaled),
        "jobs": rows,
    }


def _short(value: float) -> float:
    return float(f"{value:.5g}")


if __name__ == "__main__":
    main()
