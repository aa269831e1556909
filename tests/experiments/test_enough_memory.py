"""Models that cannot fit the memory are refused in one line before they are made."""

import pytest
import torch
import typer

from nnrs.cli.grid import carry_out
from nnrs.errors import ConfigError
from nnrs.experiments import enough_memory
from nnrs.experiments import run as runs
from nnrs.experiments.enough_memory import check_memory, memory_of
from nnrs.experiments.grid import open_grid
from nnrs.experiments.outlook import look_ahead
from nnrs.experiments.plan import Plan, expand
from nnrs.experiments.prepare import Shelf, prepare
from nnrs.experiments.store import shown_config, shown_request
from nnrs.experiments.subject import Request
from nnrs.models import MODELS, TRANSLATORS, build_model
from nnrs.models.base import ModelConfig
from nnrs.run_directory import RunDirectory
from nnrs.seeding import Random, Stream
from nnrs.training.group import Group

CPU = torch.device("cpu")
LARGE = {"data": "synthetic:300", "units": 100, "layers": 2, "batch_size": 20, "bptt": 35, "epochs": 1}


def config_of(kind, **settings):
    return ModelConfig.preset(kind, "tiny", **{"units": 64, "layers": 3, **settings})


def size_of(config, vocab_size, source=None):
    model = build_model(config, vocab_size, Random(1, Stream.INITIALISATION), source)
    return sum(parameter.numel() for parameter in model.parameters())


def with_memory(monkeypatch, size):
    monkeypatch.setattr(enough_memory, "memory_of", lambda device: size)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "not tied"])
@pytest.mark.parametrize("kind", MODELS)
def test_a_model_has_no_fewer_parameters_than_are_counted_on_and_few_more(kind, tied):
    config = config_of(kind, tied=tied)
    real, least = size_of(config, 500), MODELS[kind].least_parameters(config, 500)
    assert 0.8 * real < least <= real


@pytest.mark.parametrize("kind", TRANSLATORS)
def test_nor_has_one_that_translates(kind):
    config = config_of(kind)
    assert MODELS[kind].least_parameters(config, 500) <= size_of(config, 500, source=400)


def test_what_is_needed_and_what_there_is_are_said(monkeypatch):
    # 2 layers of 8 matrices of 1,000 by 1,000, and 5,000 words of 1,000: 21 million, of 8 bytes each. Of a window of
    # 700 tokens 3.5 million logits, of 2 bytes each.
    config = ModelConfig(units=1000, layers=2, dropout=0.0)
    with_memory(monkeypatch, 175_000_000)
    check_memory(config, CPU, 5000, 700)
    with_memory(monkeypatch, 174_999_999)
    said = r"^training lstm-2x1000 takes at least 0\.2 GB of memory, and this machine has 0\.2 GB\. Use a smaller"
    with pytest.raises(ConfigError, match=said):
        check_memory(config, CPU, 5000, 700)
    with pytest.raises(ConfigError, match="and this GPU has"):
        check_memory(config, torch.device("cuda"), 5000, 700)
    check_memory(config, CPU, 5000, 699)
    with_memory(monkeypatch, 128_000_000)
    check_memory(config, CPU)  # for its layers alone
    with_memory(monkeypatch, 127_999_999)
    with pytest.raises(ConfigError):
        check_memory(config, CPU)


def test_this_machine_has_more_memory_than_a_process_that_runs_on_it():
    assert 10**8 < memory_of(CPU) < 10**15


def test_a_container_has_the_memory_that_it_may_use(tmp_path, monkeypatch):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(enough_memory, "LIMITS", (str(tmp_path / "absent"), str(limit)))
    whole = memory_of(CPU)
    for told, expected in (("123456\n", 123456), ("max\n", whole), (f"{2**63 - 4096}\n", whole)):
        limit.write_text(told)
        assert memory_of(CPU) == expected


@pytest.mark.parametrize("listed", [None, "json"], ids=["run", "dry run"])
def test_too_large_a_model_of_a_plan_is_told_before_anything_is_trained_or_written(
    tmp_path, monkeypatch, listed
):
    cells = tuple(expand({**LARGE, "method": "mle", "units": [8, 100]}))
    plan = Plan(kind="grid", title="t", command="c", cells=cells, request=Request())
    with_memory(monkeypatch, 8 * 160_000 - 1)  # 16 matrices of 100 by 100
    said = r"^mle_units-100_seed-1: training lstm-2x100 takes at least .* smaller preset, units, layers, batch_size"
    with pytest.raises(ConfigError, match=said):
        carry_out(plan, tmp_path / "out", jobs=1, device="cpu", ray=None, listed=listed)
    assert not (tmp_path / "out").exists()
    with_memory(monkeypatch, 8 * 160_000)
    with pytest.raises(typer.Exit):
        carry_out(plan, tmp_path / "out", jobs=1, device="cpu", ray=None, listed="json")


def test_a_run_that_is_done_needs_no_memory(tmp_path, monkeypatch):
    [cell] = expand({**LARGE, "method": "mle"})
    plan = Plan(kind="grid", title="t", command="c", cells=(cell,), request=Request())
    grid, _ = open_grid(plan, tmp_path / "out")
    grid.run_path(cell.name).mkdir(parents=True)
    record = {"request": shown_request(Request()), "config": shown_config(cell.config)}
    with_memory(monkeypatch, 0)
    with pytest.raises(ConfigError, match="takes at least"):
        look_ahead(plan, tmp_path / "out", [], "cpu")
    RunDirectory(grid.run_path(cell.name)).write_result(record)
    look_ahead(plan, tmp_path / "out", [], "cpu")
    monkeypatch.setattr("nnrs.experiments.outlook.matching_records", lambda *given: {cell.config: record})
    look_ahead(plan, tmp_path / "new", [tmp_path / "records.jsonl"], "cpu")  # nor one that was done elsewhere


def test_the_words_of_a_text_and_its_windows_are_counted_where_it_is_read(monkeypatch):
    [cell] = expand({**LARGE, "method": "mle"})
    words = len(prepare(cell.config, CPU, Shelf()).text.vocabulary)
    needed = 8 * (160_000 + 100 * words) + 2 * 20 * 35 * words
    with_memory(monkeypatch, needed)
    prepare(cell.config, CPU, Shelf())
    with_memory(monkeypatch, needed - 1)
    with pytest.raises(ConfigError, match="takes at least"):
        prepare(cell.config, CPU, Shelf())


def test_of_processes_that_share_a_batch_each_has_the_logits_of_its_rows_alone(tmp_path, monkeypatch):
    class Half(Group):
        size = 2

        def rows(self, batch):
            return slice(0, batch // 2)

    [cell] = expand({**LARGE, "method": "mle"})
    words = len(prepare(cell.config, CPU, Shelf()).text.vocabulary)
    needed = 8 * (160_000 + 100 * words) + 2 * 10 * 35 * words
    with_memory(monkeypatch, needed)
    runs.start(cell.config, tmp_path / "run", CPU, Half())
    runs.resume(tmp_path / "run", CPU, group=Half())
    with pytest.raises(ConfigError, match="takes at least"):
        runs.resume(tmp_path / "run", CPU)
    with_memory(monkeypatch, needed - 1)
    with pytest.raises(ConfigError, match="takes at least"):
        runs.start(cell.config, tmp_path / "other", CPU, Half())
