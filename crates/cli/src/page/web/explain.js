// Why an object is as it is: the same answer as `manta explain`, also after the object is gone.

import { h } from "./dom.js";
import { clock, moment, plural } from "./format.js";
import { request } from "./server.js";
import { podReason, podState } from "./cluster.js";

const SHOWN = 12;

/** How often it is asked at most, while the object and its Pods change. */
const PAUSE = 5000;
/** How soon it is tried again after a failure. */
const FAILED = 15000;
/** How often, and for how long, the record of a deleted object is asked for: the operator writes it a while after. */
const RETRY = 3000;
const PATIENCE = 60000;

/** Returns what the explanation depends on: the object's state, the states of its Pods, its newest event. */
function stateOf(model) {
  const { row } = model;
  const pods = model.pods().map((pod) => `${pod.name} ${podState(pod)} ${podReason(pod)}`);
  const events = [...model.parts.event.values()].map((event) => `${event.time} ${event.reason} ${event.count}`);
  return [row?.state, row?.health, row?.why, row?.workers, ...pods, events.sort().at(-1)].join("\n");
}

/** Causes that only take their time, as in every start and every upgrade; nobody has to do anything. */
const EXPECTED = new Set([
  "UpgradeWaiting", "PodStarting", "ClusterStarting", "JobStarting", "WaitsForAutoscaler", "WaitsForUser", "ApplicationDeploying", "ApplicationNotRunning", "ServeNotStarted", "BeingDeleted",
]);

/** Returns how an explained object is, with the shape that says the same. */
function look({ isWell, reason }) {
  if (isWell) return ["good", "●"];
  return EXPECTED.has(reason) ? ["working", "◐"] : ["bad", "▲"];
}

function isAwaited(local) {
  return local.isAwaited && Date.now() < local.deletedAt + PATIENCE;
}

/** Asks again when what it depends on has changed. Views are drawn every second, so this is called often enough. */
async function load(model, local, update) {
  const now = Date.now();
  if (local.explaining || now < (local.askAt || 0)) return;
  if (model.isDeleted) local.deletedAt ??= now;
  const key = model.isDeleted ? "deleted" : stateOf(model);
  if (local.explainedAt === key && !isAwaited(local) && !local.unexplained) return;
  local.explaining = true;
  try {
    const explained = await request("/api/explain", model.name);
    // There is no record yet, or there will be none: what was known before is better than nothing.
    if (explained) local.explained = explained;
    local.isAwaited = model.isDeleted && !explained?.recorded;
    local.unexplained = null;
  } catch (error) {
    local.unexplained = error.message;
  }
  local.explainedAt = key;
  local.explaining = false;
  local.askAt = Date.now() + (local.isAwaited ? RETRY : local.unexplained ? FAILED : PAUSE);
  update();
}

export function explainCard(model, local, update) {
  load(model, local, update);
  const { explained } = local;
  if (!explained && model.isDeleted && !local.unexplained && local.explainedAt === "deleted") return h("p", { class: "muted", key: "explain" }, isAwaited(local) ? "The operator's record of it is awaited…" : "The operator has no record of it.");
  if (!explained) return local.unexplained && h("p", { class: "notice", key: "explain" }, local.unexplained);
  const isOld = model.isDeleted && !explained.recorded;
  const { cause, timeline, logs, unreadable } = explained;
  const shown = local.wholeTimeline ? timeline : timeline.slice(-SHOWN);
  const [health, shape] = look(cause);
  return h("section", { class: `card explain ${health}`, key: "explain", "aria-label": "Explanation" },
    h("h2", { class: "cause" }, h("span", { class: "shape", "aria-hidden": "true" }, `${shape} `), cause.summary),
    cause.advice && h("p", null, h("strong", null, "What to do: "), cause.advice),
    explained.recorded && h("p", { class: "muted" }, `It does not exist any more; this is the operator's record of ${moment(explained.recorded)}.`),
    isOld && h("p", { class: "muted" }, `This is from before it was deleted${isAwaited(local) ? "; the operator's record of it is awaited." : ". The operator has recorded nothing since."}`),
    local.unexplained && h("p", { class: "notice", role: "alert" }, `This could not be brought up to date: ${local.unexplained}`),
    h("details", { open: Boolean(local.timelineOpen), ontoggle: (event) => (local.timelineOpen = event.target.open) },
      h("summary", null, `How it came to this: ${plural(timeline.length, "step")}`),
      timeline.length > shown.length && h("button", { type: "button", onclick: () => {
        local.wholeTimeline = true;
        update();
      } }, `Show ${plural(timeline.length - shown.length, "earlier step")}`),
      h("ol", { class: "plain-list events" }, shown.map((entry) => h("li", { class: entry.isWarning ? "event warning" : "event" },
        h("time", { datetime: entry.at, title: moment(entry.at) }, clock(entry.at)),
        h("div", null, h("span", { class: "reason" }, entry.isWarning ? "▲ " : "", entry.object), h("div", { class: "message" }, entry.text))))),
      cause.details && h("pre", { class: "traceback", tabindex: 0 }, cause.details),
      logs.map((log) => [h("h3", null, log.pod ? `Last lines of ${log.name} in ${log.pod}` : `Last lines of the driver ${log.name}`), h("pre", { class: "traceback", tabindex: 0 }, log.lines.slice(-40).join("\n"))]),
      unreadable.length > 0 && [h("h3", null, "Could not be read, so the cause may lie there"), h("ul", null, unreadable.map(({ what, why }) => h("li", null, `${what}: ${why}`)))]));
}
