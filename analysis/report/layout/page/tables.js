// Small tables: sort the rows that are there.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  [...table.tHead.rows[0].cells].forEach((th, i) => {
    const numeric = th.classList.contains("right");
    const value = (row) => {
      const v = row.cells[i].dataset.v;
      return numeric && v !== "" && v !== undefined ? Number(v) : v;
    };
    sorter(th, numeric ? "descending" : "ascending", (direction) => {
      const rows = direction === null ? original : [...original].sort((a, b) => compare(value(a), value(b), direction));
      body.append(...rows);
    });
  });
}
