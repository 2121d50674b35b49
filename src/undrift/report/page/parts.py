"""Texts, tables and empty plots of the page as HTML. Everything that comes from runs is escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from undrift.report.labels import code_lines, data_name, title
from undrift.report.notes import BEST, footnote, rounds_said, seed_note, seeds_said
from undrift.report.page.plots import plot_sections
from undrift.report.read import Run
from undrift.report.score import Score
from undrift.report.settings import spelled
from undrift.report.summary import SummaryRow
from undrift.report.tables import ALGORITHM, NONE, NOTES, seed_columns, table_columns
from undrift.report.units import brief, percent, prefix

_SETTINGS = {
    "data": "Data",
    "partition": "Partition",
    "clients": "Clients",
    "train_samples": "Training samples",
    "test_samples": "Test samples",
    "classes": "Classes",
    "model": "Model",
    "parameters": "Parameters",
    "local": "Local training",
    "sampler": "Cohorts",
    "rounds": "Rounds",
    "every": "Rounds between evaluations",
    "seeds": "Seeds",
    "target": "Target accuracy",
    "hash": "Experiment",
    "version": "undrift",
}
_SHOWN_ELSEWHERE = {"name", "algorithms", "command", "format", "groups"}


def render_parts(
    run: Run, rows: Sequence[SummaryRow], columns: Sequence[str] | None = None
) -> dict[str, str]:
    """Name in view.html → HTML."""
    return {
        "title": escape(title(run)),
        "facts": _facts(run),
        "lead": " ".join([*_leads(run, rows), *map(_progress, run.members)]),
        "table": _table(table_columns(run, rows, columns), rows, footnote(run, rows)),
        "failures": _failures(run),
        "seeds": _table(seed_columns(rows), rows, seed_note(rows)),
        "sections": plot_sections(run),
        "commands": "\n".join(
            _command(one) for member in run.members for one in member.pooled or (member,)
        ),
        "settings": _settings(run),
    }


def _facts(run: Run) -> str:
    """The main settings that all runs share."""
    data, *others = (run.experiment.get(k) for k in ("data", "partition", "model", "sampler"))
    said = [None if data is None else data_name(data), *others]
    if run.experiment.get("rounds") is not None:
        said.append(f"{run.experiment['rounds']} rounds")
    said.append(seeds_said([len(arm.seeds) for arm in run.arms]))
    if run.merged or run.pooled:
        said.append(f"runs {run.name}")
    fork = run.arms[0].fork
    if fork and len(run.members) == 1:
        said.append(fork.said(*(arm.name for arm in run.arms)))
    return "".join(f"<span>{escape(_plain(fact))}</span>" for fact in said if fact is not None)


def _leads(run: Run, rows: Sequence[SummaryRow]) -> list[str]:
    """The result in a sentence or two, for each problem."""
    problems = dict.fromkeys(arm.problem for arm in run.arms)
    return [_lead(run, [row for row in rows if row.arm.problem == one]) for one in problems]


def _lead(run: Run, rows: Sequence[SummaryRow]) -> str:
    leaders = [row for row in rows if row.leads and row.final]
    leader = leaders[0] if leaders else None
    if leader is None or leader.final is None:
        runs = ", ".join(dict.fromkeys(row.arm.run for row in rows))
        whose = f" of {escape(runs)}" if len(rows) < len(run.arms) else ""
        if any(row.unfinished for row in rows):
            return f"No algorithm{whose} has finished on every seed yet."
        return f"No algorithm{whose} finished on every seed."
    score, names = leader.score, [f"<b>{escape(row.arm.label)}</b>" for row in leaders]
    text = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    text += f" {'ends' if len(names) == 1 else 'end'} {_place(rows, score)}"
    text += f" {score.said(score.numbers(leader.final))}"
    text += f" after {rounds_said([int(c.rounds[-1]) for c in leader.arm.curves.values()])}"
    behind = [row for row in rows if row.behind and row.complete and row.arm.federated]
    if behind:
        second = min(behind, key=lambda row: row.behind.mean if row.behind else 0.0)
        gap = second.behind
        if gap is not None:
            wide = " ".join(filter(None, (score.numbers(gap), score.gap)))
            text += f", {wide} {'below' if score.lower else 'above'} {escape(second.arm.label)}"
            text += f" on the same seed{'s' if gap.n > 1 else ''}"
            if gap.sd is not None and gap.mean <= gap.sd:
                text += ", a gap within the spread of the seeds"
    return text + "." + _cheapest(run, rows)


def _place(rows: Sequence[SummaryRow], score: Score) -> str:
    """The words before the leader's result; unfinished algorithms may still overtake it."""
    if len(rows) == 1:
        return "at"
    those = " of those that have finished" if any(row.unfinished for row in rows) else ""
    return f"{'lowest' if score.lower else 'highest'}{those}:"


def _progress(run: Run) -> str:
    """A sentence on the progress of a run that is not finished."""
    if run.finished:
        return ""
    share = 100 * run.done // max(run.rounds, 1)
    trials = f"{run.trials_done} of {run.trials} trials, {share} % of all rounds,"
    rounds = f"{run.done} of {run.rounds} rounds"
    return f"{escape(run.name)} has done {trials if run.trials > 1 else rounds} so far."


def _cheapest(run: Run, rows: Sequence[SummaryRow]) -> str:
    if run.target is None:
        return ""
    there = [row for row in rows if row.bytes_to is not None and row.reached == row.seeds]
    if there and all(row.early for row in there):
        return ""  # forks, whose target was met before them
    there = [row for row in there if not row.early]
    if not there:
        return f" No algorithm reaches {percent(run.target)} % on every seed."
    least = min(there, key=lambda row: row.bytes_to.mean if row.bytes_to else 0.0)
    cost = 0.0 if least.bytes_to is None else least.bytes_to.mean
    (unit, letter), name = prefix(cost), escape(least.arm.label)
    amount = f"{brief(cost / unit)} {letter}B"
    if len(rows) == 1:
        return f" {name} needs {amount} of traffic to {percent(run.target)} %."
    return f" {name} needs the least traffic to {percent(run.target)} %: {amount}."


def _table(columns: Mapping[str, list[str]], rows: Sequence[SummaryRow], note: str) -> str:
    if not columns:
        return ""
    kinds = ['class="text"' if head in (ALGORITHM, NOTES) else "" for head in columns]
    lines = ['<div class="scroll">', "<table>", "<thead><tr>"]
    lines += [f"<th {kind}>{_heading(h)}</th>" for h, kind in zip(columns, kinds, strict=True)]
    lines += ["</tr></thead>", "<tbody>"]
    for place, (row, cells) in enumerate(
        zip(rows, zip(*columns.values(), strict=True), strict=True)
    ):
        star = f" {BEST}" if row.leads else ""
        first = f'<span class="mark" data-arm="{place}"></span>{escape(row.arm.label)}{star}'
        if row.arm.name not in (row.arm.short, f"{row.arm.short}()"):
            first += f"<small>{escape(row.arm.name)}</small>"
        rest = [
            f"<td {kind}>{escape(c)}</td>" for c, kind in zip(cells[1:], kinds[1:], strict=True)
        ]
        lines += ['<tr class="best">' if row.leads else "<tr>", f'<td class="text">{first}</td>']
        lines += [*rest, "</tr>"]
    lines += ["</tbody>", "</table>", "</div>", f'<p class="note">{escape(note)}</p>']
    return "\n".join(lines)


def _heading(text: str) -> str:
    """Escaped, without a line break inside "80 %"."""
    return escape(text).replace(" %", "&nbsp;%")


def _failures(run: Run) -> str:
    failed = [
        f"<li>{escape(arm.label)}, seed {v.seed}, ended in round {v.round}: {escape(v.reason)}</li>"
        for arm in run.arms
        for v in arm.failures.values()
    ]
    stopped = [
        f"<li>{escape(arm.label)}, seed {seed}, stopped after round {arm.curves[seed].rounds[-1]}: "
        f"{escape(rule)}</li>"
        for arm in run.arms
        for seed, rule in arm.stops.items()
    ]
    lists = ('<ul class="warn">', failed), ('<ul class="note">', stopped)
    return "".join(f"{start}{''.join(items)}</ul>" for start, items in lists if items)


def _command(run: Run) -> str:
    if not run.experiment.get("command"):
        return ""
    command = escape(str(run.experiment["command"]))
    return (
        f'<div class="command"><pre>{command}</pre>'
        '<button type="button" class="copy">Copy</button></div>'
    )


def _settings(run: Run) -> str:
    """Rows of the settings: one cell where all runs agree, else one per run."""
    keys = dict.fromkeys(key for one in run.members for key in one.experiment)
    extra = [key for key in keys if key not in _SETTINGS and key not in _SHOWN_ELSEWHERE]
    names = _SETTINGS | {key: key.replace("_", " ").capitalize() for key in extra}
    width = len(run.members)
    heads = "".join(f"<td>{escape(one.name)}</td>" for one in run.members)
    lines = [f"<tr><th>Run</th>{heads}</tr>"] if width > 1 else []
    algorithms = (
        "<br>".join(f"<code>{escape(arm.name)}</code>" for arm in one.arms) for one in run.members
    )
    lines.append(f"<tr><th>Algorithms</th><td>{'</td><td>'.join(algorithms)}</td></tr>")
    for key, name in names.items():
        values = [one.experiment.get(key) for one in run.members]
        if all(value is None for value in values):
            continue
        if width > 1 and all(value == values[0] for value in values):
            cells = f'<td colspan="{width}">{_setting(key, values[0])}</td>'
        else:
            cells = "".join(f"<td>{_setting(key, value)}</td>" for value in values)
        lines.append(f"<tr><th>{escape(name)}</th>{cells}</tr>")
    return "\n".join(lines)


def _setting(key: str, value: Any) -> str:
    if value is None:
        return NONE
    if key == "code" and isinstance(value, dict):
        return "<br>".join(f"<code>{escape(line)}</code>" for line in code_lines(value))
    text = escape(_plain(spelled(key, value)))
    return f"<code>{text}</code>" if "(" in text else text


def _plain(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | list):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else ", ".join(map(str, value))
