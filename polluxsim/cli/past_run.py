"""Read a finished run for the commands that simulate it again: `whatif`, `when` and `why`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from polluxsim.common.errors import InvalidConfigError
from polluxsim.records.storage import Run
from polluxsim.run.configurations import import_from_here


def read_past_run(folder: Path, modules: Sequence[str]) -> Run:
    """Return the finished run in a folder. Its settings may name classes of `modules`, the modules of --allow-classes.

    Raise InvalidConfigError if a module is one of Python or polluxsim, and InvalidInputError if there is no such run.
    """
    from polluxsim.records.storage import read_run

    # These modules contain functions like `os.system`, which a run.json from somewhere else could call.
    refused_packages = {*sys.stdlib_module_names, "polluxsim"}
    for module in modules:
        package = module.partition(".")[0]
        if package in refused_packages:
            raise InvalidConfigError(
                f"--allow-classes {module}: a module of Python or polluxsim cannot be allowed; name a module of the "
                "current folder or an installed package"
            )
    if modules:
        import_from_here()
    return replace(read_run(folder), allow_classes=tuple(modules))


def check_classes_of(run: Run) -> None:
    """Check the classes that the settings of a run and of its ancestors name, before one of them is loaded.

    Print a line to standard error for each class of a user. Raise InvalidInputError if `--allow-classes` does not allow
    a class.
    """
    from polluxsim.records.storage import RUN_FILE
    from polluxsim.run.building import check_classes, get_object
    from polluxsim.run.forks import ancestry

    source = f"{run.name}/{RUN_FILE}"
    names: list[str] = []
    for info in ancestry(run):
        names += check_classes(info.get("config", {}), source, run.allow_classes)
    for name in dict.fromkeys(names):
        module = sys.modules[get_object(name).__module__]
        file = getattr(module, "__file__", None)
        print(f"polluxsim: {source} names {name}, loaded from {file}", file=sys.stderr)
