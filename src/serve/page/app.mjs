// The page as a whole: its views, the drawer, the theme, the key, and the keyboard.

import { getJson, setKey } from "./api.mjs";
import { Chat } from "./chat.mjs";
import { losesOnClose, whatIsWrong } from "./conversations.mjs";
import { button, h } from "./dom.mjs";
import { Drawer } from "./drawer.mjs";
import { machineView } from "./machine.mjs";
import { recall, remember } from "./preferences.mjs";
import { requestsView } from "./requests.mjs";

const THEMES = ["auto", "light", "dark"];
const RETRY_MS = 3000;
let retry;  // the timer of loadModels
const main = document.getElementById("main");
const drawerElement = document.getElementById("drawer");
const drawerButton = document.getElementById("drawer-button");
const curtain = document.getElementById("curtain");

const lastOpen = recall("tyto.open", "session");  // before the page was reloaded
const drawer = new Drawer(drawerElement, openConversation, (id) => chat.isAnswering(id));
const chat = new Chat((conversation) => drawer.show(conversation), loadModels);

function openConversation(id) {
  if (!id || id !== chat.conversation.id) chat.open(id);
  setDrawer(false);
  if (location.hash !== "#chat") location.hash = "#chat";
  chat.focus();
}

function showView() {
  const [view, id] = location.hash.slice(1).split("/").map(decodeURIComponent);
  const views = { chat: () => chat.element, machine: machineView, requests: () => requestsView(id) };
  const name = view in views ? view : "chat";
  main.replaceChildren(views[name]());
  for (const link of document.querySelectorAll(".views a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (name === "chat") chat.scrollToEnd();
}

function setDrawer(isOpen) {
  drawerElement.classList.toggle("open", isOpen);
  curtain.hidden = !isOpen;
  drawerButton.setAttribute("aria-expanded", String(isOpen));
  if (isOpen) drawerElement.querySelector("button").focus();
  else if (drawerElement.contains(document.activeElement)) drawerButton.focus();
}

function setTheme(theme) {
  remember("tyto.theme", theme);
  document.documentElement.dataset.theme = theme;
  const words = `Theme: ${theme}`;
  themeButton.setAttribute("aria-label", words);
  themeButton.title = words;
}

const themeButton = document.getElementById("theme");
themeButton.addEventListener("click", () => {
  setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);
});
setTheme(THEMES.includes(recall("tyto.theme")) ? recall("tyto.theme") : "auto");

// Again whenever the server may be another one: it failed, or the reader was away.
async function loadModels() {
  clearTimeout(retry);
  try {
    const [{ data }, props] = await Promise.all([getJson("v1/models"), getJson("props")]);
    chat.showModels(data.map((model) => model.id));
    chat.settings.showDefaults(props);
    chat.warn("server", "");
  } catch (error) {
    chat.warn("server", error.message);
    if (error.status === 0 || error.status === 503) retry = setTimeout(loadModels, RETRY_MS);  // not there yet, or loading
  }
}

function askForKey({ detail: { wasWrong } }) {
  const dialog = document.getElementById("key-dialog");
  if (dialog.open) return;
  if (wasWrong) setKey("");
  const input = h("input", { type: "password", autocomplete: "off", "aria-label": "API key" });
  const use = () => {
    setKey(input.value.trim());
    dialog.close();
    loadModels();
    showView();
  };
  input.addEventListener("keydown", (event) => { if (event.key === "Enter") use(); });
  dialog.replaceChildren(h("h2", { id: "key-title" }, wasWrong ? "The server did not accept that key" : "This server asks for a key"),
    h("p", { class: "muted" }, "Enter one of those it was started with. This tab keeps it until it is closed."), input,
    h("div", { class: "actions" }, button("Use it", use, { class: "primary" }), button("Not now", () => dialog.close(), { class: "quiet" })));
  dialog.showModal();
}

drawerButton.addEventListener("click", () => setDrawer(!drawerElement.classList.contains("open")));
curtain.addEventListener("click", () => setDrawer(false));
addEventListener("hashchange", showView);
addEventListener("tyto-key-needed", askForKey);
addEventListener("beforeunload", (event) => { if (losesOnClose()) event.preventDefault(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) loadModels(); });
addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    chat.stop();
    setDrawer(false);
  }
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openConversation(null);
  }
});

showView();
loadModels();
if (lastOpen) chat.open(lastOpen);
whatIsWrong().then((words) => chat.warn("storage", words));
if (matchMedia("(min-width: 900px)").matches) chat.focus();
