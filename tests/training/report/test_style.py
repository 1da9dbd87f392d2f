"""How pictures look: styles that nothing shares, and names that any label may have."""

from __future__ import annotations

import typing

from hypothesis import given
from hypothesis import strategies as st

from training.config import Method
from training.report.style import exit_colours, method_styles, readable


def test_every_method_has_a_colour_and_a_marker_of_its_own() -> None:
    styles = method_styles(typing.get_args(Method))
    assert len(styles) == len(typing.get_args(Method))
    assert len({style.colour for style in styles.values()}) == len(styles)
    assert len({style.marker for style in styles.values()}) == len(styles)


def test_a_method_keeps_its_style_whoever_is_beside_it() -> None:
    alone = method_styles(["acl-cl"])["acl-cl"]
    beside = method_styles(["ce", "acl-cl", "our own", "another"])
    assert beside["acl-cl"] == alone
    assert len(set(beside.values())) == 4
    assert list(beside) == ["ce", "acl-cl", "another", "our own"]


def test_more_methods_than_styles_still_have_one_each() -> None:
    assert len(method_styles([f"method {index}" for index in range(30)])) == 30


def test_exits_go_from_dark_to_light() -> None:
    for exits in (1, 2, 12):
        shades = [int(colour[1:3], 16) + int(colour[3:5], 16) for colour in exit_colours(exits)]
        assert shades == sorted(set(shades))
        assert len(shades) == exits


@given(st.text(max_size=80))
def test_any_label_becomes_a_short_line(label: str) -> None:
    shown = readable(label)
    assert len(shown) <= 30
    assert "\n" not in shown
    assert not shown.startswith("_")


def test_long_labels_keep_both_ends_and_foreign_ones_become_boxes() -> None:
    shown = readable("card_payment_not_recognised_in_the_shop")
    assert shown == "card_payment_n…sed_in_the_shop"
    assert readable("a" * 40 + "z").endswith("z")
    assert readable("日本 $5") == "□□ $5"
