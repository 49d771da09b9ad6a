"""Read profile cards from YAML files, one for each application, and fit cards to measurements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from polluxsim.applications.card import (
    About,
    Card,
    Corrections,
    FitError,
    GradTimes,
    LossCurve,
    NoiseScales,
    OtherType,
    SyncTimes,
)
from polluxsim.applications.card_profile import PLACEMENT_CLASSES, CardProfile
from polluxsim.applications.osdi21 import COUNT, EPOCHS, description_of, find_traces, read_described, read_profiles
from polluxsim.applications.sections import FigureRange, Section, read_section
from polluxsim.common.errors import InvalidInputError
from polluxsim.models.profile import Application
from polluxsim.models.sensitivity import Curve, Sensitivity, is_curve

FORMAT = 1  # version of the layout of card files

# Allowed values of figures, to catch errors in cards. Times are in seconds, and factors relative to 1.
SECONDS = FigureRange(1e-6, 1e4)
SECONDS_OR_NONE = FigureRange(0, 1e4)
FACTOR = FigureRange(0.01, 100)
NOISE_SCALE = FigureRange(1e-9, 1e15)
LOSS = FigureRange(1e-12, 1e9)
GAMMA = FigureRange(1, 10)
AMOUNT = FigureRange(1e-6, 1e6)
ERROR = FigureRange(0, 1e6)


class Figure(NamedTuple):
    """A figure, or a row of figures, of a card."""

    read: Callable[[Section, str, FigureRange], Any]  # reads the value of a key within a range
    allowed: FigureRange
    comment: str  # in the file
    is_optional: bool = False  # whether a card may leave it out; it is then None


# Figures of the parts of a card, by key. The range of a text has no effect.
LIMITS = {
    "init_batch_size": Figure(Section.integer, COUNT, "M0: jobs start here, and never use less [examples]"),
    "max_batch_size": Figure(Section.integer, COUNT, "[examples]"),
    "min_atomic_batch_size": Figure(Section.integer, COUNT, "least per GPU and pass [examples]"),
    "max_atomic_batch_size": Figure(Section.integer, COUNT, "most that fits a GPU [examples]"),
    "num_epochs": Figure(Section.integer, EPOCHS, "statistical epochs until a job is complete"),
    "learning_rate_rule": Figure(lambda section, key, _: section.text(key), COUNT, "how the learning rate follows M"),
    "fixed_batch_size": Figure(
        Section.integer, COUNT, "the batch size that adaptive jobs keep [examples]", is_optional=True
    ),
    "max_replicas": Figure(Section.integer, COUNT, "most GPUs of a job", is_optional=True),
}
GRAD = {
    "atomic_batch_sizes": Figure(Section.rising, COUNT, "knots of m [examples]"),
    "full_node": Figure(Section.numbers, SECONDS, "time on full nodes [s]"),
    "alone_atomic_batch_sizes": Figure(Section.rising, COUNT, "knots of m [examples]"),
    "alone": Figure(Section.numbers, FACTOR, "time of a job on one GPU / on full nodes"),
    "partial_node": Figure(Section.numbers, FACTOR, "the same by GPUs on the emptiest node: 1, 2, ..."),
}
SYNC = {
    "alone": Figure(Section.number, SECONDS_OR_NONE, "of one GPU, comes on top [s]"),
    "alpha_local": Figure(Section.number, SECONDS_OR_NONE, "[s]"),
    "beta_local": Figure(Section.number, SECONDS_OR_NONE, "[s/GPU]"),
    "num_nodes": Figure(Section.rising, FigureRange(2, 10**9), "knots of N"),
    "alpha_node": Figure(Section.numbers, SECONDS_OR_NONE, "[s]"),
    "beta_node": Figure(Section.number, SECONDS_OR_NONE, "[s/GPU]"),
    "gamma": Figure(Section.number, GAMMA, "overlap: 1 none, 10 nearly full"),
}
LOSSES = {
    "epochs": Figure(Section.rising, EPOCHS, "knots, in complete epochs"),
    "values": Figure(Section.numbers, LOSS, "in the metric's own unit"),
}


def fit_cards(measured: Path) -> dict[str, Card]:
    """Fit a card to every application that `read_profiles` finds in a folder; return the cards by file name.

    Raise InvalidInputError if the measurements are missing or invalid, or two applications have the same file name, and
    ProfileRangeError if an application has too few measurements.
    """
    # Compiled code and SciPy are slow to load.
    from polluxsim.applications.card_fit import fit_card  # noqa: PLC0415

    description = description_of(find_traces(measured) or measured)
    described = read_described(description)
    cards: dict[str, Card] = {}
    for name, profile in read_profiles(measured).items():
        if described[name].card in cards:
            raise InvalidInputError(f"{description}: two applications have the card {described[name].card!r}")
        cards[described[name].card] = fit_card(profile, described[name].about, described[name].card_size)
    return cards


def read_cards(folder: Path) -> dict[str, CardProfile]:
    """Read all cards (*.yaml) of a folder; return profiles by application name, in order of name.

    Raise InvalidInputError if there is no card, a card is invalid, or two cards have the same application.
    """
    profiles: dict[str, CardProfile] = {}
    for path in sorted(folder.glob("*.yaml")):
        card = read_card(path)
        name = card.application.name
        # Workloads name applications, so that two cards of one would be ambiguous.
        if name in profiles:
            raise InvalidInputError(f"{path}: a second card for {name!r}; remove one of them from the folder")
        profiles[name] = CardProfile(card)
    if not profiles:
        raise InvalidInputError(f"{folder}: the folder has no profile card (*.yaml)")
    return dict(sorted(profiles.items()))


def read_card(path: Path) -> Card:
    """Read a card.

    Raise InvalidInputError if a key is unknown or missing, or if a value has a wrong type, range or shape.
    """
    root = read_section(path)
    version = root.integer("format", COUNT)
    if version != FORMAT:
        raise root.error("format", f"{FORMAT}, not {version}")
    application = root.part("application", partial(_application, root))
    num_epochs = application.num_epochs
    root.section("sync")  # a missing section is reported before other errors
    card = Card(
        about=About(
            root.text("title"), root.text("optimizer"), root.text("target"), root.text("source"), root.text("license")
        ),
        application=application,
        work=root.number("work", FigureRange(1e-6, 1e15)),
        grad=root.part("grad", _grad),
        sync=root.part("sync", _sync),
        corrections=root.part("corrections", _corrections),
        noise=root.part("noise", partial(_noise, num_epochs)),
        losses=root.optional_part("losses", partial(_losses, num_epochs)),
        fit_errors=root.part("fit_errors", _fit_errors),
        gpu_type=root.text("gpu_type") if root.has("gpu_type") else None,
        types=_types(root, application),
        sensitivity=root.optional_part("sensitivity", _sensitivity),
    )
    root.finish()
    return card


def _application(root: Section, section: Section) -> Application:
    """Return the properties of the application, from the whole card (`root`) and its section."""
    limits = _read(section, LIMITS)
    for smaller, larger in (
        ("init_batch_size", "max_batch_size"),
        ("min_atomic_batch_size", "max_atomic_batch_size"),
        ("min_atomic_batch_size", "max_batch_size"),
        ("init_batch_size", "fixed_batch_size"),
        ("fixed_batch_size", "max_batch_size"),
    ):
        # A limit that the card leaves out rules out nothing.
        if limits.get(smaller, 0) > limits.get(larger, math.inf):
            raise section.error(larger, f"no less than {smaller} = {limits[smaller]}")
    return Application(name=root.text("name"), **limits)


def _read(section: Section, figures: Mapping[str, Figure]) -> dict[str, Any]:
    """Return the figures of a section by name."""
    present = {name: figure for name, figure in figures.items() if section.has(name) or not figure.is_optional}
    return {name: figure.read(section, name, figure.allowed) for name, figure in present.items()}


def _grad(section: Section) -> GradTimes:
    """Return the time of a pass from its section."""
    grad = GradTimes(**_read(section, GRAD))
    _same_length(section, "atomic_batch_sizes", "full_node")
    _same_length(section, "alone_atomic_batch_sizes", "alone")
    return grad


def _sync(section: Section) -> SyncTimes:
    """Return the time to synchronise from its section."""
    sync = SyncTimes(**_read(section, SYNC))
    _same_length(section, "num_nodes", "alpha_node")
    return sync


def _corrections(section: Section) -> Corrections:
    """Return the corrections of the step time from their section."""
    replicas = section.rising("num_replicas", FigureRange(2, 10**9))
    places = section.integer("places", FigureRange(1, 1000))
    return Corrections(replicas, section.table("factors", len(replicas), places, FACTOR))


def _noise(num_epochs: int, section: Section) -> NoiseScales:
    """Return the noise scales from their section, whose stages must end with the training."""
    until = section.rising("until_epoch", EPOCHS)
    sizes = section.rising("batch_sizes", COUNT)
    if until[-1] != num_epochs:
        raise section.error("until_epoch", f"a list that ends with num_epochs = {num_epochs}")
    return NoiseScales(until, sizes, section.table("noise_scale", len(until), len(sizes), NOISE_SCALE))


def _losses(num_epochs: int, section: Section) -> LossCurve:
    """Return the loss from its section, whose knots must span the training."""
    losses = LossCurve(**_read(section, LOSSES))
    if (losses.epochs[0], losses.epochs[-1]) != (1, num_epochs):
        raise section.error("epochs", f"a list from 1 to num_epochs = {num_epochs}")
    _same_length(section, "epochs", "values")
    return losses


def _fit_errors(section: Section) -> dict[str, FitError]:
    """Return the errors of the fit by placement class, from their section."""
    errors = {}
    for name in section.nodes:
        if name not in PLACEMENT_CLASSES:
            raise section.error(name, f"in one of the classes {', '.join(PLACEMENT_CLASSES)}")
        row = section.section(name)
        errors[name] = FitError(row.integer("points", COUNT), row.number("mean", ERROR), row.number("worst", ERROR))
        row.finish()
    return errors


def _types(root: Section, application: Application) -> dict[str, OtherType]:
    """Return the figures of other GPU types by name; none if the card states none."""
    if not root.has("types"):
        return {}
    if not root.has("gpu_type"):
        raise root.error("types", "absent, or together with gpu_type, the type of the other figures")
    section = root.section("types")
    return {name: section.part(name, partial(_other_type, application)) for name in section.nodes}


def _other_type(application: Application, row: Section) -> OtherType:
    """Return the figures of another GPU type, and raise InvalidInputError if a pass would take no time."""
    allowed = dict.fromkeys(("alpha_grad", "beta_grad", "alpha_local", "beta_local"), SECONDS_OR_NONE)
    allowed["gamma"] = GAMMA
    if row.has("error"):
        allowed["error"] = ERROR
    if row.has("alpha_node") or row.has("beta_node"):  # one without the other is an error
        allowed |= dict.fromkeys(("alpha_node", "beta_node"), SECONDS_OR_NONE)
    figures: dict[str, Any] = {"alpha_node": None, "beta_node": None}
    figures |= {name: row.number(name, limits) for name, limits in allowed.items()}
    largest = row.integer("max_atomic_batch_size", FigureRange(application.min_atomic_batch_size, COUNT.highest))
    # A pass without a duration would make the speed infinite.
    if not figures["alpha_grad"] + figures["beta_grad"]:
        raise row.error("alpha_grad", "> 0, because beta_grad is 0")
    return OtherType(max_atomic_batch_size=largest, **figures)


def _sensitivity(section: Section) -> Sensitivity | None:
    """Return the speed by CPUs and memory from its section; None if the section states none."""
    curves: dict[str, Curve] = {"cpus": (), "memory": ()}
    for amount, speed in (("cpus", "cpu_speeds"), ("memory", "memory_speeds")):
        if section.has(amount) or section.has(speed):
            knots = section.numbers(amount, AMOUNT)
            speeds = section.numbers(speed, FACTOR)
            _same_length(section, amount, speed)
            curves[amount] = tuple(zip(knots, speeds, strict=True))
            if not is_curve(curves[amount]):
                raise section.error(amount, f"a rising list, and {speed} a list that does not fall")
    return Sensitivity(**curves) if any(curves.values()) else None


def _same_length(section: Section, first_key: str, second_key: str) -> None:
    """Raise InvalidInputError if the lists under two keys have different lengths."""
    first_length = len(section.nodes[first_key].value)
    second_length = len(section.nodes[second_key].value)
    if first_length != second_length:
        raise section.error(second_key, f"a list of {first_length} values, as {first_key} is")
