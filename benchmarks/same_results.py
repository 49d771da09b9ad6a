"""Check that runs leave the same bytes as the recorded runs in `same_results.json`.

    python benchmarks/same_results.py [--data ../shared/data] [--only tiresias] [--write FILE]

The runs are:

- 1,440 runs of drawn jobs on drawn clusters, in exact time and in whole seconds, with and without interference;
- the published workloads 1 and 6, and a realistic workload;
- three runs on a cluster that grows;
- the default run under four policies;
- runs in each kind of world (failures, job failures, spot nodes, shared GPUs, GPU types, CPUs and memory, elastic
  nodes, batch size rules) under several policies each.

The first three kinds of run hash the fields of jobs, rounds, allocations and reasons that existed when they were first
recorded. The others hash every field of every record. Allocations of one instant count in any order. With `--write`,
the hashes are written to a file. All runs take some minutes on one core.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from polluxsim.applications.folder import ProfileFolder
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import simulate
from polluxsim.hardware.clusters import Cluster
from polluxsim.metrics.rounds import every_round
from polluxsim.policies.elastic.cluster_size import Autoscaler
from polluxsim.policies.elastic.true_times import Optimus
from polluxsim.policies.ordered.attained_service import Tiresias
from polluxsim.policies.ordered.classic import Fifo, Srtf
from polluxsim.policies.pollux.genetic import GeneticSearch
from polluxsim.policies.pollux.policy import Pollux
from polluxsim.run.composing import compose
from polluxsim.run.execution import Execution
from polluxsim.workloads.workload import Job, OneJob, read_workload

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from odd_jobs import write_jobs  # noqa: E402
from toy import ToyProfile, toy_job, toy_workload  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from polluxsim.policies.contract.policy import Policy
    from polluxsim.records.results import Result

    # A name, what is run, and the round interval [s].
    Case = tuple[str, Callable[[], Result], float]

INTERVAL = 60.0
JOB_FIELDS = 13
"""Fields of a job's record at that time; more have come since."""

WORLD_JOB_FIELDS = 33
"""Fields of a job's record, without `job_name` and `qos`, when the hashes of the worlds were recorded."""

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
    hashes = {
        name: digest_of_all(run()) if name.startswith("world ") else digest(run(), interval)
        for name, run, interval in chosen
    }
    if options.write:
        options.write.write_text(json.dumps(hashes, indent=0) + "\n")
        return
    known = json.loads((HERE / "same_results.json").read_text())
    different = [name for name, value in hashes.items() if known.get(name) != value]
    print(*different, f"{len(hashes) - len(different)} of {len(hashes)} runs the same", sep="\n")
    sys.exit(bool(different))


def digest(result: Result, interval: float) -> str:
    """Return a hash of what a run left."""
    jobs = [record[:JOB_FIELDS] for record in result.job_records]
    rounds = [(*record[:-1], f"{record.cost:.9g}") for record in every_round(result, interval)]
    return hash_of(jobs, rounds, result.allocation_records, result.reason_records, result.end_time)


def digest_of_all(result: Result) -> str:
    """Return a hash of every record of a run, without wall-clock times."""
    tables = (
        [record[:WORLD_JOB_FIELDS] for record in result.job_records],
        result.round_records,
        sorted(result.allocation_records),
        result.reason_records,
        result.outage_records,
        result.checkpoint_records,
        result.sharing_records,
        result.host_records,
        *([result.start_records] if result.start_records else ()),
        *([result.chooser_records] if result.chooser_records else ()),
    )
    parts = [[*map(_plain, table)] for table in tables]
    return hashlib.sha256(repr((parts, result.end_time, result.gpu_seconds)).encode()).hexdigest()[:16]


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
    yield from worlds()


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


FAILING = ("cluster.num_nodes=4", "cluster.gpus_per_node=2", "cluster/failures=drawn", "cluster.failures.rate=40000")
RACKS = ("cluster.failures.group_size=2", "cluster.failures.group_rate=9000")
CRASHING = ("cluster.num_nodes=3", "engine/job_failures=drawn", "engine.job_failures.rate=1.5")
MIXED = ("cluster=mixed", "cluster.groups=[[1,4,t4],[1,4,rtx2080ti],[1,2,a100-40]]")
WORLDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "failures": (FAILING, ("fifo", "easy", "tiresias", "srtf", "optimus", "las", "quotas", "afs", "themis")),
    "interval checkpoints": (
        (*FAILING, "engine/checkpoints=interval", "engine.checkpoints.every=300", "cluster.failures.repair_spread=0.5"),
        ("fifo", "easy", "tiresias", "srtf", "optimus-online", "gandiva-fair", "elastic-edf"),
    ),
    "epoch checkpoints": ((*FAILING, "engine/checkpoints=epoch"), ("fifo", "tiresias", "slaq", "multifactor")),
    "young-daly": (
        (
            *FAILING,
            "engine/checkpoints=young-daly",
            "cluster.failures.group_size=2",
            "cluster.failures.group_rate=9000",
        ),
        ("fifo", "srtf", "conservative", "optimus"),
    ),
    "repairs": (
        (*FAILING, "cluster/repairs=limited", "cluster.repairs.crews=1", "cluster.repairs.spare_nodes=1"),
        ("fifo", "tiresias", "las"),
    ),
    "ask at failures": ((*FAILING, "engine.ask_at_failures=true"), ("fifo", "srtf", "tiresias")),
    "spot": (
        ("cluster.num_nodes=4", "cluster/spot=reclaimed", "cluster.spot.rate=30000", "engine/checkpoints=interval"),
        ("fifo", "easy", "tiresias", "optimus", "afs"),
    ),
    "job failures": (CRASHING, ("fifo", "tiresias", "srtf", "optimus", "drf")),
    "job failures with checkpoints": ((*CRASHING, "engine/checkpoints=interval"), ("fifo", "tiresias", "jsa")),
    "interleaved": (("cluster.num_nodes=2", "engine/sharing=interleaved"), ("muri-l", "muri-s", "gandiva")),
    "leftovers": (("cluster.num_nodes=2", "engine/sharing=leftovers"), ("antman",)),
    "sharing with failures": ((*FAILING, "engine/sharing=interleaved"), ("muri-l", "gandiva")),
    "types": (MIXED, ("fifo", "easy", "srtf", "tiresias", "hadar", "allox", "optimus", "drf")),
    "types with failures": (
        (*MIXED, "cluster/failures=drawn", "cluster.failures.rate=40000", "engine/checkpoints=interval"),
        ("fifo", "srtf", "allox", "hadar"),
    ),
    "restart delays": (
        (*MIXED, "+engine.restart_delays.cifar10={t4: 90, rtx2080ti: 20}", "+engine.restart_delays.ncf=45"),
        ("fifo", "srtf", "tiresias"),
    ),
    "free moves": (("cluster.num_nodes=3", "engine.free_moves=true"), ("tiresias", "optimus", "afs")),
    "batch rules": (("cluster.num_nodes=3", "agent=kungfu"), ("fifo", "tiresias", "optimus")),
    "divided batches": ((*MIXED, "agent=omnilearn"), ("fifo", "srtf")),
    "elastic": (("cluster=elastic", "cluster.num_nodes=5"), ("scaled", "fifo", "autoscale-goodput")),
    "elastic with failures": (
        ("cluster=elastic", "cluster.num_nodes=5", "cluster/failures=drawn", "cluster.failures.rate=40000"),
        ("scaled", "fifo"),
    ),
}
HOSTS = ("cluster=synergy-128", "cluster.groups=[{nodes: 2, gpus: 4, type: v100, cpus: 12, memory: 250}]")
NEED_PROFILES = {"optimus", "optimus-online", "slaq", "autoscale-goodput"}
DEFAULT_RUNS = ("pollux", "tiresias", "optimus", "fifo")


def worlds() -> Iterator[Case]:
    """Yield the default runs, and runs in each kind of world. The jobs of a world are the same under all policies."""
    for policy in DEFAULT_RUNS:
        yield _world("default", (f"policy={policy}",))
    for policy in ("synergy", "fifo", "srtf", "drf"):
        words = (*HOSTS, "workload=synergy", "workload.num_jobs=60", "workload.jobs_per_hour=20", f"policy={policy}")
        yield _world("cpus", words)
    for world, (words, policies) in WORLDS.items():
        for policy in policies:
            yield _world(world, (*words, f"policy={policy}", "engine.horizon=20000"), jobs=20)


def _world(world: str, words: tuple[str, ...], jobs: int = 0) -> Case:
    """Return a run of composed settings, with a number of drawn jobs unless it is 0."""
    (policy,) = (word.removeprefix("policy=") for word in words if word.startswith("policy="))

    def run() -> Result:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "jobs.csv"
            if jobs:
                write_jobs(path, random.Random(world), jobs, 1.0 if policy in NEED_PROFILES else 0.8)
            added = ("workload=file", f"workload.path={path}") if jobs else ()
            return Execution(compose([*words, *added])).simulate().result

    return f"world {world} {policy}", run, INTERVAL


if __name__ == "__main__":
    main()
