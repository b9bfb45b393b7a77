//! Writes an HTML page piece by piece. Every text from a file is escaped and cut.
//!
//! The page's security policy allows only its own style: a browser loads nothing for it and runs no script in it.

use std::fmt::Write as _;

use blob_io::Error;

use crate::output::sink::Sink;
use crate::output::width::cut;
use crate::render::svg::escape_markup;

/// The bytes that are buffered before a write.
const PIECE: usize = 64 << 10;

/// The columns to which a text from a file is cut.
const LONGEST: usize = 300;

const HEAD: &str = "<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">
<meta name=\"viewport\" content=\"width=device-width\">
<style>
:root { color-scheme: light dark; --text: #1d2126; --dim: #667; --line: #d8dce2; --page: #fff; --bar: #3b6ea5; --bad: #b3261e; }
@media (prefers-color-scheme: dark) {
  :root { --text: #dfe3e8; --dim: #949aa4; --line: #33383f; --page: #16181c; --bar: #7fb0e6; --bad: #ff8a80; }
}
body { margin: 2rem auto; max-width: 80rem; padding: 0 1rem; background: var(--page); color: var(--text);
  font: 14px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .15rem .6rem; border-bottom: 1px solid var(--line); vertical-align: middle; }
th { color: var(--dim); font-weight: 600; }
td.n, th.n { text-align: right; white-space: nowrap; }
td.name { font-family: ui-monospace, monospace; overflow-wrap: anywhere; }
.bad { color: var(--bad); }
.dim { color: var(--dim); }
.bar { fill: var(--bar); }
svg { display: block; }
.wide { overflow-x: auto; }
</style>
";

/// A page that is being written.
pub(super) struct Page {
    output: Sink,
    text: String,
}

impl Page {
    pub(super) fn begin(output: Sink, title: &str) -> Self {
        let mut page = Self { output, text: HEAD.to_owned() };
        page.put(&format!("<title>{}</title>\n</head>\n<body>\n<h1>{0}</h1>\n", text(title)));
        page
    }

    /// Appends markup.
    pub(super) fn put(&mut self, markup: &str) {
        self.text += markup;
    }

    pub(super) fn heading(&mut self, title: &str) {
        let _ = writeln!(self.text, "<h2>{}</h2>", text(title));
    }

    pub(super) fn paragraph(&mut self, class: &str, words: &str) {
        let _ = writeln!(self.text, "<p class=\"{class}\">{}</p>", text(words));
    }

    /// A table of names and values.
    pub(super) fn facts(&mut self, facts: &[(String, String)]) {
        self.put("<table>\n");
        for (name, value) in facts {
            let _ = writeln!(self.text, "<tr><th>{}</th><td>{}</td></tr>", text(name), text(value));
        }
        self.put("</table>\n");
    }

    /// A list; its last item is the number of items left out.
    pub(super) fn list(&mut self, class: &str, lines: &[String], more: u64) {
        let _ = writeln!(self.text, "<ul class=\"{class}\">");
        for line in lines {
            let _ = writeln!(self.text, "<li>{}</li>", text(line));
        }
        if more > 0 {
            let _ = writeln!(self.text, "<li>and {} more</li>", crate::units::grouped(more));
        }
        self.put("</ul>\n");
    }

    /// Begins a table. A title that begins with `#` marks a column of numbers.
    pub(super) fn table(&mut self, columns: &[&str]) {
        self.put("<div class=\"wide\"><table>\n<tr>");
        for column in columns {
            let (class, title) = column.strip_prefix('#').map_or(("", *column), |title| (" class=\"n\"", title));
            let _ = write!(self.text, "<th{class}>{title}</th>");
        }
        self.put("</tr>\n");
    }

    /// A cell; the class is `name` for a name, `n` for a number, empty for text.
    pub(super) fn cell(&mut self, class: &str, words: &str) {
        let _ = write!(self.text, "<td class=\"{class}\">{}</td>", text(words));
    }

    /// Ends a row, and writes the page to the output once enough is buffered.
    pub(super) fn end_row(&mut self) -> Result<(), Error> {
        self.put("</tr>\n");
        if self.text.len() < PIECE {
            return Ok(());
        }
        self.output.write_all(self.text.as_bytes())?;
        self.text.clear();
        Ok(())
    }

    pub(super) fn end_table(&mut self) {
        self.put("</table></div>\n");
    }

    /// Completes the page, and returns its length.
    pub(super) fn finish(mut self) -> Result<u64, Error> {
        self.put("</body>\n</html>\n");
        self.output.write_all(self.text.as_bytes())?;
        self.output.finish()
    }
}

/// Text from a file, cut and escaped for the page.
fn text(words: &str) -> String {
    escape_markup(&cut(words, LONGEST, false))
}
