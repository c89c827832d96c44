// The evidence drawn over a photo, and the pairs of patches it comes from.

import { picture } from "./api.js";
import { count, h, percent, shown, svg } from "./dom.js";

const FOR = [255, 150, 40];
const AGAINST = [60, 130, 255];
const DARK = [12, 14, 18];
const COLORS = ["#e69f00", "#0072b2", "#009e73", "#cc79a7"]; // safe for color blindness (Okabe and Ito)
const BOX = 100;
const GAP = 14;

// Without evidence the photo is dark, so that evidence shows on photos of any color.
export function drawMap(canvas, { width, height, values }) {
  const bytes = Uint8Array.from(atob(values), (letter) => letter.charCodeAt(0));
  const support = new Int8Array(bytes.buffer);
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(width, height);
  for (let at = 0; at < support.length; at += 1) {
    const share = Math.abs(support[at]) / 127;
    const color = support[at] > 0 ? FOR : AGAINST;
    for (let band = 0; band < 3; band += 1) pixels.data[4 * at + band] = DARK[band] * (1 - share) + color[band] * share;
    pixels.data[4 * at + 3] = 255 * (0.72 * (1 - share) + 0.3 * share);
  }
  context.putImageData(pixels, 0, 0);
}

const sizeOf = (source) =>
  new Promise((resolve) => {
    const image = new Image();
    image.onload = () => resolve([image.naturalWidth, image.naturalHeight]);
    image.onerror = () => resolve(null);
    image.src = source;
  });

function placed(source, size, left) {
  if (!size) {
    const box = svg("rect", { x: left, y: 0, width: BOX, height: BOX, class: "missing" });
    const text = svg("text", { x: left + BOX / 2, y: BOX / 2, class: "missing-text" }, "photo not found");
    return [[left, 0, BOX, BOX], [box, text]];
  }
  const scale = BOX / Math.max(...size);
  const [width, height] = [size[0] * scale, size[1] * scale];
  const at = [left + (BOX - width) / 2, (BOX - height) / 2, width, height];
  return [at, [svg("image", { href: source, x: at[0], y: at[1], width, height })]];
}

function corner(patch, [x, y, width, height]) {
  const size = [patch.width * width, patch.height * height];
  return [x + patch.x * width - size[0] / 2, y + patch.y * height - size[1] / 2, ...size];
}

// The photo beside a labeled one, with a line from patch to patch.
async function pairs(source, photo, own) {
  const other = picture({ id: photo.id, sha256: photo.sha256 }, 1024);
  const [size, otherSize] = await Promise.all([sizeOf(source), sizeOf(other)]);
  const [left, leftNodes] = placed(source, size, 0);
  const [right, rightNodes] = placed(other, otherSize, BOX + GAP);
  const marks = own.flatMap((pair, number) => {
    const color = COLORS[number % COLORS.length];
    const ends = [[pair.query, left], [pair.match, right]].filter(([patch]) => patch).map((end) => corner(...end));
    const boxes = ends.flatMap(([x, y, width, height]) =>
      ["halo", "mark"].map((kind) => svg("rect", { x, y, width, height, rx: 0.8, class: kind, stroke: kind === "mark" ? color : "" })),
    );
    if (ends.length < 2) return boxes;
    const at = (number + 1) / (COLORS.length + 1);
    const [[ax, ay, aw, ah], [bx, by, , bh]] = ends;
    const line = { x1: ax + aw, y1: ay + at * ah, x2: bx, y2: by + at * bh };
    return [...boxes, ...["halo", "mark"].map((kind) => svg("line", { ...line, class: kind, stroke: kind === "mark" ? color : "" }))];
  });
  const height = Math.max(left[3], right[3]);
  const text = `The photo beside ${photo.label}, ${own.length} pairs of patches that match`;
  return svg("svg", { viewBox: `0 ${(BOX - height) / 2} ${2 * BOX + GAP} ${height}`, role: "img", "aria-label": text, class: "pairs" }, ...leftNodes, ...rightNodes, ...marks);
}

// The labeled photos with the evidence: the first with their patches, the rest by their share.
export function evidencePhotos(found, source, open) {
  const byPhoto = new Map();
  for (const pair of found.pairs) {
    if (!byPhoto.has(pair.image_id)) byPhoto.set(pair.image_id, []);
    byPhoto.get(pair.image_id).push(pair);
  }
  if (!found.photos.length) {
    return h("p", { class: "muted" }, "The method of this model looks at photos as a whole, so no single photo is the evidence.");
  }
  const cards = found.photos.slice(0, 4).map((photo) => {
    const card = h(
      "figure",
      { class: "evidence-photo" },
      h("div", { class: "pairs-place" }),
      h(
        "figcaption",
        {},
        h("button", { type: "button", class: "link", onclick: () => open(photo.id) }, shown(photo.label)),
        `: ${percent(photo.share)} of the evidence, ${count(photo.n_patches, "patch", "patches")}`,
      ),
    );
    pairs(source, photo, byPhoto.get(photo.id) ?? []).then((drawing) => card.firstChild.replaceChildren(drawing));
    return card;
  });
  const rest = found.n_photos - cards.length;
  return h(
    "section",
    { class: "evidence-photos" },
    h("h3", {}, found.against === null ? "Matching photos" : "Matching photos of either class"),
    h("div", { class: "evidence-grid" }, cards),
    rest > 0 && h("p", { class: "muted" }, `The rest comes from ${count(rest, "other photo")}.`),
  );
}
