"""A profile card for a transformer, computed rather than measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from polluxsim.applications.card import About, Card
from polluxsim.applications.card_fitting.rounding import rounded, rounded_figure
from polluxsim.applications.card_parts import Corrections, GradTimes, NoiseScales, OtherType, SyncTimes
from polluxsim.applications.transformer import GPUS_PER_NODE, critical_batch, loss_after
from polluxsim.errors import InvalidConfigError
from polluxsim.models.profile import Application

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.applications.transformer import Speed, Transformer
    from polluxsim.gpu_types import GpuType

STAGES = 8
"""Epochs of a training, for each of which the noise is told."""
GAMMA = 2.0
"""Overlap of a pass with adding up gradients; between none (1) and full (10)."""
ERROR = 0.24
"""Root mean square of log(computed / published) over the throughputs in `tests/applications/test_transformer.py`."""
NUM_NODES = (2, 4, 8, 16)


class Training(NamedTuple):
    """How a transformer is trained: on so many tokens in all, from its initial to its largest batch size [examples].

    Workloads know it by its name, readers by its title. The noise scale [examples] is by default from the loss, and
    that, of a model that is trained already [nats a token], from the tokens.
    """

    name: str
    title: str
    tokens: float
    batch: int
    max_batch: int
    noise_scale: float | None = None
    loss: float | None = None


def transformer_card(model: Transformer, training: Training, speeds: Mapping[GpuType, Speed]) -> Card:
    """Return the card of a training on some types of GPU; it is of the first, those where it does not fit are left out.

    Raise InvalidConfigError if it fits none.
    """
    fits = {gpu: most for gpu in speeds if (most := model.most_examples(gpu))}
    if not fits:
        needed = (model.states + model.activations) / 1e9
        allowed = ", ".join(f"{gpu.name} of {gpu.memory:g} GB" for gpu in speeds)
        raise InvalidConfigError(f"card: one example of {needed:.0f} GB does not fit in memory of {allowed}")
    first, *others = fits
    return Card(
        about=About(training.title, "Adam", f"{training.tokens:g} tokens", SOURCE, "Apache-2.0"),
        application=Application(
            training.name, training.batch, training.max_batch, 1, fits[first], STAGES, "square-root"
        ),
        work=rounded_figure(training.tokens / (training.batch * model.seq), 6),
        grad=_grad(fits[first], model.pass_times(first, speeds[first])),
        sync=_sync(model, speeds[first]),
        corrections=Corrections((2,), ((1.0,),)),
        noise=_noise(model, training),
        gpu_type=first.name,
        types={gpu.name: _other(model, fits[gpu], gpu, speeds[gpu]) for gpu in others},
    )


SOURCE = "computed by `polluxsim card transformer` from operations, bytes and data sheets"


def _grad(most: int, times: tuple[float, float]) -> GradTimes:
    constant, each = times
    knots = (1, most) if most > 1 else (1,)
    full = tuple(constant + each * m for m in knots)
    return rounded(GradTimes(knots, full, (1,), (1.0,), (1.0,) * (GPUS_PER_NODE - 1)))


def _local(model: Transformer, speed: Speed) -> tuple[float, float]:
    """Return the constant part, and that per GPU beyond two, which is exact on two and on a full node."""
    two, full = (model.all_reduce(gpus, speed.link) for gpus in (2, GPUS_PER_NODE))
    return two, (full - two) / (GPUS_PER_NODE - 2)


def _between(model: Transformer, speed: Speed, num_nodes: int) -> float:
    """Return the time on full nodes, whose ring passes the network once each way."""
    return model.all_reduce(num_nodes * GPUS_PER_NODE, min(speed.link, speed.network))


def _sync(model: Transformer, speed: Speed) -> SyncTimes:
    nodes = tuple(_between(model, speed, num_nodes) for num_nodes in NUM_NODES)
    return rounded(SyncTimes(0.0, *_local(model, speed), NUM_NODES, nodes, 0.0, GAMMA))


def _noise(model: Transformer, training: Training) -> NoiseScales:
    scales = tuple((_noise_scale(model, training, (stage + 0.5) / STAGES),) for stage in range(STAGES))
    return rounded(NoiseScales(tuple(range(1, STAGES + 1)), (training.batch,), scales))


def _noise_scale(model: Transformer, training: Training, done: float) -> float:
    if training.noise_scale is not None:
        return training.noise_scale
    loss = training.loss or loss_after(model.params, done * training.tokens, training.batch * model.seq)
    return critical_batch(loss) / model.seq


def _other(model: Transformer, most: int, gpu: GpuType, speed: Speed) -> OtherType:
    alpha_grad, beta_grad = model.pass_times(gpu, speed)
    alpha_local, beta_local = _local(model, speed)
    node = _between(model, speed, NUM_NODES[0])
    figures = map(rounded_figure, (alpha_grad, beta_grad, node, 0.0, alpha_local, beta_local, GAMMA, ERROR))
    return OtherType(most, *figures)
