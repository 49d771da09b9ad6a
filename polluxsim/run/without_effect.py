"""Report settings that have no effect in a run: before it, and after it."""

from __future__ import annotations

from collections.abc import Iterator

from polluxsim.engine.scenario import Scenario
from polluxsim.hardware.gpu_types import GPU_TYPES
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.settings import check_names, without_effect
from polluxsim.records.results import Result


def settings_without_effect(policy: Policy, scenario: Scenario) -> list[str]:
    """Return a sentence for each setting that cannot change anything, whatever happens in the run.

    Raise InvalidConfigError for a setting that names a queue, user, QOS or GPU type that does not exist.
    """
    _check_types(scenario)
    of_policy = policy.without_effect(scenario.workload.jobs, scenario.cluster)
    sentences = [f"policy {scenario.policy_name}: {sentence}" for sentence in of_policy]
    sentences += _ineffective_node_settings(scenario)
    sentences += _ineffective_failure_settings(scenario)
    sentences += _ineffective_job_settings(scenario)
    sentences += _ineffective_placement(scenario)
    sentences += _ineffective_limits(scenario)
    cluster = scenario.cluster
    for part in (cluster.failures, scenario.settings.sharing, scenario.settings.checkpoints):
        sentences += without_effect(part, scenario.workload.jobs, cluster)
    return sentences


def _ineffective_placement(scenario: Scenario) -> Iterator[str]:
    """Yield a sentence if jobs should keep their nodes, and the policy places them by a rule of its own."""
    if scenario.shape_rule.anywhere or scenario.traits.keeps_shapes:
        return
    yield (
        f"engine.placement has no effect: {scenario.policy_name} places jobs by its own rule, and may spread the GPUs "
        "of a job over more nodes than it requests"
    )


def _ineffective_limits(scenario: Scenario) -> Iterator[str]:
    """Yield a sentence for each limit by user, QOS or queue that cannot stop a job.

    A limit of a QOS or queue that no job has raises an `InvalidConfigError`.
    """
    jobs = scenario.workload.jobs
    num_gpus = scenario.cluster.num_gpus
    for limit in scenario.settings.use_limits:
        if limit.attribute != "all":
            existing = {getattr(job, limit.attribute) for job in jobs} - {None}
            check_names(f"engine.limits.{limit.attribute}", [limit.name], limit.attribute, existing)
        if limit.is_by_user and not any(job.user for job in jobs):
            yield f"{limit.setting} has no effect: no job has a user"
        elif limit.counts_gpus and limit.most >= num_gpus:
            yield f"{limit.setting} has no effect: it is {limit.most}, and the cluster has {num_gpus} GPUs"


def unused_in(scenario: Scenario, result: Result) -> list[str]:
    """Return a sentence for each setting that changed nothing in a finished run."""
    if scenario.settings.sharing is not None and not result.sharing_records:
        return [f"engine.sharing has no effect: policy {scenario.policy_name} never put jobs on the same GPUs"]
    return []


def _check_types(scenario: Scenario) -> None:
    """Raise InvalidConfigError if a GPU type of restart delays is unknown. The cluster need not have the type."""
    gpu_types = {*GPU_TYPES, *scenario.cluster.types}
    for application, delays in scenario.settings.restart_delays.items():
        if not isinstance(delays, int | float):
            check_names(f"engine.restart_delays.{application}", delays, "GPU type", gpu_types)


def _ineffective_node_settings(scenario: Scenario) -> Iterator[str]:
    """Yield a sentence for each setting of nodes and of moves between them that cannot change anything."""
    cluster = scenario.cluster
    settings = scenario.settings
    if scenario.traits.scales and not cluster.is_elastic:
        yield f"policy {scenario.policy_name}: the number of nodes is fixed, so it only places jobs (cluster=elastic)"
    if settings.interference and cluster.num_nodes == 1:
        yield "engine.interference has no effect: no job is on several nodes, as the cluster has one"
    if settings.free_moves and not any(settings.delays.all):
        yield "engine.free_moves has no effect: all restart delays are 0"


def _ineffective_failure_settings(scenario: Scenario) -> Iterator[str]:
    """Yield a sentence for each setting of failures and repairs that cannot change anything."""
    cluster = scenario.cluster
    settings = scenario.settings
    failures = cluster.failures
    repairs = cluster.repairs
    if repairs is not None:
        if failures is None:
            yield "cluster.repairs has no effect: nodes do not fail; cluster/failures=drawn lets them"
        elif getattr(failures, "repairs_are_given", False):
            yield "cluster.repairs has no effect: the file of cluster.failures gives the end of each failure"
        elif repairs.crews is None and not repairs.spare_nodes:
            yield "cluster.repairs has no effect: crews is null, for any number, and there are no spare nodes"
    if settings.ask_at_failures and not (cluster.outages or settings.job_failures):
        yield "engine.ask_at_failures has no effect: neither nodes nor jobs fail"


def _ineffective_job_settings(scenario: Scenario) -> Iterator[str]:
    """Yield a sentence for each setting of applications and batch sizes that concerns no job."""
    jobs = scenario.workload.jobs
    # `all` is true without jobs, and a fork may add some.
    if jobs and scenario.batch_rule is not None and all(job.is_rigid for job in jobs):
        yield "agent has no effect: no job trains a profile, so none chooses a batch size"
    trained = {job.application for job in jobs}
    for setting, names in scenario.settings.named_applications.items():
        if jobs and trained.isdisjoint(names):
            yield f"engine.{setting} has no effect: no job trains {' or '.join(sorted(names))}"
