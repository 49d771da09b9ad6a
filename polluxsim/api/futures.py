"""`run.at(time)`: a run at a moment of its life, and the futures it has from there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from polluxsim.api.choices import Choice
from polluxsim.api.parts import cluster_part, policy_part, workload_part
from polluxsim.run import moment
from polluxsim.run.building import build
from polluxsim.run.composing import composed
from polluxsim.run.outlook import FORKS, as_frame, outlooks
from polluxsim.storage import Run

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import pandas as pd

    from polluxsim.api.parts import ClusterLike, Part, PolicyLike, WorkloadLike
    from polluxsim.workloads.workload import Job, Workload

RunT = TypeVar("RunT", bound=Run)


class Moment(Generic[RunT]):
    """A finished run at a round of its life, from which it can go on in other ways.

    The run is made again up to there, from the settings that it was made with.

    Parameters
    ----------
    run
        The run, as `polluxsim.read` or `simulate` gives it.
    time
        When things may change: at the first round that is not before this time [s].

    Raises
    ------
    InvalidInputError
        If the run does not last so long, or does not come out as it was.
    """

    def __init__(self, run: RunT, time: float) -> None:
        self._moment = moment.Moment[RunT](run, time)

    @property
    def time(self) -> float:
        """Return the time of the round [s]."""
        return self._moment.time

    def fork(
        self,
        *,
        policy: PolicyLike | None = None,
        cluster: ClusterLike | None = None,
        drop_nodes: Collection[int] = (),
        without: Iterable[str] = (),
        add: WorkloadLike | None = None,
        seed: int | None = None,
    ) -> RunT:
        """Return the run as it would have gone on otherwise; what is left out stays as it was.

        Parameters
        ----------
        policy
            Who decides from then on; a choice without a name sets something of the run's own policy.
        cluster
            Nodes besides those there are, or fewer: the last ones go.
        drop_nodes
            Numbers of nodes that go down for good.
        without
            Jobs that are cancelled, or do not come.
        add
            Jobs that come besides, at their times since the start of the run [s].
        seed
            Draws the policy's random numbers anew from then on.

        Raises
        ------
        PolluxSimError
            If such a future cannot be.

        Examples
        --------
        >>> import polluxsim
        >>> run = polluxsim.simulate(policy="fifo", progress=False)
        >>> other = run.at("3h").fork(policy="srtf")
        >>> bool(other.metrics.avg_jct < run.metrics.avg_jct)
        True
        """
        config, given = self._moment.config, dict[str, Any]()
        parts: dict[str, Part] = {} if policy is None else {"policy": policy_part(policy)}
        for group, part in (parts if cluster is None else {**parts, "cluster": cluster_part(cluster)}).items():
            if isinstance(part, Choice):
                config = moment.with_entry(config, group, part.name, part.settings)
            else:
                config = moment.replaced(config, group, part.description)
                given[group] = part.value
        jobs = () if add is None else self._jobs(add)
        return self._moment.fork(config, given, drop_nodes=drop_nodes, without=without, added=jobs, seed=seed)

    def when(self, jobs: Iterable[str] | None = None, *, forks: int = FORKS) -> pd.DataFrame:
        """Return when jobs that wait or run may start and complete, as `polluxsim when` says it.

        A row for each job: whether it waits, and the 10 %, 50 % and 90 % quantiles of both times [s] over so many forks
        in which what was not known then is drawn anew. ∞ is not within three days.

        Parameters
        ----------
        jobs
            Names; None for all.
        forks
            Futures to draw.

        Raises
        ------
        InvalidInputError
            If a job neither waits nor runs then.
        """
        found = outlooks(self._moment, None if jobs is None else tuple(jobs), forks)
        return as_frame(found, self.time)

    def _jobs(self, workload: WorkloadLike) -> Sequence[Job]:
        part = workload_part(workload)
        if isinstance(part, Choice):
            entry = {} if part.name is None else {part.group: part.name}
            config = composed(entry, {part.group: part.settings}, 0)
            loaded: Workload = build(config, part.group).load(self._moment.profiles)
        else:
            loaded = part.value
        return loaded.jobs
