"""What decides about jobs that get all their GPUs or none: orders, reservations and quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.durations import clock
from polluxsim.look.why.phrases import listed, number_of, place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.look.why.phrases import Sentence


def _fits(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    needed = number_of(numbers["gpus_needed"], "GPU")
    return f"{place(numbers)}; it needs {needed}, and {numbers['gpus_left']:g} were left when its turn came."


def _does_not_fit(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    ahead = f": just ahead of it {listed(others)}" if others else ""
    needed = number_of(numbers["gpus_needed"], "GPU")
    left = "none" if not numbers["gpus_left"] else f"only {numbers['gpus_left']:g}"
    return f"{place(numbers)}; it needs {needed} at once, and those ahead left {left}{ahead}."


def _behind_head(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    head = number_of(numbers["head_gpus_needed"], "GPU")
    return (
        f"{place(numbers)}; {others[0]}, ahead of it, needs {head} where {numbers['gpus_left']:g} are left, and "
        f"nobody may pass it (this job needs {numbers['gpus_needed']:g})."
    )


def _runs_on(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return "It runs, and nobody is preempted."


def _reserved(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    needed, left = number_of(numbers["gpus_needed"], "GPU"), numbers["gpus_left"]
    return f"{place(numbers)}; it needs {needed} where {left:g} are free, and is the first to wait: {_until(numbers)}."


def _until(numbers: Mapping[str, float]) -> str:
    if "reserved_time" not in numbers:
        return "by the time limits of those that run, there will never be enough"
    return f"by the time limits of those that run, it starts at {clock(numbers['reserved_time'])} at the latest"


def _backfilled(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    left = number_of(numbers["gpus_left"], "GPU")
    needed = f"{numbers['gpus_needed']:g}"
    return f"{place(numbers)}; of the {left} left it may have its {needed}, as that does not delay {others[0]}."


def _would_delay(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    due = f", which is to start at {clock(numbers['reserved_time'])}" if "reserved_time" in numbers else ""
    needed, left = number_of(numbers["gpus_needed"], "GPU"), f"{numbers['gpus_left']:g}"
    would = f"by its time limit it would delay {others[0]}{due}"
    return f"{place(numbers)}; it needs {needed} where {left} are left, but {would}."


def _starts_now(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return f"Its reservation of {number_of(numbers['gpus_needed'], 'GPU')} begins now."


def _starts_by(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return (
        f"It has a reservation: it needs {number_of(numbers['gpus_needed'], 'GPU')} where {numbers['gpus_left']:g} are "
        f"free, and {_until(numbers)}."
    )


def _planned(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    rounds = number_of(numbers["rounds"], "more round")
    return f"The plan gives it {rounds} of this window, this one among them; {_due(numbers)}."


def _spare(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return f"It is not in the plan for this round, and takes GPUs that the plan leaves over; {_due(numbers)}."


def _later(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    rounds = number_of(numbers["rounds"], "more round")
    return f"The plan gives it {rounds} of this window, but not this one; {_due(numbers)}."


def _due(numbers: Mapping[str, float]) -> str:
    late = f", and is late: its utility counts {numbers['weight']:.3g} times" if numbers["weight"] > 1 else ""
    return f"it is expected to train for another {clock(numbers['remaining_time'])}{late}"


def _awaits_shares(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return f"It came after shares were last computed, which they are again at {clock(numbers['shares_due'])} or later."


def _worth(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    gpus = number_of(numbers["gpus_needed"], "GPU")
    return f"Its utility is {numbers['worth']:.3g} times what its {gpus} cost when its turn came."


def _not_worth(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return f"{_worth(numbers, others)} It waits for lower prices."


def _passed_over(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return f"{_worth(numbers, others)} It is passed over, as others make more of what it leaves them."


def _quota(numbers: Mapping[str, float]) -> str:
    return f"its queue now has {number_of(numbers['queue_gpus'], 'GPU')}, with a quota of {numbers['quota']:g}"


def _within_quota(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return f"It needs {number_of(numbers['gpus_needed'], 'GPU')}, which were within the quota; {_quota(numbers)}."


def _borrows(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return f"It borrows {number_of(numbers['gpus_needed'], 'GPU')} that other queues leave idle; {_quota(numbers)}."


def _reclaimed(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return f"Its GPUs were borrowed, and {others[0]}, within the quota of its own queue, takes them; {_quota(numbers)}."


def _no_quota_left(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    needed, free = number_of(numbers["gpus_needed"], "GPU"), numbers["gpus_free"]
    return f"It needs {needed}, and {free:g} are idle; {_quota(numbers)}."


OF_GANGS: Mapping[str, Sentence] = {
    "gang-fits": _fits,
    "gang-does-not-fit": _does_not_fit,
    "behind-head-of-line": _behind_head,
    "runs-on": _runs_on,
    "reserved": _reserved,
    "backfilled": _backfilled,
    "would-delay": _would_delay,
    "starts-by": _starts_by,
    "starts-now": _starts_now,
    "awaits-shares": _awaits_shares,
    "market-planned": _planned,
    "market-spare": _spare,
    "market-later": _later,
    "worth-its-price": _worth,
    "not-worth-its-price": _not_worth,
    "passed-over": _passed_over,
    "within-quota": _within_quota,
    "borrows": _borrows,
    "reclaimed": _reclaimed,
    "no-quota-left": _no_quota_left,
}
