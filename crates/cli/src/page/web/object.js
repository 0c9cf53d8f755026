// One object: what all kinds have in common, around the picture of the kind.

import { h, perFrame, render } from "./dom.js";
import { age, clock, moment, plural } from "./format.js";
import { watch } from "./server.js";
import { address, pill } from "./overview.js";
import { actionBar } from "./actions.js";
import { explainCard } from "./explain.js";
import { clusterView } from "./cluster.js";
import { jobView } from "./job.js";
import { serviceView } from "./service.js";
import { cronJobView } from "./cronjob.js";

const VIEWS = { RayCluster: clusterView, RayJob: jobView, RayService: serviceView, RayCronJob: cronJobView };

/** What is known about one object and its relatives, by role and name. */
export class Model {
  constructor(name) {
    this.name = name;
    this.parts = { object: new Map(), cluster: new Map(), job: new Map(), pod: new Map(), event: new Map() };
    this.ready = new Set();
    this.failed = {};
    this.old = {};
    /** What the overview would show of the object. */
    this.row = null;
  }

  /** Notes that the connection broke. What was known stays until all of its role has been sent anew. */
  lost() {
    this.isLost = true;
    this.ready.clear();
    this.failed = {};
    for (const role in this.parts) this.old[role] = new Set(this.parts[role].keys());
  }

  receive(message) {
    this.isLost = false;
    for (const [role, key, value] of message.put || []) {
      this.parts[role].set(key, value);
      this.old[role]?.delete(key);
    }
    if (message.row) this.row = message.row;
    for (const [role, key] of message.gone || []) this.remove(role, key);
    for (const role of message.ready || []) {
      this.ready.add(role);
      delete this.failed[role];
      for (const key of this.old[role] || []) this.remove(role, key);
      delete this.old[role];
    }
    for (const role of message.recovered || []) delete this.failed[role];
    Object.assign(this.failed, message.failed);
  }

  remove(role, key) {
    // An event is history, and an object that is gone does not undo it.
    if (role === "event") return;
    if (role === "object") this.deleted = this.parts.object.get(key) || this.deleted;
    this.parts[role].delete(key);
    // The Pods of a cluster are not watched any more once it is gone.
    if (role === "cluster") for (const pod of this.pods(key)) this.parts.pod.delete(pod.name);
  }

  /** The object itself; the last known state, if it is deleted. */
  get object() {
    return this.parts.object.get(this.name.name) || this.deleted || null;
  }

  /** Whether the server has said that the object does not exist; a connection that broke says nothing of it. */
  get isDeleted() {
    return !this.parts.object.has(this.name.name) && (Boolean(this.deleted) || this.ready.has("object"));
  }

  pods(cluster) {
    return [...this.parts.pod.values()].filter((pod) => cluster === undefined || pod.cluster === cluster).sort((a, b) => (a.name < b.name ? -1 : 1));
  }
}

/** Shows an object in an element; returns a function that ends it. */
export function objectView(element, name, session) {
  const model = new Model(name);
  const local = { selected: null };
  const update = perFrame(() => {
    if (element.isConnected) render(element, view(model, local, session, update));
    model.dialog?.draw();
  });
  const stop = watch({ object: name }, (message) => {
    model.receive(message);
    update();
  }, () => {
    model.lost();
    update();
  });
  const ticking = setInterval(update, 1000);
  update();
  return () => {
    stop();
    clearInterval(ticking);
    local.close?.();
  };
}

function view(model, local, session, update) {
  const { kind, namespace, name } = model.name;
  const object = model.object;
  const { row } = model;
  const waiting = !object && !model.isDeleted;
  const state = model.isDeleted ? pill("idle", "deleted") : row ? pill(row.health, row.state) : object ? pill("working", "…") : null;
  const owner = object?.metadata.ownerReferences?.find((owner) => owner.controller);
  return h("article", { class: "object" },
    h("header", { class: "object-head" },
      h("div", { class: "crumbs" }, h("a", { href: "#/" }, "Overview"), " / ", kind, " / ", namespace),
      h("div", { class: "title" }, h("h1", null, name), state, object && !model.isDeleted && actionBar(model, session)),
      object && h("div", { class: "sub" },
        h("span", { title: moment(object.metadata.creationTimestamp) }, `${age(object.metadata.creationTimestamp)} old`),
        owner && h("span", null, "belongs to ", link(owner.kind, namespace, owner.name)),
        h("span", null, `generation ${object.metadata.generation ?? 1}`),
        labels(object))),
    model.isLost && h("p", { class: "notice", role: "status" }, "The connection to the server of this page is lost; what follows may be out of date."),
    model.failed.object && h("p", { class: "notice bad", role: "alert" }, model.failed.object),
    waiting && h("p", { class: "empty" }, "Loading…"),
    model.isDeleted && h("p", { class: "notice" }, object ? `This ${kind} was deleted; what follows is its last known state.` : `There is no ${kind} ${name} in namespace ${namespace}. If it existed, its explanation is below.`),
    (object || model.isDeleted) && explainCard(model, local, update),
    object && VIEWS[kind](model, local, update),
    object && h("div", { class: "columns" }, conditions(object), events(model, local, update)),
    object && raw(object, local, update));
}

export function link(kind, namespace, name) {
  if (!VIEWS[kind]) return `${kind} ${name}`;
  return h("a", { href: address({ kind, namespace, name }) }, `${kind} ${name}`);
}

function labels(object) {
  const entries = Object.entries(object.metadata.labels || {}).filter(([key]) => !key.startsWith("ray.io/"));
  return entries.map(([key, value]) => h("span", { class: "label", title: `${key}=${value}` }, `${key}=${value}`));
}

function conditions(object) {
  const list = object.status?.conditions || [];
  return h("section", { class: "card", key: "conditions" }, h("h2", null, "Conditions"),
    list.length ? h("ul", { class: "plain-list" }, list.map((condition) => h("li", { key: condition.type, class: "condition" },
      h("span", { class: `truth ${condition.status}` }, condition.status === "True" ? "✓ " : condition.status === "False" ? "✗ " : "? ", condition.type),
      h("span", { class: "muted", title: moment(condition.lastTransitionTime) }, `${condition.reason || ""} · ${age(condition.lastTransitionTime)}`),
      condition.message && h("span", { class: "message" }, condition.message)))) : h("p", { class: "empty" }, "The status has no conditions."));
}

const SHOWN_EVENTS = 30;

function events(model, local, update) {
  const list = [...model.parts.event.values()].sort((a, b) => (a.time < b.time ? 1 : -1));
  const shown = local.allEvents ? list : list.slice(0, SHOWN_EVENTS);
  return h("section", { class: "card", key: "events" }, h("h2", null, "Events"),
    model.failed.event && h("p", { class: "notice bad" }, model.failed.event),
    shown.length ? h("ol", { class: "plain-list events" }, shown.map((event) => h("li", { class: event.type === "Warning" ? "event warning" : "event" },
      h("time", { datetime: event.time, title: moment(event.time) }, clock(event.time)),
      h("div", null, h("span", { class: "reason" }, event.type === "Warning" ? "▲ " : "", event.reason), event.count > 1 && h("span", { class: "muted" }, ` ×${event.count}`),
        event.kind !== model.name.kind && h("span", { class: "muted" }, ` ${event.kind} ${event.about}`), h("div", { class: "message" }, event.message))))) : h("p", { class: "empty" }, "No events; they expire after an hour."),
    list.length > shown.length && h("button", { type: "button", onclick: () => {
      local.allEvents = true;
      update();
    } }, `Show ${plural(list.length - shown.length, "older event")}`));
}

function raw(object, local, update) {
  return h("details", { class: "card", ontoggle: (event) => {
    local.raw = event.target.open;
    update();
  } }, h("summary", null, "The whole object"), local.raw && h("pre", { class: "raw", tabindex: 0 }, JSON.stringify(object, null, 2)));
}
