"""SEELoss: L = L_ML + lambda L_SEE around any proxy loss (Le and Woo, PAKDD 2024, Eq. 3 and 4).

A plug-in: it calls the wrapped loss once on the mini-batch and once more on the synthetic embeddings of the samples that lie
closest to their own proxies. Two calls, not one on the concatenation: Proxy Anchor, for one, divides by the classes present.

    loss = SEELoss(ProxyAnchorLoss(num_classes, embedding_dim), n_aug=8, lambda_=0.2)
    loss(embeddings, labels, share=share_at(epoch, epochs, ...)).backward()

SEE draws its frames from a stream of its own, so that a training with SEE and its baseline share initial weights, batches
and augmentations. Frame number `draws` of a stream is a function of (seed, draws); that one number is SEE's whole state,
on any device, and part of `state_dict`.

Nothing here waits for the device: how many samples are expanded follows from the share and the batch size alone.

Legend: B batch, D dimension, C classes, M centres a class, k expanded samples, n synthetic embeddings each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from see_tune.errors import SpecError
from see_tune.method.curriculum import expanded_count
from see_tune.method.expansion import expand

Gradient = Literal["proxies", "all"]

CENTRES_PER_CLASS = ("centers_per_class", "sub_centers")
"""Where pytorch-metric-learning's losses with several centres a class say how many."""


@dataclass(frozen=True)
class SEEStep:
    """What the last call of a SEELoss did. Detached scalars on the device: reading one waits for it, keeping it does not.

    share: expanded samples / B; synthetic: k n; own_cosine: mean cosine of the mini-batch to its own proxies.
    """

    loss_ml: Tensor
    loss_see: Tensor
    own_cosine: Tensor
    share: float
    synthetic: int


class SEELoss(nn.Module):
    """A proxy loss with Spherical Embedding Expansion.

    Args:
        loss: called as loss(embeddings, labels); its proxies are found by `proxies_of`.
        n_aug: n, synthetic embeddings for each expanded sample, at most D - 1.
        lambda_: weight of L_SEE; 0 is the wrapped loss, to the last bit.
        gradient: what L_SEE moves: "proxies" (the embeddings are detached before they are expanded, as in the published
            code) or "all".
        generator: what the seed of SEE's own random stream is drawn from, once; None: the stream of seed 0.

    Attributes:
        draws: how many expansions were drawn from the stream; it travels in `state_dict`.
        last_step: diagnostics of the last call, None before the first.

    Raises:
        SpecError: the loss has no proxies, or a setting means nothing with them.
    """

    def __init__(
        self,
        loss: nn.Module,
        *,
        n_aug: int,
        lambda_: float,
        gradient: Gradient = "proxies",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if gradient not in get_args(Gradient) or not lambda_ >= 0 or n_aug < 1:
            raise SpecError(
                f"SEELoss(n_aug={n_aug}, lambda_={lambda_}, gradient={gradient!r}): n_aug is 1 or more, lambda_ 0 or more, and "
                f"gradient one of {', '.join(get_args(Gradient))}"
            )
        dim = proxies_of(loss).shape[-1]
        if n_aug > dim - 1 or not isinstance(n_aug, int) or isinstance(n_aug, bool):
            raise SpecError(
                f"SEELoss(n_aug={n_aug}): with proxies of dimension {dim} it is a whole number in 1..{dim - 1}; lower it"
            )
        self.loss = loss
        self.n_aug = n_aug
        self.lambda_ = lambda_
        self.gradient = gradient
        self.seed = 0 if generator is None else _draw_seed(generator)
        self.draws = 0
        self.last_step: SEEStep | None = None

    def forward(self, embeddings: Tensor, labels: Tensor, *, share: float) -> Tensor:
        """L_ML + lambda L_SEE, a scalar.

        Args:
            embeddings: (B, D), unit length.
            labels: (B,), integers in 0..C-1.
            share: part of the mini-batch that is expanded, in 0..1 (`share_at`). Where it rounds to no sample there is no
                L_SEE (most losses are NaN on an empty batch).

        Raises:
            SpecError: an empty mini-batch, labels that name no proxies, shapes that do not fit, or a share outside 0..1. Labels
                on a GPU are not looked at: that would wait for it.
        """
        _check_batch(embeddings, labels, proxies_of(self.loss))
        if len(embeddings) == 0:
            raise SpecError("the mini-batch is empty, and a loss is a mean over it; hand over one embedding at least, or skip it")
        if not 0 <= share <= 1:
            raise SpecError(f"share is {share}; it is a part of the mini-batch, in 0..1 (see `share_at`)")
        # pytorch-metric-learning casts its proxies, for good, to the dtype it is given: half precision would round them, and a
        # parameter of another type is no longer the optimiser's.
        embeddings = embeddings.to(torch.promote_types(proxies_of(self.loss).dtype, torch.float32))
        loss_ml: Tensor = self.loss(embeddings, labels)
        own_proxies, own_cosines = find_own_proxies(embeddings, labels, proxies_of(self.loss))
        count = expanded_count(len(embeddings), share) if self.lambda_ > 0 else 0
        total, loss_see = loss_ml, torch.zeros_like(loss_ml)
        if count > 0:
            closest = own_cosines.topk(count).indices  # smallest d_y = -<w_y, z>
            loss_see = self._loss_of_synthetic(embeddings[closest], labels[closest], own_proxies[closest])
            total = loss_ml + self.lambda_ * loss_see
        self.last_step = SEEStep(
            loss_ml=loss_ml.detach(),
            loss_see=loss_see.detach(),
            own_cosine=own_cosines.mean(),
            share=count / len(embeddings),
            synthetic=count * self.n_aug,
        )
        return total

    def _loss_of_synthetic(self, embeddings: Tensor, labels: Tensor, proxies: Tensor) -> Tensor:
        """L_SEE (Eq. 3): the wrapped loss of the (k, D) embeddings' k n synthetic ones."""
        if self.gradient == "proxies":
            embeddings = embeddings.detach()
        synthetic = expand(embeddings, proxies, self.n_aug, generator=self._next_generator(embeddings.device))
        loss: Tensor = self.loss(synthetic.flatten(0, 1), labels.repeat_interleave(self.n_aug))
        return loss

    def _next_generator(self, device: torch.device) -> torch.Generator:
        generator = torch.Generator(device)
        # An odd 32-bit multiplier (the golden ratio's) keeps the streams of neighbouring seeds far apart.
        generator.manual_seed((self.seed * 0x9E3779B1 + self.draws) % 2**32)
        self.draws += 1
        return generator

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.draws)

    def set_extra_state(self, state: Tensor) -> None:
        self.draws = int(state)


def proxies_of(loss: nn.Module) -> Tensor:
    """A loss's proxies, (C, M, D), with the gradient's way to its parameter.

    The conventions are those of pytorch-metric-learning: an attribute `proxies` with a row for each class, or a weight `W` or
    `fc` with a column for each class; a class's centres stand side by side, `centers_per_class` or `sub_centers` of them. A
    loss of one's own exposes `proxies`, (C, D) or (C, M, D).

    Raises:
        SpecError: the loss has neither.
    """
    rows, columns = getattr(loss, "proxies", None), getattr(loss, "W", getattr(loss, "fc", None))
    if rows is None and isinstance(columns, Tensor):
        rows = columns.T
    if not isinstance(rows, Tensor):
        raise SpecError(
            f"{type(loss).__name__} has no proxies, and SEE expands around proxies; it takes a loss with an attribute "
            "`proxies` (C, D), or `W` or `fc` (D, C); choose a proxy loss, or train without SEE"
        )
    if rows.ndim == 3:
        return rows
    centres = next((int(getattr(loss, name)) for name in CENTRES_PER_CLASS if hasattr(loss, name)), 1)
    return rows.reshape(-1, centres, rows.shape[-1])


def _check_batch(embeddings: Tensor, labels: Tensor, proxies: Tensor) -> None:
    classes, dim = proxies.shape[0], proxies.shape[-1]
    for name, given in (("embeddings", embeddings), ("labels", labels)):
        if not isinstance(given, Tensor):
            raise SpecError(f"{name} are a {type(given).__name__}; both must be torch tensors; pass torch.as_tensor({name})")
    if embeddings.ndim != 2 or embeddings.shape[1] != dim or labels.shape != embeddings.shape[:1]:
        raise SpecError(
            f"embeddings of shape {tuple(embeddings.shape)} with labels of shape {tuple(labels.shape)}; the loss has proxies of "
            f"dimension {dim}, so that they must be (B, {dim}) and (B,)"
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise SpecError(f"labels of {labels.dtype}; they number the proxies, so they must be integers; pass labels.long()")
    if labels.device.type == "cpu" and len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        wrong = labels[(labels < 0) | (labels >= classes)][0]
        raise SpecError(
            f"label {int(wrong)} names no proxy: the loss has {classes:,}, so labels are 0..{classes - 1}; number the classes "
            "from 0, or build the loss with more"
        )


@torch.no_grad()
def find_own_proxies(embeddings: Tensor, labels: Tensor, proxies: Tensor) -> tuple[Tensor, Tensor]:
    """Each embedding's own proxy, normalised, and the cosine to it; of several centres the most similar one.

    Args:
        embeddings: (B, D).
        labels: (B,), indices into the C classes.
        proxies: (C, M, D).

    Returns:
        (B, D) proxies and (B,) cosines.
    """
    centres = F.normalize(proxies[labels], dim=-1)  # (B, M, D)
    cosines = (centres * F.normalize(embeddings, dim=-1)[:, None]).sum(-1)  # no matmul: autocast leaves it in full precision
    best = cosines.max(dim=-1)
    own = centres.take_along_dim(best.indices[:, None, None], dim=1).squeeze(1)
    return own, best.values


@torch.no_grad()
def smallest_proxy_angle(proxies: Tensor, *, chunk: int = 1024) -> Tensor:
    """The smallest angle between proxies of two classes, in degrees: a scalar on the proxies' device.

    Args:
        proxies: (C, D) or (C, M, D); the centres of one class are not compared with each other.
        chunk: rows compared at a time; memory is chunk x C M numbers.

    Returns:
        A scalar in 0..180; 180 where there is only one class.
    """
    centres = proxies.shape[1] if proxies.ndim == 3 else 1
    rows = F.normalize(proxies.reshape(-1, proxies.shape[-1]), dim=-1)
    classes = torch.arange(len(rows), device=rows.device) // centres
    nearest = rows.new_full((), 2.0)  # the chord of 180 degrees: arcsine keeps small angles exact, arccosine does not
    for start in range(0, len(rows), chunk):
        block = rows[start : start + chunk]
        cosines = (block @ rows.T).masked_fill(classes[start : start + chunk, None] == classes, -1)
        closest = cosines.argmax().view(1)
        one, other = block[closest // len(rows)], rows[closest % len(rows)]
        nearest = torch.where(cosines.amax() > -1, torch.minimum(nearest, torch.linalg.vector_norm(one - other)), nearest)
    return torch.rad2deg(2 * torch.asin((nearest / 2).clamp(max=1)))


def _draw_seed(generator: torch.Generator) -> int:
    return int(torch.randint(2**32, (), generator=generator, device=generator.device))
