// Where clusters and arrows of the topology stand. Pure: figures in, figures out.
//
// All arrows are level, so that their labels have a line of their own, however many there are.
// - A star, most often two clusters, is a hub as a tall box and its neighbours in rows beside it.
// - Any other graph has its clusters side by side, a line below each, and arrows from line to line.
// - Where these have no room beside each other, it is drawn as several stars, the greatest first. Only there
//   a cluster is seen more than once.

const ROW = 72;
const LANE = 64;
const GAP = 18;
const NARROW = 620;
/** Of clusters side by side: how high and wide the boxes are, and from one line to the next. */
const HEAD = 48;
const MOST_BOX = 170;
const LEAST_STEP = 80;
/** Shorter arrows do not share a row with others: their labels are longer than they. */
const SHARED = 190;

const edgesOf = (flows) => flows.map((flow) => ({ id: flow.flow, source: flow.source, target: flow.target }));
const touches = (name) => ({ source, target }) => source === name || target === name;

/** Cluster: its neighbours, in the order in which the flows name them. */
function neighboursOf(edges) {
  const found = new Map();
  for (const { source, target } of edges) {
    for (const [one, other] of [[source, target], [target, source]]) {
      if (!found.has(one)) found.set(one, new Set());
      found.get(one).add(other);
    }
  }
  return found;
}

/** Edges in groups that have no cluster in common. */
function graphsOf(edges) {
  const neighbours = neighboursOf(edges);
  const graphs = [];
  let left = edges;
  while (left.length) {
    const reached = new Set([left[0].source]);
    for (const name of reached) for (const other of neighbours.get(name)) reached.add(other);
    graphs.push(left.filter((edge) => reached.has(edge.source)));
    left = left.filter((edge) => !reached.has(edge.source));
  }
  return graphs;
}

/** [{hub, spokes: [{name, flows}]}]: every edge is in exactly one star. */
function starsOf(edges) {
  let left = edges;
  const stars = [];
  while (left.length) {
    let hub = null;
    const neighbours = neighboursOf(left);
    for (const [name, others] of neighbours) {
      if (hub === null || others.size > neighbours.get(hub).size) hub = name;
    }
    const rows = new Map();
    for (const edge of left.filter(touches(hub))) {
      const other = edge.source === hub ? edge.target : edge.source;
      if (!rows.has(other)) rows.set(other, []);
      rows.get(other).push({ id: edge.id, out: edge.source === hub });
    }
    stars.push({ hub, spokes: [...rows].map(([name, flows]) => ({ name, flows })) });
    left = left.filter((edge) => !touches(hub)(edge));
  }
  return stars;
}

function sides(spokes, narrow) {
  const onlyIn = spokes.filter((spoke) => spoke.flows.every((flow) => !flow.out));
  const rest = spokes.filter((spoke) => !onlyIn.includes(spoke));
  if (narrow) return [[], spokes];
  if (onlyIn.length && rest.length) return [onlyIn, rest];
  if (spokes.length > 4) {
    const half = Math.ceil(spokes.length / 2);
    return [spokes.slice(0, half), spokes.slice(half)];
  }
  return onlyIn.length ? [onlyIn, []] : [[], rest];
}

const heightOf = (spoke) => Math.max(ROW, spoke.flows.length * LANE + 8);
const sum = (column) => column.reduce((total, spoke) => total + heightOf(spoke) + GAP, -GAP);

/** A star below `top`; returns its height. */
function drawStar({ hub, spokes }, top, width, { boxes, arrows, narrow }) {
  const [before, behind] = sides(spokes, narrow);
  const columns = 1 + (before.length ? 1 : 0) + (behind.length ? 1 : 0);
  const used = Math.min(width, columns === 2 ? 1040 : 1240);
  const start = (width - used) / 2;
  const box = Math.round(Math.max(76, Math.min(190, used * (columns === 2 ? 0.24 : 0.15))));
  const height = Math.max(ROW, before.length ? sum(before) : 0, behind.length ? sum(behind) : 0);
  const hubX = columns === 3 ? width / 2 - box / 2 : before.length ? start + used - box : start;
  boxes.push({ name: hub, x: hubX, y: top, width: box, height });
  for (const [column, x, isBefore] of [[before, start, true], [behind, start + used - box, false]]) {
    let y = top + (height - Math.max(0, sum(column))) / 2;
    for (const spoke of column) {
      const own = heightOf(spoke);
      boxes.push({ name: spoke.name, x, y, width: box, height: own });
      spoke.flows.forEach((flow, number) => {
        const at = y + own / 2 + (number - (spoke.flows.length - 1) / 2) * LANE;
        const near = isBefore ? hubX : hubX + box;
        const far = isBefore ? x + box : x;
        arrows.push({ id: flow.id, x1: flow.out ? near : far, x2: flow.out ? far : near, y: at, room: Math.abs(far - near) - 20 });
      });
      y += own + GAP;
    }
  }
  return height;
}

/** Clusters from one end of a chain, each beside those that it has most flows with. */
function sequenceOf(edges) {
  const left = neighboursOf(edges);
  const placed = [];
  const shared = (name) => edges.filter((edge) => touches(name)(edge) && placed.some((other) => touches(other)(edge))).length;
  while (left.size) {
    const rank = placed.length ? shared : (name) => -left.get(name).size;
    const [next] = [...left.keys()].sort((a, b) => rank(b) - rank(a));
    placed.push(next);
    left.delete(next);
  }
  return placed;
}

/** Clusters side by side below `top`; returns the height, or nothing where they have no room. */
function drawSideBySide(edges, top, width, { boxes, arrows, lines }) {
  const names = sequenceOf(edges);
  const used = Math.min(width, 1240);
  const box = Math.min(MOST_BOX, used / names.length - 6);
  const step = (used - box) / (names.length - 1);
  if (step < LEAST_STEP) return null;
  const middle = (name) => (width - used) / 2 + box / 2 + names.indexOf(name) * step;
  const shares = step >= SHARED;
  const rows = [];
  for (const { id, source, target } of edges) {
    const [x1, x2] = [middle(source), middle(target)];
    const [from, to] = [Math.min(x1, x2), Math.max(x1, x2)];
    const free = rows.findIndex((row) => shares && row.every((other) => other.to <= from || to <= other.from));
    const number = free < 0 ? rows.push([]) - 1 : free;
    rows[number].push({ from, to });
    arrows.push({ id, x1, x2, y: top + HEAD + 40 + number * LANE, room: shares ? to - from - 20 : width - 8 });
  }
  const height = HEAD + 14 + rows.length * LANE;
  for (const name of names) {
    boxes.push({ name, x: middle(name) - box / 2, y: top, width: box, height: HEAD });
    lines.push({ x: middle(name), y1: top + HEAD, y2: top + height });
  }
  return height;
}

/**
 * Boxes {name, x, y, width, height}, lines {x, y1, y2} below boxes, and arrows {id, x1, x2, y, room}, in a
 * picture of `width`. `room`: how wide its label may be, around its middle as far as the picture allows.
 */
export function layout(flows, width) {
  const plan = { boxes: [], arrows: [], lines: [], narrow: width < NARROW };
  let top = 6;
  for (const edges of graphsOf(edgesOf(flows))) {
    const stars = starsOf(edges);
    const beside = stars.length > 1 ? drawSideBySide(edges, top, width, plan) : null;
    if (beside !== null) top += beside + 26;
    else for (const star of stars) top += drawStar(star, top, width, plan) + 26;
  }
  return { ...plan, height: top - 20 };
}
