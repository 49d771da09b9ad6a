"""Values that the overrides of a sweep stand for: all combinations of them, or a space in which a search chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, product
from math import prod
from typing import Any

from hydra.core.override_parser.types import Override, QuotedString, Transformer
from hydra.errors import ConfigCompositionException

from polluxsim.common.errors import InvalidConfigError
from polluxsim.run.configurations import has_settings, is_group
from polluxsim.run.spec import Choices, Interval

MOST_RUNS = 1_000_000  # largest number of runs of a sweep, to catch errors in ranges


def combinations(overrides: Sequence[Override]) -> list[tuple[str, ...]]:
    """Return the overrides of each run, the last ones changing fastest; of a setting given twice, the last counts.

    Raise InvalidConfigError if there are more than `MOST_RUNS`, and ConfigCompositionException for an interval.
    """
    choices_by_setting: dict[str, list[str]] = {}
    for override in overrides:
        choices_by_setting[override.get_key_element()] = _some_single_values(override)
    # Before the product is made, which would fill the memory.
    check_size(prod(map(len, choices_by_setting.values())))
    return list(product(*choices_by_setting.values()))


def check_size(num_runs: int) -> None:
    """Raise InvalidConfigError if a sweep has too many runs."""
    if num_runs > MOST_RUNS:
        raise InvalidConfigError(f"the sweep has more than {MOST_RUNS} runs, must have at most {MOST_RUNS}")


def _some_single_values(override: Override) -> list[str]:
    """Return an override for each value of an override, but only one more than a sweep may have.

    So a mistaken range like `range(0,1,1e-12)` does not fill the memory, and `check_size` still notices it.
    """
    return list(islice(_single_values(override), MOST_RUNS + 1))


def _single_values(override: Override) -> Iterator[str]:
    """Yield an override for each value of an override."""
    name = override.get_key_element()
    # `as_hydra_takes` made ~GROUP of GROUP=null; the table of the sweep has what the user wrote.
    if override.is_delete() and is_group(override.key_or_group):
        yield f"{override.key_or_group}=null"
        return
    if not override.is_sweep_override():
        yield f"{name}={override.get_value_element_as_str()}"
        return
    if not override.is_discrete_sweep():
        raise ConfigCompositionException(f"{override.input_line}: an interval, must be values, range(…) or glob(…)")
    text_of: Callable[[Any], str] = Transformer.str
    if name == "policy":
        text_of = _as_policy
    for value in override.sweep_iterator(text_of):
        yield f"{name}={value}"


def _as_policy(value: Any) -> str:
    """Return a policy as its user wrote it, without the quotes that `as_hydra_takes` put around one with settings."""
    if isinstance(value, QuotedString) and has_settings(value.text):
        return value.text
    return Transformer.str(value)


def search_space(overrides: Sequence[Override]) -> tuple[list[str], dict[str, Choices | Interval]]:
    """Return the overrides that all trials of a search have, and the values among which it chooses, by setting.

    Of a setting that is given twice, the last counts. Raise InvalidConfigError if there is nothing to choose.
    """
    last_overrides = {override.get_key_element(): override for override in overrides}
    fixed: list[str] = []
    space: dict[str, Choices | Interval] = {}
    for name, override in last_overrides.items():
        if not override.is_sweep_override():
            fixed += _single_values(override)
        elif override.is_interval_sweep():
            space[name] = _interval(override)
        else:
            single_values = _some_single_values(override)
            check_size(len(single_values))
            space[name] = Choices(tuple(value.removeprefix(f"{name}=") for value in single_values))
    if not space:
        raise InvalidConfigError(
            "the search has no values to choose among; give some, as in 'policy.p=interval(-10,1)' or policy.p=-1,-10"
        )
    return fixed, space


def _interval(override: Override) -> Interval:
    """Return the values between the ends of `interval(…)`, which are whole numbers in `int(interval(…))`.

    Raise InvalidConfigError if there are none, or logarithms of an end do not exist.
    """
    sweep: Any = override.value()
    # Hydra makes floats of the ends of an interval, also of 1 and 10, unless `int` surrounds it.
    is_whole = isinstance(sweep.start, int) and isinstance(sweep.end, int)
    if not sweep.start < sweep.end:
        raise InvalidConfigError(f"{override.input_line}: the interval is empty; give the smaller end first")
    is_logarithmic = "log" in sweep.tags
    if is_logarithmic and sweep.start <= 0:
        raise InvalidConfigError(f"{override.input_line}: a logarithmic interval must begin above 0")
    return Interval(sweep.start, sweep.end, is_whole=is_whole, is_logarithmic=is_logarithmic)
