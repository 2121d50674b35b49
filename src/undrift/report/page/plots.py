"""Empty plot elements with headings and captions as HTML; the scripts fill them."""

from __future__ import annotations

from html import escape

from undrift.later import NDArray, np
from undrift.report.clients import ClientTable, client_tables
from undrift.report.notes import joined
from undrift.report.page.panels import group_names
from undrift.report.page.sections import SECTIONS, Panel
from undrift.report.palette import by_run
from undrift.report.read import Arm, Run
from undrift.report.score import ACCURACY
from undrift.runs.layout import RunFile


def plot_sections(run: Run) -> str:
    """All sections that the run has data for. Everything that comes from runs is escaped."""
    lines: list[str] = []
    absent: list[str] = []
    for title, panels in SECTIONS:
        shown = [panel for panel in panels if panel.worth_showing(run)]
        lacking = [panel for panel in panels if panel not in shown]
        if run.score is not ACCURACY:  # which has no accuracies to miss
            lacking = [panel for panel in lacking if not panel.quantity.name.count("accuracy")]
        absent += [panel.title.lower() for panel in lacking]
        if shown:
            first = not lines
            lines += ["<section>", f"<h2>{escape(title)}</h2>", '<div class="grid">']
            lines += [_figure(run, p, wide=first and p is shown[0]) for p in shown]
            lines += ["</div>", "</section>"]
    if tables := client_tables(run):
        lines += ["<section>", "<h2>Clients</h2>", '<div class="grid">']
        lines += [_clients(run, table, place) for place, table in enumerate(tables)]
        lines += ["</div>", "</section>"]
    if run.partitions:
        lines += ["<section>", "<h2>Partition</h2>", '<div class="grid">']
        lines += [_partition(run, name) for name in run.partitions]
        lines += ["</div>", "</section>"]
    else:
        absent.append("labels of the clients")
    if absent:
        lines.append(f'<p class="note">Nothing to show in this run: {"; ".join(absent)}.</p>')
    return "\n".join(lines)


def _figure(run: Run, panel: Panel, wide: bool) -> str:
    """A plot with heading and caption; the first of the page is wide and explains the lines."""
    width = "wide" if wide or panel.each else "half"
    caption = panel.caption + (_legend(run) if wide else "")
    places = list(enumerate(run.arms))
    if panel.each:
        own = [
            _own_plot(panel, place, arm)
            for place, arm in places
            if arm.sheet(panel.quantity.name) is not None
        ]
        plots = f'<div class="each">{"".join(own)}</div>'
    else:
        plots = _plot(panel)
    return (
        f'<figure class="{width}"><figcaption><h3>{escape(panel.title)}</h3>'
        f"<p>{escape(caption)}</p>{_choice(run, panel)}</figcaption>{plots}</figure>"
    )


def _plot(panel: Panel, more: str = "") -> str:
    one, digits = (
        panel.quantity,
        panel.quantity.digits.replace("g", "~g"),
    )  # d3's g keeps trailing zeros
    told = {
        "models": panel.models,
        "total": one.total,
        "log": one.scale == "log",
        "target": one is ACCURACY.quantity,
    }
    flags = "".join(f' data-{name}="1"' for name, holds in told.items() if holds)
    return (
        f'<div class="plot" role="img" aria-label="{escape(panel.title)}"'
        f' data-kind="{panel.kind}" data-metric="{one.name}"'
        f' data-title="{escape(one.axis_title())}" data-digits="{digits}"{flags}{more}></div>'
    )


def _own_plot(panel: Panel, place: int, arm: Arm) -> str:
    """The plot of one algorithm; the height of a heat map depends on its rows."""
    height = min(max(17 * len(group_names(arm)), 100), 600) + 70
    style = f' style="height:{height}px"' if panel.kind == "heat" else ""
    plot = _plot(panel, f' data-arm="{place}"{style}')
    mark = f'<span class="mark" data-arm="{place}"></span>'
    return f'<div data-owner="{place}"><h4>{mark}{escape(arm.label)}</h4>{plot}</div>'


def _choice(run: Run, panel: Panel) -> str:
    """A menu of the parameter groups, if there are several."""
    having = [arm for arm in run.arms if panel.group and arm.sheet(panel.group) is not None]
    names = dict.fromkeys(name for arm in having for name in group_names(arm))
    if len(names) < 2:
        return ""
    options = "".join(f'<option value="{escape(n)}">{escape(n)}</option>' for n in names)
    return (
        '<label class="choice">Parameter group <select data-key="group">'
        f'<option value="">all</option>{options}</select></label>'
    )


def _legend(run: Run) -> str:
    """How to read lines, bands and crosses, for the caption of the first plot."""
    text = ""
    if by_run(run.arms):
        text += " Colours tell algorithms, dashes tell runs."
    if len(run.seeds) > 1:
        text += " Lines are means over seeds, bands one standard deviation."
    if any(arm.failures for arm in run.arms):
        text += " A cross marks the end of a diverged seed; thin lines are the seeds that go on."
    return text


def _range(sizes: NDArray[np.int64]) -> str:
    if sizes.min() == sizes.max():
        return f"{sizes.min()} samples each"
    return f"{sizes.min()} to {sizes.max()} samples (median {np.median(sizes):g})"


def _clients(run: Run, table: ClientTable, place: int) -> str:
    """A table of clients, which the script fills."""
    whose = f" of {escape(', '.join(table.runs))}" if len(table.runs) < len(run.members) else ""
    what = joined("Accuracy (%)" if one.quantity.share else "Loss" for one in table.columns)
    seeds = f"mean over {len(table.seeds)} seeds" if len(table.seeds) > 1 else "one seed"
    caption = (
        f"{what} on each client's own samples at the end of training, {seeds}. Click a heading to"
        f" sort by it; {RunFile.CLIENTS} of the run has all numbers."
    )
    if len(table.clients) < table.total:
        label = run.arms[table.columns[0].place].label
        caption += f" Here are {len(table.clients):,}, the lowest and the highest of {label}."
    return (
        f'<figure class="wide"><figcaption><h3>{table.total:,} clients{whose}</h3>'
        f'<p>{escape(caption)}</p></figcaption><div class="clients" data-table="{place}"></div>'
        "</figure>"
    )


def _partition(run: Run, name: str) -> str:
    counts, place = run.partitions[name].counts, list(run.partitions).index(name)
    whose = f" of {escape(name)}" if len(run.partitions) > 1 else ""
    sizes = counts.sum(axis=1)
    share = counts / np.maximum(sizes[:, None], 1)
    share = share[sizes > 0] if sizes.any() else share
    entropy = -(share * np.log(np.where(share > 0, share, 1))).sum(axis=1)
    caption = (
        f"{len(counts)} clients of the first seed with {_range(sizes)}. By the entropy of"
        f" its labels, a client sees {np.exp(entropy).mean():.1f} of {counts.shape[1]} classes"
        " on average."
    )
    return (
        f'<figure class="wide"><figcaption><h3>Labels of the clients{whose}</h3>'
        f"<p>{caption}</p></figcaption>"
        '<div class="plot" role="img" aria-label="Labels of the clients" data-kind="partition"'
        f' data-partition="{place}"></div></figure>'
    )
