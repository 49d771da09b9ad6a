"""What a result depends on beside its configuration: versions of the code and of the libraries under it."""

from __future__ import annotations

import platform
import subprocess
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import polluxsim

LIBRARIES = ("simpy", "numpy", "scipy", "numba", "pyarrow", "hydra-core")


def versions() -> dict[str, str]:
    """Return the versions of Python, of this package and of the libraries that results may depend on."""
    found = {name: version(name) for name in LIBRARIES}
    return {"polluxsim": polluxsim.__version__, "python": platform.python_version(), **found}


@lru_cache(maxsize=1)
def git_commit() -> str | None:
    """Return the commit of the source tree this code runs from, with "+" if it was changed since.

    None where it does not run from a checkout of its own.
    """
    root = Path(polluxsim.__file__).parents[1]
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return commit + ("+" if _git(root, "status", "--porcelain", "--", "polluxsim", "configs") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()
