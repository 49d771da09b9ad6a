"""Compiled functions: how they are declared, where their machine code is kept, and that compiling is announced."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Intel's vector library would give other last bits on other processors, where it is installed at all. Numba looks for
# it when it is first imported.
os.environ.setdefault("NUMBA_DISABLE_INTEL_SVML", "1")

import numba
from numba.core import config, event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Function = Callable[..., Any]

PACKAGE = Path(__file__).parent
SOURCES = ("kernels.py", "models", "policies/pollux")
"""Where kernels are, and the constants they use: machine code is kept for as long as these are the same."""

FOLDERS = "kernels-"
"""Beginning of the names of our folders of machine code; the rest is a hash."""


def kernel(function: Function) -> Any:
    """Compile a function when it is first called, and keep the machine code for later processes.

    It takes and returns scalars, arrays and tuples of them, and calls no linear-algebra library.
    """
    return _kept(function, parallel=False)


def kernel_in_threads(function: Function) -> Any:
    """Compile a kernel whose `prange` loops run in threads."""
    return _kept(function, parallel=True)


def helper(function: Function) -> Any:
    """Compile a function that kernels call; its machine code is kept with theirs."""
    return numba.njit(function)


def inlined(function: Function) -> Any:
    """Compile a helper into every kernel that calls it.

    Called with a tuple of many arrays, a function counts a reference to each of them; inlined by LLVM, to none. This
    halves the time of a move of the search.
    """
    return numba.njit(forceinline=True)(function)


def _kept(function: Function, *, parallel: bool) -> Any:
    folder, before = _folder(), config.CACHE_DIR
    config.CACHE_DIR = str(folder or "")
    try:
        return numba.njit(cache=folder is not None, parallel=parallel)(function)
    finally:
        config.CACHE_DIR = before


def spliced(function: Function) -> Any:
    """Put a helper's text into the one kernel that calls it, so that it is not compiled on its own as well."""
    return numba.njit(inline="always")(function)


@cache
def _folder() -> Path | None:
    """Return the folder for the machine code of these very sources; None if there is no place for it.

    Numba alone would look at the file of a function only, and not notice that one it calls has changed.
    """
    name = FOLDERS + _digest()
    for place in _places():
        folder = place / name
        if _is_writable(folder):
            for other in place.glob(f"{FOLDERS}*"):
                if other != folder:
                    shutil.rmtree(other, ignore_errors=True)
            return folder
    return None


def _digest() -> str:
    """Return a hash of the kernels' sources and of Numba's version."""
    digest = hashlib.sha256(numba.__version__.encode())
    for source in SOURCES:
        path = PACKAGE / source
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.relative_to(PACKAGE).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _places() -> Iterator[Path]:
    """Yield where machine code may be kept, best first: where Numba is told to, in the package, in the user's cache."""
    ours = f"polluxsim-{hashlib.sha256(str(PACKAGE.resolve()).encode()).hexdigest()[:16]}"
    if config.CACHE_DIR:
        yield Path(config.CACHE_DIR) / ours
        return
    yield PACKAGE / "__pycache__"
    try:
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / ours
    except RuntimeError:  # nobody's home
        return


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


class _Announcement(event.Listener):  # type: ignore[misc]  # Numba is not typed
    """Says once that kernels are being compiled, in the process that a user has started."""

    def __init__(self) -> None:
        self._said = multiprocessing.parent_process() is not None

    def on_start(self, event: event.Event) -> None:
        """Say it if the function is ours."""
        if not self._said and event.data["dispatcher"].py_func.__module__.startswith("polluxsim."):
            self._said = True
            print("polluxsim: compiling kernels, once for each installation", file=sys.stderr, flush=True)

    def on_end(self, event: event.Event) -> None:
        """Say nothing."""


event.register("numba:compile", _Announcement())
