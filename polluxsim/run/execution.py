"""Execute one run: check its configuration, read its files, simulate it, and report settings without effect."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from threading import Lock
from time import perf_counter
from typing import Any

from polluxsim.common.errors import InvalidConfigError, short
from polluxsim.common.process_state import undamaged
from polluxsim.common.shipped import shipped
from polluxsim.engine.scenario import Scenario, for_cluster
from polluxsim.engine.settings import DECISION_LIMIT
from polluxsim.engine.simulation import Simulation, Watcher, run_to_end
from polluxsim.engine.time_limit import time_limited
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.gpu_types import GPU_TYPES
from polluxsim.metrics.declared import computed
from polluxsim.metrics.summary import Summary, summarise
from polluxsim.models.profile import Profile
from polluxsim.policies.contract.policy import Policy, as_policy
from polluxsim.policies.contract.settings import check_names, without_effect
from polluxsim.records.columns import Records
from polluxsim.records.folders import POLICY_ENTRY
from polluxsim.records.results import Result, TimingRecord
from polluxsim.run.building import build, checked_metric, load, user_metrics
from polluxsim.run.identity import data_of, git_commit, versions
from polluxsim.run.interrupt import forks_ended
from polluxsim.run.spec import RunSpec, check_parts
from polluxsim.run.suspicions import suspicious
from polluxsim.workloads.workload import Workload


def settings_without_effect(policy: Policy, scenario: Scenario) -> list[str]:
    """Return a sentence for each setting that cannot change anything, whatever happens in the run.

    A setting that names a queue, user or GPU type that does not exist raises an `InvalidConfigError`.
    """
    _check_types(scenario)
    of_policy = policy.without_effect(scenario.workload.jobs, scenario.cluster)
    sentences = [f"policy {scenario.policy_name}: {sentence}" for sentence in of_policy]
    sentences += _ineffective_node_settings(scenario)
    sentences += _ineffective_failure_settings(scenario)
    sentences += _ineffective_job_settings(scenario)
    sentences += _ineffective_placement(scenario)
    sentences += _ineffective_limits(scenario)
    settings, cluster = scenario.settings, scenario.cluster
    for part in (cluster.failures, settings.sharing, settings.checkpoints):
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
            known = {getattr(job, limit.attribute) for job in jobs} - {None}
            check_names(f"engine.limits.{limit.attribute}", [limit.name], limit.attribute, known)
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
    """Check the GPU types of restart delays; the cluster need not have these types."""
    known = {*GPU_TYPES, *scenario.cluster.types}
    for application, delays in scenario.settings.restart_delays.items():
        if not isinstance(delays, int | float):
            check_names(f"engine.restart_delays.{application}", delays, "GPU type", known)


def _ineffective_node_settings(scenario: Scenario) -> Iterator[str]:
    cluster, settings = scenario.cluster, scenario.settings
    if scenario.traits.scales and not cluster.is_elastic:
        yield f"policy {scenario.policy_name}: the number of nodes is fixed, so it only places jobs (cluster=elastic)"
    if settings.interference and cluster.num_nodes == 1:
        yield "engine.interference has no effect: no job is on several nodes, as the cluster has one"
    if settings.free_moves and not any(settings.delays.all):
        yield "engine.free_moves has no effect: all restart delays are 0"


def _ineffective_failure_settings(scenario: Scenario) -> Iterator[str]:
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


def _ineffective_job_settings(scenario: Scenario) -> Iterator[str]:
    jobs = scenario.workload.jobs
    if jobs and scenario.batch_rule is not None and all(job.is_rigid for job in jobs):
        yield "agent has no effect: no job trains a profile, so none chooses a batch size"
    trained = {job.application for job in jobs}
    for setting, names in scenario.settings.named_applications.items():
        if jobs and trained.isdisjoint(names):
            yield f"engine.{setting} has no effect: no job trains {' or '.join(sorted(names))}"


KEPT = 8  # number of loaded workloads, and of sets of profiles, that a process keeps for its next runs

_one_loads = Lock()
_loaded: dict[str, OrderedDict[str, Any]] = {"profiles": OrderedDict(), "workload": OrderedDict()}


class Execution:
    """A run that is ready to be simulated: its settings are checked, and its files are read.

    The class and its methods raise PolluxSimError if a setting or a file is invalid, the policy fails, or there is not
    enough memory.
    """

    def __init__(self, spec: RunSpec) -> None:
        started = perf_counter()
        check_parts(spec.config)
        self.spec = spec
        if not isinstance(spec.metrics, Mapping):
            raise InvalidConfigError(f"metrics is {short(spec.metrics)}, must be polluxsim.Metric objects by name")
        self._metrics = user_metrics(spec.config)
        for name, metric in spec.metrics.items():
            self._metrics[name] = checked_metric(name, metric)
        self._user_values: dict[str, Any] = {}
        self._key = spec.key
        self._profiles, self.workload = self._load()
        self.cluster: Cluster = self._part("cluster")
        self._load_time = perf_counter() - started
        self._without_effect = list[str]()

    def simulate(self, *watchers: Watcher) -> tuple[Result, Summary | None]:
        """Simulate the run, and return the records and their metrics. Watchers are called after each round."""

        def watch(run: Simulation) -> None:
            for watcher in watchers:
                watcher(run)

        try:
            with forks_ended(), undamaged():
                run, policy = self.start()
                result = run_to_end(run, policy, watch)
            self._without_effect += unused_in(run.scenario, result)
        except MemoryError as error:
            what = f"there is not enough memory for this run{f' ({error})' if str(error) else ''}"
            raise InvalidConfigError(what) from None
        load = TimingRecord("load", None, self._load_time)
        result = replace(result, timing_records=Records(TimingRecord, (load, *result.timing_records)))
        summary = summarise(result)
        self._user_values = {} if summary is None else computed(self._metrics, result)
        return result, summary

    def check(self) -> None:
        """Raise an error if the run cannot be made: a part is invalid, or a job does not fit on the cluster."""
        with undamaged():
            self._scenario(self._made_policy())

    def start(self) -> tuple[Simulation, Policy]:
        """Return the run before its first decision, and its policy."""
        policy = self._made_policy()
        if policy.slow_kernels:
            from polluxsim.common.compiling import compile_ahead  # noqa: PLC0415  (few policies need it)

            compile_ahead(policy.slow_kernels)
        return Simulation(self._scenario(policy), self.spec.seed), for_cluster(policy, self.cluster)

    def _scenario(self, policy: Policy) -> Scenario:
        """Return the scenario under a policy."""
        parts = policy, self.workload, self._profiles, self.cluster, self._part("engine")
        scenario = Scenario.under(*parts, self._part("agent") if "agent" in self.spec.config else None)
        self._without_effect = settings_without_effect(policy, scenario)
        return scenario

    def _made_policy(self) -> Policy:
        """Return the policy. Making it has the time limit of a decision."""
        name = str(self.spec.config["policy"].get("_target_")).rpartition(".")[2]
        with time_limited(self._decision_limit, name, None):
            return as_policy(self._part("policy"))

    @property
    def _decision_limit(self) -> float | None:
        """Return the time limit of a decision [s], before the settings of the engine are checked."""
        if "engine" in self.spec.objects:
            given: float | None = self.spec.objects["engine"].decision_limit
            return given
        limit = self.spec.config["engine"].get("decision_limit", DECISION_LIMIT)
        if limit is None or (isinstance(limit, int | float) and limit > 0):
            return limit
        return DECISION_LIMIT  # the settings of the engine report the value

    def _part(self, group: str) -> Any:
        return self.spec.objects[group] if group in self.spec.objects else build(self.spec.config, group)

    def _load(self) -> tuple[Mapping[str, Profile], Workload]:
        if not self.spec.objects.keys() & {"profiles", "workload"}:
            return _load(self.spec.config)
        profiles = (
            self.spec.objects["profiles"] if "profiles" in self.spec.objects else load(self.spec.config, "profiles")
        )
        given = self.spec.objects.get("workload")
        return profiles, load(self.spec.config, "workload", profiles) if given is None else given

    def info(self, summary: Summary | None) -> dict[str, Any]:
        """Return the content of run.json for the run."""
        unused = {"without_effect": self._without_effect} if self._without_effect else {}
        odd = suspicious(self.spec.config, self.workload)
        notes = {"notes": list(self.workload.notes)} if self.workload.notes else {}
        return {
            "config": self.spec.config,
            "seed": self.spec.seed,
            "nodes": self.cluster.groups,
            "key": self._key,
            "versions": versions(),
            "git_commit": git_commit(),
            "summary": None if summary is None else summary.values(),
            **unused,
            **({"suspicious": odd} if odd else {}),
            **named_policy_entry(self.spec.policy_entry),
            **notes,
            **({"origin": self.workload.origin.as_json()} if self.workload.origin else {}),
            **({"metrics": self._user_values} if self._user_values else {}),
        }


def named_policy_entry(name: str | None) -> dict[str, str]:
    """Return the part of run.json that names the user's configuration of the policy; {} for a shipped configuration."""
    if name is None or (shipped("configs") / "policy" / f"{name}.yaml").is_file():
        return {}
    return {POLICY_ENTRY: name}


def _load(config: Mapping[str, Any]) -> tuple[Mapping[str, Profile], Workload]:
    """Return profiles and workload. Workloads of the last runs are kept, and read again if their files changed."""
    with _one_loads:
        profiles = _kept("profiles", {"profiles": config["profiles"]}, lambda: load(config, "profiles"))
        sources = {group: config[group] for group in ("profiles", "workload")}
        return profiles, _kept("workload", sources, lambda: load(config, "workload", profiles))


def _kept(group: str, sources: Mapping[str, Any], read: Callable[[], Any]) -> Any:
    """Return the object that these settings describe.

    Load the workload again only if the settings or their files changed.
    """
    known, name = _loaded[group], json.dumps([sources, data_of(sources)], sort_keys=True)
    if name not in known:
        known[name] = read()
        if len(known) > KEPT:
            known.popitem(last=False)
    known.move_to_end(name)
    return known[name]
