"""Maximal minimal-distance (MMD) centres and Algorithm 1 of SEE, batched.

The heart of the method: around an embedding z and its proxy w, n synthetic embeddings z*_1..z*_n that lie on the sphere,
have z's own similarity to w, and stand as far from z and from each other as that allows. In w's null space z has the
direction v_1; the n + 1 directions v_1, mu_2, .., mu_(n+1) are the vertices of a regular simplex.

Algorithm 1 walks over samples and vertices. Here it is two facts:

* A vertex's coordinates in an orthonormal frame v_1..v_n depend on n alone (`simplex_coefficients`); v_1's is -1/n in all.
* The frame is the Gram-Schmidt of [w, v_1, Gaussian draws], one for each sample and drawn anew at each call. It is L^-1 of
  the Cholesky factor L of the Gram matrix, so that a batch costs three batched products. Where the draws are too many for the
  dimension (n > D/2) or the dimension is small, the Gram matrix is ill-conditioned and Householder QR takes its place: the
  same frame, whatever the conditioning.

One random frame carried to all samples by reflections would be cheaper still and keep every invariant, but all samples'
k-th centres would then point almost the same way: the samples' frames are independent.

Legend: B batch, D dimension, n synthetic embeddings a sample. Le and Woo, SEE, PAKDD 2024, Section 3 and Algorithm 1.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from see_tune.errors import SpecError

SMALLEST_CHOLESKY_DIM = 32
"""Below it a square-ish Gaussian Gram matrix is too often ill-conditioned for float32 (errors above 1e-5 were seen at D 8)."""


def expand(embeddings: Tensor, proxies: Tensor, n_aug: int, *, generator: torch.Generator | None = None) -> Tensor:
    """Synthetic embeddings around each embedding's proxy (Algorithm 1, for a whole batch).

    With z an embedding, w its normalised proxy and z* a synthetic embedding: ||z*|| = ||z||, <z*, w> = <z, w>, and the
    directions of z and its z* in w's null space are the n_aug + 1 vertices of a regular simplex: pairwise cosine -1/n_aug,
    sum 0. An embedding on its proxy's axis (z = +-w) has no such direction and is returned n_aug times.

    Gradients reach the embeddings alone, never the proxies: the frame is drawn, and follows a moving z by the smallest
    rotation, which is what keeps z* on the sphere and at its angle while z moves.

    Args:
        embeddings: (B, D), unit length. Half precision is computed in float32, also under autocast.
        proxies: (B, D), each embedding's own proxy, of any length but 0.
        n_aug: n, at least 1 and at most D - 1 (n + 1 vertices of a regular simplex span n dimensions).
        generator: source of the frames, on the embeddings' device; None is torch's own.

    Returns:
        (B, n_aug, D) in the embeddings' dtype.

    Raises:
        SpecError: n_aug or a shape does not fit.

    >>> z = torch.tensor([[1.0, 0.0]])
    >>> expand(z, torch.tensor([[0.6, 0.8]]), 1)  # n = 1: the mirror image of z at its proxy
    tensor([[[-0.2800,  0.9600]]])
    """
    _check(embeddings, proxies, n_aug)
    with torch.autocast(embeddings.device.type, enabled=False):
        dtype = torch.promote_types(embeddings.dtype, torch.float32)
        z = embeddings.to(dtype)
        w = F.normalize(proxies.detach().to(dtype), dim=-1)
        r = z - (z * w).sum(-1, keepdim=True) * w  # (B, D), z's image in w's null space
        radius = torch.linalg.vector_norm(r.detach(), dim=-1, keepdim=True)
        on_axis = radius <= 10 * torch.finfo(dtype).eps  # (B, 1): z = +-w, r is rounding noise
        r = r.masked_fill(on_axis, 0)
        v1 = r.detach() / radius.masked_fill(on_axis, 1)
        centre = z.sub(r, alpha=1 + 1 / n_aug)  # (B, D): <z, w> w - r/n, what all synthetic embeddings share
        coefficients, basis = _draw_spread(w, v1, n_aug, generator)
        return torch.baddbmm(centre[:, None].expand(-1, n_aug, -1), _follow(coefficients, basis, r), basis).to(embeddings.dtype)


def simplex_coefficients(n: int, *, dtype: torch.dtype = torch.float32, device: torch.device | None = None) -> Tensor:
    """A regular simplex's n + 1 vertices (rows) in an orthonormal frame of n vectors (columns): the a_kj of Algorithm 1.

    Unit rows, pairwise product -1/n, sum 0; the first row is the frame's first vector, the rest is lower triangular.

    Returns:
        (n + 1, n).

    >>> simplex_coefficients(2)
    tensor([[ 1.0000,  0.0000],
            [-0.5000,  0.8660],
            [-0.5000, -0.8660]])
    """
    left = torch.arange(n, 0, -1, dtype=dtype, device=device)  # n - j, the vertices that follow vertex j
    diagonal = ((n + 1) * left / (n * (left + 1))).sqrt()
    below = (-diagonal / left).expand(n + 1, n).tril(-1)
    return below.diagonal_scatter(diagonal)


def _check(embeddings: Tensor, proxies: Tensor, n_aug: int) -> None:
    for name, given in (("embeddings", embeddings), ("proxies", proxies)):
        if not isinstance(given, Tensor):
            raise SpecError(f"{name} are a {type(given).__name__}; both must be torch tensors; pass torch.as_tensor({name})")
    if embeddings.ndim != 2 or embeddings.shape != proxies.shape:
        raise SpecError(
            f"embeddings of shape {tuple(embeddings.shape)} with proxies of shape {tuple(proxies.shape)}; both must be (B, D), "
            "a proxy for each embedding; pass proxies[labels]"
        )
    if not embeddings.is_floating_point() or not proxies.is_floating_point():
        raise SpecError(
            f"embeddings of {embeddings.dtype} with proxies of {proxies.dtype}; both must be of a floating-point type; "
            "pass embeddings.float()"
        )
    dim = embeddings.shape[1]
    if not isinstance(n_aug, int) or isinstance(n_aug, bool):
        raise SpecError(f"n_aug {n_aug!r} is no whole number; it counts synthetic embeddings; pass an int")
    if not 1 <= n_aug <= dim - 1:
        raise SpecError(
            f"n_aug {n_aug} does not fit embeddings of dimension {dim}: n + 1 centres of a regular simplex span n dimensions of "
            f"the proxy's null space, so it must lie in 1..{dim - 1}; lower n_aug or raise the embedding dimension"
        )


@torch.no_grad()
def _draw_spread(w: Tensor, v1: Tensor, n: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """What the n synthetic directions have outside v_1, mu_k + v_1/n for k = 2..n+1, as coefficients @ basis.

    Returns:
        coefficients (B, n, n + 1) and basis (B, n + 1, D), whose rows 0 and 1 are w and v_1.
    """
    rows = w.new_empty(n + 1, *w.shape)  # frame before batch: the draws are one contiguous piece, filled in place
    rows[0], rows[1] = w, v1
    rows[2:].normal_(generator=generator)
    basis = rows.transpose(0, 1)
    simplex = F.pad(simplex_coefficients(n, dtype=w.dtype, device=w.device)[1:, 1:], (2, 0))  # nothing along w and v_1
    if w.shape[1] >= SMALLEST_CHOLESKY_DIM and 2 * n <= w.shape[1]:
        return _orthogonalise_by_cholesky(simplex, basis)
    return _orthogonalise_by_qr(simplex, basis)


def _orthogonalise_by_cholesky(simplex: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """L^-1 basis is the frame; L^-1 is multiplied into the coefficients, the smaller side."""
    gram = basis @ basis.mT  # (B, n + 1, n + 1)
    pivots = gram.diagonal(dim1=-2, dim2=-1)
    pivots += pivots == 0  # v_1 is 0 for an embedding on its proxy's axis
    factor, _ = torch.linalg.cholesky_ex(gram)  # plain cholesky would wait for the device to report failures
    return torch.linalg.solve_triangular(factor, simplex.expand(len(basis), -1, -1), upper=False, left=False), basis


def _orthogonalise_by_qr(simplex: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
    """The signs of Householder QR depend on its input; those of Gram-Schmidt (R's diagonal > 0) draw the frame uniformly."""
    q, r = torch.linalg.qr(basis.mT)
    signs = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(q.dtype)
    return simplex.expand(len(basis), -1, -1), q.mT * signs[:, :, None]


def _follow(coefficients: Tensor, basis: Tensor, r: Tensor) -> Tensor:
    """Coefficients of ``||r|| spread``, with the gradient of a frame that follows r = ||r|| v_1 by the smallest rotation.

    spread and v_1 (row 1 of the basis) are constants here, so the result is linear in r: <v_1, r> spread_k - <spread_k, r> v_1,
    whose second term is zero but for its gradient.
    """
    if not r.requires_grad:
        radius: Tensor = torch.linalg.vector_norm(r, dim=-1)
        return radius[:, None, None] * coefficients
    products = basis @ r[:, :, None]  # (B, n + 1, 1)
    along, across = products[:, 1:2], coefficients @ products  # <v_1, r> (B, 1, 1), <spread_k, r> (B, n, 1)
    return along * coefficients - F.pad(across, (1, coefficients.shape[-1] - 2))  # across is v_1's coefficient
