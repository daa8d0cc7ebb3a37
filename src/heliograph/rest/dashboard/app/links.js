// Addresses inside the page. They are in the hash, so the mirror never sees them.

/** A flow, one of its tabs, and what that is filtered by. */
export const linkTo = (flow, tab = "", about = "") =>
  `#/flow/${[flow, tab, about].filter(Boolean).map(encodeURIComponent).join("/")}`;

/** The parts of the address: ["flow", name, tab, about], or [view]. */
export function whereNow() {
  return location.hash.split("/").slice(1).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
}
