"""Record the steps and gradients of a training loop, and write them as measured tables."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf, isfinite, sqrt
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

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
from polluxsim.common.files import atomic_write
from polluxsim.models.efficiency import GradientStatistics, gain


class SquaredNorms(NamedTuple):
    """Squared norms of the gradient of one step, over a part of its examples and over the whole batch."""

    part: float  # mean squared norm over parts of `part_size` examples
    whole: float  # squared norm over the whole batch
    part_size: int  # [examples]
    batch_size: int  # [examples]

    def estimates(self) -> tuple[float, float]:
        """Return unbiased estimates of |G|² and tr Σ, which may be negative."""
        # The expected squared norm over b examples is |G|² + tr Σ / b, which two sizes b determine.
        sqr = (self.batch_size * self.whole - self.part_size * self.part) / (self.batch_size - self.part_size)
        trace = (self.part - self.whole) / (1 / self.part_size - 1 / self.batch_size)
        return sqr, trace


class NoiseScaleEstimate(NamedTuple):
    """Noise scale of the gradients of several steps."""

    sqr: float  # mean of the estimates of |G|², at least 0
    trace: float  # mean of the estimates of tr Σ, at least 0 [examples times the unit of `sqr`]
    # Of trace / sqr, if all steps have the same parameters [examples]. ∞ for one step, and if `sqr` is 0.
    standard_error: float

    @property
    def value(self) -> float:
        """Return tr Σ / |G|² [examples]; infinite if |G|² is 0."""
        return self.trace / self.sqr if self.sqr else inf


def noise_scale(steps: Sequence[SquaredNorms]) -> NoiseScaleEstimate:
    """Return the noise scale of one or more steps.

    The ratio of the estimates of a single step is biased. Both estimates are therefore averaged before the division.
    The standard error of this ratio of means comes from the delta method. Source: McCandlish et al. 2018, "An
    Empirical Model of Large-Batch Training", appendix A.1.

    >>> noise_scale([SquaredNorms(part=3.0, whole=2.0, part_size=1, batch_size=2)] * 2)
    NoiseScaleEstimate(sqr=1.0, trace=2.0, standard_error=0.0)
    """
    sqr, trace = np.array([step.estimates() for step in steps]).T
    # The estimates may be negative by chance, the values are not.
    mean_sqr = max(float(sqr.mean()), 0.0)
    mean_trace = max(float(trace.mean()), 0.0)
    if len(steps) < 2 or mean_sqr == 0.0:
        return NoiseScaleEstimate(mean_sqr, mean_trace, inf)
    residuals = trace - mean_trace / mean_sqr * sqr
    return NoiseScaleEstimate(mean_sqr, mean_trace, float(residuals.std(ddof=1)) / sqrt(len(steps)) / mean_sqr)


OF_FOLDER = {"source": "measured with polluxsim.measure", "license": "unknown"}
OF_APPLICATION = {
    "title": "", "optimizer": "unknown", "target": "the end of the training", "learning_rate_rule": "unknown",
}  # fmt: skip
"""Default descriptions of a folder and of an application. The default title is the application's name."""

WARM_UP = 3  # first steps of a setting that are not counted, because they compile code and fill caches


def _step_tables(folder: Path, steps: Sequence[PlacementRow]) -> dict[Path, str]:
    """Return the text of each table of step times, by its path; rows in the folder that were not measured again stay.

    The table by numbers of nodes and GPUs has the means over the placements with these numbers.
    """
    path = folder / PLACEMENTS
    before = read_placements(path) if path.exists() else []
    # A new row replaces the one with the same placement and batch size.
    newest = {(row.gpus_by_node, row.atomic_batch_size): row for row in [*before, *steps]}
    rows = sorted(newest.values())
    groups = defaultdict[tuple[int, int, int], list[PlacementRow]](list)  # by nodes, GPUs and atomic batch size
    for row in rows:
        groups[len(row.gpus_by_node), sum(row.gpus_by_node), row.atomic_batch_size].append(row)
    means = []
    for (num_nodes, num_replicas, atomic_batch_size), group in sorted(groups.items()):
        step_time = fmean(row.step_time for row in group)
        sync_time = fmean(row.sync_time for row in group)
        means.append((num_nodes, num_replicas, atomic_batch_size, step_time, sync_time))
    placements = []
    for row in rows:
        placement = "".join(map(str, row.gpus_by_node))
        placements.append((placement, row.atomic_batch_size, row.step_time, row.sync_time))
    return {
        path: _table(("placement", *STEP_COLUMNS), placements),
        folder / SCALABILITY: _table(("num_nodes", "num_replicas", *STEP_COLUMNS), means),
    }


def _table(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table as the text of a CSV file."""
    lines = [",".join(map(str, row)) for row in (columns, *rows)]
    return "".join(f"{line}\n" for line in lines)


def _described(path: Path, application: str, num_epochs: int, about: Mapping[str, str]) -> str:
    """Return the text of the description at `path`, with the application added if it is not described there."""
    content: dict[str, Any] = {key: about[key] for key in OF_FOLDER} | {"applications": {}}
    if path.exists():
        text = path.read_text(encoding="utf-8")
        # The user may have corrected it by hand.
        if application in read_described(path):
            return text
        content = yaml.safe_load(text)
    texts = {key: about[key] for key in OF_APPLICATION}
    content["applications"][application] = {"card": application, **texts, "num_epochs": num_epochs}
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


class Recorder:
    """Recorder of the steps and gradients of a training loop.

    In a job with several processes, one process records. Runs on other numbers of GPUs record into the same folder.

    Raise InvalidConfigError if `application` is not the name of a folder, or the batch size is below 1.

    Parameters
    ----------
    application
        Name of the model in workloads, and of its folder.
    init_batch_size
        M0, the batch size that the model was tuned for [examples].
    clock
        Function that returns the time [s]. If a GPU computes in the background, it must wait for the GPU first.
    """

    def __init__(self, application: str, init_batch_size: int, clock: Callable[[], float] = time.perf_counter) -> None:
        if Path(application).name != application or application in ("", "..") or init_batch_size < 1:
            given = f"application {application!r}, init_batch_size {init_batch_size}"
            raise InvalidConfigError(f"Recorder: {given}; give the name of a folder, and a batch size of at least 1")
        self._application = application
        self._init_batch_size = init_batch_size
        self._clock = clock
        # Times of steps [s] by (synchronised, GPUs on each node, examples per GPU).
        self._times = defaultdict[tuple[bool, tuple[int, ...], int], list[float]](list)
        self._gradients: list[SquaredNorms] = []  # of the present epoch
        self._epochs = defaultdict[int, list[EpochRow]](list)  # by batch size [examples]

    @contextmanager
    def step(
        self, atomic_batch_size: int, gpus_by_node: tuple[int, ...] = (1,), *, synchronised: bool = True
    ) -> Iterator[None]:
        """Measure the time of the block: a pass, its synchronisation and the optimiser step.

        A block that raises an exception is not counted. Raise InvalidConfigError if a parameter is invalid.

        Parameters
        ----------
        atomic_batch_size
            Examples per GPU and pass.
        gpus_by_node
            GPUs of the job on each of its nodes, 1 to 9 each.
        synchronised
            Whether the pass is synchronised. On several GPUs, record also passes without synchronisation, as in
            gradient accumulation.
        """
        if atomic_batch_size < 1 or not gpus_by_node or not all(1 <= gpus <= 9 for gpus in gpus_by_node):
            raise InvalidConfigError(
                f"step: {atomic_batch_size} examples on {gpus_by_node} GPUs; give at least 1 example, and 1 to 9 GPUs "
                "for each node"
            )
        start = self._clock()
        yield  # outside a `try`, so that a block that raises is not counted
        self._times[synchronised, canonical(tuple(gpus_by_node)), atomic_batch_size].append(self._clock() - start)

    def gradients(self, part: float, whole: float, part_size: int, batch_size: int) -> None:
        """Record the gradient of an optimiser step.

        Raise InvalidConfigError if a norm is negative or not finite, the part is not at least 1 and below the batch, or
        the batch is below `init_batch_size` or differs from that of the epoch.

        Parameters
        ----------
        part, whole
            Squared norms of the gradient over a part of the examples (or their mean over parts of one size) and over
            the whole batch. On several GPUs, a part is the batch of one GPU; on one GPU, a part is a micro-batch.
        part_size, batch_size
            Number of examples of the part and of the whole batch.
        """
        norms = SquaredNorms(float(part), float(whole), part_size, batch_size)
        for name, norm in (("part", norms.part), ("whole", norms.whole)):
            if not (isfinite(norm) and norm >= 0):
                raise InvalidConfigError(
                    f"gradients: squared norm {name}={norm}, must be a finite number of at least 0"
                )
        if not 1 <= part_size < batch_size:
            raise InvalidConfigError(f"gradients: part_size={part_size}, must be at least 1 and below {batch_size=}")
        is_other_size = bool(self._gradients) and self._gradients[0].batch_size != batch_size
        if batch_size < self._init_batch_size or is_other_size:
            raise InvalidConfigError(
                f"gradients: batch_size={batch_size}, must be the same in an epoch and at least {self._init_batch_size}"
            )
        self._gradients.append(norms)

    def end_epoch(self, steps: int, metric: float = 0.0) -> NoiseScaleEstimate:
        """End an epoch of a training with one batch size; return its noise scale.

        Epochs are compared by number between batch sizes. At a larger batch size, call this once the progress, steps
        times gain, equals that of an epoch at `init_batch_size`; this takes more examples. Raise InvalidConfigError if
        there is no step or no recorded gradient.

        Parameters
        ----------
        steps
            Number of optimiser steps in the epoch, with and without recorded gradients.
        metric
            Result of the validation. The value is only written to the file.
        """
        if steps < 1 or not self._gradients:
            given = f"{steps} steps with {len(self._gradients)} recorded gradients"
            raise InvalidConfigError(f"end_epoch: {given}; record at least one gradient and give at least one step")
        batch_size = self._gradients[0].batch_size
        noise = noise_scale(self._gradients)
        # `GradientStatistics` has the variance at M0, which is tr Σ / M0.
        statistics = GradientStatistics(noise.sqr, noise.trace / self._init_batch_size)
        rows = self._epochs[batch_size]
        progress = steps * gain(statistics, batch_size / self._init_batch_size)
        iteration = float(steps)
        if rows:
            progress += rows[-1].progress
            iteration += rows[-1].iteration
        rows.append(EpochRow(progress, iteration, float(metric), *statistics))
        self._gradients = []
        return noise

    def write(self, folder: Path | str, **about: str) -> Path:
        """Write the measurements beside those of other runs; return the folder of the application.

        Raise InvalidConfigError, and write nothing, if a description is unknown, nothing was recorded, or a setting has
        too few steps with synchronisation, or on several GPUs too few without. The first training in a folder must have
        `init_batch_size`; otherwise InvalidConfigError is raised too.

        Parameters
        ----------
        folder
            Folder of all applications, for `polluxsim profile fit`.
        about
            Descriptions for the card: title, optimizer, target, learning_rate_rule, source, license. Those that the
            folder has already are kept.
        """
        if not (self._times or self._epochs):
            raise InvalidConfigError(f"{self._application}: no step was recorded; record at least one step")
        choices = [*OF_APPLICATION, *OF_FOLDER]
        unknown = sorted(about.keys() - set(choices))
        if unknown:
            raise InvalidConfigError(
                f"write: there is no argument {', '.join(unknown)}; choose from {', '.join(choices)}"
            )
        folder_of_application = Path(folder) / self._application
        description_file = Path(folder) / DESCRIPTION_FILE
        first = folder_of_application / f"validation-{self._init_batch_size}.csv"
        if self._epochs and self._init_batch_size not in self._epochs and not first.exists():
            raise InvalidConfigError(
                f"{first}: no such file; record a training with init_batch_size={self._init_batch_size} first"
            )
        rows = []
        for gpus_by_node, atomic_batch_size in dict.fromkeys(key[1:] for key in self._times):
            step = self._median(gpus_by_node, atomic_batch_size, synchronised=True)
            alone = step  # one GPU does not synchronise
            if gpus_by_node != (1,):
                alone = self._median(gpus_by_node, atomic_batch_size, synchronised=False)
            rows.append(PlacementRow(gpus_by_node, atomic_batch_size, step, max(step - alone, 0.0)))
        # All texts are made before the first is written, so that an error leaves the folder as it is.
        texts = _step_tables(folder_of_application, rows) if rows else {}
        for size, epochs in self._epochs.items():
            texts[folder_of_application / f"validation-{size}.csv"] = _table(VALIDATION_COLUMNS, epochs)
        if self._epochs:
            description = {**OF_FOLDER, **OF_APPLICATION, "title": self._application, **about}
            texts[description_file] = _described(
                description_file, self._application, min(map(len, self._epochs.values())), description
            )
        folder_of_application.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            with atomic_write(path) as temporary:
                temporary.write_text(text, encoding="utf-8")
        return folder_of_application

    def _median(self, gpus_by_node: tuple[int, ...], atomic_batch_size: int, *, synchronised: bool) -> float:
        """Return the median time of the counted steps of a setting [s].

        Raise InvalidConfigError if no recorded step counts.
        """
        times = self._times.get((synchronised, gpus_by_node, atomic_batch_size), [])
        if len(times) <= WARM_UP:
            raise InvalidConfigError(
                f"{self._application}: {len(times)} steps of {atomic_batch_size} examples on {gpus_by_node} GPUs with "
                f"synchronised={synchronised}; record at least {WARM_UP + 1}, because the first {WARM_UP} do not count"
            )
        return median(times[WARM_UP:])
