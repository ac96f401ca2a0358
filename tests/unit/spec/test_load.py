from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from see_tune.data import DATASETS
from see_tune.errors import SpecError
from see_tune.spec.load import Loaded, load_study, parse_study, trial_values

SHIPPED = sorted((Path(__file__).parents[3] / "search_spaces").glob("*.yaml"))
HEAD = "study: s\ndataset: {name: cars196}\nsearch: {see.n_aug: {int: [1, 64]}}\n"


def load(text: str, *overrides: str) -> Loaded:
    return parse_study(text, "f.yaml", overrides)


def test_a_file_may_leave_out_all_but_study_dataset_and_search() -> None:
    spec = load(HEAD).spec
    assert (spec.see.lambda_, spec.train.epochs, spec.budget.trials) == (0.2, 100, 60)


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_every_shipped_file_is_valid_without_its_data_and_without_a_warning(file: Path) -> None:
    loaded = load_study(file)
    assert loaded.warnings == ()
    assert loaded.trial_zero is not None


def test_five_files_are_shipped() -> None:
    assert [file.stem for file in SHIPPED] == ["cars", "cub", "glyphs", "inshop", "sop"]


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_a_datasets_own_defaults_lie_beneath_the_file(name: str) -> None:
    spec = load(HEAD.replace("cars196", name).replace("64", "15")).spec
    for key, value in DATASETS[name].defaults.items():
        found: object = spec
        for part in key.split("."):
            found = getattr(found, part)
        assert found == value, key


def test_what_the_file_says_lies_over_the_datasets_defaults() -> None:
    spec = load(HEAD.replace("cars196", "glyphs") + "model: {embedding_dim: 80}\n").spec
    assert (spec.model.embedding_dim, spec.model.backbone) == (80, DATASETS["glyphs"].defaults["model.backbone"])


def test_a_whole_number_is_fine_for_a_float() -> None:
    assert load(HEAD + "see: {lambda: 1, pace: {start_share: 0}}\n").spec.see.lambda_ == 1.0


@pytest.mark.parametrize("none", ["none", "null", "~"])
def test_final_may_be_none(none: str) -> None:
    assert load(HEAD + f"final: {none}\n").spec.final is None


def test_hours_may_be_null() -> None:
    assert load(HEAD + "budget: {hours: null}\n").spec.budget.hours is None


def test_overrides_are_part_of_the_file() -> None:
    assert load(HEAD, "train.epochs=2", "final=none").spec.train.epochs == 2


def test_all_problems_are_told_at_once_in_the_order_of_the_file() -> None:
    text = HEAD + "train: {epochs: 0}\nsee: {n_agu: 4}\nsampler: {name: tep}\n"
    with pytest.raises(SpecError) as caught:
        load(text)
    assert [line.split(": ")[0] for line in str(caught.value).splitlines()] == ["f.yaml:4", "f.yaml:5", "f.yaml:6"]


def test_a_searched_name_is_judged_even_where_the_rest_is_wrong() -> None:
    text = "study: s\ndataset: {name: car}\nsearch: {see.n_agu: {int: [1, 64]}}\n"
    with pytest.raises(SpecError, match=r"(?s)dataset.name.*search.see.n_agu"):
        load(text)


def test_trial_zero_sees_the_studys_validation_split() -> None:
    split = trial_values(load(HEAD + "seed: 7\nvalidation: {fraction: 0.3}\n").spec).split
    assert (split.kind, split.seed, split.fraction) == ("fraction", 7, 0.3)


def test_the_papers_protocol_measures_on_the_test_classes() -> None:
    assert trial_values(load(HEAD + "protocol: paper\n").spec).split.kind == "paper"


def test_loading_a_study_imports_no_engine() -> None:
    code = (
        "import sys; from pathlib import Path; from see_tune.spec.load import load_study; "
        f"load_study(Path({str(SHIPPED[0])!r})); "
        "print([name for name in ('torch', 'timm', 'ray', 'mlflow', 'optuna', 'numpy') if name in sys.modules])"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "[]"
