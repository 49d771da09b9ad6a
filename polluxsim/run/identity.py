"""Which run is which: a hash of everything that a run's results follow from."""

from __future__ import annotations

import ast
import fnmatch
import hashlib
import importlib.util
import json
import platform
import sys
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from importlib.metadata import version
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polluxsim.errors import InvalidConfigError
from polluxsim.files import TEMPORARY
from polluxsim.shipped import shipped
from polluxsim.storage import RUN_FILE, RUN_FILES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Json = Any

PACKAGE = Path(__file__).parents[1]
WITHOUT_INFLUENCE = ("cli", "look", "paper", "run", "sweeps")
"""Rooms whose code changes no result, but for the modules below."""

EXECUTING = ("run/building.py", "run/execution.py")

CLASS_SETTINGS = ("_target_", "rule")
"""Settings that may name a class of the user's, as module.Class."""

LIBRARIES = ("numpy", "scipy", "numba", "llvmlite", "simpy", "pyarrow")
"""Libraries that compute, or write what was computed."""

OUTPUTS = {RUN_FILE: RUN_FILES, ".lock": ("sweep.parquet", "sweep-timing.parquet", "multirun.yaml")}
"""What marks a run's or a sweep's folder, as may lie in a folder of data that someone works in or be that folder
itself; and the files that it puts there."""

LARGE = 500_000_000
"""A folder of data of so many bytes takes some time to read [bytes]."""

UNREADABLE = "unreadable"
"""Stands for the digest of a file that cannot be read: whoever needs it will say so."""

INSTALLED = ("site-packages", "dist-packages")
PYTHONS_OWN = ("built-in", "frozen")
"""Origins of modules that change with Python's version only."""

CODE_ENDINGS = (*SOURCE_SUFFIXES, *EXTENSION_SUFFIXES)


def key_of(config: Mapping[str, Json]) -> str:
    """Return the key of a run: equal keys mean equal results.

    Parameters
    ----------
    config
        The resolved configuration, without Hydra's own.
    """
    parts = {
        "config": _plain(config),
        "data": dict(sorted(data_of(config).items())),
        "code": code_digest(),
        "guests": {name: _module_digest(name) for name in sorted(_foreign_modules(config))},
        "versions": library_versions(),
        "python": platform.python_version(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _plain(value: Json) -> Json:
    """Return settings with whole numbers as such, however they are written: 1.0 is 1."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def data_of(config: Json) -> dict[str, str]:
    """Return the digests of the files and folders that settings name, by the name given.

    Every setting counts whose value names a file, and every setting called `path` whose value names a folder.
    """
    found = {}
    for name, value in _texts(config):
        path = Path(value)
        if _is_file(path):
            found[value] = _file_digest(path)
        elif (name == "path" or name.endswith("_path")) and path.is_dir():
            found[value] = _folder_digest(path)
    return found


@lru_cache(maxsize=1)
def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that results depend on."""
    return {name: version(name) for name in LIBRARIES}


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Return a digest of the code that results depend on, and of the cards and workloads that come with it."""
    sources = [
        path
        for path in _sources(PACKAGE)
        if path.relative_to(PACKAGE).parts[0] not in WITHOUT_INFLUENCE
        or path.relative_to(PACKAGE).as_posix() in EXECUTING
    ]
    code = {path.relative_to(PACKAGE).as_posix(): _file_digest(path) for path in sources}
    data = {name: _folder_digest(shipped(name)) for name in ("traces", "workloads")}
    return _digest_of({**code, **data})


def _texts(config: Json, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text in a configuration, with the name of its setting."""
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
    except (OSError, ValueError):  # a text that can be no name of a file
        return False


def _foreign_modules(config: Json) -> set[str]:
    """Return the top-level modules of classes that are not ours, but named in the configuration."""
    names = {value.partition(".")[0] for name, value in _texts(config) if name in CLASS_SETTINGS and "." in value}
    return names - {"polluxsim"}


def _module_digest(name: str) -> str:
    """Return a digest of a module, or package, of the user's, and of what it imports that lies beside it.

    Python's own modules have an empty one, as its version counts; and so has what is not there, as whoever needs it
    will say so.

    Raises
    ------
    InvalidConfigError
        If its code is in no file that could be read.
    """
    origins = _origins(name)
    if origins is None:
        raise InvalidConfigError(
            f"{name}: a module whose code is in no file of its own, so that changes would not be noticed; "
            "allowed are modules that are"
        )
    return "".join(_origin_digest(origin) for origin in origins)


def _origin_digest(first: Path) -> str:
    root = first.parent
    files, left = set[Path](), [first]
    while left:
        origin = left.pop()
        new = set(_code(origin)) if origin.is_dir() else {origin}
        if new <= files or origin.parent != root:
            continue
        files |= new
        if root.name not in INSTALLED:
            left += [found for path in new for name in _imported(path) for found in _origins(name) or ()]
    return _digest_of({path.relative_to(root).as_posix(): _file_digest(path) for path in sorted(files)})


def _origins(name: str) -> list[Path] | None:
    """Return the file of a top-level module, or the folders of a package: several where it has no __init__.py.

    There are none for Python's own modules, and for what is not there. A module without a file gives None.
    """
    if name in sys.stdlib_module_names:
        return []
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        if name not in sys.modules:
            return []
        file = getattr(sys.modules[name], "__file__", None)  # a script, or a notebook, that runs
        return None if file is None else [Path(file).resolve()]
    if spec is None or spec.origin in PYTHONS_OWN:
        return []
    places = [spec.origin] if spec.submodule_search_locations is None else spec.submodule_search_locations
    # Of a package's places some may stand for none, as installers put them there; in archives there are no files.
    return [Path(place).resolve() for place in places if place is not None and Path(place).exists()] or None


def _imported(path: Path) -> set[str]:
    """Return the top-level modules that a source file imports by their whole names."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return set()  # compiled; or whoever imports it will say so
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names - {"polluxsim"}


def _code(folder: Path) -> list[Path]:
    """Return the files of a package that Python may import, compiled ones too."""
    return sorted(path for path in folder.rglob("*") if path.name.endswith(CODE_ENDINGS))


def _sources(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def _folder_digest(folder: Path) -> str:
    """Return a digest of a folder's files, whatever their order on disk; hidden files and results do not count."""
    files = list(_data_files(folder))
    _announce(folder, sum(path.stat().st_size for path in files), len(files))
    return _digest_of({path.relative_to(folder).as_posix(): _file_digest(path) for path in files})


@lru_cache(maxsize=64)
def _announce(folder: Path, size: int, count: int) -> None:
    """Say once of a large folder that it is being read: it may be one that was not meant."""
    if size >= LARGE and parent_process() is None:
        what = f"reading {size / 1e9:.1f} GB in {count} files, as a run is recognised by what it reads"
        print(f"polluxsim: {folder}: {what}", file=sys.stderr)


def _data_files(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Yield the files in a folder, those of linked folders too; a link to a folder it is in leads to nothing new."""
    if (place := folder.resolve()) in above:
        return
    names = sorted(path.name for path in folder.iterdir())
    ours = {file for mark, files in OUTPUTS.items() if mark in names for file in files}
    for name in names:
        path = folder / name
        if name.startswith((".", "__pycache__")) or name in ours:
            continue
        if path.is_dir():
            if not _is_output(path):
                yield from _data_files(path, above | {place})
        elif path.is_file():
            yield path


def _is_output(folder: Path) -> bool:
    """Return whether a folder is a run's, be it half written, or a sweep's."""
    names = [path.name for path in folder.iterdir()]
    return not OUTPUTS.keys().isdisjoint(names) or bool(fnmatch.filter(names, TEMPORARY))


def _file_digest(path: Path) -> str:
    status = path.stat()
    return _content_digest(str(path.resolve()), status.st_size, status.st_mtime_ns, status.st_ino)


@lru_cache(maxsize=65536)
def _content_digest(path: str, size: int, changed: int, number: int) -> str:
    """Return the digest of a file's content; a file that is still the same by its status is not read again."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return UNREADABLE


def _digest_of(parts: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
