"""Time per round and distance to the upper bound, for the searches by annealing and by genetics.

    python benchmarks/bench_search.py [--recorded FILE] [--repeats R] [--largest-genetic GPUS] [--csv FILE]

Problems: the recorded rounds of a published run, if the file is there, then synthetic rounds from 64 to
4096 GPUs. Every kernel is compiled before the clock starts. Times are medians over the repeats for the
annealing, of one solve for the genetic search; gaps are to the bound of the annealing. `polluxsim plot scaling FILE`
draws what --csv writes, which is of the synthetic rounds.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from pathlib import Path
from statistics import mean, median

import numpy as np
from recorded_rounds import read_rounds

from polluxsim.policies.pollux.annealing import AnnealingSearch
from polluxsim.policies.pollux.genetic import GeneticSearch
from polluxsim.policies.pollux.problem import Answer, Problem, Search

DATA = Path(os.environ.get("POLLUXSIM_DATA", Path(__file__).parents[2] / "shared" / "data"))
SYNTHETIC = ((20, 16), (40, 16), (125, 64), (500, 256), (2000, 1024))
GPUS_PER_NODE = 4


def synthetic_problem(num_jobs: int, num_nodes: int, seed: int = 0) -> Problem:
    """Return a round at p = −1: power-law speedups up to a limit of 1 to 64 GPUs, most jobs placed."""
    rng = np.random.default_rng(seed)
    num_gpus = num_nodes * GPUS_PER_NODE
    limits = np.minimum(2 ** rng.integers(0, 7, num_jobs), num_gpus)
    exponents, base = rng.uniform(0.5, 0.95, num_jobs), rng.uniform(0.5, 1.5, num_jobs) / GPUS_PER_NODE
    across = rng.uniform(0.6, 0.95, num_jobs)
    speedups = np.zeros((num_jobs, 2, num_gpus + 1))
    for j, limit in enumerate(limits):
        curve = base[j] * np.arange(limit + 1) ** exponents[j]
        single = min(limit, GPUS_PER_NODE) + 1
        speedups[j, 0, :single] = curve[:single]
        speedups[j, 1, 2 : limit + 1] = curve[2:] * across[j]
    return Problem(
        tuple(f"job-{j}" for j in range(num_jobs)),
        speedups,
        rng.uniform(0.6, 0.99, num_jobs),
        limits,
        _placements(limits, num_nodes, rng),
        np.full(num_nodes, GPUS_PER_NODE),
        -1.0,
    )


def _placements(limits: np.ndarray, num_nodes: int, rng: np.random.Generator) -> np.ndarray:
    """Return placements of most jobs: parts of a node by best fit, larger ones on whole nodes."""
    placements, free = np.zeros((len(limits), num_nodes), dtype=np.int64), np.full(num_nodes, GPUS_PER_NODE)
    for j in rng.permutation(len(limits)):
        wanted = min(limits[j], 1 + int(rng.exponential(free.size * GPUS_PER_NODE / len(limits))))
        if rng.random() < 0.05:
            continue
        if wanted <= GPUS_PER_NODE:
            fitting = np.flatnonzero(free >= wanted)
            nodes = fitting[np.argsort(free[fitting], kind="stable")][:1]
        else:
            nodes, wanted = np.flatnonzero(free == GPUS_PER_NODE)[: wanted // GPUS_PER_NODE], GPUS_PER_NODE
        placements[j, nodes] = wanted
        free[nodes] -= wanted
    return placements


def measure(label: str, problems: list[Problem], repeats: int, *, with_genetic: bool) -> dict[str, list[float]]:
    """Print a line for each search: milliseconds per problem and the mean gap to the bound; return its times [s]."""
    bounds, times, gaps = [], [], []
    for problem in problems:
        times.append(median(_solve(AnnealingSearch(), problem)[1] for _ in range(repeats)))
        answer, _ = _solve(AnnealingSearch(), problem)
        bounds.append(answer.upper_bound)
        gaps.append(1 - answer.fitness / answer.upper_bound)
    _print(label, "annealing", times, gaps)
    if not with_genetic:
        return {"annealing": times}
    answers = [_solve(GeneticSearch(), problem) for problem in problems]
    gaps = [1 - answer.fitness / bound for (answer, _), bound in zip(answers, bounds, strict=True)]
    _print(label, "genetic", [seconds for _, seconds in answers], gaps)
    return {"annealing": times, "genetic": [seconds for _, seconds in answers]}


def _solve(search: Search, problem: Problem) -> tuple[Answer, float]:
    start = time.perf_counter()
    answer = search.solve(problem, np.random.default_rng(0))
    return answer, time.perf_counter() - start


def _print(label: str, search: str, times: list[float], gaps: list[float]) -> None:
    print(
        f"{label:<28}{search:<9}{1e3 * mean(times):>10.2f}{1e3 * median(times):>10.2f}"
        f"{1e3 * max(times):>10.2f}{100 * mean(gaps):>11.4f}{100 * max(gaps):>11.4f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recorded", type=Path, default=DATA / "rounds" / "pollux-workload-3.jsonl.gz")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--largest-genetic", type=int, default=256, metavar="GPUS")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write the times of the synthetic rounds")
    arguments = parser.parse_args()
    warm_up = synthetic_problem(20, 16)
    for search in (AnnealingSearch(), GeneticSearch(generations=1)):
        search.solve(warm_up, np.random.default_rng(0))
    AnnealingSearch().solve(synthetic_problem(2, 2), np.random.default_rng(0))
    print(f"{'problems':<28}{'search':<9}{'mean ms':>10}{'median':>10}{'max':>10}{'gap % mean':>11}{'max':>11}")
    if arguments.recorded.exists():
        problems = [recorded.problem for recorded in read_rounds(arguments.recorded)]
        measure(f"{len(problems)} recorded, 64 GPUs", problems, arguments.repeats, with_genetic=True)
    else:
        print(f"no recorded rounds at {arguments.recorded}; set POLLUXSIM_DATA to the folder that has them")
    rows = []
    for num_jobs, num_nodes in SYNTHETIC:
        num_gpus = num_nodes * GPUS_PER_NODE
        with_genetic = num_gpus <= arguments.largest_genetic
        problem = synthetic_problem(num_jobs, num_nodes)
        times = measure(f"{num_jobs} jobs, {num_gpus} GPUs", [problem], arguments.repeats, with_genetic=with_genetic)
        rows += [(search, num_gpus, num_jobs, seconds) for search, found in times.items() for seconds in found]
    if arguments.csv is not None:
        with arguments.csv.open("w", newline="") as file:
            csv.writer(file).writerows([("label", "num_gpus", "num_jobs", "seconds"), *sorted(rows)])


if __name__ == "__main__":
    main()
