"""Launch the runs of a plan, in processes on this machine or with Hydra's launchers.

Code of the user may end its process, and a process that ends breaks the pool of all. So a lost process costs the runs
that are under way one repetition, each alone, and no other run.
"""

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
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import Any, Protocol, runtime_checkable

from polluxsim.common.errors import InvalidConfigError, LostProcessError, PolluxSimError, SweepError
from polluxsim.common.process_state import ClosedFilesError
from polluxsim.common.values import PositiveInt, check
from polluxsim.records.storage import write_run
from polluxsim.run.execution import Execution
from polluxsim.run.interrupt import handlers_kept
from polluxsim.run.spec import EXTRAS, LAUNCHERS, Launcher, RunSpec
from polluxsim.run.user_exits import exit_at_once, exits_raised
from polluxsim.run.workers import ONE_THREAD, as_finished, num_cores, one_thread_each, workers
from polluxsim.studies.plan import Entry

WorkerWarning = tuple[str, type[Warning], str, int]  # a warning of a worker: its text, category, file and line


def perform(spec: RunSpec, folder: Path) -> None:
    """Make one run and write it."""
    with exits_raised():
        finished = Execution(spec).simulate()
    write_run(folder, finished.result, finished.info)


LOST = "the process of this run ended by itself: its code crashed, hung or closed its files, or memory ran out"
"""Message about a run whose process crashed."""


class LocalWorkers:
    """Workers in processes on this machine, by default one for each core that this process may use.

    `in_this_process` makes runs in this process if there is only one worker. Raise InvalidConfigError for less than one
    worker.
    """

    def __init__(self, workers: int | None = None, *, in_this_process: bool = False) -> None:
        check("workers", workers, PositiveInt | None)
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

        # The pool takes a task when a process is free, so results that are there already decide on the next ones.
        def tasks() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
            for workload, group in groups.items():
                if _without_seed(group[0]) not in slow:
                    yield workload, _refusals, ([entry.spec for entry in group],)

        count = min(self._workers, len(groups))
        with self._processes(count) as pool:
            for workload, future in as_finished(pool, tasks(), count):
                if isinstance(future.exception(), BrokenProcessPool):
                    self._pool = None
                    break  # making the run shows which one ends its process
                errors, seconds = future.result()
                group = groups[workload]
                if seconds > LONG_CHECK:
                    slow.add(_without_seed(group[0]))
                refused += [(group[place], error) for place, error in errors]
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

        # The order is asked when a process is free, so it knows how long the finished runs took.
        def tasks() -> Iterator[tuple[Entry, Callable[..., Any], tuple[Any, ...]]]:
            while order:
                entry = order.next()
                started[entry.key] = monotonic()
                yield entry, _perform, (entry.spec, entry.folder)

        with self._processes(count) as pool:
            for entry, future in as_finished(pool, tasks(), count):
                order.took(entry, monotonic() - started[entry.key])
                error = future.exception()
                if isinstance(error, BrokenProcessPool):
                    lost.append(entry)
                elif isinstance(error, Exception):
                    failed.append((entry, error))
                elif error is not None:  # like KeyboardInterrupt, which ends the sweep
                    raise error
                else:
                    for warning in set(future.result()) - self._issued:
                        self._issued.add(warning)
                        warnings.warn_explicit(*warning)
        if lost:
            self._pool = None  # a pool that lost a process takes no more calls
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
        errors, seconds = _refusals([entry.spec for entry in group])
        if seconds > LONG_CHECK:
            slow.add(_without_seed(group[0]))
        refused += [(group[place], error) for place, error in errors]
    return _in_order(refused, entries)


def _refusals(specs: Sequence[RunSpec]) -> tuple[list[tuple[int, Exception]], float]:
    """Return the errors of the runs of one workload that cannot be made, by their places, and the time taken [s].

    Errors of other kinds than the user's are left to the runs themselves.
    """
    errors: list[tuple[int, Exception]] = []
    started = monotonic()
    with warnings.catch_warnings(), exits_raised():
        warnings.simplefilter("ignore")  # the runs issue the warnings
        for place, spec in enumerate(specs):
            try:
                Execution(spec).check()
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
    """Make runs in this process; return those that failed by an error of the user or of a file, with their errors."""
    failed: list[tuple[Entry, Exception]] = []
    for entry in entries:
        try:
            perform(entry.spec, entry.folder)
        except (PolluxSimError, OSError) as error:
            failed.append((entry, error))
    return failed


def _perform(spec: RunSpec, folder: Path) -> list[WorkerWarning]:
    """Make one run; return its warnings, which the parent process issues once for all runs."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            perform(spec, folder)
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
        if kind in self._started:
            return 0.0  # one run of a new kind suffices to learn the duration; its other runs start last
        return math.inf


def _kind(entry: Entry) -> str:
    """Return the settings that runs of a kind have in common, as text."""
    config = dict(entry.config)
    for name in ("seed", "workload", "profiles"):
        config.pop(name, None)
    return json.dumps(config, sort_keys=True)


class RunWorkers(Protocol):
    """Processes or machines that make the runs of a sweep."""

    def kept(self) -> AbstractContextManager[None]:
        """Keep processes from one call to the next within the block."""

    def check(self, entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
        """Return the runs that cannot be made, with their errors, before any run is made."""

    def launch(self, entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
        """Make all runs; return the failed runs with their errors."""


class Submitted(Protocol):
    """A call that an executor makes, like `concurrent.futures.Future`."""

    def result(self) -> Any:
        """Wait for the end of the call, and return its result, or raise its error."""

    def cancel(self) -> Any:
        """End the call if that is possible."""


@runtime_checkable
class Executor(Protocol):
    """Makes calls elsewhere, like `concurrent.futures.Executor`."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Submitted:
        """Start a call, or let it wait for its turn."""


class ExecutorWorkers:
    """Workers of an executor. Each run is one call. At most `at_once` calls are made at once; None sets no limit."""

    def __init__(self, executor: Executor, name: str = "the executor", at_once: int | None = None) -> None:
        self._executor = executor
        self._name = name
        self._at_once = at_once

    def kept(self) -> AbstractContextManager[None]:
        """Keep nothing, because the executor starts the processes."""
        return nullcontext()

    def check(self, entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
        """Return the runs that cannot be made, with their errors. This process checks them."""
        return refused_here(entries)

    def launch(self, entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
        """Make all runs; return the failed runs with their errors. Raise SweepError if the executor fails."""
        failed = []
        at_once = self._at_once or len(entries)
        # A context manager, like that of Ray, starts what the calls need. Submitit starts a batch as one array of jobs.
        opened = getattr(self._executor, "running", nullcontext)
        with one_thread_each(), opened():
            for start in range(0, len(entries), at_once):
                failed += self._launch(entries[start : start + at_once])
        return failed

    def _launch(self, entries: Sequence[Entry]) -> list[tuple[Entry, Exception]]:
        """Make runs at once; return the failed runs with their errors.

        If the executor fails, or after Ctrl-C, cancel all calls. Raise SweepError if the executor fails.
        """
        failed = []
        modules = str(Path.cwd())
        submitted: list[Submitted] = []
        try:
            with getattr(self._executor, "batch", nullcontext)():
                for entry in entries:
                    submitted.append(self._executor.submit(attempt, entry.spec, entry.folder.resolve(), modules))
            for entry, call in zip(entries, submitted, strict=True):
                error = call.result()
                if error is not None:
                    failed.append((entry, error))
        except BaseException as error:
            for call in submitted:
                call.cancel()
            if not isinstance(error, Exception):  # Ctrl-C, and not a failure of the executor
                raise
            message = " ".join(str(error).split())
            raise SweepError(f"{self._name} failed: {type(error).__name__}: {message}") from error
        return failed


def attempt(spec: RunSpec, folder: Path, modules: str) -> Exception | None:
    """Make one run, perhaps on another machine; return its error, or None. The user's modules are in `modules`."""
    # At the end, so that a file of the user does not hide an installed module of the same name.
    if modules not in sys.path:
        sys.path.append(modules)
    try:
        perform(spec, folder)
    except Exception as error:  # noqa: BLE001  (the process that started the sweep reports it)
        return error
    return None


def chosen_workers(launcher: Launcher, processes: int | None) -> RunWorkers:
    """Return the workers of a launcher; `basic` means processes on this machine.

    Raise InvalidConfigError if the launcher is unknown or not installed, or refuses a setting.
    """
    if launcher.name == "basic":
        return LocalWorkers(processes)
    name = f"hydra/launcher={launcher.name}"
    if launcher.name not in LAUNCHERS:
        raise InvalidConfigError(f"{name} is not supported; choose basic, {', '.join(LAUNCHERS)}")
    try:
        if launcher.name == "ray":
            return ExecutorWorkers(_Ray(launcher.settings["ray"]), name)
        # Submitit's local executor starts all given runs at once.
        at_once = num_cores() if launcher.name == "submitit_local" else None
        return ExecutorWorkers(_submitit(launcher), name, at_once)
    except ImportError as error:
        advice = f"run pip install 'polluxsim[{EXTRAS[launcher.name]}]'"
        raise InvalidConfigError(f"{name} is not installed; {advice}") from error
    except (RuntimeError, NameError, TypeError) as error:
        raise InvalidConfigError(f"{name}: {' '.join(str(error).split())}") from error


def _submitit(launcher: Launcher) -> Executor:
    """Return the executor of Submitit for Slurm, or for processes on this machine."""
    import submitit  # noqa: PLC0415  (installed for Slurm only)

    settings = dict(launcher.settings)
    cluster = launcher.name.removeprefix("submitit_")
    of_executor = {"folder": settings.pop("submitit_folder")}
    if "max_num_timeout" in settings:
        of_executor["slurm_max_num_timeout"] = settings.pop("max_num_timeout")
    executor = submitit.AutoExecutor(cluster=cluster, **of_executor)
    parameters = {}
    for name, value in settings.items():
        if name in LAUNCHERS["submitit_local"]:  # settings that all clusters have
            parameters[name] = value
        else:
            parameters[f"{cluster}_{name}"] = value
    executor.update_parameters(**parameters)
    return executor


class _Ray:
    """Executor of Ray. `settings` contains the arguments of `ray.init` and `ray.remote`."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        import ray  # noqa: PLC0415  (slow to load, installed for Ray only)

        self._ray: Any = ray
        # Each run has one core, as in the processes of `LocalWorkers`.
        threads = {"runtime_env": {"env_vars": dict.fromkeys(ONE_THREAD, "1")}}
        self._init = {**threads, **settings["init"]}
        self._remote = settings["remote"]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start Ray for the block if it is not running.

        Shut it down at the end if this block started it, because its runs would continue after Ctrl-C.
        """
        was_there = self._ray.is_initialized()
        try:
            with handlers_kept():  # Ray sets a handler of SIGTERM that ends the process
                if not was_there:
                    self._ray.init(**self._init)
            yield
        finally:
            if not was_there:
                self._ray.shutdown()

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Submitted:
        """Start a call on a machine of Ray."""
        if self._remote:
            remote = self._ray.remote(**self._remote)(function)
        else:
            remote = self._ray.remote(function)  # Ray refuses a call without any setting
        call: Submitted = remote.remote(*arguments).future()
        return call
