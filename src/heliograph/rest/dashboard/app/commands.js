// Pause, resume and restart: asked for, confirmed, sent, and told where they were asked for.

import { Failure, flowPath, post } from "./api.js";
import { h, put } from "./dom.js";
import { flowName } from "./format.js";
import { permission } from "./store.js";

const WORDS = {
  pause: ["Pause", "paused", "Nothing of it is mirrored until it is resumed, so its lag grows. Positions are kept: nothing is lost or doubled."],
  resume: ["Resume", "resumed", "It goes on where it stopped."],
  restart: ["Restart", "restarted", "It is stopped in order and started again. Positions are kept: nothing is lost or doubled. Its lag grows for some seconds."],
};

/** A button, or nothing if this caller may not. `what`: {flow, part} or {flow, topic}. */
export function commandButton(word, what, told) {
  if (!permission().may) return null;
  const label = WORDS[word][0];
  const name = nameOf(what);
  return h("button", {
    type: "button", class: word === "resume" ? "" : "careful", "data-command": word, "data-key": `${word}:${name}`,
    "aria-label": `${label} ${name}`, onclick: (event) => confirm(word, what, told, event.currentTarget),
  }, label);
}

const nameOf = ({ flow, part, topic }) => (topic ? `topic ${topic} of ${flowName(flow)}` : part ? `${part} of ${flowName(flow)}` : `flow ${flowName(flow)}`);

function confirm(word, what, told, opener) {
  const [label, done, text] = WORDS[word];
  const dialog = document.getElementById("confirm");
  const problem = h("p", { class: "problem", role: "alert" });
  const yes = h("button", { type: "submit", class: "primary", id: "confirm-yes" }, label);
  const why = word === "pause" ? h("input", { type: "text", id: "confirm-why", maxlength: "300", autocomplete: "off" }) : null;
  const cancel = h("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  const send = async (event) => {
    event.preventDefault();
    yes.disabled = true;
    try {
      await post(flowPath(what.flow, `/${word}`), { part: what.part, topic: what.topic, why: why?.value });
      dialog.close();
      told(`Asked for: ${nameOf(what)} is being ${done}.`, false);
    } catch (error) {
      problem.textContent = error instanceof Failure ? error.message : String(error);
      told(`${label} failed: ${problem.textContent}`, true);
      yes.disabled = false;
    }
  };
  open(opener, h("form", { onsubmit: send },
    h("h2", { id: "confirm-title" }, `${label} ${nameOf(what)}?`), h("p", { id: "confirm-text" }, text),
    why ? h("label", { for: "confirm-why" }, "Why, for all who look", why) : null, problem,
    h("div", { class: "dialog-buttons" }, cancel, yes)));
  cancel.focus();
}

/** Show a form in the dialog. When that is closed, the focus is where it was opened. */
export function open(opener, form) {
  const dialog = document.getElementById("confirm");
  put(dialog, form);
  dialog.addEventListener("close", () => {
    const again = opener.isConnected ? opener : document.querySelector(`[data-key="${CSS.escape(opener.dataset.key)}"]`);
    (again ?? document.getElementById("main")).focus();
  }, { once: true });
  dialog.showModal();
  return dialog;
}
