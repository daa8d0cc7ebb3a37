// A chart over time, as SVG. Where nothing is known there is a gap. The legend is the readout.

import { h, put, s } from "./dom.js";
import { clock, flowName, now, UNKNOWN } from "./format.js";

const HEIGHT = 190;
const LEFT = 58;
const BOTTOM = 22;
const TOP = 10;
/** So many lines can be told apart. */
export const MOST_LINES = 6;

/** Steps of an axis in seconds that people read easily. */
export const DURATIONS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];

/** The step of an axis with at most four of them: from a ladder, or 1, 2, 2.5 or 5 of a power of ten. */
export function stepOf(most, least, ladder = []) {
  const wanted = Math.max(most, least) / 4;
  const power = 10 ** Math.floor(Math.log10(wanted));
  const round = () => [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= wanted * 0.999);
  return (wanted > ladder[0] / 2 && ladder.find((step) => step >= wanted)) || round();
}

/**
 * show's options: place (in a point), show (a value as text), least (of the axis), ladder (of its steps),
 * flows (names, in order of their colours), more (said behind them), nothing (said if no value is known).
 */
export class Chart {
  constructor(title, moved = () => {}) {
    this.title = title;
    this.moved = moved;
    this.at = null;
    this.head = h("div", { class: "chart-head" }, h("h3", {}, title));
    this.legend = h("ul", { class: "legend" });
    this.moment = h("span", { class: "moment" });
    this.head.append(this.moment);
    this.picture = h("div", {
      class: "plot", tabindex: 0, role: "group", "data-key": `chart:${title}`,
      "aria-label": `${title} over time. Left and right arrow keys read values, Escape returns to now.`,
      onpointermove: (event) => this.point(event),
      onpointerleave: () => this.read(null),
      onkeydown: (event) => this.key(event),
      onblur: () => this.read(null),
    });
    this.element = h("section", { class: "chart", "aria-label": title }, this.head, this.picture, this.legend);
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.picture);
  }

  close() {
    this.watch.disconnect();
  }

  show(history, options) {
    this.history = history;
    this.options = options;
    this.draw();
  }

  /** Read the values at a time (seconds), or those of now (null). Other charts follow. */
  read(at, tell = true) {
    if (this.at === at) return;
    this.at = at;
    if (tell) this.moved(at);
    this.mark();
  }

  point(event) {
    const place = this.picture.getBoundingClientRect();
    const share = (event.clientX - place.left - LEFT) / Math.max(1, place.width - LEFT - 4);
    this.read(this.nearest(this.start + Math.min(1, Math.max(0, share)) * this.history.seconds));
  }

  key(event) {
    const times = this.times();
    if (!times.length) return;
    const current = this.at === null ? times.length - 1 : Math.max(0, times.indexOf(this.at));
    const step = event.shiftKey ? 10 : 1;
    const wanted = {
      ArrowLeft: current - step, ArrowRight: current + step, Home: 0, End: times.length - 1,
    }[event.key];
    if (event.key === "Escape" && this.at !== null) this.read(null);
    else if (wanted === undefined) return;
    else this.read(times[Math.min(times.length - 1, Math.max(0, wanted))]);
    event.preventDefault();
  }

  times() {
    const first = this.options?.flows.map((flow) => this.history.series.get(flow)).find((points) => points?.length);
    return first ? first.map((point) => point[0]) : [];
  }

  nearest(time) {
    let best = null;
    for (const at of this.times()) if (best === null || Math.abs(at - time) < Math.abs(best - time)) best = at;
    return best;
  }

  draw() {
    const width = Math.floor(this.picture.clientWidth);
    if (!width || !this.options) return;
    const { place, show, least, ladder, flows } = this.options;
    const seconds = this.history.seconds;
    const end = now() / 1000;
    this.start = end - seconds;
    const lines = flows.map((flow) => this.history.series.get(flow) ?? []);
    let most = 0;
    for (const points of lines) for (const point of points) if (point[place] > most) most = point[place];
    const step = stepOf(most * 1.03, least, ladder);
    const top = step * Math.max(2, Math.ceil((most * 1.03) / step - 1e-6));
    this.x = (at) => LEFT + ((at - this.start) / seconds) * (width - LEFT - 4);
    this.y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - TOP);
    const svg = s("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, "aria-hidden": "true" });
    for (let value = 0; value <= top * 1.001; value += step) {
      const y = this.y(value);
      svg.append(s("path", { class: "grid", d: `M${LEFT} ${y}H${width - 4}` }));
      svg.append(s("text", { class: "axis", x: LEFT - 8, y: y + 4, "text-anchor": "end" }, value ? show(value) : "0"));
    }
    for (const at of marks(this.start, end, width)) {
      svg.append(s("text", { class: "axis", x: this.x(at), y: HEIGHT - 5, "text-anchor": "middle" }, clock(at * 1000, false)));
    }
    lines.forEach((points, number) => {
      for (const run of runs(points, place, this.history.step, this.start)) {
        const path = run.map(([at, value], index) => `${index ? "L" : "M"}${this.x(at).toFixed(1)} ${this.y(value).toFixed(1)}`).join("");
        if (lines.length === 1) {
          const base = HEIGHT - BOTTOM;
          svg.append(s("path", { class: `area line-${number}`, d: `${path}L${this.x(run.at(-1)[0]).toFixed(1)} ${base}L${this.x(run[0][0]).toFixed(1)} ${base}Z` }));
        }
        svg.append(s("path", { class: `series line-${number}`, d: run.length === 1 ? `${path}h.1` : path }));
      }
    });
    this.cursor = s("g", { class: "cursor" });
    svg.append(this.cursor);
    put(this.picture, svg);
    if (!lines.some((points) => points.some((point) => point[place] !== null))) {
      this.picture.append(h("p", { class: "plot-empty" }, this.history.failure ?? this.options.nothing ?? "Nothing was measured yet"));
    }
    this.mark();
  }

  mark() {
    if (!this.options || !this.cursor) return;
    const { place, show, flows } = this.options;
    const dots = [];
    const rows = flows.map((flow, number) => {
      const points = this.history.series.get(flow) ?? [];
      const point = this.at === null ? points.at(-1) : closest(points, this.at, this.history.step);
      const value = point ? point[place] : null;
      if (this.at !== null && value !== null && value !== undefined)
        dots.push(s("circle", { class: `dot line-${number}`, cx: this.x(point[0]), cy: this.y(value), r: 3.5 }));
      return h(
        "li",
        {},
        flows.length > 1 ? s("svg", { width: 22, height: 8, "aria-hidden": "true" }, s("path", { class: `series line-${number}`, d: "M1 4H21" })) : null,
        h("span", { class: "legend-name", title: flow }, flowName(flow)),
        h("b", {}, value === null || value === undefined ? UNKNOWN : show(value)),
      );
    });
    if (this.at !== null) {
      const x = this.x(this.at);
      dots.unshift(s("path", { class: "crosshair", d: `M${x} ${TOP}V${HEIGHT - BOTTOM}` }));
    }
    // Figures of now change all the time; those that somebody asks for are read out.
    this.legend.setAttribute("aria-live", this.at === null ? "off" : "polite");
    put(this.cursor, dots);
    put(this.legend, rows, this.options.more ? h("li", { class: "muted" }, this.options.more) : null);
    this.moment.textContent = this.at === null ? "now" : `${clock(this.at * 1000)} UTC`;
  }
}

function closest(points, at, step) {
  let best = null;
  for (const point of points) if (best === null || Math.abs(point[0] - at) < Math.abs(best[0] - at)) best = point;
  return best && Math.abs(best[0] - at) <= step * 2 ? best : null;
}

/** Stretches without a gap: [[time, value], ...] each. */
function runs(points, place, step, start) {
  const found = [];
  let run = [];
  let before = null;
  for (const point of points) {
    const known = point[place] !== null && point[place] !== undefined && point[0] >= start;
    if (run.length && (!known || point[0] - before > Math.max(step * 3, 20))) {
      found.push(run);
      run = [];
    }
    if (known) {
      run.push([point[0], point[place]]);
      before = point[0];
    }
  }
  if (run.length) found.push(run);
  return found;
}

/** Full minutes on the time axis, so that their labels do not touch. */
function marks(start, end, width) {
  const most = Math.max(2, Math.floor((width - LEFT) / 90));
  const step = [60, 120, 300, 600, 900, 1200, 1800, 3600].find((each) => (end - start) / each <= most) ?? 3600;
  const found = [];
  for (let at = Math.ceil((start + 25) / step) * step; at <= end - ((end - start) * 18) / (width - LEFT); at += step) found.push(at);
  return found;
}
