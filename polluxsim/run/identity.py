"""The key of a run: a hash of everything on which its results depend."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polluxsim import __version__
from polluxsim.run.digests import digest_of, file_digest, folder_digest
from polluxsim.run.own_code import module_digest
from polluxsim.run.user_metrics import modules
from polluxsim.shipped import shipped
from polluxsim.storage import ALLOCATIONS_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Json = Any

PACKAGE = Path(__file__).parents[1]
WITHOUT_INFLUENCE = ("api", "arena", "checks", "cli", "look", "measure", "paper", "run", "sweeps")
"""Packages whose code changes no result, except for the modules in `EXECUTING`."""

EXECUTING = ("run/building.py", "run/execution.py")
"""Modules of these packages that count: they build and execute a run."""

CLASS_SETTINGS = ("_target_", "rule")
"""Settings that may name a class outside polluxsim, as module.Class."""

LIBRARIES = ("numpy", "scipy", "numba", "llvmlite", "simpy", "pyarrow")
"""Libraries that compute or write results."""

TOLD = ("simpy", "numpy", "scipy", "numba", "pyarrow", "hydra-core")
"""Libraries whose versions run.json states."""


def key_of(config: Mapping[str, Json]) -> str:
    """Return the key of a run from its resolved configuration without Hydra's own: equal keys mean equal results."""
    parts = {
        "config": _plain(config),
        "data": dict(sorted(data_of(config).items())),
        "code": code_digest(),
        "guests": {name: module_digest(name) for name in sorted(own_modules(config) | modules(config))},
        "versions": library_versions(),
        "python": platform.python_version(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _plain(value: Json) -> Json:
    """Return settings in which each whole number is an integer: 1.0 becomes 1."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def data_of(config: Json) -> dict[str, str]:
    """Return the digests of the files and folders that settings name, by the name in the settings.

    Each setting counts whose value names a file, and each setting called `path` whose value names a folder. A policy
    with the folder of a run replays its allocations. Elsewhere, the tables of a run in a folder do not count.
    """
    found = {}
    replayed = {value for _, value in _texts(config.get("policy"))}
    for name, value in _texts(config):
        path = Path(value)
        if _is_file(path):
            found[value] = file_digest(path)
        elif value in replayed and _is_file(record := path / ALLOCATIONS_FILE):
            found[value] = file_digest(record)
        elif (name == "path" or name.endswith("_path")) and path.is_dir():
            found[value] = folder_digest(path)
    return found


@lru_cache(maxsize=1)
def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that results depend on."""
    return {name: version(name) for name in LIBRARIES}


def versions() -> dict[str, str]:
    """Return the versions that run.json states: of Python, of this package and of libraries."""
    return {"polluxsim": __version__, "python": platform.python_version(), **{name: version(name) for name in TOLD}}


@lru_cache(maxsize=1)
def git_commit() -> str | None:
    """Return the commit of the checkout of this code, with "+" if files differ from it; None without a checkout."""
    if not (PACKAGE.parent / ".git").exists():
        return None
    try:
        return _git("rev-parse", "HEAD") + ("+" if _git("status", "--porcelain", "--", "polluxsim", "configs") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(PACKAGE.parent), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Return a digest of the code on which results depend, and of the shipped cards and workloads."""
    sources = [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] not in WITHOUT_INFLUENCE
        or path.relative_to(PACKAGE).as_posix() in EXECUTING
    ]
    code = {path.relative_to(PACKAGE).as_posix(): file_digest(path) for path in sources}
    data = {name: folder_digest(shipped(name)) for name in ("traces", "workloads")}
    return digest_of({**code, **data})


def _texts(config: Json, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each setting that is text."""
    if isinstance(config, dict):
        for key, value in config.items():
            yield from _texts(value, str(key))
    elif isinstance(config, list):
        for value in config:
            yield from _texts(value, name)
    elif isinstance(config, str):
        yield name, config


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # text that cannot be the name of a file
        return False


def own_modules(config: Json) -> set[str]:
    """Return the top-level modules of the classes outside polluxsim that a configuration names."""
    names = {value.partition(".")[0] for name, value in _texts(config) if name in CLASS_SETTINGS and "." in value}
    return names - {"polluxsim"}
