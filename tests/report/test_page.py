"""One file: complete in itself, safe whatever words the text has, never in place of something else."""

import json
import re

import pytest
from tests.report.factory import EVIL, make_explorer, make_results, write_results

from nnrs.cli.report import report
from nnrs.errors import DataError, RunError
from nnrs.experiments import store
from nnrs.experiments.findings import Findings
from nnrs.experiments.store import Result
from nnrs.grid_directory import GridDirectory
from nnrs.report.page import build_page, for_script, write_report


def data_of(page):
    """What the page's script reads."""
    return json.loads(re.search(r'<script id="data"[^>]*>(.*?)</script>', page, flags=re.DOTALL)[1])


def test_no_word_can_end_the_script_that_holds_it():
    said = {"words": [EVIL, "</SCRIPT>", "<!--", "]]>", "\u2028"]}
    text = for_script(said)
    assert "<" not in text
    assert json.loads(text) == said


def test_the_title_and_the_sentences_are_text(results):
    page = build_page(results, title="<img src=x>", commands=["nnrs grid <b>.toml"])
    markup = page.partition("<script")[0]
    assert "&lt;img src=x&gt;" in markup
    assert "<img" not in markup
    assert "nnrs grid &lt;b&gt;.toml" in page


def test_what_was_found_is_text_but_for_commands(results):
    said = "in a`<b>: go on with `nnrs train --resume`, or `nnrs report A`."
    page = build_page(results, title="Results", found=Findings(sentences=[said]))
    commands = "<code>nnrs train --resume</code>, or <code>nnrs report A</code>"
    assert f"<li>in a`&lt;b&gt;: go on with {commands}.</li>" in page


def test_it_names_no_other_host_to_fetch_from(results):
    page = build_page(results, title="Results")
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page.partition("<script")[0])
    assert "default-src 'none'" in page


def test_the_facts_say_what_was_run(results):
    page = build_page(results, title="Results")
    assert "12 runs · 4 settings × 3 seeds · ptb · lstm-2x200 · 12 epochs" in page
    one = results[0]
    page = build_page([Result({**one.record, "epochs": one.epochs[:1]})], title="Results")
    assert "1 run · 1 setting × 1 seed · ptb · lstm-2x200 · 1 epoch<" in page


def test_a_page_of_few_results_is_small(results):
    assert (
        len(build_page(results, title="Results")) < 600_000
    )  # bytes; what draws the plots has 900,000 unpacked


def test_the_same_results_give_the_same_page(results):
    first, second = (build_page(results, title="Results", explorer=make_explorer()) for _ in range(2))
    assert first == second


def test_signatures_are_kept_once_and_can_be_put_together_again(results):
    data = data_of(build_page(results, title="Results"))
    scores = {score["signature"] for result in results for score in result.scores}
    for index, group in enumerate(data["groups"]):
        for column in data["columns"]:
            head = column["head"][index] if isinstance(column["head"], list) else column["head"]
            if head is not None and not column["key"].startswith("ppl|valid"):
                for seed in group["seeds"]:
                    run = data["tails"][group["tail"]].replace("{seed}", str(seed))
                    assert data["heads"][head].replace("{run}", run) in scores


def test_results_without_scores_samples_or_trajectory_make_a_page_too():
    records = make_results(groups=2, seeds=1)
    for record in records:
        record |= {"scores": [], "samples": [], "trajectory": None, "request": None}
    data = data_of(build_page([Result(record) for record in records], title="Bare"))
    assert [column["label"] for column in data["columns"] if column["better"]] == [
        "perplexity valid",
        "perplexity test",
    ]
    assert data["prompts"] == []
    assert data["groups"][0]["evaluate"] is None


def test_a_grids_folder_gives_the_title_the_command_and_the_explorer(tmp_path):
    grid = GridDirectory(tmp_path / "grid")
    records = make_results(groups=2, seeds=1)
    cells = [{"name": record["name"], "labels": record["labels"]} for record in records]
    for record in records:
        grid.run_path(record["name"]).mkdir(parents=True)
        (grid.run_path(record["name"]) / "result.json").write_text(json.dumps(record))
    grid.write_plan({"title": "Mine", "command": "nnrs grid mine.toml --out grid", "cells": cells})
    grid.explorer_path.write_text(json.dumps(make_explorer()))
    assert write_report([grid.path], grid.report_path) == []  # no run is missing
    page = grid.report_path.read_text()
    assert "<h1>Mine</h1>" in page
    write_report([grid.path], grid.report_path, title="Ours & theirs")
    assert "<h1>Ours &amp; theirs</h1>" in grid.report_path.read_text()
    assert "nnrs grid mine.toml --out grid" in page
    assert data_of(page)["explorer"]["words"] == make_explorer()["words"]


@pytest.mark.parametrize("commands", [[], ["nnrs grid mine.toml --out grid"]])
def test_it_says_where_its_commands_are_to_be_run(results, commands):
    section = build_page(results, title="t", commands=commands).partition('<section id="repeat"')[2]
    said = "run them in the folder where these files lie, with a run directory for RUN."
    assert said in section.partition("</section>")[0]


def test_what_an_earlier_version_explored_is_made_anew(tmp_path):
    grid = GridDirectory(tmp_path)
    [record] = make_results(groups=1, seeds=1)
    grid.run_path("mle").mkdir(parents=True)
    (grid.run_path("mle") / "result.json").write_text(json.dumps(record))
    grid.write_plan({"title": "t", "command": "c", "cells": [{"name": "mle", "labels": record["labels"]}]})
    grid.explorer_path.write_text(json.dumps({**make_explorer(), "format": 1}))
    with pytest.raises(RunError, match=r"explorer\.json is of another version\. Delete it"):
        write_report([grid.path], grid.report_path)


def test_several_sources_are_one_page(tmp_path):
    records = make_results(groups=2, seeds=1)
    sources = [write_results(tmp_path / f"{n}.jsonl", [record]) for n, record in enumerate(records)]
    write_report(sources, tmp_path / "report.html")
    data = data_of((tmp_path / "report.html").read_text())
    assert [group["name"] for group in data["groups"]] == ["mle", "ss"]


def test_a_run_that_two_sources_hold_is_one_run_of_the_page(tmp_path):
    records = make_results(groups=2, seeds=2)
    sources = [write_results(tmp_path / f"{n}.jsonl", records[:n]) for n in (4, 3)]
    write_report(sources, tmp_path / "report.html")
    assert "4 runs · 2 settings × 2 seeds" in (tmp_path / "report.html").read_text()


def test_a_page_and_its_picture_read_the_results_once(tmp_path, monkeypatch):
    source = write_results(tmp_path / "results.jsonl", make_results(groups=2, seeds=1))
    read, collected = [], store._collected
    monkeypatch.setattr(store, "_collected", lambda path: read.append(path) or collected(path))
    report([source], out=tmp_path / "report.html", picture=tmp_path / "main.svg")
    assert read == [source]
    assert "ss" in (tmp_path / "main.svg").read_text()


def test_a_page_is_made_anew_but_no_other_file_is_overwritten(tmp_path):
    source = write_results(tmp_path / "results.jsonl", make_results(groups=1, seeds=1))
    out = tmp_path / "report.html"
    write_report([source], out)
    write_report([source], out)
    out.write_text("<p>my notes</p>")
    with pytest.raises(RunError, match="is not overwritten"):
        write_report([source], out)
    assert out.read_text() == "<p>my notes</p>"


def test_no_results_are_no_page(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match="no finished run"):
        write_report([tmp_path / "empty.jsonl"], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


@pytest.mark.slow  # half a minute, most of it to make up the results
def test_ten_thousand_runs_make_a_page_of_less_than_15_megabytes():
    records = make_results(groups=2000, seeds=5, epochs=40, corpora=("ptb", "wikitext-2"))
    page = build_page([Result(record) for record in records], title="Many")
    assert len(page.encode()) < 15_000_000
    assert len(data_of(page)["details"]) == 400
