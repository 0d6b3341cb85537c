"use strict";

// Lets the search field and the buttons choose which of the rows are shown. A row has its text in `data-text` and its
// kind in the data attribute `kind`; a button has the kind that it shows in `data-show`, or "all".
const filterRows = (rows, kind, noun) => {
  const filter = document.getElementById("filter");
  const choices = [...document.querySelectorAll("[data-show]")];

  const show = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = choices.find((each) => each.getAttribute("aria-pressed") === "true").dataset.show;
    let shown = 0;
    for (const row of rows) {
      const text = row.dataset.text.toLowerCase();
      const fits = words.every((word) => text.includes(word)) && (wanted === "all" || row.dataset[kind] === wanted);
      row.hidden = !fits;
      shown += fits;
    }
    document.getElementById("count").textContent = shown === rows.length ? "" : `${shown} of ${rows.length} ${noun}`;
  };

  filter.addEventListener("input", show);
  choices.forEach((chosen) =>
    chosen.addEventListener("click", () => {
      choices.forEach((each) => each.setAttribute("aria-pressed", String(each === chosen)));
      show();
    }),
  );
  document.querySelector(".controls").hidden = false;
};

// A link to a part of the page that is folded opens the part.
const openLinked = () => {
  const open = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") {
      target.open = true;
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", open);
  open();
};
