"""Record the steps and gradients of a training loop, and write them as measured tables."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import contextmanager
from math import inf, isfinite, sqrt
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import yaml

from polluxsim.applications.measured import EpochRow, PlacementRow, canonical
from polluxsim.applications.osdi21 import (
    DESCRIPTION_FILE,
    PLACEMENTS,
    SCALABILITY,
    STEP_COLUMNS,
    VALIDATION_COLUMNS,
    read_described,
    read_placements,
)
from polluxsim.common.errors import InvalidConfigError
from polluxsim.common.files import appearing_whole
from polluxsim.models.efficiency import GradientStatistics, gain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


class SquaredNorms(NamedTuple):
    """Squared norms of one step's gradient over a part of its examples and over the whole batch, and their sizes."""

    part: float
    whole: float
    part_size: int
    batch_size: int

    def estimates(self) -> tuple[float, float]:
        """Return unbiased estimates of |G|² and tr Σ, which may be negative."""
        part, whole, small, large = self
        return (large * whole - small * part) / (large - small), (part - whole) / (1 / small - 1 / large)

    def check(self) -> None:
        """Raise InvalidConfigError if these cannot be norms of a part and the whole."""
        for name, norm in (("part", self.part), ("whole", self.whole)):
            if not (isfinite(norm) and norm >= 0):
                raise InvalidConfigError(f"gradients: squared norm {name}={norm}, allowed are finite numbers ≥ 0")
        if not 1 <= self.part_size < self.batch_size:
            raise InvalidConfigError(
                f"gradients: part_size={self.part_size}, allowed are 1 to {self.batch_size - 1}, one below batch_size"
            )


class NoiseScale(NamedTuple):
    """What several steps say of the noise.

    Attributes
    ----------
    sqr, trace
        Means of the estimates of |G|² and of tr Σ, 0 where they come out negative [1].
    standard_error
        Of their ratio, for steps with the same parameters; infinite for a single step [examples].
    """

    sqr: float
    trace: float
    standard_error: float

    @property
    def value(self) -> float:
        """Return tr Σ / |G|² [examples]; infinite where no gradient stands out of the noise."""
        return self.trace / self.sqr if self.sqr else inf


def noise_scale(steps: Sequence[SquaredNorms]) -> NoiseScale:
    """Return the noise scale from one step or more.

    Both estimates are averaged before one is divided by the other, as the ratio of a single step is biased; the error
    is that of a ratio of means (delta method). Source: McCandlish et al. 2018, "An Empirical Model of Large-Batch
    Training", appendix A.1.

    >>> noise_scale([SquaredNorms(part=3.0, whole=2.0, part_size=1, batch_size=2)] * 2)
    NoiseScale(sqr=1.0, trace=2.0, standard_error=0.0)
    """
    sqr, trace = np.array([step.estimates() for step in steps]).T
    mean_sqr, mean_trace = max(float(sqr.mean()), 0.0), max(float(trace.mean()), 0.0)
    if len(steps) < 2 or mean_sqr == 0.0:
        return NoiseScale(mean_sqr, mean_trace, inf)
    off = trace - mean_trace / mean_sqr * sqr
    return NoiseScale(mean_sqr, mean_trace, float(off.std(ddof=1)) / sqrt(len(steps)) / mean_sqr)


FOLDER = {"source": "measured with polluxsim.measure", "license": "unknown"}
ABOUT = {"title": "", "optimizer": "unknown", "target": "the end of the training", "learning_rate_rule": "unknown"}
"""What is said of the folder and of an application where the user says nothing; the title is then its name."""


def validation_file(folder: Path, batch_size: int) -> Path:
    """Return the file of the training at a batch size."""
    return folder / f"validation-{batch_size}.csv"


def write_measured(
    root: Path,
    application: str,
    steps: Sequence[PlacementRow],
    epochs: Mapping[int, Sequence[EpochRow]],
    about: Mapping[str, str],
) -> Path:
    """Write step times and epochs by batch size; older rows stay unless measured again. Return the folder."""
    if unknown := about.keys() - FOLDER.keys() - ABOUT.keys():
        raise InvalidConfigError(f"write: {', '.join(sorted(unknown))}; allowed are {', '.join([*ABOUT, *FOLDER])}")
    folder = root / application
    texts = {validation_file(folder, size): _table(VALIDATION_COLUMNS, rows) for size, rows in epochs.items()}
    if steps:
        texts |= _step_tables(folder, steps)
    if epochs:
        said = {**FOLDER, **ABOUT, "title": application, **about}
        texts[root / DESCRIPTION_FILE] = _described(
            root / DESCRIPTION_FILE, application, min(map(len, epochs.values())), said
        )
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        with appearing_whole(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return folder


def _step_tables(folder: Path, steps: Sequence[PlacementRow]) -> dict[Path, str]:
    path = folder / PLACEMENTS
    before = read_placements(path) if path.exists() else []
    rows = sorted({row[:2]: row for row in (*before, *steps)}.values())
    counted = defaultdict[tuple[int, int, int], list[PlacementRow]](list)
    for row in rows:
        counted[len(row.gpus_by_node), sum(row.gpus_by_node), row.atomic_batch_size].append(row)
    means = [
        (*counts, fmean(row.step_time for row in same), fmean(row.sync_time for row in same))
        for counts, same in sorted(counted.items())
    ]
    placed = [("".join(map(str, row.gpus_by_node)), *row[1:]) for row in rows]
    return {
        path: _table(("placement", *STEP_COLUMNS), placed),
        folder / SCALABILITY: _table(("num_nodes", "num_replicas", *STEP_COLUMNS), means),
    }


def _table(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    return "".join(f"{','.join(map(str, row))}\n" for row in (columns, *rows))


def _described(path: Path, application: str, num_epochs: int, about: Mapping[str, str]) -> str:
    """Return the description of the folder, with an application unless somebody has described it already."""
    said: dict[str, Any] = {key: about[key] for key in FOLDER} | {"applications": {}}
    if path.exists():
        text = path.read_text(encoding="utf-8")
        if application in read_described(path):
            return text
        said = yaml.safe_load(text)
    words = {key: about[key] for key in ABOUT}
    said["applications"][application] = {"card": application, **words, "num_epochs": num_epochs}
    return str(yaml.safe_dump(said, sort_keys=False, allow_unicode=True))


WARM_UP = 3
"""The first steps and passes of a setting, which compile and fill caches, and are not counted."""


class Recorder:
    """Measures the steps and gradients of a training loop.

    In a job of several processes one of them records; runs on other GPUs record into the same folder.

    Parameters
    ----------
    application
        How workloads will name the model: a folder's name.
    init_batch_size
        M0, the batch size that the model was tuned for [examples].
    clock
        Tells the time [s]. Where a GPU computes in the background, it has to wait for that first.
    """

    def __init__(self, application: str, init_batch_size: int, clock: Callable[[], float] = time.perf_counter) -> None:
        if Path(application).name != application or not application or init_batch_size < 1:
            given = f"application {application!r}, init_batch_size {init_batch_size}"
            raise InvalidConfigError(f"Recorder: {given}; allowed are a folder's name, and 1 or more")
        self._application, self._init_batch_size, self._clock = application, init_batch_size, clock
        # By examples per GPU and GPUs on each node; the one that synchronises first.
        self._times = defaultdict[tuple[bool, tuple[int, ...], int], list[float]](list)
        self._gradients: list[SquaredNorms] = []
        self._epochs = defaultdict[int, list[EpochRow]](list)

    @contextmanager
    def step(
        self, atomic_batch_size: int, gpus_by_node: tuple[int, ...] = (1,), *, synchronised: bool = True
    ) -> Iterator[None]:
        """Time the block: a pass, its synchronisation and what the optimiser does; what raises is not counted.

        Parameters
        ----------
        atomic_batch_size
            Examples per GPU and pass.
        gpus_by_node
            GPUs of the job on each of its nodes, 1 to 9 each.
        synchronised
            Whether it is. Several GPUs need passes without, too, as in gradient accumulation.
        """
        if atomic_batch_size < 1 or not gpus_by_node or not all(1 <= gpus <= 9 for gpus in gpus_by_node):
            raise InvalidConfigError(
                f"step: {atomic_batch_size} examples on {gpus_by_node} GPUs, allowed are 1 or more on 1 to 9 a node"
            )
        start = self._clock()
        yield
        self._times[synchronised, canonical(tuple(gpus_by_node)), atomic_batch_size].append(self._clock() - start)

    def gradients(self, part: float, whole: float, part_size: int, batch_size: int) -> None:
        """Record an optimiser step's gradient.

        Parameters
        ----------
        part, whole
            Squared norms, over a part of the examples (or the mean over parts of one size) and over the whole batch. On
            several GPUs a part is one GPU's gradient before it is averaged with others; on one, a micro-batch's.
        part_size, batch_size
            The examples of either.

        Raises
        ------
        InvalidConfigError
            If a norm is not finite, the part is not less than the whole, or the epoch has another batch size.
        """
        norms = SquaredNorms(float(part), float(whole), part_size, batch_size)
        norms.check()
        if batch_size < self._init_batch_size or any(before.batch_size != batch_size for before in self._gradients[:1]):
            raise InvalidConfigError(
                f"gradients: batch_size={batch_size}, allowed is one in an epoch, from {self._init_batch_size} on"
            )
        self._gradients.append(norms)

    def end_epoch(self, steps: int, metric: float = 0.0) -> NoiseScale:
        """End an epoch of a training at one batch size; return its noise scale.

        An epoch is a stretch of one progress, whatever the batch size: at larger ones it takes more examples.

        Parameters
        ----------
        steps
            Optimiser steps of the epoch, 1 or more, whether their gradients were recorded or not.
        metric
            What validation said, for the reader.
        """
        if steps < 1 or not self._gradients:
            given = f"{steps} steps with {len(self._gradients)} gradients recorded"
            raise InvalidConfigError(f"end_epoch: {given}, needed is one of each at least")
        batch_size, noise = self._gradients[0].batch_size, noise_scale(self._gradients)
        statistics = GradientStatistics(noise.sqr, noise.trace / self._init_batch_size)
        rows = self._epochs[batch_size]
        progress, iteration = rows[-1][:2] if rows else (0.0, 0.0)
        progress += steps * gain(statistics, batch_size / self._init_batch_size)
        rows.append(EpochRow(progress, iteration + steps, float(metric), *statistics))
        self._gradients = []
        return noise

    def write(self, folder: Path | str, **about: str) -> Path:
        """Write what was recorded, and keep what other runs wrote there; return the application's folder.

        Parameters
        ----------
        folder
            That of all applications, made if need be; `polluxsim fit` takes it.
        about
            For the reader of a card: title, optimizer, target, learning_rate_rule, source, license.

        Raises
        ------
        InvalidConfigError
            If too little was recorded, or on several GPUs nothing without synchronisation.
        """
        if not (self._times or self._epochs):
            raise InvalidConfigError(f"{self._application}: no step was recorded, needed is one at least")
        first = validation_file(Path(folder) / self._application, self._init_batch_size)
        if self._epochs and self._init_batch_size not in self._epochs and not first.exists():
            raise InvalidConfigError(
                f"{first}: not there; a training at init_batch_size={self._init_batch_size} has to be recorded first"
            )
        steps = [self._row(*key[1:]) for key in self._times if key[0]]
        return write_measured(Path(folder), self._application, steps, self._epochs, about)

    def _row(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int) -> PlacementRow:
        step = alone = self._median(gpus_by_node, atomic_batch_size, synchronised=True)
        if gpus_by_node != (1,):
            alone = self._median(gpus_by_node, atomic_batch_size, synchronised=False)
        return PlacementRow(gpus_by_node, atomic_batch_size, step, max(step - alone, 0.0))

    def _median(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int, *, synchronised: bool) -> float:
        times = self._times.get((synchronised, gpus_by_node, atomic_batch_size), [])
        if len(times) <= WARM_UP:
            raise InvalidConfigError(
                f"{self._application}: {len(times)} steps of {atomic_batch_size} examples on {gpus_by_node} GPUs with "
                f"synchronised={synchronised}, needed are {WARM_UP + 1} at least, as {WARM_UP} warm up"
            )
        return median(times[WARM_UP:])
