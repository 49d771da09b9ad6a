"""Settings of a run that have no effect on it, each in a sentence, and names in settings that do not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.gpu_types import GPU_TYPES
from polluxsim.policies.effects import check_names, without_effect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polluxsim.engine.scenario import Scenario
    from polluxsim.policies.view import Policy
    from polluxsim.records import Result


def settings_without_effect(policy: Policy, scenario: Scenario) -> list[str]:
    """Return a sentence for each setting that cannot change anything, whatever happens in the run.

    Raises
    ------
    InvalidConfigError
        If a setting names a queue, user or GPU type that does not exist.
    """
    _check_types(scenario)
    of_policy = without_effect(policy, scenario.workload.jobs, scenario.cluster)
    sentences = [f"policy {scenario.policy_name}: {sentence}" for sentence in of_policy]
    return [*sentences, *_of_nodes(scenario), *_of_failures(scenario), *_of_jobs(scenario), *_of_parts(scenario)]


def unused_in(scenario: Scenario, result: Result) -> list[str]:
    """Return a sentence for each setting that changed nothing in a finished run."""
    if scenario.settings.sharing is not None and not result.sharing_records:
        return [f"engine.sharing has no effect: policy {scenario.policy_name} never put jobs on the same GPUs"]
    return []


def _check_types(scenario: Scenario) -> None:
    """Check the GPU types of restart delays, which may be types that the cluster does not have."""
    known = {*GPU_TYPES, *scenario.cluster.types}
    for application, delays in scenario.settings.restart_delays.items():
        if not isinstance(delays, int | float):
            check_names(f"engine.restart_delays.{application}", delays, "GPU type", known)


def _of_nodes(scenario: Scenario) -> Iterator[str]:
    cluster, settings = scenario.cluster, scenario.settings
    if scenario.traits.scales and not cluster.is_elastic:
        yield f"policy {scenario.policy_name}: the number of nodes is fixed, so it only places jobs (cluster=elastic)"
    if settings.interference and cluster.num_nodes == 1:
        yield "engine.interference has no effect: no job is on several nodes, as the cluster has one"
    if settings.free_moves and not any(settings.delays.all):
        yield "engine.free_moves has no effect: all restart delays are 0"


def _of_failures(scenario: Scenario) -> Iterator[str]:
    cluster, settings = scenario.cluster, scenario.settings
    failures, repairs = cluster.failures, cluster.repairs
    if repairs is not None:
        if failures is None:
            yield "cluster.repairs has no effect: nodes do not fail; cluster/failures=drawn lets them"
        elif getattr(failures, "repairs_are_given", False):
            yield "cluster.repairs has no effect: the file of cluster.failures gives the end of each failure"
        elif repairs.crews is None and not repairs.spare_nodes:
            yield "cluster.repairs has no effect: crews is null, for any number, and there are no spare nodes"
    if settings.ask_at_failures and not (cluster.outages or settings.job_failures):
        yield "engine.ask_at_failures has no effect: neither nodes nor jobs fail"


def _of_jobs(scenario: Scenario) -> Iterator[str]:
    jobs = scenario.workload.jobs
    if jobs and scenario.agent is not None and all(job.is_rigid for job in jobs):
        yield "agent has no effect: no job trains a profile, so none chooses a batch size"
    trained = {job.application for job in jobs}
    for setting, names in scenario.settings.named_applications.items():
        if jobs and trained.isdisjoint(names):
            yield f"engine.{setting} has no effect: no job trains {' or '.join(sorted(names))}"


def _of_parts(scenario: Scenario) -> Iterator[str]:
    """Yield the sentences of failures, sharing model and checkpoints, each of which knows its own settings."""
    settings, cluster = scenario.settings, scenario.cluster
    for part in (cluster.failures, settings.sharing, settings.checkpoints):
        yield from without_effect(part, scenario.workload.jobs, cluster)
