"""Execute one run: check its configuration, read its files, simulate it, and report settings without effect."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import isnan
from threading import Lock
from time import perf_counter
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from polluxsim.common.errors import InvalidConfigError, did_you_mean, short
from polluxsim.common.former_names import warn_of_former_names, with_present_names
from polluxsim.common.process_state import undamaged
from polluxsim.common.shipped import shipped
from polluxsim.common.written import settings_as_declared
from polluxsim.engine.scenario import Scenario
from polluxsim.engine.settings import DECISION_LIMIT
from polluxsim.engine.simulation import Simulation, Watcher, driven
from polluxsim.engine.time_limit import time_limited
from polluxsim.hardware.clusters import Cluster
from polluxsim.hardware.gpu_types import GPU_TYPES
from polluxsim.metrics.declared import computed
from polluxsim.metrics.summary import Summary, summarise
from polluxsim.models.profile import Profile
from polluxsim.policies.contract.settings import check_names, without_effect
from polluxsim.policies.contract.view import Policy
from polluxsim.records.columns import Records
from polluxsim.records.folders import POLICY_ENTRY
from polluxsim.records.results import Result, TimingRecord
from polluxsim.records.storage import flat
from polluxsim.run.building import build, checked_metric, in_words, load, missing, user_metrics
from polluxsim.run.configurations import config_files, known_settings
from polluxsim.run.identity import data_of, git_commit, key_of, versions
from polluxsim.run.interrupt import forks_ended
from polluxsim.run.suspicions import suspicious
from polluxsim.workloads.workload import Workload


def settings_without_effect(policy: Policy, scenario: Scenario) -> list[str]:
    """Return a sentence for each setting that cannot change anything, whatever happens in the run.

    A setting that names a queue, user or GPU type that does not exist raises an `InvalidConfigError`.
    """
    _check_types(scenario)
    of_policy = without_effect(policy, scenario.workload.jobs, scenario.cluster)
    sentences = [f"policy {scenario.policy_name}: {sentence}" for sentence in of_policy]
    sentences += [*_of_nodes(scenario), *_of_failures(scenario), *_of_jobs(scenario)]
    settings, cluster = scenario.settings, scenario.cluster
    for part in (cluster.failures, settings.sharing, settings.checkpoints):
        sentences += without_effect(part, scenario.workload.jobs, cluster)
    return sentences


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
    if jobs and scenario.batch_rule is not None and all(job.is_rigid for job in jobs):
        yield "agent has no effect: no job trains a profile, so none chooses a batch size"
    trained = {job.application for job in jobs}
    for setting, names in scenario.settings.named_applications.items():
        if jobs and trained.isdisjoint(names):
            yield f"engine.{setting} has no effect: no job trains {' or '.join(sorted(names))}"


GROUPS = ("cluster", "engine", "policy", "profiles", "workload")
TOP_LEVEL = ("agent", *GROUPS, "metrics", "seed")
NOT_THE_RUNS = "reproduce"  # part of experiment files that describes the comparison, not the runs
KEPT = 8  # number of loaded workloads, and of sets of profiles, that a process keeps for its next runs

_one_loads = Lock()
_loaded: dict[str, OrderedDict[str, Any]] = {"profiles": OrderedDict(), "workload": OrderedDict()}


class Execution:
    """A run that is ready to be simulated: its configuration is checked, and its files are read.

    `given` contains objects by config group. They replace the objects that the configuration would build. The
    configuration describes one of these objects by `_target_` and parameters if these would make an equal object;
    otherwise the run has no key. `given["metrics"]` has further metrics of the user by name. `policy_entry` is the
    name of the configuration that was chosen for the policy; run.json states the name of a user's configuration.

    The class and its methods raise PolluxSimError if a setting or a file is invalid, the policy fails, or there is not
    enough memory.
    """

    def __init__(
        self, config: DictConfig, given: Mapping[str, Any] | None = None, policy_entry: str | None = None
    ) -> None:
        started = perf_counter()
        _check_top_level(config)
        self._config = config
        self._resolved: dict[str, Any] = resolved(config)
        _check_seed(self._resolved["seed"])
        _check_groups(self._resolved)
        self._given = dict(given or {})
        self._policy_entry = policy_entry
        if not isinstance(metrics := self._given.get("metrics", {}), Mapping):
            raise InvalidConfigError(f"metrics is {short(metrics)}, must be polluxsim.Metric objects by name")
        self._metrics = user_metrics(self._resolved) | {
            name: checked_metric(name, metric) for name, metric in metrics.items()
        }
        self._user_values: dict[str, Any] = {}
        parts = [part for name, part in self._resolved.items() if isinstance(part, dict) and name != "metrics"]
        can_be_built = all("_target_" in part for part in parts)
        self._key = key_of(self._resolved) if can_be_built else None
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
                result = driven(run, policy, watch)
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
        if slow_kernels := getattr(policy, "slow_kernels", ()):
            from polluxsim.common.compiling import compile_ahead  # noqa: PLC0415  (few policies need it)

            compile_ahead(slow_kernels)
        return Simulation(self._scenario(policy), self._resolved["seed"]), policy

    def _scenario(self, policy: Policy) -> Scenario:
        """Return the scenario under a policy."""
        parts = policy, self.workload, self._profiles, self.cluster, self._part("engine")
        scenario = Scenario.under(*parts, self._part("agent") if "agent" in self._resolved else None)
        self._without_effect = settings_without_effect(policy, scenario)
        return scenario

    def _made_policy(self) -> Policy:
        """Return the policy. Making it has the time limit of a decision."""
        name = str(self._resolved["policy"].get("_target_")).rpartition(".")[2]
        with time_limited(self._decision_limit, name, None):
            policy: Policy = self._part("policy")
        return policy

    @property
    def _decision_limit(self) -> float | None:
        """Return the time limit of a decision [s], before the settings of the engine are checked."""
        if "engine" in self._given:
            given: float | None = self._given["engine"].decision_limit
            return given
        limit = self._resolved["engine"].get("decision_limit", DECISION_LIMIT)
        if limit is None or (isinstance(limit, int | float) and limit > 0):
            return limit
        return DECISION_LIMIT  # the settings of the engine report the value

    def _part(self, group: str) -> Any:
        return self._given[group] if group in self._given else build(self._config, group)

    def _load(self) -> tuple[Mapping[str, Profile], Workload]:
        if not self._given.keys() & {"profiles", "workload"}:
            return _load(self._config, self._resolved)
        profiles = self._given["profiles"] if "profiles" in self._given else load(self._config, "profiles")
        given = self._given.get("workload")
        return profiles, load(self._config, "workload", profiles) if given is None else given

    def info(self, summary: Summary | None) -> dict[str, Any]:
        """Return the content of run.json for the run."""
        unused = {"without_effect": self._without_effect} if self._without_effect else {}
        odd = suspicious(self._resolved, self.workload)
        notes = {"notes": list(self.workload.notes)} if self.workload.notes else {}
        return {
            "config": self._resolved,
            "seed": self._resolved["seed"],
            "nodes": self.cluster.groups,
            "key": self._key,
            "versions": versions(),
            "git_commit": git_commit(),
            "summary": None if summary is None else summary.values(),
            **unused,
            **({"suspicious": odd} if odd else {}),
            **named_policy_entry(self._policy_entry),
            **notes,
            **({"metrics": self._user_values} if self._user_values else {}),
        }


def named_policy_entry(name: str | None) -> dict[str, str]:
    """Return the part of run.json that names the user's configuration of the policy; {} for a shipped configuration."""
    if name is None or (shipped("configs") / "policy" / f"{name}.yaml").is_file():
        return {}
    return {POLICY_ENTRY: name}


def resolved(config: DictConfig) -> dict[str, Any]:
    """Return a configuration as plain values, in which each class has its present name, and each duration its unit.

    Raise InvalidConfigError if a value cannot be resolved or is nan, or a mapping has keys of several types.
    """
    try:
        values = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise InvalidConfigError(in_words(error)) from None
    plain = {str(name): value for name, value in values.items()} if isinstance(values, dict) else {}
    if unknown := [name for name, value in flat(plain).items() if isinstance(value, float) and isnan(value)]:
        raise InvalidConfigError(f"{unknown[0]} is nan, must be a value that is known; use null for no value")
    plain.pop(NOT_THE_RUNS, None)
    warn_of_former_names(plain)
    settings: dict[str, Any] = settings_as_declared("", with_present_names(plain))
    for name, value in settings.items():
        _check_keys(name, value)
    return settings


def _load(config: DictConfig, values: Mapping[str, Any]) -> tuple[Mapping[str, Profile], Workload]:
    """Return profiles and workload. Workloads of the last runs are kept, and read again if their files changed."""
    with _one_loads:
        profiles = _kept("profiles", {"profiles": values["profiles"]}, lambda: load(config, "profiles"))
        sources = {group: values[group] for group in ("profiles", "workload")}
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


def _check_keys(name: str, value: object) -> None:
    """Raise an `InvalidConfigError` for a mapping with keys of several types. JSON cannot sort such keys."""
    if isinstance(value, dict):
        try:
            sorted(value)
        except TypeError:
            keys = ", ".join(map(short, value))
            raise InvalidConfigError(f"{name} has keys of different kinds ({keys}), must be of one kind") from None
        for key, item in value.items():
            _check_keys(f"{name}.{key}", item)


def _check_groups(values: Mapping[str, Any]) -> None:
    """Raise InvalidConfigError if a required group of a resolved configuration is not a mapping."""
    for group in GROUPS:
        if not isinstance(values.get(group), dict):
            what = f"{group} is {short(values.get(group))}, must be a mapping with _target_ and parameters"
            raise InvalidConfigError(f"{what}; {group}=NAME chooses one")


def _check_top_level(config: DictConfig) -> None:
    """Raise InvalidConfigError if a group of a configuration is unknown or missing."""
    names = set(map(str, config))  # also those without a value
    if unknown := sorted(names - {*TOP_LEVEL, NOT_THE_RUNS}):
        meant = did_you_mean(unknown[0], known_settings())
        raise InvalidConfigError(f"there is no setting {unknown[0]!r}; choose from {', '.join(TOP_LEVEL)}{meant}")
    if OmegaConf.is_missing(config, "seed"):
        raise InvalidConfigError(missing("seed"))
    if lacking := [name for name in (*GROUPS, "seed") if name not in names]:
        what = f"there is no {lacking[0]} in the configuration, and each run needs one"
        own = shipped("configs") / "run.yaml"
        if config_files("run.yaml")["run.yaml"] == own and lacking[0] in GROUPS:
            raise InvalidConfigError(f"{what}; choose one with {lacking[0]}=NAME")
        raise InvalidConfigError(
            f"{what}; a run.yaml of your own replaces polluxsim's as a whole, so begin with a copy of {own}"
        )


def _check_seed(seed: object) -> None:
    """Raise InvalidConfigError if the resolved seed is not a whole number of at least 0."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InvalidConfigError(f"seed is {short(seed)}, must be a whole number of at least 0")
