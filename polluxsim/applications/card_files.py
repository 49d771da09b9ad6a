"""Read and write profile cards as YAML files, one for each application."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import yaml

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
from polluxsim.common.files import atomic_write
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


def card_text(card: Card) -> str:
    """Return a card as the text of its file."""
    lines = [
        *_head(card),
        *_grad_text(card),
        *_corrections_text(card),
        *_noise_text(card),
        *_losses_text(card),
        *_types_text(card),
        *_sensitivity_text(card),
    ]
    return "".join(f"{line}\n" for line in lines)


def _head(card: Card) -> list[str]:
    """Return the first lines of a card: what it describes, the properties of the application, and the errors."""
    origin = "that nobody compared with\n# measurements"
    type_of = "what the figures but for the last ones are of"
    if card.fit_errors:
        origin = "fitted to measurements (no\n# measured row is copied)"
        type_of = "what it was measured on"
    lines = [
        f"# Profile card: how fast and how well an application trains, in figures {origin}. "
        "Batch sizes are in examples; an M0-step is a step at init_batch_size.",
        f"format: {FORMAT}",
        f"name: {_quoted(card.application.name)}  # how workloads name the application",
    ]
    lines += [f"{key}: {_quoted(text)}" for key, text in vars(card.about).items()]
    if card.gpu_type:
        lines.append(f"gpu_type: {_quoted(card.gpu_type)}  # {type_of}")
    lines += [
        "",
        "application:",
        *_figure_lines(card.application, LIMITS),
        f"work: {_figure(card.work)}  # progress at completion, epochs of equal length [M0-steps]",
        "",
        "# How far fitted step times are from measured ones, |fitted / measured - 1|, by kind of placement:",
        "# up to four nodes, all but one full (few_nodes) or not (unpacked), or more nodes (many_nodes).",
    ]
    if card.fit_errors:
        lines.append("fit_errors:")
    else:
        lines.append("fit_errors: {}")  # without braces, YAML would read null
    for name, row in card.fit_errors.items():
        lines.append(f"  {name}: {{points: {row.points}, mean: {_figure(row.mean)}, worst: {_figure(row.worst)}}}")
    return lines


def _grad_text(card: Card) -> list[str]:
    """Return the lines on the time of a pass and of the synchronisation."""
    return [
        "",
        "# A pass without synchronisation: linear in m, the examples per GPU, between knots.",
        "grad:",
        *_figure_lines(card.grad, GRAD),
        "",
        "# Synchronisation of K GPUs on N nodes: alpha_local + beta_local (K - 2) on one node, else",
        "# alpha_node(N) + beta_node (K - N) / N; a step takes (pass^gamma + sync^gamma)^(1/gamma).",
        "sync:",
        *_figure_lines(card.sync, SYNC),
    ]


def _corrections_text(card: Card) -> list[str]:
    """Return the lines on the corrections of the step time."""
    corrections = card.corrections
    rows = []
    for replicas, row in zip(corrections.num_replicas, corrections.factors, strict=True):
        rows.append(f"    - {_row(row)}  # K = {replicas}")
    return [
        "",
        "# Factors on the step time, a row for each K; columns go in even steps of log m from the smallest",
        "# to the largest m that K GPUs use within the limits above.",
        "corrections:",
        f"  num_replicas: {_row(corrections.num_replicas)}  # knots of K",
        f"  places: {len(corrections.places)}  # columns",
        "  factors:",
        *rows,
    ]


def _noise_text(card: Card) -> list[str]:
    """Return the lines on the noise scales."""
    noise = card.noise
    rows = []
    start = 0
    for end, row in zip(noise.until_epoch, noise.noise_scale, strict=True):
        rows.append(f"    - {_row(row)}  # epochs {start} to {end - 1}")
        start = end
    return [
        "",
        "# Gradient noise scale, a row for each stage of training, log-linear in the batch size M between",
        "# knots; efficiency = (noise + M0) / (noise + M).",
        "noise:",
        f"  until_epoch: {_row(noise.until_epoch)}  # first epoch after each stage",
        f"  batch_sizes: {_row(noise.batch_sizes)}  # knots of M [examples]",
        "  noise_scale:  # [examples]",
        *rows,
    ]


def _losses_text(card: Card) -> list[str]:
    """Return the lines on the loss; none if the card does not state it."""
    if card.losses is None:
        return []
    return [
        "",
        "# How far the validation metric is from its best, or the loss, linear in the statistical epochs between",
        "# knots: what a job logs after each epoch, for policies that go by how training converges.",
        "losses:",
        *_figure_lines(card.losses, LOSSES),
    ]


POOR = 0.15  # root mean square of the log errors above which the card calls a fit poor


def _types_text(card: Card) -> list[str]:
    """Return the lines on other GPU types; none if the card states none."""
    if not card.types:
        return []
    types = [f"  {_key(name)}: {_other_type_text(other)}" for name, other in card.types.items()]
    return [
        "",
        "# The same on other types of GPU: a pass takes alpha_grad + beta_grad m, synchronisation of K GPUs",
        "# alpha + beta (K - 2), within a node (local) or over several (node; none where one was measured);",
        "# error is the root mean square of log(fitted step time / measured).",
        "types:",
        *types,
    ]


def _sensitivity_text(card: Card) -> list[str]:
    """Return the lines on the speed by CPUs and memory; none if the card does not state it."""
    lines = []
    for amount, speed, unit in (("cpus", "cpu_speeds", "CPUs"), ("memory", "memory_speeds", "GB")):
        curve = getattr(card.sensitivity, amount, ())
        if curve:
            lines += _lines(
                (amount, _row([knot for knot, _ in curve]), f"knots [{unit} for each GPU]"),
                (speed, _row([value for _, value in curve]), "speeds there"),
            )
    if not lines:
        return []
    return [
        "",
        "# Speed by the CPUs and memory for each GPU, relative to the rest of the card; the lower of both counts.",
        "# Linear between knots, 0 without CPUs or memory, and constant above the last knot.",
        "sensitivity:",
        *lines,
    ]


def _other_type_text(other: OtherType) -> str:
    """Return the figures of another GPU type as a mapping in one line."""
    figures = {name: value for name, value in vars(other).items() if value is not None}
    text = ", ".join(f"{name}: {_figure(value)}" for name, value in figures.items())
    mapping = f"{{{text}}}"
    if other.error is None:
        mapping += "  # from published ratios of speeds, not measured"
    elif other.error > POOR:
        mapping += "  # a poor fit"
    return mapping


def _lines(*entries: tuple[str, object, str]) -> list[str]:
    """Return a line of a section for each key, value and comment."""
    return [f"  {key}: {value}  # {comment}" for key, value, comment in entries]


def _figure_lines(part: object, figures: Mapping[str, Figure]) -> list[str]:
    """Return the lines of a part of a card from its figures."""
    entries = []
    for name, figure in figures.items():
        value = getattr(part, name)
        if value is not None:
            entries.append((name, _text(value), figure.comment))
    return _lines(*entries)


def _text(value: str | float | tuple[float, ...]) -> str:
    """Return a value in YAML."""
    if isinstance(value, str):
        return _quoted(value)
    return _row(value) if isinstance(value, tuple) else _figure(value)


def _row(values: Sequence[float]) -> str:
    """Return numbers as a list in YAML."""
    return f"[{', '.join(map(_figure, values))}]"


def _figure(value: float) -> str:
    """Return a number in YAML, where an exponent needs a decimal point before it.

    >>> _figure(1e-05), _figure(12), _figure(0.25)
    ('1.0e-05', '12', '0.25')
    """
    text = repr(value)
    if "e" in text and "." not in text:
        return text.replace("e", ".0e")
    return text


def _quoted(text: str) -> str:
    """Return text in double quotes for YAML."""
    return str(yaml.safe_dump(text, default_style='"', allow_unicode=True, width=math.inf)).strip()


def _key(name: str) -> str:
    """Return text as a key in YAML, in quotes if it could be read as something else."""
    return str(yaml.safe_dump({name: 0}, allow_unicode=True, width=math.inf)).rpartition(":")[0]


def fit_cards(measured: Path) -> dict[str, Card]:
    """Fit a card to every application that `read_profiles` finds in a folder; return the cards by file name.

    Raise InvalidInputError if the measurements are missing or invalid, or two applications have the same file name.
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


def write_cards(cards: dict[str, Card], folder: Path) -> list[Path]:
    """Write cards as YAML files into a folder, which is created if necessary; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    return [write_card(card, folder / f"{name}.yaml") for name, card in cards.items()]


def write_card(card: Card, path: Path) -> Path:
    """Write a card and return the path; equal cards give equal bytes.

    Raise InvalidInputError, and write nothing, if a figure is out of the range in which `read_card` reads it.
    """
    with atomic_write(path) as temporary:
        temporary.write_text(card_text(card), encoding="utf-8", newline="\n")
        try:
            read_card(temporary)
        except InvalidInputError as error:
            problem = str(error).removeprefix(str(temporary))
            raise InvalidInputError(f"{path}: the card would be invalid, and is not written{problem}") from None
    return path


def read_cards(folder: Path) -> dict[str, CardProfile]:
    """Read all cards (*.yaml) of a folder; return profiles by application name, in order of name.

    Raise InvalidInputError if there is no card, a card is invalid, or two cards have the same application.
    """
    profiles: dict[str, CardProfile] = {}
    for path in sorted(folder.glob("*.yaml")):
        card = read_card(path)
        name = card.application.name
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
    limits = _read(section, LIMITS)
    for smaller, larger in (
        ("init_batch_size", "max_batch_size"),
        ("min_atomic_batch_size", "max_atomic_batch_size"),
        ("min_atomic_batch_size", "max_batch_size"),
        ("init_batch_size", "fixed_batch_size"),
        ("fixed_batch_size", "max_batch_size"),
    ):
        if limits.get(smaller, 0) > limits.get(larger, math.inf):
            raise section.error(larger, f"no less than {smaller} = {limits[smaller]}")
    return Application(name=root.text("name"), **limits)


def _read(section: Section, figures: Mapping[str, Figure]) -> dict[str, Any]:
    """Return the figures of a section by name."""
    present = {name: figure for name, figure in figures.items() if section.has(name) or not figure.is_optional}
    return {name: figure.read(section, name, figure.allowed) for name, figure in present.items()}


def _grad(section: Section) -> GradTimes:
    grad = GradTimes(**_read(section, GRAD))
    _same_length(section, "atomic_batch_sizes", "full_node")
    _same_length(section, "alone_atomic_batch_sizes", "alone")
    return grad


def _sync(section: Section) -> SyncTimes:
    sync = SyncTimes(**_read(section, SYNC))
    _same_length(section, "num_nodes", "alpha_node")
    return sync


def _corrections(section: Section) -> Corrections:
    replicas = section.rising("num_replicas", FigureRange(2, 10**9))
    places = section.integer("places", FigureRange(1, 1000))
    return Corrections(replicas, section.table("factors", len(replicas), places, FACTOR))


def _noise(num_epochs: int, section: Section) -> NoiseScales:
    until = section.rising("until_epoch", EPOCHS)
    sizes = section.rising("batch_sizes", COUNT)
    if until[-1] != num_epochs:
        raise section.error("until_epoch", f"a list that ends with num_epochs = {num_epochs}")
    return NoiseScales(until, sizes, section.table("noise_scale", len(until), len(sizes), NOISE_SCALE))


def _losses(num_epochs: int, section: Section) -> LossCurve:
    losses = LossCurve(**_read(section, LOSSES))
    if (losses.epochs[0], losses.epochs[-1]) != (1, num_epochs):
        raise section.error("epochs", f"a list from 1 to num_epochs = {num_epochs}")
    _same_length(section, "epochs", "values")
    return losses


def _fit_errors(section: Section) -> dict[str, FitError]:
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
    if not figures["alpha_grad"] + figures["beta_grad"]:
        raise row.error("alpha_grad", "> 0, because beta_grad is 0")
    return OtherType(max_atomic_batch_size=largest, **figures)


def _sensitivity(section: Section) -> Sensitivity | None:
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


def _same_length(section: Section, *keys: str) -> None:
    """Raise InvalidInputError if the lists under two keys have different lengths."""
    first, second = (len(section.nodes[key].value) for key in keys)
    if first != second:
        raise section.error(keys[1], f"a list of {first} values, as {keys[0]} is")
