"""Write profile cards as YAML files, which `card_files` reads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from polluxsim.applications.card import Card, OtherType
from polluxsim.applications.card_files import FORMAT, GRAD, LIMITS, LOSSES, SYNC, Figure, read_card
from polluxsim.common.errors import InvalidInputError
from polluxsim.common.files import atomic_write


def write_cards(cards: dict[str, Card], folder: Path) -> list[Path]:
    """Write cards, by file name, as YAML files into a folder, which is created if necessary; return their paths.

    Raise InvalidInputError as `write_card` does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return [write_card(card, folder / f"{name}.yaml") for name, card in cards.items()]


def write_card(card: Card, path: Path) -> Path:
    """Write a card and return the path; equal cards give equal bytes.

    Raise InvalidInputError, and write nothing, if a figure is out of the range in which `read_card` reads it.
    """
    with atomic_write(path) as temporary:
        temporary.write_text(card_text(card), encoding="utf-8", newline="\n")
        # A fit of poor measurements can give figures that no card may have.
        try:
            read_card(temporary)
        except InvalidInputError as error:
            problem = str(error).removeprefix(str(temporary))
            raise InvalidInputError(f"{path}: the card would be invalid, and is not written{problem}") from None
    return path


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
    # A computed card has no errors of a fit.
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
        if value is not None:  # an optional figure that the card does not state
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
    # By YAML itself, which knows all characters that need an escape. Without a width it would break long lines.
    return str(yaml.safe_dump(text, default_style='"', allow_unicode=True, width=math.inf)).strip()


def _key(name: str) -> str:
    """Return text as a key in YAML, in quotes if it could be read as something else."""
    return str(yaml.safe_dump({name: 0}, allow_unicode=True, width=math.inf)).rpartition(":")[0]
