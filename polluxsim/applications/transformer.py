"""What training a transformer takes, from first principles: operations, memory, bytes to exchange, noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from polluxsim.gpu_types import GpuType

GPUS_PER_NODE = 8
MEMORY_SHARE = 0.9
"""Share of a GPU's memory that the model can have; the rest is the framework's."""
LINK_SHARE = 0.8
"""Share of a link's peak that a ring reaches, about what NCCL's own tests print."""


class Speed(NamedTuple):
    """What the data sheet of a GPU type does not say of it.

    Attributes
    ----------
    utilisation
        Share of its peak in a pass, recomputation counted as work [1].
    link, network
        Peak of its links within a node, and of a node's network, one way [GB/s].
    """

    utilisation: float
    link: float
    network: float


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
    """A transformer, and what of it trains.

    Attributes
    ----------
    params
        N, all parameters.
    seq
        Tokens of an example.
    layers, hidden
        Number and width of the layers.
    vocab
        Words of the output; 0 for one answer to an example, as a class.
    trainable
        Share of the parameters that train: 1, or less with adapters [1].
    recompute
        Whether activations are computed again in the backward pass, which takes a third more time and less memory.
    """

    params: float
    seq: int
    layers: int
    hidden: int
    vocab: int = 50257
    trainable: float = 1.0
    recompute: bool = False

    @property
    def flops(self) -> float:
        """Return the operations of a pass over one example, forward and backward [FLOP].

        A token takes 2 N forward, as much for the gradient of activations and of weights, and attention over all tokens
        4 L s h, twice that backward. Source: Kaplan et al. 2020, §2.1; Narayanan et al., SC '21, appendix.
        """
        dense, attention = 2 * self.params, 4 * self.layers * self.seq * self.hidden
        again = dense + attention if self.recompute else 0.0
        return self.seq * (dense * (2 + self.trainable) + 3 * attention + again)

    @property
    def states(self) -> float:
        """Return the memory of weights, gradients and Adam's states, 16 bytes each where they train, else 2 [bytes].

        Source: ZeRO (Rajbhandari et al. 2020), §3.1.
        """
        return self.params * (16 * self.trainable + 2 * (1 - self.trainable))

    @property
    def activations(self) -> float:
        """Return the memory of one example's activations, with fused attention, and of its logits [bytes].

        Source: Korthikanti et al. 2022, §4.1: 34 s h a layer; recomputed, 2 s h a layer and 34 s h once.
        """
        per_token = self.hidden * (2 * self.layers + 34 if self.recompute else 34 * self.layers)
        return float(self.seq * (per_token + 6 * self.vocab))

    def most_examples(self, gpu: GpuType) -> int:
        """Return the examples that fit a GPU's memory in a pass; 0 where the model does not fit."""
        return max(int((MEMORY_SHARE * gpu.memory * 1e9 - self.states) // self.activations), 0)

    def pass_times(self, gpu: GpuType, speed: Speed) -> tuple[float, float]:
        """Return the time of a pass, its constant part and that per example [s; s].

        The constant part is the optimiser's: Adam moves 28 bytes of each parameter that trains.
        """
        constant = 28 * self.trainable * self.params / (gpu.bandwidth * 1e9)
        return constant, self.flops / (speed.utilisation * gpu.peak * 1e12)

    def all_reduce(self, num_replicas: int, bandwidth: float) -> float:
        """Return the time to add up gradients of two bytes in a ring over links of so many GB/s [s].

        Each GPU sends them 2 (K − 1) / K times. Source: Patarasuk and Yuan 2009.
        """
        sent = 2 * (num_replicas - 1) / num_replicas * 2 * self.trainable * self.params
        return sent / (LINK_SHARE * bandwidth * 1e9)


def depth_and_width(params: float) -> tuple[int, int]:
    """Return layers and width of a model of so many parameters (12 L h²), 128 times as wide as deep.

    So are the larger models of GPT-3 (Brown et al. 2020, table 2.1); the ratio matters little (Kaplan et al. 2020).

    >>> depth_and_width(175e9)
    (96, 12288)
    """
    layers = max(round((params / (12 * 128**2)) ** (1 / 3)), 1)
    return layers, 128 * layers


def critical_batch(loss: float) -> float:
    """Return the critical batch size at a loss, 2.1·10⁸ L^(−1/0.21), which the noise scale is near to [tokens].

    Source: Kaplan et al. 2020, equation 1.4, table 3; McCandlish et al. 2018.
    """
    return float(2.1e8 * loss ** (-1 / 0.21))


def loss_after(params: float, tokens: float, batch: float) -> float:
    """Return the loss after so many tokens at a batch size [nats a token; tokens].

    It is (6.5·10¹³/N)^0.077 + (2100/S)^0.76, where S = tokens / (batch + critical batch) is what the steps are worth.
    Source: Kaplan et al. 2020, equations 1.6 and 5.4, table 3.
    """
    low, high = 0.0, 100.0
    for _ in range(100):  # the loss falls with the steps, and these with a lower loss: they meet once
        middle = (low + high) / 2
        steps = tokens / (batch + critical_batch(middle))
        if (6.5e13 / params) ** 0.077 + (2.1e3 / steps) ** 0.76 > middle:
            low = middle
        else:
            high = middle
    return high
