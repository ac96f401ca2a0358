"""see_tune.models"""

from collections.abc import Callable
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from see_tune.errors import WeightsError
from see_tune.models import (
    EmbeddingModel,
    FeaturePool,
    build_model,
    check_backbone,
    input_config,
    is_transformer,
    load_backbone,
    weights_hash,
)

REAL_WEIGHTS = Path(__file__).parents[3] / "shared" / "weights" / "tf_efficientnet_lite0.safetensors"

# Backbone, side of the image, embedding dimension. The paper's fifth, BN-Inception, timm does not have: see "Names" below.
PAPER_BACKBONES = [
    ("resnet50", 64, 512),
    ("deit_small_distilled_patch16_224", 32, 128),
    ("deit_small_patch16_224", 32, 384),
    ("vit_small_patch16_224.dino", 32, 128),
    ("vit_small_patch16_224.dino", 32, 384),
    ("vit_small_patch16_224.augreg_in21k", 32, 384),
]
OTHER_FAMILIES = [
    ("glyphnet", 32, 16),
    ("test_vit2", 32, 16),
    ("test_mambaout", 64, 16),
    ("test_convnext", 64, 16),
    ("test_efficientnet", 64, 16),
]


def small_vit(**options: object) -> EmbeddingModel:
    return build_model(backbone="test_vit", embedding_dim=8, image_size=32, **options)


# The map


@pytest.mark.parametrize(("backbone", "size", "dim"), [*PAPER_BACKBONES, *OTHER_FAMILIES])
def test_the_papers_backbones_and_other_families_give_unit_embeddings(backbone: str, size: int, dim: int) -> None:
    model = build_model(backbone=backbone, embedding_dim=dim, image_size=size).eval()

    with torch.inference_mode():
        embeddings = model(torch.randn(2, 3, size, size))

    assert embeddings.shape == (2, dim)
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(2))


@pytest.mark.parametrize("pooling", ["avg", "max", "avg+max", "gem"])
def test_every_pooling_reads_every_layout(pooling: str) -> None:
    features = torch.rand(2, 5, 3, 4)  # (B, C, H, W)
    maps, channels_last, tokens = nn.Module(), nn.Module(), nn.Module()
    channels_last.output_fmt = "NHWC"
    tokens.num_prefix_tokens = 1

    with torch.inference_mode():
        expected = FeaturePool(pooling, maps)(features)
        from_channels_last = FeaturePool(pooling, channels_last)(features.permute(0, 2, 3, 1))
        with_class_token = torch.cat([torch.full((2, 1, 5), 9.0), features.flatten(2).mT], dim=1)
        from_tokens = FeaturePool(pooling, tokens)(with_class_token)

    assert expected.shape == (2, 5)
    torch.testing.assert_close(from_channels_last, expected)
    torch.testing.assert_close(from_tokens, expected)


def test_a_frozen_seed_gives_the_same_weights_and_leaves_torchs_stream_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)

    torch.manual_seed(5)
    first, second, other = (build_model(backbone="glyphnet", embedding_dim=8, seed=seed) for seed in (1, 1, 2))

    assert torch.rand(1) == expected
    assert weights_hash(first) == weights_hash(second) != weights_hash(other)


def test_the_head_starts_orthogonal_without_bias() -> None:
    model = build_model(backbone="glyphnet", embedding_dim=8)

    torch.testing.assert_close(model.linear.weight @ model.linear.weight.T, torch.eye(8), atol=1e-5, rtol=0)
    assert model.linear.bias.count_nonzero() == 0


def test_embeddings_are_float32_and_unit_under_autocast() -> None:
    model = small_vit().eval()

    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        embeddings = model(torch.randn(4, 3, 32, 32))

    assert embeddings.dtype == torch.float32
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(4))


def test_a_float64_model_stays_float64() -> None:
    assert small_vit().double()(torch.randn(2, 3, 32, 32, dtype=torch.float64)).dtype == torch.float64


# Pooling


def pooled(pooling: str) -> tuple[Tensor, Tensor]:
    """What a convolutional model pools, and the features it pools."""
    model = build_model(backbone="glyphnet", embedding_dim=8, pooling=pooling).eval()
    with torch.inference_mode():
        features = model.backbone.forward_features(torch.randn(3, 3, 32, 32))
        return model.pool(features), features


@pytest.mark.parametrize(
    ("pooling", "oracle"),
    [
        ("auto", lambda x: x.mean((2, 3))),
        ("avg", lambda x: x.mean((2, 3))),
        ("max", lambda x: x.amax((2, 3))),
        ("avg+max", lambda x: x.mean((2, 3)) + x.amax((2, 3))),
        ("gem", lambda x: x.clamp(min=1e-6).pow(3).mean((2, 3)).pow(1 / 3)),
    ],
)
def test_pooling_of_a_feature_map(pooling: str, oracle: Callable[[Tensor], Tensor]) -> None:
    value, features = pooled(pooling)

    torch.testing.assert_close(value, oracle(features))


def test_both_class_tokens_of_a_distilled_model_are_averaged_as_timm_does() -> None:
    model = build_model(backbone="deit_tiny_distilled_patch16_224", embedding_dim=8, image_size=32).eval()

    with torch.inference_mode():
        features = model.backbone.forward_features(torch.randn(2, 3, 32, 32))
        expected = model.backbone.forward_head(features, pre_logits=True)

        torch.testing.assert_close(model.pool(features), expected)


def test_a_register_is_neither_class_token_nor_place() -> None:
    model = build_model(backbone="test_vit2", embedding_dim=8, image_size=32).eval()  # one register, no class token

    assert model.pool.pooling == "avg"
    assert model.pool(torch.tensor([9.0, 1.0, 2.0, 3.0, 4.0]).view(1, 5, 1)) == 2.5


def test_token_pooling_of_a_model_without_one_is_refused() -> None:
    with pytest.raises(WeightsError, match="no class token"):
        build_model(backbone="glyphnet", embedding_dim=8, pooling="token")


# Freezing


def test_frozen_batch_norm_keeps_its_statistics_and_gets_no_gradient() -> None:
    model = build_model(backbone="glyphnet", embedding_dim=8, freeze_bn=True).train()
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    before = [norm.running_mean.clone() for norm in norms]

    model(torch.randn(4, 3, 32, 32)).sum().backward()

    assert all(torch.equal(norm.running_mean, old) for norm, old in zip(norms, before, strict=True))
    assert all(parameter.grad is None for norm in norms for parameter in norm.parameters())
    assert not model.has_trained_batch_norm()


def test_an_unfrozen_backbone_keeps_its_patch_embedding_frozen() -> None:
    model = small_vit(freeze_patch_embed=True)

    model.train_backbone(False)
    assert not any(parameter.requires_grad for parameter in model.backbone.parameters())
    model.train_backbone(True)

    frozen = {name for name, parameter in model.backbone.named_parameters() if not parameter.requires_grad}
    assert frozen == {"patch_embed.proj.weight", "patch_embed.proj.bias"}


def test_transformers_are_told_from_convolutions() -> None:
    assert is_transformer(small_vit())
    assert not is_transformer(build_model(backbone="glyphnet", embedding_dim=8))


# Names


@pytest.mark.parametrize(
    ("backbone", "says"),
    [
        ("resnet5O", "resnet50"),
        ("resnet50.a1_in2k", "resnet50.a1_in1k"),
        ("bn_inception", "no BN-Inception"),
        ("#", "list_models"),
    ],
)
def test_an_unknown_backbone_is_refused_with_what_is_near(backbone: str, says: str) -> None:
    with pytest.raises(WeightsError, match=says):
        check_backbone(backbone)


@pytest.mark.parametrize(
    ("backbone", "size", "mean"),
    [("glyphnet", 32, 0.5), ("vit_small_patch16_224", 224, 0.5), ("vit_small_patch16_224.dino", 224, 0.485)],
)
def test_the_input_is_that_of_timms_data_config(backbone: str, size: int, mean: float) -> None:
    config = input_config(backbone)

    assert (config.image_size, config.mean[0]) == (size, mean)


# Weights


def weights_file(folder: Path, **changes: Tensor | None) -> Path:
    """A glyphnet's weights with some keys changed, added or (None) taken away."""
    weights = {name: value.contiguous() for name, value in timm.create_model("glyphnet").state_dict().items()}
    for name, value in changes.items():
        key = name.replace("__", ".")
        weights.pop(key, None)
        if value is not None:
            weights[key] = value
    save_file(weights, folder / "weights.safetensors")
    return folder / "weights.safetensors"


def test_weights_from_a_file_are_the_backbones(tmp_path: Path) -> None:
    file = weights_file(tmp_path)

    model = build_model(backbone="glyphnet", weights=str(file), embedding_dim=8)

    stored = load_file(file)
    assert all(torch.equal(value, stored[name]) for name, value in model.backbone.state_dict().items())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"features__0__0__weight": None}, r"missing features\.0\.0\.weight"),
        ({"features__9__weight": torch.zeros(1)}, r"extra features\.9\.weight"),
        (
            {"features__0__0__weight": torch.zeros(32, 3, 3, 3)},
            r"misshapen features\.0\.0\.weight \(32, 3, 3, 3\), expected \(32, 3, 5, 5\)",
        ),
        ({"features__0__0__weight": torch.zeros(32, 3, 5, 5, dtype=torch.int64)}, r"of another kind features\.0\.0\.weight"),
        ({"features__0__0__weight": torch.full((32, 3, 5, 5), torch.nan)}, r"not finite features\.0\.0\.weight"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_key(tmp_path: Path, changes: dict[str, Tensor | None], says: str) -> None:
    with pytest.raises(WeightsError, match=says):
        build_model(backbone="glyphnet", weights=str(weights_file(tmp_path, **changes)), embedding_dim=8)


def test_the_classifier_of_a_file_is_left_out_of_account(tmp_path: Path) -> None:
    file = weights_file(tmp_path, head__weight=torch.zeros(10, 128), head__bias=torch.zeros(10))

    build_model(backbone="glyphnet", weights=str(file), embedding_dim=8)


@pytest.mark.parametrize("wrapper", ["state_dict", "model"])
def test_a_pth_file_may_wrap_its_weights(tmp_path: Path, wrapper: str) -> None:
    source = timm.create_model("glyphnet")
    torch.save({wrapper: source.state_dict(), "epoch": 3}, tmp_path / "weights.pth")
    backbone = timm.create_model("glyphnet")

    load_backbone(backbone, tmp_path / "weights.pth")

    assert weights_hash(backbone) == weights_hash(source)


class Bomb:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return Path.touch, (Path("exploded"),)  # type: ignore[return-value]


def test_a_pickle_that_runs_code_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": Bomb()}, tmp_path / "weights.pth")

    with pytest.raises(WeightsError, match="runs code"):
        build_model(backbone="glyphnet", weights=str(tmp_path / "weights.pth"), embedding_dim=8)

    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("name", "content"), [("a.pth", b"abc"), ("a.pth", b""), ("a.yaml", b"study: cars"), ("a.safetensors", b"abc")]
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)

    with pytest.raises(WeightsError, match=f"{name} cannot be read") as caught:
        build_model(backbone="glyphnet", weights=str(tmp_path / name), embedding_dim=8)

    assert "IndexError" not in str(caught.value)


def test_an_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="no such file"):
        build_model(backbone="glyphnet", weights=str(tmp_path / "absent.safetensors"), embedding_dim=8)


def test_pretrained_where_there_is_nothing_pretrained_is_refused() -> None:
    with pytest.raises(WeightsError, match="timm has none for glyphnet"):
        build_model(backbone="glyphnet", weights="pretrained", embedding_dim=8)


def test_a_failed_download_says_what_to_do_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> nn.Module:
        raise ConnectionError("Name or service not known")

    monkeypatch.setattr(timm, "create_model", refuse)

    with pytest.raises(WeightsError, match=r"Is there a network\?.*model\.weights: FILE\.safetensors"):
        build_model(backbone="resnet18", weights="pretrained", embedding_dim=8)


@pytest.mark.skipif(not REAL_WEIGHTS.is_file(), reason=f"no {REAL_WEIGHTS}")
def test_real_weights_give_timms_own_features() -> None:
    model = build_model(backbone="tf_efficientnet_lite0", weights=str(REAL_WEIGHTS), embedding_dim=8).eval()
    reference = timm.create_model("tf_efficientnet_lite0", checkpoint_path=str(REAL_WEIGHTS)).eval()
    images = torch.randn(2, 3, 64, 64)

    with torch.inference_mode():
        torch.testing.assert_close(
            model.pool(model.backbone.forward_features(images)),
            reference.forward_head(reference.forward_features(images), pre_logits=True),
        )
