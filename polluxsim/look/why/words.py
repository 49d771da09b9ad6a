"""From a reason's kind and figures to a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.durations import HOUR, clock
from polluxsim.records import REASON_UNITS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from polluxsim.records import ReasonRecord

    Sentence = Callable[[Mapping[str, float], Sequence[str]], str]


def number_of(count: float, thing: str) -> str:
    """Return a count with its noun.

    >>> number_of(1, "GPU"), number_of(12.0, "job")
    ('1 GPU', '12 jobs')
    """
    return f"{count:g} {thing}{'' if count == 1 else 's'}"


def sentence(record: ReasonRecord) -> str:
    """Return what a reason says, in a sentence; a kind that is not ours is said as it is."""
    numbers = dict(record.numbers)
    others = tuple("this job itself" if other == record.job else other for other in record.others)
    known = _SENTENCES.get(record.kind)
    if known is not None:
        try:
            return known(numbers, others)
        except KeyError:
            pass  # a guest's own reason, under a name that is one of ours
    return _as_it_is(record.kind, numbers, others)


def _as_it_is(kind: str, numbers: Mapping[str, float], others: Sequence[str]) -> str:
    said = [
        f"{name} = {value:g}{f' {REASON_UNITS[name]}' if name in REASON_UNITS else ''}"
        for name, value in numbers.items()
    ]
    if others:
        said.append(f"jobs {', '.join(others)}")
    return f"the policy says: {kind}" + (f" ({'; '.join(said)})" if said else "") + "."


def _place(numbers: Mapping[str, float]) -> str:
    """Return where a job stands in the order, and why there."""
    said = [words(numbers) for name, words in _STANDING.items() if name in numbers]
    return ", ".join([f"It is number {numbers['position']:g} in the order", *filter(None, said)])


def _queue(numbers: Mapping[str, float]) -> str:
    if "queues" in numbers:
        until = "nowhere" if "queue_threshold" not in numbers else f"{_gpu_hours(numbers['queue_threshold'])} GPU-hours"
        return f"in queue {numbers['queue']:g} of {numbers['queues']:g}, which ends at {until}"
    queue = "first" if numbers["queue"] == 1 else "second"
    attained, most = (numbers[name] / HOUR for name in ("attained_service", "queue_threshold"))
    return f"in the {queue} queue with {attained:.1f} GPU-hours attained (the first queue ends at {most:g})"


def _attained(numbers: Mapping[str, float]) -> str:
    told = "queue" in numbers and "queues" not in numbers
    return "" if told else f"with {_gpu_hours(numbers['attained_service'])} GPU-hours attained"


def _gpu_hours(service: float) -> str:
    return f"{service / HOUR:.3g}"


_STANDING: dict[str, Callable[[Mapping[str, float]], str]] = {
    "queue": _queue,
    "attained_service": _attained,
    "remaining_time": lambda numbers: f"with {clock(numbers['remaining_time'])} left to run on its GPUs",
    "remaining_service": lambda numbers: f"with {_gpu_hours(numbers['remaining_service'])} GPU-hours left to run",
    "expected_service": lambda numbers: f"with {_gpu_hours(numbers['expected_service'])} GPU-hours to expect of it",
    "gittins_index": lambda numbers: (
        f"with a chance of {_per_gpu_hour(numbers['gittins_index']):.3g} to end per GPU-hour, by the jobs before it"
    ),
    "deadline": lambda numbers: f"with its deadline at {clock(numbers['deadline'])}",
    "virtual_usage": lambda numbers: (
        f"as its queue has had {_gpu_hours(numbers['virtual_usage'])} GPU-hours for a weight of one"
    ),
    "multifactor": lambda numbers: f"with a multifactor priority of {numbers['multifactor']:.5g}",
    "priority": lambda numbers: f"with priority {numbers['priority']:g}",
}
"""What may be said of a job that waits for its turn, by the figure that it is about."""


def _per_gpu_hour(index: float) -> float:
    return index * HOUR


def _fits(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    needed = number_of(numbers["gpus_needed"], "GPU")
    return f"{_place(numbers)}; it needs {needed}, and {numbers['gpus_left']:g} were left when its turn came."


def _does_not_fit(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    ahead = f": just ahead of it {_list(others)}" if others else ""
    needed = number_of(numbers["gpus_needed"], "GPU")
    left = "none" if not numbers["gpus_left"] else f"only {numbers['gpus_left']:g}"
    return f"{_place(numbers)}; it needs {needed} at once, and those ahead left {left}{ahead}."


def _behind_head(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    head = number_of(numbers["head_gpus_needed"], "GPU")
    return (
        f"{_place(numbers)}; {others[0]}, ahead of it, needs {head} where {numbers['gpus_left']:g} are left, and "
        f"nobody may pass it (this job needs {numbers['gpus_needed']:g})."
    )


def _runs_on(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return "It runs, and nobody is preempted."


def _reserved(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    needed, left = number_of(numbers["gpus_needed"], "GPU"), numbers["gpus_left"]
    return f"{_place(numbers)}; it needs {needed} where {left:g} are free, and is the first to wait: {_until(numbers)}."


def _until(numbers: Mapping[str, float]) -> str:
    if "reserved_time" not in numbers:
        return "by the time limits of those that run, there will never be enough"
    return f"by the time limits of those that run, it starts at {clock(numbers['reserved_time'])} at the latest"


def _backfilled(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    left = number_of(numbers["gpus_left"], "GPU")
    needed = f"{numbers['gpus_needed']:g}"
    return f"{_place(numbers)}; of the {left} left it may have its {needed}, as that does not delay {others[0]}."


def _would_delay(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    due = f", which is to start at {clock(numbers['reserved_time'])}" if "reserved_time" in numbers else ""
    needed, left = number_of(numbers["gpus_needed"], "GPU"), f"{numbers['gpus_left']:g}"
    would = f"by its time limit it would delay {others[0]}{due}"
    return f"{_place(numbers)}; it needs {needed} where {left} are left, but {would}."


def _starts_now(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return f"Its reservation of {number_of(numbers['gpus_needed'], 'GPU')} begins now."


def _starts_by(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return (
        f"It has a reservation: it needs {number_of(numbers['gpus_needed'], 'GPU')} where {numbers['gpus_left']:g} are "
        f"free, and {_until(numbers)}."
    )


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


def _no_gpu_left(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return (
        f"Every job gets a first GPU in order of submission; it is number {numbers['position']:g}, and there are "
        f"{number_of(numbers['num_gpus'], 'GPU')}."
    )


def _gain_too_small(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    more = f"one GPU more would save it {clock(numbers['next_gain'])}"
    if "last_gain" in numbers:
        more = f"its last GPU saves it {clock(numbers['last_gain'])}, {more}"
    if not others:
        return f"Every job has one GPU and none is left; {more}."
    return (
        f"By its true speed {more}; the last GPU went to {others[0]}, which it saves {clock(numbers['winning_gain'])}."
    )


def _at_limit(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    most = number_of(numbers["max_replicas"], "GPU")
    if "restart_factor" not in numbers:
        return f"It has the {most} that its batch size can be split over."
    explored = numbers["max_replicas"] < numbers.get("application_limit", float("inf"))
    why = "twice as many as it has ever run on" if explored and numbers["max_replicas"] > 1 else "as many as it can use"
    if "application_limit" not in numbers:
        why = "it has not been measured yet"
    return f"It may have {most} at most now: {why}. {_speed(numbers)}"


def _no_gain(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    if "restart_factor" not in numbers:
        return "Another GPU would not shorten it."
    return f"Another GPU would not make it faster. {_speed(numbers)}"


def _restart_penalty(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    if not numbers["gpus"]:
        return (
            f"A GPU now would be worth nothing to it: its restart factor is {numbers['restart_factor']:.2f}, as it is "
            "too young, or was restarted too often for its age."
        )
    left = numbers["worth_more"]
    return f"{_speed(numbers)} A restart for one more is not worth it: the restart factor leaves {left:.2f} of that."


def _cluster_full(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    full = f"{_speed(numbers)} All GPUs are taken, by {number_of(numbers['jobs'], 'job')} in all"
    if not others:
        return f"{full}."
    now, then = numbers["fitness"], numbers["fitness_exchange"]
    change = "raise" if then > now else "lower"
    hindrance = ": nodes or search did not allow for it" if then > now else ""
    return (
        f"{full}; {others[0]} would miss one of its GPUs least, and giving it to this job would {change} the fitness "
        f"from {now:.5g} to {then:.5g}{hindrance}."
    )


def _gpus_left(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    free = numbers["gpus_free"]
    return (
        f"{_speed(numbers)} One more would be worth {numbers['worth_more']:.2f}, and {number_of(free, 'GPU')} "
        f"{'is' if free == 1 else 'are'} free: the search left {'it' if free == 1 else 'them'}, or the rule of one job "
        "across nodes on each node did."
    )


def _speed(numbers: Mapping[str, float]) -> str:
    """Return a Pollux job's speedup at its GPUs and around them; 1 is its speed on a fair share of the cluster."""
    speed = f"Its speedup over a fair share is {numbers['speedup']:.2f}"
    if "speedup_more" in numbers:
        speed += f", {numbers['speedup_more']:.2f} with one GPU more"
    if "speedup_fewer" in numbers:
        speed += f", {numbers['speedup_fewer']:.2f} with one fewer"
    return f"{speed}; restart factor {numbers['restart_factor']:.2f}."


def _proportional_share(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return (
        f"It gets {number_of(numbers['gpus'], 'GPU')}: its user asked for {numbers['gpus_needed']:g}, which comes to "
        f"{numbers['fair_share']:.2f} in proportion, and it can use {numbers['max_replicas']:g}."
    )


def _won_against(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    last = f"; the last GPU went to {others[0]}, by what it gains and has left" if others else ""
    left = clock(numbers["remaining_time"])
    return f"It won {number_of(numbers['gpus'], 'GPU')} against the others, with {left} left on them{last}."


def _leased(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    rho = f", with which it would end at {numbers['rho']:.2f} times its fair time" if "rho" in numbers else ""
    return f"It has {number_of(numbers['gpus'], 'GPU')} on lease until {clock(numbers['lease_end'])}{rho}."


def _outbid(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    rho = f"; a lease later it would end at {numbers['rho']:.2f} times its fair time" if "rho" in numbers else ""
    return f"Others who are worse off, or gain more, have the GPUs on lease{rho}."


def _largest_sum(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    more = f", and {numbers['speedup_more']:.2f} with one more" if "speedup_more" in numbers else ""
    speedup = f"its speedup over its least GPUs is {numbers['speedup']:.2f}{more}"
    return f"It gets {number_of(numbers['gpus'], 'GPU')}, as all speedups add up to most so: {speedup}."


def _no_least_left(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return f"It waits: those before it leave {number_of(numbers['gpus_left'], 'GPU')}, fewer than it needs at least."


def _most_it_can_use(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    gpus, most = numbers["gpus"], numbers["max_replicas"]
    gets = f"gets {gpus:g}, as many as it can use (at most {most:g})" if gpus else "can use none"
    return f"{_place(numbers)}; of the {number_of(numbers['gpus_left'], 'GPU')} left when its turn came it {gets}."


def _planned(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    due = f"to meet its deadline at {clock(numbers['deadline'])}" if "deadline" in numbers else "without a deadline"
    if "planned_end" not in numbers:
        return f"It was admitted {due}, and waits until GPUs are to spare."
    end = clock(numbers["planned_end"])
    return (
        f"It was admitted {due}: by the plan it has {number_of(numbers['gpus'], 'GPU')} now and is complete at {end}."
    )


def _planned_late(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return (
        f"It is slower than believed and will miss its deadline at {clock(numbers['deadline'])}: it has "
        f"{number_of(numbers['gpus'], 'GPU')} of what the others leave."
    )


def _not_admitted(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    end, due = clock(numbers["planned_end"]), clock(numbers["deadline"])
    if numbers["planned_end"] > numbers["deadline"]:
        return f"It is not admitted: even alone it would be complete at {end} only, after its deadline at {due}."
    return f"It is not admitted: no plan keeps its deadline at {due} and those of all jobs that are admitted."


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


_SENTENCES: dict[str, Sentence] = {
    "gang-fits": _fits,
    "gang-does-not-fit": _does_not_fit,
    "behind-head-of-line": _behind_head,
    "runs-on": _runs_on,
    "reserved": _reserved,
    "backfilled": _backfilled,
    "would-delay": _would_delay,
    "starts-by": _starts_by,
    "starts-now": _starts_now,
    "within-quota": _within_quota,
    "borrows": _borrows,
    "reclaimed": _reclaimed,
    "no-quota-left": _no_quota_left,
    "proportional-share": _proportional_share,
    "won-against": _won_against,
    "leased": _leased,
    "outbid": _outbid,
    "largest-sum": _largest_sum,
    "no-least-left": _no_least_left,
    "most-it-can-use": _most_it_can_use,
    "planned": _planned,
    "planned-late": _planned_late,
    "not-admitted": _not_admitted,
    "no-gpu-left": _no_gpu_left,
    "gain-too-small": _gain_too_small,
    "at-limit": _at_limit,
    "no-gain": _no_gain,
    "restart-penalty": _restart_penalty,
    "cluster-full": _cluster_full,
    "gpus-left": _gpus_left,
}
