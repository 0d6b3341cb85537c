"use strict";
(() => {
  const rows = [...document.getElementById("table").tBodies[0].rows];
  const filter = document.getElementById("filter");
  const choices = [...document.querySelectorAll("[data-show]")];

  const show = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = choices.find((each) => each.getAttribute("aria-pressed") === "true").dataset.show;
    let shown = 0;
    for (const row of rows) {
      const text = row.dataset.text.toLowerCase();
      const fits = words.every((word) => text.includes(word)) && (wanted === "all" || row.dataset.solved === wanted);
      row.hidden = !fits;
      shown += fits;
    }
    document.getElementById("count").textContent = shown === rows.length ? "" : `${shown} of ${rows.length} problems`;
  };

  filter.addEventListener("input", show);
  choices.forEach((chosen) =>
    chosen.addEventListener("click", () => {
      choices.forEach((each) => each.setAttribute("aria-pressed", String(each === chosen)));
      show();
    }),
  );

  // A link to a problem opens its verdicts.
  const open = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") {
      target.open = true;
      target.scrollIntoView();
    }
  };
  addEventListener("hashchange", open);
  open();
  document.querySelector(".controls").hidden = false;
})();
