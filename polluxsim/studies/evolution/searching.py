"""A random search for programs, without a language model.

The first programs are random, and run in all stages. Later ones are changes of the best so far, in batches: each runs
in the short stage, and the best of a batch in the full stage.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from polluxsim.run.workers import as_finished, num_cores, workers
from polluxsim.studies.evolution.programs import changed_program, mean_jcts_of, random_program
from polluxsim.studies.evolution.task import FULL, HELD_OUT, SHORT, Progress, Task, combined
from polluxsim.studies.evolution.worlds import INITIAL

STREAM = 0xE703  # number of the random stream of a search

FIRST = 40  # number of random programs that run in all stages, for the correlations
PARENTS = 6  # number of best programs, by the full stage, whose numbers are changed
BATCH = 20  # number of programs that are drawn at once, and run in the short stage
BEST_OF_BATCH = 5  # number of them that go on to the full stage


@dataclass(frozen=True)
class BestProgram:
    """The result of a search.

    Attributes
    ----------
    source
        The best program.
    scores
        Its score in each stage.
    gains
        Its gain over the initial program in each stage.
    correlations
        Rank correlations of the scores of the first programs between the short and the full stage, and between the full
        and the held-out stage; empty with fewer than three programs.
    first
        Number of the first programs, which are random.
    """

    source: str
    scores: dict[str, float]
    gains: dict[str, float]
    correlations: dict[tuple[str, str], float]
    first: int


def search(task: Task, candidates: int, seed: int, progress: Progress, count: int | None = None) -> BestProgram:
    """Return the best, by the full stage, of some programs.

    Equal seeds give equal results with any number of processes, on one task.

    polluxsim itself writes the programs, so they run without guards. `task` must have its held-out worlds. `candidates`
    is the number of programs, and `count` that of worker processes: one for each core without it.
    """
    rng = np.random.default_rng([STREAM, seed])
    num_first = min(FIRST, candidates)
    sources = _random_programs(rng, num_first)
    processes = count or num_cores()
    scores: dict[str, dict[str, float]] = {SHORT: {}, FULL: {}, HELD_OUT: {}}
    with workers(processes) as pool:
        scorer = _Scorer(pool, processes, task, scores)
        for number, stage in enumerate((FULL, HELD_OUT, SHORT)):
            progress(number * num_first // 3, candidates, "first programs")
            scorer.score(sources[:num_first], stage)
        while len(sources) < candidates:
            progress(len(sources), candidates, "short stage")
            parents = _best(scores[FULL], PARENTS)
            batch = _changed_programs(rng, parents, min(BATCH, candidates - len(sources)), scores[SHORT])
            scorer.score(batch, SHORT)
            in_short = {source: scores[SHORT][source] for source in batch}
            scorer.score(_best(in_short, BEST_OF_BATCH), FULL)
            sources += batch
        (best_source,) = _best(scores[FULL], 1)
        # The best program is compared with the initial one in each stage, also in those that it has not run in.
        scorer.score([best_source], SHORT)
        scorer.score([best_source], HELD_OUT)
    of_best = {stage: scores[stage][best_source] for stage in scores}
    gains = {stage: value / task.score_of(INITIAL, stage) - 1 for stage, value in of_best.items()}
    return BestProgram(best_source, of_best, gains, _correlations(scores, sources[:num_first]), num_first)


def _random_programs(rng: np.random.Generator, count: int) -> list[str]:
    """Return different random programs."""
    sources: dict[str, None] = {}  # a dictionary keeps the order of the draws
    while len(sources) < count:
        sources[random_program(rng)] = None
    return list(sources)


def _changed_programs(
    rng: np.random.Generator, parents: Sequence[str], count: int, earlier: Container[str]
) -> list[str]:
    """Return different programs that are changes of parents. Earlier programs are left out."""
    batch: list[str] = []
    while len(batch) < count:
        parent = parents[int(rng.integers(len(parents)))]
        source = changed_program(parent, rng)
        if source not in batch and source not in earlier:
            batch.append(source)
    return batch


def _best(scores: Mapping[str, float], count: int) -> list[str]:
    """Return the programs with the highest scores. Equal scores are in the order of the texts."""
    return sorted(scores, key=lambda source: (-scores[source], source))[:count]


class _Scorer:
    """Score programs in worker processes, each once in a stage, and write the scores by stage and source."""

    def __init__(self, pool: Any, processes: int, task: Task, scores: dict[str, dict[str, float]]) -> None:
        self._pool = pool
        self._processes = processes
        self._task = task
        self._scores = scores

    def score(self, sources: Sequence[str], stage: str) -> None:
        """Score the programs that have no score in a stage yet."""
        worlds = self._task.worlds_of(stage)
        missing = [source for source in sources if source not in self._scores[stage]]

        def tasks() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
            for source in missing:
                yield source, mean_jcts_of, (source, worlds)

        for source, future in as_finished(self._pool, tasks(), self._processes):
            self._scores[stage][source] = combined(worlds, future.result())


def _correlations(scores: dict[str, dict[str, float]], sources: Sequence[str]) -> dict[tuple[str, str], float]:
    """Return the rank correlations of the scores of programs between stages; none for fewer than three programs."""
    # Two programs always have the rank correlation 1 or −1.
    if len(sources) < 3:
        return {}
    correlations = {}
    for one, other in ((SHORT, FULL), (FULL, HELD_OUT)):
        values = [[scores[stage][source] for source in sources] for stage in (one, other)]
        correlations[one, other] = float(spearmanr(*values).statistic)
    return correlations
