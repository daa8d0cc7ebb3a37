// Elements, made without markup: text is only ever set as text.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An HTML element. `onclick` and the like are listeners; the rest are attributes. */
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** An SVG element. */
export function s(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** Replace what an element holds. The page does not move, and focus stays where it can. */
export function put(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  element.replaceChildren(
    ...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false),
  );
  if (focused) {
    for (const found of element.querySelectorAll("[data-key]")) {
      if (found.dataset.key === focused) {
        found.focus({ preventScroll: true });
        break;
      }
    }
  }
  return element;
}

/** Set text only if it differs: no needless layout, and no repeated announcement. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A row of buttons of which one is pressed. */
export function choice(label, options, chosen, pick, key = label) {
  return h(
    "div",
    { class: "choice", role: "group", "aria-label": label },
    options.map(([value, text]) =>
      h(
        "button",
        {
          type: "button",
          "aria-pressed": String(value === chosen),
          "data-key": `${key}:${value}`,
          onclick: () => pick(value),
        },
        text,
      ),
    ),
  );
}

/** What stands where there is nothing to show. */
export function empty(title, text = "") {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), text ? h("p", {}, text) : null);
}

let pressed = false;
let waiting = [];
for (const name of ["pointerup", "pointercancel"]) {
  addEventListener(name, () => {
    pressed = false;
    // A click comes behind it, and must find the element that was pressed.
    setTimeout(() => {
      const runs = waiting;
      waiting = [];
      for (const run of runs) run();
    }, 0);
  }, true);
}
addEventListener("pointerdown", () => { pressed = true; }, true);

/** Run at once, or if a button is being pressed, when it was let go: else the click would be lost. */
export function whenReleased(run) {
  if (pressed) waiting.push(run);
  else run();
}

/** Whether somebody has selected text in an element, perhaps to copy it: it should stay. */
export function selectedIn(element) {
  const selection = getSelection();
  return selection !== null && !selection.isCollapsed && element.contains(selection.anchorNode);
}

/** Call `run` when nothing called for a while. */
export function later(run, milliseconds) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...given), milliseconds);
  };
}
