"""StudySpec and TrialSpec: a YAML file as frozen, strict values. Defaults stand here and nowhere else.

A TrialSpec is everything one training needs; a StudySpec is a TrialSpec plus what varies it and what is done with the
answer. Every number, boolean and choice of a TrialSpec is searchable by its dotted name (``see.n_aug``).
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    create_model,
    field_validator,
    model_validator,
)

from see_tune.addresses import check_storage, check_tracking
from see_tune.data import DATASETS, TITLE
from see_tune.losses import LOSSES
from see_tune.method.curriculum import expanded_count, share_at

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Title = Annotated[
    str,
    Field(pattern=TITLE, description="letters, digits, dots, dashes and underscores, a letter or digit first, at most 64"),
]


class RuleError(ValueError):
    """A rule over several keys is broken; `key` is the dotted key, seen from the model that raises, to point at."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class Part(BaseModel):
    """A frozen block of the YAML: unknown keys are errors, and types are not guessed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True, allow_inf_nan=False)


class DatasetSpec(Part):
    """Which dataset, and where it lies."""

    name: Literal[tuple(DATASETS)] = Field(description="cub200, cars196, sop, inshop, folder, manifest or glyphs")  # type: ignore[valid-type]
    root: str | None = Field(None, description="default: $SEE_TUNE_DATA/<name>, then ./data/<name>; no part of the identity")
    title: Title | None = Field(
        None, description="folder, manifest: what this one is called in the registry, so that each of yours has its own champion"
    )
    classes: Count | None = Field(None, description="glyphs: a seeded subset of the classes, split evenly into training and test")
    allow_partial: bool = Field(False, description="accept counts that differ from the published ones")
    on_corrupt: Literal["fail", "skip"] = Field("fail", description="what to do with an image that does not decode")

    @property
    def called(self) -> str:
        """Which dataset this is, wherever one is told from another; `name` alone says which reader reads it."""
        return self.title or self.name

    @model_validator(mode="after")
    def _titled_if_own(self) -> Self:
        if self.title is None:
            return self
        if not DATASETS[self.name].own:
            own = " and ".join(name for name, entry in DATASETS.items() if entry.own)
            raise RuleError("title", f"{self.name} is called {self.name}; a title is for {own}: leave it out")
        if self.title in DATASETS:
            raise RuleError(
                "title", f"{self.title} is another dataset's name; valid: a name of your own, none of {', '.join(DATASETS)}"
            )
        return self


class DataSpec(Part):
    """How images are read and augmented."""

    cache: bool = Field(False, description="decode and resize each image once per node, into a memory-mapped file")
    cache_limit_gb: Positive = Field(50.0, description="refuse a decoded cache larger than this")
    workers: Annotated[int, Field(ge=0)] | Literal["auto"] = Field("auto", description="data loader processes per trial")
    image_size: Annotated[int, Field(ge=8)] | Literal["auto"] = Field(
        "auto", description="crop side in pixels; auto: timm's data config"
    )
    crop_scale_min: Annotated[float, Field(gt=0, le=1)] | Literal["auto"] = Field(
        "auto", description="smallest area of a training crop; auto: 0.2 for transformers, 0.08 for CNNs"
    )
    flip: bool = Field(True, description="random horizontal flip while training")


class ModelSpec(Part):
    """A timm backbone and the linear head that makes unit embeddings of its features."""

    backbone: str = Field("deit_small_distilled_patch16_224", description="any timm model name")
    weights: str = Field("pretrained", description="pretrained, none, or a .safetensors or .pth file")
    embedding_dim: Annotated[int, Field(ge=2)] = Field(128, description="D, the dimension of the unit embeddings")
    pooling: Literal["auto", "avg", "max", "avg+max", "gem", "token"] = Field(
        "auto", description="auto: token for transformers, avg for CNNs"
    )
    layer_norm: bool = Field(True, description="LayerNorm without affine before the linear head")
    freeze_bn: bool = Field(False, description="BatchNorm layers keep their statistics and are not trained")
    freeze_patch_embed: bool = Field(True, description="a transformer's patch embedding is not trained")
    channels_last: bool | Literal["auto"] = Field("auto", description="auto: for CNNs on a GPU")
    compile: bool = Field(False, description="torch.compile the backbone")


def _loss_block(name: str) -> type[Part]:
    fields: dict[str, Any] = {
        key: (_loss_parameter(key, value), Field(value, description=f"{key} of {name}"))
        for key, value in LOSSES[name].defaults.items()
    }
    return create_model(
        f"{name}_loss", __base__=Part, __doc__=f"Parameters of {name}; they count where loss.name is {name}.", **fields
    )


def _loss_parameter(name: str, default: float | int | bool) -> Any:
    """A margin or a threshold may be 0; a scale, a temperature or a count of 0 is no loss any more."""
    if isinstance(default, bool):
        return bool
    bound = Field(ge=0) if name in ("margin", "base", "la") else Field(ge=1) if isinstance(default, int) else Field(gt=0)
    return Annotated[type(default), bound]


_LossName = Literal[tuple(LOSSES)]  # type: ignore[valid-type]
_blocks = {name: _loss_block(name) for name in LOSSES}
_block_fields: dict[str, Any] = {name: (block, block()) for name, block in _blocks.items()}
_LossBlocks: type[Part] = create_model("_LossBlocks", __base__=Part, **{"name": (_LossName, "proxy_anchor"), **_block_fields})


class LossSpec(_LossBlocks):
    """The loss's name, and a block of parameters for each loss; the chosen one's block is the one that counts."""

    name: _LossName = Field("proxy_anchor", description="which of the blocks below counts")  # type: ignore[valid-type]

    @property
    def parameters(self) -> dict[str, float | int | bool]:
        """The chosen loss's own parameters."""
        block: Part = getattr(self, self.name)
        return block.model_dump()


class PaceSpec(Part):
    """How fast the expanded share of the mini-batch grows."""

    shape: Literal["cosine", "linear", "step", "constant"] = Field("cosine", description="how it goes from start to end")
    start_share: Share = Field(0.0, description="the expanded share of the mini-batch in the first epoch")
    end_share: Share = Field(0.4, description="the expanded share once the ramp is over")
    ramp: Annotated[float, Field(gt=0, le=1)] = Field(1.0, description="part of the training after which end_share is reached")


class SEESpec(Part):
    """Spherical Embedding Expansion: synthetic embeddings around the easy samples of a mini-batch."""

    enabled: bool = Field(True, description="false: the exact baseline")
    n_aug: Count = Field(8, description="synthetic embeddings per expanded sample, at most embedding_dim - 1")
    lambda_: NonNegative = Field(0.2, alias="lambda", description="weight of L_SEE")
    gradient: Literal["proxies", "all"] = Field("proxies", description="what L_SEE moves: the proxies (as published) or all")
    pace: PaceSpec = PaceSpec()


class OptimizerSpec(Part):
    """The optimizer and the learning rates of backbone, head and proxies."""

    name: Literal["adamw", "adam", "sgd"] = Field("adamw", description="which optimizer")
    lr: Positive = Field(1e-5, description="the backbone's, at `lr_at_batch`")
    lr_at_batch: Count | None = Field(180, description="lr is scaled by batch_size / lr_at_batch; null: lr as it stands")
    eps: Positive = Field(1e-4, description="Adam's epsilon")
    momentum: Share = Field(0.9, description="SGD's momentum")
    head_lr_scale: Positive = Field(1.0, description="the head's learning rate is lr times this")
    proxies_lr_scale: Positive = Field(1e4, description="the proxies' learning rate is lr times this")
    weight_decay: NonNegative = Field(0.01, description="of backbone and head")
    proxies_weight_decay: NonNegative | None = Field(None, description="null: as weight_decay")
    clip_value: Positive | None = Field(10.0, description="gradients clamped to +-this")
    clip_norm: Positive | None = Field(None, description="gradient norm clipped to this")

    @model_validator(mode="after")
    def _one_clip(self) -> Self:
        if self.clip_value is not None and self.clip_norm is not None:
            raise RuleError("clip_norm", "clip_value and clip_norm exclude each other; set one of them to null")
        return self


class ScheduleSpec(Part):
    """How the learning rates go along the horizon."""

    name: Literal["constant", "cosine", "step"] = Field("constant", description="cosine: to 0 at the horizon")
    step_epochs: Count = Field(10, description="step: every so many epochs")
    gamma: Annotated[float, Field(gt=0, le=1)] = Field(0.5, description="step: the factor")


class TrainSpec(Part):
    """How a trial is trained."""

    epochs: Count = Field(100, description="one horizon for all trials: learning rate and pace run against it")
    batch_size: Annotated[int, Field(ge=2)] = Field(180, description="what the loss and the top-k see")
    micro_batch: Count | Literal["auto"] = Field("auto", description="memory only: embed in chunks, loss on all, second pass")
    images_per_class: Count | None = Field(2, description="P x K batches with this K; null: plain shuffling")
    amp: Literal["none", "bf16", "fp16"] = Field("bf16", description="on devices that gain from it")
    freeze_backbone_epochs: Annotated[int, Field(ge=0)] = Field(1, description="head and proxies alone learn so long")
    optimizer: OptimizerSpec = OptimizerSpec()
    schedule: ScheduleSpec = ScheduleSpec()


class EvaluateSpec(Part):
    """How a trial is measured."""

    ks: Annotated[tuple[Count, ...], Field(min_length=1, strict=False)] | None = Field(None, description="null: its dataset's")
    every: Count = Field(1, description="evaluate after every so many epochs, and after the last")
    batch_size: Count = Field(256, description="images embedded at once; memory and speed alone")


class SplitSpec(Part):
    """Which classes a training sees and which it is measured on; not a YAML block, but set for each trial.

    kind: ``fraction`` or ``fold``: class-disjoint validation inside the training classes; ``test``: all training classes,
    measured once on the test classes after the last epoch; ``paper``: all training classes, measured on the test classes
    after every epoch (as the papers did).
    """

    kind: Literal["fraction", "fold", "test", "paper"] = "fraction"
    seed: Seed = 0
    fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    folds: Annotated[int, Field(ge=2)] = 4
    fold: Annotated[int, Field(ge=0)] = 0


class MemberSpec(Part):
    """One of several trainings whose mean is a trial's value; not a YAML block, but set for each trial."""

    split: SplitSpec
    seed: Seed

    @property
    def name(self) -> str:
        """``fold2-seed0``, or ``seed1`` where there is one split."""
        return f"fold{self.split.fold}-seed{self.seed}" if self.split.kind == "fold" else f"seed{self.seed}"


OBJECTIVES = {"val_recall_at_1": "val/recall_at_1", "val_map_at_r": "val/map_at_r"}
Objective = Literal["val_recall_at_1", "val_map_at_r"]


class TrialSpec(Part):
    """Everything one training needs.

    split: what it trains and is measured on.
    stop_epoch: end after this epoch of the same horizon (a final run's e*); None: run to the horizon.
    members: the (fold, seed) trainings that the trial's value is the mean of; the first has its own split and seed. Empty: it
        is one training.
    """

    seed: Seed = Field(0, description="initial weights, batches, augmentations: the same for every trial")
    dataset: DatasetSpec
    data: DataSpec = DataSpec()
    model: ModelSpec = ModelSpec()
    loss: LossSpec = LossSpec()
    see: SEESpec = SEESpec()
    train: TrainSpec = TrainSpec()
    evaluate: EvaluateSpec = EvaluateSpec()
    objective: Objective = Field("val_recall_at_1", description="a trial's value is that of its best epoch")
    split: SplitSpec = SplitSpec()
    stop_epoch: Count | None = None
    members: tuple[MemberSpec, ...] = ()

    @property
    def ks(self) -> tuple[int, ...]:
        """The k of Recall@k, ascending: the file's, or the dataset's own; and always 1, which decides."""
        return tuple(sorted({1, *(self.evaluate.ks or DATASETS[self.dataset.name].ks)}))

    @property
    def objective_metric(self) -> str:
        """The objective's name among an epoch's metrics: ``val/...``, or ``test/...`` where the split measures test classes."""
        name = OBJECTIVES[self.objective]
        return name.replace("val/", "test/") if self.split.kind in ("test", "paper") else name

    @property
    def last_epoch(self) -> int:
        return self.stop_epoch or self.train.epochs

    @property
    def epochs_in_all(self) -> int:
        """Epochs of all its trainings."""
        return self.last_epoch * max(1, len(self.members))

    def expands_by(self, epoch: int) -> bool:
        """Whether SEE makes any synthetic embedding in the first `epoch` epochs: if not, they are those of SEE off."""
        shares = (share_at(done, self.train.epochs, **self.see.pace.model_dump()) for done in range(epoch))
        expanded = any(expanded_count(self.train.batch_size, share) for share in shares)
        return self.see.enabled and self.see.lambda_ > 0 and expanded

    @model_validator(mode="after")
    def _expansion_fits(self) -> Self:
        if self.see.enabled and self.see.n_aug > self.model.embedding_dim - 1:
            raise RuleError(
                "see.n_aug",
                f"see.n_aug {self.see.n_aug} does not fit model.embedding_dim {self.model.embedding_dim}: "
                f"n + 1 centres of a regular simplex span n dimensions of the proxy's null space, so n_aug is at most "
                f"embedding_dim - 1 = {self.model.embedding_dim - 1}",
            )
        return self

    @model_validator(mode="after")
    def _batch_holds_a_class(self) -> Self:
        if (self.train.images_per_class or 1) > self.train.batch_size:
            raise RuleError(
                "train.images_per_class",
                f"train.images_per_class {self.train.images_per_class} does not fit into train.batch_size "
                f"{self.train.batch_size}: a batch holds so many images of each of its classes; lower it, or raise batch_size",
            )
        return self

    @model_validator(mode="after")
    def _memory_holds_a_batch(self) -> Self:
        memory = self.loss.parameters.get("memory_size")
        if memory is not None and memory < self.train.batch_size:
            raise RuleError(
                f"loss.{self.loss.name}.memory_size",
                f"loss.{self.loss.name}.memory_size {memory} is smaller than train.batch_size {self.train.batch_size}: it "
                "holds one batch at least; raise it, or lower batch_size",
            )
        return self

    @model_validator(mode="after")
    def _proxies_for_see(self) -> Self:
        if self.see.enabled and not LOSSES[self.loss.name].has_proxies:
            able = ", ".join(name for name, loss in LOSSES.items() if loss.has_proxies)
            raise RuleError(
                "loss.name",
                f"see.enabled with loss.name {self.loss.name}: SEE expands around proxies and this loss has none; "
                f"set see.enabled: false, or one of {able}",
            )
        return self


When = Annotated[dict[str, list[Any]], Field(description="active only where each named key has one of these values")]


class IntEntry(Part):
    """A range of whole numbers."""

    int_: tuple[int, int] = Field(alias="int", strict=False, description="[low, high], both included")
    log: bool = Field(False, description="uniform in the logarithm")
    step: Count = Field(1, description="distance of two neighbouring values")
    when: When = Field(default_factory=dict)


class FloatEntry(Part):
    """A range of numbers."""

    float_: tuple[float, float] = Field(alias="float", strict=False, description="[low, high], both included")
    log: bool = Field(False, description="uniform in the logarithm")
    step: Positive | None = Field(None, description="distance of two neighbouring values; null: continuous")
    when: When = Field(default_factory=dict)


class ChoiceEntry(Part):
    """One of a list."""

    choice: Annotated[list[bool | int | float | str], Field(min_length=1)] = Field(description="the values to try")
    when: When = Field(default_factory=dict)


def _entry_form(entry: Any) -> str | None:
    """Which form an entry has; None where it has none, so that one error names the forms instead of three guesses."""
    if isinstance(entry, dict):
        return next((form for form in ("int", "float", "choice") if form in entry), None)
    forms: dict[type, str] = {IntEntry: "int", FloatEntry: "float", ChoiceEntry: "choice"}
    return forms.get(type(entry))


SearchEntry = Annotated[
    Annotated[IntEntry, Tag("int")] | Annotated[FloatEntry, Tag("float")] | Annotated[ChoiceEntry, Tag("choice")],
    Discriminator(_entry_form),
]


class SamplerSpec(Part):
    """What suggests the points."""

    name: Literal["tpe", "random", "grid", "qmc", "cmaes", "gp"] = Field("tpe", description="one of Optuna's samplers")
    seed: Seed = Field(0, description="of the suggestions")


class PrunerSpec(Part):
    """What stops trials that fall behind."""

    name: Literal["asha", "median", "none"] = Field("asha", description="asha: successive halving, asynchronously")
    grace_epochs: Count | Literal["auto"] = Field("auto", description="no trial is judged before this epoch")
    reduction_factor: Annotated[int, Field(ge=2)] = Field(3, description="asha: one in so many goes on at each rung")
    force: bool = Field(False, description="accept a grace_epochs earlier than the rule's")


_RERANKED = 5


class ValidationSpec(Part):
    """The class-disjoint split inside the training classes that trials are compared on."""

    fraction: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        0.2, description="part of the training classes held out for validation; null where folds are given"
    )
    folds: Annotated[int, Field(ge=2)] | None = Field(
        None, description="in place of fraction: a trial is trained on each fold, and its value is their mean"
    )
    rerank_top: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        "auto", description="the best are run again on rerank_folds folds; 0: none; auto: 5, or none where folds are given"
    )
    rerank_folds: Annotated[int, Field(ge=2)] = Field(4, description="folds of the training classes for the re-ranking")

    @model_validator(mode="before")
    @classmethod
    def _fraction_or_folds(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        folds, fraction = values.get("folds"), values.get("fraction", 0.2)
        if folds is None and fraction is None:
            raise RuleError("fraction", "null, and folds are not given; valid: fraction: 0.2, or folds: 4")
        if folds is not None and values.get("fraction") is not None:
            raise RuleError("folds", f"fraction {fraction} and folds {folds} exclude each other; drop one, or set fraction: null")
        return {**values, "fraction": None if folds is not None else fraction}

    @property
    def reranked(self) -> int:
        """How many of the best are run again before one is chosen."""
        if self.rerank_top != "auto":
            return self.rerank_top
        return _RERANKED if self.folds is None else 0  # the same folds again would tell little


class BudgetSpec(Part):
    """When the search ends: at whichever comes first."""

    trials: Annotated[int, Field(ge=1, le=100_000)] = Field(60, description="in total; --trials extends")
    hours: Positive | None = Field(None, description="wall-clock hours of the search over all its sessions")
    device_hours: Positive | None = Field(None, description="summed hours of the trials")


class FinalSpec(Part):
    """The winner and its baseline, retrained on all training classes and tested once."""

    seeds: Annotated[int, Field(ge=1, le=1000)] = Field(5, description="training seeds of the winner and of its baseline")
    baseline: Literal["auto", "paired", "searched", "none"] = Field(
        "auto",
        description="SEE off beside the winner: paired, with the winner's other values; searched, with a search of its own; "
        "auto: searched where values outside see.* are",
    )


_FRACTION_TOLERANCE = 0.02  # 0.33 is a third


class ResourcesSpec(Part):
    """What one trial gets."""

    gpus: Annotated[float, Field(ge=0, le=1)] | Literal["auto"] = Field("auto", description="per trial: 0, 1 or 1/n")
    cpus: Count | Literal["auto"] = Field("auto", description="per trial; auto: cores shared among the trials of a node")
    max_parallel: Count | None = Field(None, description="at most so many trials at once")

    @field_validator("gpus", mode="before")
    @classmethod
    def _one_process_a_trial(cls, gpus: Any) -> Any:
        if isinstance(gpus, int | float) and not isinstance(gpus, bool) and gpus > 1:
            raise ValueError(
                f"{gpus} GPUs for one trial: a trial is one process on one GPU, and more GPUs run more trials at once; "
                "valid: auto, 0, 1, or 1/n to pack n trials on a GPU (0.5, 0.25)"
            )
        return gpus

    @field_validator("gpus")
    @classmethod
    def _whole_packs(cls, gpus: float | str) -> float | str:
        if isinstance(gpus, float) and 0 < gpus < 1 and abs(gpus * round(1 / gpus) - 1) > _FRACTION_TOLERANCE:
            below, above = 1 / math.ceil(1 / gpus), 1 / math.floor(1 / gpus)
            raise ValueError(
                f"{gpus:g} of a GPU does not divide it: n trials share a GPU as 1/n each; nearest: {below:g} or {above:g}"
            )
        return gpus


class FailureSpec(Part):
    """What happens when trials fail."""

    retries: Annotated[int, Field(ge=0)] = Field(1, description="of a trial whose worker or node was lost")
    quarantine_after: Count = Field(
        2, description="a device or node that fails so many trials in a row, while others do not, gets no more"
    )


StorageText = Annotated[str, AfterValidator(check_storage)]
TrackingText = Annotated[str, AfterValidator(check_tracking)]


class TrackingSpec(Part):
    """Where MLflow keeps the runs."""

    uri: TrackingText = Field(
        "auto", description="auto: $MLFLOW_TRACKING_URI, else local, a sqlite file in the home folder; or http(s)://host:port"
    )


def _none_is_null(value: Any) -> Any:
    return None if value == "none" else value


def _also_none(schema: dict[str, Any]) -> None:
    schema["anyOf"].append({"const": "none"})


class StudySpec(TrialSpec):
    """A YAML file: a trial's values (trial 0) and the study that varies them.

    `split`, `stop_epoch` and `members` are set by the study for each trial and refused in a file.
    """

    study: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")] = Field(
        description="lower-case letters, digits, dots, dashes and underscores, a letter or digit first, at most 64"
    )
    protocol: Literal["honest", "paper"] = Field(
        "honest", description="paper: choose on the test classes, as the papers did; never a champion"
    )
    search: dict[str, SearchEntry] = Field(min_length=1, description="what varies, by dotted name")
    start_with: list[dict[str, Any]] = Field(default_factory=list, description="points tried after trial 0")
    warm_start: list[str] = Field(
        default_factory=list, description="studies of the same home whose trials the sampler knows from the start"
    )
    sampler: SamplerSpec = SamplerSpec()
    pruner: PrunerSpec = PrunerSpec()
    validation: ValidationSpec = ValidationSpec()
    repeat: Annotated[int, Field(ge=1, le=50)] = Field(
        1, description="training seeds of each trial; its value is the mean over them"
    )
    budget: BudgetSpec = BudgetSpec()
    final: Annotated[FinalSpec | None, BeforeValidator(_none_is_null)] = Field(
        FinalSpec(), description="none: no final phase, no champion", json_schema_extra=_also_none
    )
    resources: ResourcesSpec = ResourcesSpec()
    failure: FailureSpec = FailureSpec()
    storage: StorageText = Field(
        "auto",
        description="where the trials lie; auto: $SEE_TUNE_STORAGE, else local (sqlite in the study's folder); journal (a file "
        "there that several hosts may read); or postgresql+psycopg://user@host/database",
    )
    tracking: TrackingSpec = TrackingSpec()

    @model_validator(mode="after")
    def _folds_of_training_classes(self) -> Self:
        if self.protocol == "paper" and self.validation.folds is not None:
            raise RuleError(
                "validation.folds",
                "protocol: paper measures on the test classes, which are not folded; drop folds, or set protocol: honest",
            )
        return self

    @model_validator(mode="after")
    def _baseline_has_something_to_search(self) -> Self:
        if self.final is not None and self.final.baseline == "searched" and not (self.searched_without_see and self.see.enabled):
            raise RuleError(
                "final.baseline",
                "searched: nothing outside see.* is searched on its own, so SEE off has one configuration; write paired, or auto",
            )
        return self

    @property
    def searched_without_see(self) -> dict[str, SearchEntry]:
        """What a search with SEE off varies: all but `see.*` and what is active only beside some value of it."""
        return {
            name: entry
            for name, entry in self.search.items()
            if not name.startswith("see.") and not any(key.startswith("see.") for key in entry.when)
        }

    @property
    def searches_baseline(self) -> bool:
        """Whether SEE off gets a search of its own, so that it is not compared by values that were found for SEE."""
        baseline = self.final.baseline if self.final is not None else "none"
        return self.see.enabled and (baseline == "searched" or (baseline == "auto" and bool(self.searched_without_see)))
