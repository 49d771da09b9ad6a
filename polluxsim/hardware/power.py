"""Electric power of GPU types; each figure has its source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple


class Power(NamedTuple):
    """Electric power of one GPU [W]."""

    idle: float  # without a job
    peak: float  # largest power, as its data sheet states it

    def busy(self, share: float) -> float:
        """Return the power of a GPU with a job, at a share of the range from idle to peak power [W].

        >>> Power(70.0, 700.0).busy(0.5)
        385.0
        """
        return self.idle + share * (self.peak - self.idle)


# Peak: board power in NVIDIA's data sheets, which `polluxsim.hardware.gpu_types` names. Idle: data sheets state none.
# The figures are readings of nvidia-smi on GPUs without a process, from outputs that users published. Readings of
# equal GPUs differ by some 10 W.
POWER: Mapping[str, Power] = {
    "k80": Power(27, 150),  # half of a board with 300 W; nvidia-smi: 27 W / 149 W
    "v100": Power(40, 300),  # SXM2; 40 W / 300 W
    "v100-32": Power(40, 300),  # SXM2; as v100
    "t4": Power(9, 70),  # 9 W / 70 W
    "rtx2080ti": Power(19, 250),  # reference card; 19 W / 250 W
    "a10": Power(17, 150),  # 17 W / 150 W
    "a100-40": Power(44, 400),  # SXM4; 44 W / 400 W
    "a100-80": Power(50, 400),  # SXM4; 50 W / 400 W
    "h100": Power(69, 700),  # SXM5; 69 W / 700 W
    "h200": Power(74, 700),  # SXM; mean of readings of idle GPUs, 73.65 W
    "b200": Power(141, 1000),  # HGX; 141 W / 1000 W
}
"""Power by GPU type. The other types have no reading without a process, so that a user must state theirs."""

_STATED = re.compile(r"(?P<name>[^=]+)=(?P<idle>\d+(?:\.\d+)?):(?P<peak>\d+(?:\.\d+)?)", re.ASCII)


def read_power(text: str) -> tuple[str, Power] | None:
    """Return the GPU type and the power in a text like h100=70:700 (idle and peak, in W); None for other texts.

    >>> read_power("h100=70:700"), read_power("h100=700:70"), read_power("h100")
    (('h100', Power(idle=70.0, peak=700.0)), None, None)
    """
    match = _STATED.fullmatch(text)
    if match is None:
        return None
    power = Power(float(match["idle"]), float(match["peak"]))
    if not 0 <= power.idle <= power.peak or power.peak == 0:
        return None
    return match["name"], power
