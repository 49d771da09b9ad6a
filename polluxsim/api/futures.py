"""`run.at(time)`: a run at a time, its forks and forecasts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from polluxsim.api.parts import (
    Choice,
    ClusterLike,
    Given,
    Part,
    PolicyLike,
    WorkloadLike,
    cluster_part,
    policy_part,
    workload_part,
)
from polluxsim.common.durations import clock
from polluxsim.common.errors import invalid_setting
from polluxsim.common.written import as_declared
from polluxsim.records.storage import Run
from polluxsim.run import moment
from polluxsim.run.building import load
from polluxsim.run.composing import composed
from polluxsim.run.forecasts import FORKS, forecast, forecast_frame
from polluxsim.run.identity import own_modules
from polluxsim.run.resampling import NONE, RECENT, FutureArrivals
from polluxsim.workloads.workload import Job, Workload

RunT = TypeVar("RunT", bound=Run)


class Moment(moment.RunMoment[RunT]):
    """A finished run just before one of its scheduling rounds, from which it can be forked.

    The run is simulated again up to that round, from its settings. If it is a fork, the changes of the fork and of its
    ancestors are repeated.

    Parameters
    ----------
    run
        The run, as returned by `polluxsim.read` or `simulate`.
    time
        The round is the first one at this time [s] or later.

    Raises
    ------
    InvalidInputError
        If the run has no round at this time or later or was forked after it, or if the simulation does not reproduce
        its past.
    """

    def __repr__(self) -> str:
        run, _ = self.copied()
        jobs = f"{len(run.allocation)} jobs running, {len(run.waiting)} waiting"
        return f"Moment({self.origin.name!r} at {clock(self.time)}, {jobs})"

    def fork(
        self,
        *,
        policy: PolicyLike | None = None,
        cluster: ClusterLike | None = None,
        drop_nodes: Collection[int] = (),
        down: tuple[Collection[int], float | str] | None = None,
        without: str | Iterable[str] = (),
        add: WorkloadLike | None = None,
        seed: int | None = None,
    ) -> RunT:
        """Return a fork of the run: a finished run with the same past, and with the changes from this time on.

        The name of the returned run states the time and the changes. A fork without changes repeats the run.

        Parameters
        ----------
        policy
            The policy after the fork; a choice without a name changes settings of the run's own policy.
        cluster
            A cluster with additional nodes at the end, or without the last nodes.
        drop_nodes
            Numbers of nodes that go down permanently.
        down
            Numbers of nodes that go down and come up again, and the time between: seconds, or a text like "6h".
        without
            Names of jobs that are cancelled, or do not arrive, or one name.
        add
            Additional jobs, at their times on the clock of the run [s].
        seed
            Seed of the policy's random generator after the fork; None continues the generator of the run.

        Raises
        ------
        PolluxSimError
            If the changes cannot be made.

        Examples
        --------
        >>> import polluxsim
        >>> run = polluxsim.simulate(policy="fifo", progress=False)
        >>> other = run.at("3h").fork(policy="srtf")
        >>> other
        Result('fifo from 3:00:00 with srtf', 160 jobs, average JCT 1.140 h)
        >>> bool(other.metrics.avg_jct < run.metrics.avg_jct)
        True
        """
        parts: dict[str, Part] = {}
        if policy is not None:
            parts["policy"] = policy_part(policy)
        if cluster is not None:
            parts["cluster"] = cluster_part(cluster)
        added: tuple[Job, ...] = ()
        if add is not None:
            added = tuple(self._jobs(add))
        left_out = _jobs_named("without", without)
        down_nodes: Collection[int] = ()
        down_for: float | str = 0.0
        if down is not None:
            down_nodes, down_for = down
        seconds: Any = as_declared("down_for", down_for, "Seconds")
        request = moment.WhatIfRequest(
            entries={group: (part.name, part.settings) for group, part in parts.items() if isinstance(part, Choice)},
            objects={group: (part.value, part.description) for group, part in parts.items() if isinstance(part, Given)},
            drop_nodes=drop_nodes,
            down_nodes=down_nodes,
            down_for=seconds,
            without=left_out,
            added=added,
            seed=seed,
        )
        run = self.fork_with(request)
        counts = {
            "node(s) dropped": len({*drop_nodes}),
            "node(s) down": len({*down_nodes}),
            "job(s) left out": len(left_out),
            "job(s) added": len(added),
        }
        changes = list(_names(parts))
        for noun, count in counts.items():
            if count:
                changes.append(f"{count} {noun}")
        if seed is not None:
            changes.append(f"seed {seed}")
        name = f"{run.name} from {clock(self.time)} with {', '.join(changes) or 'no changes'}"
        # The user of this process named the changed classes, so that `Result.at` may load them.
        own_classes = sorted(own_modules({group: run.info["config"][group] for group in parts}))
        allowed_classes = dict.fromkeys([*run.allow_classes, *own_classes])  # each once
        return replace(run, name=name, allow_classes=tuple(allowed_classes))

    def when(
        self, jobs: str | Iterable[str] | None = None, *, forks: int = FORKS, arrivals: WorkloadLike = RECENT
    ) -> pd.DataFrame:
        """Return when jobs that wait or run may start and complete, as `polluxsim when` prints it.

        The table has a row for each job: whether it waits, and the 10 %, 50 % and 90 % quantiles of both times [s] over
        futures in which everything unknown at this time is resampled. The futures end 30 days after this time: later
        quantiles are ∞, or this end as a lower bound of the 10 % quantile. A running job started in the past.
        `attrs["arrivals"]` states the assumed arrivals.

        Parameters
        ----------
        jobs
            Names, or one name; None for all jobs that wait or run.
        forks
            Number of futures.
        arrivals
            Jobs that are assumed to arrive after this time: "none", "recent", or a workload with times on the clock
            of the run [s]. "recent" resamples the jobs that have arrived, for as long as the time since the first
            submission, at most three days.

        Raises
        ------
        InvalidInputError
            If one of the jobs neither waits nor runs at this time, or `forks` is less than 1.
        InvalidConfigError
            If `jobs` are not names, or `arrivals` are no workload.
        """
        # A frame compares with a text cell by cell, so that only texts are compared.
        if isinstance(arrivals, str) and arrivals in (NONE, RECENT):
            assumed = FutureArrivals(arrivals)
        else:
            source = str(arrivals) if isinstance(arrivals, str | Path) else "the given workload"
            assumed = FutureArrivals(source, tuple(self._jobs(arrivals)))
        asked = None if jobs is None else _jobs_named("jobs", jobs)
        return forecast_frame(forecast(self, asked, forks, arrivals=assumed))

    def _jobs(self, workload: WorkloadLike) -> Sequence[Job]:
        """Return the jobs of a workload. A choice is loaded with the profiles of the run, and drawn with seed 0."""
        part = workload_part(workload)
        loaded: Workload
        if isinstance(part, Choice):
            entry = {}
            if part.name is not None:
                entry[part.group] = part.name
            config = composed(entry, {part.group: part.settings}, 0).config
            loaded = load(config, part.group, self.profiles)
        else:
            loaded = part.value
        return loaded.jobs


def _jobs_named(parameter: str, names: str | Iterable[str]) -> tuple[str, ...]:
    """Return names of jobs, each once. Raise InvalidConfigError if the value is neither a name nor a list."""
    if not isinstance(names, Iterable):
        raise invalid_setting(parameter, names, "names of jobs in a list")
    # A text is iterable too, but it is one name.
    if isinstance(names, str):
        return (names,)
    return tuple(dict.fromkeys(names))


def _names(parts: Mapping[str, Part]) -> Iterator[str]:
    """Yield a text for each changed part: the entry of its configuration group and the settings, or its class."""
    for group, part in parts.items():
        if isinstance(part, Choice):
            settings = ", ".join(f"{group}.{key}={value}" for key, value in part.settings.items())
            # A choice has a name, settings or both.
            yield " ".join(filter(None, (part.name, settings)))
        else:
            yield type(part.value).__name__
