"""A policy by name: one of ours, or a class in a file of the user's as `mine.py:Mine`."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hydra.errors import HydraException
from omegaconf import OmegaConf

from polluxsim.errors import InvalidConfigError
from polluxsim.run.building import build
from polluxsim.run.composing import composed
from polluxsim.run.hydra_words import hydra_in_words

if TYPE_CHECKING:
    from polluxsim.policies.view import Policy


class NamedPolicy(NamedTuple):
    """A policy that can be made as often as it is needed."""

    name: str  # as the user named it
    settings: dict[str, Any]  # its part of a configuration: `_target_` and parameters
    module: str | None = None  # the user's module that it is in, None for one of ours

    @property
    def label(self) -> str:
        """Return a name that can be a file's: that of the class, for one of the user's."""
        return self.name.rpartition(":")[2]

    def make(self, *, afresh: bool = False) -> Policy:
        """Return a new policy; `afresh` runs its module again, so that nothing is left of what it kept there."""
        if afresh and self.module is not None:
            sys.modules.pop(self.module, None)
        policy: Policy = build(OmegaConf.create({"policy": self.settings}), "policy")
        return policy


def named_policy(name: str) -> NamedPolicy:
    """Return the policy of a name; the folder of a user's file becomes one that Python imports from."""
    file, colon, kind = name.rpartition(":")
    if not colon:
        try:
            settings = OmegaConf.to_container(composed({"policy": name}, {}, 0).policy)
        except HydraException as error:
            raise InvalidConfigError(f"{hydra_in_words(error)}; a class of your own is FILE.py:CLASS") from None
        return NamedPolicy(name, dict(settings))  # type: ignore[arg-type]
    path = Path(file).resolve()
    if not path.is_file() or path.suffix != ".py":
        raise InvalidConfigError(f"{file}: no such file, allowed is FILE.py:CLASS")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = find_spec(path.stem)
    if spec is None or spec.origin is None or Path(spec.origin).resolve() != path:
        found = None if spec is None else spec.origin
        raise InvalidConfigError(f"{file}: Python's module {path.stem!r} is {found}; give the file another name")
    return NamedPolicy(name, {"_target_": f"{path.stem}.{kind}"}, path.stem)
