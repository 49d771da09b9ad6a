"""Profile cards: about 100 fitted figures that describe the speed and the statistics of an application."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, fields, replace
from math import log
from typing import TYPE_CHECKING, Any, TypeVar

from polluxsim.applications.interpolation import bracket, interpolated, log_interpolated
from polluxsim.models.overlap import overlapped
from polluxsim.models.profile import ProfileRangeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.models.profile import Application
    from polluxsim.models.sensitivity import Sensitivity


@dataclass(frozen=True)
class GradTimes:
    """Time of a forward-backward pass without synchronisation, by atomic batch size and company on the node.

    On full nodes the time is linear in m between knots; the factor of a lone GPU is log-linear in log m.

    Parameters
    ----------
    atomic_batch_sizes, full_node
        Knots of m, rising, and the time there on nodes with all GPUs busy, shape (k,) [examples; s].
    alone_atomic_batch_sizes, alone
        Knots of m, rising, and the time there of a lone GPU over that on full nodes, shape (j,) [examples; 1].
    partial_node
        Time with 1, 2, … GPUs of the job on its emptiest node over that on full nodes, in jobs of several
        GPUs; one less than a node has GPUs.
    """

    atomic_batch_sizes: tuple[int, ...]
    full_node: tuple[float, ...]
    alone_atomic_batch_sizes: tuple[int, ...]
    alone: tuple[float, ...]
    partial_node: tuple[float, ...]

    @property
    def gpus_per_node(self) -> int:
        """Return the GPUs of a node of the measured cluster."""
        return len(self.partial_node) + 1

    def __call__(self, num_replicas: int, fewest_on_a_node: int, atomic_batch_size: float) -> float:
        """Return the time of a pass [s]; nodes larger than the measured ones count as full."""
        full = interpolated(self.atomic_batch_sizes, self.full_node, atomic_batch_size)
        if num_replicas == 1:
            return full * log_interpolated(self.alone_atomic_batch_sizes, self.alone, atomic_batch_size)
        if fewest_on_a_node < self.gpus_per_node:
            return full * self.partial_node[fewest_on_a_node - 1]
        return full


@dataclass(frozen=True)
class SyncTimes:
    """Time to synchronise, before it overlaps with computing.

    Parameters
    ----------
    alone
        Bookkeeping of a lone GPU, which overlaps with nothing [s].
    alpha_local, beta_local
        Within one node: constant part and part per GPU beyond two [s; s/GPU].
    num_nodes, alpha_node
        Knots of the node count N, rising from 2, and the constant part there, linear in between, shape (k,) [1; s].
    beta_node
        Part per GPU of a node beyond the first, (K − N)/N [s].
    gamma
        Overlap with computing, 1 (none) to 10 (nearly full).
    """

    alone: float
    alpha_local: float
    beta_local: float
    num_nodes: tuple[int, ...]
    alpha_node: tuple[float, ...]
    beta_node: float
    gamma: float

    def __call__(self, num_nodes: int, num_replicas: int) -> float:
        """Return the time to synchronise on two GPUs or more [s]."""
        if num_nodes == 1:
            return self.alpha_local + self.beta_local * (num_replicas - 2)
        return self._constant(num_nodes) + self.beta_node * (num_replicas - num_nodes) / num_nodes

    def _constant(self, num_nodes: int) -> float:
        """Return α_node; beyond the last knot it rises as from the first to the last, never falls."""
        nodes, alphas = self.num_nodes, self.alpha_node
        if num_nodes <= nodes[-1] or len(nodes) == 1:
            return interpolated(nodes, alphas, num_nodes)
        slope = max((alphas[-1] - alphas[0]) / (nodes[-1] - nodes[0]), 0.0)
        return alphas[-1] + slope * (num_nodes - nodes[-1])


@dataclass(frozen=True)
class Corrections:
    """Factors on the step time of several GPUs, for what the formula misses.

    The log of a factor is linear in log K between knots, and in the place of m in the range that K GPUs use:
    0 for the smallest atomic batch size in use, 1 for the largest, even steps of log m in between (see
    `place_in_use`).

    Parameters
    ----------
    num_replicas
        Knots of the GPU count K, rising, shape (k,).
    factors
        Shape (k, j), for the places 0, 1/(j − 1), …, 1; 1 is no correction.
    """

    num_replicas: tuple[int, ...]
    factors: tuple[tuple[float, ...], ...]

    def __call__(self, num_replicas: int, place: float) -> float:
        """Return the factor; beyond the outer knots it stays as it is there."""
        low, high, weight = bracket([log(k) for k in self.num_replicas], log(num_replicas))
        left, right, place_weight = bracket(self.places, place)
        below, above = (
            self.factors[row][left] ** (1.0 - place_weight) * self.factors[row][right] ** place_weight
            for row in (low, high)
        )
        return float(below ** (1.0 - weight) * above**weight)

    @property
    def places(self) -> tuple[float, ...]:
        """Return the places of the columns, shape (j,)."""
        columns = len(self.factors[0])
        return tuple(column / max(columns - 1, 1) for column in range(columns))


def place_in_use(application: Application, num_replicas: int, atomic_batch_size: float) -> float:
    """Return where m lies in the range that K GPUs use without accumulation, by its log; 0 is the lower end.

    The range is what keeps both m and the total K·m within the application's limits.
    """
    smallest = max(application.min_atomic_batch_size, application.init_batch_size / num_replicas)
    largest = min(application.max_atomic_batch_size, application.max_batch_size / num_replicas)
    if largest <= smallest:
        return 0.0
    return log(atomic_batch_size / smallest) / log(largest / smallest)


@dataclass(frozen=True)
class NoiseScales:
    """The gradient noise scale φ by stage of training and batch size, log-linear in log M between knots.

    Parameters
    ----------
    until_epoch
        For each stage of training, the first epoch that is not part of it, rising, shape (k,).
    batch_sizes
        Knots of M, rising, shape (j,) [examples].
    noise_scale
        Shape (k, j) [examples].
    """

    until_epoch: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    noise_scale: tuple[tuple[float, ...], ...]

    def __call__(self, batch_size: float, epoch: int) -> float:
        """Return φ [examples]."""
        stage = bisect_right(self.until_epoch, epoch)
        return log_interpolated(self.batch_sizes, self.noise_scale[stage], batch_size)


@dataclass(frozen=True)
class Losses:
    """The loss by statistical epoch, linear between knots.

    Parameters
    ----------
    epochs
        Knots: after how many epochs, rising from 1 to all of them, shape (k,).
    values
        The loss there, above 0 and in whatever unit, shape (k,).
    """

    epochs: tuple[int, ...]
    values: tuple[float, ...]

    def __call__(self, epochs: int) -> float:
        """Return the loss after so many epochs."""
        return interpolated(self.epochs, self.values, epochs)


@dataclass(frozen=True)
class OtherType:
    """The step time on another type of GPU, by the seven figures of θ_sys.

    Parameters
    ----------
    max_atomic_batch_size
        Most examples per GPU and pass that fit its memory [examples].
    alpha_grad, beta_grad
        Time of a pass: constant part and part per example [s; s/example].
    alpha_node, beta_node
        Time to synchronise over several nodes: constant part and part per GPU beyond two [s; s/GPU]; None where only
        one node was measured.
    alpha_local, beta_local
        The same within one node [s; s/GPU].
    gamma
        Overlap with computing, 1 (none) to 10 (nearly full).
    error
        Root mean square of log(fitted step time / measured) [1]; None where the figures follow from published ratios
        of speeds and no step time was measured.
    """

    max_atomic_batch_size: int
    alpha_grad: float
    beta_grad: float
    alpha_node: float | None
    beta_node: float | None
    alpha_local: float
    beta_local: float
    gamma: float
    error: float | None = None

    def __call__(self, num_nodes: int, num_replicas: int, atomic_batch_size: float) -> tuple[float, float]:
        """Return the time of a pass, and of one that synchronises [s; s].

        Raise ProfileRangeError on several nodes, if only one was measured.
        """
        grad = self.alpha_grad + self.beta_grad * atomic_batch_size
        alpha, beta = (self.alpha_local, self.beta_local) if num_nodes == 1 else (self.alpha_node, self.beta_node)
        if alpha is None or beta is None:
            raise ProfileRangeError(f"its speed on {num_nodes} nodes of this type is not known, allowed is one")
        sync = alpha + beta * (num_replicas - 2) if num_replicas > 1 else 0.0
        return grad, overlapped(grad, sync, self.gamma)


@dataclass(frozen=True)
class FitError:
    """How far a card is from what it was fitted to, over one class of placements.

    Parameters
    ----------
    points
        Measured step times compared.
    mean, worst
        |fitted step time / measured − 1| [1].
    """

    points: int
    mean: float
    worst: float


@dataclass(frozen=True)
class About:
    """What a card says to its reader.

    Parameters
    ----------
    title, optimizer, target
        Model and data set, name of the optimiser, and what a completed job has reached.
    source, license
        Who measured what the card was fitted to, and where; and under which licence the measurements are.
    """

    title: str
    optimizer: str
    target: str
    source: str
    license: str


@dataclass(frozen=True)
class Card:
    """All figures of a profile card.

    Parameters
    ----------
    about
        For the reader.
    application
        Properties of the application.
    work
        Progress at completion [M0-steps]; epochs are of equal length.
    grad, sync, corrections
        The step time.
    noise
        The gradient statistics.
    losses
        How training converges; None if nobody says.
    fit_errors
        By placement class, for the classes that were measured.
    gpu_type
        Type of GPU that all this was measured on; None if nobody says.
    types
        The step time on other types, by name; all else is alike.
    sensitivity
        Speed by CPUs and memory, over that of all these figures; None if nobody says.
    """

    about: About
    application: Application
    work: float
    grad: GradTimes
    sync: SyncTimes
    corrections: Corrections
    noise: NoiseScales
    fit_errors: Mapping[str, FitError] = field(default_factory=dict)
    gpu_type: str | None = None
    types: Mapping[str, OtherType] = field(default_factory=dict)
    losses: Losses | None = None
    sensitivity: Sensitivity | None = None


@dataclass(frozen=True)
class CardSize:
    """How many figures a card may have.

    Parameters
    ----------
    grad_knots, alone_knots
        Most knots of m for the time of a pass and for the factor of a lone GPU; the latter has at most one
        less than there are measured m, so that a curve is fitted to its few rows, not copied from them.
    correction_replicas, correction_places
        Knots of K of the corrections, and their most places of m.
    noise_stages, noise_knots
        Most stages of training and knots of M for the noise scale.
    loss_knots
        Most knots of the loss by epoch, and no more than half the epochs, so that its noise is not copied.
    """

    grad_knots: int = 6
    alone_knots: int = 3
    correction_replicas: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 24, 32, 48, 64)
    correction_places: int = 4
    noise_stages: int = 8
    noise_knots: int = 3
    loss_knots: int = 10


_PartT = TypeVar("_PartT", GradTimes, SyncTimes, Corrections, NoiseScales, Losses, FitError)

SIGNIFICANT_DIGITS = 4


def rounded_figure(x: float, digits: int = SIGNIFICANT_DIGITS) -> float:
    """Return a number with so many significant digits."""
    return float(f"{x:.{digits - 1}e}")


def rounded(part: _PartT) -> _PartT:
    """Return a part of a card with every figure rounded to four significant digits."""
    return replace(part, **{item.name: _rounded_value(getattr(part, item.name)) for item in fields(part)})


def _rounded_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_rounded_value, value))
    return rounded_figure(value) if isinstance(value, float) else value
