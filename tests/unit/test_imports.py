"""The collector rests while modules are imported, and is afterwards as it was; and who waits for no torch gets none."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from see_tune.imports import quick_imports


def test_collector_rests_inside_and_works_again_after_an_error() -> None:
    with pytest.raises(ImportError), quick_imports():
        assert not gc.isenabled()
        raise ImportError("no such module")
    assert gc.isenabled()


def test_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with quick_imports(), quick_imports():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_module_that_is_put_off_is_imported_at_its_first_use() -> None:
    code = (
        "import inspect, sys\n"
        "from see_tune.losses import build_loss\n"
        "build_loss('proxy_anchor', num_classes=3, embedding_dim=4)\n"
        "import scipy.stats as stats\n"
        "inspect.getmodule(inspect.currentframe())\n"
        "print('scipy.stats._stats_py' in sys.modules)\n"
        "from pytorch_metric_learning.utils.common_functions import make_label_to_rank_dict\n"
        "print(list(make_label_to_rank_dict([30, 10, 20]).values()) == [2, 0, 1], 'scipy.stats._stats_py' in sys.modules)\n"
        "from scipy.stats import rankdata\n"
        "print(rankdata is stats.rankdata is sys.modules['scipy.stats'].rankdata)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\nTrue True\nTrue\n"


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("see_tune.study", {"torch", "optuna", "ray.tune", "mlflow"}),  # what is imported before Ray starts
        ("see_tune.cli.progress", {"torch", "optuna", "ray", "mlflow"}),
        ("see_tune.start", {"torch", "mlflow"}),  # and before the first trial is handed out
        ("see_tune.trial", {"torch", "optuna", "ray", "mlflow"}),
    ],
)
def test_start_waits_for_no_more_than_it_needs(module: str, absent: set[str]) -> None:
    code = f"import sys, {module}; print({absent} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
