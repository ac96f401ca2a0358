"""A report can be made of every study, at any time."""

from __future__ import annotations

import re
from collections.abc import Callable

import plotly.io
import pytest

from see_tune.errors import StudyError
from see_tune.holding import held
from see_tune.home import Home
from see_tune.looks import Look, count_look
from see_tune.report.document import Figure, Page
from see_tune.report.page import study_page, write_report
from see_tune.report.record import read_record
from see_tune.search.rows import row_title

Write = Callable[..., None]


def figures(page: Page) -> int:
    return sum(isinstance(block, Figure) for section in page.sections for block in section.blocks)


def titles(page: Page) -> list[str]:
    return [section.title for section in page.sections]


def markdown(name: str, home: Home) -> str:
    return write_report(name, home).markdown.read_text()


def test_finished_study_has_every_section_and_five_figures(finished_home: Home) -> None:
    page = study_page(read_record("small", finished_home))
    assert titles(page) == [
        "The study",
        "On the test classes",
        "Best configurations",
        "What mattered",
        "The search",
        "Saved by pruning",
        "Cost",
        "How to reproduce",
    ]
    assert figures(page) == 5


def test_looks_at_the_test_classes_are_counted_beside_the_answer(home: Home, write: Write, study_text: str) -> None:
    write(home, study_text.replace("trials: 14", "trials: 2"))
    assert "were looked at" not in markdown("small", home)
    for study in ("small", "other"):
        count_look(home, Look("feed", study, "final-see-t000-e1-s0", 1, 0.0))
    assert "The test classes of glyphs were looked at 2 times by 2 studies" in markdown("small", home)


def test_see_that_has_expanded_nothing_is_said_beside_what_was_chosen(home: Home, write: Write, study_text: str) -> None:
    write(home, study_text.replace("trials: 14", "trials: 2"), value=lambda spec, epoch: 1 / epoch)
    assert "SEE expands nothing by that epoch: it trained as SEE off does" in markdown("small", home)


def test_html_holds_plotly_once_and_nothing_that_loads_from_elsewhere(finished_home: Home) -> None:
    html = write_report("small", finished_home).html.read_text()
    own = re.sub(r"<script>/\*\*\n\* plotly\.js.*?</script>", "", html, flags=re.DOTALL)
    assert html.count("* plotly.js v") == 1
    assert "http://" not in own and "https://" not in own
    assert not re.search(r"<script[^>]+src=|<link[^>]+stylesheet", own)
    assert "default-src 'none'" in own


def test_every_figure_has_a_file_that_plotly_reads_and_old_ones_go(finished_home: Home) -> None:
    write_report("small", finished_home)
    (finished_home.study("small").figures / "of-an-earlier-report.json").write_text("{}")
    report = write_report("small", finished_home)
    assert sorted(file.name for file in report.figures.iterdir()) == [
        f"{name}.json" for name in ("curves", "history", "importances", "parallel-coordinates", "slices")
    ]
    assert all(len(plotly.io.read_json(file).data) > 0 for file in report.figures.iterdir())


def test_the_answer_in_five_lines_is_markdown(finished_home: Home) -> None:
    lines = write_report("small", finished_home).answer.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["- What", "- State", "- Chosen", "- Test", "- Protocol"]


def test_state_is_done_only_by_the_last_summary(finished_home: Home) -> None:
    assert "State: done. 14 of 14 trials" in markdown("small", finished_home)


def test_no_figure_offers_to_upload_its_data(finished_home: Home) -> None:
    html = write_report("small", finished_home).html.read_text()
    assert html.count('"modeBarButtonsToRemove": ["sendChartToCloud"') == html.count('<div id="f') == 5


def test_report_changes_no_byte_of_the_storage(finished_home: Home) -> None:
    storage = finished_home.study("small").optuna_db
    before = storage.read_bytes()
    write_report("small", finished_home)
    assert storage.read_bytes() == before
    assert [path.name for path in storage.parent.iterdir() if "optuna.db-" in path.name] == []


def test_study_that_was_cut_off_shows_its_rows_and_requeues_none(home: Home, write: Write) -> None:
    write(home, killed_after=11)
    record = read_record("small", home)
    assert record.state.startswith("cut off: 1 row was out; it continues with: see-tune run ")
    assert "Test: the test classes have not been met." in markdown("small", home)
    assert read_record("small", home).state == record.state


def test_study_that_a_process_holds_is_running(home: Home, write: Write) -> None:
    write(home, killed_after=11)
    with held(home.study("small")):
        assert read_record("small", home).state == "running: 1 row is out"


@pytest.mark.parametrize(
    ("killed_after", "why"),
    [(6, "no final run has completed"), (13, "no final run has completed"), (17, "its final runs have not all completed")],
)
def test_why_there_is_no_champion_is_said_of_the_final_runs_that_there_are(
    home: Home, write: Write, study_text: str, killed_after: int, why: str
) -> None:
    """Two trials and the baseline of four epochs each, then final runs of four."""
    short = study_text.replace("trials: 14", "trials: 2").replace("rerank_top: 2", "rerank_top: 0")
    write(home, short, killed_after=killed_after)
    assert f"No champion: {why}" in markdown("small", home)


def test_rows_that_were_cut_and_done_again_are_counted_once(home: Home, write: Write, study_text: str) -> None:
    three = study_text.replace("trials: 14", "trials: 3")
    write(home, three, killed_after=11, resumed=True)
    record = read_record("small", home)
    assert [row.lineage for row in record.searched] == ["t000", "t001", "t002"]
    assert record.result.trials == 3


def test_study_whose_trials_all_failed_names_the_cause_and_how_often(home: Home, write: Write, study_text: str) -> None:
    write(home, study_text.replace("trials: 14", "trials: 2"), cause="loss is nan at epoch 1, step 3. Lower <train.optimizer.lr>")
    text = markdown("small", home)
    assert "State: failed: every trial did. 2 of 2 trials: 0 complete, 0 pruned, 2 failed" in text
    assert "| loss is nan at epoch 1, step 3. Lower \\<train.optimizer.lr\\> | 3 | t000, t001, baseline |" in text
    assert "Lower &lt;train.optimizer.lr&gt;" in write_report("small", home).html.read_text()


def test_two_trials_are_too_few_for_importances_and_still_make_a_report(home: Home, write: Write, study_text: str) -> None:
    write(
        home,
        study_text.replace("trials: 14", "trials: 2").replace("seeds: 3", "seeds: 1").replace("rerank_top: 2", "rerank_top: 0"),
    )
    text = markdown("small", home)
    assert "2 complete trials: too few, or too equal, to say which value matters" in text
    assert "one seed: no interval" in text


def test_one_parameter_has_all_the_difference_to_itself(home: Home, write: Write, study_text: str) -> None:
    one = study_text.replace("  see.n_aug: {int: [1, 15], log: true}\n", "")
    one = one.replace("pruner: {name: asha, grace_epochs: 2, force: true}", "pruner: {name: none}").replace(
        "trials: 14", "trials: 4"
    )
    write(home, one)
    assert "Only see.lambda was searched" in markdown("small", home)


def test_conditional_parameters_are_shown_where_they_were_active(home: Home, write: Write, study_text: str) -> None:
    conditional = study_text.replace(
        "  see.lambda: {float: [0.0, 2.0]}\n",
        "  see.lambda: {float: [0.0, 2.0]}\n  loss.name: {choice: [nsoftmax, arcface]}\n"
        "  loss.arcface.margin: {float: [10, 30]}\n",
    ).replace("pruner: {name: asha, grace_epochs: 2, force: true}", "pruner: {name: none}")
    write(home, conditional)
    record = read_record("small", home)
    with_margin = [row for row in record.complete if "loss.arcface.margin" in row.values]
    assert 0 < len(with_margin) < len(record.complete)
    table = next(line for line in markdown("small", home).splitlines() if line.startswith("| trial |"))
    assert table == "| trial | validation R@1, % | re-ranked | best epoch | n_aug | lambda | name | margin |"


def test_study_without_a_row_yet_makes_a_report(home: Home, write: Write) -> None:
    write(home, killed_after=0)
    home.study("small").optuna_db.unlink()
    text = markdown("small", home)
    assert "State: nothing has finished yet." in text
    assert not home.study("small").optuna_db.exists()


def test_unknown_study_is_refused_with_those_there_are(finished_home: Home) -> None:
    with pytest.raises(StudyError, match=r"there is no study 'smal' in .*; studies there: .*small"):
        write_report("smal", finished_home)


def test_the_papers_cell_stands_beside_ours_and_is_said_not_to_compare(home: Home, write: Write, study_text: str) -> None:
    cars = study_text.replace("{name: glyphs, classes: 40}", "{name: cars196}\nmodel: {embedding_dim: 128}")
    write(home, cars.replace("trials: 14", "trials: 2"))
    text = markdown("small", home)
    assert "| ours: proxy_anchor + SEE | honest |" in text
    assert "| PA + SEE (same loss), Table 1 | paper | 85.2 | 91.5 | 94.8 |" in text
    assert "they are not comparable" in text


def test_a_winner_that_has_see_off_is_no_gain_of_see(home: Home, write: Write, study_text: str) -> None:
    study = study_text.replace("search:\n", "search:\n  see.enabled: {choice: [true, false]}\n")
    write(home, study, value=lambda spec, epoch: 0.5 if spec.see.enabled else 0.6 + 0.01 * epoch)
    record, text = read_record("small", home), markdown("small", home)
    assert record.result.see and record.result.off and not record.result.see.see_enabled
    assert record.result.gain is None
    assert f"The configuration that was chosen, {record.result.see.lineage}, has SEE off" in text
    titles = {row_title(row) for row in record.planned if row.plan["phase"] == "final"}
    assert titles == {f"final off {of}s{seed}" for of in ("", f"{record.result.see.lineage} ") for seed in (0, 1, 2)}


def test_a_study_that_chose_on_the_test_classes_says_so(home: Home, write: Write, study_text: str) -> None:
    write(home, study_text.replace("study: small", "study: small\nprotocol: paper").replace("trials: 14", "trials: 2"))
    text = markdown("small", home)
    assert "Protocol: paper. Chosen on the test classes, epoch by epoch" in text
    assert "test R@1, %" in text
    assert "chosen without them" not in text
