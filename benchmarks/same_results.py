"""Check that runs leave the same bytes as the engine before it took turns did.

    python benchmarks/same_results.py [--data ../shared/data] [--only tiresias] [--write FILE]

1,440 runs of drawn jobs on drawn clusters, by exact time and by whole seconds, with and without interference, rigid
jobs among them; the published workloads 1 and 6 and a realistic one; and three on a cluster that grows. Of each, jobs,
rounds (those too that changed nothing), allocations and reasons are hashed and compared with `same_results.json`, which
the commit before that change left; the cost of a round, which is summed in another order, to nine digits. Allocations
of one instant count in any order. With `--write`, the hashes are written instead. Takes some minutes on one core.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.applications.folder import ProfileFolder
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.metrics.rounds import every_round
from polluxsim.policies.autoscaling import Autoscaler
from polluxsim.policies.fifo import Fifo
from polluxsim.policies.optimus import Optimus
from polluxsim.policies.pollux.genetic import GeneticSearch
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.policies.srtf import Srtf
from polluxsim.policies.tiresias import Tiresias
from polluxsim.types import Cluster
from polluxsim.workloads.workload import Job, OneJob, read_workload

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from toy import ToyProfile, toy_job, toy_workload  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from polluxsim.policies.view import Policy
    from polluxsim.records import Result

    # A name, what is run, and the round interval [s].
    Case = tuple[str, Callable[[], Result], float]

INTERVAL = 60.0
JOB_FIELDS = 13
"""Fields of a job's record at that time; more have come since."""

TOYS = {
    "toy": ToyProfile(seconds=0.5, epochs=(100.0, 250.0, 600.0)),
    "slow": ToyProfile(name="slow", seconds=4.0, epochs=(100.0, 200.0)),
}
POLICIES: dict[str, Callable[[], Policy]] = {
    "fifo": Fifo,
    "backfill": lambda: Fifo(backfill=True),
    "srtf": Srtf,
    "tiresias": lambda: Tiresias(queue_threshold=500.0),
    "optimus": Optimus,
    "pollux": lambda: Pollux(GeneticSearch(population=10, generations=5)),
}
BASELINES: dict[str, Callable[[], Policy]] = {"fifo": Fifo, "srtf": Srtf, "tiresias": Tiresias, "optimus": Optimus}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("POLLUXSIM_DATA", "../shared/data"))
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    chosen = [case for case in cases(Path(options.data) / "osdi21") if options.only in case[0]]
    hashes = {name: digest(run(), interval) for name, run, interval in chosen}
    if options.write:
        options.write.write_text(json.dumps(hashes, indent=0) + "\n")
        return
    known = json.loads((HERE / "same_results.json").read_text())
    different = [name for name, value in hashes.items() if known[name] != value]
    print(*different, f"{len(hashes) - len(different)} of {len(hashes)} runs the same", sep="\n")
    sys.exit(bool(different))


def digest(result: Result, interval: float) -> str:
    """Return a hash of what a run left."""
    jobs = [record[:JOB_FIELDS] for record in result.job_records]
    rounds = [(*record[:-1], f"{record.cost:.9g}") for record in every_round(result, interval)]
    return hash_of(jobs, rounds, result.allocation_records, result.reason_records, result.end_time)


def hash_of(
    jobs: Iterable[tuple[object, ...]],
    rounds: Iterable[tuple[object, ...]],
    allocations: Iterable[tuple[object, ...]],
    reasons: Iterable[tuple[object, ...]],
    end_time: float,
) -> str:
    """Return a hash of records as plain values; those of allocations in any order."""
    parts = ([*map(_plain, jobs)], [*map(_plain, rounds)], sorted(map(_plain, allocations)), [*map(_plain, reasons)])
    return hashlib.sha256(repr((parts, end_time)).encode()).hexdigest()[:16]


def _plain(record: tuple[object, ...]) -> str:
    return repr(tuple(str(value) if isinstance(value, str) else value for value in record))


def cases(osdi21: Path) -> Iterator[Case]:
    """Yield all runs."""
    for seed in range(60):
        yield from drawn(seed)
    yield from published(osdi21)
    yield from growing()


def drawn(seed: int) -> Iterator[Case]:
    """Yield runs of one drawn workload on one drawn cluster, under every policy and rule."""
    rng = random.Random(seed)
    cluster = Cluster(tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 4))))
    jobs = [
        toy_job(
            f"job-{i}",
            rng.randint(0, 40) * 25.0 + rng.choice([1e-3, 0.0]),
            rng.randint(1, cluster.num_gpus),
            rng.choice(["toy", "slow"]),
        )
        for i in range(rng.randint(1, 8))
    ]
    mixed = [
        Job.rigid(job.job_id, job.submit_time, job.num_replicas, rng.randint(1, 80) * 12.5)
        if rng.random() < 0.5
        else job
        for job in jobs
    ]
    for name, policy in POLICIES.items():
        chosen = mixed if seed % 2 and name in ("fifo", "backfill", "srtf", "tiresias") else jobs
        for whole_seconds in (False, True):
            for interference in (0.0, 0.4):
                settings = EngineSettings(whole_seconds=whole_seconds, interference=interference)
                yield (
                    f"{seed} {name} {whole_seconds} {interference}",
                    lambda chosen=chosen, policy=policy, settings=settings: simulate(  # type: ignore[misc]
                        toy_workload(*chosen), TOYS, cluster, policy(), settings=settings, seed=1
                    ),
                    INTERVAL,
                )


def published(osdi21: Path) -> Iterator[Case]:
    """Yield runs of the published workloads by measured profiles."""
    profiles, cluster = ProfileFolder(str(osdi21)).load(), Cluster.uniform(16, 4)

    def case(name: str, file: str, policy: Callable[[], Policy], settings: EngineSettings) -> Case:
        workload = read_workload(osdi21 / file)
        run = lambda: simulate(workload, profiles, cluster, policy(), settings=settings)  # noqa: E731
        return name, run, settings.round_interval

    exact, whole = EngineSettings(), EngineSettings(whole_seconds=True)
    for number in "16":
        for name, policy in BASELINES.items():
            for rule in (whole, exact):
                file = f"workloads/workload-{number}.csv"
                yield case(f"workload {number} {name} {rule.whole_seconds}", file, policy, rule)
    sixth = "workloads/workload-6.csv"
    every_90 = EngineSettings(round_interval=90.0, restart_delay=45.0, reasons="rounds")
    until = EngineSettings(round_interval=97.0, horizon=20_000.0)
    yield case("realistic 3 tiresias", "workloads-realistic/workload-3.csv", Tiresias, whole)
    yield case("workload 6 tiresias interference", sixth, Tiresias, EngineSettings(interference=0.3))
    yield case("workload 6 optimus interval", sixth, Optimus, every_90)
    yield case("workload 6 srtf horizon", sixth, Srtf, until)


def growing() -> Iterator[Case]:
    """Yield runs on clusters whose number of nodes changes."""
    cards = ProfileFolder(None).load()
    cluster = Cluster.elastic(16, 1, 4, 120.0, 3.912)
    for measure in ("goodput", "throughput"):
        yield (
            f"growing {measure}",
            lambda measure=measure: simulate(  # type: ignore[misc]
                OneJob("imagenet").load(cards), cards, cluster, Autoscaler(measure=measure)
            ),
            INTERVAL,
        )
    three = toy_workload(*(toy_job(f"{i}", 0.0, 4) for i in range(3)))
    yield "growing fifo", lambda: simulate(three, TOYS, Cluster.elastic(4, 1, 4, 60.0, 1.0), Fifo()), INTERVAL


if __name__ == "__main__":
    main()
