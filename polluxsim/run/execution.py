"""Execute one run: check its configuration, read its files, and simulate it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from polluxsim.metrics.declared import computed
from polluxsim.metrics.summary import Summary, summarise
from polluxsim.policies.contract.policy import Policy, as_policy
from polluxsim.records.columns import Records
from polluxsim.records.folders import POLICY_ENTRY
from polluxsim.records.results import Result, TimingRecord
from polluxsim.run.building import build, checked_metric, user_metrics
from polluxsim.run.identity import git_commit, versions
from polluxsim.run.inputs import load_inputs
from polluxsim.run.spec import RunSpec, check_parts
from polluxsim.run.suspicions import suspicious
from polluxsim.run.user_exits import forks_ended
from polluxsim.run.without_effect import settings_without_effect, unused_in


@dataclass(frozen=True)
class FinishedRun:
    """What a simulation gives: the records of the run, its metrics, and the content of run.json."""

    result: Result
    summary: Summary | None  # metrics; None if no job was submitted
    info: dict[str, Any]  # content of run.json


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
        # After those of the configuration: an object that a caller gives replaces a metric of the same name.
        for name, metric in spec.metrics.items():
            self._metrics[name] = checked_metric(name, metric)
        # Computed before the files are loaded: if a file changes later, the run does not pass for one of the new file.
        self._key = spec.key
        self._profiles, self.workload = load_inputs(spec)
        self.cluster: Cluster = self._part("cluster")
        self._load_time = perf_counter() - started

    def simulate(self, *watchers: Watcher) -> FinishedRun:
        """Simulate the run. Watchers are called after each round."""

        def watch(run: Simulation) -> None:
            for watcher in watchers:
                watcher(run)

        try:
            with forks_ended(), undamaged():
                run, policy, ineffective = self._begin()
                result = run_to_end(run, policy, watch)
        except MemoryError as error:
            reason = f" ({error})" if str(error) else ""
            raise InvalidConfigError(f"there is not enough memory for this run{reason}") from None
        # The engine times its own work only, and the files were read before it began.
        load = TimingRecord("load", None, self._load_time)
        result = replace(result, timing_records=Records(TimingRecord, (load, *result.timing_records)))
        summary = summarise(result)
        info = self.lasting_info(summary)
        ineffective += unused_in(run.scenario, result)
        if ineffective:
            info["without_effect"] = ineffective
        suspicions = suspicious(self.spec.config, self.workload)
        if suspicions:
            info["suspicious"] = suspicions
        # Without a job, no metric has a value.
        if summary is not None:
            values = computed(self._metrics, result)
            if values:
                info["metrics"] = values
        return FinishedRun(result, summary, info)

    def check(self) -> None:
        """Raise a PolluxSimError if the run cannot be made: a part is invalid, or a job does not fit on the cluster."""
        with undamaged():
            policy = self._made_policy()
            # The sentences are not needed, but the search for them also finds unknown names in settings.
            settings_without_effect(policy, self._scenario(policy))

    def start(self) -> tuple[Simulation, Policy]:
        """Return the run before its first decision, and its policy."""
        run, policy, _ = self._begin()
        return run, policy

    def _begin(self) -> tuple[Simulation, Policy, list[str]]:
        """Return the run before its first decision, its policy, and a sentence for each setting without effect."""
        policy = self._made_policy()
        # As early as possible: other processes compile the kernels while this one goes on.
        if policy.slow_kernels:
            from polluxsim.common.compiling import compile_ahead  # noqa: PLC0415  (few policies need it)

            compile_ahead(policy.slow_kernels)
        scenario = self._scenario(policy)
        ineffective = settings_without_effect(policy, scenario)
        return Simulation(scenario, self.spec.seed), for_cluster(policy, self.cluster), ineffective

    def _scenario(self, policy: Policy) -> Scenario:
        """Return the scenario under a policy."""
        engine = self._part("engine")
        agent = self._part("agent") if "agent" in self.spec.config else None
        return Scenario.under(policy, self.workload, self._profiles, self.cluster, engine, agent)

    def _made_policy(self) -> Policy:
        """Return the policy. Making it has the time limit of a decision."""
        name = str(self.spec.config["policy"].get("_target_")).rpartition(".")[2]
        with time_limited(self._decision_limit, name, None):
            return as_policy(self._part("policy"))

    @property
    def _decision_limit(self) -> float | None:
        """Return the time limit of a decision [s], before the settings of the engine are checked."""
        if "engine" in self.spec.objects:
            stated_limit: float | None = self.spec.objects["engine"].decision_limit
            return stated_limit
        limit = self.spec.config["engine"].get("decision_limit", DECISION_LIMIT)
        if limit is None or (isinstance(limit, int | float) and limit > 0):
            return limit
        return DECISION_LIMIT  # the settings of the engine report the value

    def _part(self, group: str) -> Any:
        return self.spec.objects[group] if group in self.spec.objects else build(self.spec.config, group)

    def lasting_info(self, summary: Summary | None) -> dict[str, Any]:
        """Return the part of run.json that is the same for the run and its forks, with the metrics of one of them."""
        info: dict[str, Any] = {
            "config": self.spec.config,
            "seed": self.spec.seed,
            "nodes": self.cluster.groups,
            "key": self._key,
            "versions": versions(),
            "git_commit": git_commit(),
            "summary": None if summary is None else summary.values(),
            **named_policy_entry(self.spec.policy_entry),
        }
        if self.workload.notes:
            info["notes"] = list(self.workload.notes)
        if self.workload.origin:
            info["origin"] = self.workload.origin.as_json()
        return info


def named_policy_entry(name: str | None) -> dict[str, str]:
    """Return the part of run.json that names the user's configuration of the policy.

    It is {} without a name, and for the name of a shipped configuration.
    """
    if name is None or (shipped("configs") / "policy" / f"{name}.yaml").is_file():
        return {}
    return {POLICY_ENTRY: name}
