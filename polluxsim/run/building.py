"""From a configuration to the objects it describes, with clear words for what does not fit."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from polluxsim.applications.folder import FORMER_NAMES
from polluxsim.engine.settings import EngineSettings
from polluxsim.errors import InvalidConfigError, PolluxSimError, did_you_mean, short
from polluxsim.types import Cluster

if TYPE_CHECKING:
    from collections.abc import Mapping

# Annotations whose values are checked before a factory sees them, and what is allowed for each.
_CHECKED: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "true or false"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "str": ((str,), "text"),
    "str | None": ((str, type(None)), "text or null"),
    "float | None": ((int, float, type(None)), "a number or null"),
    "int | None": ((int, type(None)), "a whole number or null"),
}

# What a part must be or do, as a class of the user's may make it.
_METHODS = {"agent": "batch_size", "policy": "allocate", "profiles": "load", "workload": "load"}
_CLASSES = {"cluster": Cluster, "engine": EngineSettings}

_PARQUET = {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "str": pa.string()}


def build(config: DictConfig, group: str) -> Any:
    """Return the object that a config group describes by `_target_` and its parameters.

    An `InvalidConfigError` says which target cannot be found, or which parameter is missing, unknown or not of its
    type; what else the target raises comes through.
    """
    try:
        settings = OmegaConf.to_container(config[group], resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise InvalidConfigError(in_words(error)) from None
    if not isinstance(settings, dict) or not isinstance(settings.get("_target_"), str):
        raise InvalidConfigError(f"{group} has no _target_, needed is the dotted name of a class or function")
    settings["_target_"] = FORMER_NAMES.get(settings["_target_"], settings["_target_"])
    _check(group, settings)
    try:
        return _fitting(group, instantiate(settings, _convert_="all"))
    except (InstantiationException, TypeError, ValueError) as error:  # the latter two where Hydra itself raises them
        if isinstance(error.__cause__, PolluxSimError):
            raise error.__cause__ from None
        raise InvalidConfigError(f"{group}: {_one_line(str(error.__cause__ or error))}") from error


def _fitting(group: str, built: object) -> object:
    """Return what was built if it can do what its group is for."""
    method = _METHODS.get(group)
    if method is not None and not callable(getattr(built, method, None)):
        raise InvalidConfigError(f"{group} is a {type(built).__name__}, allowed is what has a method {method}")
    kind = _CLASSES.get(group)
    if kind is not None and not isinstance(built, kind):
        raise InvalidConfigError(f"{group} is a {type(built).__name__}, allowed is a {kind.__name__}")
    return built


def _parameters(group: str, target: str) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of what a dotted name stands for."""
    try:
        return inspect.signature(get_object(target)).parameters
    except Exception as error:
        raise InvalidConfigError(
            f"{group}._target_ {target!r} cannot be used: {_one_line(_first_cause(error))}{_near(target)}"
        ) from error


def _first_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}"


def _near(target: str) -> str:
    """Return what of a module that is there may have been meant."""
    module, _, name = target.rpartition(".")
    names = dir(sys.modules[module]) if module in sys.modules else []
    return did_you_mean(name, names)


def _check(group: str, settings: dict[Any, Any]) -> None:
    target = settings["_target_"]
    parameters = _parameters(group, target)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for name, value in list(settings.items()):
        if isinstance(value, dict) and "_target_" in value:
            _check(f"{group}.{name}", value)
        if str(name).startswith("_") and name != "_partial_":
            continue
        if name not in parameters and not takes_any and value is None:
            del settings[name]  # of a part that was not chosen, and of which a class of the user's need not know
            continue
        if name not in parameters and not takes_any:
            raise InvalidConfigError(
                f"{group}.{name} is not a setting of {target}, allowed are {', '.join(parameters) or 'none'}"
                f"{did_you_mean(name, parameters)}"
            )
        if name in parameters:
            settings[name] = _checked(f"{group}.{name}", value, parameters[name].annotation)


def _parquet_type(annotation: object) -> pa.DataType | None:
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return _PARQUET.get(name.removesuffix(" | None"))


def _checked(name: str, value: object, annotation: object) -> object:
    """Return a value of the type that was declared; a whole number where any number may stand is that number."""
    known = _CHECKED.get(annotation if isinstance(annotation, str) else getattr(annotation, "__name__", ""))
    if known is None:
        return value
    types, allowed = known
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise InvalidConfigError(f"{name} is {value!r}, allowed is {allowed}")
    try:
        return float(value) if float in types and isinstance(value, int) else value
    except OverflowError:
        raise InvalidConfigError(f"{name} is {short(value)}, allowed is {allowed} below 1e308") from None


def declared_types(config: Mapping[str, Any]) -> dict[str, pa.DataType]:
    """Return the Parquet types of a resolved configuration's settings, as their targets' signatures declare them."""
    found = {}
    for group, settings in config.items():
        if isinstance(settings, dict) and "_target_" in settings:
            parameters = inspect.signature(get_object(settings["_target_"])).parameters
            for name in settings.keys() & parameters.keys():
                if (kind := _parquet_type(parameters[name].annotation)) is not None:
                    found[f"{group}.{name}"] = kind
    return found


def in_words(error: OmegaConfBaseException) -> str:
    """Return OmegaConf's error in one line that names the setting."""
    key = error.full_key or error.key
    if "Missing mandatory value" in str(error):
        return missing(str(key))
    return f"{key}: {_one_line(str(error))}"


def missing(key: str) -> str:
    """Return what to say of a setting without a value."""
    return f"{key} is missing, give it as {key}=VALUE"


def _one_line(text: str) -> str:
    return " ".join(text.split())
