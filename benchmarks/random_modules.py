"""Draw modules of the package at random, for a review of whole modules.

    python benchmarks/random_modules.py [--count 12] [--seed N]

Prints path, lines and importers of each module. A seed gives the same modules as long as the package has the same
files. All imports count, also those inside functions; modules that a configuration or a command loads by name may
have no importer. Less than a second.
"""

from __future__ import annotations

import argparse
import ast
import random
from collections import defaultdict

from lines import PACKAGE, modules_now


def main() -> None:
    """Print the modules."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=12, metavar="N", help="number of modules (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the draw (default: %(default)s)")
    options = parser.parse_args()
    modules = modules_now()
    found = importers(modules)
    candidates = sorted(path for path in modules if not path.endswith("__init__.py"))
    for path in random.Random(options.seed).sample(candidates, min(options.count, len(candidates))):
        print(f"{PACKAGE}/{path}  {modules[path].count(chr(10))} lines")
        print(f"    imported by {', '.join(sorted(found[path])) or 'no module'}")


def importers(modules: dict[str, str]) -> dict[str, set[str]]:
    """Return the paths of the modules that import a module, by its path in the package."""
    paths = {module_name(path): path for path in modules}
    found: dict[str, set[str]] = defaultdict(set)
    for path, text in modules.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                inside = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [name if name in paths else node.module for name in inside]
            else:
                continue
            for name in names:
                if name in paths:
                    found[paths[name]].add(path)
    return found


def module_name(path: str) -> str:
    """Return the name under which Python imports a module, from its path in the package."""
    parts = [PACKAGE, *path.removesuffix(".py").split("/")]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


if __name__ == "__main__":
    main()
