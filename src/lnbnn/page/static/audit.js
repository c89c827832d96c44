// Audit: what looks wrong, entry by entry; keys to accept, keep or change.

import { attempt, labels, picture, post, undo } from "./api.js";
import { classField, count, h, percent, shown, toast } from "./dom.js";
import { openPhoto } from "./photo.js";
import { report } from "./report.js";

export function view(main) {
  main.append(
    h("h1", {}, "Audit"),
    h("p", { class: "lead" }, "Each photo is classified as if the model had never seen it. What looks wrong is listed, most suspicious first."),
    h("p", { class: "muted hint wide" }, "A accepts the suggestion, K keeps things as they are, C changes the label; arrows move. Your decisions are saved."),
  );
  return report("audit", main, draw);
}

function draw(box, found) {
  const lists = [
    ["suspects", "Labels that look wrong", suspect],
    ["near_duplicates", "Near-duplicates", duplicate],
    ["strangers", "Photos unlike any other", stranger],
  ];
  let nOpen = 0;
  for (const [name, title, make] of lists) {
    const open = found[name].filter((entry) => entry.decision !== "keep"); // the others were acted on; if they are listed, that was undone
    nOpen += open.length;
    const nDecided = found[name].length - open.length;
    const head = h("h2", {}, title, " ", h("span", { class: "muted count" }, String(open.length)));
    const section = h("section", {}, head, nDecided > 0 && h("p", { class: "muted" }, `${nDecided} already decided.`));
    section.append(...open.map((entry) => make(entry, name, found)));
    box.append(section);
  }
  if (!nOpen) box.prepend(h("p", { class: "notice good" }, "Nothing left to decide."));
  if (found.confused.length) {
    box.append(
      h("section", {}, h("h2", {}, "Confused classes"),
        h("ul", { class: "confused" }, found.confused.map((pair) =>
          h("li", {}, h("strong", {}, shown(pair.label)), " answered as ", h("strong", {}, shown(pair.answer)), ` ${count(pair.n_images, "time")} (${percent(pair.share)})`))),
        h("p", {}, h("a", { href: "#good" }, "The whole matrix"))),
    );
  }
}

function entryBox(entry, name, { photos, text, actions, changeOf }) {
  const ids = entry.other_id === undefined ? [entry.id] : [entry.id, entry.other_id];
  const box = h("article", { class: "entry", tabindex: "0", "aria-label": text });
  const decide = async (decision, work) => {
    if (work && !(await attempt(work))) return;
    const about = [entry.label, entry.suggested, entry.other_label].filter((label) => label !== undefined);
    await attempt(() => post("/api/decide", { list: name, ids, labels: about, decision }));
    entry.decision = decision;
    if (work) toast("Done.", { action: { text: "Undo", run: undo } });
    const next = siblings(box, 1) ?? siblings(box, -1);
    const counter = box.closest("section").querySelector(".count");
    counter.textContent = String(Number(counter.textContent) - 1);
    box.remove();
    next?.focus();
  };
  const { form, input } = classField(labels(), {
    label: "The right class", placeholder: "It is …",
    onchoose: (label) => decide("change", () => post("/api/relabel", { ids: [changeOf ?? entry.id], label })),
  });
  form.hidden = true;
  const change = () => { form.hidden = false; input.focus(); };
  const buttons = actions(decide, change).map(({ key, text: words, run, kind }) =>
    h("button", { type: "button", class: kind ?? "", onclick: run, "aria-keyshortcuts": key }, words, " ", h("kbd", {}, key)));
  box.append(
    h("div", { class: "entry-photos" }, photos.map(({ id, caption, kind }) =>
      h("figure", { class: kind ?? "" },
        h("button", { type: "button", class: "plain", "aria-label": `Open ${caption}`, onclick: () => openPhoto(id) }, h("img", { src: picture({ id }), alt: "", loading: "lazy" })),
        h("figcaption", {}, caption)))),
    h("div", { class: "entry-text" }, h("p", {}, text), h("div", { class: "row" }, buttons), form),
  );
  box.addEventListener("keydown", (event) => {
    if (event.target.closest("input") || event.ctrlKey || event.metaKey) return;
    const button = buttons.find((one) => one.getAttribute("aria-keyshortcuts").toLowerCase() === event.key.toLowerCase());
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (button) button.click();
    else if (step) siblings(box, step)?.focus();
    else return;
    event.preventDefault();
  });
  return box;
}

function siblings(box, step) {
  const all = [...document.querySelectorAll(".entry")];
  return all[all.indexOf(box) + step];
}

const suspect = (entry, name) =>
  entryBox(entry, name, {
    photos: [
      { id: entry.id, caption: `labeled ${shown(entry.label)}`, kind: "doubted" },
      { id: entry.closest_id, caption: `similar: ${shown(entry.closest_label)}` },
    ],
    text: `Labeled ${shown(entry.label)}, looks like ${shown(entry.suggested)}: ${percent(entry.probability)} likely to be wrong.`,
    actions: (decide, change) => [
      { key: "A", text: `It is ${shown(entry.suggested)}`, kind: "main", run: () => decide("accept", () => post("/api/relabel", { ids: [entry.id], label: entry.suggested })) },
      { key: "K", text: `${shown(entry.label)} is right`, run: () => decide("keep") },
      { key: "C", text: "Something else", run: change },
    ],
  });

const duplicate = (entry, name) =>
  entryBox(entry, name, {
    photos: [
      { id: entry.id, caption: shown(entry.label) },
      { id: entry.other_id, caption: shown(entry.other_label), kind: "doubted" },
    ],
    text: `${entry.same_bytes ? "The same file twice" : `${percent(entry.share)} alike`}${entry.across_classes ? ", under two labels: one of them is wrong" : ""}.`,
    changeOf: entry.other_id,
    actions: (decide, change) => [
      { key: "A", text: "Remove the second", kind: "main", run: () => decide("accept", () => post("/api/remove", { ids: [entry.other_id] })) },
      { key: "K", text: "Keep both", run: () => decide("keep") },
      { key: "C", text: "Relabel the second", run: change },
    ],
  });

const stranger = (entry, name) =>
  entryBox(entry, name, {
    photos: [{ id: entry.id, caption: `labeled ${shown(entry.label)}`, kind: "doubted" }],
    text: `No class stands out for it; ${shown(entry.label)} ranks number ${entry.rank}.`,
    actions: (decide, change) => [
      { key: "A", text: "Remove it", kind: "main", run: () => decide("accept", () => post("/api/remove", { ids: [entry.id] })) },
      { key: "K", text: "Keep it", run: () => decide("keep") },
      { key: "C", text: "Relabel it", run: change },
    ],
  });
