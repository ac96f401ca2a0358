"""Exact neighbours, whoever searches; a GPU that refuses is replaced without a difference."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import faiss
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from see_tune.errors import EvaluationError
from see_tune.evaluation import neighbours
from see_tune.evaluation.neighbours import nearest


@pytest.fixture(params=["faiss", "torch"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(neighbours, "_import_faiss", lambda: faiss if request.param == "faiss" else None)
    return request.param


def search_naively(queries: np.ndarray, gallery: np.ndarray, k: int, exclude_self: bool) -> np.ndarray:
    similarities = []
    for i, query in enumerate(queries):
        row = [float(query @ other) for j, other in enumerate(gallery) if not (exclude_self and i == j)]
        similarities.append(sorted(row, reverse=True)[:k])
    return np.array(similarities)


def draw_units(random: np.random.Generator, rows: int, dim: int, tied: bool) -> np.ndarray:
    vectors = random.integers(-1, 2, (rows, dim)) + 1e-3 if tied else random.normal(size=(rows, dim))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@given(seed=st.integers(0, 2**32 - 1), tied=st.booleans(), exclude_self=st.booleans(), with_faiss=st.booleans())
@settings(deadline=None, max_examples=100)
def test_neighbours_equal_a_naive_double_loop(seed: int, tied: bool, exclude_self: bool, with_faiss: bool) -> None:
    random = np.random.default_rng(seed)
    queries = draw_units(random, random.integers(2, 30), 3, tied)
    gallery = queries if exclude_self else draw_units(random, random.integers(1, 30), 3, tied)
    k = int(random.integers(1, len(gallery) - exclude_self + 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbours, "_TILE", 7)
        patch.setattr(neighbours, "_import_faiss", lambda: faiss if with_faiss else None)
        similarities, indices = nearest(queries, gallery, k, exclude_self=exclude_self)
    np.testing.assert_allclose(similarities, search_naively(queries, gallery, k, exclude_self), atol=1e-6)
    np.testing.assert_allclose(similarities, np.take_along_axis(queries @ gallery.T, indices, axis=1), atol=1e-6)
    assert all(len(set(row)) == k for row in indices.tolist())
    assert not (exclude_self and (indices == np.arange(len(indices))[:, None]).any())


def test_self_is_excluded_also_where_duplicates_push_it_out(engine: str) -> None:
    duplicates = torch.ones(50, 4)
    _, indices = nearest(duplicates, duplicates, 5, exclude_self=True)
    assert indices.shape == (50, 5)
    assert not (indices == np.arange(50)[:, None]).any()


@pytest.mark.parametrize(("k", "exclude_self"), [(0, False), (4, False), (3, True), (-1, False)])
def test_a_k_that_the_gallery_cannot_fill_is_refused(engine: str, k: int, exclude_self: bool) -> None:
    with pytest.raises(EvaluationError, match=f"k = {k} neighbours"):
        nearest(torch.eye(3), torch.eye(3), k, exclude_self=exclude_self)


def test_non_finite_rows_are_refused(engine: str) -> None:
    broken = torch.eye(3)
    broken[1, 1] = torch.nan
    with pytest.raises(EvaluationError, match="row 1 of the gallery"):
        nearest(torch.eye(3), broken, 1, exclude_self=False)
    with pytest.raises(EvaluationError, match="row 1 of the queries"):
        nearest(broken, torch.eye(3), 1, exclude_self=False)


def test_shapes_must_agree(engine: str) -> None:
    with pytest.raises(EvaluationError, match="do not fit"):
        nearest(torch.ones(2, 3), torch.ones(2, 4), 1, exclude_self=False)
    with pytest.raises(EvaluationError, match="do not fit"):
        nearest(torch.ones(2, 3), torch.ones(5, 3), 1, exclude_self=True)


class FaissWithGpu:
    """faiss as its GPU build looks from here; the search on the GPU does what `knn_gpu` says."""

    METRIC_INNER_PRODUCT = faiss.METRIC_INNER_PRODUCT
    omp_set_num_threads = staticmethod(faiss.omp_set_num_threads)
    knn = staticmethod(faiss.knn)

    def __init__(self, out_of_memory: bool) -> None:
        self.out_of_memory = out_of_memory
        self.gpu_searches: list[int] = []
        self.scratch_bytes = 0

    def get_num_gpus(self) -> int:
        return 1

    def StandardGpuResources(self) -> Any:  # noqa: N802  # faiss's name
        return SimpleNamespace(setTempMemory=lambda size: setattr(self, "scratch_bytes", size))

    def knn_gpu(self, resources: Any, queries: np.ndarray, gallery: np.ndarray, k: int, **options: Any) -> Any:
        self.gpu_searches.append(k)
        if self.out_of_memory:
            raise RuntimeError("Error: 'err == cudaSuccess' failed: StandardGpuResources: alloc fail out of memory")
        return faiss.knn(queries, gallery, k, metric=options["metric"])


def test_a_gpu_searches_where_there_is_one_within_300_mb(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FaissWithGpu(out_of_memory=False)
    monkeypatch.setattr(neighbours, "_import_faiss", lambda: gpu)
    nearest(torch.eye(5), torch.eye(5), 2, exclude_self=True)
    assert gpu.gpu_searches == [3]
    assert gpu.scratch_bytes + 2 * neighbours._FAISS_GPU_PAGE_BYTES <= 300e6


@pytest.mark.parametrize(("k", "tried"), [(2049, 0), (10, 1)])
def test_a_search_the_gpu_cannot_take_has_the_same_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, k: int, tried: int
) -> None:
    rows = torch.randn(2100, 4, generator=torch.Generator().manual_seed(0))
    expected = nearest(rows[:20], rows, k, exclude_self=False)
    gpu = FaissWithGpu(out_of_memory=True)
    monkeypatch.setattr(neighbours, "_import_faiss", lambda: gpu)
    with caplog.at_level(logging.WARNING):
        found = nearest(rows[:20], rows, k, exclude_self=False)
    np.testing.assert_array_equal(found, expected)
    assert len(gpu.gpu_searches) == tried
    assert ("out of memory" in caplog.text) == bool(tried)


def test_without_faiss_torch_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ModuleNotFoundError(name)

    neighbours._import_faiss.cache_clear()
    monkeypatch.setattr(neighbours.importlib, "import_module", fail)
    try:
        similarities, indices = nearest(torch.eye(3), torch.eye(3), 1, exclude_self=False)
    finally:
        neighbours._import_faiss.cache_clear()
    assert (similarities.tolist(), indices.tolist()) == ([[1.0]] * 3, [[0], [1], [2]])
    assert (similarities.dtype, indices.dtype) == (np.float32, np.int64)
