"""One training from a TrialSpec to a TrialResult, to be read from top to bottom.

    table -> split -> model, loss (SEE around it) -> optimiser -> epochs: train, measure, save, hand out

The trainer's only outlet is `on_epoch(result, checkpoint)`: Ray reports through it, MLflow logs through it, a test appends to
a list. It knows neither. An epoch is saved before it is handed out, and a training that finds a checkpoint in its folder hands
out the epochs of its history again and goes on; whoever listens must take the same epoch twice.

What is random hangs on the spec's seed alone, each thing on a stream of its own: initial weights, proxies, batches,
augmentations, dropout, and SEE's draws. So SEE on and off share all but SEE, and a cut training ends with the same weights.

A trial ends "failed" where it would fail again: NaN loss, collapsed embeddings, out of memory, an exception. What `on_epoch`
raises passes through untouched: that is how a caller stops a training.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import torch
from torch import Tensor, nn

from see_tune.data.loading import Loader
from see_tune.data.samplers import coverage, epoch_batches
from see_tune.data.splits import Split, split_table
from see_tune.data.table import Classes, ImageTable, classes_of
from see_tune.errors import CheckpointError, EvaluationError, SeeTuneError, SpecError, TrainingError
from see_tune.home import Home
from see_tune.losses import LOSSES
from see_tune.method.see_loss import SEELoss, proxies_of, smallest_proxy_angle
from see_tune.model_folder import StoredModel
from see_tune.results import EpochResult, TrialResult, TrialStatus, best_epoch
from see_tune.spec.models import TrialSpec
from see_tune.training.checkpoint import load_weights, save_ranks
from see_tune.training.measure import Measured, measure
from see_tune.training.parts import (
    describe,
    device_name,
    make_loader,
    make_loss,
    make_model,
    make_preprocessing,
    make_state,
    open_table,
    pick_device,
)
from see_tune.training.state import TrainingState, release_memory

OnEpoch = Callable[[EpochResult, Path | None], None]

_log = logging.getLogger(__name__)

# 1 - |mean embedding|^2: below this the cosines of all pairs lie within the ranking's tolerance for ties.
_COLLAPSED_VARIANCE = 1e-6


def ignore(result: EpochResult, checkpoint: Path | None) -> None:
    """An `on_epoch` that does nothing."""


def train(
    spec: TrialSpec,
    *,
    home: Home,
    folder: Path | None = None,
    on_epoch: OnEpoch = ignore,
    device: str = "auto",
    threads: int | None = None,
) -> TrialResult:
    """Train one trial to its last epoch, or on from the checkpoint in `folder`.

    Args:
        home: where rendered glyphs and decoded images are cached.
        folder: of this trial's checkpoints; None keeps none.
        on_epoch: called after each epoch with its result and the checkpoint that holds it (None for an epoch of a resumed
            training's history, and where none could be written).
        device: "auto" (CUDA where there is one, else the CPU) or a name that torch knows.
        threads: CPU cores of this trial, for torch and for loading images; None: all.

    Returns:
        Status "complete", or "failed" with cause and traceback. `facts` says what the numbers were measured on and with.

    Raises:
        SpecError: torch knows no such device, or `spec` or `home` is none.
        Otherwise whatever `on_epoch` raises, and KeyboardInterrupt and its like.
    """
    if not isinstance(spec, TrialSpec) or not isinstance(home, Home):
        raise SpecError(
            f"train was given a {type(spec).__name__} and a {type(home).__name__}; it takes a TrialSpec, as "
            "see_tune.spec.load.trial_values(load_values(Path('study.yaml'))), and a Home, as see_tune.home.find_home()"
        )
    trial = _Trial(spec, home, folder, pick_device(device), threads or os.cpu_count() or 1)
    try:
        with closing(_run(trial)) as run:
            while True:
                try:
                    result, checkpoint = next(run)
                except StopIteration:
                    return trial.result("complete")
                except Exception as error:
                    return trial.result("failed", error)
                trial.epochs.append(result)
                on_epoch(result, checkpoint)
    finally:
        release_memory(trial.device)


def load_trained(folder: Path) -> StoredModel:
    """The best model of a trained folder, in evaluation mode on the CPU.

    The spec is that of a training which ends after the epoch that the weights are of, and so with these weights.

    Raises:
        CheckpointError: the folder holds no weights, or not those of a training.
    """
    weights, header = load_weights(folder)
    if "spec" not in header:
        raise CheckpointError(f"{folder}: its weights carry no spec. Name the folder of a training, as it was written.")
    try:
        spec = TrialSpec.model_validate_json(header["spec"])
        spec = spec.model_copy(update={"stop_epoch": int(header.get("epoch", spec.last_epoch))})
        preprocessing = make_preprocessing(spec)
        model = make_model(spec, preprocessing, weights="none")
        model.load_state_dict(weights)
        trained_on = Classes.from_plain(json.loads(header["trained_on"])) if "trained_on" in header else None
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as exc:  # pydantic's, ours, torch's
        raise CheckpointError(
            f"{folder}: its weights are not those of the spec that they carry ({' '.join(str(exc).split())[:200]}). It was "
            "written by another version of see-tune; train it again."
        ) from exc
    return StoredModel(model.eval(), preprocessing, spec, trained_on)


class _Trial:
    """What `train` was asked, and what it knows so far: enough for a result at any moment."""

    def __init__(self, spec: TrialSpec, home: Home, folder: Path | None, device: torch.device, threads: int) -> None:
        self.spec = spec
        self.home = home
        self.folder = folder
        self.device = device
        self.threads = threads
        self.facts: dict[str, str] = {}
        self.epochs: list[EpochResult] = []

    def result(self, status: TrialStatus, error: Exception | None = None) -> TrialResult:
        best = best_epoch(tuple(self.epochs), self.spec.objective_metric)
        cause = str(error) if isinstance(error, SeeTuneError) else f"{type(error).__name__}: {error}"
        return TrialResult(
            status=status,
            epochs=tuple(self.epochs),
            best_epoch=best[0] if best else None,
            best_value=best[1] if best else None,
            cause=cause if error else None,
            traceback="".join(traceback.format_exception(error)) if error and not isinstance(error, SeeTuneError) else None,
            device=device_name(self.device),
            facts=self.facts,
        )


def _run(trial: _Trial) -> Generator[tuple[EpochResult, Path | None]]:
    """Yields each epoch with its checkpoint; those of a checkpoint's history first, without one."""
    spec = trial.spec
    torch.set_num_threads(trial.threads)
    preprocessing = make_preprocessing(spec)
    table = open_table(spec, trial.home, preprocessing, trial.threads)
    split = split_table(table, **spec.split.model_dump())
    model = make_model(spec, preprocessing, weights=spec.model.weights)
    state = make_state(spec, model, make_loss(spec, split.num_classes), trial.device)
    state.trained_on = classes_of(table, split.train_rows)
    trial.facts = describe(spec, table, split, preprocessing, state)

    state.restore(trial.folder)
    for result in state.history:
        yield result, None

    with make_loader(spec, table, preprocessing, model, trial.threads) as loader:
        for epoch in range(len(state.history) + 1, spec.last_epoch + 1):
            started = time.perf_counter()
            metrics = _train_epoch(state, loader, split, epoch)
            if _is_measured(spec, epoch):
                metrics |= _measure(state, loader, table, split, epoch, trial.folder)
            result = EpochResult(epoch, metrics, timestamp=time.time(), duration_s=time.perf_counter() - started)
            yield result, state.save(trial.folder, result)


def _train_epoch(state: TrainingState, loader: Loader, split: Split, epoch: int) -> dict[str, float]:
    """One pass over the training images; returns the epoch's ``train/`` and ``see/`` metrics."""
    spec = state.spec
    state.begin_epoch(epoch)
    batches = epoch_batches(
        split.train_labels,
        batch_size=spec.train.batch_size,
        images_per_class=spec.train.images_per_class,
        seed=spec.seed,
        epoch=epoch,
    )
    steps = loader.train(epoch, [split.train_rows[positions] for positions in batches])
    diary = _Diary(state.loss)
    started, waited = time.perf_counter(), loader.wait_s
    for (images, _), positions in zip(steps, batches, strict=True):
        diary.note(state.step(images, torch.from_numpy(split.train_labels[positions]), epoch))
    means = diary.means(epoch)  # waits for the device, once an epoch
    duration_s = time.perf_counter() - started
    return {
        "train/loss": means.pop("loss"),
        "train/images_per_s": sum(map(len, batches)) / duration_s,
        "train/wait_share": min(1.0, (loader.wait_s - waited) / duration_s),
        "train/coverage": coverage(batches, len(split.train_rows)),
        "train/lr": state.optimizer.param_groups[0]["lr"],
        **{f"see/{name}": value for name, value in means.items()},
        **_proxy_angle(spec, state.loss),
    }


def _is_measured(spec: TrialSpec, epoch: int) -> bool:
    """A final training meets the test classes once, after its last epoch."""
    return epoch == spec.last_epoch or (spec.split.kind != "test" and epoch % spec.evaluate.every == 0)


def _measure(
    state: TrainingState, loader: Loader, table: ImageTable, split: Split, epoch: int, folder: Path | None
) -> dict[str, float]:
    """Retrieval on the split's queries (and gallery): ``val/`` metrics, or ``test/`` where these are test classes.

    A final training leaves its query-by-query ranks in `folder`, to be compared with another's.

    Raises:
        TrainingError: the embeddings are not finite, or are all the same.
    """
    spec = state.spec
    try:
        measured = measure(
            state.model,
            loader,
            table,
            split,
            ks=spec.ks,
            batch_size=spec.evaluate.batch_size,
            device=state.device,
            amp_dtype=state.amp,
        )
    except EvaluationError as exc:
        raise TrainingError(f"after epoch {epoch}: {exc}") from exc
    if (variance := measured.metrics["embedding_variance"]) < _COLLAPSED_VARIANCE:
        raise TrainingError(
            f"embeddings collapsed at epoch {epoch}: every image has the same one (variance {variance:.0e}). "
            "Lower train.optimizer.lr, or start from pretrained weights."
        )
    if spec.split.kind == "test" and folder is not None:
        _keep_ranks(folder, measured)
    prefix = spec.objective_metric.partition("/")[0]
    return {f"{prefix}/{name}": value for name, value in measured.metrics.items() if not name.startswith("queries")}


def _keep_ranks(folder: Path, measured: Measured) -> None:
    """A disk that is full costs the comparison query by query, not the training."""
    try:
        save_ranks(folder, measured.labels, measured.best_positive_rank)
    except CheckpointError as error:
        _log.error("the ranks of the test queries are not saved: %s", error)


class _Diary:
    """Losses and SEE's diagnostics of an epoch's steps. They stay on the device until the epoch is over."""

    def __init__(self, loss: nn.Module) -> None:
        self._see = loss if isinstance(loss, SEELoss) else None
        self._rows: list[Tensor] = []
        self._shares: list[float] = []
        self._synthetic = 0

    def note(self, loss: Tensor) -> None:
        step = self._see.last_step if self._see is not None else None
        if step is None:
            self._rows.append(loss[None])
            return
        self._rows.append(torch.stack([loss, step.loss_ml, step.loss_see, step.own_cosine]))
        self._shares.append(step.share)
        self._synthetic += step.synthetic

    def means(self, epoch: int) -> dict[str, float]:
        """Means over the steps, and the number of synthetic embeddings of the epoch.

        Raises:
            TrainingError: a loss is not finite; it names the first such step.
        """
        columns = torch.stack(self._rows).double().cpu()
        for step, loss in enumerate(columns[:, 0].tolist(), start=1):
            if not math.isfinite(loss):
                raise TrainingError(
                    f"loss is {loss} at epoch {epoch}, step {step}. "
                    "Lower train.optimizer.lr or train.optimizer.proxies_lr_scale, or set train.amp: none."
                )
        means = dict(zip(("loss", "loss_ml", "loss_see", "cosine_to_proxy"), columns.mean(0).tolist(), strict=False))
        if self._shares:
            means |= {"share": sum(self._shares) / len(self._shares), "synthetic": float(self._synthetic)}
        return means


def _proxy_angle(spec: TrialSpec, loss: nn.Module) -> dict[str, float]:
    if not LOSSES[spec.loss.name].has_proxies:
        return {}
    proxies = proxies_of(loss.loss if isinstance(loss, SEELoss) else loss)
    return {"see/smallest_proxy_angle": float(smallest_proxy_angle(proxies))}
