"""see_tune.training.parts"""

from collections.abc import Callable

import pytest
import torch

from see_tune.errors import SpecError
from see_tune.models import weights_hash
from see_tune.spec.models import TrialSpec
from see_tune.training.parts import make_preprocessing, pick_device
from see_tune.training.state import TrainingState

SpecMaker = Callable[..., TrialSpec]
StateMaker = Callable[..., TrainingState]


def test_auto_is_cuda_where_there_is_one() -> None:
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_a_device_that_torch_does_not_know_is_refused() -> None:
    with pytest.raises(SpecError, match="no device 'gpu0'"):
        pick_device("gpu0")


@pytest.mark.parametrize(
    ("backbone", "image_size", "sizes"),
    [
        ("vit_small_patch16_224", "auto", (224, 256)),
        ("resnet50", "auto", (224, 256)),
        ("resnet50", 112, (112, 128)),
        ("glyphnet", "auto", (32, 32)),  # a backbone that wants the whole picture gets it
    ],
)
def test_images_are_resized_and_cropped_as_the_field_does(
    spec_of: SpecMaker, backbone: str, image_size: int | str, sizes: tuple[int, int]
) -> None:
    preprocessing = make_preprocessing(spec_of(model__backbone=backbone, data__image_size=image_size))

    assert (preprocessing.image_size, preprocessing.resize_size) == sizes


def test_see_on_and_off_start_from_the_same_weights_proxies_and_stream(state_of: StateMaker) -> None:
    on, off = state_of(), state_of(see__enabled=False)

    assert weights_hash(on.model) == weights_hash(off.model)
    assert weights_hash(on.loss.loss) == weights_hash(off.loss)
    state_of()
    drawn_on = torch.rand(1)
    state_of(see__enabled=False)
    assert torch.rand(1) == drawn_on


def test_another_seed_starts_elsewhere(state_of: StateMaker) -> None:
    one, other = state_of(seed=0), state_of(seed=1)

    assert weights_hash(one.model) != weights_hash(other.model)
    assert weights_hash(one.loss.loss) != weights_hash(other.loss.loss)


def test_a_micro_batch_with_trained_batch_norm_is_refused(state_of: StateMaker) -> None:
    with pytest.raises(SpecError, match=r"Set model\.freeze_bn: true"):
        state_of(train__micro_batch=8)


def test_half_precision_stays_off_on_a_cpu(state_of: StateMaker) -> None:
    state = state_of(train__amp="bf16")

    assert state.amp is None
    assert not state.scaler.is_enabled()
