"""Policies that a command names: entries of configurations with settings, and classes in a user's file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from polluxsim.common.errors import InvalidConfigError
from polluxsim.policies.contract.policy import Policy, as_policy
from polluxsim.run.building import build
from polluxsim.run.composing import composed, values_of
from polluxsim.run.configurations import policy_text, quoted


class NamedPolicy(NamedTuple):
    """A policy that can be built any number of times."""

    name: str  # as the user wrote it
    settings: dict[str, Any]  # its part of a configuration: `_target_` and parameters
    module: str | None = None  # the user's module that defines the class, None for an entry of a configuration

    @property
    def label(self) -> str:
        """Return the name of the entry or the class, with its settings but without its file."""
        return self.name[len(policy_text(self.name).name) - len(self.entry) :]

    @property
    def entry(self) -> str:
        """Return the name of the entry or the class, without settings."""
        return policy_text(self.name).name.rpartition(":")[2]

    @property
    def overrides(self) -> list[str]:
        """Return the overrides that choose the policy. A user's class becomes an entry without settings."""
        settings = policy_text(self.name).settings
        plus = "" if self.module is None else "+"
        return [f"policy={quoted(self.entry)}", *(f"{plus}policy.{setting}" for setting in settings)]

    def make(self, *, afresh: bool = False, parameters: Mapping[str, Any] | None = None) -> Policy:
        """Return a new policy, with other values of some parameters. Raise the errors of `build`.

        With `afresh`, the module of a user's class runs again, which clears the state that the module keeps.
        """
        if afresh and self.module is not None:
            sys.modules.pop(self.module, None)
        settings = {**self.settings, **(parameters or {})}
        return as_policy(build({"policy": settings}, "policy"))


def named_policy(name: str) -> NamedPolicy:
    """Return the policy of a name: of an entry, or FILE.py:CLASS, each perhaps with (SETTING=VALUE, …).

    Afterwards, Python also imports modules from the folder of a user's file.

    Raise InvalidConfigError if there is no such policy, or Python cannot import the file.
    """
    text = policy_text(name)
    file, colon, kind = text.name.rpartition(":")
    try:
        settings = values_of(text.settings)
    except InvalidConfigError as error:
        raise InvalidConfigError(f"{text.name}: {error}") from None
    if not colon:
        try:
            config = composed({"policy": text.name}, {"policy": settings}, 0).config["policy"]
        except InvalidConfigError as error:
            raise InvalidConfigError(f"{error}; a class of your own is FILE.py:CLASS") from None
        return NamedPolicy(name, dict(config))
    if not kind.isidentifier():
        raise InvalidConfigError(f"{text.name} names no class; give a policy as FILE.py:CLASS")
    path = Path(file).resolve()
    if not path.is_file() or path.suffix != ".py":
        raise InvalidConfigError(f"{file}: there is no Python file of this name; give a policy as FILE.py:CLASS")
    # In front, because the user means this file and not another module of its name.
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = None if "." in path.stem else find_spec(path.stem)
    if spec is None or spec.origin is None or Path(spec.origin).resolve() != path:
        origin = None if spec is None else spec.origin
        raise InvalidConfigError(f"{file}: Python's module {path.stem!r} is {origin}; give the file another name")
    return NamedPolicy(name, {"_target_": f"{path.stem}.{kind}", **settings}, path.stem)
