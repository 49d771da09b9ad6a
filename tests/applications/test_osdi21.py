from __future__ import annotations

import re
from pathlib import Path
from shutil import copytree

import pytest
from toy import write_artifact

from polluxsim.applications.card_files import fit_cards, read_cards
from polluxsim.applications.folder import ProfileFolder
from polluxsim.applications.measured import MeasuredProfile
from polluxsim.applications.osdi21 import read_profiles
from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidInputError


def test_a_folder_is_found_by_its_layout(tmp_path: Path) -> None:
    profiles = read_profiles(write_artifact(tmp_path))
    assert list(profiles) == ["cifar10", "ncf"]
    assert ProfileFolder(str(tmp_path)).load() == ProfileFolder(str(tmp_path / "traces")).load() == profiles


def test_all_measurements_are_read(measured_profiles: dict[str, MeasuredProfile]) -> None:
    assert sum(len(profile.placements) for profile in measured_profiles.values()) == 5542


OWN = """source: measured by me
license: MIT
applications:
  mine:
    card: my-model
    title: My model
    optimizer: Adam
    target: done
    num_epochs: 10
    learning_rate_rule: adascale
    max_replicas: 8
    card_size: {noise_stages: 2, correction_replicas: [2, 4, 8]}
"""


def own_measurements(folder: Path) -> Path:
    """Write measurements of an application that only its own description knows."""
    write_artifact(folder, ("ncf",))
    (folder / "traces" / "ncf").rename(folder / "traces" / "mine")
    (folder / "traces" / "applications.yaml").write_text(OWN)
    return folder


def test_applications_of_ones_own_are_described_beside_their_tables(tmp_path: Path) -> None:
    mine = read_profiles(own_measurements(tmp_path))["mine"].application
    assert (mine.num_epochs, mine.max_replicas, mine.fixed_batch_size, mine.learning_rate_rule) == (
        10,
        8,
        None,
        "adascale",
    )


def test_cards_are_fitted_to_measurements_of_ones_own(tmp_path: Path) -> None:
    command = ["profile", "fit", str(own_measurements(tmp_path)), "-o", str(tmp_path / "cards")]
    assert main([*command, "--figure", "fit.gif"]) == 2
    assert not (tmp_path / "cards").exists()
    assert main(command) == 0
    (card,) = read_cards(tmp_path / "cards").values()
    about = card.card.about
    assert (card.application.name, about.title, about.source, about.license) == (
        "mine",
        "My model",
        "measured by me",
        "MIT",
    )
    assert card.card.corrections.num_replicas == (2, 4, 8)
    assert [path.name for path in (tmp_path / "cards").iterdir()] == ["my-model.yaml"]


def test_two_cards_with_one_file_name_are_refused(tmp_path: Path) -> None:
    traces = own_measurements(tmp_path) / "traces"
    copytree(traces / "mine", traces / "other")
    own = OWN.partition("applications:\n")[2]
    (traces / "applications.yaml").write_text(OWN + own.replace("  mine:", "  other:"))
    with pytest.raises(InvalidInputError, match="two applications have the card 'my-model'"):
        fit_cards(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("num_epochs: 10", "num_epochs: 0", "line 9: key 'num_epochs' is '0', must be a number from 1"),
        ("num_epochs: 10", "num_epochs: 1_0", "line 9: key 'num_epochs' is '1_0', must be a number from 1"),
        ("    title: My model\n", "", "missing key 'title'"),
        ("card: my-model", "card: ../x", "line 5: key 'card' is '../x', must be a file name"),
        ("license: MIT", "licence: MIT", "missing key 'license'"),
        (
            "max_replicas: 8",
            "fixed_batch_size: 8",
            "application 'mine' has the fixed batch size 8, must be from 256 to",
        ),
        ("noise_stages: 2", "stages: 2", "key 'stages' is unknown"),
        ("  mine:", "  other:", "has no epochs and limits of this application, only of other"),
    ],
)
def test_a_description_that_is_wrong_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = own_measurements(tmp_path) / "traces" / "applications.yaml"
    path.write_text(OWN.replace(old, new))
    with pytest.raises(InvalidInputError, match=re.escape(message)) as caught:
        read_profiles(tmp_path)
    assert str(tmp_path / "traces") in str(caught.value)


@pytest.mark.parametrize(
    ("file", "line", "text", "message"),
    [
        ("placements.csv", 3, "1,64,nan,0.1", "line 3: column 'step_time' is 'nan', must be a finite number > 0"),
        ("placements.csv", 3, "1,64,0.1,0.2", "line 3: column 'sync_time' is '0.2', must be less than the step"),
        ("placements.csv", 3, "10,64,0.1,0.01", "line 3: column 'placement' is '10', must be the GPUs on each"),
        ("placements.csv", 3, "1,32,0.1,0.01", "line 3: .* is on an earlier line, too"),
        ("placements.csv", 3, "\n\n1,32,0.1,0.01", "line 5: .* is on an earlier line, too"),
        ("placements.csv", 3, "1,64.5,0.1,0.01", "line 3: column 'local_bsz' is '64.5', must be a whole number"),
        ("placements.csv", 3, "1,64,0.1", "line 3: 3 fields, the header has 4"),
        (
            "scalability.csv",
            2,
            "6,5,32,0.1,0.01",
            "line 2: column 'num_replicas' is '5', must be a whole number ≥ 6",
        ),
        ("validation-128.csv", 4, "1,1,1,1,1", "line 4: column 'progress' is '1', must be a finite number > 200"),
        ("validation-128.csv", 4, "301,1,1,-1,1", "line 4: column 'grad_sqr' is '-1'"),
        ("validation-128.csv", 1, "a,b,c,d,e", "line 1: missing column 'progress', 'iteration', 'metric'"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, file: str, line: int, text: str, message: str) -> None:
    path = write_artifact(tmp_path) / "traces" / "cifar10" / file
    lines = path.read_text().splitlines()
    lines[line - 1] = text
    path.write_text("\n".join(lines))
    with pytest.raises(InvalidInputError, match=message) as caught:
        read_profiles(tmp_path)
    assert str(path) in str(caught.value)


def test_a_training_run_that_ends_too_early_is_named(tmp_path: Path) -> None:
    path = write_artifact(tmp_path) / "traces" / "cifar10" / "validation-512.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:50]))
    with pytest.raises(InvalidInputError, match="49 epochs, must have 100"):
        read_profiles(tmp_path)


def test_a_folder_with_nothing_in_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no measured profiles"):
        read_profiles(tmp_path)
    with pytest.raises(InvalidInputError, match="must be a folder with cards"):
        ProfileFolder(str(tmp_path)).load()


def test_an_application_that_is_not_known_is_named(tmp_path: Path) -> None:
    write_artifact(tmp_path)
    (tmp_path / "traces" / "ncf").rename(tmp_path / "traces" / "mine")
    with pytest.raises(InvalidInputError, match="has no epochs and limits of this application"):
        read_profiles(tmp_path)
