// A log that grows, with search. Only the lines on screen exist as elements.

import { h, perFrame, render } from "./dom.js";
import { plural } from "./format.js";
import { watch } from "./server.js";

const LINE = 18;
const MAX_LINES = 100000;
const MAX_LENGTH = 4000;
const MAX_REST = 1 << 20;
// Sequences that colour a terminal; a log is read without them.
const ESCAPES = /\u001b\[[0-9;?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(\u0007|\u001b\\)|[\u0000-\u0008\u000b-\u001a\u001c-\u001f\u007f]/g;

/** Describes a log; another `key` is another log. */
export function logCard(key, source, title) {
  return h("div", { key: `log ${key}`, class: "log", own: true, created: (element) => new Log(element, source, title) });
}

class Log {
  constructor(element, source, title) {
    Object.assign(this, { element, source, title, lines: [], rest: "", dropped: 0, search: "", onlyMatches: false, follows: true, at: -1, note: "", from: "" });
    this.draw = perFrame(() => this.drawNow());
    element.manta.log = this;
    this.build();
    this.open();
  }

  open() {
    this.stop?.();
    Object.assign(this, { lines: [], rest: "", dropped: 0, note: "Waiting for output…", ended: false });
    this.stop = watch(this.source, (message) => this.receive(message), () => Object.assign(this, { lines: [], rest: "", dropped: 0 }));
    // A view that is left takes its log with it.
    const observer = new MutationObserver(() => {
      if (!this.element.isConnected) {
        this.stop();
        observer.disconnect();
      }
    });
    observer.observe(document.getElementById("main"), { childList: true, subtree: true });
  }

  receive(message) {
    if (message.source) this.from = message.source;
    if (message.waiting) this.note = `Waiting for output… (${message.waiting})`;
    if (message.tail) this.tail = message.tail;
    if (message.text !== undefined) {
      this.note = "";
      const parts = (this.rest + message.text).split("\n");
      // What a carriage return starts again, such as a progress bar, grows without a newline for hours.
      this.rest = parts.pop().slice(-MAX_REST).replace(/^.*\r(?=[^\r])/s, "");
      for (const line of parts) this.lines.push(clean(line));
      if (this.lines.length > MAX_LINES) {
        this.dropped += this.lines.length - MAX_LINES;
        this.lines = this.lines.slice(-MAX_LINES);
      }
    }
    if (message.end !== undefined) {
      if (this.rest) this.lines.push(clean(this.rest));
      this.rest = "";
      this.ended = true;
      this.note = message.end || (this.lines.length ? "The log has ended." : "The log is empty.");
    }
    if (message.error) {
      this.note = message.error;
      this.ended = true;
    }
    this.draw();
  }

  build() {
    this.bar = document.createElement("div");
    this.bar.className = "log-bar";
    this.scroller = document.createElement("div");
    this.scroller.className = "log-lines";
    this.scroller.tabIndex = 0;
    this.scroller.setAttribute("role", "log");
    this.scroller.setAttribute("aria-label", `Log of ${this.title}`);
    this.scroller.setAttribute("aria-live", "off");
    this.space = document.createElement("div");
    this.space.className = "log-space";
    this.scroller.append(this.space);
    this.element.append(this.bar, this.scroller);
    this.scroller.addEventListener("scroll", () => {
      this.follows = this.scroller.scrollTop + this.scroller.clientHeight >= this.scroller.scrollHeight - 2 * LINE;
      this.draw();
    }, { passive: true });
    new ResizeObserver(this.draw).observe(this.scroller);
  }

  /** Returns how many lines there are, with one that is not complete yet. */
  count() {
    return this.lines.length + (this.rest ? 1 : 0);
  }

  line(index) {
    return index < this.lines.length ? this.lines[index] : clean(this.rest);
  }

  /** Returns the indices of the lines to show. */
  matches() {
    if (!this.search) return null;
    const wanted = this.search.toLowerCase();
    const found = [];
    for (let index = 0; index < this.count(); index++) if (this.line(index).toLowerCase().includes(wanted)) found.push(index);
    return found;
  }

  jump(by) {
    const found = this.matches();
    if (!found?.length) return;
    this.at = (this.at + by + found.length) % found.length;
    const row = this.onlyMatches ? this.at : found[this.at];
    this.follows = false;
    this.scroller.scrollTop = Math.max(0, row * LINE - this.scroller.clientHeight / 2);
    this.draw();
  }

  drawNow() {
    if (!this.element.isConnected) return;
    const found = this.matches();
    const filtered = found && this.onlyMatches;
    const count = filtered ? found.length : this.count();
    this.space.style.height = `${count * LINE}px`;
    if (this.follows) this.scroller.scrollTop = this.scroller.scrollHeight;
    const from = Math.max(0, Math.floor(this.scroller.scrollTop / LINE) - 5);
    const until = Math.min(count, Math.ceil((this.scroller.scrollTop + this.scroller.clientHeight) / LINE) + 5);
    const shown = [];
    for (let row = from; row < until; row++) {
      const index = filtered ? found[row] : row;
      const isCurrent = found && found[this.at] === index;
      shown.push(h("div", { key: index + this.dropped, class: isCurrent ? "line current" : "line", style: { transform: `translateY(${row * LINE}px)` } }, this.highlight(this.line(index))));
    }
    render(this.space, shown);
    render(this.bar, [
      h("input", { type: "search", placeholder: "Search in the log", "aria-label": "Search in the log", value: this.search, autocomplete: "off", spellcheck: "false", oninput: (event) => {
        this.search = event.target.value;
        this.at = -1;
        this.draw();
      }, onkeydown: (event) => {
        if (event.key === "Enter") this.jump(event.shiftKey ? -1 : 1);
      } }),
      found && h("span", { class: "muted", role: "status" }, this.at >= 0 ? `${this.at + 1} of ${found.length}` : plural(found.length, "match", "matches")),
      h("label", null, h("input", { type: "checkbox", checked: this.onlyMatches, onchange: (event) => {
        this.onlyMatches = event.target.checked;
        this.draw();
      } }), " only matches"),
      h("label", null, h("input", { type: "checkbox", checked: this.follows, onchange: (event) => {
        this.follows = event.target.checked;
        this.draw();
      } }), " follow"),
      h("span", { class: "space" }),
      h("span", { class: "muted" }, this.from, this.from ? " · " : "", plural(this.count() + this.dropped, "line"), this.tail ? ` · at most ${this.tail} from before` : "", this.note ? ` · ${this.note}` : ""),
      this.ended && h("button", { type: "button", onclick: () => this.open() }, "Reload"),
      h("button", { type: "button", onclick: () => this.save() }, "Save"),
    ]);
  }

  highlight(line) {
    if (!this.search) return line;
    const parts = [];
    const lower = line.toLowerCase();
    const wanted = this.search.toLowerCase();
    let from = 0;
    for (let at = lower.indexOf(wanted); at >= 0 && parts.length < 50; at = lower.indexOf(wanted, from)) {
      parts.push(line.slice(from, at), h("mark", null, line.slice(at, at + wanted.length)));
      from = at + wanted.length;
    }
    return [...parts, line.slice(from)];
  }

  save() {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([this.lines.join("\n"), "\n", clean(this.rest)], { type: "text/plain" }));
    link.download = `${this.title.replace(/[^\w.-]+/g, "_")}.log`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
}

function clean(line) {
  // What a carriage return overwrote, such as a progress bar, is not shown.
  const shown = line.replace(/\r+$/, "").split("\r").pop().replace(ESCAPES, "");
  return shown.length > MAX_LENGTH ? `${shown.slice(0, MAX_LENGTH)} … (${shown.length} characters)` : shown;
}
