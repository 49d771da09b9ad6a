"""The recorder that stands around a training loop."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from polluxsim.applications.measured import EpochRow, PlacementRow, canonical
from polluxsim.errors import InvalidConfigError
from polluxsim.measure.noise_scale import SquaredNorms, noise_scale
from polluxsim.measure.writing import validation_file, write_measured
from polluxsim.models.efficiency import GradientStatistics, gain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from polluxsim.measure.noise_scale import NoiseScale

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
