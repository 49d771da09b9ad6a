"""The figures of profile cards that a file states by key: how to read each, its range, and its comment in the file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from polluxsim.applications.osdi21 import COUNT, EPOCHS
from polluxsim.applications.sections import FigureRange, Section

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
