"""The choice of nodes by select/cons_tres.

Nodes of the lowest weight go first. Among them, a job gets neighbours: the run of neighbouring nodes that suffices with
the fewest CPUs, so that larger runs stay whole for larger jobs.
"""

from __future__ import annotations

from collections.abc import Sequence

from polluxsim.policies.slurm.values import Allocated, FreeNodes, Held, Node, NodePart, NodeSet, Request, numbers_of


def chosen_nodes(request: Request, allowed: NodeSet, free: FreeNodes, nodes: Sequence[Node]) -> Allocated | None:
    """Return what a job gets on which of the allowed nodes; None if it does not fit there."""
    if request.alternatives:
        return _best_alternative(request, allowed, free, nodes)
    if request.gpu_type or request.features:
        allowed = suitable(request, allowed, nodes)
    if request.task is not None:
        return _for_tasks(request, request.task, allowed, free, nodes)
    allocated: list[Held] = []
    for part in request.parts:
        fitting = [node for node in numbers_of(allowed) if _fits(part, node, free, nodes)]
        if request.exclusive:
            fitting = [node for node in fitting if is_idle(node, free, nodes)]
        if len(fitting) < part.nodes:
            return None
        offers = _cpus_on_offer(request, part, fitting, free)
        for node in best_nodes(part.nodes, fitting, offers, nodes):
            # An exclusive job gets all CPUs, so that no other job fits beside it. (Measured.)
            cpus = nodes[node].cpus if request.exclusive else part.cpus
            allocated.append(Held(node, part.gpus, cpus, part.memory_on(nodes[node])))
            allowed &= ~(1 << node)
    return tuple(allocated)


def _best_alternative(request: Request, allowed: NodeSet, free: FreeNodes, nodes: Sequence[Node]) -> Allocated | None:
    """Return what a job gets by the alternative on nodes of the lowest weight; the first one wins on ties."""
    fitting: list[tuple[int, Allocated]] = []
    for alternative in request.alternatives:
        held = chosen_nodes(alternative, allowed, free, nodes)
        if held is not None:
            fitting.append((max(nodes[on_node.node].weight for on_node in held), held))
    if not fitting:
        return None
    _, best = min(fitting, key=lambda pair: pair[0])
    return best


def suitable(request: Request, allowed: NodeSet, nodes: Sequence[Node]) -> NodeSet:
    """Return the nodes with the GPU type and the features that a job asks for."""
    for node in numbers_of(allowed):
        # A job that asks for a type fits only nodes of that type. (Source: gres.conf(5).)
        has_type = request.gpu_type in ("", nodes[node].gpu_type)
        if not has_type or not request.features <= nodes[node].features:
            allowed &= ~(1 << node)
    return allowed


def _fits(part: NodePart, node: int, free: FreeNodes, nodes: Sequence[Node]) -> bool:
    """Return whether a node has the free GPUs, CPUs and memory."""
    if free.gpus[node] < part.gpus or free.cpus[node] < part.cpus:
        return False
    return free.memory[node] >= part.memory_on(nodes[node])


def is_idle(node: int, free: FreeNodes, nodes: Sequence[Node]) -> bool:
    """Return whether no job is on a node: each job has a CPU."""
    return free.cpus[node] == nodes[node].cpus


def _cpus_on_offer(request: Request, part: NodePart, fitting: Sequence[int], free: FreeNodes) -> dict[int, int]:
    """Return the CPUs that each node offers to a job.

    With --ntasks-per-node, a node offers only the CPUs that the tasks need. Then all nodes are equal, and the first one
    wins. (Source: plugins/select/cons_tres/job_test.c.)
    """
    if request.states_tasks:
        return dict.fromkeys(fitting, part.cpus)
    return {node: free.cpus[node] for node in fitting}


def best_nodes(count: int, fitting: Sequence[int], offers: dict[int, int], nodes: Sequence[Node]) -> list[int]:
    """Return the nodes that a job gets among enough fitting nodes, in rising order.

    The best run is the smallest one that suffices, so that large runs stay whole.
    (Measured; source: plugins/select/cons_tres/job_test.c, `_eval_nodes`.)

    >>> best_nodes(1, [0, 2, 3], {0: 64, 2: 60, 3: 62}, [Node(4, 64)] * 4)
    [0]
    >>> best_nodes(2, [0, 2, 3], {0: 64, 2: 60, 3: 62}, [Node(4, 64)] * 4)
    [2, 3]
    """
    runs = runs_of_neighbours(fitting, nodes)
    taken: list[int] = []
    while len(taken) < count:
        missing = count - len(taken)
        # Runs of lower weight go first, even if they are too small. (Source: slurm.conf(5), `Weight`.)
        lowest_weight = min(nodes[run[0]].weight for run in runs)
        candidates = [run for run in runs if nodes[run[0]].weight == lowest_weight]
        run = _best_run(missing, candidates, offers)
        runs.remove(run)
        # On a single node, the job leaves the nodes with more CPUs to others. Several nodes are taken from the left.
        if len(run) <= missing:
            taken += run
        elif count == 1:
            taken.append(min(run, key=lambda node: offers[node]))
        else:
            taken += run[:missing]
    return sorted(taken)


def runs_of_neighbours(fitting: Sequence[int], nodes: Sequence[Node]) -> list[list[int]]:
    """Return the runs of neighbouring nodes of equal weight, in the order of slurm.conf.

    >>> runs_of_neighbours([0, 1, 3], [Node(4, 64)] * 4)
    [[0, 1], [3]]
    >>> runs_of_neighbours([0, 1], [Node(4, 64, weight=1), Node(4, 64, weight=2)])
    [[0], [1]]
    """
    runs: list[list[int]] = []
    for node in fitting:
        is_neighbour = bool(runs) and runs[-1][-1] == node - 1
        if is_neighbour and nodes[node - 1].weight == nodes[node].weight:
            runs[-1].append(node)
        else:
            runs.append([node])
    return runs


def _best_run(missing: int, runs: Sequence[list[int]], offers: dict[int, int]) -> list[int]:
    """Return the run with the fewest CPUs of those with enough nodes, else the run with the most CPUs.

    The first run wins on ties.
    """
    sufficient = [run for run in runs if len(run) >= missing]
    if sufficient:
        return min(sufficient, key=lambda run: sum(offers[node] for node in run))
    return max(runs, key=lambda run: sum(offers[node] for node in run))


def _for_tasks(
    request: Request, task: NodePart, allowed: NodeSet, free: FreeNodes, nodes: Sequence[Node]
) -> Allocated | None:
    """Return the nodes of a job whose tasks may share nodes.

    No rule for these jobs is measured. They get the first run of neighbours that suffices with the fewest
    CPUs on offer, and fill its nodes from the left.
    """
    rooms: dict[int, int] = {}  # tasks that fit on each node
    for node in numbers_of(allowed):
        room = free.gpus[node] // task.gpus if task.gpus else request.num_tasks
        if task.cpus:
            room = min(room, free.cpus[node] // task.cpus)
        memory = task.memory_on(nodes[node])
        if memory:
            room = min(room, free.memory[node] // memory)
        if room > 0:
            rooms[node] = room
    if sum(rooms.values()) < request.num_tasks:
        return None
    allocated: list[Held] = []
    missing = request.num_tasks
    runs = runs_of_neighbours(list(rooms), nodes)
    while missing > 0:
        run = _best_run_of_tasks(missing, runs, rooms, free)
        runs.remove(run)
        for node in run:
            count = min(rooms[node], missing)
            if count:
                memory = task.memory_on(nodes[node])
                allocated.append(Held(node, count * task.gpus, count * task.cpus, count * memory))
            missing -= count
    return tuple(sorted(allocated))


def _best_run_of_tasks(missing: int, runs: Sequence[list[int]], rooms: dict[int, int], free: FreeNodes) -> list[int]:
    """Return the run with the fewest free CPUs among those with room for all tasks, else the run with the most room."""
    sufficient = [run for run in runs if sum(rooms[node] for node in run) >= missing]
    if sufficient:
        return min(sufficient, key=lambda run: sum(free.cpus[node] for node in run))
    return max(runs, key=lambda run: sum(rooms[node] for node in run))
