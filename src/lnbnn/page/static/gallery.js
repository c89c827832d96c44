// Photos: all labeled photos by class. Only visible ones are in the document, so that thousands scroll like ten.

import { attempt, get, labels, picture, post, undo, watch } from "./api.js";
import { classField, count, h, put, shown, toast } from "./dom.js";
import { openPhoto } from "./photo.js";

const HEAD = 52;
const GAP = 8;
const MARGIN = 600; // pixels above and below the window that are drawn too

export function view(main, wantedLabel) {
  const selected = new Set();
  let images = [];
  let rows = [];
  let columns = 1;
  let side = 132;
  let at = -1; // the photo that the keyboard is at
  let anchor = -1;
  const drawn = new Map(); // key -> node
  let only = wantedLabel;

  const filter = h("select", { "aria-label": "Class", onchange: () => { only = filter.value; arrange(); } });
  const total = h("span", { class: "muted", role: "status" });
  const bar = h("div", { class: "toolbar", hidden: true, data: { key: "" } });
  const heads = h("div", { "aria-hidden": "true" });
  const list = h("div", { class: "gallery", role: "listbox", tabindex: "0", "aria-multiselectable": "true", "aria-label": "Photos" });
  const box = h("div", { class: "gallery-box" }, heads, list);
  const empty = h("p", { class: "notice" }, "No photos yet. ", h("a", { href: "#teach" }, "Teach some"), ".");
  const keys = h("p", { class: "muted hint wide" }, "Arrows move, Shift extends, Space selects, Enter opens, R relabels, Delete removes, Ctrl+A selects all.");
  main.append(h("h1", {}, "Photos"), h("div", { class: "row filter" }, filter, total), keys, bar, empty, box);
  let all = [];

  async function load() {
    const found = await attempt(() => get("/api/images"));
    if (!found) return;
    all = found.images.sort((a, b) => (String(a.label) < String(b.label) ? -1 : String(a.label) > String(b.label) ? 1 : a.id - b.id));
    const known = new Set(all.map((image) => image.id));
    for (const id of selected) if (!known.has(id)) selected.delete(id);
    const counts = new Map();
    for (const image of all) counts.set(String(image.label), (counts.get(String(image.label)) ?? 0) + 1);
    filter.replaceChildren(h("option", { value: "" }, "All classes"), ...[...counts].map(([label, n]) => h("option", { value: label }, `${shown(label)} (${n})`)));
    if (only && !counts.has(only)) only = "";
    filter.value = only;
    arrange();
  }

  function arrange() {
    const now = images[at]?.id;
    images = only ? all.filter((image) => String(image.label) === only) : all;
    const width = box.clientWidth || 800;
    const least = width < 500 ? 92 : 132;
    columns = Math.max(1, Math.floor((width + GAP) / (least + GAP)));
    side = Math.floor((width + GAP) / columns) - GAP;
    rows = [];
    let top = 0;
    for (let start = 0; start < images.length; ) {
      const { label } = images[start];
      let end = start;
      while (end < images.length && images[end].label === label) end += 1;
      rows.push({ top, height: HEAD, label, n: end - start });
      top += HEAD;
      for (let first = start; first < end; first += columns) {
        rows.push({ top, height: side + GAP, first, last: Math.min(first + columns, end) });
        top += side + GAP;
      }
      start = end;
    }
    box.style.height = `${top}px`;
    at = images.findIndex((image) => image.id === now);
    anchor = at;
    empty.hidden = all.length > 0;
    list.hidden = images.length === 0;
    filter.hidden = keys.hidden = all.length === 0;
    total.textContent = count(images.length, "photo");
    for (const node of drawn.values()) node.remove();
    drawn.clear();
    draw();
    showBar();
  }

  function draw() {
    const offset = box.getBoundingClientRect().top;
    const from = -offset - MARGIN;
    const to = -offset + window.innerHeight + MARGIN;
    const wanted = new Map();
    let low = 0;
    let high = rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rows[middle].top + rows[middle].height < from) low = middle + 1;
      else high = middle;
    }
    for (let place = low; place < rows.length && rows[place].top < to; place += 1) {
      const row = rows[place];
      if (row.first === undefined) wanted.set(`head ${row.label}`, [row]);
      else for (let index = row.first; index < row.last; index += 1) wanted.set(images[index].id, [row, index]);
    }
    if (at >= 0 && images[at]) {
      const row = rows.find(({ first, last }) => first !== undefined && first <= at && at < last);
      wanted.set(images[at].id, [row, at]);
    }
    for (const [key, node] of drawn) {
      if (!wanted.has(key)) {
        node.remove();
        drawn.delete(key);
      }
    }
    for (const [key, [row, index]] of wanted) {
      if (!drawn.has(key)) {
        const node = index === undefined ? head(row) : tile(row, index);
        drawn.set(key, node);
        (index === undefined ? heads : list).append(node);
      }
    }
    mark();
  }

  const head = (row) =>
    h("div", { class: "gallery-head", style: { top: `${row.top}px` } }, h("strong", {}, shown(row.label)), h("span", { class: "muted" }, ` ${row.n}`));

  function tile(row, index) {
    const image = images[index];
    const place = { top: `${row.top}px`, left: `${(index - row.first) * (side + GAP)}px`, width: `${side}px`, height: `${side}px` };
    const photo = h("img", { src: picture(image), alt: "", decoding: "async", draggable: false });
    photo.addEventListener("error", () => photo.replaceWith(h("span", { class: "no-photo" }, "not found")));
    return h("div", {
      role: "option", class: "tile", id: `photo-${image.id}`, style: place, "aria-selected": "false",
      "aria-label": `${shown(image.label)}: ${shown(image.name)}`, "aria-posinset": String(index + 1), "aria-setsize": String(images.length),
      data: { index: String(index) },
    }, photo);
  }

  function mark() {
    for (const [key, node] of drawn) {
      if (typeof key === "number") {
        node.setAttribute("aria-selected", String(selected.has(key)));
        node.classList.toggle("at", images[at]?.id === key);
      }
    }
    if (images[at]) list.setAttribute("aria-activedescendant", `photo-${images[at].id}`);
    else list.removeAttribute("aria-activedescendant");
  }

  function showBar() {
    mark();
    const key = [...selected].join();
    if (key === bar.dataset.key) return; // someone may be typing there
    bar.dataset.key = key;
    bar.replaceChildren();
    bar.hidden = selected.size === 0;
    if (!selected.size) return;
    const { form, input } = classField(labels(), { label: "Another class for the selected photos", placeholder: "Relabel as …", onchoose: relabel });
    input.id = "relabel";
    put(
      bar,
      h("strong", {}, `${selected.size} selected`), form,
      h("button", { type: "button", onclick: remove }, "Remove"),
      selected.size === 1 && h("button", { type: "button", onclick: () => openPhoto([...selected][0]) }, "Open"),
      h("button", { type: "button", class: "link", onclick: () => { selected.clear(); showBar(); list.focus(); } }, "Select none"),
    );
  }

  async function relabel(label) {
    const ids = [...selected];
    if (!(await attempt(() => post("/api/relabel", { ids, label })))) return;
    selected.clear();
    toast(`${count(ids.length, "photo")} now ${shown(label)}.`, { action: { text: "Undo", run: undo } });
    await load();
    list.focus();
  }

  async function remove() {
    const ids = [...selected];
    const result = await attempt(() => post("/api/remove", { ids }));
    if (!result) return;
    selected.clear();
    const lost = result.n_gone_for_good ? ` ${count(result.n_gone_for_good, "file")} not found: this cannot be undone.` : "";
    toast(`${count(ids.length, "photo")} removed.${lost}`, { action: { text: "Undo", run: undo } });
    await load();
    list.focus();
  }

  function choose(index, { extend = false, toggle = false } = {}) {
    const image = images[index];
    if (!image) return;
    if (extend && anchor >= 0) {
      if (!toggle) selected.clear();
      for (let place = Math.min(anchor, index); place <= Math.max(anchor, index); place += 1) selected.add(images[place].id);
    } else {
      if (toggle) {
        if (!selected.delete(image.id)) selected.add(image.id);
      } else {
        selected.clear();
        selected.add(image.id);
      }
      anchor = index;
    }
    at = index;
    showBar();
  }

  function go(index, extend) {
    at = Math.max(0, Math.min(images.length - 1, index));
    if (extend) choose(at, { extend: true });
    else anchor = at;
    draw();
    const row = rows.find(({ first, last }) => first !== undefined && first <= at && at < last);
    const y = box.getBoundingClientRect().top + row.top;
    const [top, bottom] = [110, window.innerHeight - 90]; // the header and the toolbar cover the rest
    if (y < top) window.scrollBy(0, y - top);
    else if (y + side > bottom) window.scrollBy(0, y + side - bottom);
  }

  function onkey(event) {
    const steps = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - columns, ArrowDown: at + columns, Home: 0, End: images.length - 1 };
    if (event.key in steps) go(steps[event.key], event.shiftKey);
    else if (event.key === " ") choose(at < 0 ? 0 : at, { toggle: true });
    else if (event.key === "Enter" && images[at]) openPhoto(images[at].id);
    else if (event.key === "Delete" || event.key === "Backspace") selected.size && remove();
    else if (event.key === "Escape") { selected.clear(); showBar(); }
    else if (event.key.toLowerCase() === "a" && (event.ctrlKey || event.metaKey)) { for (const image of images) selected.add(image.id); showBar(); }
    else if (event.key.toLowerCase() === "r" && !event.ctrlKey && !event.metaKey) {
      if (!selected.size && images[at]) choose(at);
      document.getElementById("relabel")?.focus();
    } else return;
    event.preventDefault();
  }

  list.addEventListener("keydown", onkey);
  list.addEventListener("click", (event) => {
    const node = event.target.closest(".tile");
    if (!node) return;
    const toggle = event.ctrlKey || event.metaKey || matchMedia("(pointer: coarse)").matches;
    choose(Number(node.dataset.index), { extend: event.shiftKey, toggle });
  });
  list.addEventListener("dblclick", (event) => {
    const node = event.target.closest(".tile");
    if (node) openPhoto(images[Number(node.dataset.index)].id);
  });
  let isWaiting = false;
  const onscroll = () => {
    if (isWaiting) return;
    isWaiting = true;
    requestAnimationFrame(() => {
      isWaiting = false;
      draw();
    });
  };
  const resized = new ResizeObserver(() => Math.abs(box.clientWidth - (columns * (side + GAP) - GAP)) > GAP && arrange());
  resized.observe(box);
  window.addEventListener("scroll", onscroll, { passive: true });
  load();
  const unwatch = watch((isNew) => isNew && load());
  return () => {
    window.removeEventListener("scroll", onscroll);
    resized.disconnect();
    unwatch();
  };
}
