"""Items: what is printed in the papers, settings that work, and errors by line."""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from undrift.cli.app import main
from undrift.config import UndriftError
from undrift.experiment.experiment import Experiment
from undrift.papers import FOLDER, FULL, SMOKE, budget
from undrift.papers.budget import data_facts, trial_budget
from undrift.papers.catalogue import item, items, read_item
from undrift.papers.item import TINY, Item
from undrift.papers.judging import Book
from undrift.papers.layers import matches
from undrift.papers.results import Runs, collect, current, read_results
from undrift.papers.running import jobs
from undrift.papers.tables import price
from undrift.runs.runner import run

ALL = {one.id: one for one in items("*")}
RUN = [one for one in ALL.values() if one.kind == "experiment"]

INVENTORY = {
    "adabest": {
        "figure": {1, 2, 3, 4, 5, 6, 7},
        "table": {1, 2, 3, 4, 5},
        "others": {"algorithm2", "poster", "traffic"},
    },
    "fedgbo": {"figure": {1, 2}, "table": {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, "others": set()},
    "fedglad": {"figure": {*range(1, 12)}, "table": {*range(1, 20)}, "others": set()},
}


def test_every_table_and_figure_is_there() -> None:
    for paper, kinds in INVENTORY.items():
        wanted = {f"{kind}{n}" for kind in ("figure", "table") for n in kinds[kind]}
        assert {one.name for one in items(paper)} == wanted | kinds["others"]


def printed(one: Item) -> int:
    """Values of the paper's own settings."""
    ours = {cell.id for cell in one.cells() if cell.ours} if one.kind == "experiment" else set()
    return sum(len(row) for id, row in one.printed.items() if id not in ours)


def test_all_printed_values_are_there() -> None:
    counts = {id: printed(one) for id, one in ALL.items() if one.printed}
    assert counts == {
        "adabest/table2": 108,
        "adabest/table4": 4,
        "adabest/table5": 4,
        "adabest/traffic": 4,
        "fedgbo/table2": 20,
        "fedgbo/table4": 40,
        "fedgbo/table9": 6,
        "fedgbo/table10": 40,
        "fedglad/figure5": 1,
        "fedglad/table1": 32,
        "fedglad/table2": 24,
        "fedglad/table3": 16,
        "fedglad/table4": 12,
        "fedglad/table6": 4,
        "fedglad/table7": 32,
        "fedglad/table8": 12,
        "fedglad/table9": 10,
        "fedglad/table10": 16,
        "fedglad/table11": 8,
        "fedglad/table12": 4,
        "fedglad/table13": 48,
        "fedglad/table14": 48,
    }


@pytest.mark.parametrize(("seeds", "means"), [("table13", "table1"), ("table14", "table7")])
def test_the_values_of_seeds_give_the_printed_means(seeds: str, means: str) -> None:
    """FedGLAD's Tables 13 and 14 against 1 and 7: a slip of the pen in either would show."""
    each, table = item(f"fedglad/{seeds}").printed, item(f"fedglad/{means}").printed
    for data in ("cifar-10", "mnist", "20news", "agnews"):
        for row in each[f"{data},seed1"]:
            three = [each[f"{data},seed{n}"][row] for n in (1, 2, 3)]
            mean, sd = table[data][row]
            assert np.mean(three) == pytest.approx(mean, abs=0.0051)
            assert np.std(three, ddof=1) == pytest.approx(sd, abs=0.011)


def test_fedgbos_104_settings() -> None:
    cells = [cell for n in (1, 2) for cell in item(f"fedgbo/figure{n}").cells()]
    own = [cell for cell in cells if not cell.ours]
    printed = [row for cell in own for row in cell.rows if not row.ours]
    assert len(printed) == 104
    assert Counter(row.experiment.local.steps for row in printed) == {10: 52, 50: 52}
    rows = {(cell.id, row.label): row for cell in own[4:] for row in cell.rows}
    chosen = rows["sent140", "AdaptiveFedOpt SGDm"]
    assert chosen.experiment.local.lr == 10
    assert repr(chosen.algorithms[0]) == (
        "ServerOpt(FedAvg(weights='uniform'), SGDm(lr=10.0, beta=0.99))"
    )


@pytest.mark.parametrize("one", RUN, ids=lambda one: one.id)
def test_every_cell_at_every_scale_has_a_budget(one: Item) -> None:
    for scale in (FULL, SMOKE, *one.scales):
        for cell in one.cells(scale):
            assert cell.rows
            assert repr(cell.rows[0].experiment.data) in data_facts()
    assert {name for claim in one.claims for name in claim.rows} <= {
        row.label for cell in one.cells() for row in cell.rows
    }
    assert all(claim.other in ("", *one.ids) for claim in one.claims)


def test_a_budget_counts_the_papers_steps() -> None:
    """SPEC 8: 50 steps per round on 436 letters, 55 on 454 images."""
    for data, steps in ("emnist-l", 50), ("cifar100", 55):
        (cell,) = item("adabest/table2").cells(pattern=f"{data},cp=1%,iid")
        row = cell.rows[0]
        assert trial_budget(row.experiment, row.algorithms[0]).steps == 1000 * steps


def test_what_is_left_to_run_has_a_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the rates of all results, whichever item is asked for; else there is a reason."""
    pytest.importorskip("transformers")
    book = Book.read()
    assert Book.read("adabest/figure7").rates == book.rates
    assert [one.item.id for one in book.outcomes if one.hours(book.rates) is None] == []
    monkeypatch.setitem(sys.modules, "transformers", None)
    budget._model.cache_clear()
    (outcome,) = Book.read("fedglad/table6").outcomes
    says = "12 trials, time unknown (DistilBERT needs transformers, which is not installed)"
    assert price(outcome, book.rates) == says


def test_what_is_done_is_counted_at_its_scale(capsys: pytest.CaptureFixture[str]) -> None:
    table = item("fedglad/table1")
    kept = list(current(table, read_results(table, FOLDER)))
    for scale in FULL, "mlp":
        (cell,) = table.cells(scale, pattern="mnist")
        trials = {row.trial(made, seed) for row, made, seed in cell.trials()}
        done = trials & {one.trial for one in kept if one.scale == scale}
        main(["paper", "show", "fedglad/table1", "--cells", "mnist", "--scale", scale])
        (line,) = re.findall(r"^mnist +11 +33 .*(?:h|minutes)(.*)$", capsys.readouterr().out, re.M)
        assert line.split() == ([str(len(done))] if done else [])


@pytest.mark.parametrize(
    ("file", "id", "cell"),
    [
        ("adabest-emnist", "adabest/table2", "emnist-l,cp=10%,alpha=0.3"),
        ("fedglad-mnist", "fedglad/table1", "mnist"),
    ],
)
def test_the_examples_are_cells_of_the_papers(file: str, id: str, cell: str) -> None:
    example = Experiment.from_toml(Path(__file__).parents[2] / "examples" / f"{file}.toml")
    (same,) = item(id).cells(pattern=cell)
    trials = {row.trial(made, 0) for row, made, _ in same.trials()}
    for made in example.algorithms:
        assert replace(example, algorithms=(made,), seeds=(0,), target=None).hash in trials


def test_every_item_runs(tmp_path: Path) -> None:
    """Two rounds on digits, of the first cell of each item; trials that items share run once."""
    runs = Runs(tmp_path)
    for one in RUN:
        cell = one.cells(SMOKE)[0]
        for job in jobs(one, cell, SMOKE, runs):
            for _ in run(job.experiment, job.folder, engine="sequential"):
                pass
            runs.look(job.folder)
        results, machines = collect(one, [cell], SMOKE, runs)
        assert len(results) == len(list(cell.trials()))
        assert machines
        assert not any(result.failure for result in results)
        late = {
            name for name, made in one.measures.items() if re.search(r"At|Growth|Fall", repr(made))
        }
        assert all(
            one.measures.keys() - late <= result.values.keys() | {"correlation"}
            for result in results
        )


GOOD = """source = "Table 1"
claim = "It works."
kind = "experiment"
claims = ["A > B"]

[measures]
accuracy = "Last('accuracy')"

[experiment]
data = "digits"
model = "mlp"
partition = "IID(clients={n})"
sampler = "Uniform(2)"

[experiment.local]
lr = 0.1

[let]
n = 10

[rows]
A = "fedavg"
B = "FedProx(mu=0.1)"
"""


def reads(tmp_path: Path, text: str) -> Item:
    (tmp_path / "table1.toml").write_text(text, encoding="utf-8")
    return read_item(tmp_path / "table1.toml")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('kind = "experiment"', 'kind = "run"', "line 3: no kind is called 'run'"),
        ('claims = ["A > B"]', 'claims = ["A > C"]', "line 4: no row is called 'C'"),
        ('claims = ["A > B"]', 'claims = ["A"]', "line 4: 'A' is not a test"),
        ("Last('accuracy')", "Last('accurracy')", "line 7: no quantity is called 'accurracy'; did"),
        ("clients={n}", "clients={m}", "no name in let is called 'm'; known: n"),
        ("clients={n}", "clents={n}", "line 12: "),
        ('A = "fedavg"', 'A = "fedavgg"', "line 22: no algorithm is called 'fedavgg'"),
        ('A = "fedavg"', "A = { algorithms = 3 }", "line 22: no part of a row is called"),
        (
            'sampler = "Uniform(2)"',
            'smapler = "Uniform(2)"',
            "line 13: no setting is called 'smapler'",
        ),
        ("lr = 0.1", "lrr = 0.1", "line 16: no setting of local is called 'lrr'"),
        ("[let]", "[axes.n.few]\nrouns = 3\n[let]", "line 19: no setting is called 'rouns'"),
        ("[let]", "[axes.n]\nfew = 3\n[let]", "line 19: give a table of settings"),
        ("[measures]", "seeds = 'x'\n[measures]", "line 6: seeds must be a int"),
        ("[measures]", "[measures]\nx = 3", "line 7: 3 is not a measure"),
        ("[let]", "[lett]", "line 18: no setting is called 'lett'"),
        ("[rows]", "[printed]\nall = { C = 3 }\n\n[rows]", "line 22: no row is called 'C'"),
        (
            'claim = "It works."',
            'claim = "It works."\ntable = "x"',
            "line 3: table is for the kind",
        ),
    ],
)
def test_errors_begin_with_the_line(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert reads(tmp_path, GOOD).ids == ["all"]
    assert old in GOOD
    with pytest.raises(UndriftError, match=re.escape(says)) as error:
        reads(tmp_path, GOOD.replace(old, new))
    assert str(error.value).startswith(str(tmp_path / "table1.toml"))


def test_like_takes_over_and_merges(tmp_path: Path) -> None:
    reads(tmp_path, GOOD)
    other = tmp_path / "table2.toml"
    other.write_text(
        'like = "table1"\nsource = "Table 2"\nclaim = "Same."\nkind = "experiment"\n'
        'only_rows = ["A"]\n[let]\nn = 20\n[axes.n.more]\nlet.n = 30\n[axes.n.few]\nrounds = 3\n',
        encoding="utf-8",
    )
    more, few = read_item(other).cells(seeds=2)
    assert [row.label for row in more.rows] == ["A"]
    assert repr(more.rows[0].experiment.partition) == "IID(clients=30)"
    assert repr(few.rows[0].experiment.partition) == "IID(clients=20)"
    assert few.rows[0].experiment.rounds == 3
    assert few.rows[0].experiment.seeds == (0, 1)
    other.write_text(
        'like = "table9"\nsource = ""\nclaim = ""\nkind = "experiment"\n', encoding="utf-8"
    )
    with pytest.raises(UndriftError, match=r"line 1: there is no table9\.toml beside it"):
        read_item(other)


def test_patterns_fit_parts_of_ids() -> None:
    assert matches("emnist-l,cp=10%,iid", "cp=10%")
    assert matches("emnist-l,cp=10%,iid", "iid, emnist-*")
    assert not matches("emnist-l,cp=10%,iid", "cp=1%")
    assert matches("all", "")


def test_unknown_items_and_scales_are_told() -> None:
    with pytest.raises(
        UndriftError, match="no item is called 'adabest/tabel2'; did you mean 'adabest/table2'"
    ):
        list(items("adabest/tabel2"))
    with pytest.raises(UndriftError, match="no scale is called 'tiny'"):
        item("adabest/table2").cells("tiny")


def test_the_smoke_scale_keeps_nothing_of_the_data() -> None:
    assert {repr(row.experiment.data) for one in RUN for row in one.cells(SMOKE)[0].rows} == {
        "Digits()"
    }
    assert TINY["rounds"] == 2


def test_files_are_in_the_package() -> None:
    assert (FOLDER / "data.toml").is_file()
