"""The paper: Spherical Embedding Expansion (Le and Woo, PAKDD 2024) in plain torch.

    from see_tune.method import SEELoss, expand

No input or output, no configuration, no device calls; randomness comes from explicit generators. `expansion` is Algorithm 1,
`curriculum` the pace, `see_loss` the loss that puts the two around any proxy loss. The names are loaded when they are first
used: the pace is arithmetic, and who reads a YAML file needs it without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from see_tune.method.expansion import expand
    from see_tune.method.see_loss import SEELoss

_PUBLIC = {"SEELoss": "see_tune.method.see_loss", "expand": "see_tune.method.expansion"}

__all__ = ["SEELoss", "expand"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'see_tune.method' has no attribute {name!r}")
