// What is shown, and what the reader chose.
let data = { arms: [], axes: {}, switches: [], target: null, balanced: {}, clients: [], partitions: [] };
const state = {
  x: "round", model: "deployed", accuracy: "plain", lines: "mean", smooth: "none", scale: "auto", group: "",
  hidden: new Set(),
};

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const colour = (arm) => (dark.matches ? arm.dark : arm.colour);
const faded = (hex, alpha) =>
  `rgba(${[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).join(",")},${alpha})`;
// Plotly reads tags and %{...} in its texts; what comes from files is never either.
const codes = { "&": "&amp;", "<": "&lt;", ">": "&gt;", "{": "&#123;" };
const plain = (text) => text.replace(/[&<>{]/g, (sign) => codes[sign]);
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const titled = (text) => ({ text, standoff: 8, font: { size: 13 } });
const shown = () => data.arms.filter((arm) => !state.hidden.has(arm.label));

const config = {
  responsive: true, displaylogo: false,
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]], // none that sends data away
  plotlyServerURL: "", displayModeBar: "hover", toImageButtonOptions: { format: "svg" },
};

function layout({ xaxis, yaxis, ...rest }) {
  const axis = {
    gridcolor: style("--faint"), linecolor: style("--soft"), zeroline: false, automargin: true,
    tickfont: { size: 12 }, showline: false, ticks: "",
  };
  const target = rest.annotations && rest.annotations.length;
  return {
    margin: { l: 56, r: target ? 44 : 16, t: 14, b: 44 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    hovermode: "x unified", hoverdistance: -1,
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: style("--ink") },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: style("--soft"), activecolor: style("--accent") },
    hoverlabel: { bgcolor: style("--card"), bordercolor: style("--faint"), font: { size: 12.5 } },
    xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis }, ...rest,
  };
}

// The x-axis that the reader chose. Its zoom outlives new data, though not another choice.
function chosenAxis() {
  const { title } = data.axes[state.x];
  return {
    title: titled(title), rangemode: "tozero", uirevision: state.x,
    unifiedhovertitle: { text: `${title}: %{x:.4~g}` },
  };
}

// Colours from few to many; with a power above 1, few stand out more.
function shades(power = 1) {
  const colours = dark.matches
    ? [style("--wash"), "#2f6f9f", "#a9dcff"]
    : ["#f7fbff", "#c6dbef", "#6baed6", "#2171b5", "#08306b"];
  return colours.map((one, i) => [(i / (colours.length - 1)) ** power, one]);
}

function quantile(sorted, share) {
  return sorted[Math.round(share * (sorted.length - 1))];
}
