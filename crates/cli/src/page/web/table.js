// A table of thousands of rows, of which only those on screen exist.

import { h, perFrame, render } from "./dom.js";

const HEIGHT = 38;
const EXTRA = 6;

export class Table {
  /** Columns are `{name, title, cell(row), sort}`; `open(row)` follows a row, `href(row)` is its address. */
  constructor({ columns, label, href, open }) {
    Object.assign(this, { columns, label, href, open, list: [], selected: null, sort: null, onSort: () => {} });
    this.draw = perFrame(() => this.drawNow());
  }

  /** Describes the table; it draws itself from then on. */
  view() {
    return h("div", { key: "table", class: "table", role: "table", "aria-label": this.label, own: true, created: (element) => this.attach(element) });
  }

  attach(element) {
    this.element = element;
    this.head = document.createElement("div");
    this.head.className = "table-head";
    this.head.setAttribute("role", "rowgroup");
    this.scroller = document.createElement("div");
    this.scroller.className = "table-rows";
    this.scroller.tabIndex = 0;
    this.scroller.setAttribute("role", "rowgroup");
    this.scroller.setAttribute("aria-label", `${this.label}, rows`);
    this.space = document.createElement("div");
    this.space.className = "table-space";
    // It only gives the rows their place.
    this.space.setAttribute("role", "presentation");
    this.scroller.append(this.space);
    element.append(this.head, this.scroller);
    this.scroller.addEventListener("scroll", this.draw, { passive: true });
    new ResizeObserver(this.draw).observe(this.scroller);
    this.draw();
  }

  show(list, sort) {
    this.list = list;
    this.sort = sort;
    this.draw();
  }

  drawNow() {
    if (!this.element?.isConnected) return;
    const { scroller, list } = this;
    this.element.setAttribute("aria-rowcount", list.length + 1);
    render(this.head, h("div", { class: "row", role: "row", "aria-rowindex": 1 }, this.columns.map((column) => this.header(column))));
    const height = `${list.length * HEIGHT}px`;
    if (this.space.style.height !== height) this.space.style.height = height;
    const from = Math.max(0, Math.floor(scroller.scrollTop / HEIGHT) - EXTRA);
    const until = Math.min(list.length, Math.ceil((scroller.scrollTop + scroller.clientHeight) / HEIGHT) + EXTRA);
    const shown = [];
    for (let index = from; index < until; index++) shown.push(this.row(list[index], index));
    render(this.space, shown);
    if (shown.length && !this.isMarked) {
      this.isMarked = true;
      performance.mark("first-rows");
    }
  }

  header(column) {
    const direction = this.sort?.name === column.name ? (this.sort.down ? "descending" : "ascending") : "none";
    const arrow = direction === "none" ? "" : this.sort.down ? " ↓" : " ↑";
    return h("div", { role: "columnheader", "aria-sort": direction, class: `c-${column.name}` },
      column.sort ? h("button", { type: "button", onclick: () => this.onSort(column) }, column.title, arrow) : column.title);
  }

  row(row, index) {
    const isSelected = row.key === this.selected;
    return h("a", {
      key: row.key, role: "row", class: isSelected ? "row selected" : "row", href: this.href(row), tabindex: -1,
      "aria-rowindex": index + 2, "aria-selected": isSelected ? "true" : null,
      style: { transform: `translateY(${index * HEIGHT}px)` },
    }, this.columns.map((column) => h("div", { role: "cell", class: `c-${column.name}` }, column.cell(row))));
  }

  /** Moves the selection by a number of rows. */
  move(by) {
    if (!this.list.length) return;
    const at = this.list.findIndex((row) => row.key === this.selected);
    const next = at < 0 ? 0 : Math.min(this.list.length - 1, Math.max(0, at + by));
    this.selected = this.list[next].key;
    const top = next * HEIGHT;
    const { scroller } = this;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    else if (top + HEIGHT > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = top + HEIGHT - scroller.clientHeight;
    this.draw();
    return this.list[next];
  }

  openSelected() {
    const row = this.list.find((row) => row.key === this.selected);
    if (row) this.open(row);
  }
}
