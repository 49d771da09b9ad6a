"""From a configuration to the objects it describes, with clear words for what does not fit."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from polluxsim.errors import InvalidConfigError, PolluxSimError

if TYPE_CHECKING:
    from collections.abc import Callable

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


def build(config: DictConfig, group: str) -> Any:
    """Return the object that a config group describes by `_target_` and its parameters.

    Parameters
    ----------
    config
        The whole configuration.
    group
        The group's name.

    Raises
    ------
    InvalidConfigError
        If the target cannot be found, or a parameter is missing, unknown or not of its type.
    PolluxSimError
        As the target raises it.
    """
    try:
        settings = OmegaConf.to_container(config[group], resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise InvalidConfigError(_in_words(error)) from None
    if not isinstance(settings, dict) or "_target_" not in settings:
        raise InvalidConfigError(f"{group} has no _target_, needed is the dotted name of a class or function")
    _check(group, settings)
    try:
        return instantiate(settings)
    except InstantiationException as error:
        if isinstance(error.__cause__, PolluxSimError):
            raise error.__cause__ from None
        raise InvalidConfigError(f"{group}: {_one_line(str(error.__cause__ or error))}") from error


def _check(group: str, settings: dict[Any, Any]) -> None:
    target = settings["_target_"]
    try:
        factory: Callable[..., Any] = get_object(target)
        parameters = inspect.signature(factory).parameters
    except Exception as error:
        raise InvalidConfigError(f"{group}._target_ {target!r} cannot be used: {_one_line(str(error))}") from error
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for name, value in settings.items():
        if str(name).startswith("_"):
            continue
        if name not in parameters and not takes_any:
            raise InvalidConfigError(
                f"{group}.{name} is not a setting of {target}, allowed are {', '.join(parameters) or 'none'}"
            )
        if name in parameters:
            _check_type(f"{group}.{name}", value, parameters[name].annotation)


def _check_type(name: str, value: object, annotation: object) -> None:
    known = _CHECKED.get(annotation if isinstance(annotation, str) else getattr(annotation, "__name__", ""))
    if known is None:
        return
    types, allowed = known
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise InvalidConfigError(f"{name} is {value!r}, allowed is {allowed}")


def _in_words(error: OmegaConfBaseException) -> str:
    key = error.full_key or error.key
    if "Missing mandatory value" in str(error):
        return f"{key} is missing, give it as {key}=VALUE"
    return f"{key}: {_one_line(str(error))}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
