"""A TrialSpec's words made into things: a device, a table, a preprocessing, a model, a loss, and the state that holds them.

Each thing that is drawn has a random stream of its own, numbered here, so that one spec key changes nothing but what it says:
SEE on and off start from the same weights and proxies.
"""

from __future__ import annotations

import platform
from importlib.metadata import version

import torch
from torch import nn
from torch.amp import GradScaler

from see_tune.data import read_table
from see_tune.data.cache import cached_table
from see_tune.data.loading import Loader, auto_workers
from see_tune.data.splits import Split
from see_tune.data.table import ImageTable
from see_tune.data.transforms import Preprocessing
from see_tune.errors import SpecError
from see_tune.home import Home, dataset_places
from see_tune.losses import build_loss
from see_tune.method.see_loss import SEELoss
from see_tune.models import EmbeddingModel, build_model, input_config, is_transformer, weights_hash
from see_tune.spec.models import TrialSpec
from see_tune.training.optim import build_optimizer
from see_tune.training.state import TrainingState

# The field resizes to 256 and crops 224, whatever the backbone was pretrained with.
_EVALUATION_CROP = 0.875
_CROP_SCALE_MIN = {"transformer": 0.2, "cnn": 0.08}
_AMP_DTYPES = {"none": None, "bf16": torch.bfloat16, "fp16": torch.float16}
_STREAMS = _WEIGHTS, _PROXIES, _DROPOUT, _SEE = range(4)


def pick_device(device: str) -> torch.device:
    """The device of that name; "auto": CUDA where there is one, else the CPU.

    Raises:
        SpecError: torch knows no such device.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.device(device)
    except RuntimeError as exc:
        raise SpecError(f"there is no device {device!r}. Valid: auto, cpu, cuda, cuda:1, ... Leave it at auto.") from exc


def make_preprocessing(spec: TrialSpec) -> Preprocessing:
    """Sizes after the field's custom, the rest after the backbone's data config; a backbone that crops nothing keeps to that."""
    config = input_config(spec.model.backbone)
    side = config.image_size if spec.data.image_size == "auto" else spec.data.image_size
    return Preprocessing(
        image_size=side,
        resize_size=side if config.crop_pct == 1 else round(side / _EVALUATION_CROP),
        mean=config.mean,
        std=config.std,
        interpolation="bilinear" if config.interpolation == "bilinear" else "bicubic",
    )


def open_table(spec: TrialSpec, home: Home, preprocessing: Preprocessing, threads: int) -> ImageTable:
    """The spec's dataset, decoded into the home's cache where the spec asks for that."""
    table = read_table(
        spec.dataset.name,
        places=dataset_places(spec.dataset.name, spec.dataset.root),
        cache=home.cache,
        classes=spec.dataset.classes,
        allow_partial=spec.dataset.allow_partial,
        on_corrupt=spec.dataset.on_corrupt,
    )
    if not spec.data.cache:
        return table
    return cached_table(
        table,
        cache=home.cache,
        resize_size=preprocessing.resize_size,
        limit_gb=spec.data.cache_limit_gb,
        interpolation=preprocessing.interpolation,
        threads=threads,
    )


def make_loader(spec: TrialSpec, table: ImageTable, preprocessing: Preprocessing, model: EmbeddingModel, threads: int) -> Loader:
    scale_min = _CROP_SCALE_MIN["transformer" if is_transformer(model) else "cnn"]
    return Loader(
        table,
        preprocessing,
        crop_scale_min=scale_min if spec.data.crop_scale_min == "auto" else spec.data.crop_scale_min,
        flip=spec.data.flip,
        seed=spec.seed,
        workers=auto_workers(table, threads) if spec.data.workers == "auto" else spec.data.workers,
    )


def make_model(spec: TrialSpec, preprocessing: Preprocessing, *, weights: str) -> EmbeddingModel:
    """The spec's model on the CPU, its backbone with `weights` (see models.build_model)."""
    return build_model(
        backbone=spec.model.backbone,
        weights=weights,
        embedding_dim=spec.model.embedding_dim,
        pooling=spec.model.pooling,
        layer_norm=spec.model.layer_norm,
        freeze_bn=spec.model.freeze_bn,
        freeze_patch_embed=spec.model.freeze_patch_embed,
        image_size=preprocessing.image_size,
        seed=_stream(spec.seed, _WEIGHTS),
    )


def make_loss(spec: TrialSpec, num_classes: int) -> nn.Module:
    """The spec's loss on the CPU, with SEE around it where that is enabled."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_stream(spec.seed, _PROXIES))
        loss = build_loss(
            spec.loss.name,
            num_classes=num_classes,
            embedding_dim=spec.model.embedding_dim,
            parameters=spec.loss.parameters,
        )
    if not spec.see.enabled:
        return loss
    own_stream = torch.Generator().manual_seed(_stream(spec.seed, _SEE))
    return SEELoss(loss, n_aug=spec.see.n_aug, lambda_=spec.see.lambda_, gradient=spec.see.gradient, generator=own_stream)


def exact_micro_batch(spec: TrialSpec, model: EmbeddingModel) -> int:
    """The images that are embedded at once.

    Raises:
        SpecError: so small a one would train another model.
    """
    micro_batch = spec.train.batch_size if spec.train.micro_batch == "auto" else spec.train.micro_batch
    if micro_batch < spec.train.batch_size and model.has_trained_batch_norm():
        raise SpecError(
            f"train.micro_batch {micro_batch}: {spec.model.backbone}'s BatchNorm looks at the whole batch of "
            f"{spec.train.batch_size}, so parts of it would train another model. "
            "Set model.freeze_bn: true, or train.micro_batch: auto."
        )
    return micro_batch


def make_state(spec: TrialSpec, model: EmbeddingModel, loss: nn.Module, device: torch.device) -> TrainingState:
    """The training at its start, on the device; seeds torch's global stream, which dropout draws from.

    Raises:
        SpecError: a micro-batch is asked for that would not be exact.
    """
    micro_batch = exact_micro_batch(spec, model)
    channels_last = device.type == "cuda" and not is_transformer(model)
    if spec.model.channels_last != "auto":
        channels_last = spec.model.channels_last
    if channels_last:
        model.to(memory_format=torch.channels_last)
    model.to(device)
    loss.to(device)
    if spec.model.compile:
        model.compile()
    amp = amp_dtype(spec, device)
    torch.manual_seed(_stream(spec.seed, _DROPOUT))
    return TrainingState(
        spec=spec,
        device=device,
        model=model,
        loss=loss,
        optimizer=build_optimizer(spec.train, model, loss),
        scaler=GradScaler(device.type, enabled=amp is torch.float16),
        amp=amp,
        channels_last=channels_last,
        micro_batch=micro_batch,
    )


def describe(
    spec: TrialSpec, table: ImageTable, split: Split, preprocessing: Preprocessing, state: TrainingState
) -> dict[str, str]:
    """What a number of this training was measured on and with, before the first step."""
    model = state.model
    gallery = split.query_rows if split.gallery_rows is None else split.gallery_rows
    notes = "; ".join((*table.notes, *split.notes))
    return {
        "fingerprint": table.fingerprint(),
        "split": split.hash,
        "split_kind": spec.split.kind,
        "train_images": str(len(split.train_rows)),
        "train_classes": str(split.num_classes),
        "queries": str(len(split.query_rows)),
        "gallery": str(len(gallery)),
        "backbone": spec.model.backbone,
        "weights": spec.model.weights,
        "weights_hash": weights_hash(model.backbone),
        "embedding_dim": str(spec.model.embedding_dim),
        "parameters": str(sum(parameter.numel() for parameter in model.parameters())),
        "pooling": model.pool.pooling,
        "batch_norm": "frozen" if spec.model.freeze_bn else "trained" if model.has_trained_batch_norm() else "none",
        "crop": f"resize {preprocessing.resize_size}, centre crop {preprocessing.image_size}, {preprocessing.interpolation}",
        "amp": "none" if state.amp is None else spec.train.amp,
        "seed": str(spec.seed),
        "device": device_name(state.device),
        "threads": str(torch.get_num_threads()),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "torchvision", "timm", "pytorch-metric-learning", "numpy", "pillow")},
        **({"notes": notes} if notes else {}),
    }


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def amp_dtype(spec: TrialSpec, device: torch.device) -> torch.dtype | None:
    """Half precision where it is faster: on CUDA, bfloat16 only where the hardware has it. A CPU computes in float32."""
    dtype = _AMP_DTYPES[spec.train.amp]
    if device.type != "cuda" or (dtype is torch.bfloat16 and not torch.cuda.is_bf16_supported(including_emulation=False)):
        return None
    return dtype


def _stream(seed: int, number: int) -> int:
    return seed * len(_STREAMS) + number
