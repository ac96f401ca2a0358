"""Everything that changes while a trial trains: one step of it, and how it is saved and restored.

What is not here needs no saving: schedule, curriculum, batches and augmentations are functions of the epoch, and the epoch is
the length of the history.
"""

from __future__ import annotations

import gc
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from see_tune.data.table import Classes
from see_tune.errors import CheckpointError, SpecError, TrainingError
from see_tune.method.curriculum import share_at
from see_tune.method.see_loss import SEELoss
from see_tune.models import EmbeddingModel
from see_tune.results import EpochResult, best_epoch
from see_tune.spec.models import TrialSpec
from see_tune.training.checkpoint import load_checkpoint, load_weights, save_checkpoint, save_weights
from see_tune.training.optim import clip_gradients, lr_factor, set_learning_rates
from see_tune.training.randomness import capture_random, restore_random
from see_tune.training.step import backward

_log = logging.getLogger(__name__)

# What may differ between a checkpoint's spec and that of the training that goes on from it: where and how fast, not what.
_NO_PART_OF_A_TRIAL: dict[str, Any] = {
    "dataset": {"root"},
    "data": {"cache", "cache_limit_gb", "workers"},
    "train": {"micro_batch"},
    "evaluate": {"batch_size"},
    "stop_epoch": True,
}


@dataclass
class TrainingState:
    """A trial under way.

    amp: dtype of autocast; None: float32.
    micro_batch: images embedded at a time; halved after an out-of-memory.
    history: the epochs so far.
    """

    spec: TrialSpec
    device: torch.device
    model: EmbeddingModel
    loss: nn.Module
    optimizer: Optimizer
    scaler: GradScaler
    amp: torch.dtype | None
    channels_last: bool
    micro_batch: int
    history: list[EpochResult] = field(default_factory=list)
    trained_on: Classes | None = None

    def begin_epoch(self, epoch: int) -> None:
        """Set what depends on the epoch, counted from 1: learning rates, and whether the backbone is trained yet."""
        train = self.spec.train
        set_learning_rates(self.optimizer, lr_factor(train.schedule, epoch - 1, train.epochs))
        self.model.train()
        self.model.train_backbone(epoch > train.freeze_backbone_epochs)

    def step(self, images: Tensor, labels: Tensor, epoch: int) -> Tensor:
        """One step of the optimiser with (B, 3, H, W) images and (B,) labels; returns the loss, still on the device."""
        images = self._on_device(images)
        loss = self._gradients(images, partial(self._loss_of, labels.to(self.device, non_blocking=True), self._share(epoch)))
        clip = self.spec.train.optimizer
        self.scaler.unscale_(self.optimizer)
        clip_gradients(self.optimizer, value=clip.clip_value, norm=clip.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def save(self, folder: Path | None, result: EpochResult) -> Path | None:
        """Add `result` to the history and write everything; None, with a line in the log, where it cannot be written.

        A disk that is full for an hour costs the way back to that hour, not the trial.
        """
        objective = self.spec.objective_metric
        best_before = best_epoch(tuple(self.history), objective)
        self.history.append(result)
        if folder is None:
            return None
        try:
            if best_epoch(tuple(self.history), objective) != best_before:
                save_weights(folder, self.model, self._header(result.epoch))
            return save_checkpoint(folder, result.epoch, self._contents())
        except CheckpointError as error:
            _log.error("epoch %d is not saved: %s", result.epoch, error)
            return None

    def restore(self, folder: Path | None) -> None:
        """Go on from the folder's newest good checkpoint; without one everything stays as it is at the start.

        Raises:
            SpecError: it is that of another trial.
        """
        saved = _load(folder) if folder is not None else None
        if folder is None or saved is None:
            return
        _refuse_other_trial(folder, saved["spec"], self.spec)
        self.model.load_state_dict(saved["model"])
        self.loss.load_state_dict(saved["loss"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.scaler.load_state_dict(saved["scaler"])
        self.micro_batch = min(self.micro_batch, saved["micro_batch"])
        self.history = [EpochResult.from_json(text) for text in saved["history"]]
        restore_random(saved["random"], self.device)

    def _header(self, epoch: int) -> dict[str, str]:
        known = {"trained_on": json.dumps(self.trained_on.to_plain())} if self.trained_on else {}
        return {"spec": _dump(self.spec), "epoch": str(epoch), **known}

    def _contents(self) -> dict[str, Any]:
        return {
            "spec": _dump(self.spec),
            "history": [result.to_json() for result in self.history],
            "model": self.model.state_dict(),
            "loss": self.loss.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "micro_batch": self.micro_batch,
            "random": capture_random(self.device),
        }

    def _gradients(self, images: Tensor, loss_of: Callable[[Tensor], Tensor]) -> Tensor:
        """Fill `.grad`; after an out-of-memory once more, from the same random numbers, with half the micro-batch."""
        random_before, memory_before = capture_random(self.device), self._memory_of_loss()
        while True:
            self.optimizer.zero_grad(set_to_none=True)
            try:
                return backward(self._embed, loss_of, images, micro_batch=self.micro_batch, scale=self.scaler.scale)
            except torch.OutOfMemoryError as error:
                self._halve_micro_batch(len(images), error)
            release_memory(self.device)
            restore_random(random_before, self.device)
            self.loss.load_state_dict(memory_before, strict=False)

    def _memory_of_loss(self) -> dict[str, Tensor]:
        """What a call of the loss changes in it: SEE's count of draws, a cross-batch memory; not the proxies."""
        parameters = {name for name, _ in self.loss.named_parameters()}
        return {name: value.clone() for name, value in self.loss.state_dict().items() if name not in parameters}

    def _halve_micro_batch(self, batch: int, error: torch.OutOfMemoryError) -> None:
        tried = min(self.micro_batch, batch)
        if tried == 1:
            raise TrainingError(
                "out of memory at micro-batch 1: one image does not fit. Take a smaller model.backbone or data.image_size."
            ) from error
        if self.model.has_trained_batch_norm():
            raise TrainingError(
                f"out of memory with a batch of {batch}, and micro-batches are not exact while BatchNorm looks at the batch. "
                "Set model.freeze_bn: true, or a smaller train.batch_size."
            ) from error
        self.micro_batch = tried // 2
        _log.warning("out of memory: micro-batch %d -> %d", tried, self.micro_batch)

    def _on_device(self, images: Tensor) -> Tensor:
        images = images.to(self.device, non_blocking=True)
        return images.contiguous(memory_format=torch.channels_last) if self.channels_last else images

    def _embed(self, images: Tensor) -> Tensor:
        # Entered anew for each call: autocast's cache would hand weights cast without a graph to a pass that needs one.
        with torch.autocast(self.device.type, dtype=self.amp, enabled=self.amp is not None):
            embeddings: Tensor = self.model(images)
            return embeddings

    def _loss_of(self, labels: Tensor, share: float, embeddings: Tensor) -> Tensor:
        see = {"share": share} if isinstance(self.loss, SEELoss) else {}
        loss: Tensor = self.loss(embeddings, labels, **see)
        return loss

    def _share(self, epoch: int) -> float:
        return share_at(epoch - 1, self.spec.train.epochs, **self.spec.see.pace.model_dump())


def check_folder(folder: Path, spec: TrialSpec) -> None:
    """Raises: SpecError where a training of `spec` could not go on from what `folder` holds."""
    if (kept := _spec_in(folder)) is not None:
        _refuse_other_trial(folder, kept, spec)


def _spec_in(folder: Path) -> str | None:
    """By what spec a folder was trained: its checkpoint's, or its weights', where those alone are left."""
    if (saved := _load(folder)) is not None:
        return str(saved["spec"])
    try:
        return load_weights(folder)[1].get("spec")
    except CheckpointError:
        return None


def _refuse_other_trial(folder: Path, kept: str, spec: TrialSpec) -> None:
    if _identity(TrialSpec.model_validate_json(kept)) != _identity(spec):
        raise SpecError(
            f"{folder} holds a trial with another spec. A training goes on from its own: "
            "name another folder, or remove this one to start anew."
        )


def release_memory(device: torch.device) -> None:
    """Give the GPU's memory back: for a smaller micro-batch, or for the next trial of the same process."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


def _load(folder: Path) -> dict[str, Any] | None:
    try:
        return load_checkpoint(folder)
    except CheckpointError as error:  # the same seed gives the same epochs again
        _log.warning("the training starts from the beginning: %s", error)
        return None


def _dump(spec: TrialSpec) -> str:
    return spec.model_dump_json(by_alias=True, include=set(TrialSpec.model_fields))


def _identity(spec: TrialSpec) -> str:
    return spec.model_dump_json(include=set(TrialSpec.model_fields), exclude=_NO_PART_OF_A_TRIAL)
