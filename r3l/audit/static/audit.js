// Everything works without this: it saves clicks. No text of a model ever reaches the page through here.
"use strict";

// A filter is sent as soon as it is changed, once, and without its empty fields.
for (const form of document.querySelectorAll("form[data-auto]")) {
  let sent = false;
  form.addEventListener("change", () => form.requestSubmit());
  form.addEventListener("submit", (event) => {
    if (sent) return event.preventDefault();
    sent = true;
    for (const field of form.elements) if (field.name && field.value === "") field.disabled = true;
  });
  addEventListener("pageshow", () => {
    sent = false;
    for (const field of form.elements) field.disabled = false;
  });
}

const box = document.getElementById("q");
if (box) {
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) box.form.requestSubmit();
  });
}

for (const row of document.querySelectorAll("table.rows tbody tr, table.attempts tbody tr")) {
  const link = row.querySelector("td.name a");
  if (!link) continue;
  row.classList.add("clickable");
  row.addEventListener("click", (event) => {
    if (!event.target.closest("a") && !String(getSelection())) link.click();
  });
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  const keys = document.getElementById("keys");
  if (event.key === "?" && keys) keys.open = !keys.open;
  const link = { j: "a[rel=next]", k: "a[rel=prev]" }[event.key];
  if (link) document.querySelector(link)?.click();
});
