"""Every wrong YAML ends with exit 2 and one short message that names file, line and key, and no traceback."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from see_tune.cli.app import main
from see_tune.errors import SpecError
from see_tune.spec.load import load_study

HEAD = "study: s\ndataset: {name: cars196}\nsearch: {see.n_aug: {int: [1, 64]}}\n"
SEARCH = "study: s\ndataset: {name: cars196}\nsearch:\n"


@dataclass(frozen=True)
class Wrong:
    """A wrong YAML, and what its message must say: the place's line, the key ("" for the file itself), and a fragment."""

    name: str
    text: str
    line: int
    key: str
    says: str


def after(name: str, body: str, key: str, says: str, line: int = 4) -> Wrong:
    """Wrong from line 4 on, after a good head."""
    return Wrong(name, HEAD + body + "\n", line, key, says)


def search(name: str, entry: str, key: str, says: str, rest: str = "", line: int = 4) -> Wrong:
    """Wrong in an entry of `search`, which begins on line 4."""
    return Wrong(name, f"{SEARCH}  {entry}\n{rest}", line, f"search.{key}", says)


TABLE = [
    # What no loss or batch can be made of
    after("a temperature of 0", "loss: {nsoftmax: {temperature: 0}}", "loss.nsoftmax.temperature", "above 0"),
    after("no centers", "loss: {soft_triple: {centers_per_class: 0}}", "loss.soft_triple.centers_per_class", "at least 1"),
    after(
        "a class larger than a batch", "train: {batch_size: 90, images_per_class: 91}", "train.images_per_class", "does not fit"
    ),
    after(
        "a memory smaller than a batch",
        "loss: {name: multi_similarity_xbm, multi_similarity_xbm: {memory_size: 10}}\nsee: {enabled: false}",
        "loss.multi_similarity_xbm.memory_size",
        "smaller than train.batch_size",
    ),
    # The file as YAML
    Wrong("empty", "# nothing\n", 1, "", "empty; a study needs at least study, dataset and search"),
    Wrong("a list", "- study\n", 1, "", "`key: value` lines"),
    Wrong("a tab", "study: s\ndataset:\n\tname: cars196\n", 3, "", "a tab; indent with spaces"),
    Wrong("an open bracket", "study: s\nsearch: {see.n_aug: [1, 2}\n", 2, "", "not valid YAML"),
    Wrong("a second document", HEAD + "---\nstudy: t\n", 4, "", "one file is one study"),
    after(
        "a python tag", "see: !!python/object/apply:os.system ['true']", "", "the tag !!python/object/apply:os.system is refused"
    ),
    after("an own tag", "seed: !seed 3", "", "the tag !seed is refused"),
    after("an undefined alias", "see: *other", "", "undefined alias"),
    after("an anchor inside itself", "start_with: &a [*a]", "", "contains itself"),
    after("a duplicate block", "see: {n_aug: 4}\nsee: {n_aug: 8}", "see", "duplicate key, first given at FILE:4", line=5),
    after("a duplicate key", "see:\n  n_aug: 4\n  n_aug: 8", "see.n_aug", "duplicate key, first given at FILE:5", line=6),
    after("a number for a name", "7: 8", "", "the key 7 is no name"),
    # Keys
    Wrong("no study", "dataset: {name: cars196}\nsearch: {see.n_aug: {int: [1, 64]}}\n", 1, "study", "is missing"),
    Wrong("no search", "study: s\ndataset: {name: cars196}\n", 1, "search", "is missing"),
    Wrong("no dataset", "study: s\nsearch: {see.n_aug: {int: [1, 64]}}\n", 1, "dataset", "is missing"),
    Wrong(
        "no dataset name", "study: s\ndataset: {classes: 3}\nsearch: {see.n_aug: {int: [1, 64]}}\n", 2, "dataset.name", "missing"
    ),
    after("a misspelt key", "see: {n_agu: 4}", "see.n_agu", "unknown key; did you mean see.n_aug? valid: enabled, n_aug, lambda"),
    after("a misspelt block", "optimiser: {lr: 1}", "optimiser", "unknown key; did you mean train.optimizer?"),
    after("a key without its block", "n_aug: 4", "n_aug", "did you mean see.n_aug?"),
    after("the Python name", "see: {lambda_: 0.1}", "see.lambda_", "did you mean see.lambda?"),
    after("a key of the study's own", "stop_epoch: 3", "stop_epoch", "unknown key"),
    after("folds beside a fraction", "validation: {folds: 4, fraction: 0.2}", "validation.folds", "exclude each other; drop one"),
    after("a search with nothing to vary", "final: {baseline: searched}", "final.baseline", "write paired, or auto"),
    after("neither of them", "validation: {fraction: null}", "validation.fraction", "valid: fraction: 0.2, or folds: 4"),
    after(
        "folds of test classes",
        "validation: {folds: 4}\nprotocol: paper",
        "validation.folds",
        "which are not folded",
    ),
    after("a name with spaces", "see: {}\nstudy : s", "study", "duplicate", line=5),
    Wrong("an upper-case name", HEAD.replace("study: s", "study: Cars A"), 1, "study", "lower-case letters"),
    # Types and bounds
    after(
        "a quoted number",
        "see: {n_aug: '8'}",
        "see.n_aug",
        "found the text '8'; valid: a whole number, at least 1; remove the quotes",
    ),
    after("a quoted boolean", 'see: {enabled: "false"}', "see.enabled", "valid: true or false; remove the quotes"),
    after("yes", "see: {enabled: yes}", "see.enabled", "found the text 'yes'; valid: true or false"),
    after("off", "see: {enabled: off}", "see.enabled", "found the text 'off'; valid: true or false"),
    after("0 for false", "see: {enabled: 0}", "see.enabled", "found the number 0; valid: true or false"),
    after("true for a number", "see: {lambda: true}", "see.lambda", "found the boolean true; valid: a number, at least 0"),
    after("a float for an int", "train: {epochs: 8.0}", "train.epochs", "found the number 8.0; valid: a whole number"),
    after("a number below its bound", "see: {n_aug: 0}", "see.n_aug", "found the number 0; valid: a whole number, at least 1"),
    after("a share above 1", "see: {pace: {end_share: 1.5}}", "see.pace.end_share", "at most 1"),
    after("infinite", "see: {lambda: .inf}", "see.lambda", "found the number inf"),
    after("not a number", "see: {lambda: .nan}", "see.lambda", "found the number nan"),
    after("a list for a number", "see: {lambda: [0.1]}", "see.lambda", "found the list [0.1]"),
    after("a value for a block", "see: true", "see", "valid: a block with the keys enabled, n_aug"),
    after("an empty block", "train:\n# epochs: 3", "train", "found nothing (null); valid: a block with the keys epochs"),
    after("a misspelt loss", "loss: {name: arcfac}", "loss.name", "did you mean arcface?"),
    after("a date", "seed: 2024-06-01", "seed", "found the text '2024-06-01'"),
    after("a float among the k", "evaluate:\n  ks:\n    - 1\n    - 2.5", "evaluate.ks[1]", "a whole number, at least 1", line=7),
    Wrong("a misspelt dataset", HEAD.replace("cars196", "cars"), 2, "dataset.name", "did you mean cars196?"),
    # Rules between keys
    after(
        "n_aug above the dimension", "model: {embedding_dim: 8}\nsee:\n  n_aug: 8", "see.n_aug", "embedding_dim - 1 = 7", line=6
    ),
    after("two clips", "train:\n  optimizer:\n    clip_norm: 1", "train.optimizer.clip_norm", "exclude each other", line=6),
    after("two GPUs a trial", "resources: {gpus: 2}", "resources.gpus", "a trial is one process on one GPU"),
    after("a fraction that packs badly", "resources: {gpus: 0.4}", "resources.gpus", "nearest: 0.333333 or 0.5"),
    after("an early pruner", "pruner: {grace_epochs: 5}", "pruner.grace_epochs", "write at least 51, auto, or force: true"),
    # The search block
    Wrong(
        "a title of a named dataset",
        HEAD.replace("name: cars196", "name: cars196, title: cars"),
        2,
        "dataset.title",
        "cars196 is called cars196; a title is for folder and manifest",
    ),
    Wrong(
        "a title that is a dataset's name",
        HEAD.replace("name: cars196", "name: folder, title: sop"),
        2,
        "dataset.title",
        "sop is another dataset's name; valid: a name of your own",
    ),
    Wrong(
        "a title with a slash",
        HEAD.replace("name: cars196", "name: folder, title: my/birds"),
        2,
        "dataset.title",
        "valid: text, letters, digits, dots",
    ),
    Wrong("nothing searched", "study: s\ndataset: {name: cars196}\nsearch: {}\n", 3, "search", "is empty; valid: at least one"),
    search(
        "an unknown searched key", "see.n_agu: {int: [1, 4]}", "see.n_agu", "unknown key; did you mean see.n_aug? valid: see."
    ),
    search("a searched key without its block", "n_aug: {int: [1, 4]}", "n_aug", "did you mean see.n_aug?"),
    search("a searched string", "dataset.root: {choice: [a, b]}", "dataset.root", "cannot be searched: a study has one dataset"),
    search("a searched horizon", "train.epochs: {int: [1, 4]}", "train.epochs", "cannot be searched: one horizon"),
    search("a searched budget", "budget.trials: {int: [1, 4]}", "budget.trials", "it belongs to the study and not to a trial"),
    search("a searched block", "see.pace: {float: [0, 1]}", "see.pace", "search one of its keys: shape, start_share"),
    search(
        "a bare range", "see.n_aug: [1, 64]", "see.n_aug", "valid: {int: [low, high]}, {float: [low, high]} or {choice: [a, b]}"
    ),
    search("a misspelt form", "see.n_aug: {itn: [1, 64]}", "see.n_aug", "valid: {int: [low, high]}"),
    search("two forms", "see.n_aug: {int: [1, 64], choice: [1]}", "see.n_aug.choice", "does not go with what stands beside it"),
    search("three ends", "see.n_aug: {int: [1, 2, 3]}", "see.n_aug.int", "found the list [1, 2, 3]; valid: [low, high]"),
    search(
        "a misspelt option", "see.n_aug:\n    int: [1, 4]\n    lgo: true", "see.n_aug.lgo", "unknown key; did you mean", line=6
    ),
    search("low above high", "see.n_aug:\n    int: [64, 1]", "see.n_aug", "low 64 is above high 1; write {int: [1, 64]}", line=5),
    search("low equal to high", "see.n_aug: {int: [8, 8]}", "see.n_aug", "nothing varies; set see.n_aug: 8"),
    search("one choice", "see.gradient: {choice: [all]}", "see.gradient", "nothing varies"),
    search("log from 0", "see.lambda: {float: [0, 1], log: true}", "see.lambda", "a log range needs a low above 0"),
    search("log with step", "see.lambda: {float: [0.5, 1], log: true, step: 0.1}", "see.lambda", "exclude each other"),
    search("a step that does not fit", "see.n_aug: {int: [1, 8], step: 3}", "see.n_aug", "do not reach 8; end at 7 or 10"),
    search("a float range for an int", "see.n_aug: {float: [1, 8]}", "see.n_aug", "write {int: [low, high]} instead of float"),
    search("a range for a choice", "see.gradient: {int: [0, 1]}", "see.gradient", "write {choice: [...]} instead of int"),
    search("floats in an int range", "see.n_aug: {int: [1.5, 8]}", "see.n_aug.int[0]", "found the number 1.5"),
    search("n_aug beyond the dimension", "see.n_aug: {int: [1, 128]}", "see.n_aug", "may not reach 128"),
    search("a range beyond its bounds", "see.pace.end_share: {float: [0, 1.5]}", "see.pace.end_share", "may not reach 1.5"),
    search("an impossible choice", "see.gradient: {choice: [all, none]}", "see.gradient", "valid: one of proxies, all"),
    search("a choice twice", "see.n_aug: {choice: [4, 8, 4]}", "see.n_aug", "the choice 4 is there twice"),
    search("an unknown condition", "see.n_aug: {int: [1, 8], when: {loss: [arcface]}}", "see.n_aug.when", "unknown key loss"),
    search(
        "an impossible condition",
        "see.n_aug: {int: [1, 8], when: {loss.name: [arc]}}",
        "see.n_aug.when",
        "loss.name cannot be 'arc'",
    ),
    search("an empty condition", "see.n_aug: {int: [1, 8], when: {loss.name: []}}", "see.n_aug.when", "lists no value"),
    search(
        "a circle of conditions",
        "see.gradient: {choice: [all, proxies], when: {see.n_aug: [4]}}\n  see.n_aug: {int: [1, 8], when: {see.gradient: [all]}}",
        "see.n_aug.when",
        "see.gradient -> see.n_aug -> see.gradient",
        line=5,
    ),
    Wrong(
        "nothing but SEE searched, and SEE off",
        SEARCH + "  see.n_aug: {int: [1, 8]}\nsee: {enabled: false}\n",
        3,
        "search",
        "nothing is left to search, as none of see.n_aug can ever be active: see.enabled is False and not True",
    ),
    # The first points
    after("trial 0 out of range", "see: {n_aug: 100}", "see.n_aug", "100 lies outside what `search` varies, 1..64"),
    after("a first point out of range", "start_with: [{see.n_aug: 65}]", "start_with[0].see.n_aug", "varies, 1..64"),
    after(
        "a first point misspelt", "start_with:\n- see: {n_agu: 4}", "start_with[0].see.n_agu", "did you mean see.n_aug?", line=5
    ),
    after("a first point that is not searched", "start_with: [{see.lambda: 1}]", "start_with[0].see.lambda", "is not searched"),
    after(
        "a first point stated twice", "start_with: [{see: {n_aug: 4}, see.n_aug: 5}]", "start_with[0].see.n_aug", "stated twice"
    ),
    after("an empty first point", "start_with: [{}]", "start_with[0]", "names no value"),
    after("a first point that is no block", "start_with: [8]", "start_with[0]", "found the number 8; valid: a block of keys"),
    # The sampler
    search(
        "a grid without steps", "see.lambda: {float: [0.1, 1]}", "see.lambda", "a grid needs steps", "sampler: {name: grid}\n"
    ),
    Wrong(
        "a grid of conditions",
        SEARCH + "  see.enabled: {choice: [true, false]}\n  see.n_aug: {int: [1, 64]}\nsampler:\n  name: grid\n",
        7,
        "sampler.name",
        "grid cannot vary what is active only sometimes: see.n_aug",
    ),
]


def place(wrong: Wrong, file: Path) -> str:
    return f"{file}:{wrong.line}: {wrong.key}:" if wrong.key else f"{file}:{wrong.line}:"


@pytest.fixture(params=TABLE, ids=lambda wrong: wrong.name)
def wrong(request: pytest.FixtureRequest) -> Wrong:
    case: Wrong = request.param
    return case


def test_a_wrong_file_is_a_spec_error_with_line_key_and_advice(wrong: Wrong, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(wrong.text)
    with pytest.raises(SpecError) as caught:
        load_study(file)
    told = [line for line in str(caught.value).splitlines() if line.startswith(place(wrong, file))]
    assert told, caught.value
    assert wrong.says.replace("FILE", str(file)) in told[0]


def test_a_wrong_file_exits_with_2_and_without_a_traceback(
    wrong: Wrong, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(wrong.text)
    assert main(["validate", str(file)]) == 2
    output = capsys.readouterr()
    assert place(wrong, file) in output.err
    assert "Traceback" not in output.err
    assert output.out == ""


def test_a_wrong_item_is_no_empty_list(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(HEAD + "evaluate: {ks: [0]}\n")
    with pytest.raises(SpecError) as caught:
        load_study(file)
    assert str(caught.value) == f"{file}:4: evaluate.ks[0]: found the number 0; valid: a whole number, at least 1"


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ("see.n_aug", "must be KEY=VALUE"),
        ("see.n_agu=4", "did you mean see.n_aug?"),
        ("see.n_aug='4'", "found the text '4'"),
        ("see.n_aug=[4", "not valid YAML"),
        ("seed.x=4", "seed is 1 and no block of keys"),
        ("see.n_aug=100", "outside what `search` varies"),
        ("search.see.n_aug={int: [1, 640]}", "may not reach 640"),
    ],
)
def test_a_wrong_override_names_itself_and_exits_with_2(
    assignment: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "good.yaml"
    file.write_text(HEAD + "seed: 1\n")
    assert main(["validate", str(file), "--set", assignment]) == 2
    error = capsys.readouterr().err
    assert f"--set {assignment}" in error
    assert says in error


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "no such file"), (b"study: \xff\xfe", "not UTF-8"), (b"study: s\x00", "not valid YAML")],
    ids=["absent", "not UTF-8", "a null byte"],
)
def test_a_file_that_is_no_text_exits_with_2(
    content: bytes | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "study.yaml"
    if content is not None:
        file.write_bytes(content)
    assert main(["validate", str(file)]) == 2
    error = capsys.readouterr().err
    assert str(file) in error
    assert says in error


def test_a_folder_in_place_of_a_file_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(tmp_path)]) == 2
    assert "a directory; name a YAML file" in capsys.readouterr().err
