// Teach: a card for each class that photos and folders are dropped on; progress and errors by file.

import { attempt, get, labels, picture, post, sendForm, state, undo, watch } from "./api.js";
import { count, h, shown, toast } from "./dom.js";
import { camera, dropZone, fileButton, pasted } from "./files.js";

const MOST_FILES = 16; // sent in one request
const MOST_BYTES = 24 << 20;
const MOST_SHOWN = 8; // photos on a card
const waiting = []; // { file, label }
const typed = new Set(); // classes that have no photo yet
let nSending = 0;
let run = null; // what is being taught since the queue was last empty
let redraw = () => {};

export function teach(files, label) {
  if (!files.length) return;
  run ??= { total: 0, done: 0, added: 0, duplicates: 0, failed: [], labels: new Set() };
  for (const { file } of files) waiting.push({ file, label });
  run.total += files.length;
  run.labels.add(label);
  redraw();
  for (let n = nSending; n < 2; n += 1) next();
}

function nextGroup() {
  const { label } = waiting[0];
  const group = [];
  let bytes = 0;
  while (waiting.length && waiting[0].label === label && group.length < MOST_FILES) {
    if (group.length && bytes + waiting[0].file.size > MOST_BYTES) break;
    bytes += waiting[0].file.size;
    group.push(waiting.shift().file);
  }
  return { label, group };
}

async function next() {
  if (!waiting.length) return;
  const { label, group } = nextGroup();
  nSending += 1;
  try {
    const result = await sendForm("/api/add", { label }, group);
    run.added += result.added.length;
    run.duplicates += result.duplicates.length;
    const known = new Set(result.duplicates.map(([name]) => name));
    run.failed.push(...result.skipped.filter(([name]) => !known.has(name)));
    if (result.added.length) typed.delete(label);
  } catch (error) {
    run.failed.push(...group.map((file) => [file.name, `${file.name}: ${error.message}`]));
  }
  run.done += group.length;
  nSending -= 1;
  if (waiting.length) next();
  else if (nSending === 0) finish();
  redraw();
}

function finish() {
  const { added, duplicates, labels: taught, failed } = run;
  const twice = duplicates ? ` ${count(duplicates, "duplicate")} skipped.` : "";
  const where = taught.size === 1 ? ` to ${shown([...taught][0])}` : "";
  toast(`${count(added, "photo")} added${where}.${twice}`, added ? { action: { text: "Undo", run: undo } } : {});
  lastFailed = failed;
  run = null;
}
let lastFailed = [];

// Photos in folders: the name of the folder is the class.
function teachFolders(found) {
  const byLabel = new Map();
  const loose = [];
  for (const one of found) {
    const label = one.folders.at(-1);
    if (label === undefined) loose.push(one);
    else byLabel.set(label, [...(byLabel.get(label) ?? []), one]);
  }
  for (const [label, files] of byLabel) teach(files, label);
  if (loose.length) toast("Drop single photos on a class, or name a class first.", { kind: "error" });
}

export function view(main) {
  const name = h("input", { id: "new-class", type: "text", maxlength: "200", placeholder: "such as otter", autocomplete: "off" });
  const make = (event) => {
    event?.preventDefault();
    const label = name.value.trim();
    if (!label) return null;
    if (!labels().map(String).includes(label)) typed.add(label);
    name.value = "";
    redraw();
    document.querySelector(`[data-label="${CSS.escape(label)}"] button`)?.focus();
    return label;
  };
  const fresh = dropZone(
    h("form", { class: "card new", onsubmit: make },
      h("label", { for: "new-class" }, "New class"),
      h("div", { class: "row" }, name, h("button", { type: "submit", class: "main" }, "Add")),
      h("p", { class: "muted" }, "Or drop folders here: each becomes a class of that name. ",
        fileButton("Choose a folder", teachFolders, { folder: true, kind: "link" }))),
    (found) => {
      const label = name.value.trim();
      if (label) teach(found, make());
      else teachFolders(found);
    },
  );
  const progress = h("div", { class: "progress", role: "status" });
  const errors = h("div", { class: "errors" });
  const cards = h("div", { class: "cards" });
  const more = h("div", {});
  main.append(
    h("h1", {}, "Teach"),
    h("p", { class: "lead" }, "Give each class five to thirty photos. They stay on this computer."),
    progress, errors, cards, more,
  );
  let byLabel = new Map();
  let latest = "";

  redraw = () => {
    const isBusy = run !== null;
    progress.replaceChildren(...(isBusy ? [
      h("progress", { max: run.total, value: run.done, "aria-label": "Photos taught" }),
      h("span", {}, `${run.done} of ${count(run.total, "photo")}`),
    ] : []));
    const failed = run?.failed ?? lastFailed;
    errors.replaceChildren(...(failed.length ? [
      h("details", { open: true }, h("summary", {}, `${count(failed.length, "file")} could not be used`),
        h("ul", {}, failed.slice(0, 100).map(([, reason]) => h("li", {}, shown(reason)))),
        h("button", { type: "button", class: "link", onclick: () => { lastFailed = []; redraw(); } }, "Dismiss")),
    ] : []));
    const all = [...labels().map(String), ...[...typed].filter((one) => !labels().map(String).includes(one))];
    const key = JSON.stringify([all, [...byLabel].map(([label, images]) => [label, images.length, images.at(-1)?.id]), state.model.classes]);
    if (key === latest && cards.children.length) return;
    latest = key;
    const isTyping = document.activeElement === name;
    cards.replaceChildren(fresh, ...all.map((label) => card(label, byLabel.get(label) ?? [])));
    if (isTyping) name.focus();
    more.replaceChildren(...advice());
  };

  const load = async () => {
    const { images } = await get("/api/images");
    byLabel = new Map();
    for (const image of images) {
      const label = String(image.label);
      if (!byLabel.has(label)) byLabel.set(label, []);
      byLabel.get(label).push(image);
    }
    redraw();
  };
  redraw();
  attempt(load);
  const onpaste = (event) => {
    const found = pasted(event);
    const label = document.activeElement?.closest?.("[data-label]")?.dataset.label ?? (name.value.trim() ? make() : null);
    if (found.length && label) teach(found, label);
    else if (found.length) toast("Choose a class first, then paste.", { kind: "error" });
  };
  document.addEventListener("paste", onpaste);
  const unwatch = watch((isNew) => (isNew ? attempt(load) : redraw()));
  return () => {
    document.removeEventListener("paste", onpaste);
    unwatch();
    redraw = () => {};
  };
}

function card(label, images) {
  const n = state.model.classes[label]?.n_images ?? 0;
  const onfiles = (found) => teach(found, label);
  const shownImages = images.slice(-MOST_SHOWN).reverse();
  return dropZone(
    h("section", { class: "card class", data: { label }, "aria-label": `Class ${label}` },
      h("div", { class: "card-head" }, h("h2", {}, shown(label)),
        h("a", { href: `#photos/${encodeURIComponent(label)}`, class: "muted" }, count(n, "photo"))),
      h("div", { class: "card-photos" }, shownImages.map((image) => h("img", { src: picture(image), alt: "", loading: "lazy" })),
        !images.length && h("p", { class: "muted drop-hint" }, "Drop photos here")),
      h("div", { class: "row" },
        fileButton("Add photos", onfiles),
        fileButton("Add a folder", onfiles, { folder: true }),
        h("button", { type: "button", onclick: () => camera((photo) => teach([photo], label), { again: true }) }, "Camera"))),
    onfiles,
  );
}

function advice() {
  const { model } = state;
  if (!model.n_images) return [];
  if (model.n_classes < 2) return [h("p", { class: "notice" }, "There is only one class. Add a second one, so that the model can tell them apart.")];
  const what = model.choice ? "It was chosen for your photos." : "The method is Local NBNN, which suits photos added one by one.";
  const better = h("button", { type: "button", onclick: async () => {
    better.disabled = true;
    const result = await attempt(() => post("/api/improve", {}));
    better.disabled = false;
    if (result) toast(result.choice?.accuracy ? `Method chosen. Expected accuracy: ${(100 * result.choice.accuracy).toFixed(0)} %.` : "Method chosen.");
  } }, "Choose the best method for these photos");
  return [
    h("section", { class: "advice" }, h("h2", {}, "The method"),
      h("p", { class: "muted" }, `${what} Trying several on all your photos takes up to a few minutes; you can ask questions in the meantime.`), better),
  ];
}
