"""Load profiles from a folder of cards or of measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from polluxsim.applications.card_files import read_cards
from polluxsim.applications.osdi21 import find_traces, read_profiles
from polluxsim.common.errors import InvalidInputError
from polluxsim.common.shipped import shipped
from polluxsim.models.profile import Profile


@dataclass(frozen=True)
class ProfileFolder:
    """Profiles in a folder: cards, or measurements in the layout of the Pollux artifact."""

    path: str | None = None  # path of the folder; by default the cards that come with polluxsim

    def load(self) -> Mapping[str, Profile]:
        """Return the profiles by application name.

        Raise InvalidInputError if the folder has another layout, or a file in it is invalid.
        """
        if self.path is None:
            return dict(_shipped_cards())
        folder = Path(self.path)
        if find_traces(folder) is not None:
            return read_profiles(folder)
        if any(folder.glob("*.yaml")):
            return read_cards(folder)
        raise InvalidInputError(
            f"profiles.path is {self.path}, must be a folder with cards (*.yaml), or with "
            "traces/APPLICATION/placements.csv"
        )


@cache
def _shipped_cards() -> Mapping[str, Profile]:
    """Return the profiles that come with polluxsim, read once in a process.

    Its callers must not change the mapping. The runs of a process share what the profiles have computed.
    """
    return read_cards(shipped("traces"))
