"""Algorithm 1: its invariants, its oracle, its independence, its gradients."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from see_tune.errors import SpecError
from see_tune.method.expansion import expand, simplex_coefficients

BOTH_WAYS = pytest.mark.parametrize("n", [5, 39], ids=["cholesky", "qr"])  # at D = 40


def draw_pairs(batch: int, dim: int, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Unit embeddings (B, D) at cosines in -0.99..0.99 to their unit proxies (B, D)."""
    generator = torch.Generator().manual_seed(seed)
    proxies = F.normalize(torch.randn(batch, dim, generator=generator, dtype=torch.float64), dim=-1)
    aside = torch.randn(batch, dim, generator=generator, dtype=torch.float64)
    aside = F.normalize(aside - (aside * proxies).sum(-1, keepdim=True) * proxies, dim=-1)
    cosine = 1.98 * torch.rand(batch, 1, generator=generator, dtype=torch.float64) - 0.99
    return (cosine * proxies + (1 - cosine**2).sqrt() * aside).to(dtype), proxies.to(dtype)


def centres_of(embeddings: Tensor, proxies: Tensor, synthetic: Tensor) -> Tensor:
    """mu_1..mu_(n+1) of each sample, (B, n + 1, D) in float64: the directions in the proxy's null space."""
    z, w, points = embeddings.double(), F.normalize(proxies.double(), dim=-1), synthetic.double()
    points = torch.cat([z[:, None], points], dim=1)
    images = points - (points @ w[:, :, None]) * w[:, None]
    return images / images[:, :1].norm(dim=-1, keepdim=True)


def assert_invariants(embeddings: Tensor, proxies: Tensor, synthetic: Tensor, tolerance: float) -> None:
    n = synthetic.shape[1]
    w = F.normalize(proxies.double(), dim=-1)[:, None]
    z, points = embeddings.double()[:, None], synthetic.double()
    close = {"rtol": 0, "atol": tolerance}
    torch.testing.assert_close(points.norm(dim=-1), z.norm(dim=-1).expand(-1, n), **close)
    torch.testing.assert_close((points * w).sum(-1), (z * w).sum(-1).expand(-1, n), **close)
    centres = centres_of(embeddings, proxies, synthetic)
    simplex = torch.full((n + 1, n + 1), -1 / n, dtype=torch.float64).fill_diagonal_(1)
    torch.testing.assert_close(centres @ centres.mT, simplex.expand(len(centres), -1, -1), **close)
    # The n directions share the rounding of <z, w> w, whose size is 1: the sum is held on that scale, not on ||r||'s.
    radius = (1 - (z * w).sum(-1).square()).clamp(min=0).sqrt()
    torch.testing.assert_close(radius * centres.sum(1), torch.zeros_like(centres[:, 0]), **close)


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, int, int, int]:
    dim = draw(st.integers(2, 70))
    return draw(st.integers(1, 5)), dim, draw(st.integers(1, dim - 1)), draw(st.integers(0, 2**31))


@settings(deadline=None)
@given(cases())
def test_invariants_hold_in_float32(case: tuple[int, int, int, int]) -> None:
    batch, dim, n, seed = case
    z, w = draw_pairs(batch, dim, seed=seed, dtype=torch.float32)
    assert_invariants(z, 3 * w, expand(z, 3 * w, n), 1e-5)


@settings(deadline=None)
@given(cases())
def test_float64_is_kept(case: tuple[int, int, int, int]) -> None:
    batch, dim, n, seed = case
    z, w = draw_pairs(batch, dim, seed=seed)
    assert_invariants(z, w, expand(z, w, n), 1e-10)


@settings(deadline=None, max_examples=20)
@given(cases())
def test_autocast_leaves_the_expansion_in_float32(case: tuple[int, int, int, int]) -> None:
    batch, dim, n, seed = case
    z, w = draw_pairs(batch, dim, seed=seed, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        synthetic = expand(z, w, n)
    assert_invariants(z, w, synthetic, 1e-5)


@pytest.mark.parametrize(("dim", "n"), [(128, 8), (512, 8), (384, 64), (512, 256), (512, 511)])
def test_invariants_hold_at_the_sizes_of_the_paper(dim: int, n: int) -> None:
    z, w = draw_pairs(8, dim, dtype=torch.float32)
    assert_invariants(z, w, expand(z, w, n), 1e-5)


def test_half_precision_is_computed_in_float32_and_handed_back() -> None:
    z, w = draw_pairs(4, 64, dtype=torch.bfloat16)
    low = expand(z, w, 8, generator=torch.Generator().manual_seed(1))
    full = expand(z.float(), w.float(), 8, generator=torch.Generator().manual_seed(1))
    assert low.dtype == torch.bfloat16
    assert torch.equal(low, full.bfloat16())


def expand_one_by_algorithm_1(z: Tensor, w: Tensor, draws: Tensor) -> Tensor:
    """Algorithm 1 as the paper writes it, for one sample; the frame is the Gram-Schmidt of the draws."""
    n, r = len(draws) + 1, z - (w @ z) * w
    v = [w, r / r.norm()]
    for x in draws:
        for known in v:
            x = x - (known @ x) * known  # noqa: PLW2901
        v.append(x / x.norm())
    mu = [torch.zeros_like(z), v[1]]  # mu[0] fills the place of the paper's missing mu_0
    for k in range(2, n + 2):
        centre = torch.zeros_like(z)
        for j in range(1, k):
            centre = centre - (1 / n + centre @ mu[j]) / (mu[j] @ v[j]) * v[j]
        if k <= n:  # the last centre's own coordinate is 0
            centre = centre + (1 - centre @ centre).sqrt() * v[k]
        mu.append(centre)
    return torch.stack([(w @ z) * w + r.norm() * centre for centre in mu[2:]])


@pytest.mark.parametrize("n", [1, 2, 5, 20, 21, 39])
def test_the_batch_equals_algorithm_1_given_the_same_frame(n: int) -> None:
    z, w = draw_pairs(6, 40)
    draws = torch.randn(n - 1, 6, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).transpose(0, 1)
    expected = torch.stack([expand_one_by_algorithm_1(*sample) for sample in zip(z, w, draws, strict=True)])
    torch.testing.assert_close(expand(z, w, n, generator=torch.Generator().manual_seed(3)), expected)


def test_one_synthetic_embedding_is_the_mirror_image() -> None:
    z, w = draw_pairs(5, 12)
    mirrored = 2 * (z * w).sum(-1, keepdim=True) * w - z
    torch.testing.assert_close(expand(z, w, 1)[:, 0], mirrored)


@pytest.mark.parametrize(("dim", "n"), [(512, 8), (128, 64), (128, 100)])
def test_kth_centres_of_different_samples_are_independent(dim: int, n: int) -> None:
    z, w = draw_pairs(64, dim, dtype=torch.float32)
    kth = centres_of(z, w, expand(z, w, n))[:, 1:].transpose(0, 1)  # (n, B, D)
    cosines = (kth @ kth.mT)[:, *torch.triu_indices(64, 64, 1)]
    assert cosines.abs().mean().item() == pytest.approx(math.sqrt(2 / math.pi / dim), rel=0.05)


def test_equal_samples_get_frames_of_their_own() -> None:
    z, w = (row[:1].expand(64, -1) for row in draw_pairs(1, 512))
    spread = expand(z, w, 8)
    spread = F.normalize(spread - spread.mean(dim=(0, 1)), dim=-1).transpose(0, 1)
    cosines = (spread @ spread.mT)[:, *torch.triu_indices(64, 64, 1)]
    assert cosines.abs().mean().item() < 1 / math.sqrt(512)


@BOTH_WAYS
def test_frames_are_drawn_anew_at_each_call(n: int) -> None:
    z, w = draw_pairs(3, 40)
    generator = torch.Generator().manual_seed(0)
    assert not torch.allclose(expand(z, w, n, generator=generator), expand(z, w, n, generator=generator), atol=1e-2)


@BOTH_WAYS
def test_one_generator_state_gives_one_result(n: int) -> None:
    z, w = draw_pairs(3, 40)
    first, second = (expand(z, w, n, generator=torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize(("dim", "n"), [(6, 5), (40, 5)], ids=["qr", "cholesky"])
def test_no_direction_is_preferred(dim: int, n: int) -> None:
    z, w = (row.expand(20_000, -1) for row in draw_pairs(1, dim))
    r = z[0] - (z[0] @ w[0]) * w[0]
    expected = ((z[0] @ w[0]) * w[0] - r / n).expand(n, -1)
    torch.testing.assert_close(expand(z, w, n).mean(0), expected, rtol=0, atol=0.02)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("n", [1, 5, 39])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_embedding_on_its_proxys_axis_is_returned_as_it_is(sign: int, n: int, dtype: torch.dtype) -> None:
    z, w = draw_pairs(3, 40, dtype=dtype)
    z[1] = sign * w[1]
    z.requires_grad_()
    synthetic = expand(z, w, n)
    upstream = torch.randn(synthetic.shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    synthetic.backward(upstream)
    assert z.grad is not None
    assert synthetic.isfinite().all()
    assert z.grad.isfinite().all()
    assert torch.equal(synthetic[1], z[1].expand(n, -1))
    torch.testing.assert_close(z.grad[1], upstream[1].sum(0))


@pytest.mark.parametrize("distance", [1e-7, 1e-6, 1e-5, 1e-3])
def test_embedding_near_its_proxys_axis_stays_finite_and_on_the_sphere(distance: float) -> None:
    w = draw_pairs(16, 40, dtype=torch.float32)[1]
    z = F.normalize(w + distance * torch.randn(16, 40, generator=torch.Generator().manual_seed(0)), dim=-1).requires_grad_()
    synthetic = expand(z, w, 8)
    synthetic.sum().backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()
    torch.testing.assert_close(synthetic.norm(dim=-1), torch.ones(16, 8), rtol=0, atol=1e-5)


@BOTH_WAYS
def test_a_moving_embedding_keeps_the_invariants_to_first_order(n: int) -> None:
    z, w = (row[0] for row in draw_pairs(1, 40))
    move = torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def images(moving: Tensor) -> tuple[Tensor, Tensor]:
        points = expand(moving[None], w[None], n, generator=torch.Generator().manual_seed(2))[0]
        return points @ w, points @ points.T

    def invariants(moving: Tensor) -> tuple[Tensor, Tensor]:
        """What they must be: <z, w> for each, and <z, w>^2 + ||r||^2 <mu_i, mu_j> for each two."""
        similarity = moving @ w
        simplex = torch.full((n, n), -1 / n, dtype=torch.float64).fill_diagonal_(1)
        return similarity.expand(n), similarity**2 + (moving @ moving - similarity**2) * simplex

    changes = torch.autograd.functional.jvp(images, z, move)[1]
    torch.testing.assert_close(changes, torch.autograd.functional.jvp(invariants, z, move)[1])


def test_the_proxies_get_no_gradient() -> None:
    z, w = (row.requires_grad_() for row in draw_pairs(3, 40))
    expand(z, w, 4).sum().backward()
    assert z.grad is not None
    assert w.grad is None


def test_vertices_are_a_regular_simplex_in_a_triangle_of_coefficients() -> None:
    for n in (1, 2, 3, 8, 511):
        vertices = simplex_coefficients(n, dtype=torch.float64)
        expected = torch.full((n + 1, n + 1), -1 / n, dtype=torch.float64).fill_diagonal_(1)
        torch.testing.assert_close(vertices @ vertices.T, expected)
        assert torch.equal(vertices, vertices.tril())


def test_three_dimensions_give_the_tetrahedron() -> None:
    tetrahedron = [
        [1, 0, 0],
        [-1 / 3, math.sqrt(8 / 9), 0],
        [-1 / 3, -math.sqrt(2 / 9), math.sqrt(2 / 3)],
        [-1 / 3, -math.sqrt(2 / 9), -math.sqrt(2 / 3)],
    ]
    torch.testing.assert_close(simplex_coefficients(3), torch.tensor(tetrahedron))


@pytest.mark.parametrize("n", [0, 16, 100])
def test_more_centres_than_the_null_space_holds_are_refused(n: int) -> None:
    z, w = draw_pairs(2, 16)
    with pytest.raises(SpecError, match=rf"n_aug {n} does not fit .* dimension 16.*1\.\.15"):
        expand(z, w, n)


def test_whole_number_embeddings_and_fractions_of_centres_are_refused() -> None:
    z, w = draw_pairs(2, 16)
    with pytest.raises(SpecError, match=r"torch\.int64"):
        expand(z.long(), w, 4)
    with pytest.raises(SpecError, match=r"2\.5 is no whole number"):
        expand(z, w, 2.5)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="True is no whole number"):
        expand(z, w, True)


def test_what_is_no_tensor_is_refused_by_its_kind() -> None:
    z, w = draw_pairs(2, 16)
    with pytest.raises(SpecError, match="embeddings are a ndarray; both must be torch tensors"):
        expand(z.numpy(), w, 4)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="proxies are a list"):
        expand(z, w.tolist(), 4)  # type: ignore[arg-type]


def test_a_proxy_for_each_embedding_is_required() -> None:
    z, w = draw_pairs(4, 16)
    with pytest.raises(SpecError, match=r"shape \(4, 16\) with proxies of shape \(3, 16\)"):
        expand(z, w[:3], 2)
