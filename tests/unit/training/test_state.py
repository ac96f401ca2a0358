"""see_tune.training.state"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.amp import GradScaler

from see_tune.errors import SpecError, TrainingError
from see_tune.losses import LOSSES
from see_tune.models import weights_hash
from see_tune.results import EpochResult
from see_tune.training.checkpoint import load_weights
from see_tune.training.state import TrainingState

StateMaker = Callable[..., TrainingState]

LABELS = torch.arange(10) % 5
VIT = {"model__backbone": "test_vit", "data__image_size": 32}


def images(seed: int = 0) -> Tensor:
    return torch.randn(10, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


def result(epoch: int, value: float) -> EpochResult:
    return EpochResult(epoch, {"val/recall_at_1": value}, timestamp=float(epoch), duration_s=1.0)


def hashes(state: TrainingState) -> tuple[str, str]:
    return weights_hash(state.model), weights_hash(state.loss)


# One step

PAIRS = [(name, see) for name, entry in LOSSES.items() for see in (False, True) if entry.has_proxies or not see]


@pytest.mark.parametrize("backbone", ["glyphnet", "test_vit", "test_resnet"])
@pytest.mark.parametrize(("loss", "see"), PAIRS)
def test_every_loss_with_and_without_see_trains_every_backbone(state_of: StateMaker, loss: str, see: bool, backbone: str) -> None:
    state = state_of(
        model__backbone=backbone, data__image_size=32, loss__name=loss, see__enabled=see, see__pace={"shape": "constant"}
    )
    state.begin_epoch(1)
    before = hashes(state)

    losses = [state.step(images(step), LABELS, 1) for step in range(2)]

    assert torch.stack(losses).isfinite().all()
    assert all(old != new for old, new in zip(before[: 1 + LOSSES[loss].has_proxies], hashes(state), strict=False))


def test_the_backbone_is_frozen_for_the_first_epochs(state_of: StateMaker) -> None:
    state = state_of(train__freeze_backbone_epochs=1, model__freeze_bn=True)
    at_start = weights_hash(state.model.backbone), weights_hash(state.model.linear)

    state.begin_epoch(1)
    state.step(images(), LABELS, 1)
    assert weights_hash(state.model.backbone) == at_start[0]
    assert weights_hash(state.model.linear) != at_start[1]

    state.begin_epoch(2)
    state.step(images(), LABELS, 2)
    assert weights_hash(state.model.backbone) != at_start[0]


def test_micro_batches_train_as_the_whole_batch_does(state_of: StateMaker) -> None:
    whole, chunked = state_of(**VIT), state_of(**VIT, train__micro_batch=4)

    for state in (whole, chunked):
        state.model.double()
        state.loss.double()
        state.begin_epoch(2)
        for step in range(2):
            state.step(images(step).double(), LABELS, 2)

    weights = zip(whole.model.state_dict().values(), chunked.model.state_dict().values(), strict=True)
    assert all(torch.allclose(one, other, atol=1e-9, rtol=1e-7) for one, other in weights)


def test_a_channels_last_model_takes_the_same_step(state_of: StateMaker) -> None:
    plain, channels_last = state_of(), state_of(model__channels_last=True)

    losses = [state.step(images(), LABELS, 1) for state in (plain, channels_last)]

    torch.testing.assert_close(losses[1], losses[0])
    assert all(
        weight.is_contiguous(memory_format=torch.channels_last) for weight in channels_last.model.parameters() if weight.ndim == 4
    )


def test_the_model_is_compiled_where_that_is_asked_for(state_of: StateMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[torch.nn.Module] = []

    def compile_nothing(module: torch.nn.Module) -> None:
        compiled.append(module)

    monkeypatch.setattr(torch.nn.Module, "compile", compile_nothing)

    state, _ = state_of(model__compile=True), state_of()

    assert compiled == [state.model]


# Half precision


def test_an_overflow_is_left_to_the_scaler(state_of: StateMaker) -> None:
    """Gradients that overflow skip the step and halve the scale; the loss that is watched for NaN stays finite."""
    state = state_of()
    state.scaler = GradScaler("cpu", init_scale=2.0**127)
    before = hashes(state)

    loss = state.step(images(), LABELS, 1)

    assert loss.isfinite()
    assert hashes(state)[1] == before[1]
    assert all(torch.equal(*pair) for pair in zip(state.model.parameters(), state_of().model.parameters(), strict=True))
    assert state.scaler.get_scale() == 2.0**126


@pytest.mark.skipif(not torch.cuda.is_available(), reason="mixed precision is for a GPU, and there is none here")
@pytest.mark.parametrize("amp", ["fp16", "bf16"])
def test_mixed_precision_trains_on_a_gpu(state_of: StateMaker, amp: str) -> None:
    state = state_of(device="cuda", train__amp=amp, see__pace={"shape": "constant"})

    losses = [state.step(images(step), LABELS, 1) for step in range(3)]

    assert torch.stack(losses).isfinite().all()
    assert state.scaler.is_enabled() == (amp == "fp16")


# Out of memory


def limit_memory(state: TrainingState, at_most: int) -> None:
    """Let the model raise what CUDA raises when more than `at_most` images with a graph are in it at once."""

    def refuse(_: object, inputs: tuple[Tensor]) -> None:
        if torch.is_grad_enabled() and len(inputs[0]) > at_most:
            raise torch.OutOfMemoryError("CUDA out of memory")

    state.model.register_forward_pre_hook(refuse)


def test_the_micro_batch_is_halved_until_it_fits_and_the_step_is_the_same(state_of: StateMaker) -> None:
    short, roomy = (
        state_of(**VIT, see__pace={"shape": "constant"}),
        state_of(**VIT, see__pace={"shape": "constant"}, train__micro_batch=2),
    )
    limit_memory(short, at_most=3)

    for state in (short, roomy):
        state.begin_epoch(1)
        for step in range(2):
            state.step(images(step), LABELS, 1)

    assert short.micro_batch == 2
    assert hashes(short) == hashes(roomy)
    assert short.loss.draws == 2  # a step that is tried again draws no synthetic embeddings more


def test_out_of_memory_at_micro_batch_1_ends_the_trial(state_of: StateMaker) -> None:
    state = state_of(**VIT)
    limit_memory(state, at_most=0)

    with pytest.raises(TrainingError, match="micro-batch 1"):
        state.step(images(), LABELS, 1)


def test_out_of_memory_with_trained_batch_norm_says_what_to_set(state_of: StateMaker) -> None:
    state = state_of()
    limit_memory(state, at_most=4)

    with pytest.raises(TrainingError, match=r"model\.freeze_bn: true, or a smaller train\.batch_size"):
        state.step(images(), LABELS, 1)


# Saving and restoring


@pytest.mark.parametrize("loss", ["proxy_anchor", "multi_similarity_xbm"])
def test_a_restored_training_goes_on_as_the_saved_one(state_of: StateMaker, tmp_path: Path, loss: str) -> None:
    keys = {"loss__name": loss, "see__enabled": LOSSES[loss].has_proxies, "see__pace": {"shape": "constant"}}
    saved = state_of(**keys)
    saved.begin_epoch(1)
    saved.step(images(1), LABELS, 1)
    saved.save(tmp_path, result(1, 0.5))

    restored = state_of(**keys)
    restored.restore(tmp_path)
    for state in (saved, restored):
        state.begin_epoch(2)
        state.step(images(2), LABELS, 2)

    assert restored.history == [result(1, 0.5)]
    assert hashes(restored) == hashes(saved)


def test_dropout_goes_on_where_it_was(state_of: StateMaker, tmp_path: Path) -> None:
    saved = state_of()
    torch.rand(3)
    saved.save(tmp_path, result(1, 0.5))
    expected = torch.rand(1)

    restored = state_of()
    restored.restore(tmp_path)

    assert torch.rand(1) == expected


def test_the_checkpoint_of_another_trial_is_refused(state_of: StateMaker, tmp_path: Path) -> None:
    state_of().save(tmp_path, result(1, 0.5))

    with pytest.raises(SpecError, match="another spec"):
        state_of(see__n_aug=5).restore(tmp_path)


def test_a_trial_may_go_on_elsewhere_with_other_workers_and_a_later_end(state_of: StateMaker, tmp_path: Path) -> None:
    state_of().save(tmp_path, result(1, 0.5))

    moved = state_of(dataset__root="/elsewhere", data__workers=3, data__cache=True, stop_epoch=2)
    moved.restore(tmp_path)

    assert len(moved.history) == 1


def test_damaged_checkpoints_start_the_training_anew(state_of: StateMaker, tmp_path: Path) -> None:
    state_of().save(tmp_path, result(1, 0.5)).write_bytes(b"rot")
    state = state_of()

    state.restore(tmp_path)

    assert state.history == []


def test_the_best_weights_are_those_of_the_first_best_epoch(state_of: StateMaker, tmp_path: Path) -> None:
    state = state_of()
    for epoch, value in enumerate([0.3, 0.6, 0.6, 0.5], start=1):
        state.save(tmp_path, result(epoch, value))

    assert load_weights(tmp_path)[1]["epoch"] == "2"


def test_a_disk_that_cannot_be_written_costs_no_epoch(state_of: StateMaker, tmp_path: Path) -> None:
    state = state_of()
    blocked = tmp_path / "file"
    blocked.write_text("no folder")

    assert state.save(blocked, result(1, 0.5)) is None
    assert state.save(tmp_path, result(2, 0.6)) is not None
    assert len(state.history) == 2


def test_without_a_folder_nothing_is_written(state_of: StateMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert state_of().save(None, result(1, 0.5)) is None
    assert not list(tmp_path.iterdir())
