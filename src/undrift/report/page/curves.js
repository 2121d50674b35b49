// Curves: a metric of all algorithms, one line each, with a band or a line for each seed.

const KEEP = { none: 0, some: 0.6, much: 0.85 };

const smoothing = (panel) => (panel.dataset.total ? 0 : KEEP[state.smooth]);

// An exponential moving average that starts at the first value and steps over gaps.
function smooth(values, keep) {
  let sum = 0, weight = 0;
  return values.map((value) => {
    if (value === null || !keep) return value;
    sum = keep * sum + (1 - keep) * value;
    weight = keep * weight + (1 - keep);
    return sum / weight;
  });
}

function metricOf(panel) {
  const { metric, models } = panel.dataset;
  const chosen = models && state.model !== "deployed" ? `${state.model}_${metric}` : metric;
  return (state.accuracy === "balanced" && data.balanced[chosen]) || chosen;
}

// Whether the reader chose to see one parameter group of this metric, which is kept as a mean only.
const ofGroup = (metric) => state.group !== "" && metric in data.by_group;

function meanOf(arm, metric) {
  if (ofGroup(metric)) {
    const lines = arm.sheets[data.by_group[metric]] || [];
    const line = lines[arm.groups.indexOf(state.group)];
    return line ? { x: arm.sheets.x[state.x], y: line, sd: null } : { x: [], y: [], sd: null };
  }
  const sd = arm.sd && arm.sd[metric];
  return { x: arm.mean[state.x] || [], y: arm.mean[metric] || [], sd: sd || null };
}

// Cohorts are the same for all algorithms of a run: what depends on them alone is drawn once.
function distinct(metric) {
  const arms = shown();
  const runs = [...new Set(arms.map((arm) => arm.run))];
  const values = (arm) =>
    JSON.stringify([arm.seeds.map((s) => s.values[metric]), meanOf(arm, metric).x]);
  const grey = dark.matches ? "#c4c8ce" : "#4d4d4d";
  return runs.flatMap((run) => {
    const own = arms.filter((arm) => arm.run === run);
    if (own.length < 2 || own.some((arm) => values(arm) !== values(own[0]))) return own;
    const [label, dash] =
      runs.length > 1 ? [`all algorithms · ${run}`, own[0].dash] : ["all algorithms", "solid"];
    return [{ ...own[0], label, dash, colour: grey, dark: grey }];
  });
}

// The line to read from some point on, and the unsmoothed one faintly behind it.
function line(panel, arm, curve, width, name, from = 0) {
  const { digits } = panel.dataset;
  const keep = smoothing(panel);
  const [x, y] = [curve.x.slice(from), curve.y.slice(from)];
  const drawn = smooth(curve.y, keep).slice(from);
  const sd = curve.sd || null;
  const base = {
    type: "scatter", mode: drawn.length > 1 ? "lines" : "markers", x, showlegend: false,
  };
  const ink = { color: colour(arm), dash: arm.dash, width };
  const raw = !keep ? "" : ` (measured %{customdata[0]:${digits}})`;
  const spread = sd ? ` ± %{customdata[1]:${digits}}` : "";
  const at = state.x === "round" ? "" : "  at %{x:.3~g}";
  const main = {
    ...base, y: drawn, line: ink, marker: { color: colour(arm) },
    customdata: y.map((value, i) => [value, sd ? sd[i] : null]),
    hovertemplate: `<b>${plain(name)}</b>  %{y:${digits}}${spread}${raw}${at}<extra></extra>`,
  };
  if (!keep) return [main];
  const behind = { ...base, y, opacity: 0.28, hoverinfo: "skip", line: { ...ink, dash: "solid", width: 1.2 } };
  return [behind, main];
}

function band(panel, arm, { x, y, sd }) {
  const [middle, wide] = [y, sd].map((values) => smooth(values, smoothing(panel)));
  const kept = middle.map((_, i) => i).filter((i) => middle[i] !== null && wide[i] !== null);
  const back = kept.slice().reverse();
  return {
    type: "scatter", mode: "lines", x: [...kept, ...back].map((i) => x[i]),
    y: [...kept.map((i) => middle[i] + wide[i]), ...back.map((i) => middle[i] - wide[i])],
    fill: "toself", fillcolor: faded(colour(arm), shown().length > 6 ? 0.05 : 0.14), line: { width: 0 },
    hoverinfo: "skip", showlegend: false,
  };
}

function cross(panel, arm, { x, y }) {
  const drawn = smooth(y, smoothing(panel));
  const last = drawn.findLastIndex((value) => value !== null);
  return {
    type: "scatter", mode: "markers", showlegend: false, hoverinfo: "skip",
    x: last < 0 ? [] : [x[last]], y: last < 0 ? [] : [drawn[last]],
    marker: { symbol: "x", size: 9, color: colour(arm) },
  };
}

function curves(panel) {
  const metric = metricOf(panel);
  const bands = [], lines = [], marks = [];
  const add = (...what) => lines.push(...line(panel, ...what));
  for (const arm of distinct(metric)) {
    const mean = meanOf(arm, metric);
    const each = state.lines === "seeds" && !ofGroup(metric);
    if (!each) {
      if (mean.sd) bands.push(band(panel, arm, mean));
      add(arm, mean, 2, arm.label);
    }
    for (const one of ofGroup(metric) ? [] : arm.seeds) {
      const from = each ? 0 : one.alone;
      const curve = { x: one.values[state.x], y: one.values[metric] || [] };
      if (curve.y.length > from + 1) add(arm, curve, 1, `${arm.label}, seed ${one.seed}`, from);
      if (one.diverged) marks.push(cross(panel, arm, curve));
    }
  }
  return [...bands, ...lines, ...marks];
}

// A logarithmic axis where asked for, or where a few values dwarf all others.
function scaleOf(panel, drawn) {
  const values = drawn.filter((t) => !t.fill).flatMap((t) => t.y).filter((v) => v !== null);
  values.sort((a, b) => a - b);
  const [lowest, middle, highest] = [0, 0.5, 1].map((share) => quantile(values, share));
  const wanted = state.scale === "log" || (state.scale === "auto" && highest > 50 * middle);
  return {
    log: Boolean(panel.dataset.log) && wanted && lowest > 0,
    lowest, decades: Math.log10(highest / lowest),
  };
}

function note(text, more) {
  return { xref: "paper", showarrow: false, text, font: { size: 12, color: style("--soft") }, ...more };
}

function drawCurves(panel) {
  const drawn = curves(panel);
  const metric = metricOf(panel);
  const balanced = Object.values(data.balanced).includes(metric);
  const aim = panel.dataset.target && !balanced ? data.target : null;
  const { title } = panel.dataset;
  const { log, lowest, decades } = scaleOf(panel, drawn);
  if (log) {
    for (const trace of drawn) if (trace.fill) trace.y = trace.y.map((v) => Math.max(v, lowest));
  }
  const shapes = aim === null ? [] : [{
    type: "line", xref: "paper", x0: 0, x1: 1, y0: aim, y1: aim,
    line: { color: style("--soft"), width: 1, dash: "4px,4px" },
  }];
  const annotations = aim === null ? [] : [
    note(`${aim} %`, { x: 1, y: aim, xanchor: "left", yanchor: "middle" }),
  ];
  if (!drawn.some((trace) => trace.y.length)) {
    annotations.push(note("not recorded", { yref: "paper", x: 0.5, y: 0.5 }));
  }
  const scale = log ? { type: "log", dtick: decades < 2.5 ? "D2" : undefined } : { type: "linear" };
  Plotly.react(panel, drawn, layout({
    shapes, annotations, xaxis: chosenAxis(),
    yaxis: {
      title: titled(balanced ? `Balanced ${title.toLowerCase()}` : title),
      uirevision: `${metric} ${state.scale} ${state.group}`,
      ...scale,
    },
  }), config);
}
