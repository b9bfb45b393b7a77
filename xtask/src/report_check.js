// Asks a page what does not fit: a document or an element that scrolls sideways, and text over other text; rows that are no
// cards in a narrow window, headers that scroll away in a wide one. The frame around it learns the width and the first faults.
const faults = [];
const named = (element) => `<${element.tagName.toLowerCase()} class="${element.className}"> ${element.textContent.slice(0, 40)}`;
for (const element of document.querySelectorAll("html, body, body *")) {
  const room = element.clientWidth;
  if (room > 0 && element.scrollWidth > room + 1) faults.push(`${element.scrollWidth} > ${room}: ${named(element)}`);
}
const boxes = [];
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const range = document.createRange();
  range.selectNodeContents(texts.currentNode);
  for (const { left, right, top, bottom, width, height } of range.getClientRects()) {
    if (width > 1 && height > 1) boxes.push({ left, right, top, bottom, text: texts.currentNode.data.trim().slice(0, 40) });
  }
}
boxes.sort((a, b) => a.top - b.top);
// Fonts reach a little beyond their lines.
const slack = 3;
let above = [];
for (const box of boxes) {
  above = above.filter((other) => other.bottom > box.top + slack);
  for (const other of above) {
    if (other.right > box.left + slack && box.right > other.left + slack) faults.push(`"${box.text}" is over "${other.text}"`);
  }
  above.push(box);
}
if (boxes.length === 0) faults.push("no text");
// The width in pixels up to which rows are cards: 75rem.
const isNarrow = innerWidth <= 1200;
for (const table of document.querySelectorAll("table.rows")) {
  const rows = [...table.tBodies].flatMap((body) => [...body.rows]);
  const isCard = (row) => {
    const name = row.querySelector("td.name");
    return !name || name.clientWidth > 0.8 * row.clientWidth;
  };
  if (isNarrow && !rows.every(isCard)) faults.unshift("a row is no card");
  if (!isNarrow && table.tHead) {
    scrollTo(0, scrollY + rows[Math.floor(rows.length / 2)].getBoundingClientRect().top);
    const { top } = table.tHead.rows[0].cells[0].getBoundingClientRect();
    if (table.getBoundingClientRect().top < 0 && top < 0) faults.unshift("a header scrolls away");
  }
}
parent.postMessage(`${innerWidth} ${faults.slice(0, 5).join(" | ") || "fits"}`, "*");
