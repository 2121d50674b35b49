// Controls: the legend, the switches, and drawing everything anew when one of them changes.

const DRAW = {
  curves: drawCurves, heat: drawHeat, fan: drawFan, spread: drawSpread, partition: drawPartition,
};

function swatch(arm) {
  const dash = arm.dash === "solid" ? "" : arm.dash.replace(/px/g, "");
  return `<svg class="swatch" width="28" height="4" aria-hidden="true"><line x1="0" y1="2" x2="28" y2="2" stroke="${colour(arm)}" stroke-width="3" stroke-dasharray="${dash}"/></svg>`;
}

function element(tag, className = "", ...children) {
  const made = document.createElement(tag);
  made.className = className;
  made.append(...children);
  return made;
}

function legendChip(arm, place) {
  const mark = element("span", "mark");
  mark.dataset.arm = place;
  const chip = element("button", "chip", mark, arm.label);
  chip.type = "button";
  chip.title = `${arm.name}\nClick to hide or show, double-click to see it alone.`;
  chip.dataset.label = arm.label;
  chip.onclick = () => {
    if (!state.hidden.delete(arm.label)) state.hidden.add(arm.label);
    refresh();
  };
  chip.ondblclick = () => {
    const alone = shown().length === 1 && shown()[0].label === arm.label;
    const others = data.arms.map((one) => one.label).filter((label) => label !== arm.label);
    state.hidden = new Set(alone ? [] : others);
    refresh();
  };
  return chip;
}

function optionSwitch({ key, title, options }) {
  const box = element("span", "options", ...options.map(([value, text]) => {
    const button = element("button", "", text);
    button.type = "button";
    Object.assign(button.dataset, { key, value });
    button.onclick = () => choose(key, value);
    return button;
  }));
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", title);
  return element("span", "group", title, box);
}

function choose(key, value) {
  state[key] = value;
  refresh();
}

// Put into a place what is not there yet, so that focus and zoom outlive new data.
function keep(place, text, make) {
  if (place.made === text) return;
  place.made = text;
  make(place);
}

function mount() {
  const names = data.arms.map(({ name, label }) => [name, label]);
  keep(document.getElementById("legend"), JSON.stringify(names), (place) =>
    place.replaceChildren(...data.arms.map(legendChip)));
  keep(document.getElementById("switches"), JSON.stringify(data.switches), (place) =>
    place.replaceChildren(...data.switches.map(optionSwitch)));
  if (!(state.x in data.axes)) state.x = "round";
  for (const one of data.switches) {
    const known = one.options.map(([value]) => value);
    if (!known.includes(state[one.key])) state[one.key] = known[0];
  }
  if (!data.arms.some((arm) => arm.groups.includes(state.group))) state.group = "";
  refresh();
}

function draw(panel) {
  DRAW[panel.dataset.kind](panel);
  panel.stale = false;
}

// Plots are drawn when the reader gets near them: a page has dozens, and may change every second.
const nearness = new IntersectionObserver((changes) => {
  for (const { target, isIntersecting } of changes) {
    target.near = isIntersecting;
    if (target.near && target.stale) draw(target);
  }
}, { rootMargin: "300px" });

const afterRefresh = [];

function refresh() {
  for (const chip of document.querySelectorAll(".chip")) {
    chip.setAttribute("aria-pressed", String(!state.hidden.has(chip.dataset.label)));
  }
  for (const button of document.querySelectorAll(".options button")) {
    const { key, value } = button.dataset;
    button.setAttribute("aria-pressed", String(state[key] === value));
  }
  for (const choice of document.querySelectorAll("select[data-key]")) {
    choice.value = state[choice.dataset.key];
  }
  for (const mark of document.querySelectorAll(".mark[data-arm]")) {
    mark.innerHTML = swatch(data.arms[mark.dataset.arm]);
  }
  for (const own of document.querySelectorAll("[data-owner]")) {
    own.hidden = state.hidden.has(data.arms[own.dataset.owner].label);
  }
  document.querySelectorAll(".clients").forEach(drawClients);
  for (const panel of document.querySelectorAll(".plot")) {
    panel.stale = true;
    if (panel.near) draw(panel);
    else nearness.observe(panel);
  }
  afterRefresh.forEach((call) => call());
}

document.addEventListener("change", ({ target }) => {
  if (target.matches("select[data-key]")) choose(target.dataset.key, target.value);
});

document.addEventListener("click", async ({ target }) => {
  if (!target.matches(".copy")) return;
  const text = target.previousElementSibling;
  try {
    await navigator.clipboard.writeText(text.textContent);
    target.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(text);
  }
});

dark.addEventListener("change", refresh);
window.addEventListener("beforeprint", () => {
  [...document.querySelectorAll(".plot")].filter((panel) => panel.stale).forEach(draw);
});
