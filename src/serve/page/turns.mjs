// One turn of the conversation: a question or an answer, which of its versions it is, and what can be done to it.

import { AnswerText } from "./answer.mjs";
import { button, h } from "./dom.mjs";
import { copyButton } from "./markdown.mjs";
import { ProfilePanel } from "./profile_panel.mjs";
import { isAnswer } from "./tree.mjs";

const FINISHED = {
  length: "It ended at the limit of tokens.",
  stopped: "You stopped it.",
  left: "It stopped: the page was closed or reloaded.",
  elsewhere: "Another tab is receiving this answer.",
};

function turn(role, head, parts, aside = null) {
  return h("article", { class: `turn ${role}` }, h("div", { class: "turn-main" }, h("div", { class: "turn-head" }, head), parts), aside);
}

const name = (words) => h("h2", { class: "who" }, words);

// ‹ 2/3 ›: `siblings` are the versions of a message, and `choose` shows another one.
function arrows(message, siblings, choose) {
  if (siblings.length < 2) return null;
  const at = siblings.findIndex(({ id }) => id === message.id);
  const arrow = (sign, label, to) => button(sign, () => choose(to, label), { class: "quiet small", "aria-label": label, disabled: !to });
  return h("div", { class: "versions", role: "group", "aria-label": `Version ${at + 1} of ${siblings.length}` },
    arrow("‹", "Earlier version", siblings[at - 1]), h("span", {}, `${at + 1}/${siblings.length}`), arrow("›", "Later version", siblings[at + 1]));
}

// `resend` sends another text in its place, and says whether it did.
export function userTurn(message, siblings, choose, resend) {
  const body = h("div", { class: "said" }, message.content);
  const actions = h("div", { class: "actions" }, button("Edit", () => edit(body, message, resend), { class: "quiet small" }));
  return turn("user", [name("You"), arrows(message, siblings, choose), actions], [body]);
}

// `live` is the answer that has just ended, whose elements go on.
export function answerTurn(message, siblings, choose, again, live = null) {
  const text = live?.text ?? AnswerText.of(message);
  const panel = live?.panel ?? ProfilePanel.of(message.measured);
  const isMissing = !isAnswer(message) && message.finish !== "elsewhere";
  const notes = [
    message.failure ? h("p", { class: "failure", role: "alert" }, message.failure) : FINISHED[message.finish] ? h("p", { class: "note" }, FINISHED[message.finish]) : null,
    isMissing ? h("p", { class: "note" }, "The model will not be shown this turn, unless it is tried again.") : null,
  ];
  const actions = h("div", { class: "actions" }, message.content ? copyButton(() => message.content) : null,
    message.finish === "elsewhere" || !again ? null : button(isMissing ? "Try again" : "Regenerate", again, { class: "quiet small" }));
  return turn("assistant", [name(message.model || "Answer"), arrows(message, siblings, choose)], [text.element, ...notes, actions], panel.element);
}

export function pendingTurn(answer, siblings, choose) {
  answer.text.element.setAttribute("aria-busy", "true");
  return turn("assistant", [name(answer.model || "Answer"), arrows(answer.place, siblings, choose)], [answer.text.element], answer.panel.element);
}

function edit(body, message, resend) {
  const area = h("textarea", { class: "prompt", "aria-label": "Edit the message", rows: "3" });
  area.value = message.content;
  const cancel = () => body.replaceChildren(message.content);
  const again = () => {
    if (area.value.trim() !== "" && resend(area.value.trim())) cancel();
  };
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { event.stopPropagation(); cancel(); }
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); again(); }
  });
  body.replaceChildren(area, h("div", { class: "actions" },
    button("Send again", again, { class: "primary small" }), button("Cancel", cancel, { class: "quiet small" })));
  area.focus();
}
