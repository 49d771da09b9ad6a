"""What the process of a program cannot do: open files, use the network, start processes, or use much memory.

There are three guards. The operating system limits the resources of the process (`limit_resources`). Python tells a
`Guard` of each event that touches the world outside, while code of the program runs. And the program has built-in
functions that do less (`open_builtins`).
"""

from __future__ import annotations

import builtins
import resource
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from polluxsim.policies.guest.source import may_import

PROGRAM = "<program>"  # name of the program in tracebacks

CPU_SECONDS = 600  # CPU time after which the process ends, if the host has not ended it before [s]
MOST_FILES = 64  # largest number of open files

CODE = (".py", ".pyc", ".so", ".nbi", ".nbc")  # ends of files with code, which modules load late, also Numba's

CLOSED_EVENTS = {
    "ctypes": "uses ctypes",
    "fcntl": "uses files",
    "ftplib": "uses the network",
    "gc": "looks into the memory of the process",
    "http": "uses the network",
    "mmap": "maps memory",
    "os": "uses the operating system",
    "pty": "starts a process",
    "resource": "changes limits",
    "shutil": "uses files",
    "signal": "uses signals",
    "smtplib": "uses the network",
    "socket": "uses the network",
    "sqlite3": "uses files",
    "subprocess": "starts a process",
    "syslog": "uses the network",
    "tempfile": "uses files",
    "urllib": "uses the network",
}
"""First words of audit events that a program must not cause, with what it does."""

PROCESS_EVENTS = frozenset({"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system"})
HARMLESS_EVENTS = frozenset({"os.listdir", "os.scandir"})  # Python lists folders when it looks for a module


class ForbiddenError(BaseException):
    """A program did what it must not do. It is not an `Exception`, so `except Exception` does not catch it."""


class Guard:
    """Watch what a program does while its code runs.

    Attributes
    ----------
    watches
        Whether `watching` has an effect; false for a trusted policy.
    violation
        What the program did first that it must not do, with its line; None if it did nothing of the kind.
    """

    def __init__(self) -> None:
        self.watches = False
        self.violation: str | None = None
        self._is_watching = False
        # A hook cannot be removed, so a program cannot switch it off.
        sys.addaudithook(self._hear)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch within the block, in which code of the program runs."""
        self._is_watching = self.watches
        try:
            yield
        finally:
            self._is_watching = False

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Raise ForbiddenError if an audit event must not happen."""
        if not self._is_watching:
            return
        problem = _problem(event, arguments)
        if problem is None:
            return
        self._is_watching = False  # to look at frames is an event as well
        line = line_of(sys._getframe())
        self._is_watching = True
        sentence = f"the program {problem}, which is not open to programs"
        if line is not None:
            sentence = f"line {line}: {sentence}"
        # A program may catch the error with a bare except, so the violation is noted as well.
        if self.violation is None:
            self.violation = sentence
        raise ForbiddenError(sentence)


def _problem(event: str, arguments: tuple[Any, ...]) -> str | None:
    """Return what a program does that causes an audit event; None if it may do so."""
    if event == "open":
        path, mode = arguments[0], arguments[1]
        # A module may import another one when its function is called. Only the mode tells that nothing is written.
        reads_code = str(path).endswith(CODE) and (mode is None or "r" in str(mode))
        return None if reads_code else "opens a file"
    if event in HARMLESS_EVENTS:
        return None
    if event in PROCESS_EVENTS:
        return "starts a process"
    return CLOSED_EVENTS.get(event.partition(".")[0])


def line_of(frame: FrameType | None) -> int | None:
    """Return the line of the program that is the innermost of the frames from this one outwards, or None."""
    while frame is not None:
        if frame.f_code.co_filename == PROGRAM:
            return frame.f_lineno
        frame = frame.f_back
    return None


def limit_resources(memory: int) -> None:
    """Limit the memory [bytes], CPU time, files and processes of this process for good."""
    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: CPU_SECONDS,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: MOST_FILES,
        resource.RLIMIT_NPROC: 0,
    }
    # Nothing that the process does later can raise a limit whose hard value is as low.
    for kind, most in limits.items():
        resource.setrlimit(kind, (most, most))


def open_builtins() -> dict[str, Any]:
    """Return the built-in names that a program may use."""
    closed = {"breakpoint", "compile", "eval", "exec", "exit", "help", "input", "open", "quit"}
    names = {name: value for name, value in vars(builtins).items() if name not in closed}
    return names | {"__import__": _import, "getattr": _getattr}


def _import(
    name: str,
    into: Mapping[str, object] | None = None,
    within: Mapping[str, object] | None = None,
    attributes: tuple[str, ...] = (),
    level: int = 0,
) -> Any:
    """Import a module. Raise ImportError if a program may not import it, or for a relative import."""
    if level or not may_import(name):
        raise ImportError(f"the program may not import {name}")
    return builtins.__import__(name, into, within, attributes, level)


def _getattr(value: object, name: str, *default: object) -> Any:
    """Return an attribute, as `getattr`. Raise AttributeError for a private one."""
    # The check of the source cannot see a name that is put together at run time.
    if name.startswith("_"):
        raise AttributeError(f"the attribute {name} is not open to programs", name=name, obj=value)
    return getattr(value, name, *default)
