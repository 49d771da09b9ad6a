"""When a run has come to a standstill: jobs are left, and nothing more will come of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polluxsim.engine.settings import EngineSettings
    from polluxsim.engine.state import State

LEAST_TIME, LEAST_ROUNDS, DELAYS = 60_000.0, 100, 10
"""Time [s], rounds, and restart delays on top without any progress that are taken as a standstill."""


class Standstill:
    """Notices that nobody makes progress any more."""

    def __init__(self, settings: EngineSettings) -> None:
        self._patience = max(LEAST_TIME, LEAST_ROUNDS * settings.round_interval) + DELAYS * max(settings.delays.all)
        self._since: float | None = None

    def at_round(self, state: State, num_coming: int) -> str | None:
        """Return why the run stands still, None if it does not or this cannot be said yet."""
        time, active = state.agenda.now, state.jobs.active.values()
        hopes = num_coming or state.nodes.are_coming(time)
        if hopes or any(job.is_training(time) for job in state.jobs.placed.values()):
            self._since = None
        elif self._since is None or state.rounds.is_news:
            self._since = time
        elif time - self._since >= self._patience and all(job.job.cancel_time is None for job in active):
            return self.now(state)  # nor is anybody going to give up, which may let others run
        return None

    def now(self, state: State) -> str:
        """Return why the run stands still."""
        jobs, time = state.jobs.active, state.agenda.now
        waited = 0.0 if self._since is None else time - self._since
        first = next(iter(jobs), "none")
        what = f"none of the {len(jobs)} jobs left, the first is {first!r},"
        how = f"has made any progress in the {waited:g} s up to" if waited else "will make progress after"
        counts, elastic = state.nodes.counts, ""
        if counts is not None and counts.requested == counts.least:
            elastic = f"; only {counts.least} of up to {counts.most} nodes are up, as the policy asked for no more"
        guest = f"policy {state.scenario.policy_name} gave no GPU, or moved them every time"
        return f"{what} {how} {time:g} s: {guest}{elastic}"
