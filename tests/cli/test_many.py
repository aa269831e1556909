"""Commands that train many runs, on a machine that lacks a part: said before anything is trained."""

import pytest

from nnrs.cli import many
from nnrs.errors import ConfigError


def without(monkeypatch, *modules):
    monkeypatch.setattr(many, "find_spec", lambda name: None if name in modules else object())


def test_without_scipy_nothing_is_begun(monkeypatch):
    without(monkeypatch, "scipy")
    with pytest.raises(ConfigError, match="need scipy: pip install"):
        many.check_means()


def test_without_the_means_to_draw_the_runs_are_made_and_the_page_is_left_to_another_machine(
    monkeypatch, capsys, tmp_path
):
    without(monkeypatch, "vl_convert")
    many.check_means()
    assert "there will be no page" in capsys.readouterr().err
    assert many.write_page(tmp_path) is None
    assert f"nnrs report {tmp_path}" in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


def test_where_the_drawing_is_the_point_it_is_needed(monkeypatch):
    without(monkeypatch, "vl_convert")
    with pytest.raises(ConfigError, match="need vl-convert-python: "):
        many.check_means(drawing=True)


def test_where_nothing_is_missing_nothing_is_said(capsys):
    many.check_means(drawing=True)
    assert capsys.readouterr().err == ""
