// A shell in a container, in the page.

import { h, perFrame, render } from "./dom.js";
import { openTerminal } from "./server.js";
import { Screen } from "./screen.js";

const LINE = 18;
const KEYS = {
  Enter: "\r", Backspace: "\u007f", Tab: "\t", Escape: "\u001b", Delete: "\u001b[3~", Home: "\u001b[H", End: "\u001b[F", PageUp: "\u001b[5~", PageDown: "\u001b[6~",
};
const ARROWS = { ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D" };

/** Describes a terminal; another container is another terminal. */
export function terminalCard(namespace, pod, container) {
  return h("div", { key: `terminal ${namespace} ${pod} ${container}`, class: "terminal-box", own: true, created: (element) => new Terminal(element, { namespace, pod, container }) });
}

class Terminal {
  constructor(element, container) {
    Object.assign(this, { element, container, screen: new Screen(80, 24), decoder: new TextDecoder(), ended: null });
    this.draw = perFrame(() => this.drawNow());
    element.manta.terminal = this;
    this.view = document.createElement("div");
    this.view.className = "terminal";
    this.view.tabIndex = 0;
    this.view.setAttribute("role", "textbox");
    this.view.setAttribute("aria-multiline", "true");
    this.view.setAttribute("aria-label", `Terminal in ${container.pod}, ${container.container}. Shift and Escape leave it.`);
    this.note = document.createElement("p");
    this.note.className = "muted";
    element.append(this.view, this.note);
    this.view.addEventListener("keydown", (event) => this.press(event));
    this.view.addEventListener("paste", (event) => {
      event.preventDefault();
      this.type(event.clipboardData.getData("text/plain").replace(/\r?\n/g, "\r"));
    });
    this.open();
    new ResizeObserver(() => this.fit()).observe(this.view);
    const observer = new MutationObserver(() => {
      if (!element.isConnected) {
        this.socket.close();
        observer.disconnect();
      }
    });
    observer.observe(document.getElementById("main"), { childList: true, subtree: true });
    this.view.focus();
  }

  open() {
    this.socket = openTerminal();
    this.socket.onopen = () => {
      this.socket.send(JSON.stringify({ ...this.container, columns: this.screen.columns, rows: this.screen.rows }));
      this.fit();
    };
    this.socket.onmessage = (event) => {
      if (typeof event.data === "string") this.ended = JSON.parse(event.data).end || "The shell has ended.";
      else this.screen.write(this.decoder.decode(event.data, { stream: true }));
      for (const reply of this.screen.replies.splice(0)) this.type(reply);
      this.draw();
    };
    this.socket.onclose = () => {
      this.ended ??= "The connection was closed.";
      this.draw();
    };
  }

  type(text) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(new TextEncoder().encode(text));
  }

  press(event) {
    if (event.key === "Escape" && event.shiftKey) {
      this.view.blur();
      return;
    }
    const text = this.textOf(event);
    if (text === null) return;
    event.preventDefault();
    event.stopPropagation();
    this.type(text);
  }

  textOf(event) {
    const { key } = event;
    // Copying and pasting stay the browser's.
    if (event.metaKey || (event.ctrlKey && event.shiftKey)) return null;
    if (event.ctrlKey) {
      if (key === "c" && String(getSelection())) return null;
      if (key === "v") return null;
      const code = key.toUpperCase().charCodeAt(0);
      return key.length === 1 && code >= 64 && code <= 95 ? String.fromCharCode(code - 64) : null;
    }
    if (ARROWS[key]) return `\u001b${this.screen.arrows ? "O" : "["}${ARROWS[key]}`;
    if (KEYS[key]) return KEYS[key];
    if (key.length !== 1) return null;
    return event.altKey ? `\u001b${key}` : key;
  }

  /** Makes the shell's screen as large as the element. */
  fit() {
    const probe = document.createElement("span");
    probe.textContent = "0".repeat(100);
    probe.className = "terminal-probe";
    this.view.append(probe);
    const width = probe.getBoundingClientRect().width / 100;
    probe.remove();
    if (!width) return;
    const columns = Math.max(20, Math.floor((this.view.clientWidth - 16) / width));
    const rows = Math.max(6, Math.floor((this.view.clientHeight - 12) / LINE));
    if (columns !== this.screen.columns || rows !== this.screen.rows) {
      this.screen.resize(columns, rows);
      if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ columns, rows }));
    }
    this.draw();
  }

  drawNow() {
    if (!this.element.isConnected) return;
    const { screen } = this;
    const atEnd = this.view.scrollTop + this.view.clientHeight >= this.view.scrollHeight - LINE;
    const line = (cells, key, cursor) => h("div", { key, class: "t-row" }, screen.runs(cells, cursor).map(({ text, style }) => (style ? h("span", { class: style }, text) : text)), "\u200b");
    const history = screen.history.slice(-1000);
    const first = screen.history.length - history.length;
    render(this.view, [
      history.map((cells, index) => line(cells, `h${first + index}`)),
      screen.lines.map((cells, index) => line(cells, `l${index}`, !screen.hidden && !this.ended && index === screen.y ? Math.min(screen.x, screen.columns - 1) : -1)),
    ]);
    if (atEnd) this.view.scrollTop = this.view.scrollHeight;
    this.note.textContent = this.ended ? this.ended : "";
  }
}
