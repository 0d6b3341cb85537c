(() => {
  const leaderboard = document.getElementById("table");

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

  const sort = (header, headers, body) => {
    const index = headers.indexOf(header);
    const numeric = header.dataset.kind === "number";
    const sign = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    headers.forEach((each) => each.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    [...body.rows]
      .sort((a, b) => compare(key(a, index, numeric), key(b, index, numeric), sign))
      .forEach((row) => body.append(row));
  };

  for (const table of [leaderboard, ...document.querySelectorAll("table.sortable")]) {
    const headers = [...table.tHead.rows[0].cells];
    headers.forEach((header) =>
      header.querySelector("button").addEventListener("click", () => sort(header, headers, table.tBodies[0])),
    );
  }
  filterRows([...leaderboard.tBodies[0].rows], "status", "rows");
  openLinked();
  // Before printing, the details of every failure are opened.
  addEventListener("beforeprint", () => document.querySelectorAll(".failure").forEach((each) => (each.open = true)));
})();
