// The overview: every cluster, job, service and cron job, over all namespaces.

import { announce, h, perFrame, render, toast } from "./dom.js";
import { age, bytes, moment, number, plural } from "./format.js";
import { forgetShortcut, openDialog, shortcut } from "./keys.js";
import { request } from "./server.js";
import { currentScope, kinds, onRows, rows, setScope } from "./store.js";
import { Table } from "./table.js";

export const KINDS = [
  { kind: "RayCluster", one: "cluster", many: "Clusters" },
  { kind: "RayJob", one: "job", many: "Jobs" },
  { kind: "RayService", one: "service", many: "Services" },
  { kind: "RayCronJob", one: "cron job", many: "Cron jobs" },
];

/** What each health is called, and its shape: nobody needs to tell colours apart. */
export const HEALTH = {
  bad: { words: "Needs attention", shape: "▲" },
  working: { words: "On its way", shape: "◐" },
  good: { words: "Well", shape: "●" },
  done: { words: "Done", shape: "✓" },
  idle: { words: "Suspended", shape: "■" },
};

const ORDER = Object.keys(HEALTH);

/** Describes the state of an object as shape, colour and words. */
export function pill(health, state, title) {
  return h("span", { class: `pill ${health}`, title: title || HEALTH[health]?.words },
    h("span", { class: "shape", "aria-hidden": "true" }, HEALTH[health]?.shape || "○"), h("span", { class: "state" }, state));
}

export function address(row) {
  return `#/${row.kind}/${encodeURIComponent(row.namespace)}/${encodeURIComponent(row.name)}`;
}

const shortKind = { RayCluster: "Cluster", RayJob: "Job", RayService: "Service", RayCronJob: "Cron job" };

function ownerWords(owner) {
  const [kind, name] = (owner || "").split("/");
  return name ? `${shortKind[kind] || kind} ${name}` : "";
}

const columns = [
  { name: "name", title: "Name", sort: (row) => row.sortName, cell: (row) => [h("span", { class: "name" }, row.name), h("span", { class: "where" }, h("span", { class: "kind" }, `${shortKind[row.kind]} in `), h("span", { class: "namespace" }, row.namespace))] },
  { name: "kind", title: "Kind", sort: (row) => row.kind + row.sortName, cell: (row) => shortKind[row.kind] },
  { name: "state", title: "State", sort: (row) => ORDER.indexOf(row.health) + row.state + row.sortName, cell: (row) => [pill(row.health, row.state), row.why && h("span", { class: "why", title: row.why }, row.why)] },
  { name: "workers", title: "Workers", sort: (row) => row.workers?.[1] ?? -1, cell: (row) => (row.workers ? `${row.workers[0]}/${row.workers[1]}` : "") },
  { name: "cpu", title: "CPU", sort: (row) => row.cpu ?? -1, cell: (row) => (row.cpu ? number(row.cpu) : "") },
  { name: "memory", title: "Memory", sort: (row) => row.memory ?? -1, cell: (row) => bytes(row.memory) },
  { name: "gpu", title: "GPU", sort: (row) => row.gpu ?? -1, cell: (row) => (row.gpu ? number(row.gpu) : "") },
  { name: "owner", title: "Owner", sort: (row) => row.owner || "\uffff", cell: (row) => ownerWords(row.owner) },
  { name: "age", title: "Age", sort: (row) => -row.createdAt, cell: (row) => h("span", { title: moment(row.created) }, age(row.created)) },
];

// Survives a look at an object.
const state = { text: "", kind: "", health: "", sort: { name: "name", down: false } };
let table = null;
let shown = [];

/** Shows the overview in an element; returns a function that ends it. */
export function overview(element, go) {
  table = new Table({ columns, label: "Ray objects", href: address, open: (row) => go(address(row)) });
  table.onSort = (column) => {
    state.sort = { name: column.name, down: state.sort.name === column.name && !state.sort.down };
    update();
  };
  const update = perFrame(() => {
    if (!element.isConnected) return;
    select();
    render(element, view(update));
    table.show(shown, state.sort);
  });
  setScope(currentScope());
  const stopRows = onRows(update);
  const ticking = setInterval(() => table.draw(), 1000);
  shortcut("/", "search", () => element.querySelector("#search")?.focus());
  const move = (by) => {
    say(table.move(by));
    // Enter opens the row then, and does not press the button that had the focus.
    table.scroller.focus({ preventScroll: true });
  };
  shortcut("j", "next row", () => move(1));
  shortcut("k", "previous row", () => move(-1));
  shortcut("Enter", "open the row", () => table.openSelected());
  update();
  return () => {
    stopRows();
    clearInterval(ticking);
    for (const keys of ["/", "j", "k", "Enter"]) forgetShortcut(keys);
  };
}

function say(row) {
  if (row) announce(`${shortKind[row.kind]} ${row.name} in ${row.namespace}, ${row.state}`);
}

/** Chooses and sorts the rows to show. */
function select() {
  const terms = state.text.toLowerCase().split(/\s+/).filter(Boolean);
  const column = columns.find((column) => column.name === state.sort.name);
  const matching = [];
  for (const row of rows.values()) {
    if (state.kind && row.kind !== state.kind) continue;
    if (state.health && row.health !== state.health) continue;
    if (!terms.every((term) => row.text.includes(term))) continue;
    matching.push([column.sort(row), row]);
  }
  const sign = state.sort.down ? -1 : 1;
  matching.sort(([a, left], [b, right]) => (a < b ? -sign : a > b ? sign : left.sortName < right.sortName ? -1 : 1));
  shown = matching.map(([, row]) => row);
}

function view(update) {
  const counts = {};
  for (const row of rows.values()) {
    counts[row.kind] ??= { all: 0 };
    counts[row.kind].all++;
    counts[row.kind][row.health] = (counts[row.kind][row.health] || 0) + 1;
  }
  const total = (health) => KINDS.reduce((sum, { kind }) => sum + (!state.kind || state.kind === kind ? counts[kind]?.[health] || 0 : 0), 0);
  const choose = (name, value) => () => {
    state[name] = state[name] === value ? "" : value;
    update();
  };
  // What cannot be read is not waited for; the notice says so.
  const isLoading = [...kinds.values()].filter(({ ready, problem }) => ready || problem).length < KINDS.length;
  return h("div", { class: "overview" },
    h("h1", { class: "unseen" }, "Overview"),
    h("div", { class: "tiles", key: "tiles" }, KINDS.map(({ kind, many }) => tile(kind, many, counts[kind] || { all: isUnknown(kind) ? "?" : 0 }, choose("kind", kind)))),
    problems(),
    h("div", { class: "toolbar", key: "toolbar" },
      h("input", {
        id: "search", type: "search", placeholder: "Search by name, namespace, state, owner", "aria-label": "Search", autocomplete: "off", spellcheck: "false", value: state.text,
        oninput: (event) => {
          state.text = event.target.value;
          update();
        },
        onkeydown: (event) => {
          if (event.key === "Enter") {
            table.move(0);
            table.scroller.focus();
          }
        },
      }),
      h("div", { class: "chips", role: "group", "aria-label": "Filter by state" },
        ORDER.map((health) => h("button", { type: "button", class: `chip ${health}`, "aria-pressed": String(state.health === health), onclick: choose("health", health) },
          h("span", { class: "shape", "aria-hidden": "true" }, HEALTH[health].shape), HEALTH[health].words, h("span", { class: "count" }, total(health))))),
      h("button", { type: "button", class: "chip", "aria-haspopup": "dialog", onclick: showGone }, "Gone…"),
      h("span", { class: "total" }, isLoading ? "Loading…" : shown.length === rows.size ? plural(rows.size, "object") : `${shown.length} of ${rows.size}`)),
    table.view(),
    !shown.length && !isLoading && h("p", { class: "empty", key: "empty" }, rows.size ? "Nothing matches." : "Nothing runs here yet. Press n to create something."));
}

/** Lists what the operator has recorded about objects that ended or were deleted. */
async function showGone() {
  try {
    const records = await request("/api/records", { namespace: currentScope() });
    const close = () => dialog.close();
    const dialog = openDialog("Gone, and remembered", records.length ? h("ul", { class: "plain-list gone" }, records.slice(0, 200).map((record) => h("li", null,
      h("a", { href: address(record), onclick: close }, `${record.kind} ${record.namespace}/${record.name}`), h("span", { class: "muted" }, ` ${record.occasion} ${age(record.at)} ago`), h("div", { class: "message" }, record.cause)))) : h("p", null, "The operator has recorded nothing yet."), []);
  } catch (error) {
    toast(error.message, "bad");
  }
}

/** Returns whether nothing of a kind could be read so far. */
function isUnknown(kind) {
  const { ready, problem } = kinds.get(kind) || {};
  return !ready && Boolean(problem);
}

function tile(kind, many, counts, choose) {
  const parts = ORDER.filter((health) => counts[health]);
  return h("button", { type: "button", class: "tile", "aria-pressed": String(state.kind === kind), onclick: choose },
    h("span", { class: "tile-title" }, many), h("span", { class: "tile-count" }, counts.all),
    h("span", { class: "stack", "aria-hidden": "true" }, parts.map((health) => h("span", { class: health, style: { "flex-grow": counts[health] } }))),
    h("span", { class: "tile-parts" }, parts.length ? parts.map((health) => h("span", { class: health }, h("span", { class: "shape", "aria-hidden": "true" }, HEALTH[health].shape), ` ${counts[health]} `, h("span", { class: "unseen" }, HEALTH[health].words))) : isUnknown(kind) ? "cannot be read" : "none"));
}

/** Says what cannot be shown, and offers one namespace to a viewer who may not list all. */
function problems() {
  const failed = KINDS.filter(({ kind }) => kinds.get(kind)?.problem);
  if (!failed.length) return null;
  const reasons = new Set(failed.map(({ kind }) => kinds.get(kind).problem));
  return h("div", { class: "notice bad", role: "alert", key: "problems" },
    h("strong", null, failed.length === KINDS.length ? "Nothing can be read. " : `${failed.map(({ many }) => many).join(", ")} cannot be read. `),
    [...reasons].map((reason) => h("div", null, reason)),
    h("form", { class: "inline", onsubmit: (event) => {
      event.preventDefault();
      setScope(event.target.elements.namespace.value.trim() || null);
    } }, h("label", null, "Look at one namespace ", h("input", { name: "namespace", placeholder: "default", autocomplete: "off" })), h("button", { type: "submit" }, "Show")));
}
