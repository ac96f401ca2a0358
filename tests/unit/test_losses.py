"""The registry of losses: cheap to read, every line builds and learns."""

import math
import subprocess
import sys

import pytest
import torch
from torch.nn import functional as F

from see_tune.errors import SpecError
from see_tune.losses import LOSSES, build_loss
from see_tune.method.see_loss import proxies_of

EACH_LOSS = pytest.mark.parametrize("name", LOSSES)


def test_reading_the_registry_imports_no_engine() -> None:
    code = "import sys, see_tune.losses; print({'torch', 'pytorch_metric_learning'} & sys.modules.keys())"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "set()\n"


@EACH_LOSS
def test_every_loss_builds_and_learns(name: str) -> None:
    torch.manual_seed(0)
    small = {"memory_size": 8} if "memory_size" in LOSSES[name].defaults else {}  # a mini-batch: the same task at each step
    loss, labels = build_loss(name, num_classes=4, embedding_dim=8, parameters=small), torch.arange(8) % 4
    embeddings = torch.randn(8, 8).requires_grad_()
    optimizer = torch.optim.SGD([embeddings, *loss.parameters()], lr=0.05)
    values = []
    for _ in range(20):
        optimizer.zero_grad()
        value = loss(F.normalize(embeddings, dim=-1), labels)
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values[-1] < values[0]


@EACH_LOSS
def test_the_registry_and_the_loss_agree_about_proxies(name: str) -> None:
    loss = build_loss(name, num_classes=4, embedding_dim=8)
    if LOSSES[name].has_proxies:
        assert proxies_of(loss).shape[::2] == (4, 8)
    else:
        assert not list(loss.parameters())


@EACH_LOSS
def test_every_default_is_a_parameter_of_the_loss(name: str) -> None:
    raised = {key: value + 1 for key, value in LOSSES[name].defaults.items()}
    torch.manual_seed(0)
    default = build_loss(name, num_classes=4, embedding_dim=8)
    torch.manual_seed(0)
    changed = build_loss(name, num_classes=4, embedding_dim=8, parameters=raised)
    inner, other = getattr(default, "loss", default), getattr(changed, "loss", changed)
    for key in raised:
        holders = (inner, other) if hasattr(inner, key) else (default, changed)
        assert getattr(holders[0], key) != getattr(holders[1], key)


def test_nsoftmax_is_equation_1() -> None:
    torch.manual_seed(0)
    loss, labels = build_loss("nsoftmax", num_classes=4, embedding_dim=8), torch.arange(6) % 4
    z, w = F.normalize(torch.randn(6, 8), dim=-1), F.normalize(proxies_of(loss)[:, 0], dim=-1).detach()
    terms = [math.exp(z[i] @ w[y] / 0.05) / sum(math.exp(z[i] @ w[j] / 0.05) for j in range(4)) for i, y in enumerate(labels)]
    assert loss(z, labels).item() == pytest.approx(-sum(map(math.log, terms)) / 6, rel=1e-5)


def test_proxynca_pp_is_a_softmax_of_squared_distances_at_temperature_one_ninth() -> None:
    torch.manual_seed(0)
    loss, labels = build_loss("proxynca_pp", num_classes=4, embedding_dim=8), torch.arange(6) % 4
    z, w = F.normalize(torch.randn(6, 8), dim=-1), F.normalize(proxies_of(loss)[:, 0], dim=-1)
    torch.testing.assert_close(loss(z, labels), F.cross_entropy(-9 * torch.cdist(z, w) ** 2, labels))


def test_an_unknown_loss_is_refused_with_the_valid_names() -> None:
    with pytest.raises(SpecError, match=r"no loss proxyanchor; valid names are nsoftmax, .*proxy_anchor"):
        build_loss("proxyanchor", num_classes=4, embedding_dim=8)


def test_an_unknown_parameter_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(SpecError, match=r"loss\.cosface has no parameter s; it takes margin, scale"):
        build_loss("cosface", num_classes=4, embedding_dim=8, parameters={"s": 64.0})
