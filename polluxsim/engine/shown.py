"""What a policy is shown when it is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.engine.views import FitTogether, JobWindows
from polluxsim.policies.view import ClusterView, Standing

if TYPE_CHECKING:
    from polluxsim.engine.state import State


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
    )
