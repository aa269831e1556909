"""A real Ray cluster of two nodes, one of which is killed: the folder ends as that of a single machine."""

import json
import sys
from importlib.util import find_spec

import pytest
import typer

from nnrs.cli.grid import carry_out
from nnrs.errors import ConfigError, RunError
from nnrs.experiments import on_ray
from nnrs.experiments.grid import run_grid
from nnrs.experiments.plan import Plan, expand
from nnrs.experiments.subject import Request

needs_ray = pytest.mark.skipif(not find_spec("ray"), reason="Ray is not installed (pip install 'nnrs[ray]')")


@pytest.fixture
def plan(tmp_path):
    text = tmp_path / "text.txt"
    rows = [" ".join(f"w{(row * 3 + step * step) % 90}" for step in range(9)) for row in range(1500)]
    text.write_text("\n".join(rows) + "\n")
    sizes = {"units": 16, "layers": 1, "learning_rate": 2.0, "epochs": 6, "batch_size": 4, "bptt": 10}
    runs = [{"method": "mle"}, {"method": "ss-nnrs", "k": 2}]
    cells = tuple(expand({"data": str(text), "seeds": "1-3", "runs": runs, **sizes}))
    return Plan(kind="grid", title="t", command="c", cells=cells, request=Request())


def results_of(out):
    found = {path.parent.name: json.loads(path.read_text()) for path in out.glob("runs/*/result.json")}
    return {
        name: {key: part for key, part in record.items() if key != "timing"} for name, record in found.items()
    }


def test_a_cluster_may_have_a_device_that_this_machine_lacks(plan, tmp_path):
    with pytest.raises(typer.Exit) as ended:
        carry_out(plan, tmp_path / "out", jobs=None, device="cuda:77", ray="auto", listed="json")
    assert ended.value.exit_code == 0


def test_without_ray_the_option_says_what_to_install(plan, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'nnrs\[ray\]'"):
        on_ray.run_on_ray(plan, tmp_path / "out", address="auto")
    assert not (tmp_path / "out").exists()


@needs_ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
@pytest.mark.parametrize("address", ["auto", "127.0.0.1:1"])
def test_a_cluster_that_is_not_there_is_named_in_one_line(address, plan, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))  # where a cluster of this machine would be found
    with pytest.raises(RunError) as error:
        on_ray.run_on_ray(plan, tmp_path / "out", address=address)
    assert f"no Ray cluster answers at '{address}'" in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


@needs_ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_two_nodes_one_of_them_killed_end_as_a_single_machine(plan, tmp_path, monkeypatch):
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    outcome = run_grid(plan, tmp_path / "single", jobs=2, device="cpu")
    assert outcome.done == 6
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        doomed = cluster.add_node(num_cpus=1)
        killed = []

        def watch(progress):
            if progress.epochs >= 4 and not killed:
                killed.append(progress)
                cluster.remove_node(doomed, allow_graceful=False)

        ended = on_ray.run_on_ray(
            plan, tmp_path / "cluster", address=cluster.address, device="cpu", watch=watch
        )
    finally:
        cluster.shutdown()
    assert killed[0].done < 6  # it died while there was work
    assert (ended.done, ended.failed, ended.remaining) == (6, {}, 0)
    assert results_of(tmp_path / "cluster") == results_of(tmp_path / "single")
