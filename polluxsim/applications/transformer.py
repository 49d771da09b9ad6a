"""Compute the profile card of a transformer from its size and the data sheets of GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from polluxsim.applications.card import (
    About,
    Card,
    Corrections,
    GradTimes,
    NoiseScales,
    OtherType,
    SyncTimes,
    rounded,
    rounded_figure,
)
from polluxsim.common.errors import InvalidConfigError
from polluxsim.hardware.gpu_types import GpuType
from polluxsim.models.profile import Application

GPUS_PER_NODE = 8  # of the nodes for which cards are computed
MEMORY_SHARE = 0.9  # share of a GPU's memory for the model; the framework needs the rest [1]
LINK_SHARE = 0.8  # share of a link's peak that a ring reaches in NCCL's tests, about [1]


class Speed(NamedTuple):
    """Speed of a GPU type in training, beyond its data sheet."""

    utilisation: float  # share of the peak in a pass; recomputation counts as work [1]
    link: float  # peak of the links within a node, one way [GB/s]
    network: float  # peak of the network of a node, one way [GB/s]


# Utilisation: Megatron-LM on V100, 39 TFLOP/s (Shoeybi et al. 2019); on A100, 44 to 52 % (Narayanan et al., SC '21,
# table 1); Llama 3 on H100, 38 to 43 % (Dubey et al. 2024, table 4). Links: NVLink 2, 3, 4, half of both ways.
# Network: AWS p3dn.24xlarge, p4d.24xlarge, p5.48xlarge.
SPEEDS = {
    "v100-32": Speed(0.30, 150, 100 / 8),
    "a100-40": Speed(0.45, 300, 400 / 8),
    "a100-80": Speed(0.45, 300, 400 / 8),
    "h100": Speed(0.40, 450, 3200 / 8),
    "h200": Speed(0.40, 450, 3200 / 8),
}


class Transformer(NamedTuple):
    """Size of a transformer, and the part of it that trains."""

    params: float  # number of all parameters, N
    seq: int  # tokens of an example, s
    layers: int  # number of layers, L
    hidden: int  # width of the layers, h
    vocab: int = 50257  # number of outputs; 0 for one output per example, like a class
    trainable: float = 1.0  # share of the parameters that train; < 1 with adapters [1]
    # Whether the backward pass computes activations again, which takes a third more time and less memory.
    recompute: bool = False

    @property
    def flops(self) -> float:
        """Return the operations of a pass over one example, forward and backward [FLOP].

        A token takes 2 N operations forward, as many for the gradient of activations and again for that of weights;
        attention over all tokens takes 4 L s h, and twice this number backward. Source: Kaplan et al. 2020, §2.1;
        Narayanan et al., SC '21, appendix.
        """
        dense = 2 * self.params
        attention = 4 * self.layers * self.seq * self.hidden
        again = 0.0
        if self.recompute:
            again = dense + attention
        return self.seq * (dense * (2 + self.trainable) + 3 * attention + again)

    @property
    def states(self) -> float:
        """Return the memory of weights, gradients and Adam's states [bytes]: 16 per trained parameter, else 2.

        Source: ZeRO (Rajbhandari et al. 2020), §3.1.
        """
        return self.params * (16 * self.trainable + 2 * (1 - self.trainable))

    @property
    def activations(self) -> float:
        """Return the memory of one example's activations, with fused attention, and of its logits [bytes].

        Source: Korthikanti et al. 2022, §4.1: 34 s h a layer; recomputed, 2 s h a layer and 34 s h once.
        """
        bytes_per_width = 34 * self.layers
        if self.recompute:
            bytes_per_width = 2 * self.layers + 34
        return float(self.seq * (self.hidden * bytes_per_width + 6 * self.vocab))

    def most_examples(self, gpu: GpuType) -> int:
        """Return the examples of a pass that fit in a GPU's memory; 0 if the model does not fit."""
        return max(int((MEMORY_SHARE * gpu.memory * 1e9 - self.states) // self.activations), 0)

    def pass_times(self, gpu: GpuType, speed: Speed) -> tuple[float, float]:
        """Return the time of a pass, its constant part and that per example [s; s].

        The constant part is the optimiser's: Adam moves 28 bytes of each parameter that trains.
        """
        constant = 28 * self.trainable * self.params / (gpu.bandwidth * 1e9)
        return constant, self.flops / (speed.utilisation * gpu.peak * 1e12)

    def all_reduce(self, num_replicas: int, bandwidth: float) -> float:
        """Return the time of an all-reduce of two-byte gradients in a ring, by the bandwidth of its links [GB/s] [s].

        Each GPU sends its gradients 2 (K − 1) / K times. Source: Patarasuk and Yuan 2009.
        """
        sent = 2 * (num_replicas - 1) / num_replicas * 2 * self.trainable * self.params
        return sent / (LINK_SHARE * bandwidth * 1e9)


def depth_and_width(params: float) -> tuple[int, int]:
    """Return layers and width of a model with a number of parameters (12 L h²), 128 times as wide as deep.

    The larger models of GPT-3 have this ratio of width to depth (Brown et al. 2020, table 2.1); it matters little
    (Kaplan et al. 2020).

    >>> depth_and_width(175e9)
    (96, 12288)
    """
    layers = max(round((params / (12 * 128**2)) ** (1 / 3)), 1)
    return layers, 128 * layers


def critical_batch(loss: float) -> float:
    """Return the critical batch size at a loss, 2.1·10⁸ L^(−1/0.21), which is near the noise scale [tokens].

    Source: Kaplan et al. 2020, equation 1.4, table 3; McCandlish et al. 2018.
    """
    return float(2.1e8 * loss ** (-1 / 0.21))


def loss_after(params: float, tokens: float, batch: float) -> float:
    """Return the loss after training on `tokens` at a batch size of `batch` tokens [nats/token].

    It is (6.5·10¹³/N)^0.077 + (2100/S)^0.76, with S = tokens / (batch + critical batch) effective steps.
    Source: Kaplan et al. 2020, equations 1.6 and 5.4, table 3.
    """
    low = 0.0
    high = 100.0  # above the loss of any model, also of an untrained one
    for _ in range(100):  # bisection, because the effective steps depend on the loss
        middle = (low + high) / 2
        steps = tokens / (batch + critical_batch(middle))
        if (6.5e13 / params) ** 0.077 + (2.1e3 / steps) ** 0.76 > middle:
            low = middle
        else:
            high = middle
    return high


STAGES = 8  # epochs of a training, each with its own noise scale
GAMMA = 2.0  # overlap of a pass with the all-reduce, between none (1) and nearly full (10) [1]
ERROR = 0.24
"""Root mean square of log(computed / published) over the throughputs in `tests/applications/test_transformer.py`."""
NUM_NODES = (2, 4, 8, 16)  # knots of the time to synchronise
SOURCE = "computed by `polluxsim card transformer` from operations, bytes and data sheets"


class Training(NamedTuple):
    """A training of a transformer."""

    name: str  # in workloads
    title: str
    tokens: float  # number of tokens of the whole training
    batch: int  # initial batch size [examples]
    max_batch: int  # largest batch size [examples]
    noise_scale: float | None = None  # [examples]; by default it follows from the loss
    loss: float | None = None  # loss of a pre-trained model [nats/token]; by default it follows from the tokens


def transformer_card(model: Transformer, training: Training, speeds: Mapping[GpuType, Speed]) -> Card:
    """Return the card of a training on GPU types. The main figures are for the first type whose memory is large enough.

    Types whose memory is too small are left out. Raise InvalidConfigError if the memory of every type is too small.
    """
    most_examples = {}  # on each type whose memory is large enough
    for gpu in speeds:
        examples = model.most_examples(gpu)
        if examples:
            most_examples[gpu] = examples
    if not most_examples:
        needed = (model.states + model.activations) / 1e9
        allowed = ", ".join(f"{gpu.name} of {gpu.memory:g} GB" for gpu in speeds)
        raise InvalidConfigError(f"card: one example of {needed:.0f} GB does not fit in the memory of {allowed}")
    first, *further_types = most_examples
    types = {}
    for gpu in further_types:
        types[gpu.name] = _other(model, most_examples[gpu], gpu, speeds[gpu])
    return Card(
        about=About(training.title, "Adam", f"{training.tokens:g} tokens", SOURCE, "Apache-2.0"),
        application=Application(
            training.name, training.batch, training.max_batch, 1, most_examples[first], STAGES, "square-root"
        ),
        work=rounded_figure(training.tokens / (training.batch * model.seq), 6),
        grad=_grad(most_examples[first], model.pass_times(first, speeds[first])),
        sync=_sync(model, speeds[first]),
        corrections=Corrections((2,), ((1.0,),)),
        noise=_noise(model, training),
        gpu_type=first.name,
        types=types,
    )


def _grad(most: int, times: tuple[float, float]) -> GradTimes:
    """Return the time of a pass of up to `most` examples, from its constant part and the part per example [s; s]."""
    constant, per_example = times
    knots: tuple[int, ...] = (1,)
    if most > 1:  # the time is linear, so that two knots determine it
        knots = (1, most)
    full = tuple(constant + per_example * m for m in knots)
    return rounded(GradTimes(knots, full, (1,), (1.0,), (1.0,) * (GPUS_PER_NODE - 1)))


def _local(model: Transformer, speed: Speed) -> tuple[float, float]:
    """Return the time to synchronise within a node, as the constant part and the part per GPU beyond two [s; s/GPU].

    It is exact on two GPUs and on a full node.
    """
    two = model.all_reduce(2, speed.link)
    full = model.all_reduce(GPUS_PER_NODE, speed.link)
    return two, (full - two) / (GPUS_PER_NODE - 2)


def _between(model: Transformer, speed: Speed, num_nodes: int) -> float:
    """Return the time to synchronise full nodes [s]; the ring passes the network once each way."""
    return model.all_reduce(num_nodes * GPUS_PER_NODE, min(speed.link, speed.network))


def _sync(model: Transformer, speed: Speed) -> SyncTimes:
    """Return the time to synchronise, with knots at `NUM_NODES`."""
    nodes = tuple(_between(model, speed, num_nodes) for num_nodes in NUM_NODES)
    return rounded(SyncTimes(0.0, *_local(model, speed), NUM_NODES, nodes, 0.0, GAMMA))


def _noise(model: Transformer, training: Training) -> NoiseScales:
    """Return the noise scale in each stage, from the training or else from the loss."""
    scales = []
    for stage in range(STAGES):
        scale = training.noise_scale
        if scale is None:
            tokens = (stage + 0.5) / STAGES * training.tokens
            loss = training.loss or loss_after(model.params, tokens, training.batch * model.seq)
            scale = critical_batch(loss) / model.seq
        scales.append((scale,))
    return rounded(NoiseScales(tuple(range(1, STAGES + 1)), (training.batch,), tuple(scales)))


def _other(model: Transformer, most: int, gpu: GpuType, speed: Speed) -> OtherType:
    """Return the step time on another GPU type, for up to `most` examples per GPU."""
    alpha_grad, beta_grad = model.pass_times(gpu, speed)
    alpha_local, beta_local = _local(model, speed)
    node = _between(model, speed, NUM_NODES[0])
    figures = map(rounded_figure, (alpha_grad, beta_grad, node, 0.0, alpha_local, beta_local, GAMMA, ERROR))
    return OtherType(most, *figures)
