// Where clusters and arrows of the topology stand. Pure: figures in, figures out.
//
// The picture is made of stars: a hub as a tall box, its neighbours in rows beside it. So all arrows
// are level, and their labels have a line of their own, however many there are. A graph that is no
// star is drawn as several, the greatest first.

const ROW = 72;
const LANE = 64;
const GAP = 18;
const NARROW = 620;

/** [{hub, spokes: [{name, flows}]}]: every flow is in exactly one star. */
export function starsOf(flows) {
  let left = flows.map((flow) => ({ id: flow.flow, source: flow.source, target: flow.target }));
  const stars = [];
  while (left.length) {
    const neighbours = new Map();
    const add = (one, other) => {
      if (!neighbours.has(one)) neighbours.set(one, new Set());
      neighbours.get(one).add(other);
    };
    for (const { source, target } of left) {
      add(source, target);
      add(target, source);
    }
    let hub = null;
    for (const [name, others] of neighbours) {
      if (hub === null || others.size > neighbours.get(hub).size) hub = name;
    }
    const rows = new Map();
    for (const edge of left.filter(({ source, target }) => source === hub || target === hub)) {
      const other = edge.source === hub ? edge.target : edge.source;
      if (!rows.has(other)) rows.set(other, []);
      rows.get(other).push({ id: edge.id, out: edge.source === hub });
    }
    stars.push({ hub, spokes: [...rows].map(([name, edges]) => ({ name, flows: edges })) });
    left = left.filter(({ source, target }) => source !== hub && target !== hub);
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

/** Boxes {name, x, y, width, height} and arrows {id, x1, x2, y}, in a picture of `width`. */
export function layout(flows, width) {
  const narrow = width < NARROW;
  const boxes = [];
  const arrows = [];
  let top = 6;
  for (const { hub, spokes } of starsOf(flows)) {
    const [before, behind] = sides(spokes, narrow);
    const columns = 1 + (before.length ? 1 : 0) + (behind.length ? 1 : 0);
    const used = columns === 2 ? Math.min(width, 1040) : Math.min(width, 1240);
    const start = (width - used) / 2;
    const box = Math.round(Math.max(76, Math.min(190, used * (columns === 2 ? 0.24 : 0.15))));
    const height = Math.max(ROW, before.length ? sum(before) : 0, behind.length ? sum(behind) : 0);
    const hubX = columns === 3 ? width / 2 - box / 2 : before.length ? start + used - box : start;
    boxes.push({ name: hub, x: hubX, y: top, width: box, height, hub: spokes.length > 1 });
    for (const [column, x, isBefore] of [[before, start, true], [behind, start + used - box, false]]) {
      let y = top + (height - Math.max(0, sum(column))) / 2;
      for (const spoke of column) {
        const own = heightOf(spoke);
        boxes.push({ name: spoke.name, x, y, width: box, height: own, hub: false });
        spoke.flows.forEach((flow, number) => {
          const at = y + own / 2 + (number - (spoke.flows.length - 1) / 2) * LANE;
          const near = isBefore ? hubX : hubX + box;
          const far = isBefore ? x + box : x;
          arrows.push({ id: flow.id, x1: flow.out ? near : far, x2: flow.out ? far : near, y: at });
        });
        y += own + GAP;
      }
    }
    top += height + 26;
  }
  return { boxes, arrows, height: top - 20, narrow };
}
