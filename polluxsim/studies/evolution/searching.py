"""A random search for programs, without a language model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from polluxsim.run.workers import as_finished, num_cores, workers
from polluxsim.studies.evolution.programs import changed_program, random_program, score_in
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
        Rank correlations of the scores of the first programs, by pair of stages; empty with fewer than three.
    first
        Number of these programs.
    """

    source: str
    scores: dict[str, float]
    gains: dict[str, float]
    correlations: dict[tuple[str, str], float]
    first: int


def search(task: Task, candidates: int, seed: int, progress: Progress, count: int | None = None) -> BestProgram:
    """Return the best of some random programs. An equal seed gives an equal result, for any number of processes.

    The programs are written by this module, so they run without processes of their own.
    """
    rng = np.random.default_rng([STREAM, seed])
    num_first = min(FIRST, candidates)
    sources = list(dict.fromkeys(random_program(rng) for _ in range(num_first)))
    while len(sources) < num_first:
        sources = list(dict.fromkeys([*sources, random_program(rng)]))
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
            batch: list[str] = []
            while len(batch) < min(BATCH, candidates - len(sources)):
                source = changed_program(parents[int(rng.integers(len(parents)))], rng)
                if source not in batch and source not in scores[SHORT]:
                    batch.append(source)
            scorer.score(batch, SHORT)
            in_short = {source: scores[SHORT][source] for source in batch}
            scorer.score(_best(in_short, BEST_OF_BATCH), FULL)
            sources += batch
        (best_source,) = _best(scores[FULL], 1)
        scorer.score([best_source], SHORT)
        scorer.score([best_source], HELD_OUT)
    of_best = {stage: scores[stage][best_source] for stage in scores}
    gains = {stage: value / task.score_of(INITIAL, stage) - 1 for stage, value in of_best.items()}
    return BestProgram(best_source, of_best, gains, _correlations(scores, sources[:num_first]), num_first)


def _best(scores: Mapping[str, float], count: int) -> list[str]:
    """Return the programs with the highest scores. Equal scores are in the order of the texts."""
    return sorted(scores, key=lambda source: (-scores[source], source))[:count]


class _Scorer:
    """Score programs in worker processes, each once in a stage."""

    def __init__(self, pool: Any, processes: int, task: Task, scores: dict[str, dict[str, float]]) -> None:
        self._pool = pool
        self._processes = processes
        self._task = task
        self._scores = scores

    def score(self, sources: Sequence[str], stage: str) -> None:
        """Score programs in a stage."""
        worlds = self._task.worlds_of(stage)
        missing = [source for source in sources if source not in self._scores[stage]]

        def tasks() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
            for source in missing:
                yield source, score_in, (source, worlds)

        for source, future in as_finished(self._pool, tasks(), self._processes):
            self._scores[stage][source] = combined(worlds, future.result())


def _correlations(scores: dict[str, dict[str, float]], sources: Sequence[str]) -> dict[tuple[str, str], float]:
    """Return the rank correlations of the scores of programs between stages."""
    if len(sources) < 3:
        return {}
    correlations = {}
    for one, other in ((SHORT, FULL), (FULL, HELD_OUT)):
        values = [[scores[stage][source] for source in sources] for stage in (one, other)]
        correlations[one, other] = float(spearmanr(*values).statistic)
    return correlations
