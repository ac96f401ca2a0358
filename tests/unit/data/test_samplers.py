"""Batches: P classes x K images for classes of any size, a function of (seed, epoch)."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from see_tune.data.samplers import coverage, epoch_batches

class_sizes = st.lists(st.integers(1, 9), min_size=1, max_size=30)


def labels_of(sizes: list[int]) -> np.ndarray:
    return np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)) * 2**24 + 5, sizes))


@settings(deadline=None, max_examples=100)
@given(class_sizes, st.integers(1, 4), st.integers(1, 12), st.integers(0, 9))
def test_no_class_is_never_drawn_whatever_its_size(sizes: list[int], per_class: int, classes: int, epoch: int) -> None:
    labels = labels_of(sizes)
    batches = epoch_batches(labels, batch_size=per_class * classes, images_per_class=per_class, seed=1, epoch=epoch)
    assert set(labels[np.concatenate(batches)]) == set(labels)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 9), min_size=6, max_size=30), st.integers(1, 4))
def test_a_batch_is_p_different_classes_with_k_images_each(sizes: list[int], per_class: int) -> None:
    labels = labels_of(sizes)
    batches = epoch_batches(labels, batch_size=per_class * 5, images_per_class=per_class, seed=1, epoch=0)
    for batch in batches:
        assert list(Counter(labels[batch]).values()) == [per_class] * 5


@settings(deadline=None, max_examples=50)
@given(class_sizes, st.integers(1, 4))
def test_a_class_of_at_least_k_images_is_drawn_without_repetition_within_a_group(sizes: list[int], per_class: int) -> None:
    labels = labels_of(sizes)
    counts = Counter(labels)
    for batch in epoch_batches(labels, batch_size=per_class, images_per_class=per_class, seed=0, epoch=0):
        assert len(set(batch)) == min(per_class, counts[labels[batch[0]]])


def test_equal_classes_are_covered_whole() -> None:
    labels = labels_of([6] * 40)
    batches = epoch_batches(labels, batch_size=30, images_per_class=2, seed=0, epoch=0)
    assert coverage(batches, len(labels)) == 1.0
    assert len(batches) == 8


def test_odd_class_sizes_are_covered_whole() -> None:
    labels = labels_of([1, 2, 3, 4, 5, 6, 7] * 20)
    batches = epoch_batches(labels, batch_size=24, images_per_class=2, seed=0, epoch=0)
    assert coverage(batches, len(labels)) == 1.0


def test_a_class_too_large_to_be_in_each_batch_once_is_cut_and_coverage_says_so() -> None:
    labels = labels_of([500, *[2] * 20])
    batches = epoch_batches(labels, batch_size=20, images_per_class=2, seed=0, epoch=0)
    assert len(batches) == 27
    assert coverage(batches, len(labels)) == pytest.approx((27 * 2 + 40) / 540)


def test_fewer_classes_than_a_batch_wants_are_repeated_in_it() -> None:
    labels = labels_of([20, 20, 20])
    for batch in epoch_batches(labels, batch_size=20, images_per_class=2, seed=0, epoch=0):
        assert max(Counter(labels[batch]).values()) <= 8


def test_a_dataset_smaller_than_a_batch_is_one_batch() -> None:
    [shuffled] = epoch_batches(labels_of([1, 1]), batch_size=90, images_per_class=None, seed=0, epoch=0)
    [grouped] = epoch_batches(labels_of([3, 2]), batch_size=90, images_per_class=2, seed=0, epoch=0)
    assert (sorted(shuffled), sorted(set(grouped))) == ([0, 1], [0, 1, 2, 3, 4])


def test_plain_shuffling_drops_the_last_incomplete_batch() -> None:
    batches = epoch_batches(labels_of([25]), batch_size=10, images_per_class=None, seed=0, epoch=0)
    assert [len(batch) for batch in batches] == [10, 10]
    assert len(np.unique(np.concatenate(batches))) == 20


@pytest.mark.parametrize("per_class", [None, 2])
def test_batches_are_a_function_of_seed_and_epoch(per_class: int | None) -> None:
    def draw(seed: int, epoch: int) -> list[list[int]]:
        batches = epoch_batches(labels_of([5] * 9), batch_size=6, images_per_class=per_class, seed=seed, epoch=epoch)
        return [batch.tolist() for batch in batches]

    assert draw(0, 1) == draw(0, 1)
    assert draw(0, 1) != draw(0, 2)
    assert draw(0, 1) != draw(1, 1)
    assert len(draw(0, 1)) == len(draw(0, 2))


def test_a_batch_that_holds_no_class_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_size 3 holds no class of images_per_class 4"):
        epoch_batches(labels_of([5]), batch_size=3, images_per_class=4, seed=0, epoch=0)
