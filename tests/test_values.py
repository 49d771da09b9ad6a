"""What classes declare about the values of their settings is checked when an object is made."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, nan
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from docstrings import plain as plain_expression
from docstrings import with_values
from griffe import visit

import polluxsim
from polluxsim.common.errors import InvalidConfigError
from polluxsim.common.values import (
    FiniteFloat,
    NonNegativeInt,
    OneOf,
    OtherThan,
    PositiveFloat,
    PositiveInt,
    PositiveShare,
    Range,
    Share,
    check,
    declared_values,
    plain,
)
from polluxsim.common.written import Name, Seconds, takes_settings

if TYPE_CHECKING:
    from pathlib import PurePath


class Even:
    """A declaration of a user."""

    def must_be(self, value: Any, types: tuple[Any, ...]) -> str:
        return "" if value % 2 == 0 else "an even number"


@takes_settings("policy")
@dataclass
class Mine:
    size: PositiveInt = 1
    path: PurePath | None = None  # a type that is not imported when the program runs
    every: Annotated[Seconds, Range(above=0, most=86400)] | str = "epoch"
    weights: Mapping[Name, PositiveFloat | Mapping[Name, PositiveFloat]] = field(default_factory=dict)
    words: Sequence[Annotated[str, OneOf("first", "last")]] | None = None
    least: NonNegativeInt = 0
    pairs: Annotated[int, Even()] = 2

    def __post_init__(self) -> None:
        if self.least > self.size:
            raise InvalidConfigError("least is above size")


@dataclass
class Derived(Mine):
    size: Annotated[int, Range(least=5)] = 5
    rate: Share = 0.5


class Plain:
    @takes_settings("policy")
    def __init__(self, share: Share | None = None, *, rule: Annotated[str, OneOf("a", "b")] = "a") -> None:
        self.share, self.rule = share, rule


@takes_settings("{} of the search")
def drawn(count: Annotated[int, Range(least=1, most=9)], time: Seconds = 1.0) -> tuple[int, float]:
    return count, time


@takes_settings("engine")
@dataclass(frozen=True)
class WithoutPostInit:
    rate: PositiveFloat = 1.0


@dataclass(frozen=True)
class DerivedWithoutPostInit(WithoutPostInit):
    other: PositiveFloat = 1.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mine(0), "policy.size is 0, must be a whole number ≥ 1"),
        (lambda: Mine(size=2.0), "policy.size is 2.0, must be a whole number ≥ 1"),  # type: ignore[arg-type]
        (lambda: Mine(size=True), "policy.size is True, must be a whole number ≥ 1"),
        (lambda: Mine(size=None), "policy.size is None, must be a whole number ≥ 1"),  # type: ignore[arg-type]
        (lambda: Mine(every="0s"), "policy.every is 0, must be a number > 0 and ≤ 86400"),
        (lambda: Mine(every=1e6), "policy.every is 1e+06, must be a number > 0 and ≤ 86400"),
        (lambda: Mine(weights={"a": -1}), "policy.weights.a is -1, must be a finite number > 0"),
        (lambda: Mine(weights={"a": {"t4": inf}}), "policy.weights.a.t4 is inf, must be a finite number > 0"),
        (
            lambda: Mine(words=["first", "lost"]),
            "policy.words[1] is 'lost', must be one of first, last; did you mean last?",
        ),
        (lambda: Mine(pairs=3), "policy.pairs is 3, must be an even number"),
        (lambda: Mine(least=-1, size=0), "policy.size is 0, must be a whole number ≥ 1"),
        (lambda: Mine(least=2), "least is above size"),
        (lambda: Derived(4), "policy.size is 4, must be a whole number ≥ 5"),
        (lambda: Derived(rate=2), "policy.rate is 2, must be a number from 0 to 1"),
        (lambda: Plain(1.5), "policy.share is 1.5, must be a number from 0 to 1, or null"),
        (lambda: Plain(rule="c"), "policy.rule is 'c', must be one of a, b"),
        (lambda: drawn(10), "count of the search is 10, must be a whole number from 1 to 9"),
        (lambda: WithoutPostInit(0.0), "engine.rate is 0, must be a finite number > 0"),
        (lambda: DerivedWithoutPostInit(0.0), "engine.rate is 0, must be a finite number > 0"),
        (lambda: DerivedWithoutPostInit(other=nan), "engine.other is nan, must be a finite number > 0"),
    ],
)
def test_a_wrong_value_is_named_when_the_object_is_made(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        make()
    assert str(caught.value) == message


def test_right_values_and_units_are_taken() -> None:
    assert Mine(3, every="1h", weights={1001: 2.0}) == Mine(3, None, 3600.0, {"1001": 2.0})  # type: ignore[dict-item]
    assert Mine(words=["first"]).words == ["first"]
    assert Plain().share is None
    assert drawn(9, "1min") == (9, 60.0)  # type: ignore[arg-type]
    assert Derived(6).size == 6


@pytest.mark.parametrize(
    ("value", "declared", "requirement"),
    [
        (inf, Annotated[float, Range(above=0, most=inf)], ""),
        (0, Annotated[float, Range(above=0, most=inf)], "a number > 0"),
        (1.0, Annotated[float, Range(least=0, below=1)], "a number in [0, 1)"),
        (0.999, Annotated[float, Range(least=0, below=1)], ""),
        (nan, FiniteFloat, "a finite number"),
        ("1", FiniteFloat, "a finite number"),
        (0, Annotated[float, OtherThan(0)], "a finite number other than 0"),
        (-1, Annotated[float, OtherThan(0)], ""),
        (0, PositiveShare, "a number > 0 and ≤ 1"),
        (None, Annotated[int | None, Range(least=1)], ""),
        (0, Annotated[int | None, Range(least=1)], "a whole number ≥ 1, or null"),
    ],
)
def test_each_declaration_says_what_a_value_must_be(value: object, declared: Any, requirement: str) -> None:
    if not requirement:
        check("a.b", value, declared)
        return
    with pytest.raises(InvalidConfigError, match=r"^a\.b is ") as caught:
        check("a.b", value, declared)
    assert str(caught.value).endswith(f", must be {requirement}")


def test_a_declaration_that_is_not_imported_is_an_error() -> None:
    @takes_settings("policy")
    class Lost:
        def __init__(self, size: Annotated[UnknownInt, Range(least=1)] = 1) -> None:  # type: ignore[name-defined]  # noqa: F821
            pass

    with pytest.raises(TypeError, match=r"declares size as .*name 'UnknownInt' is not defined"):
        Lost()


def test_each_class_with_declarations_checks_them() -> None:
    """The annotation alone checks nothing: each class needs the decorator, its own or that of a base."""
    unchecked = set()
    declaring = 0
    for module in pkgutil.walk_packages(polluxsim.__path__, "polluxsim."):
        if module.name.endswith("__main__"):
            continue
        for kind in vars(importlib.import_module(module.name)).values():
            if not inspect.isclass(kind) or kind.__module__ != module.name:
                continue
            names = declared_values(kind) or declared_values(inspect.unwrap(kind.__init__))
            declaring += bool(names)
            methods = (kind.__init__, getattr(kind, "__post_init__", None))
            places = {method.__code__.co_filename for method in methods if hasattr(method, "__code__")}
            if names and not any(place.endswith("written.py") for place in places):
                unchecked.add(kind.__qualname__)
    assert unchecked == set()
    assert declaring > 40


def test_annotations_are_read_without_declarations() -> None:
    nested = "Mapping[Name, Annotated[Seconds, Range(least=0)] | Mapping[Name, PositiveInt]] | None"
    assert plain(nested) == "Mapping[Name, Seconds | Mapping[Name, int]] | None"
    assert plain("typing.Annotated[str, OneOf('Annotated[int]')]") == "str"


def test_the_reference_shows_types_and_what_values_must_be() -> None:
    source = "class A:\n    a: Mapping[Name, Annotated[Seconds, Range(least=0)]] | None\n    b: PositiveInt = 1\n"
    fields = visit("a", filepath=None, code=source)["A"]  # type: ignore[arg-type]
    assert str(plain_expression(fields["a"].annotation)) == "Mapping[Name, Seconds] | None"
    assert str(plain_expression(fields["b"].annotation)) == "int"
    text = "Do it.\n\nParameters\n----------\nsize\n    Number of jobs.\nweights\n    Shares."
    assert with_values(text, Mine) == (
        "Do it.\n\nParameters\n----------\nsize\n    Number of jobs.\n    Must be a whole number ≥ 1.\n"
        "weights\n    Shares.\n    A number must be a finite number > 0."
    )
