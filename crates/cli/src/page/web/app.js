// Starts the page: session, top bar, and the view that the address names.

import { announce, h, render } from "./dom.js";
import { currentZone, setZone, zones } from "./format.js";
import { openDialog, shortcut, showHelp } from "./keys.js";
import { connect, forgetSecret, onConnection, request, setSecret } from "./server.js";
import { currentScope, setScope } from "./store.js";
import { overview } from "./overview.js";
import { objectView } from "./object.js";
import { operatorView } from "./operator.js";
import { createView } from "./create.js";

const main = document.getElementById("main");
const top = document.getElementById("top");
const THEME = "manta-theme";
let session = null;
let connection = "connecting";
let leave = null;

export function go(address) {
  location.hash = address;
}

/** Splits `#/RayJob/default/train` into its parts. */
function route() {
  const parts = location.hash.replace(/^#\/?/, "").split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return "";
    }
  });
  return parts.filter(Boolean);
}

/** Shows the view of a new address. Whoever uses the keyboard or a screen reader goes on at its start, and hears its name. */
function arrive() {
  show();
  const [first, namespace, name] = route();
  main.focus({ preventScroll: true });
  announce(name ? `${first} ${name} in ${namespace}` : { operator: "Operator", new: "New" }[first] || "Overview");
}

function show() {
  leave?.();
  leave = null;
  main.replaceChildren();
  const element = document.createElement("div");
  element.className = "view";
  main.append(element);
  const [first, namespace, name] = route();
  document.title = name ? `${name} – Manta` : "Manta";
  if (["RayCluster", "RayJob", "RayService", "RayCronJob"].includes(first) && name) {
    leave = objectView(element, { kind: first, namespace, name }, session);
  } else if (first === "operator") {
    leave = operatorView(element);
  } else if (first === "new") {
    leave = createView(element, session);
  } else {
    leave = overview(element, go);
  }
  drawTop();
  scrollTo(0, 0);
}

function drawTop() {
  const [first] = route();
  const link = (href, words, isHere) => h("a", { href, "aria-current": isHere ? "page" : null }, words);
  render(top, [
    h("a", { class: "brand", href: "#/", "aria-label": "Manta, overview" }, h("img", { src: "/icon.svg", alt: "", width: 22, height: 22 }), h("span", null, "Manta")),
    h("nav", { "aria-label": "Views" },
      link("#/", "Overview", !["operator", "new"].includes(first)),
      link("#/operator", "Operator", first === "operator"),
      link("#/new", "New", first === "new")),
    h("span", { class: "space" }),
    session && h("label", { class: "scope" }, h("span", { class: "unseen" }, "Namespace"), h("input", {
      placeholder: "all namespaces", value: currentScope() || "", size: 16, autocomplete: "off", spellcheck: "false",
      onchange: (event) => {
        setScope(event.target.value.trim() || null);
        drawTop();
      },
    })),
    h("span", { class: `connection ${connection}`, title: connection === "live" ? "Changes arrive as they happen" : "Trying to connect" },
      h("span", { "aria-hidden": "true" }, connection === "live" ? "●" : "○"), ` ${connection === "live" ? "live" : { lost: "connection lost", ended: "signed out" }[connection] || "connecting"}`),
    h("button", { type: "button", class: "plain", onclick: settings, "aria-haspopup": "dialog" }, session ? session.viewer : "Settings"),
    h("button", { type: "button", class: "plain", onclick: showHelp, "aria-label": "Keyboard shortcuts", title: "Keyboard shortcuts" }, "?"),
  ]);
}

function settings() {
  const redraw = () => show();
  const theme = document.documentElement.dataset.theme || "auto";
  openDialog("You and this page", [
    session && h("dl", { class: "facts" },
      h("dt", null, "You"), h("dd", null, session.viewer),
      h("dt", null, "Cluster"), h("dd", null, session.cluster || session.server),
      h("dt", null, "API server"), h("dd", null, session.server),
      h("dt", null, "Version"), h("dd", null, session.version)),
    h("label", { class: "field" }, "Times in ", h("select", {
      value: currentZone(),
      onchange: (event) => {
        setZone(event.target.value);
        redraw();
      },
    }, [...new Set([zones.own, "UTC", currentZone()])].map((zone) => h("option", { value: zone }, zone === zones.own ? `${zone} (this browser)` : zone)))),
    h("label", { class: "field" }, "Colours ", h("select", { value: theme, onchange: (event) => setTheme(event.target.value) },
      [["auto", "as the system"], ["light", "light"], ["dark", "dark"]].map(([value, words]) => h("option", { value }, words)))),
    h("p", { class: "hint" }, "This page acts with your own rights on this cluster, and with nobody else's."),
  ], [{ words: "Sign out", action: () => {
    forgetSecret();
    location.reload();
  } }], { leave: "Close" });
}

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  localStorage.setItem(THEME, theme);
}

/** Asks for what the server accepts: the printed address, or a token. */
async function signIn(why) {
  const { entry } = await request("/api/entry").catch(() => ({ entry: "link" }));
  drawTop();
  if (entry === "link") {
    render(main, h("div", { class: "sign-in" }, h("h1", null, "Open the printed address"), h("p", null, why),
      h("p", null, "manta page and manta up print an address that opens this page. It changes with every start.")));
    return;
  }
  let problem = "";
  const draw = () => render(main, h("form", { class: "sign-in", onsubmit: async (event) => {
    event.preventDefault();
    try {
      const { key } = await request("/api/entry", { token: event.target.elements.token.value });
      setSecret(key);
      start();
    } catch (error) {
      problem = error.message;
      draw();
    }
  } }, h("h1", null, "Sign in"),
    h("p", null, "Enter a token of yours for this cluster. The page can do what you can, and nothing else."),
    h("label", { class: "field" }, "Token", h("input", { name: "token", type: "password", autocomplete: "off", required: true })),
    problem && h("p", { class: "notice bad", role: "alert" }, problem),
    h("p", { class: "hint" }, "kubectl create token NAME prints one for a service account."),
    h("button", { type: "submit", class: "primary" }, "Sign in")));
  draw();
}

function connectionChanged(state) {
  connection = state;
  if (state === "ended") {
    session = null;
    leave?.();
    leave = null;
    forgetSecret();
    signIn("The session has ended.");
  }
  drawTop();
}

async function start() {
  try {
    session = await request("/api/session");
  } catch (error) {
    session = null;
    return signIn(error.status === 401 ? "" : error.message);
  }
  main.replaceChildren();
  connect();
  onConnection(connectionChanged);
  setScope(null);
  show();
}

setTheme(localStorage.getItem(THEME) || "auto");
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
shortcut("?", "show this help", showHelp);
shortcut("g o", "go to the overview", () => go("#/"));
shortcut("g p", "go to the operator", () => go("#/operator"));
shortcut("n", "create something", () => go("#/new"));
shortcut("Escape", "back to the overview", () => go("#/"));
addEventListener("hashchange", () => {
  if (/^#key=/.test(location.hash)) location.reload();
  else if (session) arrive();
});
start();
