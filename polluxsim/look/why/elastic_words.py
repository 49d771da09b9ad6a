"""What decides about jobs whose number of GPUs is the policy's choice: gains, shares, leases and plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.durations import clock
from polluxsim.look.why.phrases import listed, number_of, place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polluxsim.look.why.phrases import Sentence


def _no_gpu_left(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return (
        f"Every job gets a first GPU in order of submission; it is number {numbers['position']:g}, and there are "
        f"{number_of(numbers['num_gpus'], 'GPU')}."
    )


def _gain_too_small(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    more = f"one GPU more would save it {clock(numbers['next_gain'])}"
    speed = "By its true speed"
    if "steps_left" in numbers:
        speed = f"By its own log, some {numbers['steps_left']:.0f} steps to go,"
    if "last_gain" in numbers:
        more = f"its last GPU saves it {clock(numbers['last_gain'])}, {more}"
    if not others:
        return f"Every job has one GPU and none is left; {more}."
    return f"{speed} {more}; the last GPU went to {others[0]}, which it saves {clock(numbers['winning_gain'])}."


def _loss_reduction(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    last = f"; the last GPU went to {others[0]}" if others else ""
    return (
        f"It gets {number_of(numbers['gpus'], 'GPU')}: its loss is expected to fall by {numbers['reduction']:.2g} of "
        f"its largest fall in an epoch, and by {numbers['reduction_more']:.2g} more with one more{last}."
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
    return f"{place(numbers)}; of the {number_of(numbers['gpus_left'], 'GPU')} left when its turn came it {gets}."


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


def _configurations(numbers: Mapping[str, float]) -> dict[str, tuple[str, float]]:
    """Return the configurations that a reason of Sia's names, as GPUs of a type, each with its worth."""
    said = {name.partition(" "): worth for name, worth in numbers.items() if " " in name}
    return {role: (gpus, worth) for (role, _, gpus), worth in said.items()}


def _best_configuration(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    gpus, worth = _configurations(numbers)["has"]
    return f"It has {gpus}, {worth:.3g} times its slowest configuration: none that it may have now is worth more."


def _lost_configuration(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    known = _configurations(numbers)
    best, worth = known["best"]
    has = "It has no GPUs"
    if "has" in known:
        has = f"It has {known['has'][0]}, {known['has'][1]:.3g} times its slowest configuration"
    lost = f", held by {listed(others)} among others" if others else ""
    return (
        f"{has}. {best} would be worth {worth:.3g}, {numbers['saving']:.2f} less in the sum of costs, and lost: the "
        f"other jobs together save more with GPUs of this type{lost}."
    )


def _no_configuration(numbers: Mapping[str, float], others: Sequence[str]) -> str:
    return "There is no configuration that it may have now."


OF_ELASTIC: Mapping[str, Sentence] = {
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
    "loss-reduction": _loss_reduction,
    "at-limit": _at_limit,
    "no-gain": _no_gain,
    "restart-penalty": _restart_penalty,
    "cluster-full": _cluster_full,
    "gpus-left": _gpus_left,
    "best-configuration": _best_configuration,
    "lost-configuration": _lost_configuration,
    "no-configuration": _no_configuration,
}
