"""Profile cards: about 100 fitted figures that describe the speed and the statistics of an application."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import log
from typing import Any, TypeVar

from polluxsim.applications.interpolation import bracket, interpolated, log_interpolated
from polluxsim.models.profile import Application, ProfileRangeError, overlapped
from polluxsim.models.sensitivity import Sensitivity


@dataclass(frozen=True)
class GradTimes:
    """Time of a forward-backward pass without synchronisation, by atomic batch size m and GPUs on the emptiest node.

    On full nodes the time is linear in m between knots. The factor of a job on one GPU is log-linear in log m.
    """

    atomic_batch_sizes: tuple[int, ...]  # knots of m, rising, shape (k,) [examples]
    full_node: tuple[float, ...]  # time on nodes with all GPUs busy, shape (k,) [s]
    alone_atomic_batch_sizes: tuple[int, ...]  # knots of m, rising, shape (j,) [examples]
    alone: tuple[float, ...]  # time on one GPU relative to full nodes, shape (j,) [1]
    partial_node: tuple[float, ...]  # time with 1, 2, … GPUs on the emptiest node, relative to full nodes [1]

    @property
    def gpus_per_node(self) -> int:
        """Return the GPUs per node of the measured cluster."""
        return len(self.partial_node) + 1

    def __call__(self, num_replicas: int, fewest_on_a_node: int, atomic_batch_size: float) -> float:
        """Return the time of a pass at an atomic batch size [examples] [s].

        `fewest_on_a_node` is the number of GPUs on the emptiest node, whose passes take longest. As many GPUs as a
        measured node has, or more, count as a full node.
        """
        full = interpolated(self.atomic_batch_sizes, self.full_node, atomic_batch_size)
        if num_replicas == 1:
            return full * log_interpolated(self.alone_atomic_batch_sizes, self.alone, atomic_batch_size)
        if fewest_on_a_node < self.gpus_per_node:
            return full * self.partial_node[fewest_on_a_node - 1]
        return full


@dataclass(frozen=True)
class SyncTimes:
    """Time to synchronise, before it overlaps with computing."""

    alone: float  # overhead on one GPU, without overlap [s]
    alpha_local: float  # within one node: constant part [s]
    beta_local: float  # within one node: part per GPU beyond two [s/GPU]
    num_nodes: tuple[int, ...]  # knots of the number of nodes N, rising from 2, shape (k,)
    alpha_node: tuple[float, ...]  # on several nodes: constant part, linear between knots, shape (k,) [s]
    beta_node: float  # on several nodes: part per GPU of a node beyond the first, (K − N)/N [s]
    gamma: float  # overlap with computing, from 1 (none) to 10 (nearly full) [1]

    def __call__(self, num_nodes: int, num_replicas: int) -> float:
        """Return the time to synchronise on two GPUs or more [s]."""
        if num_nodes == 1:
            return self.alpha_local + self.beta_local * (num_replicas - 2)
        return self._constant(num_nodes) + self.beta_node * (num_replicas - num_nodes) / num_nodes

    def _constant(self, num_nodes: int) -> float:
        """Return α_node. Beyond the last knot its slope is the mean slope of all knots, but at least 0."""
        nodes = self.num_nodes
        alphas = self.alpha_node
        # A single knot has no slope.
        if num_nodes <= nodes[-1] or len(nodes) == 1:
            return interpolated(nodes, alphas, num_nodes)
        # More nodes never take less time, whatever the noise of the last knots.
        slope = max((alphas[-1] - alphas[0]) / (nodes[-1] - nodes[0]), 0.0)
        return alphas[-1] + slope * (num_nodes - nodes[-1])


@dataclass(frozen=True)
class Corrections:
    """Factors on the step time of several GPUs, which correct the formula.

    The log of a factor is linear in log K between knots, and in the place of m in the range that K GPUs use (see
    `place_in_use`).
    """

    num_replicas: tuple[int, ...]  # knots of the number of GPUs K, rising, shape (k,)
    factors: tuple[tuple[float, ...], ...]  # shape (k, j), for the places 0, 1/(j − 1), …, 1; 1 is no correction

    def __call__(self, num_replicas: int, place: float) -> float:
        """Return the factor [1] of K GPUs at a place in [0, 1]; it is constant beyond the outer knots."""
        low, high, weight = bracket([log(k) for k in self.num_replicas], log(num_replicas))
        start, end, place_weight = bracket(self.places, place)
        # First along the places at both knots of K, then between these knots.
        below = _between_logs(self.factors[low][start], self.factors[low][end], place_weight)
        above = _between_logs(self.factors[high][start], self.factors[high][end], place_weight)
        return _between_logs(below, above, weight)

    @property
    def places(self) -> tuple[float, ...]:
        """Return the places of the columns, shape (j,)."""
        columns = len(self.factors[0])
        return tuple(column / max(columns - 1, 1) for column in range(columns))


def _between_logs(low: float, high: float, weight: float) -> float:
    """Return the value whose log lies between those of two values; the upper one has the weight."""
    return float(low ** (1.0 - weight) * high**weight)


def place_in_use(application: Application, num_replicas: int, atomic_batch_size: float) -> float:
    """Return the place of log m in the range that K GPUs use without accumulation: 0 at its start, 1 at its end.

    In this range, both m and the total K·m are within the application's limits. The place is 0 if the range is empty,
    and outside 0 to 1 for m outside the range.
    """
    smallest = max(application.min_atomic_batch_size, application.init_batch_size / num_replicas)
    largest = min(application.max_atomic_batch_size, application.max_batch_size / num_replicas)
    if largest <= smallest:
        return 0.0
    return log(atomic_batch_size / smallest) / log(largest / smallest)


@dataclass(frozen=True)
class NoiseScales:
    """The gradient noise scale φ by stage of training and batch size, log-linear in log M between knots."""

    until_epoch: tuple[int, ...]  # for each stage of training, the first epoch after it, rising, shape (k,)
    batch_sizes: tuple[int, ...]  # knots of M, rising, shape (j,) [examples]
    noise_scale: tuple[tuple[float, ...], ...]  # shape (k, j) [examples]

    def __call__(self, batch_size: float, epoch: int) -> float:
        """Return φ at a batch size [examples] in an epoch, counted from 0 and before the last stage ends [examples]."""
        stage = bisect_right(self.until_epoch, epoch)
        return log_interpolated(self.batch_sizes, self.noise_scale[stage], batch_size)


@dataclass(frozen=True)
class LossCurve:
    """The loss by statistical epoch, linear between knots."""

    epochs: tuple[int, ...]  # knots, numbers of complete epochs, rising from 1 to all epochs, shape (k,)
    values: tuple[float, ...]  # loss at each knot, > 0 and in any unit, shape (k,)

    def __call__(self, epochs: int) -> float:
        """Return the loss after `epochs` epochs."""
        return interpolated(self.epochs, self.values, epochs)


@dataclass(frozen=True)
class OtherType:
    """The step time on another GPU type, by the seven parameters of θ_sys."""

    max_atomic_batch_size: int  # largest batch per GPU and pass that fits in its memory [examples]
    alpha_grad: float  # time of a pass: constant part [s]
    beta_grad: float  # time of a pass: part per example [s/example]
    alpha_node: float | None  # synchronisation over several nodes: constant part [s]; None if one node was measured
    beta_node: float | None  # and part per GPU beyond two [s/GPU]; None if one node was measured
    alpha_local: float  # synchronisation within one node: constant part [s]
    beta_local: float  # and part per GPU beyond two [s/GPU]
    gamma: float  # overlap with computing, from 1 (none) to 10 (nearly full) [1]
    error: float | None = None  # root mean square of log(fitted / measured step time) [1]; None if not measured

    def __call__(self, num_nodes: int, num_replicas: int, atomic_batch_size: float) -> tuple[float, float]:
        """Return the time of a pass without and with synchronisation [s; s].

        Raise ProfileRangeError on several nodes if only one was measured.
        """
        grad = self.alpha_grad + self.beta_grad * atomic_batch_size
        alpha = self.alpha_node
        beta = self.beta_node
        if num_nodes == 1:
            alpha = self.alpha_local
            beta = self.beta_local
        # Of several nodes, the network between them decides.
        if alpha is None or beta is None:
            raise ProfileRangeError(f"its speed on {num_nodes} nodes of this type is unknown, only that on one node")
        sync = 0.0
        if num_replicas > 1:
            sync = alpha + beta * (num_replicas - 2)
        return grad, overlapped(grad, sync, self.gamma)


@dataclass(frozen=True)
class FitError:
    """Errors of a card in one class of placements: |fitted step time / measured step time − 1| [1]."""

    points: int  # number of measured step times
    mean: float  # mean error [1]
    worst: float  # largest error [1]


@dataclass(frozen=True)
class About:
    """Description of an application and of its measurements, as text."""

    title: str  # model and data set
    optimizer: str
    target: str  # metric that a complete job reaches
    source: str  # authors and place of the measurements
    license: str  # of the measurements


@dataclass(frozen=True)
class Card:
    """All figures of a profile card."""

    about: About
    application: Application
    work: float  # progress at completion [M0-steps]; epochs have equal lengths
    grad: GradTimes
    sync: SyncTimes
    corrections: Corrections
    noise: NoiseScales
    fit_errors: Mapping[str, FitError] = field(default_factory=dict)  # by measured placement class
    gpu_type: str | None = None  # of the measurements
    # Step times on other GPU types, by name. All other figures are equal on all types.
    types: Mapping[str, OtherType] = field(default_factory=dict)
    losses: LossCurve | None = None
    sensitivity: Sensitivity | None = None  # speed by CPUs and memory relative to these step times


@dataclass(frozen=True)
class CardSize:
    """Largest number of figures of a card."""

    grad_knots: int = 6  # of m, for the time of a pass
    alone_knots: int = 3  # of m, for the factor of one GPU; fewer than measured values, to fit and not to copy
    correction_replicas: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 24, 32, 48, 64)
    correction_places: int = 4  # of m
    noise_stages: int = 8  # stages of training
    noise_knots: int = 3  # of M
    loss_knots: int = 10  # at most half the epochs, so that the fit does not copy noise


_PartT = TypeVar("_PartT", GradTimes, SyncTimes, Corrections, NoiseScales, LossCurve, FitError)

SIGNIFICANT_DIGITS = 4  # of every figure of a card


def rounded_figure(x: float, digits: int = SIGNIFICANT_DIGITS) -> float:
    """Return a number rounded to `digits` significant digits."""
    # By its text: scaling by a power of ten would leave further digits.
    return float(f"{x:.{digits - 1}e}")


def rounded(part: _PartT) -> _PartT:
    """Return a part of a card with every figure rounded to four significant digits."""
    values = {item.name: _rounded_value(getattr(part, item.name)) for item in fields(part)}
    return replace(part, **values)


def _rounded_value(value: Any) -> Any:
    """Return a figure or nested tuples of figures, rounded. Whole numbers are knots and counts, and stay exact."""
    if isinstance(value, tuple):
        return tuple(map(_rounded_value, value))
    if isinstance(value, float):
        return rounded_figure(value)
    return value
