// One labeled photo: its leave-one-out answer, and the most similar photos.

import { attempt, get, labels, picture, post } from "./api.js";
import { classField, dialog, h, percent, shown } from "./dom.js";

export async function openPhoto(id) {
  const found = await attempt(() => get(`/api/images/${id}`));
  if (!found) return;
  const isRight = found.answer === found.label;
  const said =
    found.answer === null
      ? "It is the only photo, so nothing is known without it."
      : isRight
        ? `Without this photo the model would say the same: ${shown(found.answer)}.`
        : `Without this photo the model would say ${shown(found.answer)}.`;
  const { form } = classField(labels(), {
    label: "Another class for this photo",
    placeholder: "It is …",
    onchoose: async (label) => {
      if (await attempt(() => post("/api/relabel", { ids: [id], label }))) box.close();
    },
  });
  const gone = async () => {
    if (await attempt(() => post("/api/remove", { ids: [id] }))) box.close();
  };
  const neighbors = found.neighbors.map((one) =>
    h(
      "button",
      { type: "button", class: `neighbor ${one.label === found.label ? "" : "other"}`, onclick: () => { box.close(); openPhoto(one.id); } },
      h("img", { src: picture(one), alt: "", loading: "lazy" }),
      h("span", {}, `${shown(one.label)} · ${percent(one.share)}`),
    ),
  );
  const box = dialog(
    shown(found.label),
    h("div", { class: "one-photo" },
      h("img", { class: "large", src: picture(found, 1024), alt: shown(found.name) }),
      h("div", {},
        h("p", { class: "muted" }, shown(found.name)),
        h("p", { class: isRight ? "right" : "wrong" }, said),
        h("div", { class: "row" }, form, h("button", { type: "button", onclick: gone }, "Remove")))),
    neighbors.length && h("h3", {}, "Most similar"),
    neighbors.length && h("div", { class: "neighbors" }, neighbors),
  );
}
