"""see-tune: distributed, honest hyperparameter search for image retrieval with Spherical Embedding Expansion.

    from see_tune import expand, SEELoss, evaluate_embeddings, train, run_study

The names are loaded when they are first used (PEP 562), so that ``see-tune --help`` imports no engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from see_tune.evaluation import evaluate_embeddings
    from see_tune.method import SEELoss, expand
    from see_tune.study import run_study
    from see_tune.training import train

_PUBLIC = {
    "SEELoss": "see_tune.method",
    "evaluate_embeddings": "see_tune.evaluation",
    "expand": "see_tune.method",
    "run_study": "see_tune.study",
    "train": "see_tune.training",
}

__all__ = ["SEELoss", "evaluate_embeddings", "expand", "run_study", "train"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'see_tune' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
