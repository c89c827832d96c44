// A report on the whole model: requested once, with progress, and again on demand.

import { get, on, state, watch } from "./api.js";
import { h } from "./dom.js";

let kept = {};

export function report(name, place, draw) {
  const said = h("p", { class: "muted", role: "status" });
  const again = h("button", { type: "button", hidden: true, onclick: () => ask(true) }, "The model has changed: update");
  const box = h("div", {});
  place.append(said, again, box);
  let isThere = true;

  async function ask(fresh) {
    again.hidden = true;
    if (!state.model.n_images) {
      said.textContent = "The model is empty.";
      return;
    }
    if (fresh || !kept[name]) {
      said.replaceChildren(h("span", { class: "spinner" }), " leaving out each photo in turn …");
      try {
        kept[name] = await get(`/api/${name}`);
      } catch (error) {
        if (!isThere) return;
        if (error.status === 409) setTimeout(() => isThere && ask(true), 1000); // it changes too often
        else said.textContent = error.message;
        return;
      }
    }
    if (!isThere) return;
    said.replaceChildren();
    box.replaceChildren();
    draw(box, kept[name]);
    check();
  }
  const check = () => (again.hidden = !kept[name] || kept[name].generation === state.generation);
  const stop = [
    on("report", ({ report: which, done, total }) => {
      if (which === name && said.lastChild) said.lastChild.textContent = ` leaving out each photo in turn … ${done} of ${total}`;
    }),
    watch(() => check()),
  ];
  ask(false);
  return () => {
    isThere = false;
    for (const end of stop) end();
  };
}
