"""Measured profiles in Parquet, one table a kind, with units in the schemas; and where a path may lead."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polluxsim.errors import InvalidInputError
from polluxsim.files import appearing_together, read_rows
from polluxsim.models.measured import EpochRow, MeasuredProfile, PlacementRow, ScalabilityRow
from polluxsim.models.profile import Application
from polluxsim.shipped import shipped
from polluxsim.traces.cards import read_cards
from polluxsim.traces.osdi21 import find_traces, read_profiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.files import Row
    from polluxsim.models.profile import Profile

SCHEMAS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "placements": {
        "application": ("string", ""),
        "gpus_by_node": ("list<int64>", "GPUs"),
        "atomic_batch_size": ("int64", "examples"),
        "step_time": ("double", "s"),
        "sync_time": ("double", "s"),
    },
    "scalability": {
        "application": ("string", ""),
        "num_nodes": ("int64", "nodes"),
        "num_replicas": ("int64", "GPUs"),
        "atomic_batch_size": ("int64", "examples"),
        "step_time": ("double", "s"),
        "sync_time": ("double", "s"),
    },
    "validations": {
        "application": ("string", ""),
        "batch_size": ("int64", "examples"),
        "progress": ("double", "M0-steps"),
        "iteration": ("double", "optimiser steps"),
        "metric": ("double", "the application's own"),
        "grad_sqr": ("double", "1"),
        "grad_var": ("double", "1"),
    },
    "applications": {
        "name": ("string", ""),
        "init_batch_size": ("int64", "examples"),
        "max_batch_size": ("int64", "examples"),
        "min_atomic_batch_size": ("int64", "examples"),
        "max_atomic_batch_size": ("int64", "examples"),
        "num_epochs": ("int64", "epochs"),
        "learning_rate_rule": ("string", ""),
        "fixed_batch_size": ("int64", "examples"),
        "max_replicas": ("int64", "GPUs"),
    },
}
"""Column types and units of each table; `applications` is written last, so that a folder that has it is whole."""


@dataclass(frozen=True)
class ProfileFolder:
    """Profiles in a folder: cards, what `polluxsim import osdi21` wrote, or the artifact's own layout.

    Parameters
    ----------
    path
        The folder; by default that of the cards that come with polluxsim.
    """

    path: str | None = None

    def load(self) -> Mapping[str, Profile]:
        """Return the profiles by application name.

        Raises
        ------
        InvalidInputError
            If the folder has none of these layouts, or something in it is not what it should be.
        """
        folder = shipped("traces") if self.path is None else Path(self.path)
        if (folder / "applications.parquet").is_file():
            return read_store(folder)
        if find_traces(folder) is not None:
            return read_profiles(folder)
        if any(folder.glob("*.yaml")):
            return read_cards(folder)
        raise InvalidInputError(
            f"profiles.path {self.path}: no profiles there, needed is a folder with cards (*.yaml), one written by "
            f"'polluxsim import osdi21', or one with traces/APPLICATION/placements.csv"
        )


def write_store(profiles: Mapping[str, MeasuredProfile], folder: Path) -> None:
    """Write profiles as Parquet tables into a folder, made if it is not there."""
    tables = {
        "placements": [{"application": n, **r._asdict()} for n, p in profiles.items() for r in p.placements],
        "scalability": [{"application": n, **r._asdict()} for n, p in profiles.items() for r in p.scalability],
        "validations": [
            {"application": name, "batch_size": batch_size, **row._asdict()}
            for name, profile in profiles.items()
            for batch_size, rows in profile.validations.items()
            for row in rows
        ],
        "applications": [asdict(profile.application) for profile in profiles.values()],
    }
    with appearing_together(folder, last="applications.parquet") as temporary:
        for kind, rows in tables.items():
            _write_table(temporary / f"{kind}.parquet", kind, rows)


def read_store(folder: Path) -> dict[str, MeasuredProfile]:
    """Read back what `write_store` wrote, checking every row."""
    placements = _grouped(folder, "placements", _placement)
    scalability = _grouped(folder, "scalability", _scalability)
    validations = _grouped(folder, "validations", lambda row: (row.integer("batch_size", 1), _epoch(row)))
    profiles = {}
    for row in read_rows(folder / "applications.parquet", list(SCHEMAS["applications"])):
        application = _application(row)
        runs = {
            size: [epoch for _, epoch in epochs]
            for size, epochs in groupby(validations.get(application.name, []), key=lambda pair: pair[0])
        }
        if not runs or min(map(len, runs.values())) < application.num_epochs:
            raise row.error("num_epochs", "no more than the epochs in validations.parquet")
        if application.name in profiles:
            raise row.error("name", "a name that stands once")
        profiles[application.name] = MeasuredProfile(
            application,
            placements.get(application.name, []),
            scalability.get(application.name, []),
            runs,
        )
    for profile in profiles.values():
        _check(profile, folder)
    return profiles


def _check(profile: MeasuredProfile, folder: Path) -> None:
    """Check what no row alone can tell."""
    limits = profile.application
    wrong = None
    if not profile.placements or not profile.scalability:
        wrong = "no step times in placements.parquet or scalability.parquet"
    elif len({row[:2] for row in profile.placements}) < len(profile.placements):
        wrong = "a placement and atomic batch size stands twice in placements.parquet"
    elif any(end.progress <= start.progress for run in profile.validations.values() for start, end in pairwise(run)):
        wrong = "progress does not rise in validations.parquet"
    elif not min(profile.validations) <= limits.init_batch_size <= limits.max_batch_size <= max(profile.validations):
        wrong = "limits of the batch size outside what is in validations.parquet"
    if wrong:
        raise InvalidInputError(f"{folder}: {limits.name} has {wrong}")


def _write_table(path: Path, kind: str, rows: Sequence[Mapping[str, object]]) -> None:
    import pyarrow as pa  # noqa: PLC0415  (slow to load, and the artifact's layout needs none of it)
    import pyarrow.parquet as pq  # noqa: PLC0415

    types = {
        "string": pa.string(),
        "int64": pa.int64(),
        "double": pa.float64(),
        "list<int64>": pa.list_(pa.int64()),
    }
    schema = pa.schema(
        [
            pa.field(name, types[type_name], metadata={"unit": unit} if unit else None)
            for name, (type_name, unit) in SCHEMAS[kind].items()
        ]
    )
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path, compression="zstd")


def _grouped(folder: Path, kind: str, parse: Any) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for row in read_rows(folder / f"{kind}.parquet", list(SCHEMAS[kind])):
        groups.setdefault(row.text("application"), []).append(parse(row))
    return groups


def _placement(row: Row) -> PlacementRow:
    gpus = row.values["gpus_by_node"]
    if not isinstance(gpus, list) or not gpus or not all(isinstance(n, int) and n > 0 for n in gpus):
        raise row.error("gpus_by_node", "a list of whole numbers ≥ 1")
    return PlacementRow(tuple(gpus), *_step(row))


def _scalability(row: Row) -> ScalabilityRow:
    return ScalabilityRow(row.integer("num_nodes", 1), row.integer("num_replicas", 1), *_step(row))


def _step(row: Row) -> tuple[int, float, float]:
    step = row.number("step_time", above=0)
    sync = row.number("sync_time", at_least=0)
    if sync >= step:
        raise row.error("sync_time", f"less than the step time {step!r}")
    return row.integer("atomic_batch_size", 1), step, sync


def _epoch(row: Row) -> EpochRow:
    return EpochRow(
        row.number("progress", above=0),
        row.number("iteration", 0),
        row.number("metric"),
        row.number("grad_sqr", 0),
        row.number("grad_var", 0),
    )


def _application(row: Row) -> Application:
    def optional(name: str) -> int | None:
        return None if row.values[name] is None else row.integer(name, 1)

    return Application(
        name=row.text("name"),
        init_batch_size=row.integer("init_batch_size", 1),
        max_batch_size=row.integer("max_batch_size", 1),
        min_atomic_batch_size=row.integer("min_atomic_batch_size", 1),
        max_atomic_batch_size=row.integer("max_atomic_batch_size", 1),
        num_epochs=row.integer("num_epochs", 1),
        learning_rate_rule=row.text("learning_rate_rule"),
        fixed_batch_size=optional("fixed_batch_size"),
        max_replicas=optional("max_replicas"),
    )
