"""What the values of settings must be: limits and words that the annotation of a parameter declares.

`num_nodes: Annotated[int, Range(least=1)]` declares a whole number of at least 1, and `by: Annotated[str,
OneOf("queue", "user")]` declares one of two words. Items of a list and values of a mapping are declared likewise, as in
`weights: Mapping[Name, PositiveFloat]`. With `| None`, a value may be None. The decorator `takes_settings` of
`polluxsim.common.written` checks the values when an object of the class is made.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import get_annotations, unwrap
from math import inf, isfinite
from numbers import Integral, Real
from sys import float_info
from types import NoneType, UnionType
from typing import Annotated, Any, Protocol, TypeAlias, Union, get_args, get_origin, get_type_hints

from polluxsim.common.errors import InvalidConfigError, invalid_setting, one_of, short


class Constraint(Protocol):
    """What a value must be, beside its type."""

    def must_be(self, value: Any, types: tuple[Any, ...]) -> str:
        """Return what a value must be, like "a number > 0"; "" if the value is valid.

        `types` are the declared types of the value: several ones for a union.
        """


@dataclass(frozen=True)
class Range:
    """A number ≥ `least`, > `above`, ≤ `most` and < `below`. It may be ∞ only if `most` is ∞, and is never −∞.

    >>> Range(above=0, most=1).must_be(2, (float,))
    'a number > 0 and ≤ 1'
    """

    least: float = -float_info.max
    above: float = -inf
    most: float = float_info.max
    below: float = inf

    def must_be(self, value: Any, types: tuple[Any, ...]) -> str:
        """Return the kind of number and its limits; "" if the value is valid."""
        whole = int in types
        # True is a number for Python, but a mistake in a setting.
        is_number = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
        if is_number and self.least <= value <= self.most and self.above < value and self._is_below(value):
            return ""
        return f"{self._kind(whole)} {self._limits()}".rstrip()

    def _is_below(self, value: float) -> bool:
        """Return whether the value is below the open upper limit; ∞ is no limit, also not for the value ∞."""
        return self.below == inf or value < self.below

    def _kind(self, whole: bool) -> str:
        """Return the kind of number in words. "Finite" is said only where no upper limit says it."""
        if whole:
            return "a whole number"
        is_open = self.most == float_info.max and self.below == inf
        return "a finite number" if is_open else "a number"

    def _limits(self) -> str:
        """Return the limits in words or signs; "" without limits."""
        if self.below < inf:
            return f"in [{_number(self.least)}, {_number(self.below)})"
        limits = {"≥": self.least, ">": self.above, "≤": self.most}
        stated = {sign: _number(limit) for sign, limit in limits.items() if abs(limit) < float_info.max}
        if stated.keys() == {"≥", "≤"}:
            return f"from {stated['≥']} to {stated['≤']}"
        return " and ".join(f"{sign} {limit}" for sign, limit in stated.items())


def _number(limit: float) -> str:
    """Return a limit as a user would write it, with all digits of a whole number."""
    return f"{limit:g}" if isinstance(limit, float) else str(limit)


@dataclass(frozen=True)
class OtherThan:
    """A finite number other than `number`."""

    number: float

    def must_be(self, value: Any, types: tuple[Any, ...]) -> str:
        """Return the requirement; "" if the value is valid."""
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if is_number and isfinite(value) and value != self.number:
            return ""
        return f"a finite number other than {_number(self.number)}"


class OneOf:
    """One of several words."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def must_be(self, value: Any, types: tuple[Any, ...]) -> str:
        """Return the words, and the word that is most similar to the value; "" if the value is valid."""
        return "" if isinstance(value, str) and value in self.words else one_of(value, self.words)


PositiveInt: TypeAlias = Annotated[int, Range(least=1)]
NonNegativeInt: TypeAlias = Annotated[int, Range(least=0)]
FiniteFloat: TypeAlias = Annotated[float, Range()]
PositiveFloat: TypeAlias = Annotated[float, Range(above=0)]
NonNegativeFloat: TypeAlias = Annotated[float, Range(least=0)]
Share: TypeAlias = Annotated[float, Range(least=0, most=1)]
PositiveShare: TypeAlias = Annotated[float, Range(above=0, most=1)]

ALIASES = {
    "PositiveInt": "int", "NonNegativeInt": "int", "FiniteFloat": "float", "PositiveFloat": "float",
    "NonNegativeFloat": "float", "Share": "float", "PositiveShare": "float",
}  # fmt: skip
"""Types of the declarations above, by name."""

NAMES = {"Range", "OtherThan", "OneOf", *ALIASES}
"""Names that an annotation contains only if it declares values."""

WORDS = re.compile(r"\w+")


def check(name: str, value: object, declared: Any) -> None:
    """Raise InvalidConfigError if a value is not what its type declares.

    A value of another kind is not reported if the type declares nothing about it.

    >>> check("workload.share", 0.5, PositiveShare)
    >>> check("policy.weights", {"vision": 2}, Mapping[str, PositiveFloat])
    """
    arms = _arms(declared)
    if value is None and NoneType in arms:
        return
    constrained = None
    for arm in arms:
        if get_origin(arm) is Annotated:
            constrained = arm
        elif _is_a(value, get_origin(arm) or arm):
            # The value is of a type of the union without a constraint, so that only its items can be invalid.
            _check_items(name, value, arm)
            return
    if constrained is not None:
        _check_value(name, value, constrained, or_null=NoneType in arms)


def in_words(declared: Any) -> str:
    """Return what a value must be in words; "" if its type declares nothing about the value itself.

    >>> in_words(PositiveInt | None), in_words(Annotated[str, OneOf("queue", "user")])
    ('a whole number ≥ 1, or null', 'one of queue, user')
    """
    arms = _arms(declared)
    for arm in arms:
        if get_origin(arm) is Annotated:
            kind, *constraints = get_args(arm)
            # The empty text meets no constraint, so that each states its requirement.
            requirements = [constraint.must_be("", _arms(kind)) for constraint in constraints]
            return " and ".join(requirements) + (", or null" if NoneType in arms else "")
    return ""


def _arms(declared: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the only type."""
    return get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)


def _is_a(value: object, kind: Any) -> bool:
    """Return whether a value is of a kind; False if that cannot be tested."""
    try:
        return isinstance(value, kind)
    except TypeError:  # a protocol that cannot be tested, or a type variable
        return False


def _check_items(name: str, value: object, declared: Any) -> None:
    """Raise InvalidConfigError if a value of a mapping, or an item of a list, is not what its type declares."""
    types = get_args(declared)
    if not types:
        return
    if isinstance(value, Mapping):
        # Of the types of keys and values, the last is that of the values.
        for key, item in value.items():
            check(f"{name}.{key}", item, types[-1])
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for number, item in enumerate(value):
            check(f"{name}[{number}]", item, types[0])


def _check_value(name: str, value: object, declared: Any, *, or_null: bool) -> None:
    """Raise InvalidConfigError if a value breaks a constraint. `or_null` says whether it may also be None."""
    kind, *constraints = get_args(declared)
    types = _arms(kind)
    may_be_null = or_null or NoneType in types
    if value is None and may_be_null:
        return
    for constraint in constraints:
        # Other libraries annotate types too.
        requirement = constraint.must_be(value, types) if hasattr(constraint, "must_be") else ""
        if not requirement:
            continue
        if int in types and isinstance(value, float):  # 4.0, which `invalid_setting` would write as a whole number
            raise InvalidConfigError(f"{name} is {short(value)}, must be {requirement}")
        raise invalid_setting(name, value, f"{requirement}, or null" if may_be_null else requirement)


@cache
def declared_values(made: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the types that declare values, by name of the field of a class, or of the parameter of a function.

    Annotations are evaluated at the first call, because evaluating those of every class would delay each start. Raise
    TypeError if an annotation declares values and cannot be evaluated.
    """
    types = {}
    for owner in _owners(made):
        for name, annotation in get_annotations(owner).items():
            declared = _evaluated(owner, name, annotation)
            if _has_constraint(declared):
                types[name] = declared
            else:
                types.pop(name, None)  # a field of a base that the class declares again
    return types


def _owners(made: Callable[..., Any]) -> list[Any]:
    """Return the function, or the class and its bases, the most general class first."""
    if isinstance(made, type):
        return [base for base in reversed(made.__mro__) if base is not object]
    return [unwrap(made)]


def _evaluated(owner: Any, name: str, annotation: Any) -> Any:
    """Return the type of an annotation; None if it declares no values and cannot be evaluated.

    Many annotations contain names that are imported only for type checkers. Raise TypeError if one of them declares
    values.
    """
    if not isinstance(annotation, str):
        return annotation
    holder = type(name, (), {"__annotations__": {name: annotation}})  # a class, whose annotation may be a ClassVar
    namespace = vars(sys.modules[owner.__module__])
    try:
        return get_type_hints(holder, globalns=namespace, include_extras=True)[name]
    except (AttributeError, NameError, TypeError) as error:
        if NAMES.isdisjoint(WORDS.findall(annotation)):
            return None
        raise TypeError(
            f"{owner.__qualname__} declares {name} as {annotation}, which cannot be evaluated ({error}); "
            "import each of its names outside `if TYPE_CHECKING`"
        ) from None


def _has_constraint(declared: Any) -> bool:
    """Return whether a type, or a type within it, declares values."""
    if get_origin(declared) is Annotated:
        return True
    return any(_has_constraint(part) for part in get_args(declared))


def plain(annotation: str) -> str:
    """Return the text of an annotation without what it declares about values.

    >>> plain("Mapping[Name, Annotated[float, Range(above=0)]] | None"), plain("PositiveInt | None")
    ('Mapping[Name, float] | None', 'int | None')
    """
    if "Annotated" not in annotation and not any(name in annotation for name in ALIASES):
        return annotation
    return ast.unparse(_Plain().visit(ast.parse(annotation, mode="eval")))


class _Plain(ast.NodeTransformer):
    """Replaces `Annotated[T, …]` by `T`, and a named declaration by its type."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if ast.unparse(node.value).rpartition(".")[2] == "Annotated" and isinstance(node.slice, ast.Tuple):
            return self.visit(node.slice.elts[0])  # type: ignore[no-any-return]
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(ALIASES.get(node.id, node.id))
