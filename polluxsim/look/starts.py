"""What every start cost in a run: its restart delays, by application and GPU type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.gpu_types import ANY
from polluxsim.look.run_cluster import cluster_of
from polluxsim.restarts import RestartDelays

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polluxsim.storage import Run

    # The delay of an application's start on nodes by number [s].
    Delay = Callable[[str, Sequence[int]], float]


def start_delay(run: Run) -> Delay:
    """Return what tells the restart delays of a run by its settings; nothing costs anything where it has none."""
    engine = run.info.get("config", {}).get("engine", {})
    delays = RestartDelays(float(engine.get("restart_delay", 0.0)), engine.get("restart_delays") or {})
    if not delays.known:
        return lambda application, nodes: delays.otherwise
    types = cluster_of(run).node_types

    def delay(application: str, nodes: Sequence[int]) -> float:
        return delays.of(application, types[nodes[0]].name if types and nodes else ANY.name)

    return delay
