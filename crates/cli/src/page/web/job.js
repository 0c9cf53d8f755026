// A job: its phases on a time bar, its attempts, why it failed, and what its driver prints.

import { h } from "./dom.js";
import { clock, duration, moment, plural } from "./format.js";
import { link } from "./object.js";
import { dashboardButton, picture, podPanel } from "./cluster.js";
import { logCard } from "./log.js";

const time = (text) => (text ? Date.parse(text) : null);

/** Returns the phases with start and end, as far as the status tells. */
export function phases(job, now) {
  const status = job.status || {};
  const created = time(job.metadata.creationTimestamp);
  const started = time(status.startTime);
  const clusterReady = time(status.rayClusterStatus?.stateTransitionTimes?.ready);
  const running = time(status.rayJobInfo?.startTime);
  const stopped = time(status.rayJobInfo?.endTime);
  const ended = time(status.endTime);
  const over = ended || (["Complete", "Failed"].includes(status.jobDeploymentStatus) ? stopped : null);
  const marks = [
    ["waiting", "Waiting", created],
    ["starting", "Starting the cluster", started],
    ["submitting", "Submitting", clusterReady && started && clusterReady >= started ? clusterReady : null],
    ["running", "Running", running],
    ["finishing", "Finishing", stopped && over && over > stopped ? stopped : null],
  ].filter(([, , at]) => at !== null);
  const end = over || (status.jobDeploymentStatus === "Suspended" ? time(status.lastUpdateTime) : null) || now;
  return marks
    .map(([phase, name, from], index) => ({ phase, name, from, until: marks[index + 1]?.[2] ?? end, isCurrent: !over && index === marks.length - 1 }))
    .filter(({ from, until, isCurrent }) => until > from || isCurrent);
}

/** Takes the exit code and the traceback out of what Ray says about a failure. */
export function failure(job) {
  const status = job.status || {};
  // A job that somebody stopped has not failed.
  const failed = ["Failed", "ValidationFailed"].includes(status.jobDeploymentStatus) || status.jobStatus === "FAILED";
  if (!failed) return null;
  const message = status.message || "";
  const exit = /exit code (-?\d+)/.exec(message);
  const at = message.lastIndexOf("Traceback (most recent call last)");
  const traceback = at >= 0 ? message.slice(at).trimEnd() : "";
  const lines = traceback.split("\n").filter((line) => line.trim());
  const error = lines.length > 1 ? lines.findLast((line) => /^\S*(Error|Exception|Exit|Interrupt)\b/.test(line.trim())) || lines.at(-1) : message.split("\n")[0];
  return { reason: status.reason || status.jobStatus || status.jobDeploymentStatus, exit: exit ? Number(exit[1]) : null, error, traceback, message };
}

function bar(job) {
  const list = phases(job, Date.now());
  if (!list.length) return null;
  const from = list[0].from;
  const total = Math.max(1, list.at(-1).until - from);
  const failed = failure(job) && (list.find(({ phase }) => phase === "running") || list.at(-1));
  const look = (phase) => `p-${phase.phase}${phase === failed ? " failed" : ""}`;
  return h("div", { class: "phases" },
    h("div", { class: "phase-bar", role: "img", "aria-label": list.map((phase) => `${phase.name} for ${duration(phase.until - phase.from)}`).join(", ") },
      list.map((phase) => h("span", {
        class: `phase ${look(phase)}${phase.isCurrent ? " current" : ""}`,
        style: { "flex-grow": Math.max(0.02, (phase.until - phase.from) / total) }, title: `${phase.name}\n${moment(phase.from)}\n${duration(phase.until - phase.from)}`,
      }))),
    h("ol", { class: "phase-list" }, list.map((phase) => h("li", null,
      h("span", { class: `swatch ${look(phase)}`, "aria-hidden": "true" }), h("strong", null, phase.name), " ", duration(phase.until - phase.from),
      h("span", { class: "muted" }, ` from ${clock(phase.from)}`)))));
}

function attempts(job) {
  const { failed = 0, succeeded = 0 } = job.status || {};
  const limit = job.spec.backoffLimit || 0;
  if (!limit && failed + succeeded <= 1) return null;
  const isRunning = !["Complete", "Failed"].includes(job.status?.jobDeploymentStatus);
  return h("p", { class: "attempts" }, h("span", { class: "muted" }, "Attempts "),
    Array.from({ length: Math.min(failed, 50) }, (_, index) => h("span", { class: "attempt failed", title: `attempt ${index + 1} failed` }, "✗")),
    Array.from({ length: succeeded }, () => h("span", { class: "attempt done", title: "succeeded" }, "✓")),
    isRunning && h("span", { class: "attempt current", title: "this attempt" }, "◐"),
    h("span", { class: "muted" }, ` ${failed} failed, ${plural(limit, "retry", "retries")} allowed`));
}

function failureCard(job) {
  const failed = failure(job);
  if (!failed) return null;
  return h("section", { class: "card failure", key: "failure", role: "alert" },
    h("h2", null, "▲ ", failed.reason, failed.exit !== null && h("span", { class: "exit" }, `exit code ${failed.exit}`)),
    h("p", { class: "error" }, failed.error),
    failed.traceback ? h("pre", { tabindex: 0, class: "traceback" }, failed.traceback) : failed.message !== failed.error && h("pre", { tabindex: 0, class: "traceback" }, failed.message));
}

export function jobView(model, local, update) {
  const job = model.object;
  const status = job.status || {};
  const { namespace, name } = model.name;
  const cluster = model.parts.cluster.get(status.rayClusterName) || [...model.parts.cluster.values()].at(-1);
  const pods = cluster ? model.pods(cluster.metadata.name) : [];
  const submitters = model.pods().filter((pod) => !pod.cluster);
  // A log that could not be had is asked for again when the job moves on.
  const logKey = `${status.jobDeploymentStatus === "Running" || status.jobDeploymentStatus === "Complete" || status.jobDeploymentStatus === "Failed" ? "submitted" : status.jobDeploymentStatus} ${status.jobId || ""} ${submitters.map((pod) => `${pod.name} ${pod.phase}`).join()}`;
  return [
    failureCard(job),
    h("section", { class: "card", key: "phases" },
      h("header", { class: "card-head" }, h("h2", null, "Phases"), h("span", { class: "space" }), status.rayClusterName && h("span", null, link("RayCluster", namespace, status.rayClusterName)), cluster && dashboardButton(namespace, cluster.metadata.name, pods.find((pod) => pod.type === "head")?.ready)),
      bar(job), attempts(job),
      h("dl", { class: "facts" },
        h("dt", null, "Entrypoint"), h("dd", null, h("code", null, job.spec.entrypoint || "none")),
        h("dt", null, "Submission"), h("dd", null, job.spec.submissionMode || "K8sJobMode"),
        status.jobId && [h("dt", null, "Ray job"), h("dd", null, status.jobId)],
        status.jobStatus && [h("dt", null, "Ray says"), h("dd", null, status.jobStatus)])),
    h("section", { class: "card", key: "driver" }, h("h2", null, "Driver log"), logCard(`driver ${logKey}`, { driver: { namespace, name } }, `job ${name}`)),
    cluster && h("section", { class: "card", key: "picture" }, h("h2", null, "Cluster"), picture(cluster, pods, local, update)),
    podPanel(model, local, update),
  ];
}
