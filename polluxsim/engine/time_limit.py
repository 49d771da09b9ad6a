"""A time limit of each decision, after which a policy that hangs is interrupted."""

from __future__ import annotations

import ctypes
import signal
import sys
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from types import FrameType

from polluxsim.common.errors import PolicyError
from polluxsim.common.process_state import last_resorts

PACKAGE = Path(__file__).parents[1]
KERNELS = str(PACKAGE / "common" / "kernels.py")  # waits for kernels that another process compiles
COMPILERS = ("numba", "llvmlite")  # packages that compile kernels at their first call

LONGEST_TICK = 0.5  # time between two looks of the watching thread [s]
TICKS = 20  # looks within a limit
GRACE = 5.0  # time after the limit until a policy that cannot be interrupted ends the process [s]

WAKING = signal.SIGURG
"""Signal that interrupts a system call of the main thread. Programs ignore it by default, and hardly any uses it."""

ASKING = str(PACKAGE / "engine" / "simulation.py")  # the outermost frame of a decision

PYTHONS_OWN = sysconfig.get_path("stdlib")
INSTALLED = "site-packages"


class Interruption(BaseException):
    """Base class of exceptions that a caller raises inside a policy (time limits). They are passed on."""


class DecisionTimeoutError(Interruption):
    """A decision takes too long. It is not an `Exception`, so `except Exception` in a policy does not catch it."""


class time_limited:  # noqa: N801  (a context manager, like those of contextlib)
    """Context manager that raises a `PolicyError` if its block, a decision of a policy, takes longer than a limit [s].

    The block may also make the policy; `time` is None then.

    A thread watches the block. It raises an exception in the thread of the block, and also wakes the main thread from
    a system call. It repeats this if the policy catches the exception. Time in which kernels are compiled does not
    count. Compiled code that does not return to Python cannot be interrupted; `last_resorts` ends the process then.
    With None there is no limit.
    """

    __slots__ = ("_interrupting", "_is_interrupted", "_name", "_started", "_time", "limit", "place", "spent", "thread")

    def __init__(self, limit: float | None, name: str, time: float | None) -> None:
        self.limit = limit
        self._name = name
        self._time = time  # of the round [s]; None while the policy is made
        self._is_interrupted = False
        self._interrupting: threading.Lock | None = None  # held while the watching thread raises an exception
        self.spent = 0.0  # by the decision, as the watching thread has seen it [s]
        self.place = ""  # in the user's code

    def __enter__(self) -> None:
        if self.limit is None:
            return
        self._started = monotonic()
        self.thread = thread = threading.get_ident()
        if thread not in _prepared or not _watcher[0].is_alive():
            _prepare(thread)
        _watched[thread] = self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.limit is None:
            return
        _watched.pop(self.thread, None)  # the watching thread begins to raise no exception from now on
        if self._interrupting is None:
            return
        with self._interrupting:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread), None)  # not raised yet
        if self._is_interrupted and not isinstance(error, KeyboardInterrupt):
            raise PolicyError(self.message) from error

    @property
    def message(self) -> str:
        """Return the message about a decision that takes too long."""
        problem = f"policy {self._name} was not made within {self.limit:g} s{self.place}"
        if self._time is not None:
            where = f"in the round at {self._time:g} s{self.place}"
            problem = f"policy {self._name} did not decide within {self.limit:g} s {where}"
        return f"{problem}; engine.decision_limit sets the limit, and null switches it off"

    @property
    def is_over(self) -> bool:
        """Return whether the decision was interrupted."""
        return self._is_interrupted

    def look(self, seconds: float) -> None:
        """Interrupt the decision if its time is over; `seconds` have passed since the last look at all decisions."""
        assert self.limit is not None
        frame = sys._current_frames().get(self.thread)
        if frame is None or _is_compiling(frame):
            return
        # A decision can have begun after the last look.
        self.spent += min(seconds, monotonic() - self._started)
        if self.spent < self.limit:
            return
        self.place = self.place or _place(frame)
        if self.spent > self.limit + GRACE:
            for end in last_resorts:
                end(self.message)
        if self._interrupting is None:
            self._interrupting = threading.Lock()
        with self._interrupting:
            if _watched.get(self.thread) is self:
                self._is_interrupted = True
                _interrupt(self.thread)


_watched: dict[int, time_limited] = {}  # decisions by thread
_watcher: list[threading.Thread] = []  # the watching thread
_prepared = set[int]()  # threads whose decisions can be watched


def _prepare(thread: int) -> None:
    """Prepare to watch the decisions of a thread, which is the present one."""
    if thread == threading.main_thread().ident and signal.getsignal(WAKING) in _UNUSED:
        signal.signal(WAKING, _wake)
    if not _watcher or not _watcher[0].is_alive():  # a forked process does not have the thread
        _watcher[:] = [threading.Thread(target=_look_often, name="polluxsim decisions", daemon=True)]
        _watcher[0].start()
    _prepared.add(thread)


_UNUSED = (signal.SIG_DFL, signal.SIG_IGN)


def _wake(number: int, frame: FrameType | None) -> None:
    """Raise an exception in the main thread if its decision was interrupted."""
    decision = _watched.get(threading.get_ident())
    if decision is not None and decision.is_over:
        raise DecisionTimeoutError


def _look_often() -> None:
    """Look at all decisions from time to time.

    A process that was stopped, for example by Ctrl-Z, does not count the time in which it was stopped.
    """
    while True:
        limits = [decision.limit for decision in list(_watched.values()) if decision.limit is not None]
        tick = min([LONGEST_TICK, *(limit / TICKS for limit in limits)])
        before = monotonic()
        sleep(tick)
        # A longer time than this means that the process was stopped.
        passed = min(monotonic() - before, 4 * tick)
        for decision in list(_watched.values()):
            decision.look(passed)


def _interrupt(thread: int) -> None:
    """Raise `DecisionTimeoutError` in a thread."""
    main = threading.main_thread().ident
    if thread == main and signal.getsignal(WAKING) is _wake:
        signal.pthread_kill(thread, WAKING)
    else:
        error = ctypes.py_object(DecisionTimeoutError)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), error)


def _is_compiling(innermost: FrameType) -> bool:
    """Return whether a thread compiles kernels, or waits for another process that does, given its innermost frame."""
    for frame in _frames(innermost):
        top = str(frame.f_globals.get("__name__")).partition(".")[0]
        if top in COMPILERS or frame.f_code.co_filename == KERNELS:
            return True
    return False


def _place(innermost: FrameType) -> str:
    """Return where the user's code is, from the innermost frame of its thread; "" for a policy of polluxsim.

    A frame of an installed library counts only if there is no other.
    """
    installed = ""
    for frame in _frames(innermost):
        path = frame.f_code.co_filename
        place = f", {path}, line {frame.f_lineno}"
        if INSTALLED in path:
            installed = installed or place
        elif not path.startswith((PYTHONS_OWN, "<frozen")) and PACKAGE not in Path(path).parents:
            return place
    return installed


def _frames(innermost: FrameType) -> Iterator[FrameType]:
    """Yield the frames of a thread within a decision, the innermost first."""
    frame: FrameType | None = innermost
    while frame is not None and frame.f_code.co_filename != ASKING:
        yield frame
        frame = frame.f_back
