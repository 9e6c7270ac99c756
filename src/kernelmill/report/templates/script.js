"use strict";
const told = document.getElementById("sorted");
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th"), table = head.closest("table"), body = table.tBodies[0];
    const column = head.cellIndex, up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of head.parentElement.cells) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
    const compare = (a, b) => {
      const x = key(a), y = key(b);
      if (x === "" || y === "") return (x === "") - (y === "");
      const order = isNaN(x) || isNaN(y) ? String(x).localeCompare(y) : x - y;
      return up ? order : -order;
    };
    body.append(...[...body.rows].sort(compare));
    told.textContent = `${table.caption.textContent.trim()}: sorted by ${button.textContent.trim()}, ${up ? "ascending" : "descending"}`;
  });
}
const open = () => {
  const part = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const closed = part && part.closest("details");
  if (closed && !closed.open) { closed.open = true; part.scrollIntoView(); }
};
addEventListener("hashchange", open);
open();
