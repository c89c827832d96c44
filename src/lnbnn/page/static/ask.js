// Ask: photos in, answers out, with their evidence; feedback teaches the model.

import { attempt, labels, send, state, undo, watch } from "./api.js";
import { classField, h, percent, shown, toast, width } from "./dom.js";
import { drawMap, evidencePhotos } from "./evidence.js";
import { camera, dropZone, fileButton, pasted } from "./files.js";
import { openPhoto } from "./photo.js";

const RATES = [null, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01];
const questions = []; // newest first; kept while the page is open
let current = null;
let strictness = 0;
let strength = 85;
let redraw = () => {};
const waiting = [];
let nAsked = 0;

export function ask(files) {
  const fresh = files.map(({ file }) => ({ file, name: file.name || "photo", source: URL.createObjectURL(file), answer: null, against: null }));
  questions.unshift(...fresh);
  for (const old of questions.splice(200)) URL.revokeObjectURL(old.source);
  if (fresh.length) current = fresh[0];
  waiting.push(...fresh);
  redraw();
  for (let n = nAsked; n < 4; n += 1) next();
}

async function next() {
  const question = waiting.shift();
  if (!question) return;
  nAsked += 1;
  try {
    question.answer = await send("/api/predict", { name: question.name, top: 8 }, question.file);
    question.photo = question.answer.photo;
  } catch (error) {
    question.answer = { error: error.message, ranking: [] };
  }
  nAsked -= 1;
  redraw();
  next();
}

// Ask again about what is shown: the model has changed.
async function again(question) {
  if (!question?.photo) return;
  try {
    question.answer = await send("/api/predict", { name: question.name, top: 8 }, question.file);
  } catch (error) {
    question.answer = { error: error.message, ranking: [] };
  }
  question.evidence = null;
  redraw();
}

const isUnknown = ({ false_accept_rate: rate }) => RATES[strictness] !== null && rate !== undefined && rate > RATES[strictness];

export function view(main) {
  const zone = dropZone(
    h(
      "div",
      { class: "drop" },
      h("p", { class: "drop-text" }, "Drop photos here, or paste one"),
      h(
        "div",
        { class: "row center" },
        fileButton("Choose photos", ask, { kind: "main" }),
        h("button", { type: "button", onclick: () => camera((photo) => ask([photo])) }, "Camera"),
      ),
    ),
    ask,
  );
  const slider = h("input", {
    id: "unknown", type: "range", min: "0", max: String(RATES.length - 1), value: String(strictness), step: "1",
    oninput: () => {
      strictness = Number(slider.value);
      redraw();
    },
  });
  const said = h("output", { for: "unknown", class: "muted" });
  const unknown = h("div", { class: "unknown" }, h("label", { for: "unknown" }, "May answer “unknown”"), slider, said);
  const strip = h("div", { class: "strip", role: "group", "aria-label": "Photos asked about" });
  const detail = h("div", { class: "detail", "aria-live": "polite" });
  const empty = h("p", { class: "notice" }, "The model is empty. ", h("a", { href: "#teach" }, "Teach it some photos"), " first.");
  main.append(h("h1", {}, "What is this?"), empty, zone, unknown, strip, detail);

  let drawn = null;
  redraw = () => {
    const canReject = Boolean(state.model.can_reject);
    empty.hidden = state.model.n_images > 0;
    unknown.hidden = !questions.length;
    slider.disabled = !canReject;
    const rate = RATES[strictness];
    const text = rate === null ? "never" : `of what belongs to no class, ${percent(rate)} is accepted as one`;
    said.textContent = canReject ? text : "needs three classes with at least two photos each";
    slider.setAttribute("aria-valuetext", said.textContent);
    zone.classList.toggle("small", questions.length > 0);
    strip.hidden = questions.length < 2;
    strip.replaceChildren(...questions.map((question) => chip(question)));
    const key = JSON.stringify([questions.indexOf(current), current?.answer, strictness, canReject, current?.taught]);
    const isTyping = detail.contains(document.activeElement) && document.activeElement.matches("input[type=text]");
    if (key !== drawn && !isTyping) {
      drawn = key;
      detail.replaceChildren(...(current ? [drawQuestion(current)] : []));
    }
  };
  redraw();
  detail.addEventListener("focusout", () => setTimeout(() => redraw(), 200)); // show what arrived while the user was typing
  const onpaste = (event) => {
    const files = pasted(event);
    if (files.length) ask(files);
  };
  document.addEventListener("paste", onpaste);
  const unwatch = watch((isNew) => (isNew ? again(current) : null) ?? redraw());
  return () => {
    document.removeEventListener("paste", onpaste);
    unwatch();
    redraw = () => {};
  };
}

function chip(question) {
  const { answer } = question;
  const text = answer === null ? "…" : answer.error ? "unreadable" : isUnknown(answer) ? "unknown" : shown(answer.label);
  return h(
    "button",
    { type: "button", class: "chip", title: question.name, "aria-pressed": String(question === current), onclick: () => { current = question; redraw(); } },
    h("img", { src: question.source, alt: "" }),
    h("span", {}, text),
  );
}

function drawQuestion(question) {
  const { answer } = question;
  const image = h("img", { src: question.source, alt: question.name });
  image.addEventListener("load", () => image.parentNode.style.setProperty("--ratio", String(image.naturalWidth / image.naturalHeight)));
  const canvas = h("canvas", { class: "overlay", "aria-hidden": "true", style: { opacity: String(strength / 100) } });
  const range = h("input", {
    type: "range", min: "0", max: "100", value: String(strength), "aria-label": "Strength of the evidence over the photo",
    oninput: () => {
      strength = Number(range.value);
      canvas.style.opacity = String(strength / 100);
    },
  });
  const legend = h("div", { class: "legend" }, range, h("span", { class: "muted" }, ""));
  const photo = h("figure", { class: "photo" }, h("div", { class: "photo-box" }, image, canvas), legend, h("figcaption", { class: "muted" }, shown(question.name)));
  const side = h("div", { class: "answer" });
  const below = h("div", { class: "below" });
  const box = h("div", {}, h("div", { class: "question" }, photo, side), below);
  if (answer === null) {
    side.append(h("p", { class: "muted" }, h("span", { class: "spinner" }), " looking …"));
    return box;
  }
  if (answer.error) {
    side.append(h("p", { class: "error" }, answer.error));
    legend.hidden = true;
    return box;
  }
  const rivals = answer.ranking.slice(1).map(([label]) => label);
  if (!rivals.includes(question.against)) question.against = null;
  side.append(headline(answer), ranking(question, canvas, legend, below), feedback(question));
  explain(question, canvas, legend, below);
  return box;
}

function headline(answer) {
  const text = isUnknown(answer) ? "unknown" : shown(answer.label);
  const best = shown(answer.ranking[0][0]);
  const sure = answer.probability === undefined ? "" : isUnknown(answer) ? `nearest is ${best}` : `${percent(answer.probability)} sure`;
  return h("div", { class: `headline ${isUnknown(answer) ? "is-unknown" : ""}` }, h("h2", {}, text), h("span", { class: "muted" }, sure));
}

function ranking(question, canvas, legend, below) {
  const { answer } = question;
  const list = h("ol", { class: "ranking", "aria-label": "Classes, most likely first" });
  const most = Math.max(...answer.ranking.map(([, score]) => score), 1e-9);
  const least = Math.min(...answer.ranking.map(([, score]) => score), 0);
  answer.ranking.slice(0, 6).forEach(([label, score], place) => {
    const p = answer.probabilities?.[place];
    const share = p ?? (score - least) / (most - least);
    const bar = h("span", { class: "bar" }, h("span", { class: "bar-fill", style: { width: width(share) } }));
    const isFirst = place === 0;
    const button = h(
      "button",
      {
        type: "button", class: "rank", "aria-pressed": String(question.against === null ? isFirst : question.against === label),
        title: isFirst ? "What speaks for it" : `Why ${answer.ranking[0][0]} and not ${label}?`,
        onclick: () => {
          for (const other of list.querySelectorAll(".rank")) other.setAttribute("aria-pressed", String(other === button));
          question.against = isFirst ? null : label;
          explain(question, canvas, legend, below);
        },
      },
      h("span", { class: "rank-name" }, shown(label)), bar, h("span", { class: "rank-value" }, p === undefined ? "" : percent(p)),
    );
    list.append(h("li", {}, button));
  });
  const hint = answer.ranking.length > 1 ? "Choose a class to see why it is not the answer." : "Teach it a second class, so that there is a choice.";
  return h("div", {}, list, h("p", { class: "muted hint" }, hint));
}

async function explain(question, canvas, legend, below) {
  const { against } = question;
  const label = question.answer.ranking[0][0];
  if (!labels().includes(label)) return; // the model has changed: it is being asked again
  const key = against === null ? "" : `not ${against}`;
  question.evidence ??= {};
  legend.dataset.wanted = key;
  const rival = against === null ? {} : { label: String(label), against: String(against) };
  const params = { photo: question.photo, ...rival };
  question.evidence[key] ??= send("/api/explain", params, null).catch((error) =>
    error.status === 404 ? send("/api/explain", { ...params, photo: null }, question.file) : Promise.reject(error),
  );
  try {
    const found = await question.evidence[key];
    if (legend.dataset.wanted !== key) return;
    drawMap(canvas, found.map);
    const words = against === null ? `bright: evidence for ${shown(label)}` : `orange: for ${shown(label)}, blue: for ${shown(against)}`;
    legend.lastChild.textContent = words;
    const known = found.itself === null ? null : h("p", { class: "notice" }, "This photo is in the model, and matches itself.");
    below.replaceChildren(...[known, evidencePhotos(found, question.source, openPhoto)].filter(Boolean));
  } catch (error) {
    delete question.evidence[key];
    legend.hidden = true;
    below.replaceChildren(h("p", { class: "muted" }, error.message));
  }
}

function feedback(question) {
  if (question.taught) {
    return h("p", { class: "taught" }, `Taught as ${shown(question.taught)}.`);
  }
  const { answer } = question;
  const box = h("div", { class: "feedback" });
  const best = answer.ranking[0][0];
  const { form, input } = classField(labels(), { label: "The right class", placeholder: "It is …", onchoose: (label) => teach(question, label) });
  form.hidden = true;
  box.append(
    h("div", { class: "row" },
      h("button", { type: "button", class: "main", onclick: () => teach(question, String(best)) }, `Yes, ${shown(best)}`),
      h("button", { type: "button", onclick: () => { form.hidden = false; input.focus(); } }, "No, it is …")),
    form,
  );
  return box;
}

async function teach(question, label) {
  const result = await attempt(() =>
    send("/api/add", { label, photo: question.photo, name: question.name }, null).catch((error) =>
      error.status === 404 ? send("/api/add", { label, name: question.name }, question.file) : Promise.reject(error),
    ),
  );
  if (!result) return;
  if (result.added.length) {
    question.taught = label;
    toast(`Added to ${shown(label)}.`, { action: { text: "Undo", run: () => undo().then(() => { question.taught = null; redraw(); }) } });
  } else {
    toast(result.skipped[0]?.[1] ?? "Nothing was added.", { kind: "error" });
  }
  redraw();
}

