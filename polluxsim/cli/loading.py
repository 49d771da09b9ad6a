"""Runs to simulate again, and the classes of the user that they name."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from polluxsim.common.errors import InvalidConfigError

if TYPE_CHECKING:
    from polluxsim.records.storage import Run


def read_to_make_again(options: Namespace) -> Run:
    """Return the run of `options.run` with the modules that it may load classes from."""
    from dataclasses import replace

    from polluxsim.records.storage import read_run

    modules = tuple(options.allow_classes)
    for module in modules:
        if module.partition(".")[0] in {*sys.stdlib_module_names, "polluxsim"}:
            what = f"--allow-classes {module}: a module of Python or polluxsim cannot be allowed"
            raise InvalidConfigError(f"{what}; name a module of the current folder or an installed package")
    if modules:
        from polluxsim.run.configurations import import_from_here

        import_from_here()
    return replace(read_run(options.run), allow_classes=modules)


def tell_classes(run: Run) -> None:
    """Check the classes that the settings of a run and its ancestors name; print a line for each foreign class."""
    from hydra.utils import get_object

    from polluxsim.records.storage import RUN_FILE
    from polluxsim.run.building import check_classes
    from polluxsim.run.forks import ancestry

    source, configs = f"{run.name}/{RUN_FILE}", [info.get("config", {}) for info in ancestry(run)]
    found = [name for config in configs for name in check_classes(config, source, run.allow_classes)]
    for name in dict.fromkeys(found):
        file = getattr(sys.modules[get_object(name).__module__], "__file__", None)
        print(f"polluxsim: {source} names {name}, loaded from {file}", file=sys.stderr)
