from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mlflow import MlflowClient

from see_tune.home import Home
from see_tune.tracking.connection import connect
from see_tune.tracking.registry import Candidate


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """One store for the tests of a file (making one takes seconds): each test has its own study or dataset in it."""
    return Home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def client(home: Home) -> Iterator[MlflowClient]:
    return connect(home, "local")


@pytest.fixture
def candidate(request: pytest.FixtureRequest) -> Callable[..., Candidate]:
    """A candidate of this test's own dataset, with what is given changed."""

    def make(validation: float = 0.5, **changed: Any) -> Candidate:
        values = {
            "study": "a-study",
            "dataset": request.node.name,
            "objective": "val_recall_at_1",
            "fingerprint": "f1",
            "split_hash": "s1",
            "protocol": "honest",
            "crop": "32",
            "backbone": "glyphnet",
            "embedding_dim": 16,
            "test": {"test/recall_at_1": 0.4},
            "test_mean": {"test/recall_at_1": 0.39},
        }
        return Candidate(**{**values, "validation": validation, **changed})

    return make
