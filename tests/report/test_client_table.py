"""The table of single clients: who is in it, and what is averaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.directory import A, B, make_run, page_of
from undrift.report import clients as module
from undrift.report import merge, read_run
from undrift.report.clients import ClientTable, client_tables

HEADS = "algorithm,seed,client,name,samples,measured_on,loss,accuracy,personal_loss"


def write_clients(folder: Path, *lines: str) -> None:
    quoted = [line.replace("A,", f"{A},", 1).replace("B,", f'"{B}",', 1) for line in lines]
    (folder / "clients.csv").write_text("\n".join([HEADS, *quoted, ""]), encoding="utf-8")


def tables(folder: Path, *more: Path) -> list[ClientTable]:
    return client_tables(merge([read_run(one) for one in (folder, *more)]))


def test_clients_with_names_are_averaged_over_seeds(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    # Validation clients differ between seeds, and so do the numbers of the others.
    first = ("A,0,0,Anna,8,2,1,0.5,", "A,0,1,Ben,9,4,2,1.0,", "B,0,0,Anna,8,2,1,,7")
    second = ("A,1,0,Ben,9,4,2,0.25,", "A,1,1,Cleo,3,0,,,", "A,2,0,Dan,3,1,1,1,")
    write_clients(folder, *first, *second)
    (table,) = tables(folder)
    assert table.clients == ["Anna", "Ben", "Cleo"]  # seed 2 is none of this run
    assert table.sizes == [{"Anna": 8, "Ben": 9, "Cleo": 3}, {"Anna": 2, "Ben": 4, "Cleo": 0}]
    found = [(one.place, one.personal, one.quantity.name, one.values) for one in table.columns]
    assert found == [
        (0, False, "accuracy", {"Anna": 0.5, "Ben": 0.625}),
        (1, False, "loss", {"Anna": 1}),
        (1, True, "loss", {"Anna": 7}),
    ]
    assert "3 clients" in page_of(folder)


def test_made_up_clients_are_those_of_the_first_seed(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    write_clients(folder, "A,0,0,,8,2,1,0.5,", "A,1,0,,8,2,1,1.0,", "A,0,1,,8,2,what,?,")
    (table,) = tables(folder)
    assert (table.clients, table.seeds) == (["0", "1"], (0,))
    assert [one.values for one in table.columns] == [{"0": 0.5}]


def test_runs_with_the_same_clients_stand_side_by_side(tmp_path: Path) -> None:
    folders = [
        make_run(tmp_path / name, name=name, local=f"Local(lr={lr})", checksum=checksum)
        for name, lr, checksum in (("one", 1, "a"), ("two", 2, "a"), ("three", 3, "b"))
    ]
    for folder in folders:
        write_clients(folder, "A,0,0,Anna,8,2,1,0.5,")
    both, alone = tables(*folders)
    assert [one.place for one in both.columns] == [0, 2]
    assert (both.runs, alone.runs) == (["one", "two"], ["three"])
    assert [one.place for one in alone.columns] == [4]


def test_of_very_many_clients_those_at_the_ends_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(tmp_path)
    write_clients(folder, *(f"A,0,{i},,8,2,1,{i / 10},0" for i in (3, 1, 4, 5, 9, 2, 6)))
    monkeypatch.setattr(module, "MOST", 4)
    (table,) = tables(folder)
    assert (table.clients, table.total) == (["1", "2", "6", "9"], 7)
    assert "Here are 4, the lowest and the highest of FedAvg." in page_of(folder)


def test_without_results_of_clients_there_is_no_table(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    assert tables(folder) == []
    write_clients(folder)
    assert tables(folder) == []
    assert "<h2>Clients" not in page_of(folder)
