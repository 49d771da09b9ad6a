"""How far answers about logs can be trusted: verdicts on drawn logs with a hidden cause, and coverage of intervals.

    python benchmarks/credible_answers.py verdicts --workers 2
    python benchmarks/credible_answers.py intervals --workers 2

`benchmarks/drawn_logs.py` draws the logs, without polluxsim. `verdicts` replays 50 logs with each hidden cause, and 100
without one, and prints how often the verdict is "not explained", and how often the first likely cause is
the hidden one. `intervals` takes 200 logs of four weeks without a hidden cause, and prints how
often the intervals of `log whatif` and `size` contain the value of a log of 60 weeks from the same cluster. The small
simulation of `drawn_logs.py` makes the replays, or with `--commands`, polluxsim. A log takes the commands some 60 s, so
take a part of the logs with `--share`: the output also says for how many logs the same intervals contain the values by
the commands and by the small simulation, which answers from all 200 logs in minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from drawn_logs import CAUSES, DAY, Drawn, World, as_sacct, draw_jobs, draw_world, mean_work, starts

from polluxsim.logs.importing import import_trace
from polluxsim.metrics.target import read_target
from polluxsim.statistics.blocks import FLOOR, Blocks
from polluxsim.statistics.estimates import Estimate
from polluxsim.studies import driver
from polluxsim.studies.launching import LocalWorkers
from polluxsim.studies.log_calibration import CalibrateRequest, calibrate
from polluxsim.studies.log_replays import LogWhatIfRequest, log_whatif
from polluxsim.studies.sizing import SizeRequest, hardest, size

LOGS = {"none": 100, "user-limits": 50, "second-partition": 50, "cpu-jobs": 50}
NAMES = {"user-limits": "limits of users", "second-partition": "partitions", "cpu-jobs": "jobs without GPUs"}
INTERVAL_LOGS, DAYS, LONG_DAYS = 200, 28.0, 420.0
GPUS, MORE = 24, 6  # of the cluster of the logs without a hidden cause, and additional ones
TARGET, LEAST, LIMIT = "p90 wait < 2 h", 20, 64  # of `size`, with the least and the largest number of GPUs


@contextmanager
def runs_here() -> Iterator[None]:
    """Make all runs of a sweep in this process, without the start of worker processes."""
    original = driver.LocalWorkers
    driver.LocalWorkers = lambda workers: LocalWorkers(1, in_this_process=True)  # type: ignore[misc, assignment]
    try:
        yield
    finally:
        driver.LocalWorkers = original  # type: ignore[misc]


def imported(world: World, folder: Path) -> Path:
    """Draw a log, import it, and return its path."""
    jobs = draw_jobs(world)
    (folder / "sacct.txt").write_text(as_sacct(jobs, starts(world, jobs)))
    import_trace("slurm", folder / "sacct.txt", folder / "log.parquet")
    return folder / "log.parquet"


class Judged(NamedTuple):
    """The verdict on one drawn log."""

    cause: str
    is_explained: bool
    explained: float  # share of the waits
    first: str  # name of the first likely cause; "" without one


def judged(cause: str, seed: int) -> Judged:
    """Return the verdict on a drawn log of two weeks, with which `log calibrate` and `log whatif` begin."""
    world = draw_world(cause, seed, days=14.0)
    with TemporaryDirectory() as name, runs_here():
        log = imported(world, Path(name))
        gpus = sum(world.gpus.values())
        request = CalibrateRequest(log, [gpus], ("fifo", "easy"), gpus_per_node=1, folder=Path(name) / "runs")
        verdict = calibrate(request).verdict
    first = verdict.causes[0].name if verdict.causes else ""
    return Judged(cause, verdict.is_credible, verdict.whole.explained, first)


def verdicts(workers: int, share: float) -> None:
    """Print how often `log whatif` says "not explained", by hidden cause."""
    with ProcessPoolExecutor(workers) as pool:
        plan = [(cause, seed) for cause in CAUSES for seed in range(round(LOGS[cause] * share))]
        results = list(pool.map(judged, *zip(*plan, strict=True)))
    for cause in CAUSES:
        own = [result for result in results if result.cause == cause]
        doubted = sum(not result.is_explained for result in own)
        explained = np.quantile([result.explained for result in own], [0, 0.1, 0.5, 0.9, 1])
        line = f"{cause:<18}not explained {doubted} of {len(own)}; explained share " + ", ".join(
            f"{quantile:.2f}" for quantile in explained
        )
        if cause in NAMES:
            line += f"; first cause right {sum(result.first == NAMES[cause] for result in own)}"
        print(line, flush=True)


def steady_world(seed: int) -> World:
    """Return a world without a hidden cause whose waits are long, and whose queue does not grow without end."""
    rng = np.random.default_rng([77, seed])
    world = replace(draw_world("none", seed), gpus={"gpu": GPUS}, rates={"gpu": 100.0}, days=DAYS)
    usable = 0.8 if world.policy == "fifo" else 1.0
    rate = usable * rng.uniform(0.6, 0.85) * GPUS * DAY / mean_work(world)
    return replace(world, rates={"gpu": rate})


def small_waits(world: World, jobs: list[Drawn], gpus: int) -> np.ndarray:
    """Return the waits of jobs on a number of GPUs by the small simulation, shape (jobs,) [s]."""
    begun = starts(replace(world, gpus={"gpu": gpus}), jobs)
    return np.array(begun) - np.array([job.submit for job in jobs])


class Truth(NamedTuple):
    """Values of the long log of a world."""

    before: float  # p95 wait [s]
    after: float  # p95 wait with more GPUs [s]
    size: int  # smallest number of GPUs that meets the target


def truth_of(world: World) -> Truth:
    """Return the values of the long log of a world."""
    jobs = draw_jobs(world, LONG_DAYS, stream=2)
    before, after = (float(np.percentile(small_waits(world, jobs, gpus), 95)) for gpus in (GPUS, GPUS + MORE))
    target = read_target(TARGET)
    gpus = GPUS + MORE
    while not target.is_met(float(np.percentile(small_waits(world, jobs, gpus), 90))):
        gpus += 1
    # Downwards, because the queue of a long log grows without end on too few GPUs.
    while target.is_met(float(np.percentile(small_waits(world, jobs, gpus - 1), 90))):
        gpus -= 1
    return Truth(before, after, gpus)


class Answered(NamedTuple):
    """The answers from one log, with their intervals."""

    before: Estimate
    after: Estimate
    ratio: Estimate
    size: float | None
    ends: tuple[float | None, float | None]


def by_small_simulation(world: World) -> Answered:
    """Return the answers from a log if the small simulation replays it."""
    jobs = draw_jobs(world)
    blocks = Blocks([job.submit for job in jobs])

    @cache
    def at(gpus: float, statistic: str) -> tuple[Estimate, np.ndarray]:
        waits = small_waits(world, jobs, int(gpus))
        resampled = blocks.of_resamples(waits, statistic)
        return blocks.interval(float(np.percentile(waits, int(statistic[1:]))), resampled), resampled

    (before, old), (after, new) = at(GPUS, "p95"), at(GPUS + MORE, "p95")
    ratio = blocks.ratio((before.value, after.value), (old, new))
    target = read_target(TARGET)
    levels = [float(gpus) for gpus in range(LEAST, LIMIT + 1)]
    sizes = [
        hardest(levels, lambda level, end=end: target.is_met(getattr(at(level, "p90")[0], end)), easier_upwards=True)
        for end in ("value", "low", "high")
    ]
    return Answered(before, after, ratio, sizes[0], (sizes[1], sizes[2]))


def by_commands(world: World) -> Answered | None:
    """Return the answers of `log whatif` and `size` from a log; None if the verdict is that it is not explained."""
    with TemporaryDirectory() as name, runs_here():
        log, folder = imported(world, Path(name)), Path(name)
        request = LogWhatIfRequest(log, [GPUS, GPUS + MORE], folder / "runs", policies=(world.policy,), gpus_per_node=1)
        found = log_whatif(request)
        if not found.runs:
            return None
        change = found.changes()[0]
        overrides = [f"policy={world.policy}"]
        sized = size(SizeRequest(TARGET, overrides, log, limit=LIMIT, gpus_per_node=1, folder=folder / "sized"))
        return Answered(change.before, change.after, change.ratio, sized.level, sized.ends or (None, None))


def covered(seed: int, *, by_command: bool) -> dict[str, bool]:
    """Return which intervals from one drawn log contain the values of the long log."""
    world = steady_world(seed)
    truth = truth_of(world)
    of_small_simulation = containing(by_small_simulation(world), truth)
    if not by_command:
        return of_small_simulation
    answer = by_commands(world)
    if answer is None:
        return {"explained": False}
    of_commands = containing(answer, truth)
    agree = [of_commands[name] == of_small_simulation[name] for name in INTERVALS]
    return {**of_commands, "all as by the small simulation": all(agree)}


INTERVALS = ("p95 wait before", "p95 wait after", "ratio", "size")


def containing(answer: Answered, truth: Truth) -> dict[str, bool]:
    """Return which intervals of an answer contain the values of the long log."""
    low, high = answer.ends
    ratio = max(truth.after, FLOOR) / max(truth.before, FLOOR)
    return {
        "p95 wait before": bool(answer.before.low <= truth.before <= answer.before.high),
        "p95 wait after": bool(answer.after.low <= truth.after <= answer.after.high),
        "ratio": bool(answer.ratio.low <= ratio <= answer.ratio.high),
        "size": (low is None or low <= truth.size) and (high is None or truth.size <= high),
        "size without interval": answer.size == truth.size,
    }


def intervals(workers: int, share: float, *, by_command: bool) -> None:
    """Print how often the intervals contain the values of the long log."""
    with ProcessPoolExecutor(workers) as pool:
        results = list(pool.map(partial(covered, by_command=by_command), range(round(INTERVAL_LOGS * share))))
    for what in dict.fromkeys(name for result in results for name in result):
        own = [result[what] for result in results if what in result]
        print(f"{what:<32}{sum(own)} of {len(own)} ({100 * np.mean(own):.0f} %)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("verdicts", "intervals"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--commands", action="store_true", help="replay with polluxsim, some 60 s a log")
    parser.add_argument("--share", type=float, default=1.0, help="share of the logs to draw")
    options = parser.parse_args()
    if options.what == "verdicts":
        verdicts(options.workers, options.share)
    else:
        intervals(options.workers, options.share, by_command=options.commands)


if __name__ == "__main__":
    main()
