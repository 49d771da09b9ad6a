"""The configurations of jobs: GPUs of one type on part of a node or on whole nodes.

Source: Jayaram Subramanya et al., "Sia" (SOSP '23). `configurations` lists what a job may have, `Matrix` values each
configuration for each job, and `place` finds nodes for the configurations that the programme of `policy` chose.

Invariants: the worth of the slowest configuration of a job is 1; a job whose configuration stays keeps its GPUs if all
other jobs fit beside it.

The trap: the worth of a job is NaN where it cannot run, and never 0 there, so that NumPy's functions for NaN find the
least and the largest worth of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from polluxsim.hardware.gpu_types import ANY
from polluxsim.hardware.placements import JobId, Placement, num_replicas
from polluxsim.models.goodput import Goodput, KnownGoodputs, ScaledGoodput
from polluxsim.policies.contract.view import ClusterView, JobView
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.policies.tools.gpu_counts import fewest_gpus


class GpuConfiguration(NamedTuple):
    """A number of GPUs of one type on a number of nodes."""

    gpu_type: str
    nodes: int
    gpus: int

    def __str__(self) -> str:
        if self.gpu_type != ANY.name:
            return f"{self.gpus} {self.gpu_type}"
        return "1 GPU" if self.gpus == 1 else f"{self.gpus} GPUs"


def configurations(view: ClusterView, gangs: Collection[int] = ()) -> list[GpuConfiguration]:
    """Return all configurations: powers of two on a node, a whole node, several whole nodes, and those of `gangs`.

    All nodes of a type count with the size of its largest nodes. `gangs` contains the smallest number of GPUs of each
    job. Without a configuration of this number, the job would never start. Source: Sia (SOSP '23), §3.2.
    """
    all_configurations: list[GpuConfiguration] = []
    for gpu_type in view.types:
        node_sizes = [view.gpus_per_node[node] for node in view.nodes_of(gpu_type)]
        size = max(node_sizes, default=0)
        # All nodes of the type may be down.
        if size == 0:
            continue
        nodes_of_count = dict.fromkeys(_parts(size), 1)
        for num_nodes in range(2, node_sizes.count(size) + 1):
            nodes_of_count[num_nodes * size] = num_nodes
        num_gpus = sum(node_sizes)
        for gpus in sorted(set(gangs)):
            if gpus <= num_gpus and gpus not in nodes_of_count:
                nodes_of_count[gpus] = ceil(gpus / size)
        for gpus, num_nodes in nodes_of_count.items():
            all_configurations.append(GpuConfiguration(gpu_type, num_nodes, gpus))
    return all_configurations


def _parts(size: int) -> list[int]:
    """Return the powers of two below a number, and the number itself.

    >>> _parts(6)
    [1, 2, 4, 6]
    """
    powers_below = [2**power for power in range((size - 1).bit_length())]
    return [*powers_below, size]


def present_configuration(view: ClusterView, job: JobView, known: Sequence[GpuConfiguration]) -> int | None:
    """Return the index of the present configuration of a job, or None."""
    if not job.placement:
        return None
    present = GpuConfiguration(view.type_of(job.placement), len(job.placement), num_replicas(job.placement))
    return known.index(present) if present in known else None


class Matrix:
    """Fills the matrix of a round. Values of the models of a job are computed once.

    The goodput on a type on which a job never ran is an estimate from other types. `guesses` says whether to use these
    estimates. Without an estimate, the job may have its fewest GPUs of the type.
    """

    def __init__(self, *, guesses: bool) -> None:
        self._guesses = guesses
        self._known: dict[tuple[JobId, str], KnownGoodputs] = {}

    def fill(self, jobs: Sequence[JobView], configurations: Sequence[GpuConfiguration]) -> NDArray[np.float64]:
        """Return the worth of each job in each configuration, shape (J, C): its speed over that in its slowest one.

        NaN where the job cannot run.

        Source: Sia (SOSP '23), §3.3 and 3.4.
        """
        names = {job.job_id for job in jobs}
        self._known = {key: goodputs for key, goodputs in self._known.items() if key[0] in names}
        gpus = np.array([configuration.gpus for configuration in configurations])
        several = np.array([configuration.nodes > 1 for configuration in configurations], dtype=int)
        types = np.array([configuration.gpu_type for configuration in configurations])
        matrix = np.full((len(jobs), len(configurations)), np.nan)
        for row, job in zip(matrix, jobs, strict=True):
            if job.gang_size is not None:
                # A gang runs on the requested number of GPUs only, at speeds that the policy knows.
                for name, speed in job.speeds.items():
                    row[(types == name) & (gpus == job.num_replicas)] = speed * job.num_replicas
            else:
                self._fill(row, job, gpus, several, types)
        slowest: NDArray[np.float64] = np.fmin.reduce(matrix, axis=1, initial=np.inf)
        return matrix / slowest[:, None]

    def _fill(
        self,
        row: NDArray[np.float64],
        job: JobView,
        gpus: NDArray[np.int64],
        several: NDArray[np.int64],
        types: NDArray[np.str_],
    ) -> None:
        """Fill the row of a job that can have several numbers of GPUs."""
        for name, model in job.goodputs.items():
            enough = (types == name) & (gpus >= fewest_gpus(job))
            # The agent of a job that has not run allows one GPU, and no configuration may have just the minimum.
            fewest = int(gpus[enough].min(initial=max(job.max_replicas, job.num_replicas)))
            if model is None or (isinstance(model, ScaledGoodput) and not self._guesses):
                row[enough & (gpus == fewest)] = fewest
            else:
                is_allowed = enough & (gpus <= max(job.max_replicas, fewest))
                row[is_allowed] = self._goodputs(job.job_id, name, model, gpus[is_allowed], several[is_allowed])

    def _goodputs(
        self, job_id: JobId, gpu_type: str, model: Goodput, gpus: NDArray[np.int64], several: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the goodputs of configurations [M0-equivalent examples/s], shape (configurations,).

        Estimates assume nodes of the size of the type on which the job ran.
        """
        learnt = model
        ratio = 1.0
        if isinstance(model, ScaledGoodput):
            learnt = model.model
            ratio = model.ratio
            several = (gpus > model.gpus_per_node).astype(int)
        remembered = self._known.get((job_id, gpu_type))
        if remembered is None or remembered.model is not learnt:
            remembered = self._known[job_id, gpu_type] = KnownGoodputs(learnt, remembered)  # type: ignore[arg-type]
        goodputs: NDArray[np.float64] = remembered.up_to(int(gpus.max(initial=0)))[several, gpus] * ratio
        return goodputs


def place(
    sizes: Mapping[int, int], wanted: Mapping[JobId, tuple[int, int]], held: Mapping[JobId, Placement]
) -> dict[JobId, Placement]:
    """Return placements on nodes of these `sizes` [GPUs], for the `wanted` numbers of nodes and GPUs of each job.

    All jobs fit in total. A job in `held`, whose numbers stay, keeps its GPUs. If another job does not fit because free
    GPUs are on several nodes, all jobs are placed again, the largest first, each on its present GPUs if possible. A
    job that does not fit then may get GPUs of more nodes. Source: Sia (SOSP '23), §3.5.
    """
    kept_placements = {job: held[job] for job in wanted if job in held}
    return (
        _placed(sizes, wanted, kept_placements, kept_placements)
        or _placed(sizes, wanted, {}, kept_placements, splits=True)
        or {}
    )


def _placed(
    sizes: Mapping[int, int],
    wanted: Mapping[JobId, tuple[int, int]],
    kept: Mapping[JobId, Placement],
    liked: Mapping[JobId, Placement],
    *,
    splits: bool = False,
) -> dict[JobId, Placement] | None:
    """Return the placements, or None if a job does not fit. With `splits` a job may get GPUs of more nodes.

    The jobs in `kept` keep their GPUs. The jobs in `liked` get theirs again if they are free.
    """
    # A place for each node up to the last one of the type; those of other types have no GPUs.
    free = FreeGpus([sizes.get(node, 0) for node in range(max(sizes) + 1)])
    placements = dict(kept)
    for placement in kept.values():
        free.take(placement)
    likes = Counter[int]()  # GPUs of each node that jobs would like to keep
    for placement in liked.values():
        likes.update(dict(placement))
    new = [job for job in wanted if job not in kept]
    # The largest first, because a small job fits almost anywhere.
    for job in sorted(new, key=lambda job: (-wanted[job][1], job not in liked)):
        num_nodes, gpus = wanted[job]
        placement = liked.get(job, ())
        if not placement or not free.has(placement):
            placement = _part_or_whole(free, sizes, likes, num_nodes, gpus)
        if placement:
            free.take(placement)
        elif splits:
            placement = free.pack(gpus, list(sizes)) or ()
        if not placement:
            return None
        placements[job] = placement
    return placements


def _part_or_whole(
    free: FreeGpus, sizes: Mapping[int, int], likes: Mapping[int, int], num_nodes: int, gpus: int
) -> Placement:
    """Return GPUs of one node, or whole nodes; nothing if there are not enough free GPUs.

    The node with the fewest sufficient free GPUs comes first, then the node with the fewest GPUs that jobs would like
    to keep, in `likes`.
    """
    if num_nodes == 1:
        fitting = [node for node in sizes if free.gpus[node] >= gpus]
        if not fitting:
            return ()
        best_node = min(fitting, key=lambda node: (free.gpus[node], likes[node], node))
        return ((best_node, gpus),)
    size = max(sizes.values())
    whole_nodes = [node for node in sizes if free.gpus[node] == size]
    # The number of GPUs of a gang may be no multiple of the size.
    needs_whole_nodes = gpus == num_nodes * size
    if not needs_whole_nodes or len(whole_nodes) < num_nodes:
        return ()
    whole_nodes.sort(key=likes.__getitem__)
    return tuple((node, size) for node in sorted(whole_nodes[:num_nodes]))
