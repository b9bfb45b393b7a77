// The page: shows what the worker finds. Every text of a file's goes into the document as text, never as markup.

const $ = (id) => document.getElementById(id);

/** An element with properties and children; a child that is a text stays one. */
const el = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  for (const name of ["role", "aria-label", "aria-selected", "aria-sort", "aria-rowindex", "aria-controls", "aria-current"]) {
    if (name in properties) made.setAttribute(name, properties[name]);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
};

/** Draws a part anew. What had the focus there has it again, by its id; else what stands for it. */
const redraw = (draw, instead = null) => {
  const { id } = document.activeElement ?? {};
  draw();
  if (id && document.activeElement?.id !== id) ($(id) ?? instead)?.focus({ preventScroll: true });
};

const LONGEST = 400;

/** A text of a file's so that each of its characters shows: the rule of the tool's tables. */
const visible = (text) => {
  const cut = text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
  return cut.replace(/[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g,
    (c) => `\\u{${c.charCodeAt(0).toString(16)}}`);
};

const grouped = (n) => n.toLocaleString("en-US");

const bytes = (n) => {
  if (n < 1024) return `${n} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let unit = -1;
  do {
    n /= 1024;
    unit += 1;
  } while (n >= 1023.95 && unit + 1 < units.length);
  return `${n < 9.995 ? n.toFixed(2) : n.toFixed(1)} ${units[unit]}`;
};

const dims = (shape) => (shape === null ? "-" : shape.length === 0 ? WORDS.none.shape : shape.join("×"));

const figure = (x) => (typeof x === "number" ? Number(x.toPrecision(5)).toString() : x === null ? "-" : String(x));

/** JSON with its integers exact: one past 2^53 stays a text. */
const exact = (text) => JSON.parse(text, (_, value, context) => (typeof value === "number" && Number.isInteger(value)
  && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "") ? context.source : value));

// ---- the worker

const session = `blob-${crypto.randomUUID()}`;
let module = null;
let worker = null;
let calls = new Map();
let lastCall = 0;
let onProgress = null;
// What the status says where nothing goes on.
let rest = "";

/** Calls the worker; an error of the tool's is an object with its message, anything else ends the worker. */
const call = (op, rest) => new Promise((resolve, reject) => {
  lastCall += 1;
  calls.set(lastCall, { resolve, reject });
  worker.postMessage({ id: lastCall, op, ...rest });
});

// Settled once the files are open again in a new worker.
let ready = Promise.resolve();

const ask = (op, rest = {}) => ready.then(() => call(op, rest));

class Ended extends Error {}

const begin = async () => {
  const source = URL.createObjectURL(new Blob([$("worker").textContent], { type: "text/javascript" }));
  worker = new Worker(source);
  const own = worker;
  let panic = null;
  worker.onmessage = ({ data }) => {
    if (own !== worker) return;
    if (data.advanced !== undefined) onProgress?.(data.advanced);
    else if (data.panicked !== undefined) panic = data.panicked;
    else if (data.fatal !== undefined) end(WORDS.panic(panic ?? data.fatal));
    else {
      const call = calls.get(data.id);
      calls.delete(data.id);
      if (data.error === undefined) call?.resolve(data.answer);
      else call?.reject(JSON.parse(data.error));
    }
  };
  worker.onerror = (event) => end(WORDS.panic(event.message || WORDS.ended));
  const kept = results.map((result) => result.stored).filter(Boolean);
  const { isKept } = await call("begin", { module, session, kept });
  URL.revokeObjectURL(source);
  rest = isKept ? "" : WORDS.unkept;
  $("status").textContent = rest;
};

/** Ends the worker and starts another one, in which the files are open again. */
const end = (why) => {
  worker.terminate();
  const waiting = [...calls.values()];
  calls = new Map();
  waiting.forEach(({ reject }) => reject(new Ended(why)));
  alertOf({ message: why });
  ready = again();
};

const again = async () => {
  await begin();
  for (const file of [...files]) {
    await call("open", { key: file.key, file: file.file, how: file.how }).catch(() => remove(file));
  }
};

// ---- files

const files = [];
const results = [];
let current = null;
let tab = "summary";
let keys = 0;
// The file that was opened last, or that could not be.
let given = null;

const alertOf = (problem, ...more) => {
  const text = [visible(problem.message), problem.help ? WORDS.help(problem.help) : null].filter(Boolean);
  $("alerts").replaceChildren(...text.map((line) => el("p", {}, line)), ...more);
};

const quiet = () => $("alerts").replaceChildren();

const add = async (file, how = {}) => {
  quiet();
  $("status").textContent = WORDS.opening(visible(file.name));
  keys += 1;
  const key = keys;
  given = { file, how };
  try {
    const { info, list } = await ask("open", { key, file, how });
    const made = { key, file, how, info: JSON.parse(info), list: JSON.parse(list), order: null, chosen: null };
    files.push(made);
    choose(made);
    document.body.dataset.listed = made.list.tensors.length;
  } catch (problem) {
    if (problem instanceof Ended) return;
    const ways = [];
    if (problem.salvageable) ways.push([WORDS.salvage, { ...how, salvage: true }]);
    for (const member of problem.members ?? []) ways.push([WORDS.member(visible(member)), { ...how, member }]);
    alertOf(problem, ...ways.map(([text, other]) => el("button", { type: "button", onclick: () => add(file, other) }, text)));
    if (problem.broken) {
      const found = await ask("verify", { file, how }).then(JSON.parse, () => null);
      $("alerts").append(...(found?.notes ?? []).map((note) => el("p", {}, visible(note))));
    }
  } finally {
    $("status").textContent = rest;
    document.body.dataset.opened = key;
  }
};

/** The kind of a file that describes a net, by its name. */
const netKind = (name) => (/\.json$/i.test(name) ? "symbol" : "prototxt");

/** Takes a description of the net for a file. */
const describe = async (file, net) => {
  file.net = net && { name: net.name, kind: netKind(net.name), text: new Uint8Array(await net.arrayBuffer()) };
};

const addAll = async (list) => {
  for (const file of list) {
    if (current && /\.prototxt$|-symbol\.json$/i.test(file.name)) await describe(current, file).then(() => show("convert"));
    else await add(file);
  }
};

const remove = (file) => {
  files.splice(files.indexOf(file), 1);
  ask("close", { key: file.key });
  choose(files[0] ?? null);
};

const choose = (file) => redraw(() => chosen(file), $("files"));

const chosen = (file) => {
  current = file;
  document.querySelector("main").classList.toggle("filled", file !== null);
  $("open").hidden = $("tabs").hidden = $("panel").hidden = file === null;
  $("open").replaceChildren(...files.map((one) => el("span", { className: one === current ? "file current" : "file" },
    el("button", { type: "button", id: `file-${one.key}`, "aria-current": one === current, onclick: () => choose(one) }, visible(one.file.name)),
    el("button", { type: "button", className: "close", id: `close-${one.key}`, "aria-label": `${WORDS.close} ${visible(one.file.name)}`, onclick: () => remove(one) }, "×"))));
  show(tab);
};

const show = (name) => {
  tab = name;
  redraw(() => $("tabs").replaceChildren(...Object.entries(WORDS.tabs).map(([id, text]) => el("button",
    { type: "button", role: "tab", id: `tab-${id}`, "aria-selected": id === name, "aria-controls": "panel", tabIndex: id === name ? 0 : -1,
      onclick: () => show(id) }, text))));
  if (current === null) return;
  $("panel").setAttribute("aria-label", WORDS.tabs[name]);
  $("panel").replaceChildren(...[PANELS[name](current)].flat());
  $("panel").dataset.tab = name;
};

$("tabs").onkeydown = (event) => {
  const names = Object.keys(WORDS.tabs);
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  show(names[(names.indexOf(tab) + step + names.length) % names.length]);
  $(`tab-${tab}`).focus();
};

// ---- summary

const summary = ({ info }) => {
  const rows = [];
  const fact = (name, value) => rows.push(el("dt", {}, WORDS.facts[name]), el("dd", {}, value));
  fact("format", visible([info.format, info.dialect].filter(Boolean).join(", ")));
  if (info.member) fact("member", visible(info.member));
  if (info.gzip_bytes) fact("gzip_bytes", bytes(info.gzip_bytes));
  fact("file_bytes", `${bytes(info.file_bytes)} (${grouped(info.file_bytes)} bytes)`);
  fact("tensors", grouped(info.tensors));
  fact("dtypes", visible(Object.entries(info.dtypes).map(([name, n]) => `${grouped(n)} ${name}`).join(", ")) || "-");
  fact("parameters", grouped(info.parameters));
  fact("tensor_bytes", bytes(info.tensor_bytes));
  for (const name of ["layers", "diffs", "sparse", "none", "broken", "unread"]) if (info[name] > 0) fact(name, grouped(info[name]));
  if (info.largest) fact("largest", `${visible(info.largest.name)}  ${dims(info.largest.shape)}  ${bytes(info.largest.bytes)}`);
  if (info.mean_values) fact("mean_values", info.mean_values.map((x) => x.toFixed(4)).join(", "));
  for (const [name, text] of Object.entries(info.metadata)) fact("metadata", visible(`${name}: ${text}`));
  if (info.receipt) fact("receipt", receiptOf(info.receipt, visible(String(info.receipt.schema ?? ""))));
  const list = (name, texts, all) => {
    if (texts.length === 0) return;
    const items = texts.map((text) => el("li", {}, visible(text)));
    if (all > texts.length) items.push(el("li", { className: "dim" }, WORDS.more(grouped(all - texts.length))));
    fact(name, el("ul", {}, ...items));
  };
  list("warnings", info.warnings, info.warning_count);
  list("errors", info.errors.map((error) => error.message), info.errors.length);
  return el("dl", {}, ...rows);
};

const receiptOf = (receipt, title) => el("details", { className: "receipt" }, el("summary", {}, title), el("pre", {}, visibleLines(JSON.stringify(receipt, null, 2))));

const visibleLines = (text) => text.slice(0, 20000).split("\n").map(visible).join("\n");

// ---- tensors

const ROW = 30;
const TALLEST = 8e6; // browsers end an element at some 17 million pixels

const COLUMNS = [
  { id: "index", of: (t) => String(t.index), by: (t) => t.index },
  { id: "name", of: (t) => visible(t.name), by: (t) => t.name },
  { id: "dtype", of: (t) => visible(t.dtype ?? (t.error ? WORDS.none.error : WORDS.none.dtype)), by: (t) => t.dtype ?? "" },
  { id: "shape", of: (t) => dims(t.shape), by: (t) => t.elements },
  { id: "bytes", of: (t) => bytes(t.bytes), by: (t) => t.bytes },
  { id: "offset", of: (t) => (t.offset === null ? "-" : grouped(t.offset)), by: (t) => t.offset ?? Infinity },
];

const tensors = (file) => {
  const all = file.list.tensors;
  let rows = all;
  const said = el("p", { className: "dim", role: "status" });
  const space = el("div", { className: "space" });
  const body = el("div", { className: "rows", tabIndex: 0, role: "rowgroup" }, space);
  const head = el("div", { className: "row head", role: "row", "aria-rowindex": 1 });
  const table = el("div", { className: "table", role: "table", "aria-label": WORDS.tabs.tensors }, head, body);
  const detail = el("section", { className: "detail" }, el("p", { className: "dim" }, WORDS.noTensor));
  let [first, seen] = [0, 0];
  const draw = () => redraw(rowsNow, body);
  const rowsNow = () => {
    const height = Math.min(rows.length * ROW, TALLEST);
    seen = Math.ceil((body.clientHeight || 600) / ROW) + 1;
    const most = Math.max(height - body.clientHeight, 1);
    first = height < TALLEST ? Math.floor(body.scrollTop / ROW) : Math.round((body.scrollTop / most) * (rows.length - seen + 1));
    space.style.height = `${height}px`;
    space.replaceChildren(...rows.slice(first, first + seen).map((t, i) => {
      const line = el("div", { className: t === file.chosen ? "row chosen" : "row", role: "row", "aria-rowindex": first + i + 2 },
        ...COLUMNS.map(({ id, of }) => el("span", { className: id === "name" ? "button-of" : id, role: "cell" }, id !== "name" ? of(t)
          : el("button", { type: "button", className: id, id: `row-${t.index}`, "aria-current": t === file.chosen, title: of(t), onclick: () => pick(t) }, of(t)))));
      const top = height < TALLEST ? (first + i) * ROW : body.scrollTop + i * ROW;
      line.style.transform = `translateY(${top}px)`;
      return line;
    }));
  };
  /** Gives a row the focus, and shows it. */
  const reach = (at) => {
    const place = Math.max(0, Math.min(at, rows.length - 1));
    const whole = Math.floor(body.clientHeight / ROW);
    const top = place < first ? place : place >= first + whole ? place - whole + 1 : first;
    if (top !== first) body.scrollTop = rows.length * ROW < TALLEST ? top * ROW : (top / (rows.length - seen + 1)) * (TALLEST - body.clientHeight);
    draw();
    $(`row-${rows[place].index}`)?.focus({ preventScroll: true });
  };
  body.onkeydown = (event) => {
    const at = rows.findIndex((t) => document.activeElement.id === `row-${t.index}`);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + seen - 2, PageUp: at - seen + 2, Home: 0, End: rows.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    reach(to);
  };
  const pick = (t) => {
    file.chosen = t;
    draw();
    detail.replaceChildren(...one(file, t));
    detail.dataset.place = t.index;
  };
  const sort = () => {
    const { id, down } = file.order ?? { id: "index", down: false };
    const { by } = COLUMNS.find((column) => column.id === id);
    const sign = down ? -1 : 1;
    rows = [...rows].sort((a, b) => (by(a) < by(b) ? -sign : by(a) > by(b) ? sign : a.index - b.index));
    redraw(() => head.replaceChildren(...COLUMNS.map((column) => el("span", { className: `button-of ${column.id}`, role: "columnheader",
      "aria-sort": column.id !== id ? "none" : down ? "descending" : "ascending" }, el("button", { type: "button", id: `by-${column.id}`, onclick: () => {
      file.order = { id: column.id, down: column.id === id && !down };
      sort();
    } }, WORDS.columns[column.id] + (column.id !== id ? "" : down ? " ↓" : " ↑"))))));
    said.textContent = WORDS.shown(grouped(rows.length), grouped(all.length));
    table.setAttribute("aria-rowcount", rows.length + 1);
    body.scrollTop = 0;
    draw();
  };
  const filter = el("input", { type: "search", placeholder: WORDS.filter, "aria-label": WORDS.filter, value: file.patterns ?? "", id: "filter" });
  const select = async () => {
    const asked = filter.value;
    file.patterns = asked;
    try {
      const places = asked.trim() === "" ? null : await ask("select", { key: file.key, patterns: asked });
      if (asked !== filter.value) return; // a later one has its own answer
      rows = places === null ? all : [...places].map((place) => all[place]);
      quiet();
    } catch (problem) {
      if (asked !== filter.value) return;
      if (!(problem instanceof Ended)) alertOf(problem);
    }
    sort();
  };
  filter.oninput = select;
  body.onscroll = draw;
  new ResizeObserver(draw).observe(body);
  select();
  return [filter, said, el("div", { className: "split" }, table, detail)];
};

/** One tensor: its statistics, a histogram, values, a picture. */
const one = (file, t) => {
  const facts = el("dl", {});
  const bars = el("div", { className: "bars" });
  const picture = el("div", {});
  const values = el("pre", { className: "values", tabIndex: 0 });
  const said = el("p", { className: "dim" });
  const slice = el("input", { type: "text", placeholder: WORDS.slice, "aria-label": WORDS.slice });
  const problem = (error) => {
    if (!(error instanceof Ended)) facts.append(el("dd", { className: "bad" }, visible(error.message)));
  };
  const fill = async () => {
    try {
      const found = exact(await ask("values", { key: file.key, place: t.index, slice: slice.value, most: 1000 }));
      values.textContent = found.values.map(figure).join("  ");
      said.textContent = WORDS.values(grouped(found.values.length), grouped(found.count));
      quiet();
    } catch (error) {
      if (!(error instanceof Ended)) alertOf(error);
    }
  };
  const measure = async () => {
    const found = exact(await ask("stats", { key: file.key, place: t.index, bins: 40 }));
    for (const name of ["count", "min", "max", "mean", "std", "l1", "l2", "zeros", "nan", "inf"]) {
      facts.append(el("dt", {}, WORDS.stats[name]), el("dd", {}, figure(found[name])));
    }
    if (found.histogram) bars.append(histogram(found.histogram));
  };
  const draw = async () => {
    if (t.shape.length < 2 || t.elements === 0) return;
    const numbers = await ask("numbers", { key: file.key, place: t.index, most: 65536 });
    picture.append(...pictureOf(numbers, t.shape));
  };
  if (t.error) problem(t.error);
  else if (t.dtype) fill().then(measure).then(draw).catch(problem);
  const npy = el("button", { type: "button", id: "npy", onclick: () => take(file, npyRecipe(file, t)) }, WORDS.npy);
  const axes = (t.shape ?? []).map((extent, axis) => el("option", { value: axis }, WORDS.axis(axis, grouped(extent))));
  const axis = el("select", { id: "axis", "aria-label": WORDS.channels }, ...axes);
  const channels = el("div", { id: "channels" });
  const byChannel = async () => {
    const rows = exact(await ask("channels", { key: file.key, place: t.index, axis: Number(axis.value) }));
    const names = ["channel", "min", "max", "mean", "std", "zeros", "nan", "inf"];
    channels.replaceChildren(...tableOf(names.map((name) => WORDS.stats[name]), rows, (row) => names.map((name) => figure(row[name]))));
    channels.dataset.axis = axis.value;
    quiet();
  };
  const each = el("p", {}, axis, " ", el("button", { type: "button", id: "byChannel", onclick: () => byChannel().catch(failed(channels)) }, WORDS.channels));
  return [el("h2", {}, visible(t.name)), el("p", { className: "dim" }, `${t.dtype ?? "-"}  ${dims(t.shape)}  ${bytes(t.bytes)}`), facts, bars,
    picture, el("form", { onsubmit: (event) => { event.preventDefault(); fill(); } }, slice, el("button", {}, WORDS.show), t.dtype ? npy : null), el("div", { id: "results" }), said, values,
    t.dtype && axes.length ? each : null, channels].filter(Boolean);
};

const MOST_ROWS = 1000;

/** A table that scrolls on its own where it is wide, and the number of the rows that it leaves out. */
const tableOf = (names, rows, cells) => {
  const head = el("tr", {}, ...names.map((text) => el("th", { scope: "col" }, text)));
  const row = (one) => el("tr", {}, ...cells(one).map((text) => el("td", {}, text)));
  const table = el("div", { className: "wide" }, el("table", {}, head, ...rows.slice(0, MOST_ROWS).map(row)));
  return rows.length > MOST_ROWS ? [table, el("p", { className: "dim" }, WORDS.more(grouped(rows.length - MOST_ROWS)))] : [table];
};

const npyRecipe = (file, t) => ({
  schema: "blob.recipe/1", sources: [{ path: file.list.file }],
  steps: [{ name: "select", settings: { patterns: [`#${t.index}`], regex: false, exclude: [], dtypes: [], shapes: [] } }],
  target: { path: `${t.name.replace(/[^\w.-]+/g, "_").slice(0, 100) || "tensor"}.npy`, format: "npy" },
});

const SVG = "http://www.w3.org/2000/svg";

const histogram = ({ min, max, counts }) => {
  const most = Math.max(...counts, 1);
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${counts.length} 20`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", WORDS.histogram(figure(min), figure(max)));
  counts.forEach((n, i) => {
    const bar = document.createElementNS(SVG, "rect");
    const height = (20 * n) / most;
    for (const [name, value] of Object.entries({ x: i + 0.05, y: 20 - height, width: 0.9, height })) bar.setAttribute(name, value);
    svg.append(bar);
  });
  return el("figure", {}, svg, el("figcaption", {}, el("span", {}, figure(min)), el("span", {}, figure(max))));
};

/** The matrices of a tensor side by side: a heat map, a net's filters; in colours where each filter has three planes. */
const pictureOf = (numbers, shape) => {
  const [high, wide] = shape.slice(-2);
  const planes = shape.length === 4 && shape[1] === 3 && high * wide * 3 <= numbers.length ? 3 : 1;
  const size = wide * high;
  const w = Math.min(wide, 256);
  const h = Math.min(high, Math.max(Math.floor(numbers.length / wide), 1), 256);
  const fitting = Math.max(Math.floor(256 / (w + 1)), 1);
  const count = Math.min(Math.max(Math.floor(numbers.length / (size * planes)), 1), fitting * Math.max(Math.floor(128 / (h + 1)), 1));
  const across = Math.min(count, fitting, Math.max(Math.ceil(Math.sqrt((2 * count * (h + 1)) / (w + 1))), 1));
  const label = planes === 3 ? WORDS.colours : WORDS.picture;
  const canvas = el("canvas", { width: across * (w + 1) - 1, height: Math.ceil(count / across) * (h + 1) - 1, role: "img", "aria-label": label });
  const brush = canvas.getContext("2d");
  const shade = planes === 3 ? shadeOfThree(numbers, size) : shadeOfOne(numbers);
  for (let i = 0; i < count; i += 1) {
    const image = brush.createImageData(w, h);
    for (let y = 0; y < h; y += 1) {
      for (let x = 0; x < w; x += 1) image.data.set(shade(i * size * planes + y * wide + x), 4 * (y * w + x));
    }
    brush.putImageData(image, (i % across) * (w + 1), Math.floor(i / across) * (h + 1));
  }
  canvas.style.width = `${Math.min(Math.max(canvas.width, 320), 520)}px`;
  return [el("p", { className: "dim" }, label), canvas];
};

/** Blue below 0, red above, white at 0. */
const shadeOfOne = (numbers) => {
  let scale = 0;
  for (const x of numbers) if (Number.isFinite(x)) scale = Math.max(scale, Math.abs(x));
  return (at) => {
    const v = numbers[at];
    const low = Math.round(255 * (1 - (Number.isFinite(v) && scale > 0 ? Math.abs(v) / scale : 0)));
    return v < 0 ? [low, low, 255, 255] : [255, low, low, 255];
  };
};

/** Three planes as red, green and blue, from the least value of all to the greatest. */
const shadeOfThree = (numbers, size) => {
  let [least, most] = [Infinity, -Infinity];
  for (const x of numbers) if (Number.isFinite(x)) [least, most] = [Math.min(least, x), Math.max(most, x)];
  const part = (x) => (Number.isFinite(x) && most > least ? Math.round((255 * (x - least)) / (most - least)) : 128);
  return (at) => [part(numbers[at]), part(numbers[at + size]), part(numbers[at + 2 * size]), 255];
};

// ---- long work

/** Runs work with a bar and a button to cancel, which ends the worker. */
const long = async (into, all, start) => {
  const bar = el("progress", { max: Math.max(all, 1), value: 0, "aria-label": WORDS.progress });
  const text = el("span", {});
  const stop = el("button", { type: "button", className: "cancel", onclick: () => end(WORDS.cancelled) }, WORDS.cancel);
  into.replaceChildren(el("p", { className: "long" }, bar, text, stop));
  onProgress = (done) => {
    bar.value = done;
    text.textContent = WORDS.running(bytes(done), bytes(all));
  };
  try {
    return await start();
  } finally {
    onProgress = null;
    into.replaceChildren();
  }
};

/** What is shown where work failed; a worker that was ended has said why. */
const failed = (into) => (problem) => {
  into.replaceChildren();
  if (!(problem instanceof Ended)) alertOf(problem);
};

// ---- check and compare

const MOST_FINDINGS = 200;

/** The verdict on a file, in words. */
const verdictOf = (found) => {
  const place = (one) => [one.tensor ?? one.subject, one.message].filter(Boolean).join(": ");
  const items = found.findings.slice(0, MOST_FINDINGS).map((one) => el("li", {}, visible(place(one)), " ", el("code", {}, one.reason)));
  const more = (all, shown) => (all > shown ? [el("li", {}, WORDS.more(grouped(all - shown)))] : []);
  const list = (title, texts, rest = []) => (texts.length ? [el("h2", {}, title), el("ul", {}, ...texts.map((text) => el("li", {}, visible(text))), ...rest)] : []);
  const redone = found.redone.map((one) => WORDS.redone(one.transform, one.tensors, one.said_by));
  const sound = found.ok ? WORDS.sound : found.error && found.finding_count === 0 ? WORDS.stopped : WORDS.unsound(grouped(found.finding_count));
  return [el("p", { className: found.ok ? "good" : "bad" }, sound), el("ul", {}, ...items, ...more(found.finding_count, items.length)),
    ...(found.error ? [el("p", { className: "bad" }, visible(found.error.message))] : []), ...(found.help ? [el("p", {}, visible(WORDS.help(found.help)))] : []),
    ...list(WORDS.held, found.held), ...list(WORDS.notes, [...redone, ...found.notes], more(found.note_count, found.notes.length))];
};

const verify = (file) => {
  const into = el("div", { id: "verdict" });
  const run = async () => {
    quiet();
    const start = () => ask("verify", { file: file.file, how: file.how });
    into.replaceChildren(...verdictOf(JSON.parse(await long(into, file.info.tensor_bytes, start))));
  };
  return [el("button", { type: "button", id: "verify", onclick: () => run().catch(failed(into)) }, WORDS.run), into];
};

const compare = (file) => {
  const others = files.filter((one) => one !== file);
  if (others.length === 0) return el("p", { className: "dim" }, WORDS.noOther);
  const other = el("select", { id: "other" }, ...others.map((one) => el("option", { value: one.key }, visible(one.file.name))));
  const into = el("div", { id: "difference" });
  const cells = (t) => [t.change, visible([...new Set([t.name, t.other_name])].filter((name) => name !== null).join(" → ")),
    dims(t.shape ?? t.other_shape), figure(t.changed), figure(t.max_abs), figure(t.max_rel), figure(t.rms)];
  const run = async () => {
    quiet();
    const second = files.find((one) => one.key === Number(other.value));
    const bytesOfBoth = file.info.tensor_bytes + second.info.tensor_bytes;
    const found = JSON.parse(await long(into, bytesOfBoth, () => ask("diff", { key: file.key, other: second.key })));
    into.replaceChildren(el("p", {}, WORDS.equal(found)), ...(found.error ? [el("p", { className: "bad" }, visible(found.error.message))] : []),
      ...(found.tensors.length ? tableOf(WORDS.differences, found.tensors, cells) : []), el("ul", {}, ...found.notes.map((text) => el("li", {}, visible(text)))));
  };
  return [el("p", { className: "long" }, el("label", {}, WORDS.other, " ", other), el("button", { type: "button", id: "compare", onclick: () => run().catch(failed(into)) }, WORDS.compare)), into];
};

// ---- convert

const FORMATS = [["safetensors", "safetensors"], ["npz", "npz"], ["npy", "npy"], ["caffemodel", "caffemodel"], ["params", "params"],
  ["hdf5", "h5"], ["neoml-array", "arch"], ["binaryproto", "binaryproto"], ["onnx", "onnx"]];

const copy = (from) => el("button", { type: "button", onclick: (event) => { navigator.clipboard.writeText(from.value).then(() => { event.target.textContent = WORDS.copied; }); } }, WORDS.copy);

/** `data=1,3,224,224 mask=1,224` as the recipe has them. */
const inputsOf = (text) => Object.fromEntries(text.trim().split(/\s+/).filter(Boolean).map((one) => {
  const [name, extents = ""] = one.split(/=(?=[^=]*$)/);
  return [name, extents.split(",").map(Number)];
}));

const convert = (file) => {
  const { form } = WORDS;
  const base = file.file.name.replace(/\.(gz|zip|tar|tgz)$/i, "").replace(/\.[^.]*$/, "");
  const options = (list) => list.map(([value, text]) => el("option", { value }, text));
  const format = el("select", { id: "format" }, ...options(FORMATS.map(([name]) => [name, name])));
  const name = el("input", { id: "name", type: "text" });
  const names = el("select", { id: "names" }, ...options([["", form.keep], ["torch", form.torch]]));
  const dtype = el("select", { id: "dtype" }, ...options([["", form.keep], ...["f16", "bf16", "f32", "f64"].map((d) => [d, d])]));
  const layout = el("select", { id: "layout" }, ...options([["", form.keep], ...["oihw", "hwio", "ohwi"].map((d) => [d, d])]));
  const only = el("input", { id: "only", type: "text", placeholder: WORDS.patterns, value: file.patterns ?? "" });
  const net = el("input", { id: "net", type: "file", accept: ".prototxt,.txt,.json" });
  const others = files.filter((one) => one !== file);
  if (!others.some((one) => one.key === file.into)) file.into = null;
  const into = el("select", { id: "into" }, ...options([["", form.noInto], ...others.map((one) => [one.key, visible(one.file.name)])]));
  into.value = file.into ?? "";
  const inputs = el("input", { id: "inputs", type: "text", placeholder: "data=1,3,224,224" });
  const box = (id, isChecked = false) => el("input", { id, type: "checkbox", checked: isChecked });
  const boxes = { stripDiff: box("stripDiff"), fold: box("fold"), receipt: box("receipt", true), strict: box("strict"), skip: box("skip"), sha256: box("sha256"), dynamic: box("dynamic") };
  const rename = () => {
    const model = files.find((one) => one.key === file.into);
    const end = model ? model.file.name.replace(/.*\./, "") : FORMATS.find(([id]) => id === format.value)[1];
    name.value = `${base}.${end}`;
    format.disabled = Boolean(model);
    inputs.parentElement.hidden = boxes.dynamic.parentElement.hidden = Boolean(model) || format.value !== "onnx";
  };
  const recipe = () => {
    const steps = [];
    const patterns = only.value.trim().split(/\s+/).filter(Boolean);
    if (patterns.length) steps.push({ name: "select", settings: { patterns, regex: false, exclude: [], dtypes: [], shapes: [] } });
    if (boxes.stripDiff.checked) steps.push({ name: "strip-diff" });
    if (boxes.fold.checked) steps.push({ name: "fold" });
    if (layout.value) steps.push({ name: "layout", settings: { to: layout.value } });
    if (dtype.value) steps.push({ name: "dtype", settings: { to: dtype.value } });
    if (names.value) steps.push({ name: "names", settings: { to: names.value } });
    const model = files.find((one) => one.key === file.into);
    const target = { path: name.value, ...(model ? { into: model.file.name } : { format: format.value }) };
    if (target.format === "onnx" && (inputs.value.trim() || boxes.dynamic.checked)) {
      target.onnx = { inputs: inputsOf(inputs.value), ...(boxes.dynamic.checked ? { dynamic_batch: true } : {}) };
    }
    if (boxes.strict.checked) target.strict = true;
    if (boxes.skip.checked) target.skip_unsupported = true;
    if (boxes.sha256.checked) target.sha256 = true;
    if (!boxes.receipt.checked) target.receipt = false;
    const described = file.net ? { net: { [file.net.kind]: file.net.name } } : {};
    return { schema: "blob.recipe/1", sources: [{ path: file.list.file }], ...described, steps, target };
  };
  const said = el("div", { id: "said" });
  const text = el("textarea", { id: "recipe", readOnly: true, rows: 8, "aria-label": WORDS.recipe });
  const line = el("input", { id: "command", readOnly: true });
  const many = el("input", { id: "batch", readOnly: true });
  const labelledLine = (input, title) => el("p", { className: "line" }, el("label", {}, title, input), copy(input));
  const manyLine = labelledLine(many, WORDS.batch);
  const write = () => {
    text.value = `${JSON.stringify(recipe(), null, 2)}\n`;
    line.value = command(recipe(), file.how);
    many.value = batch(recipe(), file.how);
    manyLine.hidden = many.value === "";
  };
  const plan = async () => {
    quiet();
    try {
      const wanted = JSON.parse(text.value);
      said.replaceChildren(...planOf(JSON.parse(await ask("plan", requestOf(file, wanted))), wanted.target.into));
    } catch (problem) {
      failed(said)(problem);
    }
    document.body.dataset.planned = Number(document.body.dataset.planned ?? 0) + 1;
  };
  const labelled = (id, input) => el("label", {}, el("span", {}, form[id]), input);
  const fields = el("form", { className: "form", onsubmit: (event) => event.preventDefault() },
    labelled("format", format), labelled("name", name), labelled("names", names), labelled("dtype", dtype), labelled("layout", layout), labelled("only", only),
    labelled("net", el("span", {}, net, " ", el("span", { id: "netName", className: "dim" }, file.net ? visible(file.net.name) : ""))), labelled("into", into), labelled("inputs", inputs),
    ...Object.entries(boxes).map(([id, input]) => el("label", { className: "box" }, input, el("span", {}, form[id]))));
  // The settings stay with the file while other panels are shown; the selection is the filter of the tensors.
  const kept = [format, names, dtype, layout, inputs, ...Object.values(boxes), name];
  const value = (input) => (input.type === "checkbox" ? "checked" : "value");
  const restore = (input) => Object.assign(input, { [value(input)]: file.form?.[input.id] ?? input[value(input)] });
  kept.forEach(restore);
  rename();
  restore(name);
  format.oninput = rename;
  into.oninput = () => { file.into = Number(into.value) || null; rename(); };
  fields.addEventListener("input", async (event) => {
    if (event.target === net) await describe(file, net.files[0]);
    $("netName").textContent = file.net ? visible(file.net.name) : "";
    file.form = Object.fromEntries(kept.map((input) => [input.id, input[value(input)]]));
    file.patterns = only.value;
    write();
    plan();
  });
  write();
  plan();
  const go = el("button", { type: "button", id: "convert", className: "main", onclick: () => take(file, JSON.parse(text.value)) }, WORDS.convert);
  return [fields, el("h2", {}, WORDS.plan), said, el("p", {}, go), el("div", { id: "results" }, ...results.map(resultOf)),
    el("details", {}, el("summary", {}, WORDS.recipe), text, copy(text)), labelledLine(line, WORDS.command), manyLine];
};

/** A recipe with the bytes of the files that it names besides its source. */
const requestOf = (file, recipe) => ({ key: file.key, recipe: JSON.stringify(recipe), net: recipe.net ? file.net?.text : undefined,
  into: recipe.target.into ? file.into : undefined });

const quoted = (word) => (/^[\w./=:,+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/** The recipe as the tool's arguments. */
const command = (recipe, how) => {
  const { target } = recipe;
  const words = ["blob", "convert", recipe.sources[0].path, "-o", target.path, ...(target.into ? ["--into", target.into] : ["--to", target.format])];
  words.push(...settingsOf(recipe));
  for (const [name, extents] of Object.entries(target.onnx?.inputs ?? {})) words.push("--input", `${name}=${extents.join(",")}`);
  if (target.onnx?.dynamic_batch) words.push("--dynamic-batch");
  if (how.salvage) words.push("--salvage");
  if (target.skip_unsupported) words.push("--skip-unsupported");
  if (target.sha256) words.push("--sha256");
  if (target.receipt === false) words.push("--no-receipt");
  return words.map(quoted).join(" ");
};

/** The same for all files of a folder; none for a recipe that is of one file. */
const batch = (recipe, how) => {
  const { path, format, strict, ...others } = recipe.target;
  const end = recipe.sources[0].path.replace(/.*\./, "");
  if (Object.keys(others).length || how.salvage || how.member || !/^\w+$/.test(end)) return "";
  const words = ["blob", "batch", "--make", `*.${end}`, "--to", format, "-o", "out/", ...settingsOf(recipe)];
  return `${words.map(quoted).join(" ")} | blob batch -`;
};

/** The options that one conversion and many have alike. */
const settingsOf = ({ net, steps, target }) => {
  const words = [];
  if (net?.prototxt) words.push("--net", net.prototxt);
  if (net?.symbol) words.push("--symbol", net.symbol);
  for (const { name, settings } of steps) {
    if (name === "select") settings.patterns.forEach((pattern) => words.push("--only", pattern));
    else if (settings) words.push(`--${name}`, settings.to);
    else words.push(`--${name}`);
  }
  if (target.strict) words.push("--strict");
  return words;
};

const planOf = (plan, into) => {
  const changes = plan.changes.map((change) => el("li", { className: change.loss ? "bad" : change.asked ? "" : "odd" }, visible(change.message)));
  const parts = [el("p", {}, WORDS.tensorsOut(grouped(plan.tensors.length), bytes(plan.bytes_out)))];
  if (into) parts.push(el("p", {}, WORDS.filled(visible(into))));
  else if (plan.copy) parts.push(el("p", {}, WORDS.same));
  else if (changes.length === 0) parts.push(el("p", {}, WORDS.nothing));
  return [...parts, el("ul", { id: "changes" }, ...changes)];
};

/** Converts, and offers the output. */
const take = async (file, recipe) => {
  quiet();
  const part = $("results").appendChild(el("div", {}));
  try {
    const room = await navigator.storage?.estimate?.();
    const { bytes_out: need } = JSON.parse(await ask("plan", requestOf(file, recipe)));
    const left = room ? room.quota - room.usage : Infinity;
    if (need > left) throw { message: WORDS.noRoom(bytes(need), bytes(left)) };
    const start = () => ask("convert", requestOf(file, recipe));
    const { said, file: output, name: stored } = await long(part, file.info.file_bytes, start);
    const result = { name: recipe.target.path, said: JSON.parse(said), output, stored };
    result.receipt = await receiptIn(output, recipe.target.path);
    results.push(result);
    const made = [result];
    if (result.said.symbol) {
      made.push({ name: result.said.symbol, output: new Blob([result.said.symbol_text]), said: { bytes_out: result.said.symbol_text.length, lost: [] } });
      results.push(made[1]);
    }
    part.replaceWith(...made.map(resultOf));
  } catch (problem) {
    failed(part)(problem);
  }
  document.body.dataset.converted = Number(document.body.dataset.converted ?? 0) + 1;
};

/** The receipt that an output has, read from the output itself. */
const receiptIn = async (output, name) => {
  keys += 1;
  const key = keys;
  try {
    const { info } = await ask("open", { key, file: new File([output], name), how: {} });
    return JSON.parse(info).receipt;
  } catch {
    return null;
  } finally {
    ask("close", { key });
  }
};

const resultOf = (result) => {
  const save = async () => {
    if (window.showSaveFilePicker) {
      const handle = await showSaveFilePicker({ suggestedName: result.name });
      await result.output.stream().pipeTo(await handle.createWritable());
    } else {
      const href = URL.createObjectURL(result.output);
      el("a", { href, download: result.name }).click();
      setTimeout(() => URL.revokeObjectURL(href), 60000);
    }
    $("status").textContent = WORDS.saved;
  };
  const lost = result.said.lost.map((change) => el("li", { className: "bad" }, visible(change.message)));
  return el("div", { className: "result" }, el("p", {}, WORDS.done(visible(result.name), bytes(result.said.bytes_out)), " ",
    el("button", { type: "button", className: "main", onclick: () => save().catch(() => {}) }, WORDS.save), " ",
    el("button", { type: "button", className: "reopen", onclick: () => add(new File([result.output], result.name)) }, WORDS.reopen)),
  el("ul", {}, ...lost), result.said.blake3 ? el("p", { className: "dim digest" }, WORDS.input(result.said.blake3)) : null,
  result.said.sha256 ? el("p", { className: "dim digest" }, WORDS.sha256(result.said.sha256)) : null,
  result.receipt ? receiptOf(result.receipt, WORDS.receipt) : el("p", { className: "dim" }, WORDS.noReceipt));
};

const PANELS = { summary, tensors, verify, diff: compare, convert };

// ---- the beginning

const unpacked = async () => {
  const packed = Uint8Array.from(atob($("module").textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return WebAssembly.compile(await new Response(stream).arrayBuffer());
};

const main = async () => {
  for (const [id, text] of [["promise", WORDS.promise], ["dropText", WORDS.drop], ["choose", WORDS.choose], ["kinds", WORDS.kinds]]) $(id).textContent = text;
  $("status").textContent = WORDS.loading;
  navigator.locks?.request(session, () => new Promise(() => {}));
  try {
    module = await unpacked();
    await begin();
  } catch (error) {
    $("status").textContent = WORDS.noModule(error.message);
    return;
  }
  $("files").onchange = (event) => addAll([...event.target.files]).then(() => { event.target.value = ""; });
  document.onpaste = (event) => addAll([...event.clipboardData.files]);
  document.ondragover = (event) => { event.preventDefault(); $("drop").classList.add("over"); };
  document.ondragleave = () => $("drop").classList.remove("over");
  document.ondrop = (event) => {
    event.preventDefault();
    $("drop").classList.remove("over");
    addAll([...event.dataTransfer.files]);
  };
  document.body.dataset.ready = "yes";
  performance.mark("usable");
  if (location.protocol.startsWith("http")) navigator.serviceWorker?.register("sw.js").catch(() => {});
};

// For programs that drive the page: Firefox runs their scripts beside the page's own scope.
const outside = { $: () => $, WORDS: () => WORDS, files: () => files, results: () => results, given: () => given, worker: () => worker, ask: () => ask,
  add: () => add, remove: () => remove, choose: () => choose, show: () => show, quiet: () => quiet, visible: () => visible, exact: () => exact };
for (const [name, get] of Object.entries(outside)) Object.defineProperty(globalThis, name, { get, configurable: true });

main();
