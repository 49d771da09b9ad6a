"""Launch the runs of a plan, in processes on this machine or with Hydra's launchers."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import Any, Protocol

from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf, open_dict

from polluxsim.common.errors import InvalidConfigError, LostProcessError, PolluxSimError, SweepError, check_range
from polluxsim.common.process_state import ClosedFilesError
from polluxsim.records.folders import remove_if_empty
from polluxsim.records.storage import write_run
from polluxsim.run.composing import error_of, not_installed
from polluxsim.run.configurations import as_hydra_takes, quoted
from polluxsim.run.execution import Execution
from polluxsim.run.interrupt import exit_at_once, exits_raised, handlers_kept
from polluxsim.run.workers import ONE_THREAD, as_finished, num_cores, one_thread_each, workers
from polluxsim.studies.plan import Entry

WorkerWarning = tuple[str, type[Warning], str, int]  # a warning of a worker: its text, category, file and line


def perform(config: Mapping[str, Any], folder: Path, policy_entry: str | None = None) -> None:
    """Make one run and write it. `policy_entry` is the name of the configuration of its policy."""
    with exits_raised():
        execution = Execution(OmegaConf.create(dict(config)), policy_entry=policy_entry)
        result, summary = execution.simulate()
    write_run(folder, result, execution.info(summary))


@dataclass(frozen=True)
class HydraTask:
    """Function that makes one run of a sweep. Launchers of Hydra call it, also on other machines."""

    modules: str  # folder of the user's modules

    def __call__(self, config: DictConfig) -> None:
        """Make the run that Hydra composed, in the folder that Hydra made for it."""
        if self.modules not in sys.path:
            sys.path.append(self.modules)
        folder = Path(HydraConfig.get().runtime.output_dir)
        try:
            values: Any = OmegaConf.to_container(config, resolve=True)
            perform(values, folder, HydraConfig.get().runtime.choices.get("policy"))
        finally:
            remove_if_empty(folder)


LOST = "the process of this run ended by itself: its code crashed, hung or closed its files, or memory ran out"
"""Message about a run whose process crashed."""


class LocalWorkers:
    """Workers in processes on this machine, by default one for each core that this process may use.

    `in_this_process` makes runs in this process if there is only one worker. Raise InvalidConfigError for less than one
    worker.
    """

    def __init__(self, workers: int | None = None, *, in_this_process: bool = False) -> None:
        check_range("workers", workers, least=1, whole=True, or_null=True)
        self._workers = workers or num_cores()
        self._in_this_process = in_this_process and self._workers == 1
        self._issued: set[WorkerWarning] = set()  # warnings that were issued, each once for all runs
        self._kept: ExitStack | None = None  # closes the pool at the end of the block of `kept`
        self._pool: ProcessPoolExecutor | None = None  # the pool that is kept

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the processes, and the files that they have loaded, from one launch to the next within the block."""
        with ExitStack() as self._kept:
            yield
        self._kept = self._pool = None

    def check(self, entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
        """Return the runs that cannot be made, with their errors, before any run is made.

        A process reads the jobs of a workload once, and checks all runs of this workload. Runs on workloads that differ
        only in their seed are not all checked if reading the jobs takes long.
        """
        if self._in_this_process:
            return refused_here(entries)
        refused: list[tuple[Entry, Exception]] = []
        groups = _by_workload(entries)
        slow = set[str]()  # workloads without their seed, of which one took long to read

        def tasks() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
            for workload, group in groups.items():
                if _without_seed(group[0]) not in slow:
                    yield workload, _refusals, ([entry.config for entry in group],)

        count = min(self._workers, len(groups))
        with self._processes(count) as pool:
            for workload, future in as_finished(pool, tasks(), count):
                if isinstance(future.exception(), BrokenProcessPool):
                    self._pool = None
                    break  # making the run shows which one ends its process
                errors, seconds = future.result()
                if seconds > LONG_CHECK:
                    slow.add(_without_seed(groups[workload][0]))
                refused += [(groups[workload][place], error) for place, error in errors]
        return _in_order(refused, entries)

    def launch(self, entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
        """Make all runs; return the failed runs with their errors. Runs of a kind that takes long start first.

        A process that crashes breaks the pool, and with it the runs of all other processes. Each of these runs is
        repeated alone, which shows the run that crashed its process.
        """
        if self._in_this_process:
            return _made_here(entries)
        order = StartOrder(entries)
        failed: list[tuple[Entry, Exception]] = []
        while order:
            for entry in self._work(order, failed):
                if self._work(StartOrder([entry]), failed):
                    failed.append((entry, LostProcessError(LOST)))
        return failed

    def _work(self, order: StartOrder, failed: list[tuple[Entry, Exception]]) -> list[Entry]:
        """Make runs, and add failed ones to `failed`. If a process is lost, stop and return the runs under way."""
        count = min(self._workers, len(order))
        started: dict[str, float] = {}
        lost: list[Entry] = []

        def tasks() -> Iterator[tuple[Entry, Callable[..., Any], tuple[Any, ...]]]:
            while order:
                entry = order.next()
                started[entry.key] = monotonic()
                yield entry, _perform, (entry.config, entry.folder, entry.policy_entry)

        with self._processes(count) as pool:
            for entry, future in as_finished(pool, tasks(), count):
                order.took(entry, monotonic() - started[entry.key])
                error = future.exception()
                if isinstance(error, BrokenProcessPool):
                    lost.append(entry)
                elif isinstance(error, Exception):
                    failed.append((entry, error))
                elif error is not None:
                    raise error
                else:
                    for warning in set(future.result()) - self._issued:
                        self._issued.add(warning)
                        warnings.warn_explicit(*warning)
        if lost:
            self._pool = None
        return lost

    @contextmanager
    def _processes(self, count: int) -> Iterator[ProcessPoolExecutor]:
        """Yield a pool of processes. A pool that is kept is closed after an error."""
        if self._kept is None:
            with workers(count) as pool:
                yield pool
            return
        if self._pool is None:
            self._pool = self._kept.enter_context(workers(self._workers))
        try:
            yield self._pool
        except BaseException:
            self._kept.__exit__(*sys.exc_info())
            raise


LONG_CHECK = 1.0  # time to check the runs on a workload from which on others like it are not checked [s]


def refused_here(entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
    """Check runs in this process; return the runs that cannot be made, with their errors."""
    refused: list[tuple[Entry, Exception]] = []
    slow = set[str]()
    for group in _by_workload(entries).values():
        if _without_seed(group[0]) in slow:
            continue
        errors, seconds = _refusals([entry.config for entry in group])
        if seconds > LONG_CHECK:
            slow.add(_without_seed(group[0]))
        refused += [(group[place], error) for place, error in errors]
    return _in_order(refused, entries)


def _refusals(configs: Sequence[Mapping[str, Any]]) -> tuple[list[tuple[int, Exception]], float]:
    """Return the errors of the runs of one workload that cannot be made, by their places, and the time taken [s].

    Errors of other kinds than the user's are left to the runs themselves.
    """
    errors: list[tuple[int, Exception]] = []
    started = monotonic()
    with warnings.catch_warnings(), exits_raised():
        warnings.simplefilter("ignore")  # the runs issue the warnings
        for place, config in enumerate(configs):
            try:
                Execution(OmegaConf.create(dict(config))).check()
            except (PolluxSimError, OSError) as error:
                errors.append((place, error))
            except Exception:  # noqa: BLE001  (the run raises it again, and says what it is)
                continue
    return errors, monotonic() - started


def _by_workload(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """Return runs by their workload and profiles."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        sources = {name: entry.config.get(name) for name in ("workload", "profiles")}
        groups.setdefault(json.dumps(sources, sort_keys=True), []).append(entry)
    return groups


def _without_seed(entry: Entry) -> str:
    """Return the workload and the profiles of a run without the seed of the workload."""
    workload = entry.config.get("workload")
    if isinstance(workload, Mapping):
        workload = {name: value for name, value in workload.items() if name != "seed"}
    return json.dumps([workload, entry.config.get("profiles")], sort_keys=True)


def _in_order(refused: Sequence[tuple[Entry, Exception]], entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
    """Return runs with their errors in the order of the plan."""
    errors = {entry.key: error for entry, error in refused}
    return [(entry, errors[entry.key]) for entry in entries if entry.key in errors]


def _made_here(entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
    """Make runs in this process; return the failed runs with their errors."""
    failed: list[tuple[Entry, Exception]] = []
    for entry in entries:
        try:
            perform(entry.config, entry.folder, entry.policy_entry)
        except (PolluxSimError, OSError) as error:
            failed.append((entry, error))
    return failed


def _perform(config: Mapping[str, Any], folder: Path, policy_entry: str | None) -> list[WorkerWarning]:
    """Make one run; return its warnings, which the parent process issues once for all runs."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            perform(config, folder, policy_entry)
        except ClosedFilesError as error:
            if error.cuts_off:
                exit_at_once(1)
            raise
    return [(str(warning.message), warning.category, warning.filename, warning.lineno) for warning in caught]


class StartOrder:
    """Runs in the order in which to start them: kinds of runs without a started run first, then the longest kinds.

    Runs of a kind differ only in seed, workload and profiles.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._waiting: dict[str, deque[Entry]] = defaultdict(deque)  # by kind
        self._times: dict[str, list[float]] = defaultdict(list)  # of finished runs, by kind [s]
        self._started: set[str] = set()  # kinds
        for entry in entries:
            self._waiting[_kind(entry)].append(entry)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def next(self) -> Entry:
        """Remove and return the run to start now."""
        kind = max(self._waiting, key=self._expected)
        self._started.add(kind)
        entry = self._waiting[kind].popleft()
        if not self._waiting[kind]:
            del self._waiting[kind]
        return entry

    def took(self, entry: Entry, seconds: float) -> None:
        """Note how long a run took."""
        self._times[_kind(entry)].append(seconds)

    def _expected(self, kind: str) -> float:
        """Return the expected duration of a run of a kind [s]; ∞ for a new kind."""
        if self._times[kind]:
            return fmean(self._times[kind])
        # One run of a new kind suffices to learn the duration; its other runs start last.
        return 0.0 if kind in self._started else math.inf


def _kind(entry: Entry) -> str:
    """Return the settings that runs of a kind have in common, as text."""
    config = {name: value for name, value in entry.config.items() if name not in ("seed", "workload", "profiles")}
    return json.dumps(config, sort_keys=True)


class Workers(Protocol):
    """Processes or machines that make the runs of a sweep."""

    def kept(self) -> AbstractContextManager[None]:
        """Keep processes from one call to the next within the block."""

    def check(self, entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
        """Return the runs that cannot be made, with their errors, before any run is made."""

    def launch(self, entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
        """Make all runs; return the failed runs with their errors."""


class HydraWorkers:
    """Workers of a launcher of Hydra. Each run is a job, which composes its configuration again.

    `config` is the configuration of the sweep, and `context` composes the runs from it. Raise InvalidConfigError if the
    launcher is not installed.
    """

    def __init__(self, config: DictConfig, context: HydraContext) -> None:
        self._name = str(config.hydra.runtime.choices["hydra/launcher"])
        if self._name == "ray":
            _set_up_ray(config)
        task = HydraTask(str(Path.cwd()))
        try:
            self._launcher: Launcher = Plugins.instance().instantiate_launcher(context, task, config)
        except (RuntimeError, ImportError) as error:
            raise InvalidConfigError(not_installed(self._name)) from error

    def kept(self) -> AbstractContextManager[None]:
        """Keep nothing, because the launcher starts the processes."""
        return nullcontext()

    def check(self, entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
        """Return the runs that cannot be made, with their errors. This process checks them."""
        return refused_here(entries)

    def launch(self, entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
        """Make all runs; return the failed runs with their errors. Raise SweepError if the launcher fails."""
        # Submitit's local executor starts all given runs at once.
        at_once = num_cores() if self._name == "submitit_local" else len(entries)
        failed = []
        with one_thread_each(), _ray_started(self._launcher, self._name):
            for start in range(0, len(entries), at_once):
                failed += self._launch(entries[start : start + at_once], start)
        return failed

    def _launch(self, entries: Sequence[Entry], first: int) -> list[tuple[Entry, Exception]]:
        """Make runs at once. The index of the first run among all runs is `first`."""
        try:
            returns = self._launcher.launch([_job(entry) for entry in entries], initial_job_idx=first)
        except Exception as error:
            what = " ".join(str(error).split())
            raise SweepError(f"hydra/launcher={self._name} failed: {type(error).__name__}: {what}") from error
        errors = map(error_of, returns)
        return [(entry, error) for entry, error in zip(entries, errors, strict=True) if error is not None]


def chosen_workers(config: DictConfig, context: HydraContext, processes: int | None) -> Workers:
    """Return the workers that a configuration chooses. Hydra's launcher `basic` means processes on this machine."""
    if config.hydra.runtime.choices["hydra/launcher"] == "basic":
        return LocalWorkers(processes)
    return HydraWorkers(config, context)


def _job(entry: Entry) -> list[str]:
    """Return the overrides of a run, with the absolute path of its folder, because a worker may run elsewhere."""
    return [
        *as_hydra_takes(entry.overrides),
        f"hydra.sweep.dir={quoted(str(entry.folder.parent.resolve()))}",
        f"hydra.sweep.subdir={quoted(entry.folder.name)}",
    ]


def _set_up_ray(config: DictConfig) -> None:
    """Set the defaults that the Ray plugin needs with current versions of Ray."""
    with open_dict(config):
        init = config.hydra.launcher.ray.init
        # Otherwise Ray looks for a cluster, and fails if an old cluster has left its address.
        init.address = init.get("address") or "local"
        # A running cluster refuses the default of the plugin.
        init.setdefault("object_store_memory", None)
        init.setdefault("logging_level", "error")
        init.setdefault("log_to_driver", False)
        init.setdefault("runtime_env", {"env_vars": dict.fromkeys(ONE_THREAD, "1")})


@contextmanager
def _ray_started(launcher: Launcher, name: str) -> Iterator[None]:
    """Start Ray for the block if the launcher needs it and it is not running.

    Shut it down at the end if it was not running before. Otherwise runs continue after Ctrl-C.
    """
    if name != "ray":
        yield
        return
    import ray  # noqa: PLC0415  (slow to load)

    was_there = ray.is_initialized()
    try:
        with handlers_kept():  # Ray sets a handler of SIGTERM that ends the process
            if not was_there:
                settings: Any = OmegaConf.to_container(launcher.ray_cfg.init)  # type: ignore[attr-defined]
                ray.init(**settings)
        yield
    finally:
        if not was_there:
            ray.shutdown()
