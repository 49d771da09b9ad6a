"""Values of the figures of batch sizes."""

from __future__ import annotations

import numpy as np
import pytest

from polluxsim.applications.folder import ProfileFolder
from polluxsim.look.plot.profiles import best_choice, efficiencies, goodput_points, throughput_at

PROFILES = ProfileFolder().load()
FIRST_EPOCH = (0.0, 1e-6)


@pytest.mark.parametrize("name", PROFILES)
def test_the_goodput_of_the_initial_batch_size_is_its_throughput(name: str) -> None:
    initial = PROFILES[name].application.init_batch_size
    size, goodput = goodput_points(PROFILES[name], 1, FIRST_EPOCH)[0]
    assert size == initial
    assert goodput == pytest.approx(throughput_at(PROFILES[name], 1, initial))


@pytest.mark.parametrize("name", ["cifar10", "bert", "yolov3"])
def test_goodput_is_throughput_times_efficiency(name: str) -> None:
    profile = PROFILES[name]
    for size, goodput in goodput_points(profile, 4, FIRST_EPOCH):
        fastest = throughput_at(profile, 4, size)
        assert fastest is not None
        assert goodput <= fastest * efficiencies(profile, size)[0] * (1 + 1e-9)
    sizes, goodputs = zip(*goodput_points(profile, 4, (0.0, 1.0)), strict=True)
    assert np.all(np.diff(sizes) > 0)
    best = best_choice(profile, 4, (0.0, 1.0))
    assert best is not None
    assert sizes[int(np.argmax(goodputs))] == best.batch_size(4)
