"""The benchmarks compare equal work, and their tables and figures come out of their results."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import __main__ as bench
from benchmarks import draw, scaling, tables
from benchmarks.contestants import RULES, player
from benchmarks.measure import Sgemm, count_flop
from benchmarks.peers import __main__ as peers
from benchmarks.workloads import WORKLOADS, Workload, naive


def small(work: Workload) -> Workload:
    """Two clients, two epochs, the last batch smaller."""
    return replace(work, clients=2, samples=6, local=replace(work.local, batch_size=4, epochs=2))


@pytest.mark.parametrize("name", WORKLOADS)
def test_naive_loop_and_engines_make_the_same_steps(name: str) -> None:
    work = small(WORKLOADS[name])
    data = work.data()
    clients = [data.client(i) for i in range(len(data))]
    model, _ = work.models()
    assert naive(work, model, clients) == work.steps == 8
    assert player(work, "Sequential", data)() == 8


@pytest.mark.parametrize("name", [name for name, work in WORKLOADS.items() if work.own])
def test_our_model_is_the_textbooks(name: str) -> None:
    work = WORKLOADS[name]
    theirs, ours = (model.double() for model in work.models())
    inputs, targets = work.sample(4)
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    gradients = []
    for model in (theirs, ours):
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        gradients.append(torch.cat([p.grad.reshape(-1) for p in model.parameters()]))
    torch.testing.assert_close(ours(inputs), theirs(inputs), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-7, atol=1e-9)


def test_operations_of_a_round_are_those_of_its_products() -> None:
    work = WORKLOADS["W4"]
    forward = 2 * 5000 * 2 * work.samples * work.clients
    assert count_flop(work) == 2 * forward  # the inputs need no gradient
    assert Sgemm(2).flop == 2 * Sgemm(1).flop


def test_every_rule_plays() -> None:
    work = small(WORKLOADS["W1"])
    data = work.data()
    assert {player(work, "Sequential", data, rule)() for rule in RULES.values()} == {8}


MADE: dict[str, Any] = {
    "date": "2026-01-01T00:00:00+00:00",
    "machine": {"cpu": "some", "cores": 2, "vectors": "AVX2", "memory GB": 8.0},
    "versions": {"python": "3", "torch": "2", "undrift": "0"},
}


def engines() -> dict[str, Any]:
    """Results as `make bench` stores them."""
    alone = {"imports": {"torch": 1.0, "undrift": 0.1}, "rounds": [1.5, 0.5], "memory MB": 300.0}
    work = {
        **MADE,
        "about": "MLP",
        "steps": 8,
        "epochs": 2,
        "gflop": 10.0,
        "must": 6,
        "aim": 8,
        "gflop/s": {"sgemm 1": [100.0], "sgemm 2": [200.0]},
        "seconds": {"naive": [2.0, 4.0, 3.0], "Sequential": [1.5], "Threads": [0.5]},
        "workers": {"Sequential": 1, "Threads": 2},
        "alone": {"Threads": alone},
    }
    rules = {**MADE, "engine": "Threads", "epochs": 5}
    rules["seconds"] = {"FedAvg": [1.0], "MimeLite": [1.3]}
    imports = {**MADE, "seconds": [{"torch": 1.0, "undrift": 0.1}]}
    return {"W1": work, "rules": rules, "imports": imports}


def scale() -> dict[str, Any]:
    """Results as `make bench-scale` stores them."""
    times = {"100": [1.0, 1.1], "1000": [1.1, 1.2]}
    ms = {"write": 1.0, "read and write": 2.0}
    row = {"rows": 100, "store ms": ms, "plain ms": ms, "memory MB": 1.0}
    one = {"rule": "FedAvg", "sampled": 10, "seconds": [1.0], "memory MB": 1.0}
    return {
        "registered": {
            **MADE,
            "seconds": {"115 steps each": times, "1 step each": times},
            "memory MB": {"100": 1.0, "1000": 2.0},
        },
        "sampled": {**MADE, "rows": [one, one | {"sampled": 100}]},
        "touched": {
            **MADE,
            "bytes in a row": 4,
            "budget": 1,
            "left out": "no room",
            "rows": [row, row | {"rows": 1000}],
        },
    }


def test_tables_show_medians_ratios_and_shares_of_the_peak() -> None:
    text = tables.engine_tables(engines())
    (row,) = (line for line in text.splitlines() if "| Threads " in line)
    cells = [cell.strip() for cell in row.split("|")[2:-1]]
    assert cells == ["Threads", "0.5", "**6.00**", "6", "8", "10", "300", "2.1"]
    assert "1.45" in text  # MimeLite's pass over the data is one more to five
    assert "no room" in tables.scale_tables(scale())


def test_check_fails_below_must(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads is 6 times as fast as the naive loop; what was stored before does not count."""
    result = engines()["W1"]
    monkeypatch.setattr(bench, "measure_engines", lambda *_: result)
    monkeypatch.setattr(bench, "measure_alone", lambda _: {})
    monkeypatch.setattr(bench, "store_results", lambda *_: None)
    monkeypatch.setattr(bench, "load_results", lambda _: {"W1": result | {"must": 99}})
    bench.main("W2", check=True)
    result["must"] = 6.5
    bench.main("W2")
    with pytest.raises(SystemExit, match=r"^W2: Threads is 6\.00 × naive, must be 6\.5$"):
        bench.main("W2", check=True)


def test_the_page_gets_tables_and_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "DOCS", tmp_path)
    naive = {"contestant": "naive loop", "seconds": 1.5, "naive": 1.5, "steps": [1150]}
    naive |= {"steps by decay": 1150.0, "startup": 2.0, "megabytes": 300.0}
    peers = {"W1": {"table": [naive]}}
    monkeypatch.setattr(draw, "PEERS", tmp_path / "peers.json")
    draw.PEERS.write_text(json.dumps(peers))
    monkeypatch.setattr(draw, "load_results", {"engines": engines(), "scale": scale()}.get)
    with pytest.raises(SystemExit, match="write the page"):
        draw.main()
    page = tmp_path / "speed.md"
    page.write_text("# Speed\n<!-- engines -->\nold\n<!-- end of engines -->\nend\n")
    with pytest.raises(SystemExit, match="<!-- scale -->"):
        draw.main()
    page.write_text(
        page.read_text()
        + "<!-- scale -->\n<!-- end of scale -->\n<!-- peers -->\n<!-- end of peers -->"
    )
    (tmp_path / "images").mkdir()
    draw.main()
    assert "old" not in page.read_text()
    assert "**6.00**" in page.read_text()
    assert "naive loop | 1.500" in page.read_text()
    assert len(list((tmp_path / "images").iterdir())) == 4
    before = page.read_text()
    draw.main()
    assert page.read_text() == before


def test_peers_that_were_not_measured_keep_their_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results.json"

    def session(pace: float, *arguments: str) -> None:
        def run(contestant: peers.Contestant, *_: object) -> dict[str, Any]:
            one = {"library": contestant.script, "version": "1", "seconds": [pace], "steps": [8]}
            return one | {"steps by decay": [8.0], "startup": 1, "shutdown": 1, "megabytes": 9}

        monkeypatch.setattr(peers, "run", run)
        monkeypatch.setattr(peers, "install", lambda *_: None)
        monkeypatch.setattr(sys, "argv", ["peers", "--out", str(out), *arguments])
        peers.main()

    session(4.0, "--work", "W1", "--only", "ours", "flower")
    session(2.0, "--work", "W2", "--only", "ours", "flower")
    session(1.0, "--work", "W1", "--only", "ours")
    found = json.loads(out.read_text())
    seconds = {
        name: [(row["contestant"].split()[0], row["seconds"], row["naive"]) for row in one["table"]]
        for name, one in found.items()
        if name in ("W1", "W2")
    }
    again, before = [("naive", 1.0, 1.0), ("ours", 1.0, 1.0)], [("flower", 4.0, 4.0)]
    assert seconds["W1"] == [*again, *before, again[0]]
    assert [row[1] for row in seconds["W2"]] == [2.0] * 4
    assert found["W1"]["runs"].keys() == found["W2"]["runs"].keys()
    assert capsys.readouterr().out.count("| flower 1, 1 thread in 2 actors | 4.000 | 1.00 |") == 2


def machines(shipping: float) -> dict[str, Any]:
    traffic = {"jobs": 8e6, "parts": 1e3, "results": 32e6, "blocks": 8}
    found = {**MADE, "clients": 10, "traffic": traffic}
    seconds = {name: [10.0] for name in ("local cpu", "driver cpu", "site cpu")}
    costs = dict.fromkeys(("round", "block", "MB there", "MB back"), shipping)
    memories = traffic | {"parts": 40e6, "results": 72e6}
    return {
        "shipping": MADE | costs,
        "W1 FedAvg": found | {"seconds": seconds},
        "W1 AdaBest": found | {"seconds": seconds, "traffic": memories},
    }


def test_the_model_of_several_machines() -> None:
    free, dear = (scaling.Round.of(machines(cost), "W1", "AdaBest") for cost in (0.0, 0.1))
    assert free.there == free.back == 4.0  # MB that a client remembers
    assert free.sums == 4.0
    for count in (2, 4, 16, 64):
        ideal = free.gain(count, 1024, 1e9)
        assert ideal == pytest.approx(count, rel=0.01) if count <= 16 else ideal <= count
        assert dear.gain(count, 1024, 1e9) < ideal
        assert free.gain(count, 10, 1e9) <= 10 / 8  # ten clients on eight cores or more
    assert free.most(10, 1e9) <= 2
    assert "W1, AdaBest | 1000" in scaling.scaling_table(machines(0.0))
    assert "100.00 ms for a block" in scaling.overhead_table(machines(0.1))
