// Keyboard: one list of shortcuts, which the help shows, too.

import { h, render } from "./dom.js";

const shortcuts = new Map();
let prefix = null;

/** Adds a shortcut for all views, or replaces it; `g o` means one key after the other. */
export function shortcut(keys, words, action) {
  shortcuts.set(keys, { words, action });
}

export function forgetShortcut(keys) {
  shortcuts.delete(keys);
}

function isTyping(element) {
  return element?.closest?.("input, textarea, select, [contenteditable], .terminal");
}

/** Enter belongs to the element that has the focus, if it does something there. */
function isOwn(key, element) {
  return key === "Enter" && element?.closest?.("a, button, summary");
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (isTyping(event.target)) {
    if (event.key === "Escape" && !event.target.closest(".terminal")) event.target.blur();
    return;
  }
  if (isOwn(event.key, event.target)) return;
  const keys = prefix ? `${prefix} ${event.key}` : event.key;
  prefix = null;
  const found = shortcuts.get(keys);
  if (found) {
    event.preventDefault();
    found.action(event);
  } else if ([...shortcuts.keys()].some((name) => name.startsWith(`${keys} `))) {
    prefix = keys;
    setTimeout(() => (prefix = null), 1500);
  }
});

/** Shows all shortcuts. */
export function showHelp() {
  const list = [...shortcuts].map(([keys, { words }]) =>
    h("div", { class: "shortcut" }, h("span", { class: "keys" }, keys.split(" ").map((key) => h("kbd", null, key))), h("span", null, words)));
  openDialog("Keyboard", h("div", { class: "shortcuts" }, list), []);
}

/** Opens a dialog with a title, content and buttons; each is `{words, kind, action}`. `options.leave` names the one that leaves it. */
export function openDialog(title, content, buttons, options = {}) {
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-labelledby", "dialog-title");
  if (options.class) dialog.className = options.class;
  const close = () => dialog.close();
  dialog.addEventListener("close", () => {
    dialog.remove();
    options.closed?.();
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) close();
  });
  const draw = () =>
    render(dialog, h("form", { method: "dialog", onsubmit: (event) => event.preventDefault() },
      h("h2", { id: "dialog-title" }, title),
      h("div", { class: "dialog-body" }, typeof content === "function" ? content() : content),
      h("div", { class: "dialog-buttons" },
        buttons.map((button) => {
          const { words, kind, action, disabled } = typeof button === "function" ? button() : button;
          return h("button", { type: "button", class: kind || "", disabled: Boolean(disabled), onclick: () => action(close, draw) }, words);
        }),
        h("button", { type: "button", onclick: close }, options.leave || (buttons.length ? "Cancel" : "Close")))));
  draw();
  document.body.append(dialog);
  dialog.showModal();
  // A field comes first. Where there is none, Enter must not do by accident what the dialog asks about.
  if (!dialog.querySelector(".dialog-body").contains(document.activeElement)) dialog.querySelector(".dialog-buttons").lastElementChild.focus();
  return { close, draw };
}
