"""SEELoss around every proxy loss: two calls, the closest samples, one stream of its own."""

import copy
import io
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from see_tune.errors import SpecError
from see_tune.losses import LOSSES, build_loss
from see_tune.method.expansion import expand
from see_tune.method.see_loss import SEELoss, find_own_proxies, proxies_of, smallest_proxy_angle

C, D, B = 7, 16, 12
PROXY_LOSSES = [name for name, entry in LOSSES.items() if entry.has_proxies]
EACH_LOSS = pytest.mark.parametrize("name", PROXY_LOSSES)


def draw_batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    embeddings = F.normalize(torch.randn(B, D, generator=generator), dim=-1)
    return embeddings.requires_grad_(), torch.arange(B) % C


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    return build_loss(name, num_classes=C, embedding_dim=D)


class OwnLoss(nn.Module):
    """A proxy loss of one's own: nothing but an attribute `proxies`."""

    def __init__(self) -> None:
        super().__init__()
        self.proxies = nn.Parameter(torch.randn(C, D, generator=torch.Generator().manual_seed(0)))
        self.batches: list[tuple[Tensor, Tensor]] = []

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        self.batches.append((embeddings, labels))
        return F.cross_entropy(embeddings @ F.normalize(self.proxies, dim=-1).T, labels)


@EACH_LOSS
@pytest.mark.parametrize(("lambda_", "share"), [(0.0, 1.0), (0.5, 0.0), (0.5, 0.04)], ids=["lambda 0", "share 0", "no sample"])
def test_without_synthetic_samples_it_is_the_librarys_loss_to_the_last_bit(name: str, lambda_: float, share: float) -> None:
    plain, wrapped = build(name), build(name)
    (z1, labels), (z2, _) = draw_batch(), draw_batch()
    expected, loss = plain(z1, labels), SEELoss(wrapped, n_aug=4, lambda_=lambda_)(z2, labels, share=share)
    expected.backward()
    loss.backward()
    assert torch.equal(loss, expected)
    assert torch.equal(z2.grad, z1.grad)
    assert torch.equal(next(wrapped.parameters()).grad, next(plain.parameters()).grad)


@EACH_LOSS
@pytest.mark.parametrize("gradient", ["proxies", "all"])
def test_total_is_two_calls_of_the_loss_and_finite_in_gradient(name: str, gradient: str) -> None:
    see, (z, labels) = SEELoss(build(name), n_aug=4, lambda_=0.3, gradient=gradient), draw_batch()
    total = see(z, labels, share=0.5)
    total.backward()
    assert see.last_step is not None
    torch.testing.assert_close(total.detach(), see.last_step.loss_ml + 0.3 * see.last_step.loss_see)
    assert see.last_step.loss_see > 0
    assert z.grad.isfinite().all()
    assert next(see.parameters()).grad.isfinite().all()


@EACH_LOSS
def test_synthetic_samples_move_the_proxies_alone_as_published(name: str) -> None:
    plain, see = build(name), SEELoss(build(name), n_aug=4, lambda_=0.3, gradient="proxies")
    (z1, labels), (z2, _) = draw_batch(), draw_batch()
    plain(z1, labels).backward()
    see(z2, labels, share=0.5).backward()
    assert torch.equal(z2.grad, z1.grad)
    assert not torch.equal(next(see.parameters()).grad, next(plain.parameters()).grad)


@EACH_LOSS
def test_gradient_all_moves_the_expanded_embeddings_too(name: str) -> None:
    grads = {}
    for gradient in ("proxies", "all"):
        z, labels = draw_batch()
        SEELoss(build(name), n_aug=4, lambda_=0.3, gradient=gradient)(z, labels, share=0.5).backward()
        grads[gradient] = z.grad
    changed = (grads["all"] - grads["proxies"]).abs().amax(1) > 1e-9
    assert changed.sum() >= 6


@EACH_LOSS
def test_one_optimiser_step_moves_the_proxies(name: str) -> None:
    see, (z, labels) = SEELoss(build(name), n_aug=4, lambda_=0.3), draw_batch()
    before = proxies_of(see.loss).detach().clone()
    optimizer = torch.optim.AdamW(see.parameters(), lr=0.1)
    see(z, labels, share=0.5).backward()
    optimizer.step()
    assert not torch.equal(proxies_of(see.loss), before)


def test_the_samples_closest_to_their_proxies_are_expanded() -> None:
    loss, (z, labels) = OwnLoss(), draw_batch()
    SEELoss(loss, n_aug=4, lambda_=1.0, generator=torch.Generator().manual_seed(3))(z, labels, share=0.25)
    (_, _), (synthetic, synthetic_labels) = loss.batches
    own = F.normalize(loss.proxies, dim=-1)[labels]
    closest = (z * own).sum(-1).sort(descending=True).indices[:3]
    assert synthetic.shape == (3 * 4, D)
    assert torch.equal(synthetic_labels, labels[closest].repeat_interleave(4))
    expected = expand(z[closest], own[closest], 4)
    torch.testing.assert_close(synthetic.view(3, 4, D).mean(1), expected.mean(1))  # mean(z*) does not depend on the frame


@pytest.mark.parametrize(("lambda_", "share", "calls"), [(0.0, 1.0, 1), (0.5, 0.0, 1), (0.5, 1.0, 2)])
def test_the_loss_is_called_a_second_time_only_for_synthetic_samples(lambda_: float, share: float, calls: int) -> None:
    loss, (z, labels) = OwnLoss(), draw_batch()
    SEELoss(loss, n_aug=4, lambda_=lambda_)(z, labels, share=share)
    assert len(loss.batches) == calls


def test_diagnostics_say_what_was_expanded() -> None:
    see, (z, labels) = SEELoss(OwnLoss(), n_aug=4, lambda_=1.0), draw_batch()
    see(z, labels, share=0.26)
    step = see.last_step
    assert step is not None
    assert (step.share, step.synthetic) == (3 / B, 12)
    own = F.normalize(see.loss.proxies, dim=-1)[labels]
    torch.testing.assert_close(step.own_cosine, (z * own).sum(-1).mean().detach())
    assert not any(value.requires_grad for value in (step.loss_ml, step.loss_see, step.own_cosine))


def test_own_proxy_is_the_most_similar_of_several_centres() -> None:
    centres = torch.tensor([[[1.0, 0.0], [0.0, 2.0]], [[-1.0, 0.0], [0.0, -1.0]]])
    own, cosines = find_own_proxies(torch.tensor([[0.6, 0.8], [-0.8, -0.6]]), torch.tensor([0, 1]), centres)
    torch.testing.assert_close(own, torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
    torch.testing.assert_close(cosines, torch.tensor([0.8, 0.8]))


def test_soft_triples_centres_stand_by_class() -> None:
    loss, (z, _) = build("soft_triple"), draw_batch()
    cosines = F.normalize(proxies_of(loss), dim=-1) @ F.normalize(z, dim=-1).T  # (C, M, B)
    logits = (F.softmax(cosines / 0.1, dim=1) * cosines).sum(1).T
    torch.testing.assert_close(loss.get_logits(z), logits)


@EACH_LOSS
def test_proxies_are_found_by_class(name: str) -> None:
    proxies = proxies_of(build(name))
    assert proxies.shape == (C, 10 if name == "soft_triple" else 1, D)
    assert proxies.requires_grad


def test_a_loss_of_ones_own_may_have_several_centres() -> None:
    loss = OwnLoss()
    loss.proxies = nn.Parameter(torch.randn(C, 3, D))
    assert proxies_of(loss).shape == (C, 3, D)


@pytest.mark.parametrize("name", sorted(LOSSES.keys() - set(PROXY_LOSSES)))
def test_a_loss_without_proxies_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match="has no proxies"):
        SEELoss(build(name), n_aug=4, lambda_=0.2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_embeddings_of_any_precision_leave_the_proxies_in_float32(dtype: torch.dtype) -> None:
    see, (z, labels) = SEELoss(build("proxy_anchor"), n_aug=4, lambda_=0.2), draw_batch()
    loss = see(z.to(dtype), labels, share=0.5)
    assert loss.dtype == torch.float32
    assert proxies_of(see.loss).dtype == torch.float32


def losses_of(see: SEELoss, steps: int) -> list[float]:
    z, labels = draw_batch()
    return [see(z, labels, share=0.5).item() for _ in range(steps)]


def test_same_seed_same_losses_and_each_step_another_frame() -> None:
    first, second, other = (
        losses_of(SEELoss(build("nsoftmax"), n_aug=4, lambda_=1.0, generator=torch.Generator().manual_seed(s)), 3)
        for s in (1, 1, 2)
    )
    assert first == second
    assert len({*first, *other}) == 6


def test_see_does_not_touch_the_global_generator() -> None:
    see = SEELoss(build("nsoftmax"), n_aug=4, lambda_=1.0)
    before = torch.get_rng_state()
    losses_of(see, 2)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_resumed_loss_goes_on_where_it_was_cut() -> None:
    whole, cut = (SEELoss(build("nsoftmax"), n_aug=4, lambda_=1.0, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    expected = losses_of(whole, 5)
    losses_of(cut, 2)
    buffer = io.BytesIO()
    torch.save(cut.state_dict(), buffer)
    resumed = SEELoss(build("nsoftmax"), n_aug=4, lambda_=1.0, generator=torch.Generator().manual_seed(1))
    resumed.load_state_dict(torch.load(io.BytesIO(buffer.getvalue()), weights_only=True))
    assert losses_of(resumed, 3) == expected[2:]


def test_neighbouring_seeds_and_draws_give_unrelated_frames() -> None:
    see = SEELoss(OwnLoss(), n_aug=4, lambda_=1.0)
    frames = []
    for see.seed in range(4):
        see.draws = 0
        frames += [torch.randn(4096, generator=see._next_generator(torch.device("cpu"))) for _ in range(8)]
    correlations = torch.corrcoef(torch.stack(frames))[*torch.triu_indices(32, 32, 1)]
    assert correlations.abs().max() < 5 / math.sqrt(4096)


def test_a_copy_has_a_stream_of_its_own() -> None:
    see = SEELoss(build("nsoftmax"), n_aug=4, lambda_=1.0)
    assert losses_of(copy.deepcopy(see), 2) == losses_of(see, 2)


def angle_by_loops(proxies: Tensor) -> float:
    """Naive: every two centres of different classes, (C, M, D)."""
    unit = F.normalize(proxies.double(), dim=-1)
    cosines = [
        float(one @ other) for i, first in enumerate(unit) for second in unit[i + 1 :] for one in first for other in second
    ]
    return math.degrees(math.acos(max(cosines)))


@pytest.mark.parametrize("chunk", [1, 4, 1024])
@pytest.mark.parametrize("centres", [1, 3])
def test_smallest_angle_equals_the_naive_loop(chunk: int, centres: int) -> None:
    generator = torch.Generator().manual_seed(0)
    classes = torch.randn(9, 1, 5, generator=generator)
    proxies = classes + 0.01 * torch.randn(9, centres, 5, generator=generator)  # a class's own centres are closest of all
    assert smallest_proxy_angle(proxies, chunk=chunk).item() == pytest.approx(angle_by_loops(proxies), rel=1e-4)


def test_smallest_angle_of_known_proxies() -> None:
    assert smallest_proxy_angle(torch.tensor([[1.0, 0.0], [1.0, 1.0], [-3.0, 0.0]])).item() == pytest.approx(45)
    assert smallest_proxy_angle(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])).item() == pytest.approx(180)
    assert smallest_proxy_angle(torch.tensor([[1.0, 0.0]])).item() == pytest.approx(180)
    assert smallest_proxy_angle(torch.ones(2, 3)).item() == 0


def test_smallest_angle_is_exact_for_near_twins() -> None:
    twins = torch.tensor([[1.0, 0.0], [math.cos(1e-3), math.sin(1e-3)]])
    assert smallest_proxy_angle(twins).item() == pytest.approx(math.degrees(1e-3), rel=1e-3)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda z, labels: (z, labels + 1000), r"names no proxy: the loss has .*labels are 0\.\."),
        (lambda z, labels: (z, labels - 1000), "names no proxy"),
        (lambda z, labels: (z, labels.float()), "must be integers"),
        (lambda z, labels: (z, labels[:-1]), "labels of shape"),
        (lambda z, labels: (z[:, :-1], labels), "proxies of dimension"),
        (lambda z, labels: (z.detach().numpy(), labels), "embeddings are a ndarray"),
        (lambda z, labels: (z, labels.tolist()), "labels are a list"),
    ],
)
def test_a_batch_that_does_not_fit_the_proxies_is_refused_with_what_would(
    change: Callable[[Tensor, Tensor], tuple[Any, Any]], said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        SEELoss(build("nsoftmax"), n_aug=4, lambda_=0.2)(*change(*draw_batch()), share=0.4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"gradient": "bogus"},
        {"lambda_": -1.0},
        {"lambda_": math.nan},
        {"n_aug": 0},
        {"n_aug": 2.5},
        {"n_aug": 1000},
        {"n_aug": True},
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="SEELoss"):
        SEELoss(build("nsoftmax"), **{"n_aug": 4, "lambda_": 0.2, **wrong})


@pytest.mark.parametrize("name", ["nsoftmax", "proxy_anchor"])
def test_an_empty_batch_is_refused(name: str) -> None:
    z, labels = draw_batch()
    with pytest.raises(SpecError, match="the mini-batch is empty"):
        SEELoss(build(name), n_aug=4, lambda_=0.2)(z[:0], labels[:0], share=0.4)


def test_share_outside_its_range_is_refused() -> None:
    z, labels = draw_batch()
    with pytest.raises(SpecError, match="share is 5"):
        SEELoss(build("nsoftmax"), n_aug=4, lambda_=0.2)(z, labels, share=5)
