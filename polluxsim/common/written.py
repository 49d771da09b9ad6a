"""Settings as users write them: durations with units, and names that consist of digits.

The annotation of a parameter declares what a setting is. `Seconds`, `Hours`, `WholeHours`, `GpuSeconds` and `GpuHours`
are durations and GPU times in this unit; a user may also write text with a unit of its own, like `3h`. `Name` is the
name of a queue, user, GPU type, application or status; a user may write a whole number, because YAML and Hydra read the
name `1001` as a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from functools import lru_cache, wraps
from inspect import signature
from pkgutil import resolve_name
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from polluxsim.common.durations import HOUR, UNITS
from polluxsim.common.errors import InvalidConfigError, short
from polluxsim.common.values import check, declared_values, plain

Seconds: TypeAlias = float
Hours: TypeAlias = float
WholeHours: TypeAlias = int
GpuSeconds: TypeAlias = float
GpuHours: TypeAlias = float
Name: TypeAlias = str

Made = TypeVar("Made", bound=Callable[..., Any])


class Unit(NamedTuple):
    """The unit of a setting."""

    name: str
    size: int  # [s, or GPU s]


UNIT_OF = {
    "Seconds": Unit("s", 1),
    "Hours": Unit("h", HOUR),
    "WholeHours": Unit("h", HOUR),
    "GpuSeconds": Unit("GPU s", 1),
    "GpuHours": Unit("GPU h", HOUR),
}
"""Units by the annotation of a parameter."""

OWN = "polluxsim."  # beginning of the dotted names of polluxsim's own classes

WITH_UNIT = re.compile(rf"(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+) *({'|'.join(unit for unit, _ in UNITS)})")
"""A duration with its unit, like 90s, 15min, 1.5h or 2 d."""

IN_WORDS = {
    "Seconds": "a number of seconds, or a duration with a unit like 90s, 15min, 3h or 2d",
    "Hours": "a number of hours, or a duration with a unit like 30min, 3h or 2d",
    "WholeHours": "a whole number of hours, also written like 3h or 2d",
    "GpuSeconds": "a number of GPU seconds, or a GPU time with a unit like 90s, 15min, 16h or 2d",
    "GpuHours": "a number of GPU hours, or a GPU time with a unit like 30min, 16h or 2d",
}
"""The values of a duration in words, by the annotation of a parameter."""


def duration_in(annotation: str) -> str | None:
    """Return the kind of duration that an annotation contains, like `Seconds`; None for other annotations.

    >>> duration_in("Mapping[Name, Seconds]"), duration_in("float | None")
    ('Seconds', None)
    """
    words = re.findall(r"\w+", annotation)
    return next((word for word in words if word in UNIT_OF), None)


def as_declared(setting: str, value: object, annotation: str) -> object:
    """Return the value of a setting as its annotation declares it.

    A text with a unit becomes a number in the unit of the setting. A whole number in the place of a name becomes text.
    Other values are returned unchanged, also invalid ones, which the class of the setting reports.

    Raise InvalidConfigError if a text is no duration, or a key of a mapping is no name.

    >>> as_declared("policy.queue_limits", ["1h", 7200], "Sequence[GpuSeconds]")
    [3600.0, 7200]
    >>> as_declared("workload.hours", "2d", "Hours | None")
    48.0
    >>> as_declared("policy.weights", {1001: 2}, "Mapping[Name, float]")
    {'1001': 2}
    """
    if isinstance(value, Mapping):
        return _mapping_as_declared(setting, value, annotation)
    if isinstance(value, list | tuple):
        converted = [as_declared(f"{setting}[{number}]", item, annotation) for number, item in enumerate(value)]
        return converted if isinstance(value, list) else tuple(converted)
    kind = duration_in(annotation)
    if isinstance(value, str) and kind is not None:
        return _duration(setting, value, kind, may_be_a_word=_mentions(annotation, "str"))
    if _is_whole(value) and _values_are_names(annotation):
        return str(value)
    return value


def _mapping_as_declared(setting: str, values: Mapping[Any, object], annotation: str) -> dict[Any, object]:
    """Return a mapping with its values, and its keys if they are names, as the annotation declares them."""
    have_names = "Mapping[Name," in annotation or "Mapping[str," in annotation
    result = dict[Any, object]()
    for key, value in values.items():
        name = _name(setting, key) if have_names else key
        # A mapping that was merged may have a name as a number and as text. The later value counts.
        result[name] = as_declared(f"{setting}.{name}", value, annotation)
    return result


def _name(setting: str, key: object) -> str:
    """Return the key of a mapping of names as text. Raise InvalidConfigError if it is neither text nor whole."""
    if isinstance(key, str):
        return key
    if _is_whole(key):
        return str(key)
    words = {"True": "true", "False": "false", "None": "null"}  # as YAML and Hydra write them
    key_text = words.get(repr(key), repr(key))
    why = "unquoted numbers, and words such as no, on, true and null, are not read as text"
    raise InvalidConfigError(f"{setting} has the key {key_text}, must be a name ({why}); put the name in quotes")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _mentions(annotation: str, word: str) -> bool:
    """Return whether an annotation contains a word, and not only a longer word with it."""
    return word in re.findall(r"\w+", annotation)


def _values_are_names(annotation: str) -> bool:
    """Return whether the values, beside the keys of mappings, are names."""
    return _mentions(annotation.replace("Mapping[Name,", ""), "Name")


def _duration(setting: str, text: str, kind: str, *, may_be_a_word: bool) -> float | str:
    """Return the number of a duration in the unit of its kind, whole for `WholeHours`.

    A text that is no duration is returned unchanged if it `may_be_a_word`. Otherwise raise InvalidConfigError.
    """
    number = in_unit(text, UNIT_OF[kind])
    if number is None:
        # Some settings are a duration or one of several words, which their class checks.
        if may_be_a_word:
            return text
        raise InvalidConfigError(f"{setting} is {short(text)}, must be {IN_WORDS[kind]}")
    if kind != "WholeHours":
        return number
    if not number.is_integer():
        raise InvalidConfigError(f"{setting} is {short(text)}, must be {IN_WORDS[kind]}")
    return int(number)


def in_unit(text: str, unit: Unit) -> float | None:
    """Return the number of a text with a unit of time, in a given unit; None for other texts, also without a unit.

    >>> in_unit("3h", UNIT_OF["Seconds"]), in_unit("90 min", UNIT_OF["Hours"]), in_unit("90", UNIT_OF["Seconds"])
    (10800.0, 1.5, None)
    """
    match = WITH_UNIT.fullmatch(text.strip())
    if match is None:
        return None
    number, written = match.groups()
    try:
        # Exact until the end: 0.1h must be the same number as 6min.
        return float(Fraction(number) * dict(UNITS)[written] / unit.size)
    except OverflowError:
        return None


def takes_settings(group: str) -> Callable[[Made], Made]:
    """Let a class or a function take settings as users write them, and check the values that it declares.

    The values are checked before the code of the function, of `__init__` or of `__post_init__` runs, in the order of
    their declarations. `group` is the beginning of their names in errors; a `{}` in it is replaced by the name of a
    setting.

    Put the decorator above `dataclass`. A subclass with an `__init__` of its own, which `dataclass` also makes, needs
    the decorator as well. Without it, a dataclass still checks its values, but takes no durations with units.
    """
    setting = group if "{}" in group else f"{group}.{{}}"

    def decorated(made: Made) -> Made:
        if not isinstance(made, type):
            return cast("Made", _converting(_checking(made, setting), setting))
        kind = cast("Any", made)
        if _has_fields(kind):
            _check_fields(kind, setting)
        else:
            kind.__init__ = _checking(kind.__init__, setting)
        # Outermost, because the checks are about converted values.
        kind.__init__ = _converting(kind.__init__, setting)
        return made

    return decorated


def _has_fields(made: type) -> bool:
    """Return whether the class itself, and not only a base, is a dataclass whose fields are its parameters."""
    parameters = vars(made).get("__dataclass_params__")
    return parameters is not None and parameters.init


def _check_fields(made: Any, setting: str) -> None:
    """Let a dataclass check its fields before its `__post_init__`, which dataclasses derived from it inherit."""

    def check_fields(made: Any) -> None:
        kind: Any = type(made)
        for name, declared in declared_values(kind).items():
            if hasattr(made, name):
                check(setting.format(name), getattr(made, name), declared)

    if not hasattr(made, "__post_init__"):
        # The `__init__` of this class calls no `__post_init__`, so that it is wrapped. That of a derived dataclass is
        # another function, and calls the `__post_init__` which it finds here.
        initialise = made.__init__

        @wraps(initialise)
        def initialising(made: object, *arguments: Any, **named: Any) -> None:
            initialise(made, *arguments, **named)
            check_fields(made)

        made.__init__ = initialising
        made.__post_init__ = check_fields
        return
    complete = made.__post_init__  # it may rely on valid values

    @wraps(complete)
    def completing(made: object, *arguments: Any) -> None:
        check_fields(made)
        complete(made, *arguments)

    made.__post_init__ = completing


def _checking(function: Callable[..., Any], setting: str) -> Callable[..., Any]:
    """Return a function that checks its arguments before it calls `function`.

    It raises InvalidConfigError if an argument is not what its type declares.
    """
    names = list(signature(function).parameters)

    @wraps(function)
    def checking(*arguments: Any, **named: Any) -> Any:
        # A wrong number of arguments is not reported here, but by the function.
        values = dict(zip(names, arguments, strict=False)) | named
        for name, declared in declared_values(function).items():
            if name in values:
                check(setting.format(name), values[name], declared)
        return function(*arguments, **named)

    return checking


def _converting(function: Callable[..., Any], setting: str) -> Callable[..., Any]:
    """Return a function that calls `function` with each argument converted to its annotated type.

    `setting` has {} in place of the name of an argument, for errors.
    """
    annotations = _annotations(function)
    names = list(signature(function).parameters)

    def converted(name: str, value: object) -> object:
        if name not in annotations:
            return value
        return as_declared(setting.format(name), value, annotations[name])

    @wraps(function)
    def converting(*arguments: Any, **named: Any) -> Any:
        first = [converted(name, value) for name, value in zip(names, arguments, strict=False)]
        excess = arguments[len(first) :]  # too many arguments, which the function reports
        return function(*first, *excess, **{name: converted(name, value) for name, value in named.items()})

    return converting


def _annotations(function: Callable[..., Any]) -> dict[str, str]:
    """Return the annotations of parameters with durations or names, without what they declare about values."""
    parameters = signature(function).parameters
    written = {name: parameter.annotation for name, parameter in parameters.items()}
    return {name: plain(text) for name, text in written.items() if isinstance(text, str) and _is_converted(text)}


def _is_converted(annotation: str) -> bool:
    """Return whether `as_declared` can change a value with this annotation."""
    return duration_in(annotation) is not None or "Mapping[str," in annotation or _mentions(annotation, "Name")


class Declared(NamedTuple):
    """What the class of a part declares about its settings."""

    settings: Collection[str]  # names of all settings
    annotations: Mapping[str, str]  # of settings with durations or names, by name
    defaults: Mapping[str, object]  # of settings with a default, by name


NOTHING = Declared((), {}, {})


@lru_cache(maxsize=512)
def declared_by(target: str) -> Declared:
    """Return what a class or function of polluxsim declares; nothing for an unknown name or a class of the user.

    A class of the user is not imported here, because its code must run only where the run is built.
    """
    if not target.startswith(OWN):
        return NOTHING
    try:
        target_object = resolve_name(target)
    except (AttributeError, ImportError, ValueError):
        return NOTHING  # building the part reports the error
    parameters = signature(target_object).parameters
    defaults = {name: item.default for name, item in parameters.items() if item.default is not item.empty}
    return Declared(tuple(parameters), _annotations(target_object), defaults)


def settings_as_declared(name: str, settings: object) -> Any:
    """Return the settings of a part, and of the parts within it, as their classes declare them.

    `name` is the dotted name of the part; "" for a whole configuration.

    Raise InvalidConfigError, as `as_declared` does.

    >>> part = {"_target_": "polluxsim.policies.ordered.attained_service.Tiresias", "queue_threshold": "16h"}
    >>> settings_as_declared("policy", part)["queue_threshold"]
    57600.0
    """
    if isinstance(settings, list):
        return [settings_as_declared(f"{name}.{number}", item) for number, item in enumerate(settings)]
    if not isinstance(settings, dict):
        return settings
    annotations = declared_by(str(settings.get("_target_"))).annotations
    has_names = any(isinstance(key, str) for key in settings)
    result: dict[Any, Any] = {}
    for written_key, value in settings.items():
        key = written_key
        if has_names and _is_whole(written_key):
            key = str(written_key)  # one kind of keys, as JSON has
        setting = f"{name}.{key}" if name else str(key)
        if key in annotations:
            result[key] = as_declared(setting, value, annotations[key])
        else:
            result[key] = settings_as_declared(setting, value)
    return result
