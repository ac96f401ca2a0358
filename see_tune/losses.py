"""LOSSES: one line a loss. Adding one is adding a line.

An entry names a class of pytorch-metric-learning by its path (nothing is imported until a loss is built), the parameters
that a YAML may set and search with their defaults, and which sizes its constructor takes. The defaults are the published
recipes' (CosFace and ArcFace: the middle of what a published Bayesian search found good). Where a loss keeps its proxies is
no fact of this list: `see_tune.method.see_loss.proxies_of` reads it from the loss itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from see_tune.errors import SpecError
from see_tune.imports import put_off, quick_imports

if TYPE_CHECKING:
    from torch import nn

PROXY_SIZES = ("num_classes", "embedding_size")


@dataclass(frozen=True)
class LossEntry:
    """One loss.

    target: ``module:class``.
    defaults: parameter -> default value; its type is the parameter's type in the spec.
    sizes: what the constructor is told of the model and the data.
    """

    target: str
    defaults: Mapping[str, float | int | bool]
    sizes: tuple[str, ...] = PROXY_SIZES

    @property
    def has_proxies(self) -> bool:
        """Whether SEE has something to expand around: a loss needs the number of classes to give each one proxies."""
        return "num_classes" in self.sizes


LOSSES: dict[str, LossEntry] = {
    "nsoftmax": LossEntry("pytorch_metric_learning.losses:NormalizedSoftmaxLoss", {"temperature": 0.05}),
    "cosface": LossEntry("pytorch_metric_learning.losses:CosFaceLoss", {"margin": 0.35, "scale": 100.0}),
    "arcface": LossEntry("pytorch_metric_learning.losses:ArcFaceLoss", {"margin": 21.0, "scale": 100.0}),
    "proxynca_pp": LossEntry("pytorch_metric_learning.losses:ProxyNCALoss", {"softmax_scale": 9.0}),
    "proxy_anchor": LossEntry("pytorch_metric_learning.losses:ProxyAnchorLoss", {"margin": 0.1, "alpha": 32.0}),
    "soft_triple": LossEntry(
        "pytorch_metric_learning.losses:SoftTripleLoss", {"centers_per_class": 10, "la": 20.0, "gamma": 0.1, "margin": 0.01}
    ),
    "multi_similarity": LossEntry(
        "pytorch_metric_learning.losses:MultiSimilarityLoss", {"alpha": 2.0, "beta": 50.0, "base": 0.5}, sizes=()
    ),
    "multi_similarity_xbm": LossEntry(
        "see_tune.memory_losses:MultiSimilarityXBM",
        {"memory_size": 1024, "alpha": 2.0, "beta": 50.0, "base": 0.5},
        sizes=("embedding_size",),
    ),
}


def build_loss(
    name: str, *, num_classes: int, embedding_dim: int, parameters: Mapping[str, float | int | bool] | None = None
) -> nn.Module:
    """The loss `name`, its proxies drawn from torch's global generator.

    Args:
        name: a key of LOSSES.
        num_classes: C, of the training classes; labels are 0..C-1.
        embedding_dim: D.
        parameters: what differs from the entry's defaults.

    Returns:
        A module called as ``loss(embeddings, labels)``.

    Raises:
        SpecError: the name or a parameter is unknown.
    """
    if name not in LOSSES:
        raise SpecError(f"there is no loss {name}; valid names are {', '.join(LOSSES)}; set loss.name to one of them")
    entry, given = LOSSES[name], dict(parameters or {})
    if unknown := sorted(given.keys() - entry.defaults.keys()):
        raise SpecError(
            f"loss.{name} has no parameter {', '.join(unknown)}; it takes {', '.join(entry.defaults)}; correct or remove it"
        )
    sizes = {"num_classes": num_classes, "embedding_size": embedding_dim}
    put_off("scipy.stats")  # half a second, which pytorch-metric-learning takes to rank labels, as no loss here does
    with quick_imports():
        make = resolve_name(entry.target)
    loss: nn.Module = make(**{size: sizes[size] for size in entry.sizes}, **{**entry.defaults, **given})
    return loss
