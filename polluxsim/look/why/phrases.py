"""Parts of sentences about what decided: counts, lists, and where a job stands in the order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.durations import HOUR, clock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Sentence = Callable[[Mapping[str, float], Sequence[str]], str]


def number_of(count: float, thing: str) -> str:
    """Return a count with its noun.

    >>> number_of(1, "GPU"), number_of(12.0, "job")
    ('1 GPU', '12 jobs')
    """
    return f"{count:g} {thing}{'' if count == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """Return names as one says them."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def place(numbers: Mapping[str, float]) -> str:
    """Return where a job stands in the order, and why there."""
    said = [words(numbers) for name, words in _STANDING.items() if name in numbers]
    return ", ".join([f"It is number {numbers['position']:g} in the order", *filter(None, said)])


def _queue(numbers: Mapping[str, float]) -> str:
    if "queues" in numbers:
        until = "nowhere" if "queue_threshold" not in numbers else f"{gpu_hours(numbers['queue_threshold'])} GPU-hours"
        return f"in queue {numbers['queue']:g} of {numbers['queues']:g}, which ends at {until}"
    queue = "first" if numbers["queue"] == 1 else "second"
    attained, most = (numbers[name] / HOUR for name in ("attained_service", "queue_threshold"))
    return f"in the {queue} queue with {attained:.1f} GPU-hours attained (the first queue ends at {most:g})"


def _attained(numbers: Mapping[str, float]) -> str:
    told = "queue" in numbers and "queues" not in numbers
    return "" if told else f"with {gpu_hours(numbers['attained_service'])} GPU-hours attained"


def gpu_hours(service: float) -> str:
    """Return a service in GPU-hours [GPU s]."""
    return f"{service / HOUR:.3g}"


_STANDING: dict[str, Callable[[Mapping[str, float]], str]] = {
    "queue": _queue,
    "attained_service": _attained,
    "remaining_time": lambda numbers: f"with {clock(numbers['remaining_time'])} left to run on its GPUs",
    "remaining_service": lambda numbers: f"with {gpu_hours(numbers['remaining_service'])} GPU-hours left to run",
    "expected_service": lambda numbers: f"with {gpu_hours(numbers['expected_service'])} GPU-hours to expect of it",
    "gittins_index": lambda numbers: (
        f"with a chance of {_per_gpu_hour(numbers['gittins_index']):.3g} to end per GPU-hour, by the jobs before it"
    ),
    "deadline": lambda numbers: f"with its deadline at {clock(numbers['deadline'])}",
    "virtual_usage": lambda numbers: (
        f"as its queue has had {gpu_hours(numbers['virtual_usage'])} GPU-hours for a weight of one"
    ),
    "multifactor": lambda numbers: f"with a multifactor priority of {numbers['multifactor']:.5g}",
    "time_share": lambda numbers: (
        f"with a share of {numbers['time_share']:.3g} of the time, and {clock(numbers['time_had'])} of it had"
    ),
    "group_jobs": lambda numbers: (
        f"among {number_of(numbers['group_jobs'], 'job')} that can use the same {numbers['group_gpus']:g} GPUs"
    ),
    "priority": lambda numbers: f"with priority {numbers['priority']:g}",
}
"""What may be said of a job that waits for its turn, by the figure that it is about."""


def _per_gpu_hour(index: float) -> float:
    return index * HOUR
