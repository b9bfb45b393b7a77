//! Standard output for data, standard error for messages and progress.
//!
//! Detects once the terminal's abilities: width, colour, UTF-8. Tables and JSON are in `render` and `json`.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use blob_core::Shape;
use terminal_size::{Height, Width, terminal_size_of};

use crate::args::{Global, When};
use crate::escape::{escape, escape_ascii, escape_message, escape_message_ascii};
use crate::failure::Failure;

pub(crate) mod format;
pub(crate) mod progress;
pub(crate) mod signals;
pub(crate) mod sink;
pub(crate) mod width;
pub(crate) mod written;

use width::paragraph;

/// The properties of standard output and standard error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    /// Whether to print tables: on a terminal, or with --table.
    pub(crate) has_tables: bool,
    /// The width of tables and lists; `None` if nothing is cut.
    pub(crate) width: Option<usize>,
    /// The same for messages on standard error.
    message_width: Option<usize>,
    /// Plain ASCII only.
    pub(crate) ascii: bool,
    color_out: bool,
    color_err: bool,
    progress: When,
    /// Whether standard error gets errors alone.
    is_quiet: bool,
}

impl Terminal {
    pub(crate) fn new(global: &Global) -> Self {
        let colored = |auto: ColorChoice| match global.color {
            When::Auto => auto != ColorChoice::Never,
            When::Always => true,
            When::Never => false,
        };
        let has_tables = io::stdout().is_terminal() || global.table;
        Self {
            has_tables,
            width: (has_tables && !global.wide).then(|| columns(terminal_size_of(io::stdout()))),
            message_width: (io::stderr().is_terminal() && !global.wide)
                .then(|| columns(terminal_size_of(io::stderr()))),
            ascii: global.ascii || !utf8_locale(),
            color_out: colored(AutoStream::choice(&io::stdout())),
            color_err: colored(AutoStream::choice(&io::stderr())),
            progress: global.progress,
            is_quiet: global.quiet,
        }
    }

    /// Buffered standard output. The caller flushes at the end, so that a full disk is noticed.
    pub(crate) fn out(&self) -> Out {
        let choice = if self.color_out { ColorChoice::Always } else { ColorChoice::AlwaysAnsi };
        // Without colour our text contains no escape codes, so nothing needs to be stripped.
        Out(BufWriter::with_capacity(64 << 10, AutoStream::new(io::stdout(), choice)))
    }

    /// Whether standard output shows colours.
    pub(crate) fn has_colour(&self) -> bool {
        self.color_out
    }

    /// `text` in bold on a terminal with colour.
    pub(crate) fn strong(&self, text: impl Display) -> String {
        self.paint(Style::new().bold(), text)
    }

    /// `text` dimmed on a terminal with colour.
    pub(crate) fn dim(&self, text: impl Display) -> String {
        self.paint(Style::new().dimmed(), text)
    }

    /// `text` in the colour of good or of bad news.
    pub(crate) fn verdict(&self, good: bool, text: impl Display) -> String {
        let color = if good { AnsiColor::Green } else { AnsiColor::Red };
        self.paint(color.on_default().bold(), text)
    }

    fn paint(&self, style: Style, text: impl Display) -> String {
        if self.color_out { format!("{style}{text}{style:#}") } else { text.to_string() }
    }

    /// A name from a file, escaped for printing.
    pub(crate) fn name<'t>(&self, name: &'t str) -> Cow<'t, str> {
        if self.ascii { escape_ascii(name) } else { escape(name) }
    }

    /// A message with quoted names, escaped for printing on one line.
    pub(crate) fn text<'t>(&self, message: &'t str) -> Cow<'t, str> {
        if self.ascii { escape_message_ascii(message) } else { escape_message(message) }
    }

    /// A shape: `20×1×5×5`, `20x1x5x5` in ASCII, `scalar`.
    pub(crate) fn shape(&self, shape: &Shape) -> String {
        if self.ascii { ascii_shape(shape) } else { shape.to_string() }
    }

    /// The sign between the extents of a shape.
    pub(crate) fn times(&self) -> &'static str {
        if self.ascii { "x" } else { "×" }
    }

    pub(crate) fn warning(&self, text: impl Display) {
        if self.is_quiet {
            return;
        }
        self.message(AnsiColor::Yellow, "warning", &text.to_string(), None);
    }

    /// Reports a failure on standard error.
    pub(crate) fn error(&self, failure: &Failure) {
        match failure {
            Failure::ReaderGone => {}
            Failure::Interrupted(_) => self.message(AnsiColor::Red, "interrupted", "", None),
            Failure::Trouble(problem) | Failure::No(problem) => {
                let help = problem.help.as_deref();
                self.message(AnsiColor::Red, "error", &problem.message, help);
            }
        }
    }

    /// The marks for success and for `from → to`.
    pub(crate) fn marks(&self) -> (&'static str, &'static str) {
        if self.ascii { ("ok", "->") } else { ("✔", "→") }
    }

    /// Prints a message on standard error. A failure to print is ignored.
    pub(crate) fn note(&self, text: impl Display) {
        self.command(paragraph(&text.to_string(), self.message_width, 2));
    }

    /// Prints a line on standard error without wrapping, ready to be copied.
    pub(crate) fn command(&self, text: impl Display) {
        if self.is_quiet {
            return;
        }
        let _ = writeln!(self.err(), "{text}");
    }

    fn message(&self, color: AnsiColor, kind: &str, text: &str, help: Option<&str>) {
        let style = color.on_default().bold();
        let (on, off) = if self.color_err {
            (style.render().to_string(), style.render_reset().to_string())
        } else {
            (String::new(), String::new())
        };
        let colon = if text.is_empty() { "" } else { ": " };
        let message = format!("{on}{kind}{off}{colon}{}", self.text(text));
        let mut lines = paragraph(&message, self.message_width, 2) + "\n";
        if let Some(help) = help {
            lines += &paragraph(&format!("  help: {}\n", self.text(help)), self.message_width, 4);
        }
        let _ = self.err().write_all(lines.as_bytes());
    }

    fn err(&self) -> AutoStream<io::Stderr> {
        let choice = if self.color_err { ColorChoice::Always } else { ColorChoice::Never };
        AutoStream::new(io::stderr(), choice)
    }
}

/// Buffered standard output.
pub(crate) struct Out(BufWriter<AutoStream<io::Stdout>>);

impl Write for Out {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A shape in ASCII, whatever the locale: `20x1x5x5`, `scalar`.
pub(crate) fn ascii_shape(shape: &Shape) -> String {
    shape.to_string().replace('×', "x")
}

/// The width of a terminal: COLUMNS, else the detected one, else 80.
fn columns(detected: Option<(Width, Height)>) -> usize {
    let set = std::env::var("COLUMNS").ok().and_then(|n| n.parse().ok());
    set.or(detected.map(|(width, _)| usize::from(width.0))).filter(|n| *n > 0).unwrap_or(80)
}

/// Whether the locale uses UTF-8, as always on Windows.
fn utf8_locale() -> bool {
    if cfg!(windows) {
        return true;
    }
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let first = names.iter().filter_map(std::env::var_os).find(|value| !value.is_empty());
    first.is_some_and(|locale| {
        let locale = locale.to_string_lossy().to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}
