"""What measured tables cannot say of an application: its epochs, its limits, and what it is called."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from polluxsim.applications.card import About, CardSize
from polluxsim.applications.sections import Range, Section, read_section
from polluxsim.shipped import shipped

if TYPE_CHECKING:
    from pathlib import Path

FILE = "applications.yaml"

COUNT = Range(1, 10**9)
EPOCHS = Range(1, 10**5)
METRIC = Range(-1e9, 1e9)


class Described(NamedTuple):
    """An application beside its tables: the name of its card's file without the ending, and what its card says of it.

    Limits are as in `Application`, None where what was measured is the limit; the best metric is what a perfect model
    would reach in the metric of the tables, None where nobody says.
    """

    card: str
    about: About
    num_epochs: int
    learning_rate_rule: str
    max_atomic_batch_size: int | None
    fixed_batch_size: int | None
    max_replicas: int | None
    best_metric: float | None
    card_size: CardSize


def description_of(folder: Path) -> Path:
    """Return the file that describes the applications measured in a folder: its own, or that of the artifact."""
    own = folder / FILE
    return own if own.is_file() else shipped("traces") / "osdi21" / FILE


def read_described(path: Path) -> dict[str, Described]:
    """Read a description, as `traces/osdi21/applications.yaml` explains it, by application.

    Raise InvalidInputError if it is not what it should be.
    """
    root = read_section(path)
    source, license_name = root.text("source"), root.text("license")
    applications = root.section("applications")
    found = {name: applications.part(name, partial(_described, source, license_name)) for name in applications.nodes}
    root.finish()
    return found


def _described(source: str, license_name: str, section: Section) -> Described:
    described = Described(
        card=section.text("card"),
        about=About(section.text("title"), section.text("optimizer"), section.text("target"), source, license_name),
        num_epochs=section.integer("num_epochs", EPOCHS),
        learning_rate_rule=section.text("learning_rate_rule"),
        max_atomic_batch_size=_optional(section, "max_atomic_batch_size"),
        fixed_batch_size=_optional(section, "fixed_batch_size"),
        max_replicas=_optional(section, "max_replicas"),
        best_metric=section.number("best_metric", METRIC) if section.has("best_metric") else None,
        card_size=section.part("card_size", _card_size) if section.has("card_size") else CardSize(),
    )
    if "/" in described.card:
        raise section.error("card", "the name of a file, without a folder")
    return described


def _card_size(section: Section) -> CardSize:
    counts: dict[str, Any] = {
        key: section.integer(key, COUNT) for key in CardSize.__annotations__ if section.has(key) and key != REPLICAS
    }
    if section.has(REPLICAS):
        counts[REPLICAS] = section.rising(REPLICAS, Range(2, 10**9))
    return CardSize(**counts)


REPLICAS = "correction_replicas"


def _optional(section: Section, key: str) -> int | None:
    return section.integer(key, COUNT) if section.has(key) else None
