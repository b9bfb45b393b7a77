// Holds the user's files and the module. Relies on `WORDS` and `wasm_bindgen`, which stand before this in one script. Its policy is
// that of the page, which lets nothing connect.

// The policy lets the page begin workers, for the service worker's sake; this one begins none.
self.Worker = self.SharedWorker = undefined;

const NEAR = 65536; // a read takes as many bytes, which serve the next ones: the browser takes a millisecond for any
const AHEAD = 16 << 20; // and at most as many where one read follows another
const MOST_IN_MEMORY = 256 << 20;
const SPARE = 3;
const NOTHING = { at: 0, bytes: new Uint8Array(0) };

const reader = new FileReaderSync();
const places = new Map();
let count = 0;
let folder = null;
let memory = null;
const spare = [];
const stale = new Set();

let uncollected = 0;

/** While the module reads, the browser collects late: pieces of 1.2 GB stay behind a file of 553 MB. It collects at
    once where much is reserved; that is never touched, and so takes no memory: 46 MB stay. Once is not enough: streams
    let the browser wait for more. */
const collect = (bytes) => {
  uncollected += bytes;
  if (uncollected < AHEAD) return;
  uncollected = 0;
  try {
    for (let i = 0; i < 4; i += 1) new ArrayBuffer(2 ** 31);
    for (let i = 0; i < 16; i += 1) new Array(15000).fill(i);
  } catch {} // a browser of few bytes collects early by itself
};

/** A file of the user's. */
class Chosen {
  constructor(file) {
    this.file = file;
    this.near = NOTHING;
    this.next = 0;
    this.window = NEAR;
  }
  len() {
    return this.file.size;
  }
  slice(at, len) {
    let bytes;
    try {
      bytes = new Uint8Array(reader.readAsArrayBuffer(this.file.slice(at, at + len)));
    } catch {
      throw new Error(WORDS.changed); // browsers differ in the name of this error, and Firefox gives it no message
    }
    if (bytes.length !== Math.min(len, this.file.size - at)) throw new Error(WORDS.shorter);
    return bytes;
  }
  read(at, into) {
    const end = at + into.length;
    if (at < this.near.at || end > this.near.at + this.near.bytes.length) {
      this.window = at === this.next ? Math.min(2 * this.window, AHEAD) : NEAR;
      this.near = NOTHING; // or two pieces were in memory at once
      this.near = { at, bytes: this.slice(at, Math.max(into.length, this.window)) };
      collect(this.near.bytes.length);
    }
    into.set(this.near.bytes.subarray(at - this.near.at, end - this.near.at));
    this.next = end;
  }
}

/** A file in the private file system of the page's origin. */
class Private {
  constructor(name, file, handle) {
    Object.assign(this, { name, file, handle });
  }
  static async make() {
    const name = crypto.randomUUID();
    const file = await folder.getFileHandle(name, { create: true });
    return new Private(name, file, await file.createSyncAccessHandle());
  }
  len() {
    return this.handle.getSize();
  }
  setLen(len) {
    this.handle.truncate(len);
  }
  read(at, into) {
    if (this.handle.read(into, { at }) !== into.length) throw new Error(WORDS.lost);
  }
  write(at, bytes) {
    if (this.handle.write(bytes, { at }) !== bytes.length) throw new Error(WORDS.full);
  }
  flush() {
    this.handle.flush();
  }
  discard() {
    this.handle.truncate(0);
    spare.push(this);
  }
  async take() {
    this.handle.close();
    return { file: await this.file.getFile(), name: this.name };
  }
}

/** Bytes in memory, where the browser has no private file system. */
class Memory {
  constructor() {
    this.bytes = new Uint8Array(0);
  }
  len() {
    return this.bytes.length;
  }
  setLen(len) {
    if (len > MOST_IN_MEMORY) throw new Error(WORDS.memoryFull);
    const bytes = new Uint8Array(len);
    bytes.set(this.bytes.subarray(0, len));
    this.bytes = bytes;
  }
  read(at, into) {
    into.set(this.bytes.subarray(at, at + into.length));
  }
  write(at, bytes) {
    const end = at + bytes.length;
    if (end > this.bytes.length) this.setLen(end);
    this.bytes.set(bytes, at);
  }
  flush() {}
  discard() {
    this.bytes = new Uint8Array(0);
  }
  async take() {
    return { file: new Blob([this.bytes]), name: null };
  }
}

const keep = (place) => {
  places.set(++count, place);
  return count;
};

const trying = (work) => {
  try {
    work();
  } catch (error) {
    return error.message;
  }
};

// What the module asks of the browser.
const host = {
  read: (number, at, into) => trying(() => places.get(number).read(at, into)),
  write: (number, at, bytes) => trying(() => places.get(number).write(at, bytes)),
  setLen: (number, len) => trying(() => places.get(number).setLen(len)),
  len: (number) => places.get(number).len(),
  flush: (number) => trying(() => places.get(number).flush()),
  discard(number) {
    places.get(number)?.discard();
    places.delete(number);
  },
  place: () => keep(spare.pop() ?? new Memory()),
  advanced: (bytes) => postMessage({ advanced: bytes }),
  panicked: (message) => postMessage({ panicked: message }),
};

/** Makes room: removes what earlier pages left, and opens files ahead, because the module cannot wait for one. */
async function begin({ module, session, kept }) {
  ({ memory } = wasm_bindgen.initSync({ module }));
  try {
    const root = await navigator.storage.getDirectory();
    const { held } = await navigator.locks.query();
    for await (const [name, entry] of root.entries()) {
      const isLive = name === session || held.some((lock) => lock.name === name);
      if (entry.kind === "directory" && !isLive) await root.removeEntry(name, { recursive: true }).catch(() => {});
    }
    folder = await root.getDirectoryHandle(session, { create: true });
    for await (const name of folder.keys()) if (!kept.includes(name)) stale.add(name);
    await refill();
    sweep(50);
  } catch {
    folder = null;
  }
  return { isKept: folder !== null };
}

/** Removes what a worker before this one left; its files are locked until the browser has ended it. */
async function sweep(tries) {
  for (const name of [...stale]) await folder.removeEntry(name).then(() => stale.delete(name), () => {});
  if (stale.size > 0 && tries > 0) setTimeout(() => sweep(tries - 1), 200);
}

async function refill() {
  while (folder && spare.length < SPARE) spare.push(await Private.make());
}

const opened = new Map();

// Chromium collects a reader in the middle of a read, and answers never, where only the wait for it holds it.
let reading = null;

/** The statistics of a large tensor: a stream reads twice as fast as pieces, always into the same few bytes. Nothing
    where the tensor or the browser has no stream, or the file has changed: then the module reads, or says why not. */
const streamed = async ({ file, number }, place, bins) => {
  const stream = file.stream(place, bins);
  if (!stream) return;
  let said;
  try {
    const [begin, len] = [stream.begin(), stream.len()];
    for (;;) {
      reading = places.get(number).file.slice(begin, begin + len).stream().getReader({ mode: "byob" });
      for (let buffer = new ArrayBuffer(4 * NEAR);;) {
        const { done, value } = await reading.read(new Uint8Array(buffer));
        if (done) break;
        stream.update(value);
        ({ buffer } = value);
      }
      said = stream.end();
      if (said !== undefined) break;
    }
  } catch (error) {
    // What has trapped is borrowed for good: freeing it is an error of its own, which would stand for this one.
    if (error instanceof WebAssembly.RuntimeError) throw error;
    reading?.cancel().catch(() => {}); // or the browser goes on filling it
  }
  reading = null;
  collect(stream.len());
  stream.free();
  return said;
};

const work = {
  begin,
  open({ key, file, how }) {
    const number = keep(new Chosen(file));
    try {
      opened.set(key, { file: wasm_bindgen.open(number, file.name, file.size, JSON.stringify(how)), number });
    } catch (error) {
      places.delete(number);
      throw error;
    }
    return work.describe({ key });
  },
  // The list first: the facts read some values, which the list would count.
  describe: ({ key }) => ({ list: opened.get(key).file.list(), info: opened.get(key).file.info() }),
  close({ key }) {
    const { file, number } = opened.get(key) ?? {};
    file?.free();
    places.delete(number);
    opened.delete(key);
  },
  select: ({ key, patterns }) => opened.get(key).file.select(patterns),
  stats: async ({ key, place, bins }) => await streamed(opened.get(key), place, bins) ?? opened.get(key).file.stats(place, bins),
  values: ({ key, place, slice, most }) => opened.get(key).file.values(place, slice, most),
  numbers: ({ key, place, most }) => opened.get(key).file.numbers(place, most),
  channels: ({ key, place, axis }) => opened.get(key).file.channels(place, axis),
  // The file is opened anew: one that breaks off is checked too.
  verify({ file, how }) {
    const number = keep(new Chosen(file));
    try {
      return wasm_bindgen.verify(number, file.name, file.size, JSON.stringify(how));
    } finally {
      places.delete(number);
    }
  },
  diff: ({ key, other }) => opened.get(key).file.diff(opened.get(other).file),
  plan: ({ key, recipe, net, into }) => opened.get(key).file.plan(recipe, net, opened.get(into ?? key).file),
  async convert({ key, recipe, net, into }) {
    const number = host.place();
    const said = opened.get(key).file.convert(recipe, net, opened.get(into ?? key).file, number);
    const taken = await places.get(number).take();
    places.delete(number);
    return { said, ...taken };
  },
  // The module's own bytes, and those of files that are kept for the next reads.
  memory: () => ({ module: memory.buffer.byteLength, windows: [...places.values()].reduce((sum, { near }) => sum + (near?.bytes.length ?? 0), 0) }),
  fail: ({ why }) => wasm_bindgen.fail(why),
  async remove({ name }) {
    if (folder && name) await folder.removeEntry(name).catch(() => {});
  },
};

const answer = async ({ id, op, ...rest }) => {
  try {
    const found = await work[op](rest);
    await refill();
    postMessage({ id, answer: found });
  } catch (error) {
    // The module's errors are texts; anything else ends it.
    if (typeof error === "string") postMessage({ id, error });
    else postMessage({ id, fatal: String(error?.message ?? error) });
  }
};

// One after another: a file is not closed while it is read.
let last = Promise.resolve();
onmessage = ({ data }) => {
  last = last.then(() => answer(data));
};
