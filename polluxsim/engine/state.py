"""The state of a run, and the transitions that change it.

A `State` has the jobs, the nodes and the clock. Its methods are the transitions: a job arrives, gets GPUs, ends; a node
fails, comes up. Other modules decide when a transition takes place, and call it: `submissions` (arrivals), `outages`
(failures), `futures` (forks), and `simulation` (the decisions of the policy). They read the state, and change it
through these methods only. Three things are not part of this rule: any module schedules its own events on `clock`,
`Simulation` sets `observers` once, and views are opened and closed through `view_validity`.

Each transition has three steps:

1. It brings the job to the present. A job whose course of epochs is known is not touched when an epoch ends, so its
   epoch can be behind. This does not split its segment: a split would change the rounding of the job's progress.
2. It makes the change.
3. It tells the observers of this transition, in the order of their tuple in `Observers`. This order is part of the
   order of events at one instant: the tables of jobs come first, because the other observers read them.

These statements are true between any two transitions:

- a job is in `jobs.active` from `submit` to `end`, and in `jobs.placed` exactly while it has GPUs;
- the GPUs that `nodes` counts as taken are those of the jobs in `jobs.placed`, and none of them is on a node that is
  down;
- a job with GPUs has a segment, and the clock has at most one event that is valid for it: the one with its `serial`.

The trap: after `ActiveJob.place` with GPUs, the job has no event until `_begin_segment`. `place` therefore begins the
segments last, when all jobs have moved and their slowdowns are known, since a slowdown depends on all other jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple, TypeAlias

from polluxsim.common.instants import has_come
from polluxsim.engine.clock import Clock, Event, Rank, check_range
from polluxsim.engine.job import ActiveJob, ChosenBatch, Move, Transition
from polluxsim.engine.nodes import Nodes
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.sharing import losses_by, tenant_of
from polluxsim.engine.tables import JobTables, in_order
from polluxsim.engine.truth import MixedTrainingSpeed
from polluxsim.engine.views import ViewValidity
from polluxsim.hardware.clusters import Cluster, Outage
from polluxsim.hardware.hosts import Host, Hosted, with_gpus
from polluxsim.hardware.placements import Gpus, JobId
from polluxsim.records.results import BeforeRun, Status
from polluxsim.workloads.workload import Job

Share: TypeAlias = tuple[Gpus, float]  # GPUs by number of a job, and its speed relative to its speed alone


Observer: TypeAlias = Callable[[Transition], None]


class Observers(NamedTuple):
    """The observers of each transition, in the order in which they are told. `Simulation` has the table.

    Each observer is a bound method, so a copy of a run notifies its own observers.
    """

    submitted: tuple[Observer, ...]
    placed: tuple[Observer, ...]  # the job has other GPUs, or none
    started: tuple[Observer, ...]  # its first segment on other GPUs begins
    resumed: tuple[Observer, ...]  # another segment on the same GPUs begins
    epoch_entered: tuple[Observer, ...]  # it passed the end of an epoch of its known course
    epoch_ended: tuple[Observer, ...]  # an epoch ended by an event
    interval_begun: tuple[Observer, ...]  # an epoch ends in the interval that begins now
    learnt: tuple[Observer, ...]
    evicted: tuple[Observer, ...]
    ended: tuple[Observer, ...]
    nodes_changed: tuple[Callable[[], None], ...]
    chooser_changed: tuple[Observer, ...]  # the policy, or the agent again, chooses its batch size
    shares_changed: tuple[Callable[[Mapping[JobId, Share], Mapping[JobId, Share]], None], ...]
    hosts_changed: tuple[Callable[[Mapping[JobId, Hosted], Mapping[JobId, Hosted]], None], ...]


class State:
    """The jobs, the nodes and the clock of a run. Other modules change jobs and nodes by the methods of this class."""

    observers: Observers  # set once, when the run is made

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.clock = Clock(scenario.settings.round_interval)
        self.view_validity = ViewValidity(scenario)
        self.jobs = JobTables(self.view_validity)
        self.nodes = Nodes(scenario.cluster, scenario.workload.first_submission)
        self.shares: dict[JobId, Share] = {}  # of the jobs with GPUs by number
        self.hosted: Mapping[JobId, Hosted] = {}  # of the jobs with GPUs, if the cluster states CPUs and memory
        self.batches: Mapping[JobId, ChosenBatch] = {}  # that the policy chose at its last decision
        self.past_scenarios: list[tuple[float, Scenario]] = []  # with the times until which they held [s]
        # Numbers of the jobs that were submitted before the start of the run; None if there are none.
        self.before_run: BeforeRun | None = None
        self._num_submitted = 0

    def use_scenario(self, scenario: Scenario) -> None:
        """Go on with another scenario."""
        if scenario is not self.scenario:
            self.past_scenarios.append((self.clock.now, self.scenario))
            self.scenario = scenario
            self.view_validity.scenario = scenario

    # Transitions of jobs: they arrive, change and end.

    def submit(self, job: Job) -> None:
        """Submit a job."""
        truth = self.scenario.truth_of(job)
        agent = self.scenario.agents.new(job, truth)
        active = ActiveJob(job, truth, agent, self.scenario.settings.time_rule, self._num_submitted)
        self._num_submitted += 1
        if job.past is not None:
            active.continue_from(job.past)
        _tell(self.observers.submitted, Transition(self.clock.now, active))

    def replace_request(self, job: Job) -> bool:
        """Replace the request of an active job.

        The job continues with the rest of its work. Return whether the request changed.
        """
        active = self.jobs.active[job.job_id]
        before = active.job
        if before == job:
            return False
        self._bring_to_present(active)
        truth = active.truth
        active.job = job
        active.truth = self.scenario.truth_of(job)
        if active.truth.application != truth.application:
            active.agent = self.scenario.agents.new(job, active.truth)
        policy_chose = active.batch is not None
        active.batch = None  # it may be outside the new limits
        self.jobs.replace_request(active, before)
        has_other_epochs = active.truth.epoch_ends != truth.epoch_ends or job.plan != before.plan
        if active.placement and (has_other_epochs or policy_chose):
            self._begin_segment(active, self.observers.resumed)
        return True

    def overtake(self, name: JobId, other: JobId) -> None:
        """Move a job in the order of submission to the place before another job."""
        self.jobs.put_before(name, other)

    def replace_agents(self) -> None:
        """Give each active job a new agent, and the true speeds of the present scenario.

        A new agent first observes its job if the job trains. A job whose new agent cannot use its GPUs loses them.
        """
        for job in self.jobs.active.values():
            self._bring_to_present(job)
            job.truth = self.scenario.truth_of(job.job)
            agent = self.scenario.agents.new(job.job, job.truth)
            if isinstance(job.training_speed, MixedTrainingSpeed):
                cannot_run = agent.divide is None
            else:  # an adaptive job may have run on a type with fewer GPUs than it requests
                types = self.nodes.node_types
                usable = self.scenario.speeds_of(job.job)
                cannot_run = bool(types) and any(types[node].name not in usable for node, _ in job.placement)
            if cannot_run or job.holding.num_replicas > agent.max_replicas:
                self.place([Move(job, (), None)])
            job.take_agent(agent, self.clock.now)
            self.jobs.forget_agent(job.job_id)
            if job.placement:
                self._begin_segment(job, self.observers.resumed)

    def end(self, job: ActiveJob, status: Status) -> None:
        """End a job."""
        now = self.clock.now
        if job.placement:
            self.nodes.give_back(job.placement, job.job_id)
        # The course of a complete job is over, and its work is all of it.
        if status is not Status.COMPLETED:
            job.pass_epochs(now)
        job.place((), None, now, self.scenario.settings.restart_delay)
        self.shares.pop(job.job_id, None)
        _tell(self.observers.ended, Transition(now, job, status=status))

    # Jobs get GPUs, train, and lose GPUs.

    def place(self, moves: Collection[Move], rechosen: Sequence[ActiveJob] = ()) -> None:
        """Change the GPUs of jobs, in order of submission. `rechosen` jobs go on with another batch size."""
        # All GPUs are given back before any are taken: a job can get the GPUs that another job leaves.
        for move in moves:
            if move.job.placement:
                self._bring_to_present(move.job)
                self.nodes.give_back(move.job.placement, move.job.job_id)
        for move in moves:
            self._move(move)
        slowed = self._update_slowdowns()
        if not (moves or rechosen or slowed):
            return
        moved = dict.fromkeys(move.job for move in moves)
        # Each job once. Records have their order.
        for job in dict.fromkeys(rechosen) | moved | dict.fromkeys(slowed):
            if not job.placement:
                continue
            if job in moved:
                self._begin_segment(job, self.observers.started)
            else:
                self._begin_segment(job, self.observers.resumed)

    def choose_batches(
        self, chosen: Mapping[JobId, ChosenBatch], moves: Collection[JobId], rechosen: Sequence[ActiveJob]
    ) -> Sequence[ActiveJob]:
        """Let the policy choose batch sizes, and the agents those of all other jobs.

        `moves` are the jobs that get other GPUs, and `rechosen` those whose agents chose another batch size in this
        round. Return the jobs that go on with another batch size, in order of submission.
        """
        before = self.batches
        self.batches = chosen
        changed = {job for job in rechosen if job.batch is None or job.job_id in moves}
        for job_id in dict.fromkeys([*before, *chosen]):
            job = self.jobs.active.get(job_id)
            if job is None:
                continue
            if job.choose_batch(chosen.get(job_id), is_moved=job_id in moves):
                changed.add(job)
            _tell(self.observers.chooser_changed, Transition(self.clock.now, job))
        return in_order(changed)

    def start_with(self, moves: Collection[Move], before_run: BeforeRun) -> None:
        """Place the jobs that run at the start of the run, and keep the numbers of the jobs from before it."""
        self.before_run = before_run
        self.place(moves)

    def release(self, job: ActiveJob, warning: float = 0.0, *, is_crash: bool = False) -> None:
        """Take all GPUs of a job after a failure of its nodes, or of the job itself if `is_crash`.

        A job that makes checkpoints saves its work if a warning came early enough before [s].
        """
        now = self.clock.now
        settings = self.scenario.settings
        self._bring_to_present(job)
        saving = None  # time that a checkpoint takes, if the warning leaves time for it [s]
        checkpoint = None
        if warning and settings.checkpoints is not None:
            cost = settings.checkpoints.cost_of(job.job.application)
            if has_come(cost, warning):
                saving = cost
                checkpoint = (job.saves_from(now, saving), now)
        was_training = job.is_training(now)  # read before `lose`, which ends the training
        self.nodes.give_back(job.placement, job.job_id)
        job.lose(now, settings.restart_delay, saving)
        if is_crash:
            job.holding.num_crashes += 1
        _tell(self.observers.evicted, Transition(now, job, checkpoint=checkpoint, was_training=was_training))

    def enter_epochs(self) -> None:
        """Bring the jobs whose courses are known to the epochs that they are in."""
        for job_id in self.jobs.courses.take_due(self.clock.now):
            self._bring_to_present(self.jobs.placed[job_id])

    def end_interval(self) -> list[ActiveJob]:
        """Let the agents that learn observe jobs that train. Return the jobs for which they choose other batches."""
        changed: list[ActiveJob] = []
        if not self.jobs.learning:
            return changed
        # In order of submission, because events of one instant have this order.
        for job in in_order(self.jobs.learning.values()):
            if job.is_training(self.clock.now):
                if job.end_interval():
                    changed.append(job)
                _tell(self.observers.learnt, Transition(self.clock.now, job))
        return changed

    # Transitions of nodes: they come up, go down and fail.

    def request_nodes(self, num_nodes: int) -> None:
        """Request a number of nodes. New nodes are up after their start-up time."""
        time = self.nodes.request(num_nodes, self.clock.now)
        if time < inf:
            check_range(time, self.scenario.settings.round_interval, "the start-up of a node")
            self.clock.at(time, Rank.ARRIVAL, self._tell_nodes)

    def add_nodes(self, cluster: Cluster) -> None:
        """Have the nodes of a larger cluster from now on."""
        self.nodes.add(cluster, self.clock.now)
        self._tell_nodes()

    def announce(self, outage: Outage, *, drains: bool) -> None:
        """Announce that nodes go down at the start of an outage. Draining nodes start no jobs until then."""
        for node in self._started(outage):
            self.nodes.announce(node, outage.start, drains=drains)
        self._tell_nodes()

    def take_down(self, outage: Outage, until: float) -> None:
        """Take nodes down until a time [s]. Jobs with GPUs of these nodes lose all of their GPUs."""
        # Jobs first: a node goes down without jobs.
        nodes = self._started(outage)
        for job in in_order(self.jobs.placed.values()):
            if any(node in nodes for node, _ in job.placement):
                self.release(job, outage.warning)
        for node in nodes:
            self.nodes.fall(node, self.clock.now, until, outage.kind)
        self._tell_nodes()

    def bring_up(self, outage: Outage) -> None:
        """Bring the nodes of an outage up, other than those in another outage."""
        for node in outage.nodes:
            if node in self.nodes.down:
                self.nodes.rise(node, self.clock.now)
        self._tell_nodes()

    def grant(self, hosts: Mapping[JobId, Host]) -> bool:
        """Grant CPUs and memory to jobs, and return whether a grant changes."""
        if hosts == self.nodes.granted:
            return False
        self.nodes.granted = hosts
        return True

    def _tell_nodes(self, event: Event | None = None) -> None:
        for observe in self.observers.nodes_changed:
            observe()

    def _started(self, outage: Outage) -> list[int]:
        """Return the nodes of an outage that are requested and have started."""
        return sorted(node for node in set(outage.nodes) if self.nodes.is_there(node, self.clock.now))

    def _bring_to_present(self, job: ActiveJob) -> None:
        """Let a job enter the epoch that it is in."""
        if job.pass_epochs(self.clock.now):
            _tell(self.observers.epoch_entered, Transition(self.clock.now, job))

    def _move(self, move: Move) -> None:
        """Give a job the GPUs of a move, and charge its restart delay. Its old GPUs are given back already."""
        settings = self.scenario.settings
        now = self.clock.now
        job = move.job
        is_first_start = not job.placement and job.holding.start_time is None
        is_free = (is_first_start and settings.free_starts) or (bool(job.placement) and settings.free_moves)
        named_delay = None  # the delay that the policy named, if the job is charged it [s]
        if is_free:
            delay = 0.0
        elif move.placement and move.delay is not None:
            named_delay = move.delay
            delay = named_delay
        else:
            delay = self._restart_delay(move)
        job.place(move.placement, move.training_speed, now, delay)
        if move.gpus:
            self.nodes.shared.take(job.job_id, move.gpus)
        else:
            self.nodes.take(move.placement)
        if move.placement:
            cycle = self.scenario.checkpoint_cycle(job.job, len(move.placement), self.nodes, now)
            if cycle is not None:
                job.save_by(cycle)
        _tell(self.observers.placed, Transition(now, job, delay=named_delay))

    def _restart_delay(self, move: Move) -> float:
        """Return the restart delay of the settings [s], on the type of the first node if there are measured delays."""
        delays = self.scenario.settings.delays
        gpu_type = None
        if delays.known and move.placement:
            gpu_type = self.nodes.node_types.names_of(move.placement)[0]
        return delays.of(move.job.job.application, gpu_type)

    def _update_slowdowns(self) -> list[ActiveJob]:
        """Compute the slowdown of each running job until the next round, and return the jobs whose slowdown changed.

        The factors are, in this order: the loss to jobs that share GPUs or nodes, in [0, 1), and the speed with the
        CPUs and memory of the job, above 0.
        """
        shared = self.nodes.shared
        running = self.jobs.running
        # A job that comes or goes changes the parts of all jobs on its GPUs.
        for job_id in shared.held:
            self.jobs.placed[job_id].holding.cede(shared.ceded(job_id), self.clock.now)
        hosts = None
        if self.scenario.cluster.hosts:
            hosts = self._hosted(running)
        losses = None
        sharing = self.scenario.settings.disturbance
        if sharing is not None:
            tenants = [tenant_of(job, shared.held.get(job.job_id, ()), self.nodes.node_types) for job in running]
            losses = losses_by(sharing, tenants)
        if shared.held or self.shares:
            self._change_shares(losses or {})
        if hosts is not None:
            for record in self.observers.hosts_changed:
                record(self.hosted, hosts)
            self.hosted = hosts
        elif losses is None:
            return []  # nothing slows jobs in this run
        changed = []
        for job in running:
            slowdown = 0.0
            if losses:
                slowdown = losses.get(job.job_id, 0.0)
            # At full speed the formula would only round the slowdown.
            if hosts and hosts[job.job_id].speed != 1:
                slowdown = 1 - (1 - slowdown) * hosts[job.job_id].speed
            if slowdown != job.slowdown:
                job.slowdown = slowdown
                changed.append(job)
        return changed

    def _change_shares(self, losses: Mapping[JobId, float]) -> None:
        """Set the GPUs and relative speeds of the jobs with GPUs by number, and tell the observers."""
        shared_gpus = self.nodes.shared.held
        shares = {job_id: (gpus, 1 - losses.get(job_id, 0.0)) for job_id, gpus in shared_gpus.items()}
        for record in self.observers.shares_changed:
            record(self.shares, shares)
        self.shares = shares

    def _hosted(self, jobs: Iterable[ActiveJob]) -> dict[JobId, Hosted]:
        """Return the CPUs and memory of jobs with GPUs: as granted or, on a GPU with n jobs, a part of 1/n for each."""
        shares = self.scenario.cluster.host_shares
        nodes = self.nodes
        by_job: dict[JobId, Hosted] = {}
        for job in jobs:
            host = nodes.granted.get(job.job_id)
            if host is None:
                host = with_gpus(shares, job.placement)
                if job.job_id in nodes.shared.held:
                    host = host.times(1 - nodes.shared.ceded(job.job_id) / job.holding.num_replicas)
            hosted = self.hosted.get(job.job_id)
            # The speed is computed only for a new grant: the formula takes a while.
            if hosted is None or hosted.host != host:
                sensitivity = self.scenario.sensitivity_of(job.job)
                speed = 1.0
                if sensitivity is not None:
                    speed = sensitivity.speed(host)
                hosted = Hosted(host, speed)
            by_job[job.job_id] = hosted
        return by_job

    def _begin_segment(self, job: ActiveJob, observers: tuple[Observer, ...]) -> None:
        """Begin a segment of a job at its present speed, and schedule the event at its end."""
        time, after_round = job.begin_segment(self.clock.now)
        _tell(observers, Transition(self.clock.now, job))
        # At the end of a job that is too slow, the times of rounds would be equal floats.
        check_range(time, self.scenario.settings.round_interval, "job", job.job_id)
        rank = Rank.AFTER_ROUND if after_round else Rank.PROGRESS
        self.clock.at(time, rank, self._reach_milestone, (job, job.serial), order=job.order)

    def _reach_milestone(self, event: Event) -> None:
        """End the epoch of a job or, after its last epoch, the job. This is the event at the end of a segment."""
        job, serial = event.about
        if job.serial != serial:
            return  # something changed since, and the event of a later segment follows
        if event.rank is Rank.AFTER_ROUND:
            _tell(self.observers.interval_begun, Transition(self.clock.now, job))
        policy_chose = job.batch is not None  # read before `end_epoch`, after which the agent may choose again
        if not job.ends_epochs_by_events or job.end_epoch():
            self.end(job, Status.COMPLETED)
            return
        if policy_chose:
            _tell(self.observers.chooser_changed, Transition(self.clock.now, job))
        now = self.clock.now
        cycle = job.segment.checkpoints
        checkpoint = None
        if cycle is not None and cycle.at_epochs:
            checkpoint = (now, now + cycle.cost)
        _tell(self.observers.epoch_ended, Transition(now, job, checkpoint=checkpoint))
        self._begin_segment(job, self.observers.resumed)


def _tell(observers: tuple[Observer, ...], transition: Transition) -> None:
    for observe in observers:
        observe(transition)
