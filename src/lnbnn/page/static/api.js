// Requests to this server, and the state of the model that all views share.

import { toast } from "./dom.js";

export const state = { model: null, generation: -1 };
const watchers = new Set();
const listeners = new Map();

export function watch(run) {
  watchers.add(run);
  return () => watchers.delete(run);
}

export function on(kind, run) {
  if (!listeners.has(kind)) listeners.set(kind, new Set());
  listeners.get(kind).add(run);
  return () => listeners.get(kind).delete(run);
}

async function ask(path, options) {
  let reply;
  try {
    reply = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new Error("The server does not answer. Is lnbnn serve still running?");
  }
  const content = await reply.json().catch(() => ({}));
  if (reply.status === 401) throw new Error("The server was started again. Open the address that it printed.");
  if (!reply.ok) throw Object.assign(new Error(content.error ?? `The server answered ${reply.status}.`), { status: reply.status, content });
  return content;
}

const query = (params) => {
  const given = Object.entries(params).filter(([, value]) => value !== null && value !== undefined);
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

export const get = (path, params = {}, options = {}) => ask(path + query(params), options);
export const post = (path, content) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content) });
export const send = (path, params, file) =>
  ask(path + query(params), { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: file });

export function sendForm(path, params, files) {
  const form = new FormData();
  for (const file of files) form.append("photo", file, file.name || "photo");
  return ask(path + query(params), { method: "POST", body: form });
}

export const picture = (image, size = 256) =>
  `/api/images/${image.id}/picture?size=${size}&of=${(image.sha256 ?? "?").slice(0, 12)}`;

export async function refresh() {
  state.model = await get("/api/model");
  const isNew = state.model.generation !== state.generation;
  state.generation = state.model.generation;
  for (const run of watchers) run(isNew);
}

export const labels = () => state.model?.labels ?? [];

export async function undo() {
  try {
    const { undone } = await post("/api/undo", {});
    await refresh();
    toast(`Undone: ${undone}.`);
  } catch (error) {
    toast(error.message, { kind: "error" });
  }
}

// Show an error of something that was asked for; the result otherwise.
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    toast(error.message, { kind: "error" });
    return null;
  }
}

// While photos come in by the hundred the model changes many times a second: it is looked at now and then.
let lastLook = 0;
let nextLook = null;
function look() {
  clearTimeout(nextLook);
  const wait = lastLook + 700 - performance.now();
  if (wait > 0) {
    nextLook = setTimeout(look, wait);
    return;
  }
  lastLook = performance.now();
  refresh().catch(() => {});
}

export function listen() {
  const source = new EventSource("/api/events");
  for (const kind of ["model", "progress", "report", "decision", "trouble"]) {
    source.addEventListener(kind, (event) => {
      const content = JSON.parse(event.data);
      if (kind === "model") look();
      for (const run of listeners.get(kind) ?? []) run(content);
    });
  }
  source.addEventListener("open", () => refresh().catch((error) => toast(error.message, { kind: "error" })));
}
