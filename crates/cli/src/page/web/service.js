// A service: its clusters side by side, traffic and capacity, applications and deployments.

import { h } from "./dom.js";
import { age, moment } from "./format.js";
import { watch } from "./server.js";
import { link } from "./object.js";
import { dashboardButton, picture, podPanel } from "./cluster.js";

const SHAPES = {
  RUNNING: ["good", "●"], HEALTHY: ["good", "●"], DEPLOYING: ["working", "◐"], UPDATING: ["working", "◐"], UPSCALING: ["working", "◐"], DOWNSCALING: ["working", "◐"],
  NOT_STARTED: ["working", "◐"], DEPLOY_FAILED: ["bad", "▲"], UNHEALTHY: ["bad", "▲"], DELETING: ["idle", "■"],
};

function state(name) {
  const [health, shape] = SHAPES[name] || ["working", "○"];
  return h("span", { class: `pill ${health}` }, h("span", { class: "shape", "aria-hidden": "true" }, shape), h("span", { class: "state" }, name || "unknown"));
}

function meter(words, percent, kind) {
  if (percent === undefined || percent === null) return null;
  return h("div", { class: `gauge ${kind}` }, h("span", { class: "gauge-words" }, words), h("div", { class: "gauge-track", role: "meter", "aria-label": words, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": percent },
    h("span", { style: { width: `${Math.max(0, Math.min(100, percent))}%` } })), h("span", { class: "figure" }, `${percent} %`));
}

/** Follows the requests that a cluster answers, while it is shown. */
function follow(namespace, cluster, local, update) {
  local.rates ??= new Map();
  if (!cluster || local.rates.has(cluster)) return;
  const entry = { before: null, now: null };
  entry.stop = watch({ rates: { namespace, cluster } }, ({ requests, problem }) => {
    entry.problem = problem;
    if (!requests) return update();
    entry.before = entry.now;
    entry.now = { at: Date.now(), ...requests };
    update();
  });
  local.rates.set(cluster, entry);
  local.close = () => {
    for (const { stop } of local.rates.values()) stop();
  };
}

/** Describes requests and errors per second of an application, if Ray counts them. */
function rate(local, cluster, application) {
  const { before, now, problem } = local.rates?.get(cluster) || {};
  if (problem) return h("span", { class: "rates" }, `no request rates: ${problem}`);
  if (!before || now.all[application] === undefined) return null;
  const seconds = (now.at - before.at) / 1000;
  const per = (which) => Math.max(0, (now[which][application] || 0) - (before[which][application] || 0)) / seconds;
  const failed = per("failed");
  return h("span", { class: failed > 0 ? "rates bad" : "rates" }, `${per("all").toFixed(1)} requests/s`, failed > 0 && h("strong", null, ` ▲ ${failed.toFixed(1)} errors/s`));
}

/** One of the two clusters of a service. */
function side(title, serve, model, isOnly, local, update) {
  const { namespace } = model.name;
  const name = serve.rayClusterName;
  const cluster = model.parts.cluster.get(name);
  const pods = name ? model.pods(name) : [];
  const applications = Object.entries(serve.applicationStatuses || {});
  follow(namespace, name, local, update);
  const traffic = serve.trafficRoutedPercent ?? (isOnly ? null : undefined);
  return h("section", { class: "card side", key: `side ${name || title}` },
    h("header", { class: "card-head" }, h("h2", null, title), name && link("RayCluster", namespace, name), h("span", { class: "space" }), cluster && dashboardButton(namespace, name, pods.find((pod) => pod.type === "head")?.ready)),
    meter("Traffic", traffic, "traffic"),
    meter("Capacity", serve.targetCapacity, "capacity"),
    cluster ? picture(cluster, pods, local, update) : h("p", { class: "empty" }, name ? "The cluster is gone." : "There is no cluster yet."),
    h("h3", null, "Applications"),
    applications.length ? h("ul", { class: "plain-list applications" }, applications.map(([application, { status, message, serveDeploymentStatuses }]) => h("li", { key: application },
      h("div", { class: "application" }, h("strong", null, application), state(status), rate(local, name, application)),
      message && h("pre", { class: "message", tabindex: 0 }, message),
      h("ul", { class: "plain-list deployments" }, Object.entries(serveDeploymentStatuses || {}).map(([deployment, { status, message }]) => h("li", { key: deployment },
        h("span", null, deployment), state(status), message && h("span", { class: "message" }, message))))))) : h("p", { class: "empty" }, "Serve has reported no application yet."));
}

export function serviceView(model, local, update) {
  const service = model.object;
  const status = service.status || {};
  const active = status.activeServiceStatus || {};
  const pending = status.pendingServiceStatus || {};
  const hasPending = Boolean(pending.rayClusterName);
  const upgrade = (status.conditions || []).find((condition) => condition.type === "UpgradeInProgress" && condition.status === "True");
  const used = new Set([active.rayClusterName, pending.rayClusterName]);
  const leaving = [...model.parts.cluster.keys()].filter((name) => !used.has(name));
  return [
    upgrade && h("p", { class: "notice", key: "upgrade", title: moment(upgrade.lastTransitionTime) }, `◐ An upgrade has been going on for ${age(upgrade.lastTransitionTime)}. ${upgrade.message || ""}`),
    h("div", { class: hasPending ? "sides two" : "sides", key: "sides" },
      (active.rayClusterName || !hasPending) && side(hasPending ? "Active" : "Cluster", active, model, !hasPending, local, update),
      hasPending && side(active.rayClusterName ? "Pending" : "First cluster", pending, model, !active.rayClusterName, local, update)),
    leaving.length > 0 && h("p", { class: "muted", key: "leaving" }, "No longer used: ", leaving.map((name) => [link("RayCluster", model.name.namespace, name), " "])),
    h("dl", { class: "facts card", key: "facts" },
      h("dt", null, "Serve endpoints"), h("dd", null, status.numServeEndpoints ?? 0),
      h("dt", null, "Upgrade strategy"), h("dd", null, service.spec.upgradeStrategy?.type || "NewCluster")),
    podPanel(model, local, update),
  ];
}
