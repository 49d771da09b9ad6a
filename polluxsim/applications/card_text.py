"""The text of a profile card's file: YAML with a comment on everything that is not plain."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from polluxsim.applications.card import Card
    from polluxsim.applications.card_parts import OtherType
    from polluxsim.models.profile import Application

FORMAT = 1
"""Version of the layout of card files."""


def card_text(card: Card) -> str:
    """Return a card as the text of its file."""
    parts = (_head, _grad_text, _corrections_text, _noise_text, _losses_text, _types_text, _sensitivity_text)
    return "".join(f"{line}\n" for part in parts for line in part(card))


FITTED = (
    "# Profile card: how fast and how well an application trains, in figures fitted to measurements (no",
    "# measured row is copied). Batch sizes are in examples; an M0-step is a step at init_batch_size.",
)
ONE_S_OWN = (
    "# Profile card: how fast and how well an application trains, in figures that nobody compared with",
    "# measurements. Batch sizes are in examples; an M0-step is a step at init_batch_size.",
)

_LIMITS = {
    "init_batch_size": "M0: jobs start here, and never use less [examples]",
    "max_batch_size": "[examples]",
    "min_atomic_batch_size": "least per GPU and pass [examples]",
    "max_atomic_batch_size": "most that fits a GPU [examples]",
    "num_epochs": "statistical epochs until a job is complete",
    "learning_rate_rule": "how the learning rate follows M",
    "fixed_batch_size": "the batch size that adaptive jobs keep [examples]",
    "max_replicas": "most GPUs of a job",
}
"""What is said of an application, and the comment on it; what it does not say is left out."""


def _limits(application: Application) -> Iterator[tuple[str, object, str]]:
    for name, comment in _LIMITS.items():
        if (value := getattr(application, name)) is not None:
            yield name, _quoted(value) if isinstance(value, str) else value, comment


def _head(card: Card) -> list[str]:
    return [
        *(FITTED if card.fit_errors else ONE_S_OWN),
        f"format: {FORMAT}",
        f"name: {_quoted(card.application.name)}  # how workloads name the application",
        *(f"{key}: {_quoted(text)}" for key, text in vars(card.about).items()),
        *([f"gpu_type: {_quoted(card.gpu_type)}  # {_of_type(card)}"] if card.gpu_type else []),
        "",
        "application:",
        *_lines(*_limits(card.application)),
        f"work: {_figure(card.work)}  # progress at completion, epochs of equal length [M0-steps]",
        "",
        "# How far fitted step times are from measured ones, |fitted / measured - 1|, by kind of placement:",
        "# up to four nodes, all but one full (few_nodes) or not (unpacked), or more nodes (many_nodes).",
        "fit_errors:" if card.fit_errors else "fit_errors: {}",
        *(
            f"  {name}: {{points: {row.points}, mean: {_figure(row.mean)}, worst: {_figure(row.worst)}}}"
            for name, row in card.fit_errors.items()
        ),
    ]


def _of_type(card: Card) -> str:
    return "what it was measured on" if card.fit_errors else "what the figures but for the last ones are of"


def _grad_text(card: Card) -> list[str]:
    grad, sync = card.grad, card.sync
    return [
        "",
        "# A pass without synchronisation: linear in m, the examples per GPU, between knots.",
        "grad:",
        *_lines(
            ("atomic_batch_sizes", _row(grad.atomic_batch_sizes), "knots of m [examples]"),
            ("full_node", _row(grad.full_node), "time on full nodes [s]"),
            ("alone_atomic_batch_sizes", _row(grad.alone_atomic_batch_sizes), "knots of m [examples]"),
            ("alone", _row(grad.alone), "time of a job on one GPU / on full nodes"),
            ("partial_node", _row(grad.partial_node), "the same by GPUs on the emptiest node: 1, 2, ..."),
        ),
        "",
        "# Synchronisation of K GPUs on N nodes: alpha_local + beta_local (K - 2) on one node, else",
        "# alpha_node(N) + beta_node (K - N) / N; a step takes (pass^gamma + sync^gamma)^(1/gamma).",
        "sync:",
        *_lines(
            ("alone", _figure(sync.alone), "of one GPU, comes on top [s]"),
            ("alpha_local", _figure(sync.alpha_local), "[s]"),
            ("beta_local", _figure(sync.beta_local), "[s/GPU]"),
            ("num_nodes", _row(sync.num_nodes), "knots of N"),
            ("alpha_node", _row(sync.alpha_node), "[s]"),
            ("beta_node", _figure(sync.beta_node), "[s/GPU]"),
            ("gamma", _figure(sync.gamma), "overlap: 1 none, 10 nearly full"),
        ),
    ]


def _corrections_text(card: Card) -> list[str]:
    corrections = card.corrections
    return [
        "",
        "# Factors on the step time, a row for each K; columns go in even steps of log m from the smallest",
        "# to the largest m that K GPUs use within the limits above.",
        "corrections:",
        f"  num_replicas: {_row(corrections.num_replicas)}  # knots of K",
        f"  places: {len(corrections.places)}  # columns",
        "  factors:",
        *(
            f"    - {_row(row)}  # K = {replicas}"
            for replicas, row in zip(corrections.num_replicas, corrections.factors, strict=True)
        ),
    ]


def _noise_text(card: Card) -> list[str]:
    noise = card.noise
    stages = zip([0, *noise.until_epoch], noise.until_epoch, noise.noise_scale, strict=False)
    return [
        "",
        "# Gradient noise scale, a row for each stage of training, log-linear in the batch size M between",
        "# knots; efficiency = (noise + M0) / (noise + M).",
        "noise:",
        f"  until_epoch: {_row(noise.until_epoch)}  # first epoch after each stage",
        f"  batch_sizes: {_row(noise.batch_sizes)}  # knots of M [examples]",
        "  noise_scale:  # [examples]",
        *(f"    - {_row(row)}  # epochs {start} to {end - 1}" for start, end, row in stages),
    ]


def _losses_text(card: Card) -> list[str]:
    if card.losses is None:
        return []
    return [
        "",
        "# How far the validation metric is from its best, or the loss, linear in the statistical epochs between",
        "# knots: what a job logs after each epoch, for policies that go by how training converges.",
        "losses:",
        f"  epochs: {_row(card.losses.epochs)}  # knots, in complete epochs",
        f"  values: {_row(card.losses.values)}  # in the metric's own unit",
    ]


POOR = 0.15
"""A fit with a larger root mean square of its log errors is called poor."""


def _types_text(card: Card) -> list[str]:
    if not card.types:
        return []
    return [
        "",
        "# The same on other types of GPU: a pass takes alpha_grad + beta_grad m, synchronisation of K GPUs",
        "# alpha + beta (K - 2), within a node (local) or over several (node; none where one was measured);",
        "# error is the root mean square of log(fitted step time / measured).",
        "types:",
        *(f"  {name}: {_other_type(other)}" for name, other in card.types.items()),
    ]


def _sensitivity_text(card: Card) -> list[str]:
    lines = [
        line
        for amount, speed, unit in (("cpus", "cpu_speeds", "CPUs"), ("memory", "memory_speeds", "GB"))
        if (curve := getattr(card.sensitivity, amount, ()))
        for line in _lines(
            (amount, _row([knot for knot, _ in curve]), f"knots [{unit} for each GPU]"),
            (speed, _row([value for _, value in curve]), "speeds there"),
        )
    ]
    if not lines:
        return []
    return [
        "",
        "# Speed by what each GPU has of its node's CPUs and memory, over that of all figures above; the lesser",
        "# of both counts. Linear between knots, from 0 at nothing, and no more beyond the last.",
        "sensitivity:",
        *lines,
    ]


def _other_type(other: OtherType) -> str:
    figures = {name: value for name, value in vars(other).items() if value is not None}
    text = ", ".join(f"{name}: {_figure(value)}" for name, value in figures.items())
    if other.error is None:
        return f"{{{text}}}  # from published ratios of speeds, not measured"
    return f"{{{text}}}" + ("  # a poor fit" if other.error > POOR else "")


def _lines(*entries: tuple[str, object, str]) -> list[str]:
    return [f"  {key}: {value}  # {comment}" for key, value, comment in entries]


def _row(values: Sequence[float]) -> str:
    return f"[{', '.join(map(_figure, values))}]"


def _figure(value: float) -> str:
    """Return a number as YAML takes it: an exponent needs a point before it.

    >>> _figure(1e-05), _figure(12), _figure(0.25)
    ('1.0e-05', '12', '0.25')
    """
    text = repr(value)
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def _quoted(text: str) -> str:
    quoted: str = yaml.safe_dump(text, default_style='"', allow_unicode=True, width=math.inf)
    return quoted.strip()
