// Runs before the first paint, so that a chosen theme does not flash. Classic script, no module.
"use strict";
try {
  const chosen = localStorage.getItem("heliograph.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage is forbidden here: the system's theme is used.
}
