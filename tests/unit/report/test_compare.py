"""Tables of several studies, and what is said where they do not compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from see_tune.errors import StudyError
from see_tune.home import Home
from see_tune.report.compare import compare_studies
from see_tune.report.document import Table
from see_tune.report.record import read_record


@pytest.fixture(scope="module")
def two(finished_home: Home) -> Home:
    """A second, unfinished study of another dimension beside the finished one."""
    from see_tune.spec.load import dump_study, parse_study

    frozen = finished_home.study("small").spec_file.read_text()
    loaded = parse_study(frozen, "study.yaml", ["study=other_one", "model.embedding_dim=32"])
    finished_home.study("other_one").make().spec_file.write_text(dump_study(loaded.spec))
    return finished_home


def test_cells_are_mean_and_standard_deviation_over_seeds_with_the_interval_beside(finished_home: Home) -> None:
    arm = read_record("small", finished_home).result.see
    assert arm is not None
    values = arm.test["test/recall_at_1"]
    row = compare_studies(["small"], finished_home).table.rows[0]
    assert row[4] == f"{100 * np.mean(values):.1f} ± {100 * np.std(values, ddof=1):.1f}"
    low, high = arm.test_mean["test/recall_at_1"].low, arm.test_mean["test/recall_at_1"].high
    assert low is not None and high is not None
    assert row[5] == f"[{100 * low:.1f}, {100 * high:.1f}]"


def test_rows_are_as_wide_as_the_header(two: Home) -> None:
    table = compare_studies(["small", "other_one"], two).table
    assert {len(row) for row in table.rows} == {len(table.header)}
    assert [row[1] for row in table.rows] == ["SEE", "SEE off", "gain over seeds", "no answer yet"]


def test_what_differs_is_said(two: Home) -> None:
    warnings = compare_studies(["small", "other_one"], two).warnings
    assert "dimension differs: small 16, other_one 32; the numbers do not mean the same." in warnings
    assert not any(warning.startswith(("protocol", "backbone")) for warning in warnings)
    assert compare_studies(["small"], two).warnings == ()


def test_latex_escapes_names_and_closes_its_table(two: Home) -> None:
    latex = compare_studies(["small", "other_one"], two).latex()
    assert r"other\_one & no answer yet" in latex
    assert r" $\pm$ " in latex
    body = latex.partition(r"\midrule")[2].partition(r"\bottomrule")[0].strip().splitlines()
    assert {line.count(" & ") for line in body if line != r"\addlinespace"} == {
        len(compare_studies(["small"], two).table.header) - 1
    }
    assert all(line.startswith("%") for line in latex.splitlines()[:2])


def test_latex_names_a_study_once_and_sets_a_minus_as_one(finished_home: Home) -> None:
    comparison = compare_studies(["small"], finished_home)
    table = Table(
        comparison.table.header, [*comparison.table.rows, ["other", "gain over seeds", "-0.3", "[-0.5, +0.1] a-b", "t-1"]]
    )
    lines = replace(comparison, table=table).latex().partition(r"\midrule")[2].strip().splitlines()
    assert [line.partition(" & ")[0] for line in lines[:5]] == ["small", "", "", r"\addlinespace", "other"]
    assert lines[4] == r"other & gain over seeds & $-$0.3 & [$-$0.5, +0.1] a-b & t-1 \\"


def test_files_are_written_where_asked(two: Home, tmp_path_factory: pytest.TempPathFactory) -> None:
    out = tmp_path_factory.mktemp("out") / "new"
    written = compare_studies(["small", "other_one"], two).write(out)
    assert [file.name for file in written] == ["compare.md", "compare.tex", "compare.html"]
    assert "* plotly.js v" in written[2].read_text()


def test_a_study_that_is_not_there_is_named(finished_home: Home, write: Callable[..., None]) -> None:
    with pytest.raises(StudyError, match="no study 'absent'"):
        compare_studies(["small", "absent"], finished_home)
