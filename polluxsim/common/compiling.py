"""Compile kernels before their first call, in processes beside the run."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
from collections.abc import Collection
from importlib import import_module


def compile_ahead(modules: Collection[str]) -> None:
    """Compile the kernels of some modules, each module in its own process, and return at once.

    Each module has a function `warm_up`, which calls its slow kernels once. A run that needs a kernel waits until the
    kernel is compiled, and loads the machine code. Do nothing if the machine code exists, if it cannot be kept, or in a
    worker process, because the other workers compile at the same time.
    """
    if not modules or multiprocessing.parent_process() is not None:
        return
    from polluxsim.common.kernels import announce, code_folder  # noqa: PLC0415  (Numba is slow to load)

    folder = code_folder()
    missing = [name for name in modules if folder is not None and not (folder / name).exists()]
    if missing:
        announce()
    # In threads, because each waits for its process and reports its error. Daemons, so that they delay no exit.
    for name in missing:
        threading.Thread(target=_compile, args=(name,), name=f"compile {name}", daemon=True).start()


def _compile(module: str) -> None:
    """Compile the kernels of a module in a process, and print the error if it fails.

    The run then compiles the kernels itself.
    """
    command = [sys.executable, "-m", "polluxsim.common.compiling", module]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode > 0:  # not ended by a signal, as by Ctrl-C
        error = (done.stderr.splitlines() or [f"exit status {done.returncode}"])[-1]
        problem = f"the kernels of {module} could not be compiled ahead ({error})"
        print(f"polluxsim: {problem}; the run compiles them when it needs them", file=sys.stderr, flush=True)


def main() -> None:
    """Compile the kernels of the module that the command names, and write a note when they are compiled."""
    from polluxsim.common.kernels import code_folder  # noqa: PLC0415  (Numba is slow to load)

    import_module(sys.argv[1]).warm_up()
    folder = code_folder()
    # Numba's own files say which functions are compiled, but not whether all of a module are.
    if folder is not None:
        (folder / sys.argv[1]).touch()


if __name__ == "__main__":
    main()
