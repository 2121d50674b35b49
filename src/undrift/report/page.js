"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const state = { x: "round", model: "deployed", lines: "mean", scale: "auto", hidden: new Set() };
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const colour = (arm) => (dark.matches ? arm.dark : arm.colour);
  const faded = (hex, alpha) =>
    `rgba(${[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).join(",")},${alpha})`;
  // Plotly reads tags and %{...} in its texts; names of algorithms are never either.
  const codes = { "&": "&amp;", "<": "&lt;", ">": "&gt;", "{": "&#123;" };
  const plain = (text) => text.replace(/[&<>{]/g, (sign) => codes[sign]);
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const titled = (text) => ({ text, standoff: 8, font: { size: 13 } });
  const panels = [...document.querySelectorAll(".plot[data-metric]")];

  function metricOf(panel) {
    const { metric, models } = panel.dataset;
    return models && state.model !== "deployed" ? `${state.model}_${metric}` : metric;
  }

  function shown() {
    return data.arms.filter((arm) => !state.hidden.has(arm.label));
  }

  // Cohorts are the same for all algorithms: what depends on them alone is drawn once.
  function distinct(metric) {
    const arms = shown();
    const same = (arm) => JSON.stringify([arm.seeds.map((s) => s.values[metric]), arm.mean[state.x]]);
    if (arms.length < 2 || arms.some((arm) => same(arm) !== same(arms[0]))) return arms;
    const grey = dark.matches ? "#c4c8ce" : "#4d4d4d";
    return [{ ...arms[0], label: "all algorithms", colour: grey, dark: grey, dash: "solid" }];
  }

  function line(arm, curve, metric, more) {
    return {
      type: "scatter", mode: "lines", x: curve[state.x], y: curve[metric] || [],
      line: { color: colour(arm), dash: arm.dash, width: 2 }, showlegend: false, ...more,
    };
  }

  function traces(panel) {
    const metric = metricOf(panel);
    const bands = [], lines = [], marks = [];
    const hover = (name, spread) =>
      `<b>${plain(name)}</b>  %{y:${panel.dataset.digits}}${spread}` +
      (state.x === "round" ? "" : "  at %{x:.3~g}") + "<extra></extra>";
    for (const arm of distinct(metric)) {
      if (state.lines === "mean") {
        const sd = arm.sd && arm.sd[metric];
        if (sd) bands.push(band(arm, metric, sd));
        lines.push(line(arm, arm.mean, metric, {
          customdata: sd || [],
          hovertemplate: hover(arm.label, sd ? ` ± %{customdata:${panel.dataset.digits}}` : ""),
        }));
      }
      for (const one of arm.seeds) {
        const from = state.lines === "mean" ? one.alone : 0;
        const cut = {};
        for (const key of [state.x, metric]) cut[key] = (one.values[key] || []).slice(from);
        if (cut[metric].length > 1) {
          lines.push(line(arm, cut, metric, {
            line: { color: colour(arm), dash: arm.dash, width: 1 },
            hovertemplate: hover(`${arm.label}, seed ${one.seed}`, ""),
          }));
        }
        if (one.diverged) marks.push(cross(arm, one, metric));
      }
    }
    return [...bands, ...lines, ...marks];
  }

  function band(arm, metric, sd) {
    const x = [], low = [], high = [];
    arm.mean[metric].forEach((mean, i) => {
      if (mean === null || sd[i] === null) return;
      x.push(arm.mean[state.x][i]);
      low.push(mean - sd[i]);
      high.push(mean + sd[i]);
    });
    return {
      type: "scatter", mode: "lines", x: [...x, ...x.slice().reverse()],
      y: [...high, ...low.reverse()], fill: "toself", fillcolor: faded(colour(arm), 0.14),
      line: { width: 0 }, hoverinfo: "skip", showlegend: false,
    };
  }

  function cross(arm, one, metric) {
    const y = one.values[metric] || [];
    let last = y.length - 1;
    while (last >= 0 && y[last] === null) last -= 1;
    return {
      type: "scatter", mode: "markers", showlegend: false,
      x: last < 0 ? [] : [one.values[state.x][last]], y: last < 0 ? [] : [y[last]],
      marker: { symbol: "x", size: 9, color: colour(arm) },
      hoverinfo: "skip",
    };
  }

  // A logarithmic axis where asked for, or where a few values dwarf all others.
  function scaleOf(panel, drawn) {
    const values = drawn.filter((t) => !t.fill).flatMap((t) => t.y).filter((v) => v !== null);
    values.sort((a, b) => a - b);
    const [lowest, middle, highest] = [values[0], values[values.length >> 1], values.at(-1)];
    const wanted = state.scale === "log" || (state.scale === "auto" && highest > 50 * middle);
    return {
      log: Boolean(panel.dataset.positive) && wanted && lowest > 0,
      lowest, decades: Math.log10(highest / lowest),
    };
  }

  function layout(more) {
    const axis = {
      gridcolor: style("--faint"), linecolor: style("--soft"), zeroline: false, automargin: true,
      tickfont: { size: 12 }, showline: false, ticks: "", 
    };
    const { xaxis, yaxis, ...rest } = more;
    return {
      margin: { l: 56, r: more.annotations && more.annotations.length ? 44 : 16, t: 14, b: 44 }, paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)", hovermode: "x unified", hoverdistance: -1,
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: style("--ink") },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: style("--soft"), activecolor: style("--accent") },
      hoverlabel: { bgcolor: style("--card"), bordercolor: style("--faint"), font: { size: 12.5 } },
      xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis }, ...rest,
    };
  }

  const config = {
    responsive: true, displaylogo: false,
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]], // none that sends data away
    plotlyServerURL: "", displayModeBar: "hover", toImageButtonOptions: { format: "svg" },
  };

  function draw(panel) {
    const drawn = traces(panel);
    const aim = panel.dataset.metric === "accuracy" ? data.target : null;
    const { log, lowest, decades } = scaleOf(panel, drawn);
    if (log) {
      for (const trace of drawn) if (trace.fill) trace.y = trace.y.map((v) => Math.max(v, lowest));
    }
    const x = data.axes[state.x];
    const shapes = aim === null ? [] : [{
      type: "line", xref: "paper", x0: 0, x1: 1, y0: aim, y1: aim,
      line: { color: style("--soft"), width: 1, dash: "4px,4px" },
    }];
    const annotations = aim === null ? [] : [{
      xref: "paper", x: 1, y: aim, xanchor: "left", yanchor: "middle", showarrow: false,
      text: `${aim} %`, font: { size: 12, color: style("--soft") },
    }];
    if (!drawn.some((trace) => trace.y.length)) {
      annotations.push({
        xref: "paper", yref: "paper", x: 0.5, y: 0.5, showarrow: false,
        text: "not recorded", font: { color: style("--soft") },
      });
    }
    Plotly.react(panel, drawn, layout({
      shapes, annotations,
      xaxis: { title: titled(x.title), rangemode: "tozero", unifiedhovertitle: { text: `${x.title}: %{x:.4~g}` } },
      yaxis: { title: titled(panel.dataset.title), ...(log ? { type: "log", dtick: decades < 2.5 ? "D2" : undefined } : { type: "linear" }) },
    }), config);
  }

  function drawPartition(panel) {
    const { share, counts, title } = data.partitions[panel.dataset.partition];
    const low = dark.matches ? style("--wash") : "#f7fbff";
    const scale = dark.matches
      ? [[0, low], [0.5, "#2f6f9f"], [1, "#a9dcff"]]
      : [[0, low], [0.25, "#c6dbef"], [0.5, "#6baed6"], [0.75, "#2171b5"], [1, "#08306b"]];
    Plotly.react(panel, [{
      type: "heatmap", z: share, customdata: counts, zmin: 0, zmax: 100, colorscale: scale,
      xgap: share[0].length > 150 ? 0 : 1, ygap: 1,
      hovertemplate: "client %{x}, class %{y}: %{customdata} samples, %{z:.0f} % of its own<extra></extra>",
      colorbar: { title: { text: "% of the client's samples", side: "right", font: { size: 13 } }, thickness: 12, outlinewidth: 0 },
    }], layout({
      hovermode: "closest", margin: { l: 56, r: 16, t: 34, b: 44 },
      xaxis: { title: titled(title), showgrid: false },
      yaxis: { title: titled("Class"), showgrid: false, dtick: share.length > 20 ? undefined : 1 },
    }), config);
  }

  function swatch(arm) {
    const dash = arm.dash === "solid" ? "" : arm.dash.replace(/px/g, "");
    return `<svg class="swatch" width="28" height="4" aria-hidden="true"><line x1="0" y1="2" x2="28" y2="2" stroke="${colour(arm)}" stroke-width="3" stroke-dasharray="${dash}"/></svg>`;
  }

  function makeLegend() {
    document.getElementById("legend").replaceChildren(...data.arms.map((arm) => {
      const chip = document.createElement("button");
      chip.className = "chip";
      chip.title = `${arm.name}\nClick to hide or show, double-click to see it alone.`;
      chip.innerHTML = '<span class="mark"></span>';
      chip.append(arm.label);
      chip.onclick = () => {
        if (!state.hidden.delete(arm.label)) state.hidden.add(arm.label);
        refresh();
      };
      chip.ondblclick = () => {
        const alone = shown().length === 1 && shown()[0] === arm;
        state.hidden = new Set(alone ? [] : data.arms.filter((a) => a !== arm).map((a) => a.label));
        refresh();
      };
      return chip;
    }));
  }

  function makeSwitches() {
    document.getElementById("switches").replaceChildren(...data.switches.map((one) => {
      const box = document.createElement("span");
      box.className = "options";
      for (const [value, text] of one.options) {
        const button = document.createElement("button");
        button.textContent = text;
        button.dataset.key = one.key;
        button.dataset.value = value;
        button.onclick = () => {
          state[one.key] = value;
          refresh();
        };
        box.append(button);
      }
      const group = document.createElement("span");
      group.className = "group";
      group.append(one.title, box);
      return group;
    }));
  }

  function refresh() {
    document.querySelectorAll(".chip").forEach((chip, i) => {
      chip.setAttribute("aria-pressed", String(!state.hidden.has(data.arms[i].label)));
    });
    document.querySelectorAll(".options button").forEach((button) => {
      const { key, value } = button.dataset;
      button.setAttribute("aria-pressed", String(state[key] === value));
    });
    for (const where of [".chip .mark", "td .mark"]) {
      document.querySelectorAll(where).forEach((mark, i) => {
        mark.innerHTML = swatch(data.arms[i % data.arms.length]);  // each table has all of them
      });
    }
    panels.forEach(draw);
    document.querySelectorAll(".plot[data-partition]").forEach(drawPartition);
  }

  document.querySelectorAll(".copy").forEach((copy) => {
    copy.onclick = async () => {
      const text = copy.previousElementSibling;
      try {
        await navigator.clipboard.writeText(text.textContent);
        copy.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(text);
      }
    };
  });
  dark.addEventListener("change", refresh);
  makeLegend();
  makeSwitches();
  refresh();
})();
