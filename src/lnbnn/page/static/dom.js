// Elements from plain values. Text is always text: nothing here, and nothing in this page, parses HTML.

const SVG = "http://www.w3.org/2000/svg";

const real = (children) => children.flat().filter((child) => child !== null && child !== undefined && child !== false);
export const put = (node, ...children) => node.append(...real(children));

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(node.style, value);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name in node && typeof value !== "string") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  put(node, ...children);
  return node;
}

export const h = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
export const svg = (name, attributes, ...children) => {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes ?? {})) node.setAttribute(key, value);
  node.append(...children);
  return node;
};

// A name as one line: what has no shape of its own on the screen is shown by its code.
export function shown(value) {
  const text = String(value).replace(
    /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]|\p{Cs}/gu,
    (letter) => `\\u${letter.codePointAt(0).toString(16).padStart(4, "0")}`,
  );
  return text.trim() === "" ? `"${text}"` : text;
}

export const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)} %`;
export const width = (share) => `${Math.max(0.5, 100 * share).toFixed(2)}%`; // of a bar
export const count = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;

export function toast(text, { kind = "", action = null } = {}) {
  const box = h("div", { class: `toast ${kind}` }, h("span", {}, text));
  if (action) {
    for (const older of document.querySelectorAll(".toast.acts")) older.remove(); // only the last step can be undone
    box.classList.add("acts");
    box.append(h("button", { type: "button", class: "quiet", onclick: () => (box.remove(), action.run()) }, action.text));
  }
  box.append(h("button", { type: "button", class: "close", "aria-label": "Dismiss", onclick: () => box.remove() }, "×"));
  const all = document.getElementById("toasts");
  all.append(box);
  while (all.children.length > 4) all.firstChild.remove();
  if (kind !== "error") setTimeout(() => box.remove(), 8000);
}

// A dialog that is gone once it is closed.
export function dialog(title, ...children) {
  const box = h("dialog", { "aria-label": title, onclose: () => box.remove() });
  const close = h("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => box.close() }, "×");
  put(box, h("div", { class: "dialog-head" }, h("h2", {}, title), close), ...children);
  box.addEventListener("click", (event) => event.target === box && box.close());
  document.body.append(box);
  box.showModal();
  return box;
}

// A field for the name of a class, with those there are.
export function classField(labels, { label, placeholder = "Name of a class", onchoose }) {
  const id = `classes-${Math.random().toString(36).slice(2)}`;
  const input = h("input", { type: "text", list: id, placeholder, "aria-label": label, maxlength: "200", autocomplete: "off" });
  const form = h(
    "form",
    {
      class: "class-field",
      onsubmit: (event) => {
        event.preventDefault();
        if (!input.value.trim()) return;
        input.blur();
        onchoose(input.value.trim());
      },
    },
    input,
    h("datalist", { id }, labels.map((name) => h("option", { value: String(name) }))),
    h("button", { type: "submit" }, "OK"),
  );
  return { form, input };
}
