"""The profiles that a finished run was made with, found again and checked: efficiency and progress follow from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from polluxsim.applications.folder import ProfileFolder
from polluxsim.errors import InvalidInputError
from polluxsim.look.groups import settings_of
from polluxsim.look.lives import Lives, fit, lives_of
from polluxsim.look.starts import start_delay
from polluxsim.models.profile import ProfileRangeError
from polluxsim.shipped import present_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from polluxsim.models.profile import Profile
    from polluxsim.storage import Run


FOLDER = f"{ProfileFolder.__module__}.{ProfileFolder.__name__}"
"""Name of the class that reads profiles from a folder, as settings have it."""


class OwnProfiles(NamedTuple):
    """Profiles by application, where they are in words, and the lives of the run's jobs by them."""

    profiles: Mapping[str, Profile]
    where: str
    lives: Lives


def own_profiles(run: Run, folder: Path | None = None) -> OwnProfiles:
    """Return the profiles of a run, from a folder or from where its settings say they were.

    Raises
    ------
    InvalidInputError
        If they are not there, or are not the run's; or if the records do not tell what follows from them.
    """
    settings = settings_of(run)
    if folder is None and present_name(settings.get("profiles._target_")) != FOLDER:
        raise InvalidInputError("the run does not say where its profiles are")
    if settings.get("engine.interference") or settings.get("engine.sharing._target_"):
        raise InvalidInputError("they do not follow from the records where jobs interfere or share GPUs")
    if any(job.num_failures or job.checkpoint_time for job in run.result.job_records):
        raise InvalidInputError("they do not follow from the records where jobs lose work or stop for checkpoints")
    if "engine.restart_delay" not in settings:
        raise InvalidInputError("the run does not say its restart delay")
    path = settings.get("profiles.path") if folder is None else str(folder)
    where = "the profile cards that come with polluxsim" if path is None else f"the profiles in {path}"
    try:
        profiles = ProfileFolder(path).load()
        lives = lives_of(run.result, profiles, start_delay(run))
    except (InvalidInputError, ProfileRangeError) as error:
        raise InvalidInputError(f"{where} could not be used ({error})") from None
    if not fit(run.result, lives):
        raise InvalidInputError(f"{where} are not those the run was made with")
    return OwnProfiles(profiles, where, lives)
