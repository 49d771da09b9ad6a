"""Declarations of compiled functions, their machine code for later processes, and a note when they are compiled.

Numba compiles the functions of a few modules (`SOURCES`). It takes 10 to 30 s, so the machine code is kept in a folder
and serves all later processes. This module ensures two things:

- The folder holds the code of one state of the sources: its name has a hash of them. Numba alone checks only the file
  of a function, not the files of the functions and constants that it uses, and would run old code after such a change.
- One process compiles while others wait for a lock, and announce the wait if it takes longer than `PATIENCE`. Without
  the lock, each worker of a sweep would compile the same functions.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn

import numba
from numba.core import config, event
from numba.core.registry import CPUDispatcher

from polluxsim.common.files import lock

Function = Callable[..., Any]

PACKAGE = Path(__file__).parents[1]
SOURCES = (
    "common/kernels.py",
    "models",
    "policies/pollux",
    "statistics/bounds/least_costs.py",
    "studies/twin/fitting_kernels.py",
    "studies/twin/window_kernels.py",
    "studies/twin/kernels.py",
)
"""Files with kernels and with the constants that kernels use. Machine code is kept until one of these files changes."""

PATIENCE = 1.0
"""Time to wait for another process before the wait is announced [s]. Loading machine code takes much less."""

ANNOUNCEMENT = "polluxsim: compiling kernels, once for each installation (10 to 30 s)"

FOLDER_PREFIX = "kernels-"  # beginning of the names of folders of machine code; the rest is a hash

# Options without which a quarter of the compiled code would be checks for division by zero and wrappers for C.
FEWER_CHECKS = {"error_model": "numpy", "no_cfunc_wrapper": True}


class _InternalDispatcher(CPUDispatcher):  # type: ignore[misc]  # Numba is not typed
    """A compiled function that has no wrapper for Python. Without this class, a call from Python would crash."""

    def __call__(self, *arguments: object) -> NoReturn:
        raise TypeError(f"{self.__name__} is for kernels to call; a kernel can be called from Python")


class _KeptDispatcher(CPUDispatcher):  # type: ignore[misc]  # Numba is not typed
    """A compiled function whose machine code is kept. One process compiles it; other processes load the code."""

    def compile(self, signature: object) -> Any:
        """Compile the function for the types of some arguments, or load its machine code."""
        with one_process(self.py_func.__module__):
            return super().compile(signature)


_own_locks: set[str] = set()
"""The modules whose lock this process holds."""


@contextmanager
def one_process(module: str) -> Iterator[None]:
    """Let one process at a time compile kernels of a module. The lock of a killed process ends with it."""
    folder = code_folder()
    # A kernel that is being compiled compiles the kernels that it calls. A second lock of one file would wait for ever.
    if folder is None or module in _own_locks:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)  # a process with other sources may have removed it
    with (folder / f"{module}.lock").open("a") as file:
        try:
            lock(file)
        except BlockingIOError:
            # Another process only loads machine code, as a rule. So the wait is announced late.
            timer = threading.Timer(PATIENCE, _announcement.say)
            timer.start()
            try:
                lock(file, waiting=True)
            finally:
                timer.cancel()
        _own_locks.add(module)
        try:
            yield
        finally:
            _own_locks.discard(module)


def kernel(function: Function, **options: bool) -> Any:
    """Compile a function when it is first called, and keep the machine code in `code_folder` for later processes.

    The function must take and return scalars, arrays and tuples of them, and call no linear-algebra library, whose
    results depend on the processor. A division by zero gives ∞ or NaN, as in NumPy. `options`: those of `numba.njit`.
    """
    folder = code_folder()
    # Numba takes the folder from its global setting when a function is declared. Functions of the user keep theirs.
    before = config.CACHE_DIR
    config.CACHE_DIR = str(folder or "")
    try:
        dispatcher = numba.njit(cache=folder is not None, **FEWER_CHECKS, **options)(function)
    finally:
        config.CACHE_DIR = before
    # Numba has no parameter for the class of a dispatcher.
    if folder is not None:
        dispatcher.__class__ = _KeptDispatcher
    return dispatcher


kernel_without_references: Callable[[Function], Any] = partial(kernel, _nrt=False)
"""Compile a kernel that creates no arrays, so that it does not have to count references to arrays."""

kernel_beside_others: Callable[[Function], Any] = partial(kernel, nogil=True)
"""Compile a kernel that several threads of Python may run at the same time."""

kernel_in_threads: Callable[[Function], Any] = partial(kernel, parallel=True)
"""Compile a kernel whose `prange` loops run in threads."""


def helper(function: Function, **options: bool) -> Any:
    """Compile a function that only kernels call; its machine code is kept with theirs."""
    dispatcher = numba.njit(no_cpython_wrapper=True, **FEWER_CHECKS, **options)(function)
    dispatcher.__class__ = _InternalDispatcher
    return dispatcher


inlined: Callable[[Function], Any] = partial(helper, forceinline=True, _nrt=False)
"""Compile a helper into every kernel that calls it. The kernel must not create arrays.

Called with a tuple of many arrays, a function would copy all of their fields; inlined by LLVM, it copies none.
"""


def spliced(function: Function) -> Any:
    """Insert a helper's source into the one kernel that calls it. The helper is then not compiled separately."""
    return numba.njit(inline="always")(function)


@cache
def code_folder() -> Path | None:
    """Return the folder for the machine code of the present sources; None if no folder can be written.

    Folders of other sources beside it are removed. The answer holds for the whole process.
    """
    name = FOLDER_PREFIX + _digest()
    for parent in _parents():
        folder = parent / name
        if _is_writable(folder):
            # Each change of the sources would otherwise leave a folder of some megabytes for ever.
            for other in parent.glob(f"{FOLDER_PREFIX}*"):
                if other != folder:
                    shutil.rmtree(other, ignore_errors=True)
            return folder
    return None


def _digest() -> str:
    """Return a hash of the kernels' sources and of Numba's version."""
    digest = hashlib.sha256(numba.__version__.encode())
    for source in SOURCES:
        path = PACKAGE / source
        files = [path]
        if path.is_dir():
            files = sorted(path.rglob("*.py"))  # in an order that does not depend on the file system
        for file in files:
            digest.update(file.relative_to(PACKAGE).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _parents() -> Iterator[Path]:
    """Yield possible parents of the folder of machine code, the preferred first.

    If Numba's cache folder is set, it is the only one. Otherwise they are in the package and in the user's cache.
    """
    # Two installations may have other sources. With a common folder, each would remove the code of the other.
    ours = f"polluxsim-{hashlib.sha256(str(PACKAGE.resolve()).encode()).hexdigest()[:16]}"
    if config.CACHE_DIR:
        yield Path(config.CACHE_DIR) / ours
        return
    yield PACKAGE / "__pycache__"
    try:
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / ours
    except RuntimeError:  # the user has no home folder
        return


def _is_writable(folder: Path) -> bool:
    """Return whether files can be created in a folder, which is created if it does not exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


class _Announcement(event.Listener):  # type: ignore[misc]  # Numba is not typed
    """Prints once that kernels are being compiled, in the process that the user has started."""

    def __init__(self) -> None:
        # In a worker, whose parent says it, the message counts as printed.
        self._said = multiprocessing.parent_process() is not None

    def say(self) -> None:
        """Print the message, unless it was printed before."""
        if not self._said:
            self._said = True
            print(ANNOUNCEMENT, file=sys.stderr, flush=True)

    def on_start(self, compiled: event.Event) -> None:
        """Print the message if the function is one of polluxsim."""
        if compiled.data["dispatcher"].py_func.__module__.startswith("polluxsim."):
            self.say()

    def on_end(self, compiled: event.Event) -> None:
        """Do nothing."""


class _LowerOptimisation(event.Listener):  # type: ignore[misc]  # Numba is not typed
    """Reduces the optimisation of functions that kernels call; they are optimised as a part of the kernels."""

    def __init__(self) -> None:
        # Of each compilation in progress: the level of optimisation before it, and whether it is one for polluxsim.
        self._outer: list[tuple[Any, bool]] = []

    def on_start(self, compiled: event.Event) -> None:
        """Lower the level of optimisation for a helper, and for functions of NumPy that a kernel calls."""
        dispatcher = compiled.data["dispatcher"]
        is_ours = dispatcher.py_func.__module__.startswith("polluxsim.")
        if self._outer:
            # What a function of polluxsim calls is compiled for it.
            _, is_for_ours = self._outer[-1]
            is_ours = is_ours or is_for_ours
        self._outer.append((config.OPT, is_ours))
        # Functions without a wrapper for Python are called by kernels only.
        if is_ours and dispatcher.targetoptions.get("no_cpython_wrapper"):
            config.OPT = type(config.OPT)(1)  # the lowest level at which LLVM still simplifies

    def on_end(self, compiled: event.Event) -> None:
        """Restore the level."""
        config.OPT, _ = self._outer.pop()


_announcement = _Announcement()
announce = _announcement.say
"""Print that kernels are being compiled, once for each process of the user."""

event.register("numba:compile", _announcement)
event.register("numba:compile", _LowerOptimisation())
