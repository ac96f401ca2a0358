"""A sheet shows every picture in its place and frame."""

from __future__ import annotations

from PIL import Image

from see_tune.serving.sheet import QUERY, RIGHT, WRONG, Tile, draw_sheet


def test_pictures_stand_in_their_lines_inside_their_frames() -> None:
    blue, grey = Image.new("RGB", (30, 60), "blue"), Image.new("L", (60, 30), 128)
    sheet = draw_sheet([[Tile(blue, QUERY), Tile(grey, RIGHT), Tile(grey, WRONG)], [Tile(blue), Tile(grey)]], side=40)
    assert sheet.getpixel((6 + 20, 6 + 20)) == (0, 0, 255)
    assert sheet.getpixel((6, 6)) == (0x1D, 0x27, 0x33)
    assert sheet.getpixel((6 + 46 + 14, 6)) == (0x2E, 0x8B, 0x57)
    assert sheet.getpixel((6 + 2 * 46 + 14, 6)) == (0xC0, 0x39, 0x2B)
    assert sheet.getpixel((6 + 2 * 46 + 14 + 20, 6 + 46 + 20)) == (255, 255, 255)


def test_a_sheet_of_nothing_is_a_picture_too() -> None:
    assert draw_sheet([]).size[1] > 0
