"""Quantities: the table lists what runs measure, and documentation and page show all of it."""

from __future__ import annotations

import json
from pathlib import Path

from undrift import IID, AdaBest, Digits, Experiment, FedGLAD, Local, Uniform, run
from undrift.measure.quantities import AXES, BALANCED, BY_GROUP, KEYS, LISTS, METRICS, QUANTITIES
from undrift.models import Linear
from undrift.report.page.sections import SECTIONS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def test_the_table_lists_what_a_run_with_everything_on_measures(tmp_path: Path) -> None:
    made = Experiment(
        algorithms=(FedGLAD(AdaBest(beta="auto")),),
        data=Digits(),
        partition=IID(clients=6),
        model=Linear(),
        local=Local(steps=1),
        sampler=Uniform(3),
        rounds=2,
        every=1,
        validation=1,
        dropout=0.1,
        all_clients=True,
        all_updates=True,
        fairness=True,
        client_test=0.2,
        personal_steps=1,
    )
    for _ in run(made, tmp_path, engine="sequential"):
        pass
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    losses = {name for name in METRICS if name.startswith(("client_loss", "personal_loss"))}
    for row in rows:
        assert set(row) == {*METRICS, *LISTS, *KEYS} - losses
        assert {name for name in row if isinstance(row[name], list)} == set(LISTS)
    assert all(value is not None for value in rows[-1].values())
    sums = {name: QUANTITIES[name].sum_of for name in QUANTITIES if QUANTITIES[name].sum_of}
    assert set(QUANTITIES) == {*METRICS, *LISTS, "round", *sums}
    assert {part for parts in sums.values() for part in parts} <= set(METRICS)


def test_the_page_shows_every_quantity() -> None:
    panels = {panel.quantity.name for _, shown in SECTIONS for panel in shown}
    of_models = {name for name, one in QUANTITIES.items() if one.model}
    summed = {part for one in QUANTITIES.values() for part in one.sum_of}
    assert panels | of_models | summed | {*AXES, *BALANCED.values()} == set(QUANTITIES)
    assert BY_GROUP == {"gsi": "group_gsi", "factor": "group_factor"}


def test_titles_of_axes_name_the_quantity_and_its_unit() -> None:
    titles = {name: QUANTITIES[name].full_title for name in ("accuracy", "loss", "x_norm")}
    assert titles == {
        "accuracy": "Test accuracy (%)",
        "loss": "Test loss",
        "x_norm": "Norm of the model, ‖x‖",
    }
    assert QUANTITIES["bytes"].axis_title("M") == "Traffic, down and up (MB)"
    assert QUANTITIES["coverage"].factor == QUANTITIES["client_accuracy_sd"].factor == 100
    assert QUANTITIES["flops"].factor == 1


def test_a_value_is_written_in_its_unit() -> None:
    values = {"accuracy": 0.80826, "loss": 0.123456, "x_norm": 21.0}
    assert [QUANTITIES[name].labelled(value) for name, value in values.items()] == [
        "accuracy 80.83 %",
        "test loss 0.1235",
        "‖x‖ 21",
    ]


def test_the_documentation_has_the_table() -> None:
    lines = ["| name | what | unit |", "|---|---|---|"]
    topic = ""
    for one in QUANTITIES.values():
        if one.topic != topic:
            lines.append(f"| **{one.topic}** | | |")
        topic, unit = one.topic, "share" if one.factor != 1 else one.unit
        summed = f" Not in rows: {' + '.join(f'`{part}`' for part in one.sum_of)}."
        what = f"{one.title}. {one.about}{summed if one.sum_of else ''}"
        lines.append(f"| `{one.name}` | {what} | {unit} |")
    assert "\n".join(lines) in PAGE.read_text(encoding="utf-8"), "\n" + "\n".join(lines)
