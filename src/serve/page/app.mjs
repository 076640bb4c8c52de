// The page as a whole: its views, the drawer, the theme, the key, and the keyboard.

import { getJson, setKey } from "./api.mjs";
import { Chat } from "./chat.mjs";
import { newConversation } from "./conversations.mjs";
import { button, h } from "./dom.mjs";
import { Drawer } from "./drawer.mjs";
import { machineView } from "./machine.mjs";
import { requestsView } from "./requests.mjs";

const THEMES = ["auto", "light", "dark"];
const RETRY_MS = 3000;
const main = document.getElementById("main");
const drawerElement = document.getElementById("drawer");
const drawerButton = document.getElementById("drawer-button");
const curtain = document.getElementById("curtain");

const drawer = new Drawer(drawerElement, openConversation);
const chat = new Chat((conversation) => drawer.show(conversation));

function openConversation(conversation) {
  if (!conversation || conversation.id !== chat.conversation.id) chat.show(conversation ?? newConversation());
  drawer.show(chat.conversation);
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
  localStorage.setItem("tyto.theme", theme);
  document.documentElement.dataset.theme = theme;
  const words = `Theme: ${theme}`;
  themeButton.setAttribute("aria-label", words);
  themeButton.title = words;
}

const themeButton = document.getElementById("theme");
themeButton.addEventListener("click", () => {
  setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);
});
setTheme(THEMES.includes(localStorage.getItem("tyto.theme")) ? localStorage.getItem("tyto.theme") : "auto");

async function loadModels() {
  try {
    const [{ data }, props] = await Promise.all([getJson("v1/models"), getJson("props")]);
    chat.showModels(data.map((model) => model.id));
    chat.settings.showDefaults(props);
    chat.warn("");
  } catch (error) {
    chat.warn(error.message);
    if (error.status === 0 || error.status === 503) setTimeout(loadModels, RETRY_MS);  // not there yet, or loading
  }
}

function askForKey() {
  const dialog = document.getElementById("key-dialog");
  if (dialog.open) return;
  const input = h("input", { type: "password", autocomplete: "off", "aria-label": "API key" });
  const use = () => {
    setKey(input.value.trim());
    dialog.close();
    loadModels();
    showView();
  };
  input.addEventListener("keydown", (event) => { if (event.key === "Enter") use(); });
  dialog.replaceChildren(h("h2", { id: "key-title" }, "This server asks for a key"),
    h("p", { class: "muted" }, "One of those it was started with. This tab keeps it until it is closed."), input,
    h("div", { class: "actions" }, button("Use it", use, { class: "primary" }), button("Not now", () => dialog.close(), { class: "quiet" })));
  dialog.showModal();
}

drawerButton.addEventListener("click", () => setDrawer(!drawerElement.classList.contains("open")));
curtain.addEventListener("click", () => setDrawer(false));
addEventListener("hashchange", showView);
addEventListener("tyto-key-needed", askForKey);
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

drawer.show(chat.conversation);
showView();
loadModels();
if (matchMedia("(min-width: 900px)").matches) chat.focus();
