"""Simulate one run, at once or step by step: `polluxsim.simulate` and `polluxsim.start`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import replace
from time import perf_counter
from typing import Any

from polluxsim.api.parts import (
    AgentLike,
    Choice,
    ClusterLike,
    Given,
    Part,
    PolicyLike,
    ProfilesLike,
    SettingsLike,
    WorkloadLike,
    agent_part,
    cluster_part,
    policy_part,
    profiles_part,
    settings_part,
    workload_part,
)
from polluxsim.api.results import Result
from polluxsim.common.durations import HOUR
from polluxsim.common.errors import InvalidConfigError
from polluxsim.engine.simulation import Simulation, Watcher
from polluxsim.hardware.clusters import Cluster
from polluxsim.metrics.declared import Metric
from polluxsim.policies.contract.policy import Policy
from polluxsim.records.results import RoundRecord
from polluxsim.run.composing import composed
from polluxsim.run.configurations import default_entry
from polluxsim.run.execution import Execution
from polluxsim.run.identity import own_modules
from polluxsim.run.interrupt import in_main_thread, stopping_between_rounds
from polluxsim.run.progress_line import ignore, num_expected, progress
from polluxsim.run.spec import RunSpec
from polluxsim.workloads.workload import Workload

REFRESH = 0.25  # time between two updates of the bar [s]


def progress_shown(workload: Workload, cluster: Cluster, *, wanted: bool) -> AbstractContextManager[Watcher]:
    """Return a context with a watcher of the run, which shows the progress if it is wanted.

    It shows a bar in a notebook and a line on a terminal, and nothing elsewhere.
    """
    if not wanted:
        return nullcontext(ignore)
    if _in_notebook():
        return _bar(workload)
    return progress(workload, cluster)


@contextmanager
def counting(total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function of the number of finished runs, of a `total`, that updates a bar in a notebook.

    Outside a notebook, and outside its main thread, the function does nothing.
    """
    if not (_in_notebook() and in_main_thread()):
        yield lambda _: None
        return
    with _display(_progress_html(0, total, "runs")) as update:
        yield lambda done: update(_progress_html(done, total, "runs"))


def _in_notebook() -> bool:
    """Return whether this process belongs to a notebook, without loading IPython."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    # The shell of IPython in a terminal has no kernel.
    return hasattr(shell, "kernel")


@contextmanager
def _bar(workload: Workload) -> Iterator[Watcher]:
    """Yield a watcher that shows a bar below the cell, until the end of the block."""
    with _display("starting; the first run ever compiles its kernels") as update:
        last_update = perf_counter()

        def watch(run: Simulation) -> None:
            """Update the bar if the last update is some time ago."""
            nonlocal last_update
            # An update takes longer than most rounds, so that one after each round would slow the run down.
            if perf_counter() - last_update >= REFRESH and run.last_round is not None:
                last_update = perf_counter()
                update(bar_html(run.num_ended, num_expected(workload, run), run.last_round, run.start_time))

        yield watch


@contextmanager
def _display(html: str) -> Iterator[Callable[[str], None]]:
    """Show HTML below the cell, yield a function that replaces it, and remove it at the end of the block."""
    from IPython.display import HTML, display  # noqa: PLC0415  (installed with notebooks only)

    show: Any = HTML  # IPython has no types
    handle: Any = display(show(html), display_id=True)
    try:
        yield lambda text: handle.update(show(text))
    finally:
        handle.update(show(""))


def bar_html(complete: int, jobs: int, record: RoundRecord, start: float) -> str:
    """Return the bar of a run with its text, from the ended and all `jobs` and the last round.

    `start` is the time of the first submission [s].
    """
    where = f" complete, {(record.time - start) / HOUR:.1f} h simulated, {record.active_jobs} jobs active"
    return _progress_html(complete, jobs, "jobs") + where


def _progress_html(done: int, total: int, what: str) -> str:
    """Return a bar, and in words how many of a total are done."""
    bar = f'<progress value="{done}" max="{total}" style="width: 16em; vertical-align: middle"></progress>'
    return f"{bar} {done} of {total} {what}"


def simulate(  # noqa: PLR0913  (the parts of a run)
    workload: WorkloadLike | None = None,
    *,
    policy: PolicyLike | None = None,
    agent: AgentLike | None = None,
    cluster: ClusterLike | None = None,
    profiles: ProfilesLike | None = None,
    settings: SettingsLike | None = None,
    metrics: Mapping[str, Metric] | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Result:
    """Simulate a workload on a cluster under a policy. The results are those of `polluxsim run`, byte for byte.

    The defaults are those of the command line: 160 jobs on 16 nodes with 4 GPUs each, with the profile cards of
    polluxsim, under Pollux.

    Parameters
    ----------
    workload
        A file (.csv, .parquet), a table (DataFrame) with the same columns, such as name, time [s], application,
        num_replicas and batch_size, a `Workload`, the name of a source, or a choice like
        `polluxsim.workload("philly-like", num_jobs=40)`.
    policy
        A name, a choice like `polluxsim.policy("pollux", p=-10)`, or an object with a method `allocate`. The run uses a
        copy of the object, so runs do not share its state.
    agent
        Rule by which jobs choose their batch sizes: a name, or an object like those of `polluxsim.agent.rules`. With
        None, jobs choose the highest goodput under policies that let jobs adapt, and keep the user's batch size
        under other policies.
    cluster
        (nodes, GPUs per node), a `Cluster`, a name, or a choice like `polluxsim.cluster(num_nodes=32)`.
    profiles
        A folder of cards or measurements, or profiles by application.
    settings
        `EngineSettings`, a name, or a choice like `polluxsim.settings(round_interval=30.0)`.
    metrics
        Your own metrics by name. Tables of the results have a column for each metric.
    seed
        Seed of all random draws. The same arguments and seed give the same result.
    progress
        Whether to show the progress, on a terminal or in a notebook. Runs outside the main thread show no progress.

    Returns
    -------
    Result
        Tables of the jobs, the rounds and the changes; a notebook shows its summary.

    Raises
    ------
    PolluxSimError
        If an argument is invalid: the message has its name, its value and the allowed values. Also if a job fits on
        no nodes, or the policy fails.

    Examples
    --------
    >>> import polluxsim
    >>> result = polluxsim.simulate(policy="tiresias", cluster=(16, 4), progress=False)
    >>> len(result.jobs)
    160
    """
    parts = _parts(workload=workload, policy=policy, agent=agent, cluster=cluster, profiles=profiles, settings=settings)
    execution = Execution(replace(_spec(parts, seed), metrics=metrics or {}))
    with (
        progress_shown(execution.workload, execution.cluster, wanted=progress and in_main_thread()) as show,
        stopping_between_rounds() as stop_if_interrupted,
    ):
        finished = execution.simulate(stop_if_interrupted, show)
    info = finished.info
    # The user of this process named these classes, so that `Result.at` may load them.
    trusted_modules = tuple(sorted(own_modules(info["config"])))
    return Result(_name(parts["policy"], info["config"]), info, finished.result, trusted_modules)


def check(seed: int, **arguments: Any) -> None:
    """Raise the error with which `simulate` would refuse these arguments. Simulate nothing."""
    parts = _parts(**arguments)
    Execution(_spec(parts, seed)).check()


def start(
    workload: WorkloadLike | None = None,
    *,
    policy: PolicyLike | None = None,
    agent: AgentLike | None = None,
    cluster: ClusterLike | None = None,
    profiles: ProfilesLike | None = None,
    settings: SettingsLike | None = None,
    seed: int = 0,
) -> tuple[Simulation, Policy]:
    """Start a run that waits for each decision of its caller, and return it with its policy.

    Parameters
    ----------
    workload, policy, agent, cluster, profiles, settings, seed
        The arguments of `simulate`.

    Returns
    -------
    tuple
        The run and its policy. To fork the run, copy the run and the policy in one call of `copy.deepcopy`.

    Examples
    --------
    >>> import polluxsim
    >>> run, policy = polluxsim.start(policy="tiresias")
    >>> while (view := run.advance()) is not None and view.time < 3600:
    ...     run.commit(policy.allocate(view, run.rng))
    >>> run.time, len(run.view.running), len(run.view.waiting)
    (3600.0, 7, 2)
    """
    return starter(workload, policy=policy, agent=agent, cluster=cluster, profiles=profiles, settings=settings)(seed)


def starter(workload: WorkloadLike | None = None, **others: Any) -> Callable[[int], tuple[Simulation, Policy]]:
    """Return a function that starts a run with a seed, as `start` does.

    The arguments are those of `start` without the seed. Raise InvalidConfigError at once for an invalid one.
    """
    parts = _parts(workload=workload, **others)
    _spec(parts, 0)  # for its errors

    def begin(seed: int) -> tuple[Simulation, Policy]:
        """Return a new run with its policy."""
        # The settings are composed anew for each seed, because some of them take its value, like the seed of a drawn
        # workload. Each run gets a copy of the policy, which may have a state.
        return Execution(_spec(parts, seed)).start()

    return begin


def _parts(*, agent: AgentLike | None = None, **others: Any) -> dict[str, Part]:
    """Return the parts by group. Without an agent, the policy decides how jobs choose batch sizes."""
    parts: dict[str, Part] = {}
    # A run without this group has the agents that its policy needs.
    if agent is not None:
        parts["agent"] = agent_part(agent)
    parts["profiles"] = profiles_part(others.get("profiles"))
    parts["workload"] = workload_part(others.get("workload"))
    parts["cluster"] = cluster_part(others.get("cluster"))
    parts["policy"] = policy_part(others.get("policy"))
    parts["engine"] = settings_part(others.get("settings"))
    return parts


def _spec(parts: Mapping[str, Part], seed: int) -> RunSpec:
    """Return the description of a run: composed settings, which describe the objects as well, and the objects."""
    chosen = {group: part for group, part in parts.items() if isinstance(part, Choice)}
    names = {group: part.name for group, part in chosen.items() if part.name is not None}
    spec = composed(names, {group: part.settings for group, part in chosen.items()}, seed)
    for group, part in parts.items():
        if isinstance(part, Given):
            spec = spec.with_settings(group, dict(part.description))
    return replace(spec, objects=_given(parts), policy_entry=_policy_entry(parts["policy"]))


def stated(arguments: Mapping[str, Any], seed: int) -> tuple[RunSpec, list[str]]:
    """Return the description of a run that another process can make, and its overrides in words.

    Raise InvalidConfigError if an argument is invalid, or a configuration cannot state a part of the run.
    """
    parts = _parts(**arguments)
    words = []
    for group, part in parts.items():
        if isinstance(part, Choice):
            if part.name is not None:
                words.append(f"{group}={part.name}")
            for name, value in part.settings.items():
                words.append(f"{group}.{name}={value}")
        elif "_target_" in part.description:
            words.append(f"{group}={type(part.value).__name__}")
        else:
            raise InvalidConfigError(
                f"{group} is an object of {type(part.value).__name__}, which a sweep in several processes cannot "
                "state; give a name, a file, or an object of a module whose parameters are plain values, or leave out "
                "folder and workers"
            )
    # The settings describe each object, so that the other process makes it from them. An object itself may not be one
    # that can be sent.
    return replace(_spec(parts, seed), objects={}), [*words, f"seed={seed}"]


def _given(parts: Mapping[str, Part]) -> dict[str, Any]:
    """Return the parts that are objects. A policy may have a state, so the run gets a copy."""
    objects = {group: part.value for group, part in parts.items() if isinstance(part, Given)}
    if "policy" in objects:
        objects["policy"] = deepcopy(objects["policy"])
    return objects


def _policy_entry(policy: Part) -> str | None:
    """Return the name of the configuration of a policy; None for an object and for the default policy."""
    return policy.name if isinstance(policy, Choice) else None


def _name(policy: Part, config: Mapping[str, Any]) -> str:
    """Return the name of a run: the name of the configuration, or of the class, of its policy."""
    if isinstance(policy, Given):
        return type(policy.value).__name__
    entry = policy.name or default_entry("policy")
    if entry:
        return entry
    # The user's own configuration may name the class of the default policy itself, and no entry.
    return str(config["policy"]["_target_"]).rpartition(".")[2]
