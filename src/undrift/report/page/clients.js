// Clients: a table with a column of results for each algorithm, which can be sorted and searched.

const FEW = 30; // clients of which all are shown
const ENDS = 10; // else so many of each end

const QUARTERS = ["Lowest", "Lower quartile", "Median", "Upper quartile", "Highest"];

function cell(tag, className, ...children) {
  const made = element(tag, className, ...children);
  if (tag === "th") made.scope = "col";
  return made;
}

const written = (value, digits) =>
  value === null ? "–" : digits === null ? String(value) : value.toFixed(digits);

function clientColumns({ sizes, columns }) {
  const results = columns.filter(({ arm }) => !state.hidden.has(data.arms[arm].label));
  return [
    ...sizes.map((values, i) => ({ title: ["Trains on", "Measured on"][i], values, digits: null })),
    ...results.map((one) => ({ ...one, title: data.arms[one.arm].label })),
  ];
}

// The places of the clients that fit the search, in the order of the chosen column.
function clientOrder(panel, { clients }, columns) {
  const { by, down } = panel.order;
  const values = by < 0 || by >= columns.length ? null : columns[by].values;
  const wanted = panel.search.value.toLowerCase();
  const found = clients.map((_, i) => i).filter((i) => clients[i].toLowerCase().includes(wanted));
  const compare = (i, j) => {
    if (values === null) return clients[i].localeCompare(clients[j], "en", { numeric: true });
    if (values[i] === null || values[j] === null) return (values[i] === null) - (values[j] === null);
    return values[i] - values[j];
  };
  found.sort(compare);
  return down ? found.reverse() : found;
}

function clientHeading(panel, title, by, { arm, personal }) {
  const button = element("button", "", title);
  button.type = "button";
  button.onclick = () => {
    panel.order = { by, down: panel.order.by === by && !panel.order.down };
    drawClients(panel);
  };
  const head = cell("th", by < 0 ? "text" : "", button);
  if (arm !== undefined) {
    const mark = element("span", "mark");
    mark.innerHTML = swatch(data.arms[arm]);
    button.prepend(mark);
  }
  if (personal) button.append(element("small", "", "after local steps"));
  if (panel.order.by === by) head.setAttribute("aria-sort", panel.order.down ? "descending" : "ascending");
  return head;
}

function drawClients(panel) {
  const table = data.clients[panel.dataset.table];
  const columns = clientColumns(table);
  if (!panel.search) {
    panel.order = { by: columns.findIndex(({ arm }) => arm !== undefined), down: false };
    panel.search = element("input");
    panel.search.type = "search";
    panel.search.placeholder = "Search";
    panel.search.setAttribute("aria-label", "Search clients");
    panel.search.oninput = () => drawClients(panel);
    panel.search.hidden = table.clients.length <= ENDS;
    panel.rows = element("table");
    panel.append(panel.search, element("div", "scroll", panel.rows));
  }
  const order = clientOrder(panel, table, columns);
  const line = (i) => element("tr", "", cell("td", "text", table.clients[i]),
    ...columns.map(({ values, digits }) => cell("td", "", written(values[i], digits))));
  const whole = panel.whole || order.length <= FEW;
  const lines = (whole ? order : order.slice(0, ENDS)).map(line);
  if (!whole) {
    const more = element("button", "", `Show ${order.length - 2 * ENDS} more`);
    more.type = "button";
    more.onclick = () => { panel.whole = true; drawClients(panel); };
    const gap = cell("td", "text", more);
    gap.colSpan = columns.length + 1;
    lines.push(element("tr", "gap", gap), ...order.slice(-ENDS).map(line));
  }
  const ranked = columns.map(({ values }) => values.filter((v) => v !== null).sort((a, b) => a - b));
  const quarters = QUARTERS.map((name, k) => element("tr", "", cell("td", "text", name),
    ...columns.map(({ digits }, c) => cell("td", "",
      ranked[c].length ? written(quantile(ranked[c], k / 4), digits) : "–"))));
  panel.rows.replaceChildren(
    element("thead", "", element("tr", "", clientHeading(panel, "Client", -1, {}),
      ...columns.map((one, i) => clientHeading(panel, one.title, i, one)))),
    element("tbody", "", ...lines),
    element("tfoot", "", ...quarters),
  );
}
