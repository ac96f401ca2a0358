"""What moves the weights: parameter groups, optimisers, learning rates over the epochs, clipping.

Three groups, each with a learning rate of its own: the backbone, the head, and the loss's proxies, which start from nothing
and need steps 100 to 10,000 times larger than a pretrained backbone bears. The learning rate is a function of the epoch, so a
schedule has no state to save.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from see_tune.models import EmbeddingModel
from see_tune.spec.models import OptimizerSpec, ScheduleSpec, TrainSpec


def build_optimizer(train: TrainSpec, model: EmbeddingModel, loss: nn.Module) -> Optimizer:
    """The optimiser of a model and of its loss's proxies, on whatever device they are.

    Each group carries its name and its `base_lr`: lr x batch_size / lr_at_batch x the group's scale, which
    `set_learning_rates` multiplies by the schedule's factor.
    """
    optimizer = train.optimizer
    base_lr = optimizer.lr * (train.batch_size / optimizer.lr_at_batch if optimizer.lr_at_batch else 1.0)
    proxies_decay = optimizer.weight_decay if optimizer.proxies_weight_decay is None else optimizer.proxies_weight_decay
    groups = [
        _group("backbone", model.backbone_parameters(), base_lr, optimizer.weight_decay),
        _group("head", model.head_parameters(), base_lr * optimizer.head_lr_scale, optimizer.weight_decay),
        _group("proxies", list(loss.parameters()), base_lr * optimizer.proxies_lr_scale, proxies_decay),
    ]
    return _new_optimizer(optimizer, [group for group in groups if group["params"]])


def lr_factor(schedule: ScheduleSpec, epoch: int, epochs: int) -> float:
    """What the learning rates are multiplied by in `epoch`, counted from 0, of the horizon `epochs`.

    >>> lr_factor(ScheduleSpec(name="step", step_epochs=5, gamma=0.5), 10, 60)
    0.25
    """
    match schedule.name:
        case "constant":
            return 1.0
        case "cosine":
            return (1 + math.cos(math.pi * epoch / epochs)) / 2
        case "step":
            return float(schedule.gamma ** (epoch // schedule.step_epochs))


def set_learning_rates(optimizer: Optimizer, factor: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor


def clip_gradients(optimizer: Optimizer, *, value: float | None, norm: float | None) -> None:
    """Clamp every gradient to +-`value`, or scale all of them together to a norm of at most `norm`; None: leave them."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if value is not None:
        nn.utils.clip_grad_value_(parameters, value)
    if norm is not None:
        nn.utils.clip_grad_norm_(parameters, norm)


def _group(name: str, parameters: Iterable[nn.Parameter], base_lr: float, weight_decay: float) -> dict[str, Any]:
    return {"name": name, "params": list(parameters), "lr": base_lr, "base_lr": base_lr, "weight_decay": weight_decay}


def _new_optimizer(spec: OptimizerSpec, groups: list[dict[str, Any]]) -> Optimizer:
    # Fused: one kernel for all parameters, on a CPU too, and a GradScaler that need not ask the device whether to step.
    match spec.name:
        case "adamw":
            return AdamW(groups, eps=spec.eps, fused=True)
        case "adam":
            return Adam(groups, eps=spec.eps, fused=True)
        case "sgd":
            return SGD(groups, momentum=spec.momentum, fused=True)
