"""The paper's cells, spot-checked, and found by our names."""

from __future__ import annotations

import timm

from see_tune.losses import LOSSES
from see_tune.report.paper import _BACKBONES, PAPER_ROWS, paper_rows, paper_size


def test_cars_with_deit_128_and_see_is_the_extended_abstracts() -> None:
    (row,) = [row for row in paper_rows("cars196", "deit_small_distilled_patch16_224", 128) if row.see]
    assert (row.method, row.loss, row.recalls) == ("PA + SEE", "proxy_anchor", {1: 85.2, 2: 91.5, 4: 94.8})


def test_table_2_stands_where_both_tables_have_a_method() -> None:
    found = {row.method: row for row in paper_rows("cars196", "resnet50", 512)}
    assert found["PA + SEE"].table == 2
    assert found["PA + SEE"].recalls[16] == 98.8
    assert found["Hyp"].table == 1


def test_what_the_paper_does_not_give_is_left_out() -> None:
    assert not [row for row in PAPER_ROWS if row.method == "SoftTriple" and row.dataset == "inshop"]
    (nsoftmax,) = [row for row in PAPER_ROWS if (row.table, row.method) == (2, "NSoftmax")]
    assert 16 not in nsoftmax.recalls


def test_recalls_grow_with_k_in_every_row() -> None:
    for row in PAPER_ROWS:
        assert list(row.recalls.values()) == sorted(row.recalls.values()), row


def test_backbones_are_timms_and_losses_ours() -> None:
    known = set(timm.list_models()) | set(timm.list_pretrained())
    assert {name for names in _BACKBONES.values() for name in names} <= known
    assert {row.loss for row in PAPER_ROWS} - {None} <= set(LOSSES)


def test_other_backbones_have_no_cell() -> None:
    assert paper_size("glyphnet", 16) is None
    assert paper_rows("glyphs", "glyphnet", 16) == []
