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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polluxsim.common.errors import InvalidConfigError, PolluxSimError
from polluxsim.hardware.clusters import Cluster
from polluxsim.metrics.outcomes import how_often, incomplete
from polluxsim.metrics.summary import of_run
from polluxsim.metrics.target import Target, read_target
from polluxsim.records.results import JobRecord, Result
from polluxsim.records.storage import Run, read_run
from polluxsim.run.execution import Execution
from polluxsim.statistics.blocks import Blocks
from polluxsim.statistics.estimates import LEAST_UNITS, Estimate, Sample, Samples
from polluxsim.studies.driver import complete_sweep
from polluxsim.studies.launching import LocalWorkers
from polluxsim.studies.log_calibration import (
    DEFAULT_GPUS_PER_NODE,
    refuse_launcher,
    refuse_varied,
    replay_of,
    rows_left_out,
)
from polluxsim.studies.log_replays import reversals
from polluxsim.studies.log_selection import Owner, part_of
from polluxsim.studies.plan import Entry, composer, entry_of

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
        if not any(PLACE in word for word in self.overrides):
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
        limit = 4.0 if self.highest_load else 64.0
        if self.limit is not None:
            limit = self.limit
        step = 0.05 if self.highest_load else 1.0
        if self.step is not None:
            step = self.step
        if not self.highest_load and limit % 1:
            raise InvalidConfigError(f"--limit is {limit:g}, must be a whole number of nodes")
        if not 0 < step <= limit <= step * MOST_LEVELS:
            raise InvalidConfigError(
                f"--limit is {limit:g}, must be {step:g} to {step * MOST_LEVELS:g}, in steps greater than 0"
            )
        return [round(step * number, 9) for number in range(1, int(limit / step + 1e-6) + 1)]

    def runs(self, log_path: Path | None) -> list[str]:
        """Return the overrides of every run, with `{}` for the level. `log_path` has the jobs of the log to replay."""
        log = () if log_path is None else replay_of(log_path)
        varied = [] if any(PLACE in word for word in self.overrides) else [f"{self._varied}={PLACE}"]
        policy = [f"policy={POLICY_OF_LOGS}"] if self.has_policy_of_logs else []
        return [*log, *policy, *varied, *self._nodes(), *self.overrides]

    @property
    def has_policy_of_logs(self) -> bool:
        """Return whether the runs have `POLICY_OF_LOGS`. The default of a run, Pollux, cannot replay a log."""
        settings = [word.partition("=")[0].lstrip("+") for word in self.overrides]
        return self.log is not None and "policy" not in settings

    def _nodes(self) -> list[str]:
        """Return the override with the GPUs of each node. A log has nodes of 8 GPUs, as in `log whatif`."""
        if self.gpus_per_node is not None:
            return [f"{GPUS_PER_NODE}={self.gpus_per_node}"]
        settings = [word.partition("=")[0].lstrip("+") for word in self.overrides]
        has_nodes = any(name in ("cluster", GPUS_PER_NODE, "cluster.groups") for name in settings)
        return [] if self.log is None or has_nodes else [f"{GPUS_PER_NODE}={DEFAULT_GPUS_PER_NODE}"]

    @property
    def _varied(self) -> str:
        """Return the setting of the level if no override has a placeholder for it."""
        return "workload.load_factor" if self.highest_load else "cluster.num_nodes"


class Facts(NamedTuple):
    """What the runs of a level tell besides the metric."""

    gpus_per_node: Sequence[int]  # of each node of the cluster
    preemptions: float  # number of times that the policy took the GPUs of a job; mean over seeds
    incomplete: Counter[str]  # number of jobs that did not complete, by outcome, over all seeds
    num_jobs: int  # over all seeds
    notes: Sequence[str]  # on the jobs that the workload leaves out or changes


class SizeAnswer(NamedTuple):
    """The result of a search."""

    target: Target
    curve: Mapping[float, Estimate]  # the metric of the target at each level that was run, rising [s; 1 for ρ]
    of_sizes: bool  # whether levels are nodes; otherwise they are loads
    level: float | None  # the hardest level that meets the target; None if the search found none
    # The hardest levels at which the lower and the upper end of the metric's 95 % interval meet the target. They are
    # the ends of the 95 % interval of `level`: at the levels between them, the target lies inside the interval.
    ends: tuple[float | None, float | None] | None = None  # None without intervals
    existing: int | None = None  # number of existing nodes
    engine: Mapping[str, Any] = {}  # engine settings of the runs
    same_seeds: bool = False  # whether several seeds gave the same results
    num_seeds: int = 1  # of each level
    facts: Mapping[float, Facts] = {}  # of each level that was run
    first: float | None = None  # smallest level at which the runs can start; None if it is the first level
    too_short: str = ""  # the reason why the days of a log give no interval; "" if they give one
    about_log: str = ""  # sentences on the partitions that the runs pool, and on rows that the import left out

    @property
    def what(self) -> str:
        """Return the quantity that varies."""
        return "nodes" if self.of_sizes else "load"

    def in_unit(self, value: float) -> str:
        """Return a value of the metric in the unit of the target."""
        return "jobs left" if isinf(value) else self.target.text_of(value).partition(" ")[0]

    def interval(self, found: Estimate) -> str:
        """Return the 95 % interval of an estimate as text, or "" if it has none."""
        if found.low is None or found.high is None:
            return ""
        return f"{self.in_unit(found.low)} to {self.in_unit(found.high)}"

    def sentences(self) -> Iterator[str]:
        """Yield the answer, its interval, and a sentence for each level that contradicts a monotone metric."""
        target = self.target
        curve = self.curve
        level = self.level
        if level is None:
            best = min(curve, key=lambda level: curve[level].value)
            best_words = "jobs are left at each" if isinf(curve[best].value) else f"the best found is {self._at(best)}"
            noun = "size" if self.of_sizes else "load"
            yield f"no {noun} from {min(curve):g} to {max(curve):g} meets {target}: {best_words}"
        else:
            ends = ", the highest tried" if not self.of_sizes and level == max(curve) else ""
            yield f"{'least size' if self.of_sizes else 'highest load'} that meets {target}: {self._at(level)}{ends}"
            if self.existing is not None:
                yield f"relative to the {self.existing} nodes that exist: {self._more(level)}"
            if self.ends is not None:
                yield self._interval_of_level(*self.ends)
            facts = self.facts.get(level)
            if facts:
                yield from self._preemptions(facts)
        yield from self._not_monotone()

    def _interval_of_level(self, low: float | None, high: float | None) -> str:
        """Return the 95 % interval of the answer, with its ends in rising order."""
        first, last = (low, high) if self.of_sizes else (high, low)
        unit = " nodes" if self.of_sizes else ""
        start = f"below {min(self.curve):g}" if first is None else f"{first:g}"
        end = f"more than {max(self.curve):g}" if last is None else f"{last:g}"
        words = f"95 % interval of this {'size' if self.of_sizes else 'load'}: {start} to {end}{unit}"
        if self.existing is not None and first is not None:
            more = f"more than {max(self.curve) - self.existing:+g}" if last is None else self._more(last)
            words += f" ({first - self.existing:+g} to {more})"
        return words

    def why_no_interval(self) -> str:
        """Return the reason why the answer has no interval; "" if it has one, or if there is no answer.

        The reason for seeds with equal results is `same_seeds`.
        """
        if self.level is None or self.ends is not None or self.same_seeds:
            return ""
        noun = "size" if self.of_sizes else "load"
        if self.too_short:
            return f"no interval of this {noun}: {self.too_short}"
        runs = "one run" if self.num_seeds == 1 else f"{self.num_seeds} seeds"
        return f"no interval of this {noun}: it needs {LEAST_UNITS} seeds or more, and each {noun} has {runs} (--seeds)"

    def _preemptions(self, facts: Facts) -> Iterator[str]:
        """Yield how often jobs are preempted at the answer, if they are."""
        if facts.preemptions:
            a_job = facts.preemptions * self.num_seeds / facts.num_jobs
            yield f"jobs are preempted {how_often(facts.preemptions)} in a run, {a_job:.2g} times a job"

    def _more(self, level: float) -> str:
        """Return the difference of a number of nodes from the existing nodes in words."""
        difference = level - (self.existing or 0)
        return f"{difference:+g} node{'s' * (abs(difference) != 1)}"

    def _not_monotone(self) -> Iterator[str]:
        """Yield a sentence for each easier level that misses the target, or is worse than the next harder level."""
        values = {level: estimate.value for level, estimate in self.curve.items()}
        worse = reversals(values, easier_upwards=self.of_sizes)
        for other, estimate in self.curve.items():
            is_easier = self.level is not None and other != self.level and (other > self.level) == self.of_sizes
            if is_easier and not self.target.is_met(estimate.value):
                yield f"not monotone: {self._at(other)} does not meet it"
            elif other in worse and self.in_unit(estimate.value) != self.in_unit(self.curve[worse[other]].value):
                yield f"not monotone: {self._at(other)} is worse than {self._at(worse[other])}"

    def _at(self, level: float) -> str:
        """Return a level and its metric in words."""
        value = self.curve[level].value
        where = f"{level:g} node{'s' * (level != 1)}" if self.of_sizes else f"load {level:g}"
        return f"{where}, {'jobs left' if isinf(value) else self.target.text_of(value)}"


def size(request: SizeRequest) -> SizeAnswer:
    """Run levels until the hardest level that meets the target is known, and return the answer.

    Raises
    ------
    InvalidConfigError
        If the target or an override is invalid.
    SweepError
        If a run fails, or another sweep uses the folder.
    """
    target = read_target(request.target)
    levels = request.levels()
    upwards = not request.highest_load
    seeds = list(range(request.seeds)) if request.seeds > 1 else [None]
    log: Path | None = None
    owner: Owner | None = None
    about_log = ""
    if request.log is not None:
        part = part_of(Path(request.log), request.partition, Path(request.folder))
        log = part.log
        about_log = "\n".join((*part.sentences, *rows_left_out(log)))
        owner = Owner(request.user, request.qos)
        owner.check(part.jobs.values(), request.partition)
    with Levels(target, request.runs(log), seeds, Path(request.folder), request.workers, owner).running() as metric:
        estimate = metric.estimate
        first = metric.first_possible(levels)
        levels = levels[first:]
        answer = hardest(levels, lambda level: target.is_met(estimate(level).value), easier_upwards=upwards)
        ends = None
        if answer is not None and any(estimate(level).high is not None for level in metric.measured):

            def end_meets(end: str, level: float) -> bool:
                """Return whether an end of the interval meets the target, or the value without an interval."""
                bound = getattr(estimate(level), end)
                return target.is_met(estimate(level).value if bound is None else bound)

            low, high = (hardest(levels, partial(end_meets, end), easier_upwards=upwards) for end in ("low", "high"))
            ends = low, high
        metric.write_table()
    same_seeds = request.seeds > 1 and not metric.seeds_matter
    curve = {level: estimate(level) for level in sorted(metric.measured)}
    return SizeAnswer(
        target,
        curve,
        upwards,
        answer,
        ends,
        request.existing,
        metric.engine,
        same_seeds,
        request.seeds,
        {level: metric.facts[level] for level in curve},
        levels[0] if first else None,
        metric.too_short,
        about_log,
    )


class Levels:
    """The metric of a target at each level, simulated when it is first asked for.

    `overrides` have `{}` in place of the level. The same seeds are run at each level; None leaves the seed that the
    overrides set. `measured` contains the metric by level, shape (seeds,) [s; 1 for ρ], and `facts` the rest.
    `owner` has the jobs of a log that the target is for; it is None without a log.
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
            first = runs[0].result.job_records
            self.seeds_matter |= any(run.result.job_records != first for run in runs[1:])
            if self._owner is not None and len(self._seeds) == 1:
                self._estimates[level] = self._by_days(runs[0].result, float(self.measured[level][0]))
        return self.measured[level]

    def estimate(self, level: float) -> Estimate:
        """Return the mean over seeds, with its interval if there are enough seeds; infinite if jobs are left."""
        values = enumerate(self.values(level))
        if level not in self._estimates:
            samples = [Sample("", "", value, seed=seed) for seed, value in values]
            measured = Samples(samples, random_arms=[""] if self.seeds_matter else []).mean("", "")
            assert measured is not None
            self._estimates[level] = measured.estimate
        return self._estimates[level]

    def _is_meant(self, job: JobRecord) -> bool:
        """Return whether the target is for a job."""
        return self._owner is None or self._owner.has(job)

    def _by_days(self, result: Result, value: float) -> Estimate:
        """Return a value of the metric with the interval from resampled days of the log."""
        jobs = [(job, each) for job, each in self._target.of_jobs(result) if self._is_meant(job)]
        if not jobs or isinf(value):
            return Estimate(value, None, None)
        blocks = Blocks([job.submit_time for job, _ in jobs])
        self.too_short = self.too_short or blocks.why_no_interval()
        return blocks.interval(value, blocks.of_resamples([each for _, each in jobs], self._target.statistic))

    def write_table(self) -> None:
        """Write one table of all runs, as a sweep does."""
        self._run([entry for level in sorted(self.measured) for entry in self._entries(level)])

    @property
    def engine(self) -> Mapping[str, Any]:
        """Return the engine settings of the runs, which do not depend on the level."""
        return dict(self._entry(min(self.measured), self._seeds[0]).config["engine"])

    def first_possible(self, levels: Sequence[float]) -> int:
        """Return the index of the first level at which the runs of all seeds can start. Raise their error if none is.

        A cluster that is too small for the largest job cannot start a run.
        """

        def can_start(index: int) -> bool:
            try:
                for entry in self._entries(levels[index]):
                    Execution(entry.spec).start()
            except PolluxSimError:
                if index == len(levels) - 1:
                    raise
                return False
            return True

        can_start(len(levels) - 1)
        return bisect_left(range(len(levels) - 1), True, key=can_start)

    def _entries(self, level: float) -> list[Entry]:
        return [self._entry(level, seed) for seed in self._seeds]

    def _entry(self, level: float, seed: int | None) -> Entry:
        overrides = [word.replace(PLACE, f"{level:.10g}") for word in self._overrides]
        overrides += [] if seed is None else [f"seed={seed}"]
        return entry_of(overrides, self._composer.compose(overrides), self._folder)

    def _run(self, entries: Sequence[Entry]) -> list[Path]:
        return [entry.folder for entry in complete_sweep(entries, self._folder, self._workers).entries]


def _facts(runs: Sequence[Run]) -> Facts:
    """Return what the runs of a level, one for each seed, tell besides the metric."""
    records = [job for run in runs for job in of_run(run.result)]
    lost = Counter[str]()
    for run in runs:
        lost += incomplete(run.result)
    return Facts(
        gpus_per_node=Cluster.of_groups(runs[0].info["nodes"]).gpus_per_node,
        preemptions=sum(job.num_restarts for job in records) / len(runs),
        incomplete=lost,
        num_jobs=len(records),
        notes=tuple(runs[0].info.get("notes", ())),
    )


def hardest(levels: Sequence[float], meets: Callable[[float], bool], *, easier_upwards: bool) -> float | None:
    """Return the hardest of ascending levels that meets a target; None if no level meets the target.

    The search gallops from the first level and then bisects. It then tries the neighbours, because metrics are not
    always monotone. With `easier_upwards`, higher levels are easier, as for nodes; otherwise they are harder.
    """

    def is_beyond(index: int) -> bool:
        """Return whether a level is beyond the change between levels that meet the target and levels that do not."""
        return meets(levels[index]) is easier_upwards

    before = -1
    index = 0
    last = len(levels) - 1
    while not is_beyond(index) and index < last:
        before = index
        index = min(2 * index + 1, last)
    change = before + 1 + bisect_left(range(before + 1, index + 1), True, key=is_beyond)
    level = change if easier_upwards else change - 1
    while 0 <= level <= last:
        near = range(max(level - NEIGHBOURS, 0), min(level + NEIGHBOURS, last) + 1)
        meeting = [index for index in near if meets(levels[index])]
        best = meeting[0] if easier_upwards else meeting[-1]
        if level == best:
            return levels[level]
        level = best
    return None
