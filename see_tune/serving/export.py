"""A model as a folder that needs no see-tune: weights, description, and the code that joins them.

    OUT/                        safetensors: loads with torch and timm      onnx: loads with onnxruntime
    ├── model.safetensors       the weights                                 model.onnx, the network with its normalisation
    ├── model.json              the network's layout, the preprocessing, what it was trained on
    └── embed.py                standalone_torch.py or standalone_onnx.py, copied: ``python embed.py OUT.npy IMAGE...``

What see-tune decides by looking at a backbone (which tokens are pooled, where the channels stand) is looked at here, once,
and written down, so that embed.py has nothing to decide.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from see_tune.errors import UserError
from see_tune.model_folder import StoredModel
from see_tune.models import weights_bytes
from see_tune.serving.onnx_graph import write_graph

Format = Literal["safetensors", "onnx"]

_EMBED_CODE: dict[Format, Path] = {
    "safetensors": Path(__file__).with_name("standalone_torch.py"),
    "onnx": Path(__file__).with_name("standalone_onnx.py"),
}
_FORMAT = 1


def export_model(stored: StoredModel, out: Path, *, source: str, format_: Format = "safetensors") -> Path:
    """Write `stored` to the folder `out`, which must be new or empty; a failure leaves nothing there.

    source: what it was exported from, for people.

    Raises:
        UserError: there is something at `out` already, it cannot be written, or a package that the format needs is missing.
        ExportError: the model cannot be written in this format.
    """
    try:
        is_ours = not out.exists()
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise UserError(f"--out {out} is not empty; an export wants a folder of its own: name one that does not exist yet")
        try:
            with tempfile.TemporaryDirectory(dir=out) as draft:
                _write_files(stored, Path(draft), source, format_)
                for file in Path(draft).iterdir():
                    file.replace(out / file.name)
        finally:
            if is_ours and not any(out.iterdir()):
                out.rmdir()
    except OSError as error:
        raise UserError(f"--out {out} cannot be written ({error.strerror or error}); name a folder that you may write") from error
    return out


def _write_files(stored: StoredModel, folder: Path, source: str, format_: Format) -> None:
    if format_ == "onnx":
        write_graph(stored, folder / "model.onnx")
    else:
        (folder / "model.safetensors").write_bytes(weights_bytes(stored.model))
    description = json.dumps(_description(stored, source), indent=2) + "\n"
    (folder / "model.json").write_text(description, encoding="utf-8")
    shutil.copyfile(_EMBED_CODE[format_], folder / "embed.py")


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
        "trained_on": spec.dataset.called,
        "loss": spec.loss.name,
    }
