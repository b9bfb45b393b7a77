//! The markup of an HTML page. Every text from a file is escaped and cut.
//!
//! The page's security policy allows only the page's style: a browser loads nothing and runs no script. A
//! narrow window shows each row of a table as a card, with the column's title before each value.

use std::fmt::Write as _;

use blob_io::Error;
use blob_io::words::{Listed, more_line};

use crate::output::sink::Sink;
use crate::output::width::cut;
use crate::render::svg::escape_markup;

/// The columns to which a text from a file is cut.
const LONGEST: usize = 300;

/// Windows up to this width show cards: a table of 14 columns needs more.
const CARDS: &str = "@media (max-width: 75rem)";

const HEAD: &str = "<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">
<meta name=\"viewport\" content=\"width=device-width\">
";

const STYLE: &str = ":root { color-scheme: light dark; --text: #1d2126; --dim: #667; --line: #d8dce2; --page: #fff; --bar: #3b6ea5;
  --bad: #b3261e; --good: #1b6e3c; --card: #f6f7f9; }
@media (prefers-color-scheme: dark) {
  :root { --text: #dfe3e8; --dim: #949aa4; --line: #33383f; --page: #16181c; --bar: #7fb0e6; --bad: #ff8a80; --good: #7bd69b;
    --card: #1d2025; }
}
body { margin: 1.5rem auto; max-width: 100rem; padding: 0 1rem; background: var(--page); color: var(--text);
  font: 14px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; line-height: 1.3; margin: 0 0 .8rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; scroll-margin-top: .5rem; }
a { color: var(--bar); }
.answer { list-style: none; margin: 0; padding: .8rem 1rem; background: var(--card); border-radius: 8px; font-size: 1rem; }
.answer li { padding: .1rem 0 .1rem 1.5rem; text-indent: -1.5rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .15rem .5rem; border-bottom: 1px solid var(--line); vertical-align: middle; }
th { color: var(--dim); font-weight: 600; }
.facts th { vertical-align: top; min-width: 6rem; }
.rows { font-size: 13px; }
.rows thead th { position: sticky; top: 0; background: var(--page); box-shadow: inset 0 -1px var(--line); }
.rows tr:target { outline: 2px solid var(--bar); }
td.n, th.n { text-align: right; white-space: nowrap; }
td.name, .hash { font-family: ui-monospace, monospace; }
td.name { min-width: 8rem; }
.bad { color: var(--bad); }
.good { color: var(--good); }
.dim { color: var(--dim); }
.bar { fill: var(--bar); }
svg { display: block; }
";

/// Each row as a card: the name across, the other cells in columns.
const CARD_STYLE: &str = "  .rows, .rows tbody { display: block; }
  .rows thead { display: none; }
  .rows tr { display: grid; grid-template-columns: repeat(auto-fill, minmax(5.2rem, 1fr)); gap: .2rem .8rem; margin: .7rem 0;
    padding: .6rem .8rem; background: var(--card); border-radius: 8px; }
  .rows td { border: 0; padding: 0; min-width: 0; }
  .rows td.n { text-align: left; white-space: normal; }
  .rows td.name, .rows td[colspan], .rows td.wide { grid-column: 1 / -1; }
  .rows td.name { order: -1; font-weight: 600; }
  .rows td::before { display: block; color: var(--dim); font: 11px/1.4 system-ui, sans-serif; }
  .rows td:empty { display: none; }
";

/// A part of a page.
#[derive(Default)]
pub(super) struct Markup {
    text: String,
    /// The titles of the tables' columns as rules of style, for cards.
    labels: String,
}

impl Markup {
    /// Appends markup.
    pub(super) fn put(&mut self, markup: &str) {
        self.text += markup;
    }

    /// Appends a part that was made apart.
    pub(super) fn append(&mut self, part: Self) {
        self.text += &part.text;
        self.labels += &part.labels;
    }

    /// A heading that links can name.
    pub(super) fn heading(&mut self, id: &str, title: &str) {
        let _ = writeln!(self.text, "<h2 id=\"{id}\">{}</h2>", text(title));
    }

    pub(super) fn paragraph(&mut self, class: &str, words: &str) {
        let _ = writeln!(self.text, "<p class=\"{class}\">{}</p>", text(words));
    }

    /// A table of names and values.
    pub(super) fn facts(&mut self, facts: &[(String, String)]) {
        self.put("<table class=\"facts\">\n");
        for (name, value) in facts {
            let _ = writeln!(self.text, "<tr><th scope=\"row\">{}</th><td>{}</td></tr>", text(name), text(value));
        }
        self.put("</table>\n");
    }

    /// A list; the last item is the number of items left out.
    pub(super) fn list<const MOST: usize>(&mut self, class: &str, lines: &Listed<String, MOST>) {
        let _ = writeln!(self.text, "<ul class=\"{class}\">");
        for line in &lines.first {
            let _ = writeln!(self.text, "<li>{}</li>", text(line));
        }
        if let Some(more) = more_line(lines.more()) {
            let _ = writeln!(self.text, "<li>{more}</li>");
        }
        self.put("</ul>\n");
    }

    /// The paragraph behind a table that leaves out `more` rows.
    pub(super) fn more(&mut self, more: u64) {
        more_line(more).into_iter().for_each(|more| self.paragraph("dim", &more));
    }

    /// The first list of a page: each line with a judgement, and the id of the linked heading.
    pub(super) fn answer(&mut self, lines: &[Line]) {
        self.put("<ul class=\"answer\">\n");
        for Line { is_good, link, words, more } in lines {
            let (class, mark) = if *is_good { ("good", "✔") } else { ("bad", "✘") };
            let (words, more) = (text(words), text(more));
            let _ = writeln!(
                self.text,
                "<li><span class=\"{class}\">{mark}</span> <a href=\"#{link}\">{words}</a>{more}</li>"
            );
        }
        self.put("</ul>\n");
    }

    /// Begins a table. A title that begins with `#` marks a column of numbers.
    pub(super) fn table(&mut self, id: &str, columns: &[&str]) {
        let _ = write!(self.text, "<table class=\"rows {id}\">\n<thead><tr>");
        for (number, column) in (1..).zip(columns) {
            let (class, title) = column.strip_prefix('#').map_or(("", *column), |title| (" class=\"n\"", title));
            let _ = write!(self.text, "<th scope=\"col\"{class}>{title}</th>");
            if !matches!(title, "name" | "histogram") {
                let rule = format!(".{id} td:nth-child({number}):not([colspan])::before");
                let _ = writeln!(self.labels, "  {rule} {{ content: \"{title}\"; }}");
            }
        }
        self.put("</tr></thead>\n<tbody>\n");
    }

    /// A cell; the class is `name` for a name, `n` for a number, empty for text.
    pub(super) fn cell(&mut self, class: &str, words: &str) {
        let _ = write!(self.text, "<td class=\"{class}\">{}</td>", text(words));
    }

    /// A cell across some columns, in place of values.
    pub(super) fn span(&mut self, columns: usize, class: &str, words: &str) {
        let _ = write!(self.text, "<td colspan=\"{columns}\" class=\"{class}\">{}</td>", text(words));
    }

    /// A name that links to the row of a tensor.
    pub(super) fn link(&mut self, row: usize, name: &str) {
        let _ = write!(self.text, "<td class=\"name\"><a href=\"#t{row}\">{}</a></td>", text(name));
    }

    pub(super) fn end_row(&mut self) {
        self.put("</tr>\n");
    }

    pub(super) fn end_table(&mut self) {
        self.put("</tbody></table>\n");
    }

    /// Writes the page of this title, and returns the length.
    pub(super) fn write(&self, title: &str, mut output: Sink) -> Result<u64, Error> {
        let title = text(title);
        let style = format!("<style>\n{STYLE}{CARDS} {{\n{CARD_STYLE}{}}}\n</style>\n", self.labels);
        let head = format!("{HEAD}{style}<title>{title}</title>\n</head>\n<body>\n<h1>{title}</h1>\n");
        for part in [&head, &self.text, "</body>\n</html>\n"] {
            output.write_all(part.as_bytes())?;
        }
        output.finish()
    }
}

/// A line of a page's answer.
pub(super) struct Line {
    pub(super) is_good: bool,
    /// The id of the linked heading.
    pub(super) link: &'static str,
    pub(super) words: String,
    /// Words after the link.
    pub(super) more: String,
}

/// Text from a file, cut and escaped for the page.
fn text(words: &str) -> String {
    escape_markup(&cut(words, LONGEST, false))
}
