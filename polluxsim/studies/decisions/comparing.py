"""Compare a policy with a record, or with a run of polluxsim, as a command asks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from polluxsim.common.errors import InvalidConfigError
from polluxsim.policies.slurm.policy import Slurm
from polluxsim.policies.slurm.priority_parameters import MULTIFACTOR
from polluxsim.records.storage import Run
from polluxsim.run.composing import values_of
from polluxsim.run.configurations import policy_text
from polluxsim.run.named_policies import NamedPolicy, named_policy
from polluxsim.studies.decisions.any_policy import PolicyDecider
from polluxsim.studies.decisions.fitting import Value, fitted, nodes_of
from polluxsim.studies.decisions.judging import DecisionAgreement, agreement
from polluxsim.studies.decisions.own_run import compared_with_run
from polluxsim.studies.decisions.record import Record
from polluxsim.studies.decisions.replaying import RecordReplay, best_replay
from polluxsim.studies.decisions.slurm import FACTORS, SIZE, SMALL, SUBMISSION
from polluxsim.studies.decisions.sources import read_record

SLURM = "slurm"


@dataclass(frozen=True)
class RecordComparison:
    """A comparison of a policy with a record or a run."""

    source: str
    policy: str
    num_jobs: int
    agreement: DecisionAgreement
    node_names: Sequence[str]  # by number; empty if nodes have no names
    values: Sequence[Value] = ()  # what is assumed about the cluster
    notes: Sequence[str] = ()
    replay: RecordReplay | None = None  # simulations with true run times, if they are asked for


def compared(log: Path, policy: str, settings: Mapping[str, str], *, replays: bool = False) -> RecordComparison:
    """Return the comparison of a policy with a record of a site.

    With `replays`, which needs the policy slurm, the jobs are also simulated. Raise InvalidConfigError if the policy or
    a setting is unknown, invalid, or only for slurm, and InvalidInputError if the record is invalid.
    """
    named = named_policy(policy)
    made = named.make()
    source = read_record(log)
    record = source.record
    if isinstance(made, Slurm):
        stated = _stated(named)
        fit = fitted(record, {**_settings_of(made, stated), **settings}, made, stated)
        notes = [*source.notes, *fit.second_best]
        comparison = _comparison(log, policy, fit.record, fit.agreement, fit.values, notes)
        if not replays:
            return comparison
        # Equal fits differ in t0 alone, and the decisions cannot tell them apart, but the starts of a replay can.
        if len(fit.equal) > 1:
            notes.append(f"replays: with the one of {len(fit.equal)} equal seconds of t0 that has the least errors")
        return replace(comparison, replay=best_replay(fit.record, fit.equal))
    if replays:
        raise InvalidConfigError("--replay needs --policy slurm; leave it out")
    # Other policies know nothing of partitions, weights or tasks. A setting without an effect would mislead.
    of_cluster = {name: value for name, value in settings.items() if name in ("nodes", "gpus")}
    if len(of_cluster) < len(settings):
        name = next(name for name in settings if name not in of_cluster)
        raise InvalidConfigError(f"{name} has an effect for --policy slurm only; leave it out")
    record, nodes, values = nodes_of(record, of_cluster)
    decider = PolicyDecider(named.make, [node.gpus for node in nodes])
    notes = [*source.notes, "times in the reasons of the policy count from the decision"]
    # The values after those of nodes and GPUs, like CPUs, are for Slurm only.
    return _comparison(log, policy, record, agreement(record, decider), values[:2], notes)


def _stated(named: NamedPolicy) -> frozenset[str]:
    """Return the names of the parameters that a user states; all of them in an entry of the user's own."""
    if named.entry != SLURM:
        return frozenset(named.settings)
    # The entry `slurm` has a default for each parameter, so only what the name adds to it is the user's.
    return frozenset(values_of(policy_text(named.name).settings))


def _settings_of(policy: Slurm, stated: frozenset[str]) -> dict[str, str]:
    """Return what the stated parameters of the policy say about the installation."""
    settings = {}
    if "tasks" in stated:
        settings["tasks"] = policy.tasks
    # Slurm has no tiers by default, so the user states those of the policy.
    if policy.priority_tier:
        settings["tiers"] = ",".join(f"{name}:{tier}" for name, tier in policy.priority_tier.items())
    if "priority_type" in stated:
        settings["order"] = SUBMISSION
        if policy.priority_type == MULTIFACTOR and policy.priority_weight_job_size:
            settings["order"] = SMALL if policy.priority_favor_small else SIZE
        if policy.has_factors:
            settings["order"] = FACTORS
    return settings


def _comparison(
    log: Path, policy: str, record: Record, agreed: DecisionAgreement, values: Sequence[Value], notes: Sequence[str]
) -> RecordComparison:
    """Return a comparison with a record; node names are empty if the record states no nodes, so that none is shown."""
    names = record.node_names if record.compares_nodes else ()
    return RecordComparison(log.name, policy, len(record.jobs), agreed, names, values, notes)


def compared_to_run(run: Run, policy: str) -> RecordComparison:
    """Return the comparison of a policy with the decisions of a run.

    Raise InvalidConfigError if the policy is unknown, and InvalidInputError if the run is not reproduced.
    """
    agreed = compared_with_run(run, named_policy(policy))
    return RecordComparison(run.name, policy, len(run.result.job_records), agreed, ())
