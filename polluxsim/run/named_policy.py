"""A policy by name: an entry of a configuration, or a class in a user's file as `mine.py:Mine`, with settings."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf

from polluxsim.errors import InvalidConfigError
from polluxsim.run.building import build
from polluxsim.run.composing import composed
from polluxsim.run.hydra_words import hydra_in_words
from polluxsim.run.overrides import PolicyText, policy_text, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polluxsim.policies.view import Policy


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
        """Return the overrides that choose it, where a class of the user's is an entry without settings."""
        settings, plus = policy_text(self.name).settings, "" if self.module is None else "+"
        return [f"policy={quoted(self.entry)}", *(f"{plus}policy.{setting}" for setting in settings)]

    def make(self, *, afresh: bool = False, parameters: Mapping[str, Any] | None = None) -> Policy:
        """Return a new policy.

        Parameters
        ----------
        afresh
            Whether the module of the policy runs again, which clears all state that the module kept.
        parameters
            Parameters in place of those in the settings.
        """
        if afresh and self.module is not None:
            sys.modules.pop(self.module, None)
        settings = {**self.settings, **(parameters or {})}
        policy: Policy = build(OmegaConf.create({"policy": settings}), "policy")
        return policy


def named_policy(name: str) -> NamedPolicy:
    """Return the policy of a name; Python imports modules from the folder of a user's file afterwards.

    Raises
    ------
    InvalidConfigError
        If the entry or the file does not exist, or the settings cannot be read.
    """
    text = policy_text(name)
    file, colon, kind = text.name.rpartition(":")
    settings = _values(text)
    if not colon:
        try:
            config = OmegaConf.to_container(composed({"policy": text.name}, {"policy": settings}, 0).policy)
        except HydraException as error:
            raise InvalidConfigError(f"{hydra_in_words(error)}; a class of your own is FILE.py:CLASS") from None
        return NamedPolicy(name, dict(config))  # type: ignore[arg-type]
    path = Path(file).resolve()
    if not path.is_file() or path.suffix != ".py":
        raise InvalidConfigError(f"{file}: no such file, allowed is FILE.py:CLASS")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = find_spec(path.stem)
    if spec is None or spec.origin is None or Path(spec.origin).resolve() != path:
        found = None if spec is None else spec.origin
        raise InvalidConfigError(f"{file}: Python's module {path.stem!r} is {found}; give the file another name")
    return NamedPolicy(name, {"_target_": f"{path.stem}.{kind}", **settings}, path.stem)


def _values(text: PolicyText) -> dict[str, Any]:
    """Return the settings of a policy by name, with values as Hydra reads them."""
    try:
        parsed = OverridesParser.create().parse_overrides(list(text.settings))
    except HydraException as error:
        raise InvalidConfigError(f"{text.name}: {hydra_in_words(error)}") from None
    return {item.key_or_group: item.value() for item in parsed}
