// Actions on an object: disabled, with the reason, where the viewer may not.

import { announce, button, h, toast } from "./dom.js";
import { plural } from "./format.js";
import { openDialog } from "./keys.js";
import { request } from "./server.js";

const RIGHTS_LAST = 60 * 1000;
const rights = new Map();
const waiting = new Set();

/** Calls `listener` when rights have become known. */
export function onRights(listener) {
  waiting.add(listener);
  return () => waiting.delete(listener);
}

/** Returns the viewer's rights in a namespace; none are known at first. */
function rightsIn(namespace) {
  const known = rights.get(namespace);
  if (!known || Date.now() - known.at > RIGHTS_LAST) {
    const entry = { at: Date.now(), list: known?.list || {} };
    rights.set(namespace, entry);
    request("/api/rights", { namespace }).then((list) => {
      entry.list = list;
      for (const listener of waiting) listener();
    }, () => {});
  }
  return rights.get(namespace).list;
}

/** Returns why the viewer may not do something, or null. */
export function whyNot(namespace, name) {
  const right = rightsIn(namespace)[name];
  return right && !right.allowed ? right.why : null;
}

async function act(model, action, done) {
  const { kind, namespace, name } = model.name;
  try {
    const result = await request("/api/act", { kind, namespace, name, uid: model.object.metadata.uid, action });
    toast(done);
    announce(done);
    return result;
  } catch (error) {
    toast(error.message, "bad");
    return null;
  }
}

/** The buttons for everything that can be done to an object. */
export function actionBar(model) {
  const { kind, namespace, name } = model.name;
  const object = model.object;
  const why = whyNot(namespace, `patch ${kind}`);
  const isSuspended = object.spec?.suspend === true;
  const status = object.status?.jobDeploymentStatus;
  const isOver = kind === "RayJob" && ["Complete", "Failed"].includes(status);
  const buttons = [];
  if (kind === "RayCluster" && object.spec?.workerGroupSpecs?.length) {
    buttons.push(button({ key: "scale", why: whyNot(namespace, `update ${kind}`), onclick: () => scaleDialog(model) }, "Scale"));
  }
  if (!isOver) {
    buttons.push(isSuspended
      ? button({ key: "resume", why, onclick: () => act(model, "resume", `${name} will be resumed`) }, "Resume")
      : button({ key: "suspend", why, onclick: () => suspendDialog(model) }, "Suspend"));
  }
  if (isOver) {
    buttons.push(button({ key: "retry", why: whyNot(namespace, `create ${kind}`), onclick: async () => {
      const made = await act(model, "retry", `A new job with the spec of ${name} was created`);
      if (made) location.hash = `#/RayJob/${encodeURIComponent(namespace)}/${encodeURIComponent(made.name)}`;
    } }, "Retry"));
  }
  buttons.push(button({ key: "delete", class: "danger", why: whyNot(namespace, `delete ${kind}`), onclick: () => deleteDialog(model) }, "Delete"));
  return h("div", { class: "actions", role: "group", "aria-label": "Actions" }, buttons);
}

/** What the server takes. */
const MAX_REPLICAS = 65535;

function scaleDialog(model) {
  const groups = model.object.spec.workerGroupSpecs;
  const wanted = new Map(groups.map((group) => [group.groupName, group.replicas ?? group.minReplicas ?? 0]));
  openDialog(`Scale ${model.name.name}`, [
    model.object.spec.enableInTreeAutoscaling && h("p", { class: "notice" }, "The autoscaler of this cluster changes these numbers, too."),
    groups.map((group) => h("label", { class: "field" }, group.groupName, h("input", {
      type: "number", min: group.minReplicas ?? 0, max: group.maxReplicas ?? 2147483647, value: wanted.get(group.groupName), "aria-label": `Replicas of ${group.groupName}`,
      oninput: (event) => wanted.set(group.groupName, event.target.value),
    }), h("span", { class: "muted" }, `${group.minReplicas ?? 0} to ${group.maxReplicas >= 2147483647 || group.maxReplicas === undefined ? "any number" : group.maxReplicas}`))),
  ], [{ words: "Scale", kind: "primary", action: async (close) => {
    const isNumber = ({ groupName }) => /^\d{1,5}$/.test(wanted.get(groupName)) && Number(wanted.get(groupName)) <= MAX_REPLICAS;
    const wrong = groups.find((group) => !isNumber(group));
    if (wrong) return toast(`Worker group ${wrong.groupName} needs a number of replicas: a whole one from 0 to ${MAX_REPLICAS}`, "bad");
    for (const group of groups) {
      const replicas = Number(wanted.get(group.groupName));
      if (replicas === (group.replicas ?? group.minReplicas ?? 0)) continue;
      const done = await act(model, { scale: { group: group.groupName, replicas } }, `${group.groupName} is scaled to ${replicas}`);
      if (!done) return;
    }
    close();
  } }]);
}

/** Lists what goes with an object, by name. */
function consequences(model) {
  const { kind } = model.name;
  const clusters = [...model.parts.cluster.keys()];
  const jobs = [...model.parts.job.keys()];
  const pods = [...model.parts.pod.keys()];
  const parts = [];
  if (jobs.length) parts.push([plural(jobs.length, "job"), jobs]);
  if (clusters.length) parts.push([plural(clusters.length, "cluster"), clusters]);
  if (pods.length) parts.push([plural(pods.length, "Pod"), pods]);
  if (kind === "RayCronJob" && jobs.length) parts.push(["the clusters of these jobs", []]);
  return parts;
}

/** What belongs to an object of each kind. */
const PARTS = { RayCluster: ["pod"], RayJob: ["cluster", "pod"], RayService: ["cluster", "pod"], RayCronJob: ["job"] };
const WORDS = { pod: "Pods", cluster: "clusters", job: "jobs" };

/** Says of what it is not known whether it goes, too. */
function unknown(model) {
  return PARTS[model.name.kind].map((role) => {
    const why = model.failed[role];
    if (why) return h("p", { class: "notice" }, `Its ${WORDS[role]} cannot be read, so not all that goes is listed here: ${why}`);
    return !model.ready.has(role) && h("p", { class: "muted" }, `Its ${WORDS[role]} are still being read…`);
  }).filter(Boolean);
}

function list(parts) {
  const MAX = 12;
  return parts.map(([title, names]) => h("div", { class: "consequence" }, h("strong", null, title), names.length > 0 && h("ul", null, names.slice(0, MAX).map((name) => h("li", null, name)), names.length > MAX && h("li", null, `and ${names.length - MAX} more`))));
}

function suspendDialog(model) {
  const { kind, name } = model.name;
  const pods = [...model.parts.pod.keys()];
  const words = kind === "RayCronJob" ? "No more jobs will be started until it is resumed." : pods.length ? "These Pods will be deleted. Resuming starts new ones, and what ran starts over:" : "Nothing will run until it is resumed.";
  openDialog(`Suspend ${name}?`, [h("p", null, words), kind !== "RayCronJob" && pods.length > 0 && list([[plural(pods.length, "Pod"), pods]])], [
    { words: "Suspend", kind: "primary", action: async (close) => (await act(model, "suspend", `${name} will be suspended`)) && close() },
  ]);
}

function deleteDialog(model) {
  const { kind, namespace, name } = model.name;
  const redis = model.object.spec?.gcsFaultToleranceOptions;
  const content = () => {
    const parts = consequences(model);
    const rest = unknown(model);
    return [
      h("p", null, `From namespace ${namespace}. This cannot be undone.`),
      parts.length ? [h("p", null, "With it goes:"), list(parts)] : !rest.length && h("p", null, "Nothing else goes with it."),
      rest,
      redis && h("p", { class: "notice" }, "Its state in the storage for fault tolerance is cleaned up, too, unless the storage is retained."),
    ];
  };
  model.dialog = openDialog(`Delete ${kind} ${name}?`, content, [{ words: `Delete ${name}`, kind: "danger", action: async (close) => (await act(model, "delete", `${kind} ${name} will be deleted`)) && close() }],
  { closed: () => (model.dialog = null) });
}
