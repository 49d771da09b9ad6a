"""Profile cards as YAML files: one application each, for people to read and for the simulator to check."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from polluxsim.applications.card import About, Card, FitError
from polluxsim.applications.card_parts import Corrections, GradTimes, Losses, NoiseScales, OtherType, SyncTimes
from polluxsim.applications.card_profile import CardProfile
from polluxsim.applications.card_text import FORMAT, card_text
from polluxsim.applications.described import COUNT, EPOCHS, description_of, read_described
from polluxsim.applications.osdi21 import find_traces, read_profiles
from polluxsim.applications.placement_classes import PLACEMENT_CLASSES
from polluxsim.applications.sections import Range, Section, read_section
from polluxsim.errors import InvalidInputError
from polluxsim.files import appearing_whole
from polluxsim.models.profile import Application
from polluxsim.models.sensitivity import Sensitivity, is_curve

if TYPE_CHECKING:
    from pathlib import Path

    from polluxsim.models.sensitivity import Curve

SECONDS = Range(1e-6, 1e4)
SECONDS_OR_NONE = Range(0, 1e4)
FACTOR = Range(0.01, 100)
NOISE_SCALE = Range(1e-9, 1e15)
LOSS = Range(1e-12, 1e9)
GAMMA = Range(1, 10)
AMOUNT = Range(1e-6, 1e6)
ERROR = Range(0, 1e6)


def fit_cards(measured: Path) -> dict[str, Card]:
    """Fit a card to every application measured in a folder that `read_profiles` reads; by file name without ending.

    Raises
    ------
    InvalidInputError
        If the measurements are missing or wrong.
    """
    # Compiled code and SciPy, which take a while to load, are for those who fit.
    from polluxsim.applications.card_fitting.fit import fit_card  # noqa: PLC0415

    profiles = read_profiles(measured)
    described = read_described(description_of(find_traces(measured) or measured))
    pairs = [(profile, described[name]) for name, profile in profiles.items()]
    return {known.card: fit_card(profile, known.about, known.card_size) for profile, known in pairs}


def write_cards(cards: dict[str, Card], folder: Path) -> list[Path]:
    """Write cards as YAML files into a folder, which is made if need be; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    return [write_card(card, folder / f"{name}.yaml") for name, card in cards.items()]


def write_card(card: Card, path: Path) -> Path:
    """Write one card; the same card gives the same bytes."""
    with appearing_whole(path) as temporary:
        temporary.write_text(card_text(card), encoding="utf-8", newline="\n")
    return path


def read_cards(folder: Path) -> dict[str, CardProfile]:
    """Read all cards of a folder, *.yaml; return profiles by application name, in order of name.

    Raises
    ------
    InvalidInputError
        If there is none, one is not what a card should be, or two are of the same application.
    """
    profiles: dict[str, CardProfile] = {}
    for path in sorted(folder.glob("*.yaml")):
        card = read_card(path)
        if (name := card.application.name) in profiles:
            raise InvalidInputError(f"{path}: a second card for {name!r}, allowed is one in a folder")
        profiles[name] = CardProfile(card)
    if not profiles:
        raise InvalidInputError(f"{folder}: no profile cards, needed is one *.yaml at least")
    return dict(sorted(profiles.items()))


def read_card(path: Path) -> Card:
    """Read one card and check every figure.

    Raises
    ------
    InvalidInputError
        If a key is unknown, missing, or not of the type, the range or the shape that it should be.
    """
    root = read_section(path)
    if (version := root.integer("format", COUNT)) != FORMAT:
        raise root.error("format", f"{FORMAT}, not {version}")
    application = root.part("application", partial(_application, root))
    num_epochs = application.num_epochs
    root.section("sync")  # if it is missing, that is told before what else may be wrong
    card = Card(
        about=About(*(root.text(key) for key in ("title", "optimizer", "target", "source", "license"))),
        application=application,
        work=root.number("work", Range(1e-6, 1e15)),
        grad=root.part("grad", _grad),
        sync=root.part("sync", _sync),
        corrections=root.part("corrections", _corrections),
        noise=root.part("noise", partial(_noise, num_epochs)),
        losses=root.part("losses", partial(_losses, num_epochs)) if root.has("losses") else None,
        fit_errors=root.part("fit_errors", _fit_errors),
        gpu_type=root.text("gpu_type") if root.has("gpu_type") else None,
        types=_types(root, application) if root.has("types") else {},
        sensitivity=root.part("sensitivity", _sensitivity) if root.has("sensitivity") else None,
    )
    root.finish()
    return card


def _application(root: Section, section: Section) -> Application:
    name = root.text("name")
    limits: dict[str, Any] = {
        key: section.integer(key, COUNT)
        for key in ("init_batch_size", "max_batch_size", "min_atomic_batch_size", "max_atomic_batch_size")
    }
    optional: dict[str, Any] = {
        key: section.integer(key, COUNT) for key in ("fixed_batch_size", "max_replicas") if section.has(key)
    }
    for smaller, larger in (
        ("init_batch_size", "max_batch_size"),
        ("min_atomic_batch_size", "max_atomic_batch_size"),
        ("min_atomic_batch_size", "max_batch_size"),
    ):
        if limits[smaller] > limits[larger]:
            raise section.error(larger, f"no less than {smaller} = {limits[smaller]}")
    return Application(
        name=name,
        num_epochs=section.integer("num_epochs", EPOCHS),
        learning_rate_rule=section.text("learning_rate_rule"),
        **limits,
        **optional,
    )


def _grad(section: Section) -> GradTimes:
    grad = GradTimes(
        atomic_batch_sizes=section.rising("atomic_batch_sizes", COUNT),
        full_node=section.numbers("full_node", SECONDS),
        alone_atomic_batch_sizes=section.rising("alone_atomic_batch_sizes", COUNT),
        alone=section.numbers("alone", FACTOR),
        partial_node=section.numbers("partial_node", FACTOR),
    )
    _same_length(section, "atomic_batch_sizes", "full_node")
    _same_length(section, "alone_atomic_batch_sizes", "alone")
    return grad


def _sync(section: Section) -> SyncTimes:
    sync = SyncTimes(
        alone=section.number("alone", SECONDS_OR_NONE),
        alpha_local=section.number("alpha_local", SECONDS_OR_NONE),
        beta_local=section.number("beta_local", SECONDS_OR_NONE),
        num_nodes=section.rising("num_nodes", Range(2, 10**9)),
        alpha_node=section.numbers("alpha_node", SECONDS_OR_NONE),
        beta_node=section.number("beta_node", SECONDS_OR_NONE),
        gamma=section.number("gamma", GAMMA),
    )
    _same_length(section, "num_nodes", "alpha_node")
    return sync


def _corrections(section: Section) -> Corrections:
    replicas = section.rising("num_replicas", Range(2, 10**9))
    places = section.integer("places", Range(1, 1000))
    return Corrections(replicas, section.table("factors", len(replicas), places, FACTOR))


def _noise(num_epochs: int, section: Section) -> NoiseScales:
    until, sizes = section.rising("until_epoch", EPOCHS), section.rising("batch_sizes", COUNT)
    if until[-1] != num_epochs:
        raise section.error("until_epoch", f"a list that ends with num_epochs = {num_epochs}")
    return NoiseScales(until, sizes, section.table("noise_scale", len(until), len(sizes), NOISE_SCALE))


def _losses(num_epochs: int, section: Section) -> Losses:
    losses = Losses(section.rising("epochs", EPOCHS), section.numbers("values", LOSS))
    if (losses.epochs[0], losses.epochs[-1]) != (1, num_epochs):
        raise section.error("epochs", f"a list from 1 to num_epochs = {num_epochs}")
    _same_length(section, "epochs", "values")
    return losses


def _fit_errors(section: Section) -> dict[str, FitError]:
    errors = {}
    for name in section.nodes:
        if name not in PLACEMENT_CLASSES:
            raise section.error(name, f"under one of {', '.join(PLACEMENT_CLASSES)}")
        errors[name] = section.part(name, _fit_error)
    return errors


def _fit_error(row: Section) -> FitError:
    return FitError(row.integer("points", COUNT), row.number("mean", ERROR), row.number("worst", ERROR))


def _types(root: Section, application: Application) -> dict[str, OtherType]:
    if not root.has("gpu_type"):
        raise root.error("types", "together with gpu_type, the type that the rest is of")
    section = root.section("types")
    return {name: section.part(name, partial(_other_type, application)) for name in section.nodes}


def _other_type(application: Application, row: Section) -> OtherType:
    allowed = dict.fromkeys(("alpha_grad", "beta_grad", "alpha_local", "beta_local"), SECONDS_OR_NONE)
    allowed |= {"gamma": GAMMA} | ({"error": ERROR} if row.has("error") else {})
    if row.has("alpha_node") or row.has("beta_node"):
        allowed |= dict.fromkeys(("alpha_node", "beta_node"), SECONDS_OR_NONE)
    figures: dict[str, Any] = {"alpha_node": None, "beta_node": None}
    figures |= {name: row.number(name, range_) for name, range_ in allowed.items()}
    most = row.integer("max_atomic_batch_size", Range(application.min_atomic_batch_size, COUNT.most))
    if not figures["alpha_grad"] + figures["beta_grad"]:
        raise row.error("alpha_grad", "above 0, where beta_grad is 0")
    return OtherType(max_atomic_batch_size=most, **figures)


def _sensitivity(section: Section) -> Sensitivity | None:
    curves: dict[str, Curve] = {"cpus": (), "memory": ()}
    for amount, speed in (("cpus", "cpu_speeds"), ("memory", "memory_speeds")):
        if section.has(amount) or section.has(speed):
            knots, speeds = section.numbers(amount, AMOUNT), section.numbers(speed, FACTOR)
            _same_length(section, amount, speed)
            curves[amount] = tuple(zip(knots, speeds, strict=True))
            if not is_curve(curves[amount]):
                raise section.error(amount, f"a rising list, {speed} a list that does not fall")
    return Sensitivity(**curves) if any(curves.values()) else None


def _same_length(section: Section, *keys: str) -> None:
    first, second = (len(section.nodes[key].value) for key in keys)
    if first != second:
        raise section.error(keys[1], f"a list of {first}, as many as {keys[0]}")
