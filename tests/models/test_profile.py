"""The overlap of computing and synchronising: profiles' plain formula and the compiled one are one."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import example, given
from hypothesis import strategies as st

from polluxsim.models.profile import overlapped
from polluxsim.models.throughput import ThroughputParams, step_time

seconds = st.floats(1e-7, 1e4)


@given(seconds, seconds, st.floats(1.0, 10.0))
@example(3.0, 4.0, 2.0)
def test_plain_and_compiled_give_the_same_bits(grad: float, sync: float, gamma: float) -> None:
    params = ThroughputParams(grad, 0.0, 0.0, 0.0, sync, 0.0, gamma)
    assert step_time(params, 1, 2, 1.0, 0.0) == overlapped(grad, sync, gamma)


def test_reading_cards_loads_no_compiler() -> None:
    code = "import sys, polluxsim.applications.folder as f; f.ProfileFolder().load(); sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
