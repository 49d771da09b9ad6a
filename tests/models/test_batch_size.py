from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polluxsim.common.errors import InvalidConfigError
from polluxsim.hardware.placements import BatchChoice
from polluxsim.models.batch_size import split_batch_size
from polluxsim.models.profile import Application

CIFAR10 = Application("cifar10", 128, 4096, 32, 1024, 100)
YOLOV3 = Application("yolov3", 8, 512, 4, 8, 50)
NCF = Application("ncf", 256, 32768, 32, 32768, 10)


@given(st.sampled_from([CIFAR10, YOLOV3, NCF]), st.data())
def test_a_split_covers_the_batch_within_all_limits(application: Application, data: st.DataObject) -> None:
    batch_size = data.draw(st.integers(application.init_batch_size, application.max_batch_size))
    replicas = data.draw(st.integers(1, application.most_replicas(batch_size)))
    choice = split_batch_size(application, batch_size, replicas)
    passes = replicas * (choice.accumulation_steps + 1)
    assert 1 <= choice.atomic_batch_size <= application.max_atomic_batch_size
    assert choice.batch_size(replicas) <= application.max_batch_size
    # Rounded up to whole examples on each GPU, unless that was too much in all.
    assert choice.batch_size(replicas) > batch_size - passes
    assert choice.batch_size(replicas) < batch_size + passes


@pytest.mark.parametrize(
    ("application", "batch_size", "replicas", "expected"),
    [
        (NCF, 32768, 1, BatchChoice(16384, 1)),  # one GPU accumulates, to measure the noise scale
        (CIFAR10, 128, 1, BatchChoice(128, 0)),  # but not at the initial batch size
        (CIFAR10, 4096, 2, BatchChoice(1024, 1)),  # the GPU's memory asks for two passes
        (CIFAR10, 2048, 6, BatchChoice(342, 0)),  # 341.33 is rounded up
        (CIFAR10, 4096, 3, BatchChoice(682, 1)),  # 683·2·3 would be more than 4096
        (YOLOV3, 64, 4, BatchChoice(8, 1)),
    ],
)
def test_known_splits(application: Application, batch_size: int, replicas: int, expected: BatchChoice) -> None:
    assert split_batch_size(application, batch_size, replicas) == expected


@given(st.integers(1, 100), st.integers(1, 100), st.integers(1, 4), st.booleans())
def test_each_gpu_has_an_example_in_each_pass(batch_size: int, replicas: int, memory: int, alone: bool) -> None:
    application = Application("small", 1, batch_size, 1, memory, 1)
    choice = split_batch_size(application, batch_size, replicas, accumulate_alone=alone)
    assert 1 <= choice.atomic_batch_size <= memory
    assert choice.batch_size(replicas) <= max(batch_size, replicas)


def test_a_fixed_batch_size_is_within_the_limits() -> None:
    for wrong in (127, 4097):
        with pytest.raises(InvalidConfigError, match=f"fixed batch size {wrong}, must be from 128 to 4096"):
            Application("a", 128, 4096, 32, 1024, 1, fixed_batch_size=wrong)
