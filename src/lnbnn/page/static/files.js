// Photos from the disk, the clipboard and the camera: all become files.

import { dialog, h, toast } from "./dom.js";

const PICTURE = /\.(jpe?g|jpe|jfif|png|gif|bmp|p[gpbn]m|tiff?|webp|jp2|avif|ico|dib|tga)$/i;
export const isPicture = (file) => file.type.startsWith("image/") || PICTURE.test(file.name);

// Files of a drop, folders looked through; each with the names of the folders it was in.
export async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files].filter(isPicture).map((file) => ({ file, folders: [] }));
  const found = [];
  for (const entry of entries) await walk(entry, [], found);
  return found.filter(({ file }) => isPicture(file));
}

async function walk(entry, folders, found) {
  if (entry.isFile) {
    const file = await new Promise((resolve) => entry.file(resolve, () => resolve(null)));
    if (file) found.push({ file, folders });
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    const part = await new Promise((resolve) => reader.readEntries(resolve, () => resolve([])));
    if (!part.length) return;
    for (const child of part) await walk(child, [...folders, entry.name], found);
  }
}

export const chosen = (input) =>
  [...input.files].filter(isPicture).map((file) => ({
    file,
    folders: (file.webkitRelativePath ?? "").split("/").slice(0, -1),
  }));

// A button that opens the dialog of the system.
export function fileButton(text, onfiles, { folder = false, kind = "" } = {}) {
  const input = h("input", {
    type: "file",
    accept: folder ? null : "image/*",
    multiple: true,
    hidden: true,
    "aria-label": text,
    onchange: () => {
      onfiles(chosen(input));
      input.value = "";
    },
  });
  if (folder) input.webkitdirectory = true;
  return h("span", {}, h("button", { type: "button", class: kind, onclick: () => input.click() }, text), input);
}

// A place that files can be dropped on.
export function dropZone(node, onfiles) {
  let inside = 0;
  const has = (event) => [...event.dataTransfer.types].includes("Files");
  node.addEventListener("dragenter", (event) => {
    if (has(event)) {
      inside += 1;
      node.classList.add("over");
    }
  });
  node.addEventListener("dragleave", () => {
    inside = Math.max(0, inside - 1);
    if (!inside) node.classList.remove("over");
  });
  node.addEventListener("dragover", (event) => has(event) && event.preventDefault());
  node.addEventListener("drop", async (event) => {
    if (!has(event)) return;
    event.preventDefault();
    event.stopPropagation();
    inside = 0;
    node.classList.remove("over");
    onfiles(await dropped(event.dataTransfer));
  });
  return node;
}

export function pasted(event) {
  const files = [...(event.clipboardData?.files ?? [])].filter(isPicture);
  return files.map((file) => ({ file, folders: [] }));
}

export async function camera(onphoto, { again = false } = {}) {
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { width: 1280, facingMode: "environment" } });
  } catch (error) {
    toast(`The camera cannot be used: ${error.message}`, { kind: "error" });
    return;
  }
  const video = h("video", { autoplay: true, muted: true, playsInline: true });
  video.srcObject = stream;
  let taken = 0;
  const said = h("span", { class: "muted", role: "status" });
  const shoot = h("button", { type: "button", class: "main" }, "Take photo");
  const box = dialog("Camera", video, h("div", { class: "row" }, shoot, said));
  box.addEventListener("close", () => stream.getTracks().forEach((track) => track.stop()));
  shoot.addEventListener("click", () => {
    const canvas = h("canvas", { width: video.videoWidth, height: video.videoHeight });
    canvas.getContext("2d").drawImage(video, 0, 0);
    canvas.toBlob((blob) => {
      taken += 1;
      const time = new Date().toISOString().slice(0, 19).replaceAll(":", "-");
      onphoto({ file: new File([blob], `camera-${time}-${taken}.jpg`, { type: "image/jpeg" }), folders: [] });
      if (again) said.textContent = `${taken} taken`;
      else box.close();
    }, "image/jpeg", 0.92);
  });
  shoot.focus();
}
