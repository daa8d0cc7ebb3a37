// A table whose rows the mirror sorts, filters and cuts into pages. The page never has all of them.

import { get } from "./api.js";
import { empty, h, later, put, selectedIn, whenReleased } from "./dom.js";
import { count, whole } from "./format.js";
import { on, store } from "./store.js";

const PAGE = 25;
/** A table that is looked at is asked for again so often at most, and only if there is news. */
const EVERY_MS = 10000;

/**
 * options: path, name (of the list in the answer), noun, fixed (parameters), sort (first),
 * columns: [{title, sort, class, cell(row)}], detail(row) -> nodes under a row or null,
 * filters: [{label, key, value(text), first}], bar: nodes, nothing: [title, text], key(row), loaded(answer),
 * dense (whether two cells stand side by side on a phone).
 */
export class Table {
  constructor(options) {
    this.options = options;
    this.parameters = { ...options.fixed, sort: options.sort, offset: 0, limit: PAGE };
    this.open = new Set();
    this.body = h("tbody");
    this.headRow = h("tr");
    this.note = h("p", { class: "table-note", role: "status", "aria-live": "polite" });
    this.pager = h("div", { class: "pager" });
    this.nothing = h("div");
    this.grid = h("table", { class: options.dense ? "dense" : null }, h("thead", {}, this.headRow), this.body);
    const filters = (options.filters ?? []).map((filter) => this.filter(filter));
    this.bar = h("div", { class: "table-bar" }, filters, options.bar ?? []);
    this.element = h("div", { class: "table" }, this.bar, this.grid, this.nothing, h("div", { class: "table-foot" }, this.note, this.pager));
    this.off = on("flows", () => this.perhaps());
    this.head();
    /** Settles when the first rows are shown. */
    this.ready = this.load();
  }

  close() {
    this.off();
    this.abort?.abort();
    this.closed = true;
  }

  filter({ label, key, value, first = "" }) {
    if (first) this.parameters[key] = value(first);
    const change = later((text) => this.set({ [key]: text ? value(text) : "" }), 250);
    return h("label", { class: "field" }, h("span", {}, label), h("input", {
      type: "search", autocomplete: "off", spellcheck: "false", name: key, value: first, oninput: (event) => change(event.target.value.trim()),
    }));
  }

  set(parameters) {
    Object.assign(this.parameters, { offset: 0 }, parameters);
    this.head();
    return this.load();
  }

  head() {
    const current = this.parameters.sort ?? "";
    put(this.headRow, this.options.columns.map((column) => {
      const sorted = column.sort && current.replace("-", "") === column.sort;
      const down = sorted && current.startsWith("-");
      const next = sorted ? (down ? column.sort : `-${column.sort}`) : column.down ? `-${column.sort}` : column.sort;
      return h(
        "th",
        { scope: "col", class: column.class, "aria-sort": sorted ? (down ? "descending" : "ascending") : column.sort ? "none" : null },
        column.sort
          ? h("button", { type: "button", "data-key": `sort:${column.sort}`, onclick: () => this.set({ sort: next }) },
              column.title, h("span", { "aria-hidden": "true", class: "sorted" }, sorted ? (down ? "▼" : "▲") : ""))
          : column.title,
      );
    }));
  }

  perhaps() {
    if (document.hidden || this.seen === store.version || performance.now() - this.loaded < EVERY_MS) return;
    if (this.element.isConnected && !selectedIn(this.element)) this.load();
  }

  /** Something was changed: what comes next is shown at once. */
  expire() {
    this.loaded = -EVERY_MS;
  }

  async load() {
    this.abort?.abort();
    this.abort = new AbortController();
    this.loaded = performance.now();
    this.seen = store.version;
    try {
      const found = await get(this.options.path, this.parameters, this.abort.signal);
      if (this.closed) return;
      const rows = found[this.options.name];
      this.options.loaded?.(found);
      if (!rows.length && found.total && this.parameters.offset) return this.set({ offset: 0 });
      whenReleased(() => this.closed || this.show(rows, found.total));
    } catch (error) {
      if (error.name !== "AbortError" && !this.closed) this.fail(error.message);
    }
  }

  fail(message) {
    put(this.body);
    put(this.pager);
    this.grid.hidden = true;
    put(this.nothing, empty("This could not be loaded", message));
    this.note.textContent = "";
  }

  show(rows, total) {
    const [title, text] = typeof this.options.nothing === "function" ? this.options.nothing() : this.options.nothing;
    this.grid.hidden = !rows.length;
    put(this.nothing, rows.length ? [] : empty(title, text));
    put(this.body, rows.map((row) => this.row(row)));
    const { offset } = this.parameters;
    this.note.textContent = total > rows.length
      ? `${whole(offset + 1)} to ${whole(offset + rows.length)} of ${count(total, this.options.noun)}`
      : total ? count(total, this.options.noun) : "";
    const move = (to) => () => {
      this.parameters.offset = to;
      this.load();
      this.element.scrollIntoView({ block: "nearest" });
    };
    put(this.pager, total <= PAGE ? [] : [
      h("button", { type: "button", "data-key": "before", disabled: offset === 0, onclick: move(Math.max(0, offset - PAGE)) }, "Previous"),
      h("button", { type: "button", "data-key": "next", disabled: offset + rows.length >= total, onclick: move(offset + PAGE) }, "Next"),
    ]);
  }

  row(row) {
    const key = this.options.key(row);
    const always = this.options.always?.(row) ?? null;
    const has = this.options.detail !== undefined;
    const expanded = this.open.has(key);
    const toggle = () => {
      if (!this.open.delete(key)) this.open.add(key);
      const fresh = this.row(row);
      const old = [...this.body.children].filter((line) => line.dataset.row === key);
      old[0].replaceWith(...fresh);
      for (const line of old.slice(1)) line.remove();
      this.body.querySelector(`[data-key="${CSS.escape(`row:${key}`)}"]`)?.focus();
    };
    const cells = this.options.columns.map((column, number) => {
      const content = column.cell(row);
      const cell = number === 0 && has
        ? h("button", { type: "button", class: "opener", "aria-expanded": String(expanded), "data-key": `row:${key}`, onclick: toggle },
            h("span", { "aria-hidden": "true", class: "turn" }, expanded ? "▾" : "▸"), h("span", { class: "name" }, content))
        : content;
      return h(number === 0 ? "th" : "td", { class: column.class, "data-label": column.title, scope: number === 0 ? "row" : null }, cell);
    });
    const wide = (content, name) => h("tr", { class: name, "data-row": key }, h("td", { colspan: this.options.columns.length }, content));
    return [
      h("tr", { "data-row": key }, cells),
      always ? wide(always, "why") : null,
      expanded ? wide(this.options.detail(row), "more") : null,
    ].filter(Boolean);
  }
}
