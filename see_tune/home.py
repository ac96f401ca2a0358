"""The home folder's layout: every path of a study is made here and nowhere else.

<home>/                         --home, $SEE_TUNE_HOME, else ./runs
├── mlflow.db  mlartifacts/     the local tracking store
├── cache/                      rendered glyphs, decoded images
├── test_looks.jsonl            every measurement on test classes
├── ui.log                      what the MLflow UI had to say
├── orders/                     studies that a cluster was given and has not ended
└── studies/<name>/
    ├── study.yaml              the spec as it was frozen
    ├── optuna.db               the one truth about trials; or optuna.journal, or storage.json with the database they lie in
    ├── spool.db                what MLflow has yet to be told
    ├── trials/<lineage>/       checkpoints
    ├── summary.json  engine.log  lock  lock.holder  lock.stop
    ├── report.html  report.md
    ├── figures/                the report's: plotly's JSON, and the gallery as PNG
    └── environment.txt         what was installed
"""

from __future__ import annotations

import logging
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from see_tune.errors import SpecError

_NOT_IN_AN_ADDRESS = "?#%"


@dataclass(frozen=True)
class StudyFolder:
    """Where one study keeps what it has; nothing is created until `make`."""

    root: Path

    @property
    def home(self) -> Home:
        return Home(self.root.parents[1])

    @property
    def spec_file(self) -> Path:
        return self.root / "study.yaml"

    @property
    def optuna_db(self) -> Path:
        return self.root / "optuna.db"

    @property
    def journal_file(self) -> Path:
        return self.root / "optuna.journal"

    @property
    def storage_file(self) -> Path:
        return self.root / "storage.json"

    @property
    def spool_db(self) -> Path:
        return self.root / "spool.db"

    @property
    def summary_file(self) -> Path:
        return self.root / "summary.json"

    @property
    def report_file(self) -> Path:
        return self.root / "report.html"

    @property
    def figures(self) -> Path:
        return self.root / "figures"

    @property
    def environment_file(self) -> Path:
        return self.root / "environment.txt"

    @property
    def engine_log(self) -> Path:
        return self.root / "engine.log"

    @property
    def lock_file(self) -> Path:
        return self.root / "lock"

    @property
    def ray_results(self) -> Path:
        return self.root / "ray"

    def trial(self, lineage: str) -> Path:
        """The checkpoint folder of one lineage (a trial across all its resumes)."""
        return self.root / "trials" / lineage

    def make(self) -> StudyFolder:
        self.root.mkdir(parents=True, exist_ok=True)
        return self


@dataclass(frozen=True)
class Home:
    """The folder that holds everything see-tune writes."""

    root: Path

    @property
    def mlflow_db(self) -> Path:
        return self.root / "mlflow.db"

    @property
    def mlflow_lock(self) -> Path:
        return self.root / "mlflow.lock"

    @property
    def mlflow_artifacts(self) -> Path:
        return self.root / "mlartifacts"

    @property
    def looks_file(self) -> Path:
        return self.root / "test_looks.jsonl"

    @property
    def ui_log(self) -> Path:
        return self.root / "ui.log"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def orders(self) -> Path:
        return self.root / "orders"

    def study(self, name: str) -> StudyFolder:
        return StudyFolder(self.root / "studies" / name)

    def command(self, *words: str) -> str:
        """What a message tells people to type about this home, whichever one they would have without ``--home``.

        >>> Home(Path("/data/runs")).command("status", "cars")
        'see-tune status cars --home /data/runs'
        """
        return shlex.join(["see-tune", *words, "--home", str(self.root)])


def find_home(flag: Path | None = None) -> Home:
    """The home that `--home`, then SEE_TUNE_HOME, then ./runs names, as an absolute path (relative ones break Ray).

    Raises:
        SpecError: its path cannot stand in a database's address.
    """
    root = Path(flag or os.environ.get("SEE_TUNE_HOME") or "runs").expanduser().resolve()
    if wrong := sorted(set(str(root)) & set(_NOT_IN_AN_ADDRESS)):
        raise SpecError(
            f"the home folder {root} has {' '.join(wrong)} in its path, which means something else in the address of its "
            f"databases; choose another with --home DIR or SEE_TUNE_HOME"
        )
    return Home(root)


def settle_matplotlib(cache: Path) -> None:
    """Before it is imported: it keeps a folder in the user's own home, and says so, unless it is told of another."""
    os.environ.setdefault("MPLCONFIGDIR", str(cache / "matplotlib"))
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)


def dataset_places(name: str, root: str | Path | None = None) -> tuple[Path, ...]:
    """Where dataset `name` is looked for, best first: the given root alone, or $SEE_TUNE_DATA/<name> and ./data/<name>."""
    if root is not None:
        return (Path(root).expanduser().resolve(),)
    shared = os.environ.get("SEE_TUNE_DATA")
    places = [Path(shared).expanduser() / name] if shared else []
    return tuple(place.resolve() for place in [*places, Path("data") / name])
