// The topology as a picture: clusters are boxes, flows are arrows with their figures.

import { empty, h, put, s, say } from "./dom.js";
import { amount, bytes, count, duration } from "./format.js";
import { conditionOf } from "./health.js";
import { layout } from "./layout.js";
import { sign } from "./icons.js";
import { on, store } from "./store.js";

/** The greatest width of a character of a cluster's name; in a small box, names are small. */
const CHARACTER = 8.4;
const SMALL_CHARACTER = 7.2;
const SMALL_BOX = 90;
/** Half of a character of a figure. */
const HALF = 3.5;

/** The picture; `choose` is called with a flow's name. Returns {element, close}. */
export function topology(choose) {
  const holder = h("div", { class: "topology" });
  let arrows = new Map();
  let drawn = "";

  function draw() {
    const width = Math.floor(holder.clientWidth);
    if (!width || !store.flows) return;
    if (!store.flows.length) {
      drawn = "";
      put(holder, empty("No flow is configured", "Flows are written as A->B.enabled=true in the mirror's file."));
      return;
    }
    const key = JSON.stringify([width, store.flows.map((flow) => [flow.flow, flow.source, flow.target])]);
    if (key !== drawn) {
      drawn = key;
      build(width);
    }
    for (const flow of store.flows) update(flow);
  }

  function build(width) {
    const plan = layout(store.flows, width);
    arrows = new Map();
    const picture = s("svg", {
      viewBox: `0 0 ${width} ${plan.height}`, width, height: plan.height, role: "group",
      "aria-label": `${count(store.flows.length, "flow")} between clusters`,
    });
    for (const { x, y1, y2 } of plan.lines) picture.append(s("path", { class: "below-cluster", d: `M${x} ${y1}V${y2}` }));
    for (const box of plan.boxes) picture.append(cluster(box));
    for (const place of plan.arrows) picture.append(arrow(place, width));
    put(holder, picture);
  }

  function arrow({ id, x1, x2, y, room }, width) {
    const direction = x2 > x1 ? 1 : -1;
    const middle = (x1 + x2) / 2;
    const from = x1 + direction * 6;
    const to = x2 - direction * 6;
    const parts = {
      room, middle, width,
      above: s("text", { class: "figure rate", y: y - 12, "text-anchor": "middle" }),
      below: s("text", { class: "figure lag", y: y + 22, "text-anchor": "middle" }),
      badge: s("g", { transform: `translate(${middle - 8} ${y - 8})`, class: "badge" }),
      title: s("title"),
    };
    const open = () => choose(id);
    parts.group = s(
      "g",
      {
        class: "arrow", tabindex: 0, role: "link", "data-flow": id, "data-key": `arrow:${id}`,
        onclick: open,
        onkeydown: (event) => {
          if (event.key === "Enter" || event.key === " ") {
            event.preventDefault();
            open();
          }
        },
      },
      parts.title,
      s("rect", { class: "target", x: Math.min(x1, x2) + 3, y: y - 30, width: Math.abs(x2 - x1) - 6, height: 60, rx: 8 }),
      s("path", { class: "line", d: `M${from} ${y}H${to - direction * 9}` }),
      s("path", { class: "moving", d: `M${from} ${y}H${to - direction * 9}` }),
      s("path", { class: "head", d: `M${to - direction * 11} ${y - 6}L${to} ${y}L${to - direction * 11} ${y + 6}Z` }),
      parts.badge, parts.above, parts.below,
    );
    arrows.set(id, parts);
    return parts.group;
  }

  function update(flow) {
    const parts = arrows.get(flow.flow);
    if (!parts) return;
    const condition = conditionOf(flow);
    const copies = flow.parts.copying !== undefined || !Object.keys(flow.parts).length;
    const moving = (flow.records_per_second ?? 0) > 0;
    parts.group.setAttribute("class", `arrow ${condition.kind} ${condition.shape}${moving ? " flowing" : ""}`);
    const known = flow.records_per_second !== null;
    const rate = known ? `${amount(flow.records_per_second)} rec/s` : "";
    const size = flow.bytes_per_second === null ? "" : `${bytes(flow.bytes_per_second)}/s`;
    const late = flow.lag_records ? ` · ${duration(flow.lag_seconds)}` : "";
    const lag = `lag ${amount(flow.lag_records)}${flow.unmeasured ? "+" : ""}${late}`;
    const wide = `${rate}${size ? ` · ${size}` : ""}`;
    const healthy = condition.label === "in step" || condition.label === "mirroring";
    label(parts, parts.above, !copies ? "" : fits(wide, parts.room) ? wide : rate);
    const told = healthy ? lag : copies && flow.lag_records !== null ? `${condition.label} · ${lag}` : condition.label;
    label(parts, parts.below, fits(told, parts.room) ? told : healthy ? lag : cut(condition.label, parts.room));
    const sentence = `${flow.source} to ${flow.target}: ${condition.label}, ${wide || "no rate known"}, ${lag}. Opens flow ${flow.flow}.`;
    parts.group.setAttribute("aria-label", sentence);
    say(parts.title, `${flow.flow}: ${condition.label}`);
    if (parts.shown !== condition.shape + condition.kind) {
      parts.shown = condition.shape + condition.kind;
      const ring = s("circle", { class: "ring", cx: 8, cy: 8, r: 13 });
      put(parts.badge, condition.shape === "running" ? [] : [ring, sign(condition.shape, condition.kind)]);
    }
  }

  const watch = new ResizeObserver(draw);
  watch.observe(holder);
  const off = on("flows", draw);
  return {
    element: holder,
    close() {
      watch.disconnect();
      off();
    },
  };
}

/** Set a label at the middle of its arrow, or as near as the picture allows. */
function label({ middle, width }, element, text) {
  say(element, text);
  const half = text.length * HALF + 4;
  element.setAttribute("x", Math.min(Math.max(middle, half), width - half));
}

const fits = (text, room) => text.length * 6.7 <= room;
const cut = (text, room) => {
  const most = Math.max(4, Math.floor(room / 6.7));
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
};

/** A cluster; its name in up to three lines, all of it on hover. */
function cluster({ name, x, y, width, height }) {
  const small = width < SMALL_BOX;
  const most = Math.max(4, Math.floor((width - 8) / (small ? SMALL_CHARACTER : CHARACTER)));
  const room = Math.max(1, Math.min(3, Math.floor((height - 12) / 17)));
  const lines = [];
  let rest = name;
  while (rest && lines.length < room) {
    if (rest.length <= most) {
      lines.push(rest);
      break;
    }
    if (lines.length === room - 1) {
      lines.push(`${rest.slice(0, most - 1)}…`);
      break;
    }
    // Names are broken behind a dot or a dash, if one is near the end of the line.
    const nice = Math.max(rest.lastIndexOf("-", most - 1), rest.lastIndexOf(".", most - 1), rest.lastIndexOf("_", most - 1));
    const at = nice >= most / 2 ? nice + 1 : most;
    lines.push(rest.slice(0, at));
    rest = rest.slice(at);
  }
  const middle = y + height / 2 - ((lines.length - 1) * 17) / 2;
  return s(
    "g",
    { class: small ? "cluster small" : "cluster" },
    s("title", {}, name),
    s("rect", { x, y, width, height, rx: 10 }),
    lines.map((line, number) =>
      s("text", { x: x + width / 2, y: middle + number * 17 + 5, "text-anchor": "middle" }, line),
    ),
  );
}
