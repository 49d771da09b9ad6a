"""Read the measured profiles of the Pollux artifact (OSDI '21), and the file that describes their applications."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from polluxsim.applications.card import About, CardSize
from polluxsim.applications.measured import EpochRow, MeasuredProfile, PlacementRow, ScalabilityRow, canonical
from polluxsim.applications.sections import FigureRange, Section, read_section
from polluxsim.common.errors import InvalidConfigError, InvalidInputError, bad_line
from polluxsim.common.shipped import shipped
from polluxsim.common.tables import Row, read_rows
from polluxsim.models.profile import Application

DESCRIPTION_FILE = "applications.yaml"

# Allowed values, to catch errors in descriptions and cards.
COUNT = FigureRange(1, 10**9)
EPOCHS = FigureRange(1, 10**5)
METRIC = FigureRange(-1e9, 1e9)


class Described(NamedTuple):
    """Properties of an application that its tables do not have."""

    card: str  # file name of the card without the ending
    about: About
    num_epochs: int
    learning_rate_rule: str
    # Limits [examples; examples; GPUs], or None for the limits of the measurements.
    max_atomic_batch_size: int | None
    fixed_batch_size: int | None
    max_replicas: int | None
    best_metric: float | None  # of a perfect model, in the metric of the tables
    card_size: CardSize


def description_of(folder: Path) -> Path:
    """Return the description in a folder of measurements, or else the description of the artifact."""
    description = folder / DESCRIPTION_FILE
    if description.is_file():
        return description
    return shipped("traces") / "osdi21" / DESCRIPTION_FILE


def read_described(path: Path) -> dict[str, Described]:
    """Read a description in the form that `traces/osdi21/applications.yaml` explains; return it by application.

    Raise InvalidInputError if the file cannot be read, or a value is invalid.
    """
    root = read_section(path)
    source = root.text("source")
    license_name = root.text("license")
    applications = root.section("applications")
    described = {}
    for name in applications.nodes:
        described[name] = applications.part(name, partial(_described, source, license_name))
    root.finish()
    return described


def _described(source: str, license_name: str, section: Section) -> Described:
    """Return the properties of an application. The source and the licence are those of the whole file."""
    best_metric = None
    if section.has("best_metric"):
        best_metric = section.number("best_metric", METRIC)
    card_size = CardSize()
    if section.has("card_size"):
        card_size = section.part("card_size", _card_size)
    described = Described(
        card=section.text("card"),
        about=About(section.text("title"), section.text("optimizer"), section.text("target"), source, license_name),
        num_epochs=section.integer("num_epochs", EPOCHS),
        learning_rate_rule=section.text("learning_rate_rule"),
        max_atomic_batch_size=_optional(section, "max_atomic_batch_size"),
        fixed_batch_size=_optional(section, "fixed_batch_size"),
        max_replicas=_optional(section, "max_replicas"),
        best_metric=best_metric,
        card_size=card_size,
    )
    # The name becomes that of a file in the folder of the cards.
    if "/" in described.card:
        raise section.error("card", "a file name without a folder")
    return described


def _card_size(section: Section) -> CardSize:
    """Return the numbers of figures of a card; keys that the file leaves out have their defaults."""
    counts: dict[str, Any] = {}
    for key in CardSize.__annotations__:
        if not section.has(key):
            continue
        if key == "correction_replicas":  # one GPU needs no correction
            counts[key] = section.rising(key, FigureRange(2, 10**9))
        else:
            counts[key] = section.integer(key, COUNT)
    return CardSize(**counts)


def _optional(section: Section, key: str) -> int | None:
    """Return a count, or None if the file leaves it out."""
    if not section.has(key):
        return None
    return section.integer(key, COUNT)


_RowT = TypeVar("_RowT", PlacementRow, ScalabilityRow)

PLACEMENTS = "placements.csv"
SCALABILITY = "scalability.csv"
STEP_COLUMNS = ("local_bsz", "step_time", "sync_time")
VALIDATION_COLUMNS = ("progress", "iteration", "metric", "grad_sqr", "grad_var")


def find_traces(root: Path) -> Path | None:
    """Return the folder with one folder for each application, or None if `root` has another layout."""
    for folder in (root / "traces", root):
        if any(folder.glob(f"*/{PLACEMENTS}")):
            return folder
    return None


def read_profiles(root: Path) -> dict[str, MeasuredProfile]:
    """Read the measurements of every application and check every row; return profiles in order of application name.

    `root` is the artifact's `simulator/` or `traces/` folder, or a folder of the same layout. Applications that are not
    in the artifact need a file `applications.yaml` beside their folders.

    Raise InvalidInputError if there are no measurements, or a row is invalid.
    """
    traces = find_traces(root)
    if traces is None:
        raise InvalidInputError(f"{root}: no measured profiles; name a folder with traces/APPLICATION/{PLACEMENTS}")
    description = description_of(traces)
    described = read_described(description)
    names = sorted(path.parent.name for path in traces.glob(f"*/{PLACEMENTS}"))
    for name in names:  # before the tables are read, which takes longer
        if name not in described:
            raise InvalidInputError(
                f"{traces / name}: {description} has no epochs and limits of this application, only of "
                f"{', '.join(described)}; describe it in {traces / DESCRIPTION_FILE}"
            )
    return {name: _read_profile(name, traces / name, described[name]) for name in names}


def _read_profile(name: str, folder: Path, described: Described) -> MeasuredProfile:
    """Read the profile of an application. Limits that its description leaves out are those of the measurements."""
    placements = read_placements(folder / PLACEMENTS)
    scalability = _read_scalability(folder / SCALABILITY)
    validations = _read_validations(folder, described.num_epochs)
    atomic = [row.atomic_batch_size for row in placements]
    try:
        application = Application(
            name=name,
            init_batch_size=min(validations),
            max_batch_size=max(validations),
            min_atomic_batch_size=min(atomic),
            max_atomic_batch_size=described.max_atomic_batch_size or max(atomic),
            num_epochs=described.num_epochs,
            learning_rate_rule=described.learning_rate_rule,
            fixed_batch_size=described.fixed_batch_size,
            # The measurements end at the largest number of GPUs.
            max_replicas=described.max_replicas or max(row.num_replicas for row in scalability),
        )
    except InvalidConfigError as error:
        raise InvalidInputError(f"{folder}: {error}") from None
    return MeasuredProfile(application, placements, scalability, validations, described.best_metric)


def read_placements(path: Path) -> list[PlacementRow]:
    """Read the step times on exact placements; raise InvalidInputError if a row is invalid or occurs twice."""
    rows = []
    for row in read_rows(path, ("placement", *STEP_COLUMNS)):
        digits = str(row.values["placement"])
        if not (digits.isascii() and digits.isdigit()) or "0" in digits:
            raise row.error("placement", "the GPUs on each node as digits from 1 to 9")
        rows.append((row.line, PlacementRow(canonical(tuple(map(int, digits))), *_step(row))))
    return _distinct(path, rows, num_keys=2)


def _read_scalability(path: Path) -> list[ScalabilityRow]:
    """Read the step times by numbers of nodes and GPUs; raise InvalidInputError as `read_placements` does."""
    rows = []
    for row in read_rows(path, ("num_nodes", "num_replicas", *STEP_COLUMNS)):
        nodes = row.integer("num_nodes", at_least=1)
        rows.append((row.line, ScalabilityRow(nodes, row.integer("num_replicas", at_least=nodes), *_step(row))))
    return _distinct(path, rows, num_keys=3)


def _step(row: Row) -> tuple[int, float, float]:
    """Return the atomic batch size [examples], the step time and the synchronisation time [s] of a row."""
    step = row.number("step_time", above=0)
    sync = row.number("sync_time", at_least=0)
    if sync >= step:
        raise row.error("sync_time", f"less than the step time {step!r}")
    return row.integer("local_bsz", at_least=1), step, sync


def _distinct(path: Path, rows: Sequence[tuple[int, _RowT]], num_keys: int) -> list[_RowT]:
    """Return rows, given with their lines; raise InvalidInputError if two rows agree in their first values."""
    row_by_key: dict[object, _RowT] = {}
    for line, row in rows:
        key = row[:num_keys]
        if key in row_by_key:
            raise bad_line(path, line, f"{key} is on an earlier line, too; remove one of the lines")
        row_by_key[key] = row
    return list(row_by_key.values())


def _read_validations(folder: Path, num_epochs: int) -> dict[int, list[EpochRow]]:
    """Read the trainings of an application, by rising batch size [examples]."""
    runs = {}
    for path in folder.glob("validation-*.csv"):
        size = path.stem.removeprefix("validation-")
        if not (size.isascii() and size.isdigit()) or int(size) < 1:
            raise InvalidInputError(f"{path}: the file name must be validation-BATCH_SIZE.csv")
        runs[int(size)] = _read_validation(path, num_epochs)
    if not runs:
        raise InvalidInputError(f"{folder}: the folder has no file validation-BATCH_SIZE.csv")
    return dict(sorted(runs.items()))


def _read_validation(path: Path, num_epochs: int) -> list[EpochRow]:
    """Read the epochs of a training at one batch size. The progress, which is the work that is done, must rise."""
    rows = []
    reached = 0.0  # also the first epoch makes progress
    for row in read_rows(path, VALIDATION_COLUMNS):
        reached = row.number("progress", above=reached)
        iteration = row.number("iteration", at_least=0)
        metric = row.number("metric")
        grad_sqr = row.number("grad_sqr", at_least=0)
        grad_var = row.number("grad_var", at_least=0)
        rows.append(EpochRow(reached, iteration, metric, grad_sqr, grad_var))
    # A measurement may go on after a job is complete.
    if len(rows) < num_epochs:
        raise InvalidInputError(f"{path}: the file has {len(rows)} epochs, must have {num_epochs}, as a job has")
    return rows
