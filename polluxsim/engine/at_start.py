"""Give the jobs that run at the start of a run their GPUs, before the first round."""

from __future__ import annotations

from collections.abc import Sequence

from polluxsim.common.errors import InvalidAllocationError
from polluxsim.engine.decision import move_of
from polluxsim.engine.job import ActiveJob
from polluxsim.engine.state import State
from polluxsim.hardware.gpu_types import ANY
from polluxsim.hardware.node_shapes import NodeRequest, Shape
from polluxsim.hardware.placements import Placement
from polluxsim.policies.tools.free_gpus import FreeGpus
from polluxsim.records.results import BeforeRun
from polluxsim.workloads.past import Past


def place_running_jobs(state: State) -> None:
    """Place the jobs that run at the start of the run, without a restart delay, and count all jobs from before it.

    A job gets the nodes that it is on. If they are unknown, do not exist or have too few GPUs, it gets other nodes that
    it can use. Jobs get these nodes in order of their starts. A job for which too few GPUs are left waits like a
    pending job, and keeps the work that it has done.

    Raise InvalidInputError if a job cannot run on the GPUs that it gets.
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
                problem = f"it cannot run on its GPUs at the start of the run: {error}"
                raise state.scenario.workload.error(job.job, problem) from error
            # It goes on as before: nothing starts again at the start of the run.
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
    # A running job has a start; only the type of the field allows None.
    return past.started or 0.0, job.order


def _chosen(state: State, running: Sequence[tuple[ActiveJob, Past]]) -> dict[ActiveJob, Placement]:
    """Return the placements of running jobs; jobs without room are left out. `running` is in order of the starts."""
    free = FreeGpus(state.nodes.idle(len(state.nodes.present(state.clock.now))))
    chosen: dict[ActiveJob, Placement] = {}
    # Jobs with known nodes come first, so that no other job takes these nodes.
    for job, past in running:
        if past.placement and free.has(past.placement):
            free.take(past.placement)
            chosen[job] = past.placement
    spare_gpus: dict[tuple[int, ...], int] = {}  # GPUs for further jobs on groups of nodes
    types: dict[ActiveJob, str] = {}  # GPU type of each job that has room
    nodes_of: dict[ActiveJob, tuple[int, ...]] = {}  # nodes of this type that each of these jobs can use
    for job, _ in running:
        if job in chosen:
            continue
        speeds = state.scenario.speeds_of(job.job)
        gpus = _gpus_of(job)
        # The type on which the job is fastest comes first.
        for name in sorted(speeds, key=speeds.__getitem__, reverse=True):
            nodes = _nodes_of(state, job, name, len(free.gpus))
            if gpus <= spare_gpus.setdefault(nodes, free.on(nodes)):
                spare_gpus[nodes] -= gpus
                types[job] = name
                nodes_of[job] = nodes
                break
    # The widest job is placed first, so that fewer jobs span several nodes.
    for job in sorted(types, key=lambda job: (-_gpus_of(job), _started(job), job.order)):
        chosen[job] = _packed(free, _shape_of(state, job, types[job]), nodes_of[job])
    return chosen


def _started(job: ActiveJob) -> float:
    return job.holding.start_time or 0.0


def _gpus_of(job: ActiveJob) -> int:
    """Return the number of GPUs that a running job holds at the start of the run; the request if it is unknown."""
    past = job.job.past
    if past is None or not past.placement:
        return job.job.num_replicas
    return sum(gpus for _, gpus in past.placement)


def _nodes_of(state: State, job: ActiveJob, gpu_type: str, num_nodes: int) -> tuple[int, ...]:
    """Return the numbers of the nodes of a type that a job can use, among the first `num_nodes` nodes."""
    cluster = state.scenario.cluster
    types = state.nodes.node_types
    nodes: Sequence[int] = range(num_nodes)
    if types and gpu_type != ANY.name:
        nodes = types.nodes[gpu_type]
    if cluster.partitions:
        usable = set(cluster.group_of_queue(job.job.queue).nodes)
        nodes = [node for node in nodes if node in usable]
    return tuple(node for node in nodes if node < num_nodes)


def _shape_of(state: State, job: ActiveJob, gpu_type: str) -> Shape:
    """Return the shape of a running job; if it holds another number of GPUs than it requests, they may be anywhere."""
    gpus = _gpus_of(job)
    if gpus != job.job.num_replicas:
        return Shape(gpus)
    request = NodeRequest(gpus, job.job.num_nodes, job.job.gpus_per_task)
    return state.scenario.shape_rule.shape(request, gpu_type)


def _packed(free: FreeGpus, shape: Shape, nodes: Sequence[int]) -> Placement:
    """Take free GPUs for a running job of a shape.

    If the shape does not fit, or leaves the nodes open, the job gets the fullest node that has enough GPUs, and
    otherwise the nodes with the most free GPUs: it runs, wherever it is.
    """
    gpus = shape.gpus
    if shape.parts:
        placement = free.pack_shape(shape, nodes)
        if placement is not None:
            return placement
    fitting = [node for node in nodes if free.gpus[node] >= gpus]
    if fitting:
        node = min(fitting, key=lambda node: (free.gpus[node], node))
        placement = ((node, gpus),)
        free.take(placement)
        return placement
    return free.pack(gpus, nodes) or ()
