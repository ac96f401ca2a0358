"""Any timm backbone as a map from images to unit embeddings: (B, 3, H, W) -> (B, D).

    backbone -> pooling -> LayerNorm without affine -> linear, orthogonal at the start -> L2 norm

A backbone is a timm name and needs no code here. Its features are taken with timm's `forward_features`, which every family
has, and pooled by us, so that pooling means the same for all of them. The module registers one backbone of its own,
`glyphnet`, small enough to train on one CPU core while somebody watches.

Legend: B images, C feature channels, D embedding dimension, N tokens.
"""

from __future__ import annotations

import difflib
import hashlib
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import timm
import torch
from huggingface_hub import try_to_load_from_cache
from safetensors.torch import load_file, save
from timm.data import resolve_data_config
from timm.models import build_model_with_cfg, generate_default_cfgs, get_pretrained_cfg, register_model
from torch import Tensor, nn
from torch.nn import functional as F

from see_tune.errors import WeightsError

Pooling = Literal["auto", "avg", "max", "avg+max", "gem", "token"]
_BATCH_NORMS = nn.modules.batchnorm._BatchNorm
_HUB_FILE = "model.safetensors"
_TORCH_BEGINS = (b"PK", b"\x80")  # a zip, or the pickle of torch before 1.6


class EmbeddingModel(nn.Module):
    """A backbone and the head that makes unit embeddings of its features.

    backbone: a timm model without its classifier.
    embedding_dim: D.
    pooling: "auto" takes the class token where there is one and the mean elsewhere.
    layer_norm: normalise the pooled features (no affine) before the linear layer.
    freeze_bn: BatchNorm keeps its statistics, also while training, and its affine is not trained.
    freeze_patch_embed: a transformer's patch embedding is not trained.
    """

    def __init__(
        self,
        backbone: nn.Module,
        *,
        embedding_dim: int,
        pooling: Pooling = "auto",
        layer_norm: bool = True,
        freeze_bn: bool = False,
        freeze_patch_embed: bool = False,
    ) -> None:
        super().__init__()
        features = cast(int, backbone.num_features)
        self.backbone = backbone
        self.pool = FeaturePool(_resolve_pooling(pooling, backbone), backbone)
        self.norm = nn.LayerNorm(features, elementwise_affine=False) if layer_norm else nn.Identity()
        self.linear = nn.Linear(features, embedding_dim)
        nn.init.orthogonal_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.embedding_dim = embedding_dim
        self.frozen_bn = freeze_bn
        self._never_trained = tuple(_never_trained(backbone, freeze_bn=freeze_bn, freeze_patch_embed=freeze_patch_embed))
        self.train_backbone(True)

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, D) of norm 1; float32 also under autocast, where a half-precision norm would leave the sphere."""
        pooled = self.pool(self.backbone.forward_features(images))  # type: ignore[operator]
        projected = self.linear(self.norm(pooled))
        return F.normalize(projected.to(torch.promote_types(projected.dtype, torch.float32)))

    def train(self, mode: bool = True) -> EmbeddingModel:
        """As in torch, but frozen BatchNorm layers stay in evaluation mode."""
        super().train(mode)
        if self.frozen_bn:
            for module in _batch_norms(self.backbone):
                module.eval()
        return self

    def train_backbone(self, trained: bool) -> None:
        """Let gradients into the backbone, or stop them; what is frozen for good stays frozen."""
        self.backbone.requires_grad_(False)
        for parameter in self.backbone_parameters():
            parameter.requires_grad_(trained)

    def backbone_parameters(self) -> list[nn.Parameter]:
        """The backbone's parameters, without those that are frozen for good."""
        frozen = {id(parameter) for parameter in self._never_trained}
        return [parameter for parameter in self.backbone.parameters() if id(parameter) not in frozen]

    def head_parameters(self) -> list[nn.Parameter]:
        """The trained parameters outside the backbone."""
        return [*self.pool.parameters(), *self.linear.parameters()]

    def has_trained_batch_norm(self) -> bool:
        """Whether an image's embedding depends on the batch it is trained in."""
        return not self.frozen_bn and any(True for _ in _batch_norms(self.backbone))


class FeaturePool(nn.Module):
    """timm's features in any of their layouts, (B, C, H, W), (B, H, W, C), (B, N, C) or (B, C), pooled to (B, C)."""

    def __init__(self, pooling: Pooling, backbone: nn.Module) -> None:
        super().__init__()
        self.pooling = pooling
        self.channels_last = str(getattr(backbone, "output_fmt", "NCHW")).endswith("NHWC")
        self.prefix_tokens = int(getattr(backbone, "num_prefix_tokens", 0) or 0)
        self.class_tokens = _class_tokens(backbone)
        if pooling == "gem":
            self.power = nn.Parameter(torch.tensor(3.0))

    def forward(self, features: Tensor) -> Tensor:
        if features.ndim == 2:
            return features  # pooled by the backbone itself
        if self.pooling == "token":
            # DeiT's distilled models have two class tokens, of which timm takes the mean; registers are no class tokens.
            return features[:, : self.class_tokens].mean(1)
        places = self._places(features)
        match self.pooling:
            case "max":
                return places.amax(1)
            case "avg+max":
                return places.mean(1) + places.amax(1)
            case "gem":
                # In float32: cubes of half-precision features overflow.
                return places.float().clamp(min=1e-6).pow(self.power).mean(1).pow(1 / self.power)
            case _:
                return places.mean(1)

    def _places(self, features: Tensor) -> Tensor:
        """(B, places, C), without the tokens that stand for no place."""
        if features.ndim == 3:
            return features[:, self.prefix_tokens :]
        return features.flatten(1, 2) if self.channels_last else features.flatten(2).transpose(1, 2)


def build_model(
    *,
    backbone: str,
    weights: str = "none",
    embedding_dim: int,
    pooling: Pooling = "auto",
    layer_norm: bool = True,
    freeze_bn: bool = False,
    freeze_patch_embed: bool = False,
    image_size: int | None = None,
    seed: int = 0,
) -> EmbeddingModel:
    """A model on the CPU, in training mode; the same seed gives the same initial weights and leaves torch's own stream alone.

    backbone: a timm name, with or without a tag ("vit_small_patch16_224.dino").
    weights: "pretrained" (timm's hub, or what was downloaded before), "none" (random), or a .safetensors or .pth file.
    image_size: side of the square input in pixels; None: the backbone's own. Position embeddings are resampled to it.

    Raises: WeightsError for an unknown name, a failed download, or a file that does not fit.
    """
    check_backbone(backbone)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _load_pretrained(backbone) if weights == "pretrained" else timm.create_model(backbone, num_classes=0)
        if weights not in ("pretrained", "none"):
            load_backbone(network, Path(weights))
        _resize_input(network, image_size)
        if pooling == "token" and not _class_tokens(network):
            raise WeightsError(f"pooling token: {backbone} has no class token. Valid for it: auto, avg, max, avg+max, gem.")
        return EmbeddingModel(
            network,
            embedding_dim=embedding_dim,
            pooling=pooling,
            layer_norm=layer_norm,
            freeze_bn=freeze_bn,
            freeze_patch_embed=freeze_patch_embed,
        )


@dataclass(frozen=True)
class InputConfig:
    """What a backbone's weights were trained to see, from timm's data config.

    image_size: side in pixels.
    crop_pct: image_size over the side that the picture is resized to before the centre crop.
    mean, std: of the channels, for pixels in 0..1.
    interpolation: "bicubic", "bilinear" or "nearest".
    """

    image_size: int
    crop_pct: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    interpolation: str


def input_config(backbone: str) -> InputConfig:
    """The input that `backbone` (a timm name) expects. Raises: WeightsError for an unknown name."""
    check_backbone(backbone)
    pretrained = get_pretrained_cfg(backbone)
    config = resolve_data_config(pretrained_cfg=pretrained.to_dict() if pretrained else {"input_size": (3, 224, 224)})
    return InputConfig(
        image_size=int(config["input_size"][-1]),
        crop_pct=float(config["crop_pct"]),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        interpolation=str(config["interpolation"]),
    )


def is_transformer(model: EmbeddingModel) -> bool:
    """Whether the backbone cuts the picture into patches; such models take milder crops."""
    return hasattr(model.backbone, "patch_embed")


def check_backbone(backbone: str) -> None:
    """Raises: WeightsError with the nearest timm names where `backbone` is none of them."""
    architecture, _, tag = backbone.partition(".")
    if timm.is_model(architecture) and (not tag or backbone in timm.list_models(f"{architecture}.*", include_tags=True)):
        return
    if architecture in ("bn_inception", "bninception", "inception_bn"):
        raise WeightsError(
            f"model.backbone {backbone}: timm {timm.__version__} has no BN-Inception, so the papers' B512 rows cannot be had. "
            "Valid: any name of timm.list_models(); the papers' other CNN is resnet50."
        )
    tags = timm.list_models(f"{architecture}.*", include_tags=True) if timm.is_model(architecture) else []
    near = difflib.get_close_matches(backbone, tags, n=4, cutoff=0.0) or difflib.get_close_matches(
        architecture, timm.list_models(), n=4, cutoff=0.5
    )
    raise WeightsError(
        f"model.backbone {backbone} is no timm model. "
        + (f"Near it: {', '.join(near)}. " if near else "")
        + "Valid: any name of timm.list_models(include_tags=True)."
    )


def load_backbone(backbone: nn.Module, file: Path) -> None:
    """Load a backbone's weights from a .safetensors or .pth file, every key of it.

    Keys of the classifier, which the backbone here does not have, are left out; any other difference is refused. A .pth
    file is read with weights_only=True and may hold the weights under "state_dict" or "model".

    Raises: WeightsError that names missing, extra and misshapen keys.
    """
    ours = backbone.state_dict()
    classifier = backbone.pretrained_cfg.get("classifier") or ()  # type: ignore[union-attr, operator]
    prefixes = tuple(f"{name}." for name in ([classifier] if isinstance(classifier, str) else classifier))
    theirs = {key: value for key, value in _read_weights(file).items() if key in ours or not key.startswith(prefixes)}
    faults = [
        *_name_keys("missing", ours.keys() - theirs.keys()),
        *_name_keys("extra", theirs.keys() - ours.keys()),
        *_name_keys(
            "misshapen",
            (
                f"{key} {tuple(theirs[key].shape)}, expected {tuple(value.shape)}"
                for key, value in ours.items()
                if key in theirs and theirs[key].shape != value.shape
            ),
        ),
        *_name_keys("of another kind", (key for key in ours.keys() & theirs if _is_of_another_kind(theirs[key], ours[key]))),
        *_name_keys("not finite", (key for key in ours.keys() & theirs if not theirs[key].to_dense().isfinite().all())),
    ]
    if faults:
        raise WeightsError(
            f"model.weights {file} does not fit the backbone: {'; '.join(faults)}. Valid: exactly the backbone's own keys, the "
            "classifier's left out of account. Choose the model.backbone that the file was saved from."
        )
    backbone.load_state_dict(theirs)


def _is_of_another_kind(theirs: Tensor, ours: Tensor) -> bool:
    """Whether loading would cut digits off or drop a part: whole or complex numbers for floats, a layout of its own."""
    return theirs.layout != ours.layout or theirs.is_complex() or theirs.is_floating_point() != ours.is_floating_point()


def weights_bytes(model: nn.Module, metadata: Mapping[str, str] | None = None) -> bytes:
    """A model's weights in the safetensors format; `metadata` goes into its header.

    Whoever writes a weights file writes these bytes: the format's own writer leaves files that their owner alone may read.
    """
    weights = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    return bytes(save(weights, metadata=dict(metadata or {})))


def weights_hash(model: nn.Module) -> str:
    """16 hex digits over the names, shapes and values of a module's state."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}\n".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()[:16]


def find_pretrained(backbone: str) -> Any:
    """timm's entry of a backbone's pretrained weights. Raises: WeightsError where it has none."""
    config = get_pretrained_cfg(backbone)
    if config is None or not config.has_weights:
        raise WeightsError(
            f"model.weights pretrained: timm has none for {backbone}. Valid: none, or a .safetensors or .pth file."
        )
    return config


def pretrained_file(backbone: str) -> Path | None:
    """A backbone's pretrained weights as they were downloaded before; None where they were not, or not from timm's hub.

    Raises: WeightsError where there are none.
    """
    config = find_pretrained(backbone)
    cached = try_to_load_from_cache(config.hf_hub_id, config.hf_hub_filename or _HUB_FILE) if config.hf_hub_id else None
    return Path(cached) if isinstance(cached, str) else None


def _load_pretrained(backbone: str) -> nn.Module:
    # What was downloaded before is taken from disk: a study of 60 trials asks the hub once, and goes on without a network.
    cached = pretrained_file(backbone)
    source = {"file": str(cached)} if cached else None
    try:
        return cast(nn.Module, timm.create_model(backbone, pretrained=True, num_classes=0, pretrained_cfg_overlay=source))
    except Exception as exc:  # the hub's client, its transport and timm each raise kinds of their own
        raise WeightsError(
            f"model.weights pretrained: those of {backbone} could not be had from the hub ({type(exc).__name__}: {exc}). "
            "Is there a network? Without one, fetch the file elsewhere and set model.weights: FILE.safetensors, or none."
        ) from exc


def _read_weights(file: Path) -> Mapping[str, Tensor]:
    try:
        if file.suffix == ".safetensors":
            return cast(Mapping[str, Tensor], load_file(file))
        with file.open("rb") as stream:
            if not stream.read(2).startswith(_TORCH_BEGINS):
                raise WeightsError(
                    f"model.weights {file} cannot be read: torch.save writes no such file. Valid: pretrained, none, a "
                    ".safetensors or .pth file of a backbone's tensors."
                )
        content: Any = torch.load(file, map_location="cpu", weights_only=True)
    except WeightsError:
        raise
    except FileNotFoundError as exc:
        raise WeightsError(f"model.weights {file}: no such file. Valid: pretrained, none, a .safetensors or .pth file.") from exc
    except pickle.UnpicklingError as exc:
        raise WeightsError(
            f"model.weights {file} holds more than tensors, or no pickle at all, and is not loaded: unpickling runs code. "
            "Valid: a state dict of tensors; save one with safetensors.torch.save_file(model.state_dict(), FILE)."
        ) from exc
    except (
        Exception
    ) as exc:  # a reader of foreign bytes raises anything: SafetensorError, RuntimeError, EOFError, IndexError, ...
        raise WeightsError(
            f"model.weights {file} cannot be read ({type(exc).__name__}: {exc}). Valid: a .safetensors or .pth file of tensors."
        ) from exc
    for wrapper in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping):
        raise WeightsError(f"model.weights {file} holds no state dict. Valid: a mapping of names to tensors.")
    for key, value in content.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise WeightsError(
                f"model.weights {file} holds no state dict: {key!r} is {type(value).__name__}. Valid: names with tensors."
            )
    return content


def _name_keys(kind: str, keys: Iterable[str], at_most: int = 5) -> list[str]:
    named = sorted(keys)
    rest = f" and {len(named) - at_most} more" if len(named) > at_most else ""
    return [f"{kind} {', '.join(named[:at_most])}{rest}"] if named else []


def _resize_input(backbone: nn.Module, image_size: int | None) -> None:
    """Give a backbone with a fixed grid another input size; the position embeddings are resampled."""
    resize = getattr(backbone, "set_input_size", None)
    if image_size is not None and resize is not None:
        resize(img_size=(image_size, image_size))


def _resolve_pooling(pooling: Pooling, backbone: nn.Module) -> Pooling:
    if pooling != "auto":
        return pooling
    return "token" if _class_tokens(backbone) else "avg"


def _class_tokens(backbone: nn.Module) -> int:
    """Number of tokens that stand for the whole picture; registers are none."""
    prefix = int(getattr(backbone, "num_prefix_tokens", 0) or 0)
    registers = getattr(backbone, "reg_token", None)
    return prefix - (registers.shape[1] if registers is not None else 0)


def _batch_norms(module: nn.Module) -> Iterable[nn.Module]:
    return (part for part in module.modules() if isinstance(part, _BATCH_NORMS))


def _never_trained(backbone: nn.Module, *, freeze_bn: bool, freeze_patch_embed: bool) -> Iterable[nn.Parameter]:
    if freeze_bn:
        for module in _batch_norms(backbone):
            yield from module.parameters()
    if freeze_patch_embed and hasattr(backbone, "patch_embed"):
        yield from cast(nn.Module, backbone.patch_embed).parameters()


class GlyphNet(nn.Module):
    """Four convolutions for 32 x 32 images, 0.24 million parameters.

    The 5 x 5 stem of stride 3 leaves 11 x 11 places, so that an epoch of 1,200 images takes half a second on one CPU core;
    of the layouts tried it was the fastest and the best after the first epochs. It follows timm's interface.
    """

    def __init__(self, num_classes: int = 0, in_chans: int = 3, **_: Any) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.num_features = self.head_hidden_size = 128
        self.features = nn.Sequential(
            _convolution(in_chans, 32, kernel=5, stride=3),
            _convolution(32, 64, kernel=3, stride=2),
            _convolution(64, 128, kernel=3, stride=2),
            _convolution(128, 128, kernel=3, stride=1),
        ).to(memory_format=torch.channels_last)  # a sixth faster on a CPU
        self.head = nn.Linear(self.num_features, num_classes) if num_classes else nn.Identity()

    def forward_features(self, images: Tensor) -> Tensor:
        """(B, 3, 32, 32) -> (B, 128, 3, 3)"""
        return cast(Tensor, self.features(images))

    def forward(self, images: Tensor) -> Tensor:
        return cast(Tensor, self.head(self.forward_features(images).mean((2, 3))))


def _convolution(inputs: int, outputs: int, *, kernel: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


# timm looks for `default_cfgs` in the module of a registered model.
default_cfgs = generate_default_cfgs(
    {
        "glyphnet": {
            "input_size": (3, 32, 32),
            "crop_pct": 1.0,
            "interpolation": "bilinear",
            "mean": (0.5, 0.5, 0.5),
            "std": (0.5, 0.5, 0.5),
            "num_classes": 0,
            "classifier": "head",
        }
    }
)


def glyphnet(pretrained: bool = False, **kwargs: Any) -> GlyphNet:
    """The glyphs' backbone; it has no pretrained weights."""
    return cast(GlyphNet, build_model_with_cfg(GlyphNet, "glyphnet", pretrained, **kwargs))


register_model(glyphnet)
