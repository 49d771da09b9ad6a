import hashlib
import io
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path

import pandas as pd

from polluxsim.shipped import shipped


def _one(args):
    folder, overrides = args
    if not (folder / "run.json").is_file():
        from polluxsim.app.run import run

        with redirect_stdout(io.StringIO()):
            run(["--config-dir", str(shipped("experiments")), *overrides, f"hydra.run.dir={folder}"])
    return str(folder)


def local_sweep(folder: Path, workers):
    def sweep(plan):
        todo = []
        for o in plan:
            key = hashlib.sha256(repr([x for x in o if not x.startswith("+")]).encode()).hexdigest()[:16]
            todo.append((folder.resolve() / key, o))
        distinct = {f: o for f, o in todo}
        with ProcessPoolExecutor(workers or 2) as pool:
            list(pool.map(_one, distinct.items()))
        return pd.DataFrame({"folder": [str(f) for f, _ in todo]})

    return sweep
