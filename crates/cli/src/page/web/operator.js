// The operator: who leads, how far it is behind, what it has done, and what it is about to do.

import { h, perFrame, render } from "./dom.js";
import { age, clock, duration, moment, plural } from "./format.js";
import { request, watch } from "./server.js";
import { currentScope } from "./store.js";

const CONTROLLERS = { raycluster: "Clusters", rayjob: "Jobs", rayservice: "Services", raycronjob: "Cron jobs" };
/** How many figures the lines show. */
const KEPT = 60;
/** How many changes of the plan are listed. */
const SHOWN = 100;

/** Shows the operator in an element; returns a function that ends it. */
export function operatorView(element) {
  const state = { history: [] };
  const update = perFrame(() => element.isConnected && render(element, view(state, update)));
  const stop = watch({ operator: {} }, (message) => {
    if (message.leader !== undefined) state.leader = message.leader;
    if (message.error !== undefined) state.problem = message.error;
    if (message.figures) {
      state.problem = null;
      state.history.push({ at: Date.now(), ...message.figures });
      state.history = state.history.slice(-KEPT);
    }
    update();
  });
  const ticking = setInterval(update, 1000);
  update();
  return () => {
    stop();
    clearInterval(ticking);
  };
}

async function plan(state, update) {
  state.planning = true;
  update();
  try {
    state.plan = await request("/api/plan", { namespace: currentScope() });
    state.planProblem = null;
  } catch (error) {
    state.planProblem = error.message;
  }
  state.planning = false;
  state.plannedAt = Date.now();
  update();
}

/** Returns the rate of a counter over the last two readings. */
function rate(history, pick) {
  if (history.length < 2) return null;
  const [before, now] = history.slice(-2);
  const seconds = (now.at - before.at) / 1000;
  return seconds > 0 ? Math.max(0, pick(now) - pick(before)) / seconds : null;
}

function line(history, pick, label) {
  const values = history.map(pick).filter((value) => value !== null && value !== undefined);
  if (values.length < 2) return null;
  const max = Math.max(...values, 1e-9);
  const points = values.map((value, index) => `${index ? "L" : "M"}${((120 * index) / (values.length - 1)).toFixed(1)} ${(26 - (24 * value) / max).toFixed(1)}`).join("");
  return h("svg", { class: "spark", viewBox: "0 0 120 28", width: 120, height: 28, role: "img", "aria-label": label }, h("path", { d: points, fill: "none", stroke: "currentColor", "stroke-width": 1.5 }));
}

function figure(title, value, note, spark) {
  return h("div", { class: "tile still", key: title }, h("span", { class: "tile-title" }, title), h("span", { class: "tile-count" }, value ?? "–"), h("span", { class: "tile-parts" }, note), spark);
}

const sum = (values) => Object.values(values || {}).reduce((a, b) => a + b, 0);

function view(state, update) {
  const { history } = state;
  const now = history.at(-1);
  const requests = rate(history, (one) => sum(one.requests));
  const passes = rate(history, (one) => sum(one.passes));
  return h("article", { class: "object" },
    h("header", { class: "object-head" }, h("h1", null, "Operator"),
      h("div", { class: "sub" }, state.leader ? [h("span", null, `Leader: ${state.leader.holder || "none"}`), state.leader.namespace && h("span", null, `in ${state.leader.namespace}`), state.leader.renewed && h("span", { title: moment(state.leader.renewed) }, `renewed ${age(state.leader.renewed)} ago`)] : h("span", null, "Looking for the leader…"))),
    state.problem && h("p", { class: "notice bad", role: "alert" }, state.problem),
    now && h("div", { class: "tiles" },
      figure("Waiting in the queue", sum(now.depth), now.oldest ? `the oldest for ${duration(now.oldest * 1000)}` : "nothing is late", line(history, (one) => sum(one.depth), "Waiting in the queue, over time")),
      figure("Lag of the slowest", now.lag === null ? null : duration(now.lag * 1000), "from a change to its pass", line(history, (one) => one.lag, "Lag, over time")),
      figure("Passes", passes === null ? null : `${passes.toFixed(1)}/s`, `${sum(now.errors)} failed since the start`, line(history, (one) => sum(one.running), "Running passes, over time")),
      figure("Requests", requests === null ? null : `${requests.toFixed(1)}/s`, `${sum(now.refused)} refused since the start`)),
    now && h("section", { class: "card" }, h("h2", null, "Controllers"), h("table", { class: "figures" },
      h("thead", null, h("tr", null, ["Kind", "Waiting", "Running", "Passes", "Failed"].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", null, Object.entries(CONTROLLERS).map(([name, words]) => h("tr", null, h("th", { scope: "row" }, words), [now.depth, now.running, now.passes, now.errors].map((values) => h("td", null, values?.[name] ?? 0))))))),
    planCard(state, update));
}

function planCard(state, update) {
  const { plan: found } = state;
  return h("section", { class: "card" },
    h("header", { class: "card-head" }, h("h2", null, "What it is about to do"), state.plannedAt && h("span", { class: "muted" }, `as of ${clock(state.plannedAt)}`), h("span", { class: "space" }), h("button", { type: "button", disabled: Boolean(state.planning), onclick: () => plan(state, update) }, state.planning ? "Working it out…" : found ? "Work it out again" : "Work it out")),
    !found && !state.planProblem && h("p", { class: "muted" }, "The plan is made for all objects at once, which takes a while for thousands of them."),
    state.planProblem && h("p", { class: "notice" }, state.planProblem),
    found && (found.changes.length ? h("ol", { class: "plain-list" }, found.changes.slice(0, SHOWN).map((change) => h("li", { class: "change" }, h("span", { class: `verb ${change.action}` }, change.action), h("strong", null, `${change.kind} ${change.name}`), h("span", { class: "muted" }, `in ${change.namespace}, for ${change.owner.kind} ${change.owner.name}`), h("div", { class: "message" }, change.reason)))) : h("p", { class: "fine" }, `✓ Nothing. ${plural(found.objects, "object is", "objects are")} as they should be, as far as can be told without asking Ray.`)),
    found?.changes.length > SHOWN && h("p", { class: "muted" }, `and ${plural(found.changes.length - SHOWN, "more change")}; manta plan --all shows all`),
    found && [...found.warnings, ...found.waiting].length > 0 && h("ul", { class: "plain-list" }, [...found.warnings, ...found.waiting].slice(0, SHOWN).map((remark) => h("li", { class: "message" }, `${remark.object.kind} ${remark.object.namespace}/${remark.object.name}: ${remark.message}`))));
}
