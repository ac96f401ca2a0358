"""A model as a folder that loads with torch and timm alone: weights, description, and the code that joins them.

    OUT/
    ├── model.safetensors    the weights
    ├── model.json           the network's layout, the preprocessing, what it was trained on
    └── embed.py             standalone.py, copied: ``python embed.py OUT.npy IMAGE...``

What see-tune decides by looking at a backbone (which tokens are pooled, where the channels stand) is looked at here, once,
and written down, so that embed.py has nothing to decide.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

from safetensors.torch import save_file

from see_tune.errors import UserError
from see_tune.model_folder import StoredModel

_STANDALONE = Path(__file__).with_name("standalone.py")
_FORMAT = 1


def export_model(stored: StoredModel, out: Path, *, source: str) -> Path:
    """Write `stored` to the folder `out`, which must be new or empty. source: what it was exported from, for people.

    Raises:
        UserError: there is something at `out` already, or it cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise UserError(f"--out {out} is not empty; an export wants a folder of its own: name one that does not exist yet")
        weights = {name: tensor.contiguous() for name, tensor in stored.model.state_dict().items()}
        save_file(weights, str(out / "model.safetensors"))
        (out / "model.json").write_text(json.dumps(_description(stored, source), indent=2) + "\n", encoding="utf-8")
        shutil.copyfile(_STANDALONE, out / "embed.py")
    except OSError as error:
        raise UserError(f"--out {out} cannot be written ({error.strerror or error}); name a folder that you may write") from error
    return out


def _description(stored: StoredModel, source: str) -> dict[str, object]:
    model, spec = stored.model, stored.spec
    return {
        "format": _FORMAT,
        "source": source,
        "network": {
            "backbone": spec.model.backbone,
            "embedding_dim": model.embedding_dim,
            "features": model.linear.in_features,
            "layer_norm": spec.model.layer_norm,
            "pooling": model.pool.pooling,
            "class_tokens": model.pool.class_tokens,
            "prefix_tokens": model.pool.prefix_tokens,
            "channels_last": model.pool.channels_last,
        },
        "preprocessing": asdict(stored.preprocessing),
        "trained_on": spec.dataset.name,
        "loss": spec.loss.name,
    }
