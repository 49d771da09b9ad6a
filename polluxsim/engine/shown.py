"""What a policy is shown when it is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from polluxsim.engine.views import JobWindows
from polluxsim.policies.view import ClusterView, Standing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polluxsim.engine.sharing import Sharing
    from polluxsim.engine.state import State
    from polluxsim.engine.views import JobWindow
    from polluxsim.gpu_types import NodeTypes
    from polluxsim.policies.view import JobView


def shown(state: State, now: float) -> ClusterView:
    """Return the view of a run as it is now [s]; its shutter is open."""
    jobs, nodes, settings = state.jobs, state.nodes, state.scenario.settings
    up = nodes.present(now)
    return ClusterView(
        time=now,
        gpus_per_node=up,
        jobs=JobWindows(state.shutter, len(jobs.active), jobs.all_views),
        restart_delay=settings.restart_delay,
        restart_delays=settings.delays,
        nodes=nodes.counts,
        changes=state.rounds.changes(),
        round_interval=settings.round_interval,
        standing=Standing(
            JobWindows(state.shutter, len(jobs.placed), jobs.running_views),
            JobWindows(state.shutter, len(jobs.active) - len(jobs.placed), jobs.waiting_views),
            tuple(nodes.idle(len(up))),
            jobs.demand,
        ),
        health=nodes.health,
        node_types=nodes.types,
        shared=dict(nodes.board.held),
        shared_speeds={job_id: speed for job_id, (_, speed) in state.records.shares.items()},
        fit_together=None if settings.sharing is None else FitTogether(settings.sharing, nodes.types),
        hosts=state.scenario.cluster.hosts[: len(up)],
    )


class FitTogether:
    """Asks what says which jobs share GPUs whether two jobs could have the same ones, on nodes of any type there is."""

    def __init__(self, sharing: Sharing, node_types: NodeTypes) -> None:
        self._sharing, self._types = sharing, node_types
        names = [gpu_type.name for gpu_type in node_types]
        self._nodes = [names.index(name) for name in dict.fromkeys(names)] or [0]

    def __call__(self, one: JobView, other: JobView) -> bool:
        """Return whether they could."""
        windows = cast("Sequence[JobWindow]", (one, other))
        pairs = ([each.as_tenant(node, self._types) for each in windows] for node in self._nodes)
        return one.num_replicas == other.num_replicas and all(map(self._sharing.fits, pairs))

    def __deepcopy__(self, memo: dict[int, Any]) -> FitTogether:
        return self  # what it asks remembers nothing
