"""Any policy of the simulator as the decider of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from polluxsim.engine.policy_calls import checked_reasons
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import EngineSettings
from polluxsim.engine.simulation import Simulation
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.placements import Placement
from polluxsim.look.why.sentences import sentence
from polluxsim.policies.contract.decision import Decision, decision_of
from polluxsim.policies.contract.policy import Policy
from polluxsim.studies.decisions.orders import SeenState
from polluxsim.studies.decisions.record import RecordedJob, Started
from polluxsim.workloads.past import Past
from polluxsim.workloads.workload import Job, Workload

ONCE = "policy"  # the only scheduler of a policy that is not Slurm
JUST_BEFORE = 1e-3  # a job that waits at a moment was submitted at least this long before [s]
SETTINGS = EngineSettings(round_interval=1.0, placement="consolidated", free_starts=True)


class PolicyDecider:
    """A policy, asked anew at each moment in a run that begins there. It remembers nothing of earlier moments.

    Parameters
    ----------
    make
        Function that returns a new policy.
    gpus_per_node
        GPUs of each node.
    """

    def __init__(self, make: Callable[[], Policy], gpus_per_node: Sequence[int]) -> None:
        self._make = make
        self._cluster = Cluster(tuple(gpus_per_node))
        self._starts: dict[SeenState, frozenset[Started]] = {}

    @property
    def schedulers(self) -> Sequence[str]:
        """Return the only way to run."""
        return (ONCE,)

    @property
    def judges_quiet(self) -> bool:
        """Return True, because the policy is asked about each second in which something happens."""
        return True

    def starts(self, moment: SeenState, scheduler: str) -> frozenset[Started]:
        """Return the jobs that the policy starts, each with its nodes."""
        if not moment.pending:
            return frozenset()
        # Several orders of one second lead to the same moment, and each question is a whole run.
        if moment not in self._starts:
            run, decision = self._asked(moment)
            run.commit(decision)
            starts = set()
            for job in moment.pending:
                placement = run.allocation.get(job.name)
                if placement:
                    starts.add(Started(job.name, tuple(sorted(node for node, _ in placement))))
            self._starts[moment] = frozenset(starts)
        return self._starts[moment]

    def reasons(self, moment: SeenState, scheduler: str) -> dict[str, str]:
        """Return why each pending job starts or waits, in words; empty for a policy without reasons.

        Times in the reasons count from the moment.
        """
        if not moment.pending:
            return {}
        _, decision = self._asked(moment)
        if decision.explain is None:
            return {}
        names = [job.name for job in moment.pending]
        reasons = {}
        for name, explained in checked_reasons(decision.explain(names), names, 0.0).items():
            reasons[name] = sentence(explained.record, {explained.record.kind: explained.text})
        return reasons

    def _asked(self, moment: SeenState) -> tuple[Simulation, Decision]:
        """Return a run that begins at a moment, and the first decision of the policy in it."""
        policy = self._make()
        nodes_of = {start.job: start.nodes for start in moment.started}
        jobs = []
        for job in moment.running:
            # An earlier pass may have put the job on other nodes than the record, if nodes are not compared.
            placement = tuple(zip(nodes_of.get(job.name, job.nodes), job.gpus_by_node, strict=True))
            jobs.append(_job(job, moment.second, placement))
        jobs += [_job(job, moment.second, ()) for job in moment.pending]
        workload = Workload(tuple(sorted(jobs, key=lambda job: job.submit_time)))
        run = Simulation(Scenario.under(policy, workload, {}, self._cluster, SETTINGS))
        view = run.advance()
        # A run without a waiting job has no first round; the callers ask about none.
        if view is None:
            raise ValueError("no job waits")
        return run, decision_of(run.ask(policy, view))


def _job(job: RecordedJob, now: int, placement: Placement) -> Job:
    """Return a job of a record as one of a run that begins at a second, where it runs on the placement or waits."""
    waited = now - job.submitted
    # A job of the past was submitted before 0 s. Jobs of one second keep their order.
    submit_time = -max(waited, JUST_BEFORE) + 1e-9 * job.position
    past = Past.pending()
    # A run needs a duration above 0, and a recorded job may end in the second of its start.
    duration = float(max(job.end - job.start, 1))
    if placement:
        started = float(min(job.start - now, 0))
        submit_time = min(submit_time, started - JUST_BEFORE)
        past = Past.running(started, job.gpus, placement=placement)
        # A job whose end the policy does not see yet still holds its GPUs at 0 s.
        duration = max(duration, 1 - started)
    rigid = Job.rigid(
        job.name,
        submit_time,
        job.gpus,
        duration,
        time_limit=float(job.limit),
        num_nodes=len(job.nodes),
        priority=job.priority or 0.0,
        past=past,
    )
    return replace(rigid, user=job.user or None, queue=job.partition or None)
