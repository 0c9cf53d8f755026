// A cron job: past and coming runs on a line.

import { h } from "./dom.js";
import { clock, day, duration, moment, plural, shortClock } from "./format.js";
import { request } from "./server.js";
import { link } from "./object.js";
import { pill } from "./overview.js";

const HOUR = 3600 * 1000;
/** The ranges to choose from, the smallest that holds a few runs. */
const RANGES = [HOUR / 2, 2 * HOUR, 6 * HOUR, 24 * HOUR, 7 * 24 * HOUR, 31 * 24 * HOUR, 366 * 24 * HOUR];
const ENOUGH = 6;
const TOLERANCE = 60 * 1000;

/** Returns when a job of a cron job was due. */
function dueTime(job) {
  const text = job.metadata.annotations?.["ray.io/cronjob-scheduled-timestamp"];
  return Date.parse(text) || Date.parse(job.metadata.creationTimestamp);
}

function outcome(job) {
  const status = job.status || {};
  if (status.jobDeploymentStatus === "Failed" || status.jobStatus === "FAILED") return ["bad", "✗", "failed"];
  if (status.jobDeploymentStatus === "Complete") return ["done", "✓", "succeeded"];
  return ["working", "◐", "running"];
}

/** Matches the times that the schedule asks for with the jobs that exist. */
export function marks(runs, jobs, cron, now) {
  const created = Date.parse(cron.metadata.creationTimestamp);
  const settled = Date.parse(cron.status?.lastScheduleTime) || created;
  // An object that was restored from a backup is older than it says.
  const since = Math.min(created, settled, ...jobs.map(dueTime));
  const rest = new Set(jobs);
  const list = [];
  for (const at of runs) {
    const job = [...rest].find((job) => Math.abs(dueTime(job) - at) < TOLERANCE);
    if (job) {
      rest.delete(job);
      const [health, shape, words] = outcome(job);
      list.push({ at, job, health, shape, words });
    } else if (at > now) list.push({ at, health: "coming", shape: "○", words: "coming" });
    else if (at < since) continue;
    else if (cron.spec.suspend) list.push({ at, health: "idle", shape: "■", words: "skipped while suspended, or no longer kept" });
    else if (at > settled && now - at > TOLERANCE) list.push({ at, health: "missed", shape: "!", words: "missed" });
    else if (at <= settled) list.push({ at, health: "unknown", shape: "·", words: "missed, or its job is gone" });
  }
  for (const job of rest) {
    const [health, shape, words] = outcome(job);
    list.push({ at: dueTime(job), job, health, shape, words });
  }
  return list.sort((a, b) => a.at - b.at);
}

/** Asks for the runs of the schedule, in the smallest range that holds enough of them. */
async function load(cron, local, update) {
  const key = `${cron.spec.schedule} ${cron.spec.timeZone || ""} ${cron.status?.lastScheduleTime || ""} ${Math.floor(Date.now() / 60000)}`;
  if (local.runsOf === key) return;
  local.runsOf = key;
  const now = Date.now();
  try {
    for (const range of RANGES) {
      const { runs, zone } = await request("/api/schedule", { schedule: cron.spec.schedule, timeZone: cron.spec.timeZone || null, from: new Date(now - range).toISOString(), until: new Date(now + range / 2).toISOString(), base: cron.status?.lastScheduleTime || cron.metadata.creationTimestamp });
      if (runs.length >= ENOUGH || range === RANGES.at(-1)) {
        local.zone = zone;
        local.runs = runs.map((run) => Date.parse(run));
        local.range = [now - range, now + range / 2];
        break;
      }
    }
    local.problem = null;
  } catch (error) {
    local.problem = error.message;
  }
  update();
}

export function cronJobView(model, local, update) {
  const cron = model.object;
  const jobs = [...model.parts.job.values()];
  load(cron, local, update);
  const now = Date.now();
  // Without a zone of its own, the operator's counts.
  const zone = cron.spec.timeZone || local.zone;
  const list = local.runs ? marks(local.runs, jobs, cron, now) : [];
  const next = list.find((mark) => mark.at > now);
  return [
    h("section", { class: "card", key: "line" },
      h("header", { class: "card-head" }, h("h2", null, "Runs"), h("code", null, cron.spec.schedule), h("span", { class: "muted" }, cron.spec.timeZone ? `in ${zone}` : `in the operator's time zone${zone ? `, taken to be ${zone}` : ""}`), h("span", { class: "space" }),
        cron.spec.suspend ? h("strong", null, "■ suspended") : next && h("span", { title: moment(next.at, zone || undefined) }, `next in ${duration(next.at - now)}, at ${shortClock(next.at)}${zone ? ` (${shortClock(next.at, zone)} ${zone})` : ""}`)),
      local.problem && h("p", { class: "notice bad", role: "alert" }, local.problem),
      local.range && line(list, local.range, now, cron, model),
      legend(list)),
    h("section", { class: "card", key: "jobs" }, h("h2", null, plural(jobs.length, "job")),
      jobs.length ? h("ul", { class: "plain-list" }, jobs.sort((a, b) => dueTime(b) - dueTime(a)).slice(0, 100).map((job) => {
        const [health, , words] = outcome(job);
        return h("li", { key: job.metadata.name, class: "run" }, pill(health, words), link("RayJob", model.name.namespace, job.metadata.name), h("span", { class: "muted" }, `due ${moment(dueTime(job))}`));
      })) : h("p", { class: "empty" }, "No job of it exists.")),
  ];
}

function line(list, [from, until], now, cron, model) {
  const position = (at) => `${(100 * (at - from)) / (until - from)}%`;
  const ticks = Array.from({ length: 7 }, (_, index) => from + ((until - from) * index) / 6);
  const isLong = until - from > 36 * HOUR;
  return h("div", { class: "timeline" },
    h("div", { class: "line-axis", "aria-hidden": "true" }, ticks.map((at) => h("span", { style: { left: position(at) } }, isLong ? day(at) : shortClock(at)))),
    h("div", { class: "line-now", style: { left: position(now) } }, h("span", null, "now")),
    h("ul", { class: "line-marks", "aria-label": "Runs, from the oldest to the next" }, list.filter((mark) => mark.at >= from && mark.at <= until).map((mark) => {
      const words = `${mark.words}, ${moment(mark.at)}`;
      const body = h("span", { "aria-hidden": "true" }, mark.shape);
      return h("li", { key: `${mark.at} ${mark.job?.metadata.name || ""}`, style: { left: position(mark.at) } },
        mark.job ? h("a", { class: `run-mark ${mark.health}`, href: `#/RayJob/${encodeURIComponent(model.name.namespace)}/${encodeURIComponent(mark.job.metadata.name)}`, title: words, "aria-label": words }, body)
          : h("span", { class: `run-mark ${mark.health}`, title: words, role: "img", "aria-label": words }, body));
    })));
}

function legend(list) {
  const counts = new Map();
  for (const { health, shape, words } of list) counts.set(health, { shape, words, count: (counts.get(health)?.count || 0) + 1 });
  return h("div", { class: "legend" }, [...counts].map(([health, { shape, words, count }]) => h("span", null, h("span", { class: `run-mark small ${health}`, "aria-hidden": "true" }, shape), `${count} ${words}`)));
}
