// The frame of the page: the current view, the name of the model, progress, undo.

import { listen, on, refresh, state, undo, watch } from "./api.js";
import { count, h, shown, toast } from "./dom.js";
import * as ask from "./ask.js";
import * as audit from "./audit.js";
import * as gallery from "./gallery.js";
import * as evaluation from "./evaluation.js";
import * as teach from "./teach.js";

const VIEWS = { ask: ask.view, teach: teach.view, photos: gallery.view, audit: audit.view, good: evaluation.view };
const TITLES = { ask: "Ask", teach: "Teach", photos: "Photos", audit: "Audit", good: "How good" };
const main = document.getElementById("view");
let leave = null;

function show() {
  const [, name = "", rest = ""] = location.hash.match(/^#(\w*)(?:\/(.*))?$/) ?? [];
  const wanted = VIEWS[name] ? name : state.model?.n_images ? "ask" : "teach";
  leave?.();
  main.replaceChildren();
  main.className = wanted;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${wanted}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${TITLES[wanted]} · ${state.model?.name ?? "lnbnn"}`;
  leave = VIEWS[wanted](main, decodeURIComponent(rest)) ?? null;
}

function showModel() {
  const { model } = state;
  document.getElementById("model-name").textContent = shown(model.name);
  document.getElementById("model-size").textContent = model.n_images
    ? `${count(model.n_classes, "class", "classes")} · ${count(model.n_images, "photo")}`
    : "empty";
  const button = document.getElementById("undo");
  button.hidden = model.undo === null;
  button.title = model.undo ? `Undo ${model.undo} (Ctrl+Z)` : "";
  if (!model.doing) document.getElementById("doing").replaceChildren();
}

function showProgress({ doing, stage, done, total }) {
  const part = total > 1 ? ` ${Math.floor((100 * done) / total)} %` : "";
  const box = document.getElementById("doing");
  const text = doing === "maintenance" ? `learning${part}` : `${doing}: ${stage}${part}`;
  box.replaceChildren(h("span", { class: "spinner" }), h("span", { class: "doing-text" }, text));
  clearTimeout(showProgress.timer);
  showProgress.timer = setTimeout(() => box.replaceChildren(), 4000);
}

document.getElementById("undo").addEventListener("click", undo);
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, textarea, select");
  if ((event.ctrlKey || event.metaKey) && event.key === "z" && !event.shiftKey && !isTyping) {
    event.preventDefault();
    undo();
  }
});
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => event.preventDefault());
window.addEventListener("hashchange", show);
watch(showModel);
on("progress", showProgress);
on("trouble", ({ text }) => toast(text, { kind: "error" }));

try {
  await refresh();
} catch (error) {
  toast(error.message, { kind: "error" });
}
if (state.model) {
  show();
  listen();
}
