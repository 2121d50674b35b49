// The live page: asks for the list of runs every other second, and for more only if it has changed.

const byId = (id) => document.getElementById(id);
const EVERY = 2000; // milliseconds between looks while a run is going on
const RARELY = 5000; // and while none is
let runs = [];
let listTag = "";
let chosen = []; // names of the selected runs, in the order of selection: it gives the colours
let picked = false; // whether the reader has chosen
let drawn = "";

const usual = { ...state };
const SWITCHES = ["x", "model", "accuracy", "lines", "smooth", "scale", "group"];

// What is selected lies in the address, so that it outlives a reload.
function readHash() {
  const asked = new URLSearchParams(location.hash.slice(1));
  for (const key of SWITCHES) state[key] = asked.get(key) ?? usual[key];
  chosen = [...new Set(asked.getAll("run"))];
  picked = asked.has("run");
}

function writeHash() {
  const asked = new URLSearchParams(chosen.map((name) => ["run", name]));
  for (const key of SWITCHES) if (state[key] !== usual[key]) asked.set(key, state[key]);
  history.replaceState(null, "", `#${asked}`);
  byId("save").href = `/report.html?${query()}`;
}

const query = () => new URLSearchParams(chosen.map((name) => ["run", name]));

function age(seconds) {
  for (const [unit, name] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= unit) return `${Math.floor(seconds / unit)} ${name} ago`;
  }
  return seconds < 5 ? "now" : `${Math.floor(seconds)} s ago`;
}

// Rounds done are a mean over trials: as a share of all, where some are done and others not begun.
function progress(run) {
  const share = Math.floor((100 * run.done) / Math.max(run.rounds, 1));
  return run.done < run.rounds ? `${run.trials}, ${share} %` : `${run.trials}, ${run.rounds} rounds`;
}

function card(run) {
  const box = element("input");
  box.type = "checkbox";
  box.checked = chosen.includes(run.name);
  box.onchange = () => {
    chosen = chosen.filter((name) => name !== run.name);
    if (box.checked) chosen.push(run.name);
    picked = true;
    update();
  };
  const label = element("label", "", box, element("span", "name", run.name));
  label.append(element("span", "state", run.process ? `${run.state} (pid ${run.process})` : run.state));
  if (run.error) {
    label.append(element("span", "about", run.error));
  } else {
    const bar = element("span");
    bar.style.width = `${run.rounds > 0 ? Math.min(100, (100 * run.done) / run.rounds) : 0}%`;
    const best = element("b", "", run.best ?? "–");
    const ago = element("span", "ago");
    ago.dataset.since = run.modified;
    label.append(
      element("span", "about", run.about),
      element("span", "track", bar),
      element("span", "numbers", element("span", "", progress(run)), ago),
      element("span", "numbers", element("span", "", "best ", best), element("span", "", run.left)),
    );
  }
  const made = element("li", `run ${run.state}`, label);
  made.title = run.error || [run.data, run.partition].filter(Boolean).join("\n");
  made.dataset.name = run.name;
  return made;
}

// The cards that are as they were stay in place: whoever has the focus keeps it.
function showList() {
  const there = new Map([...byId("runs").children].map((made) => [made.dataset.name, made]));
  const cards = runs.map((run) => {
    const text = JSON.stringify([run, chosen.includes(run.name)]);
    const old = there.get(run.name);
    if (old && old.text === text) return old;
    const made = card(run);
    made.text = text;
    const focused = old && old.contains(document.activeElement);
    if (old) old.replaceWith(made);
    if (focused) made.querySelector("input").focus();
    return made;
  });
  const order = [...byId("runs").children];
  if (cards.length !== order.length || cards.some((made, i) => made !== order[i])) {
    byId("runs").replaceChildren(...cards);
  }
  byId("filter").hidden = runs.length < 8;
  filter();
  const live = runs.filter((run) => run.state === "running").length;
  say(`${runs.length} run${runs.length === 1 ? "" : "s"}, ${live} running`, live ? "live" : "");
}

function say(text, kind) {
  byId("pulse").className = `pulse ${kind}`;
  if (byId("pulse").textContent !== text) byId("pulse").textContent = text; // or it is read out anew
}

function filter() {
  const wanted = byId("filter").value.toLowerCase();
  for (const made of byId("runs").children) {
    made.hidden = !made.textContent.toLowerCase().includes(wanted);
  }
}

function showAges() {
  for (const ago of document.querySelectorAll(".ago")) {
    const text = age(Date.now() / 1000 - ago.dataset.since);
    if (ago.textContent !== text) ago.textContent = text;
  }
}

async function ask(path, tag = "") {
  const answer = await fetch(path, { cache: "no-store", headers: tag ? { "If-None-Match": tag } : {} });
  if (!answer.ok && answer.status !== 304) throw new Error(await answer.text());
  return answer;
}

async function showView() {
  const known = new Map(runs.map((run) => [run.name, run]));
  const wanted = JSON.stringify(chosen.map((name) => [name, known.get(name)?.version]));
  if (wanted === drawn) return;
  const asked = query().toString();
  const view = chosen.length ? await (await ask(`/view?${asked}`)).json() : null;
  if (asked !== query().toString()) return; // the reader chose anew meanwhile
  drawn = wanted;
  byId("view").hidden = view === null;
  byId("blank").hidden = view !== null;
  byId("blank").textContent = blank(known);
  if (view === null) return;
  for (const [name, html] of Object.entries(view.parts)) {
    keep(document.querySelector(`[data-part="${name}"]`), html, (place) => {
      place.querySelectorAll(".plot").forEach((panel) => nearness.unobserve(panel));
      place.querySelectorAll(".js-plotly-plot").forEach((panel) => Plotly.purge(panel));
      place.innerHTML = html; // escaped by those who made it
    });
  }
  data = view.data;
  document.title = `${document.querySelector("h1").textContent} · undrift`;
  mount();
}

function blank(known) {
  if (!runs.length) return "There are no runs in this folder yet.\n`undrift compare` makes one.";
  if (!chosen.length) return "Choose one run or several.";
  const errors = chosen.map((name) => (known.has(name) ? known.get(name).error : `${name}: there is no such run`));
  return errors.filter(Boolean).join("\n") || "No round has been evaluated yet.";
}

async function update() {
  showList();
  showAges();
  writeHash();
  await showView();
}

async function look() {
  const answer = await ask("/runs", listTag);
  if (answer.status === 304) {
    showAges();
    return;
  }
  runs = await answer.json();
  listTag = answer.headers.get("ETag");
  if (!picked) chosen = runs.filter((run) => run.state !== "broken").slice(0, 1).map((run) => run.name);
  await update();
}

// However long an answer takes, most of the time is left to the runs themselves.
async function watch() {
  const start = performance.now();
  let rest = EVERY;
  try {
    if (!document.hidden) await look();
    if (!runs.some((run) => run.state === "running")) rest = RARELY;
  } catch (error) {
    const gone = error instanceof TypeError;
    say(gone ? "No answer: is `undrift watch` still running?" : error.message, "lost");
    listTag = "";
    drawn = "";
  }
  setTimeout(watch, Math.max(rest, 9 * (performance.now() - start)));
}

byId("filter").oninput = filter;
afterRefresh.push(writeHash);
window.addEventListener("hashchange", () => {
  readHash();
  drawn = "";
  update();
});
readHash();
watch();
