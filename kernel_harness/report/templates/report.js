"use strict";
(() => {
  const table = document.getElementById("table");
  const body = table.tBodies[0];
  const filter = document.getElementById("filter");
  const choices = [...document.querySelectorAll("[data-show]")];
  const headers = [...table.tHead.rows[0].cells];

  const key = (row, index, numeric) => {
    const value = row.cells[index].dataset.v;
    return numeric ? (value === "" ? NaN : Number(value)) : value.toLowerCase();
  };

  // Rows with an empty cell in this column come last in both directions.
  const compare = (a, b, sign) => {
    const [noA, noB] = [Number.isNaN(a) || a === "", Number.isNaN(b) || b === ""];
    if (noA || noB) return noA - noB;
    return sign * (a < b ? -1 : a > b ? 1 : 0);
  };

  const sort = (header) => {
    const index = headers.indexOf(header);
    const numeric = header.dataset.kind === "number";
    const sign = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    headers.forEach((each) => each.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    [...body.rows]
      .sort((a, b) => compare(key(a, index, numeric), key(b, index, numeric), sign))
      .forEach((row) => body.append(row));
  };

  const show = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = choices.find((each) => each.getAttribute("aria-pressed") === "true").dataset.show;
    let shown = 0;
    for (const row of body.rows) {
      const text = row.dataset.text.toLowerCase();
      const fits = words.every((word) => text.includes(word)) && (wanted === "all" || row.dataset.status === wanted);
      row.hidden = !fits;
      shown += fits;
    }
    const all = body.rows.length;
    document.getElementById("count").textContent = shown === all ? "" : `${shown} of ${all} rows`;
  };

  headers.forEach((header) => header.querySelector("button").addEventListener("click", () => sort(header)));
  filter.addEventListener("input", show);
  choices.forEach((chosen) =>
    chosen.addEventListener("click", () => {
      choices.forEach((each) => each.setAttribute("aria-pressed", String(each === chosen)));
      show();
    }),
  );

  // A link to a kernel opens the kernel's details.
  const open = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") {
      target.open = true;
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", open);
  open();
  // Before printing, the details of every failure are opened.
  addEventListener("beforeprint", () => document.querySelectorAll(".failure").forEach((each) => (each.open = true)));
  document.querySelector(".controls").hidden = false;
})();
