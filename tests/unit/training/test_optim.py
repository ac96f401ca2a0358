"""see_tune.training.optim"""

import pytest
import torch

from see_tune.losses import build_loss
from see_tune.models import build_model
from see_tune.spec.models import OptimizerSpec, ScheduleSpec, TrainSpec
from see_tune.training.optim import build_optimizer, clip_gradients, lr_factor, set_learning_rates


def groups_of(train: TrainSpec, loss: str = "nsoftmax", **model: object) -> dict[str, dict]:
    network = build_model(backbone="glyphnet", embedding_dim=8, **model)
    optimizer = build_optimizer(train, network, build_loss(loss, num_classes=5, embedding_dim=8))
    return {group["name"]: group for group in optimizer.param_groups}


def test_each_group_has_its_own_learning_rate_and_decay() -> None:
    optimizer = OptimizerSpec(
        lr=1e-3, lr_at_batch=None, head_lr_scale=2.0, proxies_lr_scale=50.0, weight_decay=0.1, proxies_weight_decay=0.0
    )

    groups = groups_of(TrainSpec(optimizer=optimizer))

    assert {name: group["lr"] for name, group in groups.items()} == pytest.approx(
        {"backbone": 1e-3, "head": 2e-3, "proxies": 5e-2}
    )
    assert [groups[name]["weight_decay"] for name in ("backbone", "head", "proxies")] == [0.1, 0.1, 0.0]


def test_the_learning_rate_grows_with_the_batch() -> None:
    groups = groups_of(TrainSpec(batch_size=90, optimizer=OptimizerSpec(lr=1e-5, lr_at_batch=180)))

    assert groups["backbone"]["lr"] == pytest.approx(0.5e-5)


def test_every_trained_parameter_is_in_one_group() -> None:
    network = build_model(backbone="glyphnet", embedding_dim=8, pooling="gem")
    loss = build_loss("proxy_anchor", num_classes=5, embedding_dim=8)

    optimizer = build_optimizer(TrainSpec(), network, loss)

    held = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    assert sorted(held) == sorted(id(parameter) for module in (network, loss) for parameter in module.parameters())


def test_what_is_frozen_for_good_is_in_no_group() -> None:
    names = groups_of(TrainSpec(), freeze_bn=True)["backbone"]["params"]

    assert all(parameter.ndim == 4 for parameter in names)  # convolutions alone


def test_a_loss_without_proxies_has_no_group() -> None:
    assert set(groups_of(TrainSpec(), loss="multi_similarity")) == {"backbone", "head"}


@pytest.mark.parametrize(
    ("schedule", "epoch", "factor"),
    [
        (ScheduleSpec(name="constant"), 7, 1.0),
        (ScheduleSpec(name="cosine"), 0, 1.0),
        (ScheduleSpec(name="cosine"), 5, 0.5),
        (ScheduleSpec(name="step", step_epochs=5, gamma=0.5), 4, 1.0),
        (ScheduleSpec(name="step", step_epochs=5, gamma=0.5), 5, 0.5),
        (ScheduleSpec(name="step", step_epochs=5, gamma=0.25), 10, 0.0625),
    ],
)
def test_a_schedule_is_a_function_of_the_epoch(schedule: ScheduleSpec, epoch: int, factor: float) -> None:
    assert lr_factor(schedule, epoch, 10) == pytest.approx(factor)


def test_a_factor_scales_every_group_from_its_base() -> None:
    network = build_model(backbone="glyphnet", embedding_dim=8)
    optimizer = build_optimizer(TrainSpec(), network, build_loss("nsoftmax", num_classes=5, embedding_dim=8))

    for factor in (0.5, 0.1):  # not 0.05 of the base
        set_learning_rates(optimizer, factor)

    assert all(group["lr"] == pytest.approx(0.1 * group["base_lr"]) for group in optimizer.param_groups)


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd"])
def test_one_step_moves_backbone_head_and_proxies(name: str) -> None:
    network = build_model(backbone="glyphnet", embedding_dim=8)
    loss = build_loss("proxy_anchor", num_classes=5, embedding_dim=8)
    optimizer = build_optimizer(TrainSpec(optimizer=OptimizerSpec(name=name, lr=1e-2)), network, loss)
    before = [parameter.clone() for group in optimizer.param_groups for parameter in group["params"]]

    loss(network(torch.randn(10, 3, 32, 32)), torch.arange(10) % 5).backward()
    optimizer.step()

    after = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    assert all(not torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_clipping_by_value_clamps_and_by_norm_scales() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)

    weight.grad = torch.tensor([3.0, -4.0])
    clip_gradients(optimizer, value=3.5, norm=None)
    assert weight.grad.tolist() == [3.0, -3.5]

    weight.grad = torch.tensor([3.0, -4.0])
    clip_gradients(optimizer, value=None, norm=1.0)
    assert weight.grad.tolist() == pytest.approx([0.6, -0.8], abs=1e-5)
