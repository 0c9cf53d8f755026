// Something new, from a template or from pasted YAML, checked while it is written.

import { button, h, perFrame, render, toast } from "./dom.js";
import { plural } from "./format.js";
import { onRights, whyNot } from "./actions.js";
import { address } from "./overview.js";
import { request } from "./server.js";

const PAUSE = 250;
const KEY = "manta-draft";
const LINE = 19;

export function createView(element, session) {
  const state = { templates: [], text: sessionStorage.getItem(KEY) || "", namespace: session.namespace || "default", findings: [], objects: [], checked: null, busy: false };
  const update = perFrame(() => element.isConnected && render(element, view(state, update, check)));
  let timer = null;
  let asked = 0;
  const check = () => {
    clearTimeout(timer);
    sessionStorage.setItem(KEY, state.text);
    state.checked = null;
    timer = setTimeout(async () => {
      const number = ++asked;
      const text = state.text;
      try {
        const { findings, objects } = text.trim() ? await request("/api/lint", text) : { findings: [], objects: [] };
        if (number === asked) Object.assign(state, { findings, objects, checked: text });
      } catch (error) {
        toast(error.message, "bad");
      }
      update();
    }, PAUSE);
    update();
  };
  request("/api/templates").then((templates) => {
    state.templates = templates;
    update();
  }, (error) => toast(error.message, "bad"));
  check();
  const stopRights = onRights(update);
  return () => {
    clearTimeout(timer);
    stopRights();
  };
}

function view(state, update, check) {
  const errors = state.findings.filter(({ severity }) => severity === "error" || severity === "unreadable");
  const isChecked = state.checked === state.text && state.text.trim() !== "";
  const denied = state.objects.map(({ kind, namespace }) => whyNot(namespace || state.namespace, `create ${kind}`)).find(Boolean);
  const why = denied || (state.busy ? "It is being created" : !isChecked ? "The manifest is being checked" : errors.length ? "The manifest has errors" : null);
  return h("article", { class: "create" },
    h("h1", null, "New"),
    h("div", { class: "create-columns" },
      h("section", { class: "card templates" }, h("h2", null, "Start from"), h("ul", { class: "plain-list" }, state.templates.map(({ title, text }) => h("li", { key: title }, h("button", { type: "button", class: "plain", onclick: () => {
        state.text = text;
        check();
      } }, title))))),
      h("section", { class: "card editor" },
        h("header", { class: "card-head" }, h("h2", null, "Manifest"), h("label", null, "Namespace ", h("input", { name: "namespace", value: state.namespace, size: 14, autocomplete: "off", spellcheck: "false", oninput: (event) => {
          state.namespace = event.target.value.trim();
          update();
        } })), h("span", { class: "space" }), button({ class: "primary", why, onclick: () => create(state, update) }, "Create")),
        editor(state, check),
        h("div", { class: "findings", role: "status", "aria-live": "polite" },
          !isChecked ? h("p", { class: "muted" }, state.text.trim() ? "Checking…" : "Choose a template, or paste YAML.") :
            state.findings.length ? h("ul", { class: "plain-list" }, state.findings.map((finding) => h("li", { class: `finding ${finding.severity}` }, h("span", { class: "place" }, finding.line ? `line ${finding.line}` : ""), h("span", { "aria-hidden": "true" }, finding.severity === "warning" ? "◆" : finding.severity === "note" ? "ℹ" : "▲"), h("span", { class: "unseen" }, finding.severity), h("span", null, finding.path && h("code", null, finding.path), finding.path && ": ", finding.message)))) : h("p", { class: "fine" }, `✓ Nothing to fix in ${plural(state.objects.length, "object")}.`)))));
}

/** A text area with line numbers; lines with findings are marked. */
function editor(state, check) {
  const lines = state.text.split("\n").length;
  const marked = new Map();
  for (const { line, severity } of state.findings) if (line && !(marked.get(line) === "error")) marked.set(line, severity === "unreadable" ? "error" : severity);
  return h("div", { class: "code" },
    h("pre", { class: "gutter", "aria-hidden": "true" }, Array.from({ length: lines }, (_, index) => h("span", { class: marked.get(index + 1) || "" }, `${index + 1}\n`))),
    h("textarea", { "aria-label": "Manifest in YAML", spellcheck: "false", autocomplete: "off", wrap: "off", value: state.text, style: { height: `${Math.max(18, lines + 2) * LINE}px` }, oninput: (event) => {
      state.text = event.target.value;
      check();
    }, onkeydown: indent }));
}

/** Indents with Tab as editors do; Escape and Tab leaves the field. */
function indent(event) {
  const area = event.target;
  if (event.key === "Escape") area.dataset.leaves = "yes";
  else if (event.key === "Tab" && !event.shiftKey && !area.dataset.leaves) {
    event.preventDefault();
    area.setRangeText("  ", area.selectionStart, area.selectionEnd, "end");
    area.dispatchEvent(new Event("input", { bubbles: true }));
  } else delete area.dataset.leaves;
}

async function create(state, update) {
  state.busy = true;
  update();
  try {
    const { created } = await request("/api/create", { text: state.text, namespace: state.namespace });
    toast(`Created ${created.map(({ kind, name }) => `${kind} ${name}`).join(", ")}`);
    sessionStorage.removeItem(KEY);
    const first = created.find(({ kind }) => kind.startsWith("Ray"));
    location.hash = first ? address(first) : "#/";
  } catch (error) {
    toast(error.message, "bad");
  }
  state.busy = false;
  update();
}
