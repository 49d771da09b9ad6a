"""Every policy does in odd worlds what it did when these runs were recorded, so that no change passes unseen.

The laws of each policy stand in its own tests. Who changes what one does on purpose records its runs anew, and has the
difference reviewed: `PYTHONPATH=tests python tests/policies/test_recorded_runs.py`.
"""

from __future__ import annotations

import csv
import random
from functools import cache
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
import scipy
from odd_jobs import POLICIES, write_jobs
from omegaconf import OmegaConf

from polluxsim.common.shipped import shipped
from polluxsim.run.composing import compose
from polluxsim.run.execution import Execution
from polluxsim.run.spec import RunSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polluxsim.records.results import Result

RECORDED = Path(__file__).with_name("recorded_runs.csv")
SHARING = {"antman": "leftovers", "gandiva": "interleaved", "muri-l": "interleaved", "muri-s": "interleaved"}
WORLDS = {
    "queue": ("cluster.num_nodes=3",),
    "types": ("cluster=mixed", "cluster.groups=[[1,4,t4],[1,4,rtx2080ti],[1,2,a100-40]]"),
    "failing": (
        *("cluster.num_nodes=4", "cluster.gpus_per_node=2", "engine/checkpoints=interval"),
        *("cluster/failures=rsc-1", "cluster.failures.rate=40000", "cluster/spot=reclaimed", "cluster.spot.rate=9000"),
    ),
    "growing": ("cluster=elastic", "cluster.num_nodes=5"),
}
GROWING = {"autoscale-goodput", "autoscale-throughput", "scaled", "fifo"}
FOR_PROFILES = {
    *("autoscale-goodput", "autoscale-throughput", "optimus", "optimus-online", "pollux", "pollux-remaining", "slaq"),
}
ONE_TYPE = {"autoscale-goodput", "autoscale-throughput"}
SOLVING = {
    *("finish-time-fairness", "gandiva-fair", "max-min", "max-sum", "min-makespan", "water-filling", "shockwave"),
    *("muri-l", "muri-s", "sia"),
}
"""Another release of SciPy may break ties between plans another way."""
SEARCHING = {"autoscale-goodput", "autoscale-throughput", "pollux", "pollux-remaining"}
"""Another processor may round so that another plan comes first."""
CASES = [
    (policy, world)
    for policy in POLICIES
    for world in WORLDS
    if (world != "growing" or policy in GROWING) and (world != "types" or policy not in ONE_TYPE)
]


def summary_of(result: Result) -> dict[str, str]:
    """Return what a run comes to: times, what was given when, and what the policy said of it."""
    jobs, changes = result.job_records, result.allocation_records
    said = [
        (*each[:3], each.others, [f"{name} {value:.6g}" for name, value in each.numbers])
        for each in result.reason_records
    ]
    return {
        "mean JCT [s]": f"{fmean(job.jct for job in jobs if job.jct is not None):.2f}",
        "end [s]": f"{result.end_time:.2f}",
        "GPU-hours": f"{sum(job.gpu_seconds for job in jobs) / 3600:.4f}",
        "restarts": f"{sum(job.num_restarts for job in jobs)}",
        "changes": f"{len(changes)}",
        "hash of changes": _hash((f"{each.time:.3f}", *each[1:]) for each in changes),
        "hash of reasons": _hash(said),
    }


def _hash(rows: Iterable[tuple[object, ...]]) -> str:
    return f"{crc32(repr(sorted(map(repr, rows))).encode()):08x}"


@cache
def composed_world(world: str, policy: str | None) -> RunSpec:
    """Return the configuration of a world, under a policy that chooses something itself."""
    words = [*WORLDS[world], "workload.path=nowhere", "engine.horizon=15000"]
    words += [f"policy={policy}"] if policy else []
    words += [f"engine/sharing={SHARING[policy]}"] if policy in SHARING else []
    return compose(words)


def run_of(policy: str, world: str, folder: Path) -> dict[str, str]:
    write_jobs(folder / "jobs.csv", random.Random(world), 16, 1.0 if policy in FOR_PROFILES else 0.8)
    own = OmegaConf.load(shipped("configs") / "policy" / f"{policy}.yaml")
    chooses = policy in SHARING or "defaults" in own
    spec = composed_world(world, policy if chooses else None).with_values(
        "workload", {"path": str(folder / "jobs.csv")}
    )
    if not chooses:
        spec = spec.with_settings("policy", OmegaConf.to_container(own))
    result = Execution(spec).simulate().result
    return summary_of(result)


@pytest.fixture(scope="module")
def recorded() -> dict[tuple[str, str], dict[str, str]]:
    with RECORDED.open(newline="") as file:
        return {(row.pop("policy"), row.pop("world")): row for row in csv.DictReader(file)}


@pytest.mark.parametrize(("policy", "world"), CASES)
def test_a_policy_does_what_it_did(
    policy: str, world: str, recorded: dict[tuple[str, str], dict[str, str]], tmp_path: Path
) -> None:
    known = recorded[policy, world]
    if policy in SOLVING and known["SciPy"] != scipy.__version__:
        pytest.skip(f"recorded with SciPy {known['SciPy']}, this is {scipy.__version__}")
    found = run_of(policy, world, tmp_path)
    if policy in SOLVING | SEARCHING:
        mean = float(known["mean JCT [s]"])
        assert float(found["mean JCT [s]"]) == pytest.approx(mean, rel=0.02 if policy in SOLVING else 0.1)
    else:
        assert found == {name: known[name] for name in found}


def main() -> None:
    """Record the runs anew."""
    with TemporaryDirectory() as folder:
        rows = [
            {"policy": policy, "world": world, **run_of(policy, world, Path(folder)), "SciPy": scipy.__version__}
            for policy, world in CASES
        ]
    with RECORDED.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
