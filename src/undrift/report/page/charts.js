// Charts: lists of values (over parameter groups or over clients) and the partition.

const short = (name) => (name.length > 26 ? `…${name.slice(-25)}` : name);

function bar(title) {
  return {
    title: { text: title, side: "right", font: { size: 13 } }, thickness: 12, outlinewidth: 0,
  };
}

// Groups × rounds. All algorithms share one colour scale, from the 2 % to the 98 % quantile.
function drawHeat(panel) {
  const { metric, title, digits } = panel.dataset;
  const arm = data.arms[panel.dataset.arm];
  const z = arm.sheets[metric];
  const all = data.arms.flatMap((one) => (one.sheets[metric] || []).flat());
  const sorted = all.filter((value) => value !== null).sort((a, b) => a - b);
  const x = arm.sheets.x[state.x];
  const names = arm.groups.map(plain);
  Plotly.react(panel, [{
    type: "heatmap", z, x, y: z.map((_, i) => i), colorscale: shades(),
    zmin: quantile(sorted, 0.02), zmax: quantile(sorted, 0.98),
    customdata: z.map((row, i) => row.map(() => names[i])),
    hovertemplate:
      `<b>%{customdata}</b>  ${title} %{z:${digits}}<br>${data.axes[state.x].title}: %{x:.4~g}<extra></extra>`,
    colorbar: bar(title),
  }], layout({
    hovermode: "closest", margin: { l: 30, r: 10, t: 8, b: 44 },
    xaxis: { ...chosenAxis(), rangemode: "normal", showgrid: false },
    yaxis: {
      autorange: "reversed", showgrid: false, uirevision: names.length, tickfont: { size: 11 },
      ...(names.length > 40 ? {} : { tickvals: z.map((_, i) => i), ticktext: arm.groups.map(short).map(plain) }),
    },
  }), config);
}

// The quantiles of all clients over the rounds: the median as a line, the others as shades around it.
function drawFan(panel) {
  const arm = data.arms[panel.dataset.arm];
  const lines = arm.sheets[panel.dataset.metric].map((line) => smooth(line, smoothing(panel)));
  const along = arm.sheets.x[state.x];
  const kept = along.map((_, i) => i).filter((i) => lines.every((line) => line[i] !== null));
  const x = kept.map((i) => along[i]);
  const at = (line) => kept.map((i) => line[i]);
  const top = lines.length - 1, middle = top >> 1;
  const shades = lines.slice(0, middle).map((low, i) => ({
    type: "scatter", mode: "lines", x: [...x, ...x.slice().reverse()],
    y: [...at(lines[top - i]), ...at(low).reverse()], fill: "toself",
    fillcolor: faded(colour(arm), 0.1 + 0.04 * i), line: { width: 0 }, hoverinfo: "skip",
    showlegend: false,
  }));
  const digits = panel.dataset.digits;
  Plotly.react(panel, [...shades, {
    type: "scatter", mode: x.length > 1 ? "lines" : "markers", x, y: at(lines[middle]), showlegend: false,
    line: { color: colour(arm), width: 2 }, marker: { color: colour(arm) },
    customdata: kept.map((i) => [lines[0][i], lines[top][i]]),
    hovertemplate:
      `median %{y:${digits}}, worst %{customdata[0]:${digits}}, best %{customdata[1]:${digits}}<extra></extra>`,
  }], layout({
    xaxis: chosenAxis(),
    yaxis: { title: titled(panel.dataset.title), range: [0, 101], uirevision: "fan" },
  }), config);
}

// The quantiles of all clients in the last round that has them.
function drawSpread(panel) {
  const { metric, title, digits } = panel.dataset;
  const drawn = shown().filter((arm) => arm.sheets[metric]).map((arm) => {
    const lines = arm.sheets[metric];
    const last = lines[0].findLastIndex((value) => value !== null);
    const share = lines.map((_, i) => (100 * i) / Math.max(lines.length - 1, 1));
    return {
      type: "scatter", mode: "lines+markers", x: share, y: lines.map((line) => line[last]),
      line: { color: colour(arm), dash: arm.dash, width: 2 }, marker: { size: 5, color: colour(arm) },
      hovertemplate: `<b>${plain(arm.label)}</b>  %{y:${digits}}<extra></extra>`, showlegend: false,
    };
  });
  Plotly.react(panel, drawn, layout({
    xaxis: {
      title: titled("Clients, from the worst to the best (%)"), range: [-1, 101], dtick: 20,
      uirevision: "spread", unifiedhovertitle: { text: "%{x:.0f} % of the clients are at or below" },
    },
    yaxis: { title: titled(title), range: [0, 101], uirevision: "spread" },
  }), config);
}

function drawPartition(panel) {
  const { share, counts, title, most, clients, classes } = data.partitions[panel.dataset.partition];
  const named = (names) => names.length
    ? { type: "category", tickmode: names.length > 40 ? "auto" : "linear" } : {};
  Plotly.react(panel, [{
    type: "heatmap", z: share, customdata: counts, zmin: 0, zmax: most,
    x: clients.length ? clients.map(plain) : undefined, y: classes.length ? classes.map(plain) : undefined,
    colorscale: shades(1.6),
    xgap: share[0].length > 150 ? 0 : 1, ygap: 1,
    hovertemplate: "client %{x}, class %{y}: %{customdata} samples, %{z:.0f} % of its own<extra></extra>",
    colorbar: bar("% of the client's samples"),
  }], layout({
    hovermode: "closest", margin: { l: 56, r: 16, t: 34, b: 44 },
    xaxis: { title: titled(title), showgrid: false, uirevision: "partition", ...named(clients) },
    yaxis: {
      title: titled("Class"), showgrid: false, dtick: share.length > 20 ? undefined : 1,
      uirevision: "partition", automargin: true, ...named(classes),
    },
  }), config);
}
