"""see_tune.training.trainer"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from PIL import Image

import see_tune
from see_tune.errors import CheckpointError
from see_tune.home import Home
from see_tune.models import weights_hash
from see_tune.results import EpochResult, TrialResult
from see_tune.spec.models import SplitSpec, TrialSpec
from see_tune.training.checkpoint import load_checkpoint, load_ranks, save_weights
from see_tune.training.trainer import load_trained, train

SpecMaker = Callable[..., TrialSpec]

TIMINGS = ("train/images_per_s", "train/wait_share")
train = partial(train, device="cpu", threads=1)


def numbers(result: TrialResult) -> list[dict[str, float]]:
    """What was measured, without what a clock measured."""
    return [{name: value for name, value in epoch.metrics.items() if name not in TIMINGS} for epoch in result.epochs]


def saved_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of model, proxies and optimiser in a folder's newest checkpoint, by a name."""
    state = load_checkpoint(folder)
    assert state is not None
    slots = {f"{slot}.{name}": value for slot, values in state["optimizer"]["state"].items() for name, value in values.items()}
    return {**state["model"], **state["loss"], **slots}


def assert_equal_to_the_last_bit(one: Path, other: Path) -> None:
    ours, theirs = saved_weights(one), saved_weights(other)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


# What a training says


def test_a_training_measures_every_epoch_and_keeps_its_best(spec_of: SpecMaker, home: Home) -> None:
    result = train(spec_of(), home=home)

    assert (result.status, result.cause, len(result.epochs)) == ("complete", None, 3)
    values = [epoch.metrics["val/recall_at_1"] for epoch in result.epochs]
    assert result.best_value == max(values)
    assert result.best_epoch == 1 + values.index(max(values))
    assert TrialResult.from_json(result.to_json()) == result


def test_an_epoch_has_the_metrics_that_its_readers_know(spec_of: SpecMaker, home: Home) -> None:
    metrics = train(spec_of(train__epochs=2), home=home).epochs[-1].metrics

    assert set(metrics) == {
        *("train/loss", "train/images_per_s", "train/wait_share", "train/coverage", "train/lr"),
        *(f"val/recall_at_{k}" for k in (1, 2, 4, 8)),
        *("val/map_at_r", "val/r_precision", "val/embedding_variance"),
        *("see/share", "see/synthetic", "see/loss_ml", "see/loss_see", "see/cosine_to_proxy", "see/smallest_proxy_angle"),
    }
    assert metrics["see/share"] == pytest.approx(0.2, abs=0.05)
    assert metrics["train/coverage"] == 1.0  # eight classes of six pictures, two a class and batch: every picture is drawn
    assert metrics["train/loss"] == pytest.approx(metrics["see/loss_ml"] + 0.2 * metrics["see/loss_see"], rel=1e-5)


def test_the_facts_say_what_the_numbers_were_measured_on_and_with(spec_of: SpecMaker, home: Home) -> None:
    facts = train(spec_of(train__epochs=1), home=home).facts

    assert facts["queries"] == "12"  # two of ten classes, six pictures each
    assert facts["crop"] == "resize 32, centre crop 32, bilinear"
    assert facts["embedding_dim"] == "8"
    assert facts["batch_norm"] == "trained"
    assert {
        "fingerprint",
        "split",
        "weights_hash",
        "backbone",
        "pooling",
        "parameters",
        "device",
        "torch",
        "timm",
    } <= facts.keys()


def test_evaluation_may_be_rarer_but_the_last_epoch_has_one(spec_of: SpecMaker, home: Home) -> None:
    epochs = train(spec_of(evaluate__every=2), home=home).epochs

    assert ["val/recall_at_1" in epoch.metrics for epoch in epochs] == [False, True, True]


# Splits


def test_a_final_training_meets_the_test_classes_once(spec_of: SpecMaker, home: Home) -> None:
    spec = spec_of().model_copy(update={"split": SplitSpec(kind="test"), "stop_epoch": 2})

    result = train(spec, home=home)

    assert [any(name.startswith(("test/", "val/")) for name in epoch.metrics) for epoch in result.epochs] == [False, True]
    assert result.best_value == result.epochs[-1].metrics["test/recall_at_1"]
    assert (result.facts["train_classes"], result.facts["queries"]) == ("10", "24")


def test_a_final_training_leaves_the_ranks_that_its_recall_is_made_of(spec_of: SpecMaker, home: Home, tmp_path: Path) -> None:
    spec = spec_of().model_copy(update={"split": SplitSpec(kind="test"), "stop_epoch": 1})

    (epoch,) = train(spec, home=home, folder=tmp_path / "final").epochs
    train(spec_of(train__epochs=1), home=home, folder=tmp_path / "search")

    found = load_ranks(tmp_path / "final")
    assert found is not None
    labels, ranks = found
    assert (len(labels), len(set(labels.tolist()))) == (24, 4)
    assert (ranks == 1).mean() == pytest.approx(epoch.metrics["test/recall_at_1"])
    assert load_ranks(tmp_path / "search") is None


def test_the_papers_protocol_is_named_after_the_test_classes(spec_of: SpecMaker, home: Home) -> None:
    result = train(spec_of().model_copy(update={"split": SplitSpec(kind="paper")}), home=home)

    assert all("test/recall_at_1" in epoch.metrics for epoch in result.epochs)
    assert not any(name.startswith("val/") for epoch in result.epochs for name in epoch.metrics)


def test_queries_are_looked_up_in_a_gallery_of_their_own(spec_of: SpecMaker, home: Home, pictures: Path, tmp_path: Path) -> None:
    root = tmp_path / "inshop"
    shutil.copytree(pictures / "train", root / "train")
    for folder in (pictures / "test").iterdir():
        for side, images in (("query", ("0.png", "1.png")), ("gallery", ("2.png", "3.png", "4.png"))):
            (root / side / folder.name).mkdir(parents=True)
            for image in images:
                shutil.copy(folder / image, root / side / folder.name)
    spec = spec_of(train__epochs=1)
    dataset = spec.dataset.model_copy(update={"root": str(root)})

    result = train(spec.model_copy(update={"dataset": dataset, "split": SplitSpec(kind="test")}), home=home)

    assert result.cause is None
    assert (result.facts["queries"], result.facts["gallery"]) == ("8", "12")
    assert 0 < result.epochs[-1].metrics["test/recall_at_1"] <= 1


def test_a_stopped_training_ran_on_the_schedule_of_the_whole_horizon(spec_of: SpecMaker, home: Home) -> None:
    spec = spec_of(train__schedule={"name": "cosine"})

    whole, stopped = train(spec, home=home), train(spec.model_copy(update={"stop_epoch": 2}), home=home)

    assert numbers(stopped) == numbers(whole)[:2]


# Seeds


def test_one_seed_gives_one_training(spec_of: SpecMaker, home: Home, tmp_path: Path) -> None:
    first = train(spec_of(), home=home, folder=tmp_path / "a")
    second = train(spec_of(), home=home, folder=tmp_path / "b")

    assert numbers(first) == numbers(second)
    assert_equal_to_the_last_bit(tmp_path / "a", tmp_path / "b")


def test_see_and_its_baseline_share_everything_until_see_begins(spec_of: SpecMaker, home: Home, tmp_path: Path) -> None:
    """At share 0, the published pace's first epoch, batches and augmentations must be the same: so are the weights."""
    on, off = spec_of(train__epochs=3, stop_epoch=1), spec_of(train__epochs=3, stop_epoch=1, see__enabled=False)

    train(on, home=home, folder=tmp_path / "on")
    train(off, home=home, folder=tmp_path / "off")

    assert weights_hash(load_trained(tmp_path / "on").model) == weights_hash(load_trained(tmp_path / "off").model)


def test_lambda_0_is_the_baseline_to_the_last_bit(spec_of: SpecMaker, home: Home) -> None:
    zero, off = train(spec_of(see__lambda=0.0), home=home), train(spec_of(see__enabled=False), home=home)

    assert [epoch["val/map_at_r"] for epoch in numbers(zero)] == [epoch["val/map_at_r"] for epoch in numbers(off)]
    assert [epoch["train/loss"] for epoch in numbers(zero)] == [epoch["train/loss"] for epoch in numbers(off)]


# Stopping and going on


class StoppedByCallerError(Exception):
    pass


def stop_after(epoch: int, heard: list[tuple[int, bool]] | None = None) -> Callable[[EpochResult, Path | None], None]:
    def on_epoch(result: EpochResult, checkpoint: Path | None) -> None:
        if heard is not None:
            heard.append((result.epoch, checkpoint is not None))
        if result.epoch == epoch and checkpoint is not None:
            raise StoppedByCallerError

    return on_epoch


def test_what_on_epoch_raises_passes_through(spec_of: SpecMaker, home: Home) -> None:
    def interrupt(result: EpochResult, checkpoint: Path | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(spec_of(), home=home, on_epoch=interrupt)


def test_an_epoch_is_saved_with_its_history_before_it_is_handed_out(spec_of: SpecMaker, home: Home, tmp_path: Path) -> None:
    def check(result: EpochResult, checkpoint: Path | None) -> None:
        assert checkpoint is not None
        history = [json.loads(text) for text in load_checkpoint(tmp_path)["history"]]
        assert [epoch["epoch"] for epoch in history] == list(range(1, result.epoch + 1))

    train(spec_of(), home=home, folder=tmp_path, on_epoch=check)


def test_a_stopped_training_replays_its_history_and_ends_as_one_that_was_not(
    spec_of: SpecMaker, home: Home, tmp_path: Path
) -> None:
    whole = train(spec_of(), home=home, folder=tmp_path / "whole")
    with pytest.raises(StoppedByCallerError):
        train(spec_of(), home=home, folder=tmp_path / "cut", on_epoch=stop_after(2))

    heard: list[tuple[int, bool]] = []
    resumed = train(spec_of(), home=home, folder=tmp_path / "cut", on_epoch=stop_after(9, heard))

    assert heard == [(1, False), (2, False), (3, True)]
    assert numbers(resumed) == numbers(whole)
    assert_equal_to_the_last_bit(tmp_path / "cut", tmp_path / "whole")


def test_a_finished_training_only_tells_its_history(spec_of: SpecMaker, home: Home, tmp_path: Path) -> None:
    first = train(spec_of(), home=home, folder=tmp_path)

    again = train(spec_of(), home=home, folder=tmp_path)

    assert again == first


CUT_TRAINING = """
import sys
from pathlib import Path
from see_tune.home import Home
from see_tune.spec.models import TrialSpec
from see_tune.training import train
train(
    TrialSpec.model_validate_json(sys.argv[1]), home=Home(Path(sys.argv[2])), folder=Path(sys.argv[3]), device="cpu", threads=1,
    on_epoch=lambda result, checkpoint: print(result.epoch, flush=True),
)
"""


def test_a_killed_training_ends_with_the_weights_of_one_that_was_not(spec_of: SpecMaker, home: Home, tmp_path: Path) -> None:
    spec = spec_of(train__epochs=12)
    arguments = [spec.model_dump_json(by_alias=True), str(home.root), str(tmp_path / "cut")]
    training = subprocess.Popen(
        [sys.executable, "-c", CUT_TRAINING, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(see_tune.__file__).parents[1],
    )
    assert training.stdout is not None
    while training.stdout.readline().strip() != "2":
        assert training.poll() is None
    os.kill(training.pid, signal.SIGKILL)
    assert training.wait() == -signal.SIGKILL
    assert 2 <= len(load_checkpoint(tmp_path / "cut")["history"]) < 12

    resumed = train(spec, home=home, folder=tmp_path / "cut")
    whole = train(spec, home=home, folder=tmp_path / "whole")

    assert numbers(resumed) == numbers(whole)
    assert_equal_to_the_last_bit(tmp_path / "cut", tmp_path / "whole")


# Failing


def test_a_loss_that_is_not_finite_fails_the_trial_with_epoch_and_step(spec_of: SpecMaker, home: Home) -> None:
    optimizer = {"name": "sgd", "lr": 1e38, "lr_at_batch": None, "clip_value": None}

    result = train(spec_of(train__optimizer=optimizer), home=home)

    assert result.status == "failed"
    assert result.cause is not None
    assert result.cause.startswith("loss is nan at epoch 1, step ")
    assert result.traceback is None  # the cause says it all


def test_embeddings_that_are_all_the_same_fail_the_trial(spec_of: SpecMaker, home: Home, tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / f"same/class{number}").mkdir(parents=True)
        for image in range(4):
            Image.new("RGB", (32, 32), "grey").save(tmp_path / f"same/class{number}/{image}.png")
    spec = spec_of()
    spec = spec.model_copy(update={"dataset": spec.dataset.model_copy(update={"root": str(tmp_path / "same")})})

    result = train(spec, home=home)

    assert result.status == "failed"
    assert "collapsed at epoch 1" in str(result.cause)


def test_any_other_error_fails_the_trial_with_its_traceback(spec_of: SpecMaker, home: Home) -> None:
    result = train(spec_of(data__image_size=8, model__backbone="vit_tiny_patch16_224"), home=home)

    assert result.status == "failed"
    assert str(result.cause).startswith("RuntimeError: ")
    assert "Traceback" in str(result.traceback)


def test_the_checkpoint_of_another_trial_fails_the_trial(spec_of: SpecMaker, home: Home, tmp_path: Path) -> None:
    train(spec_of(stop_epoch=1), home=home, folder=tmp_path)

    result = train(spec_of(seed=1), home=home, folder=tmp_path)

    assert "another spec" in str(result.cause)


# The trained model


def test_the_trained_model_is_that_of_the_best_epoch(spec_of: SpecMaker, home: Home, tmp_path: Path) -> None:
    result = train(spec_of(), home=home, folder=tmp_path / "all")
    train(spec_of(stop_epoch=result.best_epoch), home=home, folder=tmp_path / "to_best")

    trained = load_trained(tmp_path / "all")

    assert not trained.model.training
    assert trained.spec == spec_of(stop_epoch=result.best_epoch)  # by which a look at test classes is counted
    assert trained.preprocessing.image_size == 32
    assert trained.trained_on is not None
    assert (trained.trained_on.fingerprint, len(trained.trained_on)) == (
        result.facts["fingerprint"],
        int(result.facts["train_classes"]),
    )
    expected = load_checkpoint(tmp_path / "to_best")["model"]
    assert all(torch.equal(value, expected[name]) for name, value in trained.model.state_dict().items())


def test_a_folder_without_a_training_has_no_model(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        load_trained(tmp_path)


@pytest.mark.parametrize("key", ["of another version", "model"])
def test_weights_that_are_not_those_of_their_spec_are_no_model(key: str, tmp_path: Path) -> None:
    spec = {"dataset": {"name": "glyphs"}, key: {"backbone": "glyphnet"}}
    save_weights(tmp_path, torch.nn.Linear(2, 2), {"spec": json.dumps(spec)})
    with pytest.raises(CheckpointError, match="not those of the spec that they carry"):
        load_trained(tmp_path)


# Walls

WITHOUT_ENGINES = """
import sys
class Wall:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("ray", "optuna", "mlflow"):
            raise ImportError(name)
sys.meta_path.insert(0, Wall())
"""


def test_a_training_needs_no_ray_optuna_or_mlflow(spec_of: SpecMaker, home: Home, tmp_path: Path) -> None:
    spec = spec_of(train__epochs=1).model_dump_json(by_alias=True)

    finished = subprocess.run(
        [sys.executable, "-c", WITHOUT_ENGINES + CUT_TRAINING, spec, str(home.root), str(tmp_path / "folder")],
        check=True, capture_output=True, text=True, cwd=Path(see_tune.__file__).parents[1],
    )  # fmt: skip

    assert finished.stdout.split() == ["1"]
