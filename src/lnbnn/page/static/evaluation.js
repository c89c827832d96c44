// How good: leave-one-out accuracy and the confusion matrix.

import { picture } from "./api.js";
import { count, dialog, h, percent, put, shown, width } from "./dom.js";
import { openPhoto } from "./photo.js";
import { report } from "./report.js";

export function view(main) {
  main.append(h("h1", {}, "How good is it?"), h("p", { class: "lead" }, "Each photo is classified as if the model had never seen it. Expect about the same on new photos like these."));
  return report("evaluation", main, draw);
}

function draw(box, found) {
  const right = found.images.filter((image) => image.label === image.answer).length;
  const classes = found.labels.map((label) => ({ label, share: found.per_class[String(label)], n: found.confusion[found.labels.indexOf(label)].reduce((a, b) => a + b, 0) }));
  classes.sort((a, b) => a.share - b.share);
  put(
    box,
    h("div", { class: "figures" },
      figure(percent(found.mean_per_class_accuracy, 1), "right, mean over the classes"),
      figure(`${right} of ${found.n_images}`, "photos classified correctly"),
      found.alone.length > 0 && figure(String(found.alone.length), "alone in their class, so not evaluated")),
    more(found),
    h("div", { class: "good-grid" },
      h("section", {}, h("h2", {}, "Class by class"),
        h("ul", { class: "class-bars" }, classes.map(({ label, share, n }) =>
          h("li", {}, h("a", { href: `#photos/${encodeURIComponent(label)}` }, shown(label)),
            h("span", { class: "bar" }, h("span", { class: "bar-fill", style: { width: width(share) } })),
            h("span", { class: "rank-value" }, percent(share)), h("span", { class: "muted" }, ` of ${n}`))))),
      h("section", {}, h("h2", {}, "Confusion matrix"), matrix(found))),
  );
}

const figure = (value, text) => h("div", { class: "figure" }, h("strong", {}, value), h("span", { class: "muted" }, text));

function matrix(found) {
  const n = found.answers.length;
  const cell = n > 60 ? 9 : n > 25 ? 16 : n > 12 ? 26 : 38;
  const grid = h("div", { class: "matrix", role: "group", "aria-label": "Confusion matrix: rows are labels, columns answers", style: { gridTemplateColumns: `minmax(3rem, max-content) repeat(${n}, ${cell}px)`, gridTemplateRows: `auto repeat(${found.labels.length}, ${cell}px)` } });
  if (n <= 40) {
    found.answers.forEach((answer, column) => grid.append(h("span", { class: "column-name", title: String(answer), style: { gridRow: "1", gridColumn: String(column + 2) } }, shown(answer))));
  }
  found.labels.forEach((label, row) => {
    grid.append(h("span", { class: n > 40 ? "row-name tiny" : "row-name", title: String(label), style: { gridRow: String(row + 2), gridColumn: "1" } }, n > 60 ? "" : shown(label)));
    const total = found.confusion[row].reduce((a, b) => a + b, 0);
    found.confusion[row].forEach((times, column) => {
      if (!times) return;
      const answer = found.answers[column];
      const share = times / total;
      const isRight = label === answer;
      const text = `${shown(label)} answered as ${shown(answer)}: ${count(times, "photo")}`;
      grid.append(h("button", {
        type: "button", class: `cell ${isRight ? "is-right" : "is-wrong"}${share > 0.5 ? " strong" : ""}`, title: text, "aria-label": text,
        style: { gridRow: String(row + 2), gridColumn: String(column + 2) },
        onclick: () => openCell(found, label, answer),
      }, n > 25 ? "" : String(times)));
      grid.lastChild.style.setProperty("--share", width(0.2 + 0.8 * share));
    });
  });
  return h("div", { class: "matrix-scroll", tabindex: "0", role: "region", "aria-label": "Confusion matrix" }, grid, h("p", { class: "muted" }, "Rows: labels. Columns: answers. Choose a cell to see its photos."));
}

function openCell(found, label, answer) {
  const own = found.images.filter((image) => image.label === label && image.answer === answer);
  dialog(
    label === answer ? `${shown(label)}, recognized` : `${shown(label)} answered as ${shown(answer)}`,
    h("div", { class: "neighbors" }, own.slice(0, 200).map((image) =>
      h("button", { type: "button", class: "neighbor", "aria-label": `Open photo ${image.id}`, onclick: () => openPhoto(image.id) }, h("img", { src: picture(image), alt: "", loading: "lazy" })))),
  );
}

function more(found) {
  if (!found.curve?.length) return null;
  const last = found.curve.at(-1);
  const before = found.curve.at(-2);
  const gain = before ? last.accuracy - before.accuracy : 0;
  const points = `${(100 * gain).toFixed(1)} points`;
  const text = !before
    ? "Too few photos to say what more would gain."
    : gain > 0.005
      ? `The second half of the photos gained ${points}. Twice as many photos may gain up to that much again, then less.`
      : "The second half of the photos gained nothing. More of the same will not help; other views or the audit may.";
  return h("section", { class: "more" }, h("h2", {}, "What more photos would gain"), curve(found.curve), h("p", {}, text));
}

function curve(points) {
  return h("ul", { class: "curve", "aria-label": "Accuracy by the number of photos per class" }, points.map(({ n_per_class: n, accuracy }) =>
    h("li", {}, h("span", { class: "rank-name" }, `${Number(n.toFixed(1))} per class`), h("span", { class: "bar" }, h("span", { class: "bar-fill", style: { width: width(accuracy) } })), h("span", { class: "rank-value" }, percent(accuracy, 0)))));
}
