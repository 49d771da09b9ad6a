"""Build the objects and metrics that a configuration describes, and refuse classes that a file must not name."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import fields
from functools import lru_cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

import pyarrow as pa

from polluxsim.common.errors import (
    InvalidConfigError,
    InvalidInputError,
    PolicyError,
    PolluxSimError,
    did_you_mean,
    listed,
    short,
)
from polluxsim.common.shipped import shipped_classes
from polluxsim.common.values import plain
from polluxsim.common.written import IN_WORDS, UNIT_OF, as_declared
from polluxsim.engine.settings import EngineSettings
from polluxsim.hardware.clusters import Cluster
from polluxsim.metrics.declared import Metric
from polluxsim.metrics.summary import Summary
from polluxsim.records.folders import POLICY_ENTRY
from polluxsim.run.configurations import in_brackets

# Types of each annotation whose values are checked before a factory gets them, and the types in words.
_CHECKED: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "true or false"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "str": ((str,), "text"),
    "str | None": ((str, type(None)), "text or null"),
    "float | None": ((int, float, type(None)), "a number or null"),
    "int | None": ((int, type(None)), "a whole number or null"),
    "Name": ((str,), "text"),
    "Sequence[float]": ((list, tuple), "a list of numbers"),
    "Sequence[GpuSeconds]": ((list, tuple), "a list of GPU times, like [3250, 2h]"),
    "Mapping[str, float]": ((Mapping,), "numbers by name, like {NAME: 2}"),
    "Mapping[Name, float]": ((Mapping,), "numbers by name, like {NAME: 2}"),
    "Mapping[Name, int | Mapping[Name, int]]": ((Mapping,), "numbers by name, like {NAME: 2}"),
    "Mapping[Name, Seconds]": ((Mapping,), "durations by name, like {NAME: 90s}"),
    "Mapping[Name, Seconds | Mapping[Name, Seconds]]": ((Mapping,), "durations by name, like {NAME: 90s}"),
} | {
    kind: ((int,) if kind == "WholeHours" else (int, float), words) for kind, words in IN_WORDS.items()
} | {
    f"{kind} | None": ((int, float, type(None)), f"{words}, or null") for kind, words in IN_WORDS.items()
}  # fmt: skip

# Method that the object of a group must have, and class that it must be of.
_METHODS = {"agent": "batch_size", "policy": "allocate", "profiles": "load", "workload": "load"}
_CLASSES = {"cluster": Cluster, "engine": EngineSettings}

_PARTS = ("Checkpoints", "JobFailures", "Outages", "Policy", "Repairs", "Rule", "Scale", "Selection", "Sharing")
"""Annotations of parameters whose values are objects with a `_target_`."""

_PARQUET = {
    "bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "str": pa.string(), "Name": pa.string(),
    **{kind: pa.int64() if kind == "WholeHours" else pa.float64() for kind in UNIT_OF},
}  # fmt: skip

MISSING = "???"  # value of a setting that the user must give
OWN = "polluxsim"  # top-level module of polluxsim's own classes
RULE = "rule"  # setting of a mapped workload that may name a class of the user's own, as module.Class


def build(config: Mapping[str, Any], group: str) -> Any:
    """Return the object that a config group describes by `_target_` and its parameters.

    Raise InvalidConfigError if a setting is invalid or the class raises an exception, and PolicyError if the class ends
    the process. A PolluxSimError of the class is raised unchanged.
    """
    settings = _settings(config, group)
    _check(group, settings)
    try:
        return _fitting(group, instantiate(settings))
    except (KeyboardInterrupt, PolluxSimError):
        raise
    except Exception as error:
        raise InvalidConfigError(f"{group}: {_one_line(str(error))}") from error
    except BaseException as error:
        problem = f"{settings['_target_']} ended the process when it was made ({_first_cause(error)})"
        raise PolicyError(f"{group}: {problem}; it must return or raise an Exception") from error


def instantiate(settings: Any) -> Any:
    """Return settings in which each mapping with a `_target_` is replaced by the object that it describes."""
    if isinstance(settings, list):
        return [instantiate(item) for item in settings]
    if not isinstance(settings, dict):
        return settings
    parts = {name: instantiate(item) for name, item in settings.items()}
    target = parts.pop("_target_", None)
    return parts if target is None else get_object(target)(**parts)


def get_object(name: str) -> Any:
    """Return the class or function with a dotted name, and import its module.

    Raise ValueError if the name has a colon, and any error that the import raises.
    """
    # `resolve_name` would take MODULE:ATTRIBUTE too, but the checks of names split at dots only.
    if ":" in name:
        raise ValueError(f"{name!r} has a colon, must be a dotted name")
    return resolve_name(name)


def load(config: Mapping[str, Any], group: str, *arguments: Any) -> Any:
    """Return the result of `load` of a group's object: the jobs of `workload`, the profiles of `profiles`.

    Raise the errors of `build`. If a class of the user raises anything but a PolluxSimError, OSError or MemoryError,
    raise InvalidConfigError.
    """
    part = build(config, group)
    try:
        return part.load(*arguments)
    except (KeyboardInterrupt, MemoryError, OSError, PolluxSimError):
        raise
    except BaseException as error:
        if type(part).__module__.startswith(f"{OWN}.") and isinstance(error, Exception):
            raise  # a defect of polluxsim
        raise InvalidConfigError(f"{group}: {type(part).__name__}.load failed: {_first_cause(error)}") from error


def _settings(config: Mapping[str, Any], group: str) -> dict[Any, Any]:
    """Return a copy of the settings of a group.

    Raise InvalidConfigError if one of them has no value, or `_target_` is not text.
    """
    settings = config[group]
    if isinstance(settings, dict):
        _check_is_name(group, settings.get("_target_"))
    else:
        _check_is_name(group, settings)
    for name, _, value in _inner(group, group, settings):
        if value == MISSING:
            raise InvalidConfigError(missing(name))
    # `_check` converts the values in place, and the configuration must stay as the user wrote it.
    copied: dict[Any, Any] = deepcopy(settings)
    return copied


def _check_is_name(group: str, target: object) -> None:
    """Raise `InvalidConfigError` if the target of a group is not text."""
    if not isinstance(target, str):
        problem = f"{group}._target_ is {short(target)}, must be the dotted name of a class or function"
        raise InvalidConfigError(problem)


def check_classes(config: object, source: str, allowed: Collection[str] = ()) -> list[str]:
    """Check the classes that the settings of a file name, before any of them is imported.

    Then import the classes outside polluxsim, and return their dotted names. `source` is the name of the file in
    messages. `allowed` contains the modules and packages outside polluxsim whose classes may be loaded. Any other
    class, any `${…}`, and any other setting with a leading `_`, raises an `InvalidInputError`.
    """
    if not isinstance(config, dict):
        raise InvalidInputError(f"{source}: config is {short(config)}, must be a mapping of settings")
    foreign = dict[str, str]()
    for group, part in config.items():
        for name, key, value in _inner(str(group), str(group), part):
            try:
                if _is_foreign(str(group), name, key, value, allowed):
                    foreign[name] = str(value)
            except ValueError as error:
                raise InvalidInputError(f"{source}: {error}") from None
    # Importing runs code, so no class is imported before all names are checked.
    for name, target in foreign.items():
        _import_class(source, name, target, allowed)
    return list(foreign.values())


def _inner(name: str, key: str, value: object) -> Iterator[tuple[str, str, object]]:
    """Yield a part of a configuration and every setting within it: dotted name, last part of the name, and value."""
    yield name, key, value
    items: Iterable[tuple[object, object]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for inner, item in items:
        yield from _inner(f"{name}.{inner}", str(inner), item)


def _is_known_rule(name: str) -> bool:
    from polluxsim.workloads.mapping import RULES  # noqa: PLC0415  (imports readers of traces)

    return name in RULES


def _is_foreign(group: str, name: str, key: str, value: object, allowed: Collection[str]) -> bool:
    """Return whether a setting names a class of an allowed module; raise a ValueError if a file may not set this."""
    if any(isinstance(text, str) and "${" in text for text in (key, value)):
        raise ValueError(f"{name} is {short(value)}, must be a plain value: a run's settings are resolved")
    if key.startswith("_") and key != "_target_":
        raise ValueError(f"{name} is not a setting that a file may have")
    is_rule = group == "workload" and key == RULE and isinstance(value, str) and not _is_known_rule(value)
    if key != "_target_" and not is_rule:
        return False
    if not isinstance(value, str):
        raise ValueError(f"{name} is {short(value)}, must be the dotted name of a class")
    if not is_rule and value in shipped_classes().get(group, ()):
        return False
    top = value.partition(".")[0]
    # Of polluxsim, only the listed classes may be loaded: other functions of it write or remove files.
    if top != OWN and _is_in(value, allowed):
        return True
    remedy = ""
    # Advice to allow Python's own modules would be advice to allow `os.system`.
    if top.isidentifier() and top != OWN and top not in sys.stdlib_module_names:
        remedy = f"; if you trust its code, add --allow-classes {top}"
    raise ValueError(f"{name} is {short(value)}, which is not one of polluxsim's classes for {group}{remedy}")


def _is_in(name: str, modules: Collection[str]) -> bool:
    """Return whether a dotted name lies in one of the modules."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def _import_class(source: str, name: str, target: str, allowed: Collection[str]) -> None:
    """Import a class from an allowed module.

    Raise InvalidInputError if the import fails, an allowed module does not define the class itself, or the class lacks
    the method that its group requires.
    """
    try:
        imported = get_object(target)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        why = _why_missing(target) or f"cannot be imported: {_one_line(_first_cause(error))}"
        raise InvalidInputError(f"{source}: {name} {target!r} {why}") from error
    # An allowed module may import others, so `module.os.system` would pass by its name alone.
    if not isinstance(imported, type) or not _is_in(imported.__module__, allowed):
        raise InvalidInputError(f"{source}: {name} is {target!r}, must be a class of an allowed module itself")
    group, _, setting = name.partition(".")
    # Every class has `__init__`, so a group without a required method passes.
    if setting == "_target_" and not callable(getattr(imported, _METHODS.get(group, "__init__"), None)):
        raise InvalidInputError(f"{source}: {name} is {target!r}, must be a class with a method {_METHODS[group]}")


def _fitting(group: str, built: object) -> object:
    """Return a built object. Raise InvalidConfigError if it lacks the method, or the class, that its group requires."""
    method = _METHODS.get(group)
    if method is not None and not callable(getattr(built, method, None)):
        raise InvalidConfigError(f"{group} is a {type(built).__name__}, must be an object with a method {method}")
    kind = _CLASSES.get(group)
    if kind is not None and not isinstance(built, kind):
        raise InvalidConfigError(f"{group} is a {type(built).__name__}, must be a {kind.__name__}")
    return built


def _parameters(group: str, target: str) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class or function by its dotted name; raise InvalidConfigError if there is none."""
    try:
        called = get_object(target)
        # Such a function may have effects, like os.remove; it makes no part of a run.
        if target.partition(".")[0] in sys.stdlib_module_names and not isinstance(called, type):
            raise TypeError("it is a function of Python's own library, must be a class")
        return inspect.signature(called).parameters
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        what = f"{group}._target_ {short(target)}"
        why = _why_missing(target) or f"cannot be used: {_one_line(_first_cause(error))}"
        raise InvalidConfigError(f"{what} {why}") from error


def _first_cause(error: BaseException) -> str:
    # polluxsim raises errors of user code from their cause, and users know the cause.
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}"


def _why_missing(target: str) -> str:
    """Return why a dotted name names no class, and what to do; "" if its import failed for another reason."""
    module, _, name = target.rpartition(".")
    if module.endswith(".py"):
        return f"must be a module without .py, and a class: {module.removesuffix('.py')}.{name}"
    if not module or not all(part.isidentifier() for part in target.split(".")):
        return "must be the dotted name of a class, like module.Class"
    if module in sys.modules and not hasattr(sys.modules[module], name):
        return f"does not exist: {module} has no class {name}{_near(name, sys.modules[module])}"
    top = module.partition(".")[0]
    if top not in sys.modules and find_spec(top) is None:
        return f"does not exist: there is no module {top}; start in the folder of {top}.py, or install its package"
    return ""


def _near(name: str, module: ModuleType) -> str:
    """Return the end of an error message: the most similar name in a module, or what it defines; "" if nothing."""
    meant = did_you_mean(name, dir(module))
    if meant:
        return meant
    own_names = [key for key, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return f"; it has {listed(own_names)}" if own_names else ""


def _check(group: str, settings: dict[Any, Any]) -> None:
    """Check settings against the parameters of their class, and convert values to their declared types in place.

    Raise InvalidConfigError for an unknown name, a value of another type, or a parameter without a value. A setting
    that is null and unknown to the class is removed.
    """
    target = settings["_target_"]
    _check_is_name(group, target)
    parameters = _parameters(group, target)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for name, value in list(settings.items()):
        setting = f"{group}.{name}"
        if _is_part(value):
            _check(setting, value)
        if name == "_target_":
            continue
        if name in parameters:
            annotation = parameters[name].annotation
            converted = as_declared(setting, value, _written(annotation))
            settings[name] = _checked(setting, converted, annotation, target)
            _check_part(setting, value, annotation)
        elif takes_any:
            continue
        elif value is None:
            del settings[name]  # a part that was not chosen; a user's class may not know this value
        else:
            its_settings = f"it has {', '.join(parameters)}" if parameters else "it has no settings"
            problem = f"{setting} is not a setting of {target}; {its_settings}"
            raise InvalidConfigError(problem + did_you_mean(name, parameters))
    _check_complete(group, settings, parameters)


def _is_part(value: object) -> bool:
    """Return whether a value describes an object."""
    return isinstance(value, dict) and "_target_" in value


def _check_part(name: str, value: object, annotation: object) -> None:
    """Raise InvalidConfigError if a parameter needs an object, and the value neither describes one nor is null."""
    if str(annotation).removesuffix(" | None") not in _PARTS or value is None or _is_part(value):
        return
    problem = f"{name} is {short(value)}, must be a mapping with _target_, or null"
    if isinstance(value, str):
        # Probably the name of an entry, which a user chooses by the path of its group.
        problem = f"{problem}; write {_choice_of(name, annotation)}={value}"
    raise InvalidConfigError(problem)


def _check_complete(group: str, settings: Mapping[Any, Any], parameters: Mapping[str, inspect.Parameter]) -> None:
    """Raise InvalidConfigError if a parameter without a default has no value."""
    for name, parameter in parameters.items():
        is_one_value = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if not is_one_value or parameter.default is not parameter.empty or name in settings:
            continue
        if _written(parameter.annotation).removesuffix(" | None") in _PARTS:
            choice = _choice_of(f"{group}.{name}", parameter.annotation)
            raise InvalidConfigError(f"{group}.{name} is missing; choose one with {choice}=NAME")
        problem = f"{group}.{name} is missing, and {settings['_target_']} has no default for it"
        raise InvalidConfigError(f"{problem}; add it to the YAML file, or give +{group}.{name}=VALUE")


def _choice_of(name: str, annotation: object) -> str:
    """Return the left side of an override that chooses a part, like `cluster/failures` or `policy@policy.inner`."""
    return f"policy@{name}" if _written(annotation) == "Policy" else name.replace(".", "/")


def _written(annotation: object) -> str:
    return plain(annotation) if isinstance(annotation, str) else getattr(annotation, "__name__", "")


def _checked(name: str, value: object, annotation: object, target: str) -> object:
    """Return a value, as a float if a float is declared and the value is a whole number.

    Raise InvalidConfigError if the value does not have its declared type. Types outside `_CHECKED` are not checked.
    """
    declared = _CHECKED.get(_written(annotation))
    if declared is None:
        return value
    types, kind = declared
    # In Python, true is an int, so a number could be given as true.
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise InvalidConfigError(f"{name} is {value!r}, must be {kind}{in_brackets(name, target)}")
    try:
        return float(value) if float in types and isinstance(value, int) else value
    except OverflowError:
        raise InvalidConfigError(f"{name} is {short(value)}, must be {kind} below 1e308") from None


def declared_types(config: Mapping[str, Any]) -> dict[str, pa.DataType]:
    """Return the Parquet types of the settings of a resolved configuration, as the signatures of classes declare them.

    The keys are dotted names. Settings of inner parts, and settings of a type that no column can have, are left out.
    """
    types = {}
    for group, settings in config.items():
        if isinstance(settings, dict) and "_target_" in settings:
            parameters = inspect.signature(get_object(settings["_target_"])).parameters
            for name in settings.keys() & parameters.keys():
                declared = _written(parameters[name].annotation).removesuffix(" | None")
                kind = _PARQUET.get(declared)
                if kind is not None:
                    types[f"{group}.{name}"] = kind
    return types


def missing(key: str) -> str:
    """Return the message about a setting without a value."""
    return f"{key} is missing; give it as {key}=VALUE{in_brackets(key)}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


METRICS_GROUP = "polluxsim.metrics"  # group of entry points, each of which names a `Metric`

OWN_COLUMNS = {"folder", "key", "policy", POLICY_ENTRY, "seed", *(field.name for field in fields(Summary))}
"""Columns of the table of a sweep that are not metrics of the user."""


def user_metrics(config: Mapping[str, Any]) -> dict[str, Metric]:
    """Return the user's metrics of a run by name: of installed packages, then of the run's resolved configuration.

    If both have a metric of one name, that of the configuration counts. Raise InvalidConfigError if a metric cannot be
    loaded, or is not a `Metric` with a function and a valid name.
    """
    places = {point.name: point.value for point in _entry_points()} | _named_metrics(config)
    # Loading runs code of the user, so all names are checked before.
    for name in places:
        _check_metric_name(name)
    metrics = {}
    for name, place in places.items():
        try:
            metric = resolve_name(place)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the user's module may raise anything
            why = f"({_one_line(_first_cause(error))}); give MODULE.ATTRIBUTE"
            raise InvalidConfigError(f"metric {name}: {place} cannot be loaded {why}") from error
        metrics[name] = checked_metric(name, metric)
    return metrics


def metric_modules(config: Mapping[str, Any]) -> set[str]:
    """Return the top-level modules of the user's metrics of a run."""
    places = [point.value for point in _entry_points()] + [*_named_metrics(config).values()]
    return {place.partition(":")[0].partition(".")[0] for place in places}


def checked_metric(name: str, metric: object) -> Metric:
    """Return a metric of the user; raise InvalidConfigError if its name or type is invalid, or it has no function."""
    _check_metric_name(name)
    if not isinstance(metric, Metric) or metric.value is None:
        kind = "a Metric without a function" if isinstance(metric, Metric) else f"a {type(metric).__name__}"
        raise InvalidConfigError(f"metric {name} is {kind}; give a polluxsim.Metric(TITLE, UNIT, value=FUNCTION)")
    return metric


def _check_metric_name(name: str) -> None:
    if not name.isidentifier() or name in OWN_COLUMNS:
        why = "a column of polluxsim's own" if name in OWN_COLUMNS else "not a name of letters, digits and _"
        raise InvalidConfigError(f"metric {short(name)}: its name is {why}; give the metric another name")


# Listing the installed packages takes milliseconds, and a sweep asks for each of its runs.
@lru_cache(maxsize=1)
def _entry_points() -> tuple[Any, ...]:
    return tuple(entry_points(group=METRICS_GROUP))


def _named_metrics(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the metrics that a configuration names: module and attribute by the metric's name."""
    places = config.get("metrics") or {}
    if not isinstance(places, dict) or not all(isinstance(place, str) for place in places.values()):
        raise InvalidConfigError(f"metrics is {short(places)}; give metrics.NAME=MODULE.ATTRIBUTE")
    return {str(name): place for name, place in places.items()}
