"""Give the jobs that run at the start of a run their GPUs, before the first round."""

from __future__ import annotations

from collections.abc import Sequence

from polluxsim.common.errors import InvalidAllocationError
from polluxsim.engine.decision import move_of
from polluxsim.engine.job import ActiveJob
from polluxsim.engine.state import State
from polluxsim.hardware.gpu_types import ANY
from polluxsim.hardware.placements import Placement
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.records.results import BeforeRun
from polluxsim.workloads.past import Past


def place_running_jobs(state: State) -> None:
    """Place the jobs that run at the start of the run, without a restart delay, and count all jobs from before it.

    A job gets the nodes that it is on. If they are unknown, do not exist or have too few GPUs, it gets other nodes: one
    node if the job fits on one. If the cluster has too few GPUs for all jobs, the jobs that started last wait for GPUs
    like pending jobs. They keep the work that they have done.

    Raise InvalidInputError if a job cannot run on the GPUs that it is on.
    """
    entries = [(job, job.job.past) for job in state.jobs.active.values() if job.job.past is not None]
    running = sorted([(job, past) for job, past in entries if past.is_running], key=_start_of)
    placements = _chosen(state, running)
    moves = []
    for job, _ in running:
        if job in placements:
            try:
                move = move_of(job, placements[job], state.nodes)
            except InvalidAllocationError as error:
                what = f"it cannot run on its GPUs at the start of the run: {error}"
                raise state.scenario.workload.error(job.job, what) from error
            moves.append(move._replace(delay=0.0))
    gpus_placed = [_gpus_of(job) for job in placements]
    gpus_without_room = [_gpus_of(job) for job, _ in running if job not in placements]
    gpus_pending = [job.job.num_replicas for job, past in entries if not past.is_running]
    numbers = BeforeRun(
        running=len(gpus_placed),
        running_gpus=sum(gpus_placed),
        without_room=len(gpus_without_room),
        without_room_gpus=sum(gpus_without_room),
        pending=len(gpus_pending),
        pending_gpus=sum(gpus_pending),
    )
    state.start_with(sorted(moves, key=lambda move: move.job.order), numbers)


def _start_of(entry: tuple[ActiveJob, Past]) -> tuple[float, int]:
    job, past = entry
    return past.started or 0.0, job.order


def _chosen(state: State, running: Sequence[tuple[ActiveJob, Past]]) -> dict[ActiveJob, Placement]:
    """Return the placements of running jobs, which are in order of their starts. Jobs without room are left out."""
    free = FreeGpus(state.nodes.idle(len(state.nodes.present(state.clock.now))))
    chosen: dict[ActiveJob, Placement] = {}
    for job, past in running:
        if past.placement and free.has(past.placement):
            free.take(past.placement)
            chosen[job] = past.placement
    nodes_of = {name: _nodes_of(state, name, len(free.gpus)) for name in state.scenario.cluster.types}
    left = {name: free.on(nodes) for name, nodes in nodes_of.items()}
    types: dict[ActiveJob, str] = {}  # GPU type of each job that has room
    for job, _ in running:
        if job in chosen:
            continue
        speeds, gpus = state.scenario.speeds_of(job.job), _gpus_of(job)
        for name in sorted(speeds, key=speeds.__getitem__, reverse=True):
            if gpus <= left[name]:
                left[name] -= gpus
                types[job] = name
                break
    # The widest job is placed first, so that fewer jobs span several nodes.
    for job in sorted(types, key=lambda job: (-_gpus_of(job), _started(job), job.order)):
        chosen[job] = _packed(free, _gpus_of(job), nodes_of[types[job]])
    return chosen


def _started(job: ActiveJob) -> float:
    return job.holding.start_time or 0.0


def _gpus_of(job: ActiveJob) -> int:
    """Return the GPUs that a job holds at the start of the run."""
    past = job.job.past
    return sum(gpus for _, gpus in past.placement) if past and past.placement else job.job.num_replicas


def _nodes_of(state: State, gpu_type: str, num_nodes: int) -> Sequence[int]:
    """Return the numbers of the nodes of a type among the first nodes."""
    types = state.nodes.node_types
    if not types or gpu_type == ANY.name:
        return range(num_nodes)
    return [node for node in types.nodes[gpu_type] if node < num_nodes]


def _packed(free: FreeGpus, gpus: int, nodes: Sequence[int]) -> Placement:
    """Take free GPUs of the fullest node on which a job fits, otherwise of the nodes with the most free GPUs."""
    fitting = [node for node in nodes if free.gpus[node] >= gpus]
    if fitting:
        node = min(fitting, key=lambda node: (free.gpus[node], node))
        placement: Placement = ((node, gpus),)
        free.take(placement)
        return placement
    return free.pack(gpus, nodes) or ()
