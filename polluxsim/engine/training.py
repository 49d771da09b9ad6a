"""Carrying out: jobs get their GPUs, train in segments, pass epochs, and disturb each other."""

from __future__ import annotations

from math import inf, nextafter
from typing import TYPE_CHECKING

from polluxsim.engine.agenda import Rank
from polluxsim.engine.hosting import hosted
from polluxsim.engine.jobs import in_order
from polluxsim.engine.mixed import MixedPace
from polluxsim.engine.moves import Move
from polluxsim.engine.rounds import check_range
from polluxsim.engine.sharing import tenant_of
from polluxsim.policies.view import Change
from polluxsim.records import Status

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from polluxsim.engine.agenda import Happening
    from polluxsim.engine.job import ActiveJob
    from polluxsim.engine.state import State
    from polluxsim.engine.world import World


class Training:
    """Moves the jobs of a run, and lets them progress."""

    def __init__(self, state: State, world: World) -> None:
        self._state = state
        self._world = world

    def end_interval(self) -> list[ActiveJob]:
        """Let the agents that still learn observe and choose again; return the jobs whose batch size changed."""
        state, now = self._state, self._state.agenda.now
        changed = []
        for job in in_order(state.jobs.learning.values()):
            if job.is_training(now):
                state.rounds.note(Change.LEARNING, job.job_id)
                if job.end_interval():
                    changed.append(job)
                if job.agent_is_steady:
                    del state.jobs.learning[job.job_id]
        return changed

    def pass_epochs(self) -> None:
        """Let the jobs whose course is known go on to the epochs they are in."""
        state, now = self._state, self._state.agenda.now
        for job in state.jobs.on_course.values():
            if job.segment.milestone.time <= now and job.pass_epochs(now):
                state.jobs.totals.update(job)
                state.rounds.note(Change.EPOCH, job.job_id)

    @property
    def next_needed(self) -> float:
        """Return when jobs next need a round [s]: as an epoch ends, or an agent has observed something."""
        jobs = self._state.jobs
        first_epoch = learning_from = inf
        for job in jobs.on_course.values():
            time, late = job.next_epoch
            if time < first_epoch:
                first_epoch = nextafter(time, inf) if late else time
        if jobs.learning:
            # An agent observes once its job has trained for some time: strictly after it began.
            learning_from = nextafter(min(job.segment.start for job in jobs.learning.values()), inf)
        return min(first_epoch, learning_from)

    def replace_agents(self) -> None:
        """Give every active job an agent as the policy asks for now; of a job that trains, it sees how that goes.

        One loses its GPUs if its new agent cannot use so many, or not of several types at once.
        """
        state, now = self._state, self._state.agenda.now
        for job in state.jobs.active.values():
            job.pass_epochs(now)
            agent = state.scenario.agents.new(job.job, job.truth)
            cannot_divide = agent.divide is None and isinstance(job.pace, MixedPace)
            if cannot_divide or job.tenure.num_replicas > agent.max_replicas:
                self.carry_out((Move(job, (), None),), ())
            job.take_agent(agent, now)
            state.jobs.changes_agent(job)
            if job.placement:
                self._begin_segment(job)

    def go_on_as(self, job: ActiveJob) -> None:
        """Let a job that holds GPUs go on with another duration."""
        if job.placement:
            self._begin_segment(job)

    def carry_out(self, moves: Collection[Move], chosen_anew: Iterable[ActiveJob]) -> None:
        """Bring the cluster to where it will be until the next round.

        Moves are in order of submission; jobs that are chosen anew go on with another batch size.
        """
        for move in moves:
            if move.job.placement:
                self._state.nodes.give_back(move.job.placement, move.job.job_id)
        for move in moves:
            self._move(move)
        changed = dict.fromkeys(chosen_anew) | dict.fromkeys(move.job for move in moves) | self._share()
        for job in changed:
            if job.placement:
                self._begin_segment(job)

    def _move(self, move: Move) -> None:
        state, settings, now, job = self._state, self._state.scenario.settings, self._state.agenda.now, move.job
        is_free = settings.free_moves and job.placement
        delay = 0.0 if is_free else self._delay_of(move)
        job.place(move.placement, move.pace, now, delay, state.shutter.rule)
        if move.gpus:
            state.nodes.board.take(job.job_id, move.gpus)
        else:
            state.nodes.take(move.placement)
        state.jobs.moved(job)
        if not move.placement:
            state.records.changed(now, job)
        elif (rhythm := state.scenario.rhythm(job.job, len(move.placement), state.nodes, now)) is not None:
            job.go_by(rhythm)

    def _delay_of(self, move: Move) -> float:
        """Return what a start costs on the GPUs' type, of which the job's profile may know nothing [s]."""
        delays, types = self._state.scenario.settings.delays, self._state.nodes.types
        gpu_type = types.names_of(move.placement)[0] if delays.known and move.placement else None
        return delays.of(move.job.job.application, gpu_type)

    def evict(self, job: ActiveJob, warning: float = 0.0) -> None:
        """Take all GPUs of a job, which was warned some time before [s] and saves its work if that is enough."""
        state, now, settings = self._state, self._state.agenda.now, self._state.scenario.settings
        saving = None
        if warning and settings.checkpoints is not None:
            cost = settings.checkpoints.cost_of(job.job.application)
            if cost <= warning:
                saving = cost
                state.records.saved(job, job.saves_from(now, saving), now)
        was_training = job.is_training(now)
        state.nodes.give_back(job.placement, job.job_id)
        job.lose(now, settings.restart_delay, state.shutter.rule, saving)
        state.jobs.moved(job)
        state.records.changed(now, job)
        state.rounds.evicted(job.job_id, was_training=was_training)
        # Nothing was said of it yet as it is now.
        state.inquiry.ended(job.job_id)
        state.inquiry.submitted(job.job_id)

    def _share(self) -> dict[ActiveJob, None]:
        """Judge until the next round whom others, and CPUs and memory, slow down; return for whom that changed."""
        state, nodes, board = self._state, self._state.nodes, self._state.nodes.board
        for job_id in board.held:
            state.jobs.placed[job_id].tenure.cede(board.ceded(job_id), state.agenda.now)
        running, lost = state.jobs.running, None
        hosts = hosted(state, running) if state.scenario.cluster.hosts else None
        if (sharing := state.scenario.settings.disturbance) is not None:
            lost = sharing.lost([tenant_of(job, board.held.get(job.job_id, ()), nodes.types) for job in running])
        if board.held or state.records.shares:
            state.records.shared(state.agenda.now, board.held, lost or {})
        if hosts is not None:
            state.records.hosted(state.agenda.now, hosts)
        elif lost is None:
            return {}
        changed: dict[ActiveJob, None] = {}
        for job in running:
            share = lost.get(job.job_id, 0.0) if lost else 0.0
            if hosts and (speed := hosts[job.job_id].speed) != 1:
                share = 1 - (1 - share) * speed
            if share != job.interference:
                job.interference = share
                changed[job] = None
        return changed

    def _begin_segment(self, job: ActiveJob) -> None:
        state = self._state
        time, after_round = job.begin_segment(state.agenda.now, state.shutter.rule)
        state.jobs.trains(job)
        state.records.changed(state.agenda.now, job)
        check_range(time, state.scenario.settings.round_interval, f"job {job.job_id!r}")
        rank = Rank.AFTER_ROUND if after_round else Rank.PROGRESS
        state.agenda.at(time, rank, self._reach_milestone, (job, job.serial), order=job.order)

    def _reach_milestone(self, event: Happening) -> None:
        job, serial = event.about
        if job.serial != serial:
            return  # something changed meanwhile, and a later milestone is on its way
        if event.rank is Rank.AFTER_ROUND:
            self._state.rounds.pass_over()
            self._state.records.passed_over(self._state.agenda.now, self._state.jobs, self._state.nodes)
        if not job.goes_by_epochs or job.end_epoch(self._state.shutter.rule):
            self._world.end(job, Status.COMPLETED)
        else:
            self._state.rounds.note(Change.EPOCH, job.job_id)
            if (rhythm := job.segment.rhythm) is not None and rhythm.at_epochs:
                self._state.records.saved(job, self._state.agenda.now, self._state.agenda.now + rhythm.cost)
            self._begin_segment(job)
