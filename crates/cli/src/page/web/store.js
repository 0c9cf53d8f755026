// The rows of all objects, kept up to date for whichever view shows them.

import { watch } from "./server.js";

/** All rows by key. */
export const rows = new Map();
/** How far each kind is: `{ready, problem}`. */
export const kinds = new Map();

const listeners = new Set();
let stop = null;
let scope = null;

/** Calls `listener` after every change; returns a function that ends it. */
export function onRows(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Shows the objects of one namespace, or of all. */
export function setScope(namespace) {
  if (stop && scope === namespace) return;
  stop?.();
  scope = namespace;
  rows.clear();
  kinds.clear();
  stop = watch({ rows: { namespace } }, receive);
  for (const listener of listeners) listener();
}

export function currentScope() {
  return scope;
}

function receive(message) {
  if (message.reset) rows.clear();
  for (const row of message.rows || []) {
    // Compared and searched thousands of times, so these are made once.
    row.sortName = `${row.name}\u0000${row.namespace}`;
    row.createdAt = row.created ? Date.parse(row.created) : 0;
    row.text = `${row.kind} ${row.namespace}/${row.name} ${row.state} ${row.owner || ""} ${row.why || ""}`.toLowerCase();
    rows.set(row.key, row);
  }
  for (const key of message.gone || []) rows.delete(key);
  for (const [kind, ready, problem] of message.kinds || []) kinds.set(kind, { ready, problem });
  for (const listener of listeners) listener(message);
}
