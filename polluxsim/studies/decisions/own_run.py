"""Compare a policy with each decision of a run of polluxsim, which is simulated again."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace

from polluxsim.common.errors import InvalidInputError
from polluxsim.engine.policy_calls import checked_reasons, guarded
from polluxsim.engine.scenario import for_cluster
from polluxsim.engine.simulation import Simulation
from polluxsim.hardware.placements import Allocation, Placement
from polluxsim.look.why.sentences import sentence
from polluxsim.policies.contract.decision import Decision, decision_of
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.view import Changes, ClusterView
from polluxsim.records.storage import Run
from polluxsim.run.forks import spec_of
from polluxsim.run.moment import RunMoment
from polluxsim.run.named_policies import NamedPolicy
from polluxsim.studies.decisions.judging import DecisionAgreement, Disagreement
from polluxsim.studies.decisions.record import Started


def compared_with_run(run: Run, named: NamedPolicy) -> DecisionAgreement:
    """Return how many decisions of a run a policy would have made.

    The policy sees each view that the policy of the run saw. It is asked at the same rounds, so it makes no decision at
    other ones. After a disagreement, a new policy sees the jobs as they are. Decisions before the last fork of a run
    are not compared.

    Raise InvalidInputError if the run is not reproduced.
    """
    # Another policy may have decided before the last fork.
    edits = spec_of(run).edits
    start = edits[-1].time if edits else run.result.start_time
    simulation, recorded_policy = RunMoment(run, max(start, 0.0)).copied()
    comparison = _Comparison(simulation, named)
    view = simulation.view or simulation.advance()
    while view is not None:
        # Both policies draw the same random numbers, so that a policy agrees with itself.
        random_state = deepcopy(simulation.rng)
        recorded = decision_of(simulation.ask(recorded_policy, view))
        comparison.compare(view, recorded, random_state)
        simulation.commit(recorded)
        view = simulation.advance()
    # A changed policy or engine would be compared with decisions that the run never made.
    if list(simulation.result().allocation_records) != list(run.result.allocation_records):
        raise InvalidInputError(
            f"{run.name}: simulated again, it is another run, because files, polluxsim or its libraries have changed "
            "since; make the run again"
        )
    return comparison.agreement


class _Comparison:
    """A comparison of a policy with the decisions of a run so far."""

    def __init__(self, simulation: Simulation, named: NamedPolicy) -> None:
        self._cluster = simulation.scenario.cluster
        self._named = named
        self._policy = self._new_policy()
        self._is_new = False  # whether the policy has seen no earlier round
        self.agreement = DecisionAgreement()

    def _new_policy(self) -> Policy:
        """Return a policy for the cluster of the run that remembers nothing."""
        return for_cluster(self._named.make(), self._cluster)

    def compare(self, view: ClusterView, recorded: Decision, rng: object) -> None:
        """Compare the starts of the policy with those of a recorded decision, and note whether they agree."""
        seen = view
        if self._is_new:
            # All jobs arrive for a policy that has seen nothing, as after a fork.
            jobs = view.jobs
            changes = Changes(arrived=jobs, nodes=view.changes.nodes, altered=[job.job_id for job in jobs])
            seen = replace(view, changes=changes)
            self._is_new = False
        with guarded(self._named.label, view.time):
            decision = decision_of(self._policy.allocate(seen, rng))  # type: ignore[arg-type]
        recorded_starts = starts_of(view, recorded)
        starts = starts_of(view, decision)
        agrees = starts == recorded_starts
        agreement = self.agreement
        if recorded_starts:
            agreement.decisions += 1
            agreement.agreeing_decisions += agrees
        # A round in which nothing changes is like the one before it, so agreement about it proves little.
        elif view.changes.arrived or view.changes.ended:
            agreement.quiet += 1
            agreement.agreeing_quiet += agrees
        if agrees:
            return
        disagreement = Disagreement(
            view.time, recorded_starts, starts, _recorded(view, recorded_starts), _reasons(decision, view)
        )
        wrong = agreement.disagreements if recorded_starts else agreement.wrong_quiet
        wrong.append(disagreement)
        # The policy remembers starts that did not happen.
        self._policy = self._new_policy()
        self._is_new = True


def starts_of(view: ClusterView, decision: Decision) -> frozenset[Started]:
    """Return the waiting jobs that get GPUs by a decision, with their nodes."""
    starts = set()
    for job in view.waiting:
        placement = _placement(decision, job.job_id)
        if placement:
            starts.add(Started(job.job_id, tuple(sorted(node for node, _ in placement))))
    return frozenset(starts)


def _placement(decision: Decision, job_id: str) -> Placement:
    """Return the GPUs that a waiting job gets by a decision, and one for each node of shared GPUs; () for none."""
    allocation: Allocation = decision.allocation
    # Only the nodes of a start are compared, so the number of shared GPUs does not matter.
    if job_id in decision.shared:
        return tuple((node, 1) for node in dict.fromkeys(node for node, _ in decision.shared[job_id]))
    return allocation.get(job_id, ())


def _recorded(view: ClusterView, starts: frozenset[Started]) -> Mapping[str, str]:
    """Return what the run did with each job that it starts, in words."""
    waited = {job.job_id: view.time - job.submit_time for job in view.waiting}
    return {start.job: f"starts after a wait of {waited[start.job]:.0f} s" for start in starts}


def _reasons(decision: Decision, view: ClusterView) -> Mapping[str, str]:
    """Return the reasons of a policy for its decision about waiting jobs, in words; empty if it gives none."""
    if decision.explain is None:
        return {}
    names = [job.job_id for job in view.waiting]
    reasons = {}
    for name, explained in checked_reasons(decision.explain(names), names, view.time).items():
        reasons[name] = sentence(explained.record, {explained.record.kind: explained.text})
    return reasons
