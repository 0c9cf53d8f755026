// A cluster as a picture: the head and the worker groups, every Pod a cell.

import { button, h } from "./dom.js";
import { age, moment, plural } from "./format.js";
import { request } from "./server.js";
import { toast } from "./dom.js";
import { whyNot } from "./actions.js";
import { logCard } from "./log.js";
import { terminalCard } from "./terminal.js";

/** What the states of a Pod look like; the shape says what the colour says. */
const CELLS = {
  ready: { shape: "✓", words: "ready" },
  starting: { shape: "◐", words: "starting" },
  failed: { shape: "!", words: "failing" },
  leaving: { shape: "−", words: "going away" },
  done: { shape: "·", words: "finished" },
  missing: { shape: "", words: "not there yet" },
};
const MAX_CELLS = 1500;

export function podState(pod) {
  if (pod.deleting) return "leaving";
  if (pod.phase === "Succeeded") return "done";
  const bad = /BackOff|Err|Invalid|OOMKilled|Failed|CreateContainer/;
  if (pod.phase === "Failed" || [...pod.init, ...pod.containers].some((one) => one.state?.is === "waiting" && bad.test(one.state.reason || ""))) return "failed";
  if (pod.ready) return "ready";
  if (pod.containers.some((one) => one.state?.is === "terminated" && one.state.exit !== 0)) return "failed";
  return "starting";
}

/** Why a Pod is not ready, in one sentence. */
export function podReason(pod) {
  for (const one of [...pod.init, ...pod.containers]) {
    const state = one.state;
    if (state?.is === "waiting" && state.reason) return `${one.name}: ${state.reason}${state.message ? `: ${state.message}` : ""}`;
    if (state?.is === "terminated" && state.exit !== 0) return `${one.name} ended with exit code ${state.exit}${state.reason ? ` (${state.reason})` : ""}`;
  }
  return pod.reason || pod.message || "";
}

function cell(pod, marked, local, update) {
  const state = podState(pod);
  const why = podReason(pod);
  const isSelected = local.selected === pod.name;
  return h("button", {
    key: pod.name, type: "button", class: `cell ${state}${isSelected ? " selected" : ""}${marked ? " marked" : ""}`, "aria-pressed": String(isSelected),
    "aria-label": `Pod ${pod.name}, ${CELLS[state].words}${marked ? ", the autoscaler asks to remove it" : ""}`, title: `${pod.name}\n${CELLS[state].words}${why ? `\n${why}` : ""}`,
    onclick: () => {
      local.selected = isSelected ? null : pod.name;
      local.panel = null;
      update();
    },
  }, h("span", { "aria-hidden": "true" }, CELLS[state].shape));
}

function missing(count) {
  return Array.from({ length: Math.max(0, Math.min(count, MAX_CELLS)) }, (_, index) => h("span", { key: `missing ${index}`, class: "cell missing", title: "not there yet" }));
}

/** Draws the head and the groups of a cluster. */
export function picture(cluster, pods, local, update) {
  const spec = cluster.spec || {};
  const heads = pods.filter((pod) => pod.type === "head");
  const known = new Set((spec.workerGroupSpecs || []).map((group) => group.groupName));
  const orphans = pods.filter((pod) => pod.type === "worker" && !known.has(pod.group));
  const isSuspended = spec.suspend === true;
  return h("div", { class: "picture", role: "group", "aria-label": "Pods of the cluster" },
    h("section", { class: "group head" }, h("header", null, h("h3", null, "Head"), h("span", { class: "figure" }, `${heads.filter((pod) => podState(pod) === "ready").length}/${isSuspended ? 0 : 1}`)),
      h("div", { class: "cells" }, heads.map((pod) => cell(pod, false, local, update)), missing(isSuspended ? 0 : 1 - heads.length))),
    (spec.workerGroupSpecs || []).map((group) => workerGroup(group, pods.filter((pod) => pod.type === "worker" && pod.group === group.groupName), spec, local, update)),
    orphans.length > 0 && h("section", { class: "group" }, h("header", null, h("h3", null, "Of no group")), h("div", { class: "cells" }, orphans.map((pod) => cell(pod, false, local, update)))));
}

function workerGroup(group, pods, spec, local, update) {
  const hosts = group.numOfHosts || 1;
  const isSuspended = spec.suspend === true || group.suspend === true;
  const replicas = isSuspended ? 0 : group.replicas ?? group.minReplicas ?? 0;
  const desired = replicas * hosts;
  const ready = pods.filter((pod) => podState(pod) === "ready").length;
  const marked = new Set(group.scaleStrategy?.workersToDelete || []);
  const present = pods.filter((pod) => podState(pod) !== "leaving").length;
  const shown = pods.slice(0, MAX_CELLS);
  const scales = spec.enableInTreeAutoscaling;
  return h("section", { class: "group", key: `group ${group.groupName}` },
    h("header", null, h("h3", null, group.groupName), h("span", { class: "figure", title: "ready of desired" }, `${ready}/${desired}`)),
    h("div", { class: "meter", role: "img", "aria-label": `${ready} of ${desired} Pods are ready` }, h("span", { style: { width: `${desired ? Math.min(100, (100 * ready) / desired) : 100}%` } })),
    hosts > 1 ? blocks(shown, replicas, hosts, marked, local, update) : h("div", { class: "cells" }, shown.map((pod) => cell(pod, marked.has(pod.name), local, update)), missing(desired - present)),
    pods.length > shown.length && h("p", { class: "muted" }, `and ${plural(pods.length - shown.length, "more Pod")}`),
    h("footer", null,
      hosts > 1 && h("span", null, `${plural(replicas, "replica")} of ${plural(hosts, "host")}`),
      h("span", null, `${group.minReplicas ?? 0} to ${group.maxReplicas >= 2147483647 || group.maxReplicas === undefined ? "any number" : group.maxReplicas}`),
      isSuspended && h("span", null, "suspended"),
      scales && h("span", { class: "wish" }, `autoscaler wants ${replicas}${marked.size ? `, and ${plural(marked.size, "Pod")} gone` : ""}`),
      template(group)));
}

function template(group) {
  const requests = group.template?.spec?.containers?.[0]?.resources?.requests || group.template?.spec?.containers?.[0]?.resources?.limits;
  if (!requests) return null;
  return h("span", { class: "muted" }, Object.entries(requests).map(([name, value]) => `${value} ${name}`).join(", "));
}

/** Replicas of several hosts: one block each, which works only as a whole. */
function blocks(pods, replicas, hosts, marked, local, update) {
  const byReplica = new Map();
  for (const pod of pods) {
    const name = pod.replica || "unnamed";
    if (!byReplica.has(name)) byReplica.set(name, []);
    byReplica.get(name).push(pod);
  }
  const list = [...byReplica].sort(([a], [b]) => (a < b ? -1 : 1));
  const empty = Math.max(0, Math.min(replicas - list.length, 200));
  return h("div", { class: "blocks" },
    list.map(([name, members]) => h("div", { key: name, class: "block", role: "group", "aria-label": `Replica ${name}, ${members.filter((pod) => pod.ready).length} of ${hosts} hosts ready`, title: name },
      members.sort((a, b) => Number(a.host) - Number(b.host)).map((pod) => cell(pod, marked.has(pod.name), local, update)), missing(hosts - members.length))),
    Array.from({ length: empty }, (_, index) => h("div", { key: `empty ${index}`, class: "block empty" }, missing(hosts))));
}

function legend() {
  return h("div", { class: "legend", "aria-hidden": "true" }, Object.entries(CELLS).map(([name, { shape, words }]) => h("span", null, h("span", { class: `cell small ${name}` }, shape), words)));
}

/** What is known about the Pod that is selected. */
export function podPanel(model, local, update) {
  const pod = local.selected && model.parts.pod.get(local.selected);
  if (!pod) return null;
  const { namespace } = model.name;
  const all = [...pod.init, ...pod.containers];
  const chosen = all.find((one) => one.name === local.container) || pod.containers[0];
  const container = chosen?.name;
  // A container that was never restarted has one log.
  const panel = local.panel === "previous" && !chosen?.restarts ? "log" : local.panel;
  const show = (wanted) => () => {
    local.panel = panel === wanted ? null : wanted;
    update();
  };
  const why = podReason(pod);
  return h("section", { class: "card pod", key: `pod ${pod.name}` },
    h("header", { class: "card-head" }, h("h2", null, pod.name), h("span", { class: `cell small ${podState(pod)}` }, CELLS[podState(pod)].shape), h("span", null, CELLS[podState(pod)].words), h("span", { class: "space" }),
      button({ "aria-pressed": String(panel === "log"), onclick: show("log"), why: whyNot(namespace, "logs") }, "Log"),
      chosen?.restarts > 0 && button({ "aria-pressed": String(panel === "previous"), onclick: show("previous"), why: whyNot(namespace, "logs") }, "Log before the restart"),
      button({ "aria-pressed": String(panel === "terminal"), onclick: show("terminal"), why: whyNot(namespace, "exec") }, "Terminal"),
      h("button", { type: "button", "aria-label": "Close", onclick: () => {
        local.selected = null;
        update();
      } }, "×")),
    h("dl", { class: "facts" },
      h("dt", null, "Phase"), h("dd", null, pod.phase || "none"),
      pod.node && [h("dt", null, "Node"), h("dd", null, pod.node)],
      pod.ip && [h("dt", null, "Address"), h("dd", null, pod.ip)],
      h("dt", null, "Age"), h("dd", { title: moment(pod.created) }, age(pod.created)),
      pod.requests && [h("dt", null, "Asks for"), h("dd", null, Object.entries(pod.requests).map(([name, value]) => `${value} ${name}`).join(", "))]),
    why && h("p", { class: "notice bad" }, why),
    h("ul", { class: "plain-list containers" }, all.map((one) => h("li", null,
      h("button", { type: "button", class: "plain", "aria-pressed": String(container === one.name), onclick: () => {
        local.container = one.name;
        update();
      } }, one.name),
      h("span", null, one.state?.is || "unknown", one.state?.reason ? `: ${one.state.reason}` : "", one.state?.exit !== undefined ? `, exit code ${one.state.exit}` : ""),
      one.restarts > 0 && h("span", { class: "muted" }, plural(one.restarts, "restart")),
      one.last && h("span", { class: "muted" }, `ended before by ${one.last.reason || "exit"} (${one.last.exit})`)))),
    panel === "log" && logCard(`${pod.name} ${container}`, { log: { namespace, pod: pod.name, container } }, `${pod.name}, ${container}`),
    panel === "previous" && logCard(`${pod.name} ${container} before ${chosen?.restarts}`, { log: { namespace, pod: pod.name, container, previous: true } }, `${pod.name}, ${container}, before its restart`),
    panel === "terminal" && terminalCard(namespace, pod.name, container));
}

/** A button that opens Ray's own dashboard, under an origin of its own. */
export function dashboardButton(namespace, cluster, isReady) {
  const why = notHere() || whyNot(namespace, "dashboard") || (isReady ? null : "The head is not ready");
  return button({ class: "dashboard", why, onclick: () => openDashboard(namespace, cluster) }, "Ray dashboard ↗");
}

/** The names of dashboards lead to the viewer's own machine, so the page must be reached by a name that does, too. */
function notHere() {
  const isLoopback = /^(localhost|.*\.localhost|127\.0\.0\.1|\[::1\])$/.test(location.hostname);
  return isLoopback ? null : "Ray's dashboard can be opened only where this page is served on loopback; use manta open";
}

async function openDashboard(namespace, cluster) {
  // Opened before the request, because browsers allow it in reply to a click only.
  const tab = open("", "_blank");
  try {
    const { host } = await request("/api/dashboard", { namespace, cluster });
    const address = `${location.protocol}//${host}:${location.port}/`;
    if (tab) {
      tab.opener = null;
      tab.location = address;
    } else toast(`The browser opened no tab; the dashboard is at ${address}`);
  } catch (error) {
    tab?.close();
    toast(error.message, "bad");
  }
}

export function clusterView(model, local, update) {
  const cluster = model.object;
  const pods = model.pods();
  const head = pods.find((pod) => pod.type === "head");
  return [
    h("section", { class: "card", key: "picture" },
      h("header", { class: "card-head" }, h("h2", null, "Pods"), legend(), h("span", { class: "space" }), dashboardButton(model.name.namespace, model.name.name, head?.ready)),
      model.failed.pod && h("p", { class: "notice bad" }, model.failed.pod),
      picture(cluster, pods, local, update)),
    podPanel(model, local, update),
  ];
}
