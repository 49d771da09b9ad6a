"""Search the smallest cluster, or the highest load, that meets a target, with runs at one level after another."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import isinf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.errors import InvalidConfigError, PolluxSimError
from polluxsim.hardware.clusters import Cluster
from polluxsim.metrics.outcomes import incomplete
from polluxsim.metrics.summary import of_run
from polluxsim.metrics.target import Target, read_target
from polluxsim.records.results import JobRecord, Result
from polluxsim.records.storage import Run, read_run
from polluxsim.run.execution import Execution
from polluxsim.statistics.blocks import Blocks
from polluxsim.statistics.estimates import Estimate, Sample, Samples
from polluxsim.studies.driver import complete_sweep
from polluxsim.studies.launching import LocalWorkers
from polluxsim.studies.log_calibration import (
    DEFAULT_GPUS_PER_NODE,
    refuse_launcher,
    refuse_varied,
    replay_of,
    rows_left_out,
)
from polluxsim.studies.log_selection import Owner, part_of
from polluxsim.studies.plan import Entry, composer, entry_of
from polluxsim.studies.size_answers import Facts, SizeAnswer

MOST_LEVELS = 100_000  # largest number of levels between 0 and the limit

GPUS_PER_NODE = "cluster.gpus_per_node"  # setting

POLICY_OF_LOGS = "fifo"  # policy of the replays of a log if no policy is named

PLACE = "{}"  # placeholder for the level in overrides
NEIGHBOURS = 2  # number of levels on either side of an answer that are run too


@dataclass(frozen=True)
class SizeRequest:
    """A search for the smallest cluster, or the highest load, that meets a target.

    Raises
    ------
    InvalidConfigError
        If a value is invalid, or two values exclude each other.
    """

    target: str  # bound on a metric, like `p90 wait < 10 min`
    overrides: Sequence[str] = ()  # settings of every run; `{}` in them is the number of nodes or the load
    log: Path | None = None  # a log that `polluxsim log import` wrote; None for the workload of the overrides
    highest_load: bool = False  # search the highest `workload.load_factor`, not the smallest number of nodes
    existing: int | None = None  # number of existing nodes, with which the answer is compared
    limit: float | None = None  # largest level; by default 64 nodes or load 4
    step: float | None = None  # difference of loads; by default 0.05
    seeds: int = 1  # number of seeds of each level; the mean over the seeds has to meet the target
    gpus_per_node: int | None = None  # GPUs of each node; by default 8 for a log, and otherwise as the overrides say
    partition: str | None = None  # partition of the log to replay, on nodes of its own; None for all jobs
    user: str | None = None  # the target is for the jobs of this user of the log; None for every user
    qos: str | None = None  # the target is for the jobs of this QOS of the log; None for every QOS
    folder: Path = Path("sized")  # for the runs; finished runs in it are reused
    workers: int | None = None  # number of processes for the seeds of a level; None for one for each core

    def __post_init__(self) -> None:
        if self.step is not None and not self.highest_load:
            raise InvalidConfigError(
                "--step needs --highest-load, because sizes are whole nodes; add --highest-load, or leave out --step"
            )
        if self.existing is not None and self.highest_load:
            raise InvalidConfigError("--existing compares numbers of nodes; leave it out with --highest-load")
        for name in ("partition", "user", "qos"):
            if self.log is None and getattr(self, name) is not None:
                raise InvalidConfigError(f"--{name} selects jobs of a log; add --log, or leave it out")
        refuse_launcher(self.overrides, "size")
        if not self._has_place:
            refuse_varied(self.overrides, {self._varied: "the search"})
        if self.gpus_per_node is not None:
            refuse_varied(self.overrides, {GPUS_PER_NODE: "--gpus-per-node"})
        seed_words = [word for word in self.overrides if word.startswith("seed=")]
        if self.seeds > 1 and seed_words:
            raise InvalidConfigError(f"{seed_words[0]!r} and --seeds {self.seeds} contradict each other; leave one out")

    def levels(self) -> list[float]:
        """Return the numbers of nodes or the loads that may be tried, rising.

        Raise InvalidConfigError if the limit and the step are not valid.
        """
        if self.highest_load:
            limit = 4.0
            step = 0.05
        else:
            limit = 64.0
            step = 1.0
        if self.limit is not None:
            limit = self.limit
        if self.step is not None:
            step = self.step
        if not self.highest_load and limit % 1:
            raise InvalidConfigError(f"--limit is {limit:g}, must be a whole number of nodes")
        if not 0 < step <= limit <= step * MOST_LEVELS:
            raise InvalidConfigError(
                f"--limit is {limit:g}, must be {step:g} to {step * MOST_LEVELS:g}, in steps greater than 0"
            )
        # The quotient of loads may be just below a whole number, and their product may have many digits.
        num_levels = int(limit / step + 1e-6)
        return [round(step * number, 9) for number in range(1, num_levels + 1)]

    def runs(self, log_path: Path | None) -> list[str]:
        """Return the overrides of every run, with `{}` for the level. `log_path` has the jobs of the log to replay."""
        words = list[str]()
        if log_path is not None:
            words += replay_of(log_path)
        if self.has_policy_of_logs:
            words.append(f"policy={POLICY_OF_LOGS}")
        if not self._has_place:
            words.append(f"{self._varied}={PLACE}")
        words += self._nodes()
        # The user's overrides are last, so that they replace the others.
        words += self.overrides
        return words

    @property
    def has_policy_of_logs(self) -> bool:
        """Return whether the runs have `POLICY_OF_LOGS`. The default of a run, Pollux, cannot replay a log."""
        return self.log is not None and "policy" not in self._settings

    def _nodes(self) -> list[str]:
        """Return the override with the GPUs of each node, if one is needed.

        A log has nodes of 8 GPUs, as in `log whatif`, unless the overrides choose the cluster.
        """
        if self.gpus_per_node is not None:
            return [f"{GPUS_PER_NODE}={self.gpus_per_node}"]
        has_nodes = not self._settings.isdisjoint(("cluster", GPUS_PER_NODE, "cluster.groups"))
        if self.log is None or has_nodes:
            return []
        return [f"{GPUS_PER_NODE}={DEFAULT_GPUS_PER_NODE}"]

    @property
    def _settings(self) -> set[str]:
        """Return the names of the settings that the overrides set."""
        return {word.partition("=")[0].lstrip("+") for word in self.overrides}

    @property
    def _has_place(self) -> bool:
        """Return whether an override has the placeholder for the level."""
        return any(PLACE in word for word in self.overrides)

    @property
    def _varied(self) -> str:
        """Return the setting of the level if no override has a placeholder for it."""
        return "workload.load_factor" if self.highest_load else "cluster.num_nodes"


def size(request: SizeRequest) -> SizeAnswer:
    """Run levels until the hardest level that meets the target is known, and return the answer.

    Raises
    ------
    InvalidConfigError
        If the target or an override is invalid, or no job has the user, the QOS or the partition of the request.
    InvalidInputError
        If the log cannot be read.
    SweepError
        If a run fails, or another sweep uses the folder.
    """
    target = read_target(request.target)
    levels = request.levels()
    upwards = not request.highest_load
    seeds: list[int | None] = [None]  # the seed that the overrides or the defaults state
    if request.seeds > 1:
        seeds = list(range(request.seeds))
    log: Path | None = None
    # The part of the log is written once, before the runs, which all read it.
    owner: Owner | None = None
    about_log = ""
    if request.log is not None:
        part = part_of(Path(request.log), request.partition, Path(request.folder))
        log = part.log
        about_log = "\n".join((*part.sentences, *rows_left_out(log)))
        owner = Owner(request.user, request.qos)
        owner.check(part.jobs.values(), request.partition)
    with Levels(target, request.runs(log), seeds, Path(request.folder), request.workers, owner).running() as metric:
        index_of_first = metric.first_possible(levels)
        possible_levels = levels[index_of_first:]
        answer, ends = _searched(metric, target, possible_levels, easier_upwards=upwards)
        metric.write_table()
    first = None
    if index_of_first > 0:
        first = possible_levels[0]
    curve = {level: metric.estimate(level) for level in sorted(metric.measured)}
    return SizeAnswer(
        target,
        curve,
        upwards,
        answer,
        ends,
        request.existing,
        metric.engine,
        same_seeds=request.seeds > 1 and not metric.seeds_matter,
        num_seeds=request.seeds,
        facts={level: metric.facts[level] for level in curve},
        first=first,
        too_short=metric.too_short,
        about_log=about_log,
    )


def _searched(
    metric: Levels, target: Target, levels: Sequence[float], *, easier_upwards: bool
) -> tuple[float | None, tuple[float | None, float | None] | None]:
    """Return the hardest level that meets a target, and the ends of its 95 % interval, as `SizeAnswer` has them."""

    def value_meets(level: float) -> bool:
        return target.is_met(metric.estimate(level).value)

    def end_meets(end: str, level: float) -> bool:
        """Return whether an end of the interval meets the target, or the value without an interval."""
        estimate = metric.estimate(level)
        bound = getattr(estimate, end)
        if bound is None:
            bound = estimate.value
        return target.is_met(bound)

    answer = hardest(levels, value_meets, easier_upwards=easier_upwards)
    has_intervals = any(metric.estimate(level).high is not None for level in metric.measured)
    if answer is None or not has_intervals:
        return answer, None
    # The interval of a level is where the interval of the metric contains the target. These searches reuse the levels
    # that the first one ran.
    low = hardest(levels, partial(end_meets, "low"), easier_upwards=easier_upwards)
    high = hardest(levels, partial(end_meets, "high"), easier_upwards=easier_upwards)
    return answer, (low, high)


class Levels:
    """The metric of a target at each level, simulated when it is first asked for.

    `overrides` have `{}` in place of the level. The same seeds are run at each level; None leaves the seed that the
    overrides set. `measured` contains the metric by level, shape (seeds,) [s; 1 for ρ], and `facts` the other facts of
    its runs. `owner` has the jobs of a log that the target is for; it is None without a log.
    """

    def __init__(
        self,
        target: Target,
        overrides: Sequence[str],
        seeds: Sequence[int | None],
        folder: Path,
        workers: int | None,
        owner: Owner | None = None,
    ) -> None:
        self.measured: dict[float, NDArray[np.float64]] = {}
        self.facts: dict[float, Facts] = {}
        self.seeds_matter = False  # whether two seeds gave different jobs or times at some level
        self._target = target
        self._overrides = overrides
        self._seeds = seeds
        self._folder = folder
        self._composer = composer()
        # A single run at a time needs no worker process, and this process has already loaded the workload.
        self._workers = LocalWorkers(1 if len(seeds) == 1 else workers, in_this_process=True)
        self._estimates: dict[float, Estimate] = {}
        self._owner = owner
        self.too_short = ""  # the reason why the days of the log give no interval

    @contextmanager
    def running(self) -> Iterator[Levels]:
        """Use the same worker processes for all levels within the block."""
        with self._workers.kept():
            yield self

    def values(self, level: float) -> NDArray[np.float64]:
        """Return the metric at a level under each seed, shape (seeds,) [s; 1 for ρ]."""
        if level not in self.measured:
            runs = [read_run(path) for path in self._run(self._entries(level))]
            self.measured[level] = np.array([self._target.value(run.result, self._is_meant) for run in runs])
            self.facts[level] = _facts(runs)
            jobs_of_first = runs[0].result.job_records
            self.seeds_matter |= any(run.result.job_records != jobs_of_first for run in runs[1:])
            has_days_only = self._owner is not None and len(self._seeds) == 1
            if has_days_only:  # a log with one seed: its days are the units of the interval
                self._estimates[level] = self._by_days(runs[0].result, float(self.measured[level][0]))
        return self.measured[level]

    def estimate(self, level: float) -> Estimate:
        """Return the mean over seeds; infinite if jobs are left.

        The interval comes from the seeds, if there are enough, or from the days of a log with one seed.
        """
        values = self.values(level)  # first, because it may store the estimate too
        if level not in self._estimates:
            samples = [Sample("", "", value, seed=seed) for seed, value in enumerate(values)]
            random_arms = [""] if self.seeds_matter else []
            measured = Samples(samples, random_arms=random_arms).mean("", "")
            assert measured is not None  # there is a value for each seed
            self._estimates[level] = measured.estimate
        return self._estimates[level]

    def _is_meant(self, job: JobRecord) -> bool:
        """Return whether the target is for a job."""
        return self._owner is None or self._owner.has(job)

    def _by_days(self, result: Result, value: float) -> Estimate:
        """Return a value of the metric with the interval from resampled days of the log."""
        submissions = []
        values_of_jobs = []
        for job, value_of_job in self._target.of_jobs(result):
            if self._is_meant(job):
                submissions.append(job.submit_time)
                values_of_jobs.append(value_of_job)
        # A mean over days with infinite values has no interval.
        if not submissions or isinf(value):
            return Estimate(value, None, None)
        blocks = Blocks(submissions)
        self.too_short = self.too_short or blocks.why_no_interval()
        return blocks.interval(value, blocks.of_resamples(values_of_jobs, self._target.statistic))

    def write_table(self) -> None:
        """Write one table of all runs, as a sweep does."""
        entries = []
        for level in sorted(self.measured):
            entries += self._entries(level)
        self._run(entries)

    @property
    def engine(self) -> Mapping[str, Any]:
        """Return the engine settings of the runs, which do not depend on the level."""
        return dict(self._entry(min(self.measured), self._seeds[0]).config["engine"])

    def first_possible(self, levels: Sequence[float]) -> int:
        """Return the index of the first level at which the runs of all seeds can start. Raise their error if none is.

        A cluster that is too small for the largest job cannot start a run.
        """
        last = len(levels) - 1

        def can_start(index: int) -> bool:
            try:
                for entry in self._entries(levels[index]):
                    Execution(entry.spec).start()
            except PolluxSimError:
                if index == last:
                    raise
                return False
            return True

        can_start(last)  # raises the error if none can start, before runs of smaller levels start
        return bisect_left(range(last), True, key=can_start)

    def _entries(self, level: float) -> list[Entry]:
        return [self._entry(level, seed) for seed in self._seeds]

    def _entry(self, level: float, seed: int | None) -> Entry:
        # With few digits, because the overrides are a part of the key and of the folder's name.
        overrides = [word.replace(PLACE, f"{level:.10g}") for word in self._overrides]
        if seed is not None:
            overrides.append(f"seed={seed}")
        return entry_of(overrides, self._composer.compose(overrides), self._folder)

    def _run(self, entries: Sequence[Entry]) -> list[Path]:
        sweep = complete_sweep(entries, self._folder, self._workers)
        return [entry.folder for entry in sweep.entries]


def _facts(runs: Sequence[Run]) -> Facts:
    """Return what the runs of a level, one for each seed, tell besides the metric."""
    records = list[JobRecord]()
    num_incomplete = Counter[str]()
    for run in runs:
        records += of_run(run.result)
        num_incomplete += incomplete(run.result)
    return Facts(
        gpus_per_node=Cluster.of_groups(runs[0].info["nodes"]).gpus_per_node,
        preemptions=sum(job.num_restarts for job in records) / len(runs),
        incomplete=num_incomplete,
        num_jobs=len(records),
        notes=tuple(runs[0].info.get("notes", ())),
    )


def hardest(levels: Sequence[float], meets: Callable[[float], bool], *, easier_upwards: bool) -> float | None:
    """Return the hardest of ascending levels that meets a target; None if the search finds no level that does.

    The search gallops from the first level and then bisects. It then tries the neighbours, because metrics are not
    always monotone. With `easier_upwards`, higher levels are easier, as for nodes; otherwise they are harder.
    """

    def is_beyond(index: int) -> bool:
        """Return whether a level is beyond the change between levels that meet the target and levels that do not."""
        return meets(levels[index]) is easier_upwards

    last = len(levels) - 1
    # The steps double from the first level on, so that an answer among small clusters needs no run of a large one.
    before = -1  # the last index that is known not to be beyond
    index = 0
    while not is_beyond(index) and index < last:
        before = index
        index = min(2 * index + 1, last)
    between = range(before + 1, index + 1)
    change = between.start + bisect_left(between, True, key=is_beyond)
    # The answer is on the side of the change that meets the target.
    answer = change if easier_upwards else change - 1
    # A harder neighbour that meets the target becomes the answer, and its neighbours are tried in turn.
    while 0 <= answer <= last:
        neighbours = range(max(answer - NEIGHBOURS, 0), min(answer + NEIGHBOURS, last) + 1)
        meeting = [index for index in neighbours if meets(levels[index])]
        best = meeting[0] if easier_upwards else meeting[-1]
        if best == answer:
            return levels[answer]
        answer = best
    return None
