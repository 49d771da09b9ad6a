"""Find the folders of the runs that a user names, and read their run.json."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from polluxsim.common.errors import InvalidInputError
from polluxsim.common.parquet import read_parquet
from polluxsim.common.policy_names import POLICY_NAMES
from polluxsim.common.tables import reading_parquet
from polluxsim.records.storage import RUN_FILE, flat

SWEEP_FILE = "sweep.parquet"  # table of a sweep, in the sweep's folder
SWEEP_FILES = (SWEEP_FILE, "sweep-timing.parquet", "multirun.yaml")  # files that a sweep leaves beside its runs

POLICY = "policy._target_"
POLICY_ENTRY = "policy_entry"
"""Name of the user's configuration of the policy, in run.json and tables. Runs with a shipped policy have none."""

OBJECT = "policy.object"  # setting with the class of a policy that a Python program gave as an object

REWRITTEN = "; delete this file, and the command of the sweep writes it again"
"""Advice about a table of a sweep that cannot be read."""

RULE_OF_SHARES = "policy.shares._target_"
"""Setting of Gavel's policies with the class of their rule, which names the policy: all of them have one class."""


def run_folders(folders: Sequence[Path]) -> list[Path]:
    """Return the folders of runs.

    A folder that holds several runs is replaced by these runs; the runs of a sweep are in the order of its plan.

    Files of a sweep are skipped, as by `without_sweep_files`.
    """
    runs = []
    for folder in without_sweep_files(folders):
        if (folder / RUN_FILE).is_file():
            runs.append(folder)
        else:
            # A folder without runs stays, so that the reader of the run names it in an error.
            runs += _in_order_of_plan(folder) or [folder]
    return runs


def without_sweep_files(paths: Sequence[Path]) -> Sequence[Path]:
    """Return paths without the files of a sweep whose folder, or another path in it, is also given.

    `SWEEP/*` names the files of a sweep and the folders of its runs.
    """
    folders = set[Path]()
    for path in paths:
        if path.name not in SWEEP_FILES:
            folders.update((path, path.parent))
    return [path for path in paths if path.name not in SWEEP_FILES or path.parent not in folders]


def _in_order_of_plan(folder: Path) -> list[Path]:
    """Return the folders of the runs in a folder; the runs in the table of a sweep come first, in its order."""
    runs = runs_below(folder)
    table = folder / SWEEP_FILE
    if not table.is_file():
        return runs
    with reading_parquet(table, "not the table of a sweep", remedy=REWRITTEN):
        names = read_parquet(table, ["folder"])["folder"].to_pylist()
    places = {folder / str(name): place for place, name in enumerate(names)}
    return sorted(runs, key=lambda run: places.get(run, len(places)))


def runs_in_table(table: Path) -> list[Path]:
    """Return the folders of the runs in the table of a sweep, in its order. They lie beside the table.

    Raise InvalidInputError if the file is no table of a sweep, or if the folder of a run is missing.
    """
    if not table.is_file():
        raise InvalidInputError(f"{table}: there is no such file; name the table of a sweep, {SWEEP_FILE}")
    with reading_parquet(table, "not a table of a sweep", remedy=f"; name the table of a sweep, {SWEEP_FILE}"):
        names = read_parquet(table, ["folder"])["folder"].to_pylist()
    folders = [table.parent / str(name) for name in names]
    missing = [folder for folder in folders if not (folder / RUN_FILE).is_file()]
    if missing:
        raise InvalidInputError(
            f"{table}: there is no run {missing[0]}, which the table names; leave the table in the folder of its sweep"
        )
    return folders


def runs_below(folder: Path) -> list[Path]:
    """Return the folders of all finished runs below a folder, sorted by path, without hidden folders.

    The folder of a run is not searched for further runs.
    """
    runs: list[Path] = []
    for place, names, _ in os.walk(folder):
        names_to_search = []
        for name in names:
            if name.startswith("."):  # a run that is being written
                continue
            if (Path(place) / name / RUN_FILE).is_file():
                runs.append(Path(place) / name)
            else:
                names_to_search.append(name)
        names[:] = names_to_search  # `os.walk` goes on with these names
    return sorted(runs)


def info_of(folder: Path) -> Mapping[str, Any]:
    """Return the contents of run.json in a folder; empty without a run.json, or if it is no mapping in JSON."""
    try:
        info = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError):
        return {}
    if not isinstance(info, dict):
        return {}
    return info


WITHOUT_RESULT = ("engine.decision_limit",)
"""Settings that may end a run, and change no result. Runs that differ only in these settings are equal."""


def of_results(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return flat settings without those that change no result.

    >>> of_results({"seed": 0, "engine.decision_limit": 60.0})
    {'seed': 0}
    """
    return {name: value for name, value in settings.items() if name not in WITHOUT_RESULT}


def difference(there: object, here: Mapping[str, Any]) -> str | None:
    """Return a description of the first setting in which the configuration of an existing run differs.

    None if all settings are equal.
    """
    if not isinstance(there, dict):  # the file is damaged
        there = {}
    old = of_results(flat(there))
    new = of_results(flat(here))
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            return f"{name} is {old.get(name)!r} there, {new.get(name)!r} here"
    return None


def remove_if_empty(folder: Path) -> None:
    """Remove a folder if it is empty."""
    with suppress(OSError):
        folder.rmdir()


def policy_name(settings: Mapping[str, Any]) -> str:
    """Return the name of a run's policy from the run's settings, flat.

    >>> policy_name({"policy._target_": "polluxsim.policies.ordered.classic.Fifo"})
    'FIFO'
    """
    target = settings.get(RULE_OF_SHARES) or settings.get(POLICY) or settings.get(OBJECT) or "unknown policy"
    name = str(target).rpartition(".")[2]
    return POLICY_NAMES.get(name, name)
