//! Tables for people: a header, columns two spaces apart, numbers to the right.
//!
//! A table fits the terminal's width if there is one: columns are dropped by `Column::drop_order`, then names are
//! cut so that all still differ, the last column wraps. A table is printed in parts, so that a million rows are never
//! in memory.

mod fit;
mod names;

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};

use crate::output::Terminal;
use crate::output::width::{cut, cut_ends, width, wrap};
use fit::{Asked, fit};
pub(crate) use names::{Cut, EachName};

/// A part of the table is printed once there are this many rows or bytes.
const PART_ROWS: usize = 4096;
const PART_BYTES: usize = 1 << 20;

/// Without a width limit, cells are padded to at most this width; a longer cell shifts the rest of its row.
const MAX_PADDED: usize = 100;

/// With a width limit, the maximum width of a cell other than a name or a text.
const MAX_CELL: usize = 32;

/// With a width limit, the bytes of a text that are kept.
const MAX_TEXT: usize = 2000;

/// The minimum width that a text is wrapped to.
const MIN_TEXT: usize = 20;

/// Columns with this drop order or a higher one are dropped where cut names look alike, or if the text column has
/// no room even for its title.
pub(crate) const LAST: u8 = 100;

/// The spaces between two columns.
const GAP: usize = 2;

/// A table that is being printed, with one `T` per row.
pub(crate) struct Table<'a, T> {
    terminal: &'a Terminal,
    columns: Vec<Column>,
    cells: Vec<fn(&T, &Terminal) -> String>,
    rows: Vec<Vec<String>>,
    bytes: usize,
    /// The widths in the part printed last, `None` for a dropped column; empty before the first part.
    widths: Vec<Option<CellWidth>>,
    /// The names of all rows, and the widest.
    names: Option<Box<dyn EachName + 'a>>,
    widest: usize,
    /// Where names are cut, and where for other widths: `None` where two would look alike.
    cut: Cut,
    cuts: HashMap<usize, Option<Cut>>,
}

/// How a column's cells are aligned and shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Left,
    Right,
    /// Numbers, aligned at the decimal point.
    Point,
    /// Left-aligned and cut; columns of order [`LAST`] leave before it is narrower than this width.
    Name(usize),
    /// Left-aligned and wrapped; only as the last column.
    Text,
}

/// A column's title, the cells' alignment, and the column's turn to be dropped from a table that is too wide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    title: &'static str,
    kind: Kind,
    drop_order: Option<u8>,
}

impl Column {
    fn new(title: &'static str, kind: Kind) -> Self {
        Self { title, kind, drop_order: None }
    }

    /// A column of words.
    pub(crate) fn left(title: &'static str) -> Self {
        Self::new(title, Kind::Left)
    }

    /// A column of whole numbers.
    pub(crate) fn right(title: &'static str) -> Self {
        Self::new(title, Kind::Right)
    }

    /// A column of numbers with decimal points.
    pub(crate) fn point(title: &'static str) -> Self {
        Self::new(title, Kind::Point)
    }

    /// A column of names, which are cut after all columns below [`LAST`] have left, and to fewer than `least` columns
    /// after the others have, too.
    pub(crate) fn name(title: &'static str, least: usize) -> Self {
        Self::new(title, Kind::Name(least))
    }

    /// A last column of sentences. Without room to wrap sentences, the column is dropped after all others.
    pub(crate) fn text(title: &'static str) -> Self {
        Self::new(title, Kind::Text).drop_order(u8::MAX)
    }

    /// Lets the column be dropped from a table that is too wide, after the columns of lower order.
    pub(crate) fn drop_order(self, order: u8) -> Self {
        Self { drop_order: Some(order), ..self }
    }

    /// Adds the function that formats the column's cell in a row.
    pub(crate) fn of<T>(self, cell: fn(&T, &Terminal) -> String) -> ColumnOf<T> {
        ColumnOf { column: self, cell }
    }
}

/// A column of a table of `T`s, with the function that formats cells.
pub(crate) struct ColumnOf<T> {
    column: Column,
    cell: fn(&T, &Terminal) -> String,
}

/// The width of a cell or column: before the decimal point, and from the point on. Without a point all is `left`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CellWidth {
    left: usize,
    right: usize,
}

impl CellWidth {
    fn total(self) -> usize {
        self.left + self.right
    }

    fn max(self, other: Self) -> Self {
        Self { left: self.left.max(other.left), right: self.right.max(other.right) }
    }
}

impl<'a, T> Table<'a, T> {
    pub(crate) fn new(terminal: &'a Terminal, columns: Vec<ColumnOf<T>>) -> Self {
        let (columns, cells) = columns.into_iter().map(|of| (of.column, of.cell)).unzip();
        let (rows, widths, names, cut, cuts) = Default::default();
        Self { terminal, columns, cells, rows, bytes: 0, widths, names, widest: 0, cut, cuts }
    }

    /// Tells the names of all rows beforehand, so that no two rows of different parts are cut alike; `each` calls a
    /// function with every name as its cell shows it.
    pub(crate) fn named(mut self, each: impl Fn(&mut dyn FnMut(&str)) + 'a) -> Self {
        if self.terminal.width.is_some() {
            each(&mut |name| self.widest = self.widest.max(width(name)));
            self.names = Some(Box::new(each));
        }
        self
    }

    /// Adds a row, and prints a part of the table once there are enough rows.
    pub(crate) fn row(&mut self, out: &mut dyn Write, row: &T) -> io::Result<()> {
        let mut cells: Vec<String> = self.cells.iter().map(|cell| cell(row, self.terminal)).collect();
        for (cell, column) in cells.iter_mut().zip(&self.columns) {
            let ascii = self.terminal.ascii;
            let kept = match (self.terminal.width, column.kind) {
                (None, _) => continue,
                // Wider than any cut, and with all that one may show.
                (Some(width), Kind::Name(_)) => cut_ends(cell, width, width, ascii),
                (Some(_), Kind::Text) => cut(cell, MAX_TEXT, ascii),
                (Some(_), _) => cut(cell, MAX_CELL, ascii),
            };
            if let Cow::Owned(kept) = kept {
                *cell = kept;
            }
        }
        self.bytes += cells.iter().map(String::len).sum::<usize>();
        self.rows.push(cells);
        if self.rows.len() >= PART_ROWS || self.bytes >= PART_BYTES { self.print(out) } else { Ok(()) }
    }

    /// Prints the remaining rows and the titles of the dropped columns. Without any row nothing is printed.
    pub(crate) fn finish(mut self, out: &mut dyn Write) -> io::Result<()> {
        if !self.rows.is_empty() {
            self.print(out)?;
        }
        let hidden = self.columns.iter().zip(&self.widths).filter(|(_, w)| w.is_none());
        let hidden: Vec<&str> = hidden.map(|(c, _)| c.title).collect();
        if !hidden.is_empty() {
            let line = format!("(--wide also shows {})", hidden.join(", "));
            for line in wrap(&line, self.terminal.width.unwrap_or(usize::MAX)) {
                writeln!(out, "{}", self.terminal.dim(line))?;
            }
        }
        Ok(())
    }

    fn print(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let widths = self.fit();
        let is_shown = |widths: &[Option<CellWidth>]| widths.iter().map(Option::is_some).collect::<Vec<_>>();
        // Later parts continue the table, unless other columns are shown.
        if is_shown(&self.widths) != is_shown(&widths) {
            let titles: Vec<String> = self.columns.iter().map(|c| c.title.to_owned()).collect();
            let mut line = Vec::new();
            self.write_row(&titles, &widths, true, &mut line)?;
            let line = String::from_utf8_lossy(&line);
            writeln!(out, "{}", self.terminal.strong(line.trim_end()))?;
        }
        for row in &self.rows {
            self.write_row(row, &widths, false, out)?;
        }
        self.widths = widths;
        self.rows.clear();
        self.bytes = 0;
        Ok(())
    }

    /// The width of each column; `None` for those that are dropped.
    fn fit(&mut self) -> Vec<Option<CellWidth>> {
        let mut widths: Vec<CellWidth> = (0..self.columns.len()).map(|i| self.wanted(i)).collect();
        let Some(most) = self.terminal.width else {
            return widths.into_iter().map(Some).collect();
        };
        let whole: usize = widths.iter().map(|width| width.total() + GAP).sum();
        if whole > most + GAP {
            // Numbers aligned at points take more room than right-aligned ones.
            for (i, column) in self.columns.iter().enumerate() {
                if column.kind == Kind::Point {
                    widths[i] = self.cell_width(i, Kind::Right);
                }
            }
        }
        let asked = self.columns.iter().zip(&widths).map(|(column, wanted)| Asked {
            kind: column.kind,
            title: width(column.title),
            width: wanted.total(),
            word: 0,
            drop_order: column.drop_order,
        });
        let mut asked: Vec<Asked> = asked.collect();
        if let Some(text) = asked.iter().position(|column| column.kind == Kind::Text) {
            let words = self.rows.iter().flat_map(|row| row[text].split(' '));
            asked[text].word = words.map(width).max().unwrap_or_default();
        }
        let mut cuts = std::mem::take(&mut self.cuts);
        let fitted = fit(&asked, most, &mut |room| cuts.entry(room).or_insert_with(|| self.cut_to(room)).is_some());
        let fitted = widths.into_iter().zip(fitted).map(|(wanted, fitted)| match fitted? {
            width if width == wanted.total() => Some(wanted),
            width => Some(CellWidth { left: width, right: 0 }),
        });
        let fitted: Vec<Option<CellWidth>> = fitted.collect();
        let name = fitted.iter().zip(&self.columns).find(|(_, column)| matches!(column.kind, Kind::Name(_)));
        if let Some(room) = name.and_then(|(room, _)| *room) {
            let (room, ascii) = (room.total(), self.terminal.ascii);
            self.cut = cuts.get(&room).copied().flatten().unwrap_or_else(|| Cut::middle(room, ascii));
        }
        self.cuts = cuts;
        fitted
    }

    /// Where the names are cut to this width so that all differ: all names of the table, else those of this part.
    fn cut_to(&self, room: usize) -> Option<Cut> {
        let at = self.columns.iter().position(|column| matches!(column.kind, Kind::Name(_)))?;
        match &self.names {
            Some(names) => Cut::distinct(&**names, room, self.terminal.ascii),
            None => Cut::distinct(
                &|each: &mut dyn FnMut(&str)| self.rows.iter().for_each(|row| each(&row[at])),
                room,
                self.terminal.ascii,
            ),
        }
    }

    /// The width that fits a column's cells and title; never less than in the part before, so that columns line up.
    fn wanted(&self, i: usize) -> CellWidth {
        let mut before = self.widths.get(i).copied().flatten().unwrap_or_default();
        if matches!(self.columns[i].kind, Kind::Name(_)) {
            before = CellWidth { left: self.widest, right: 0 };
        }
        let mut wanted = self.cell_width(i, self.columns[i].kind).max(before);
        let title = width(self.columns[i].title);
        wanted.left = wanted.left.max(title.saturating_sub(wanted.right));
        wanted
    }

    fn cell_width(&self, i: usize, kind: Kind) -> CellWidth {
        let cells = self.rows.iter().map(|row| cell_width(&row[i], kind));
        let title = CellWidth { left: width(self.columns[i].title), right: 0 };
        let start = if kind == Kind::Point { CellWidth::default() } else { title };
        let limited = cells.filter(|e| self.terminal.width.is_some() || e.total() <= MAX_PADDED);
        limited.fold(start, CellWidth::max)
    }

    /// Writes one row: a line, or several if a text wraps.
    fn write_row(
        &self,
        cells: &[String],
        widths: &[Option<CellWidth>],
        is_header: bool,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let (mut pending, mut column) = (0, 0);
        for ((cell, format), room) in cells.iter().zip(&self.columns).zip(widths) {
            let Some(room) = room else { continue };
            let text = match (self.terminal.width, format.kind) {
                (Some(_), Kind::Name(_)) => self.cut.of(cell, self.terminal.ascii),
                (Some(most), Kind::Text) => {
                    let lines = wrap(cell, room.total().min(most.saturating_sub(column)));
                    let indent = format!("\n{:column$}", "");
                    lines.join(&indent).into()
                }
                _ => cell.into(),
            };
            let kind = if is_header && format.kind == Kind::Point { Kind::Right } else { format.kind };
            let before = match kind {
                Kind::Right => room.total().saturating_sub(width(&text)),
                Kind::Point if room.right == 0 => room.left.saturating_sub(width(&text)),
                Kind::Point => room.left.saturating_sub(cell_width(&text, kind).left),
                _ => 0,
            };
            if !text.is_empty() {
                write!(out, "{:1$}{2}", "", pending + before, text.trim_end())?;
                pending = 0;
            }
            let used = if text.is_empty() { 0 } else { before + width(&text) };
            pending += room.total().saturating_sub(used) + GAP;
            column += room.total() + GAP;
        }
        writeln!(out)
    }
}

/// The width of one cell.
fn cell_width(cell: &str, kind: Kind) -> CellWidth {
    match cell.find('.').filter(|_| kind == Kind::Point) {
        Some(at) => CellWidth { left: width(&cell[..at]), right: width(&cell[at..]) },
        None => CellWidth { left: width(cell), right: 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Global, When};

    fn terminal(width: Option<usize>) -> Terminal {
        let global = Global { color: When::Never, ..Global::default() };
        let mut terminal = Terminal::new(&global);
        (terminal.width, terminal.ascii) = (width, false);
        terminal
    }

    fn printed(width: Option<usize>, columns: &[Column], rows: &[&[&str]]) -> Vec<String> {
        let terminal = terminal(width);
        const CELLS: [fn(&Vec<String>, &Terminal) -> String; 4] =
            [|r, _| r[0].clone(), |r, _| r[1].clone(), |r, _| r[2].clone(), |r, _| r[3].clone()];
        let name = columns.iter().position(|column| matches!(column.kind, Kind::Name(_)));
        let names =
            |each: &mut dyn FnMut(&str)| rows.iter().for_each(|row| name.into_iter().for_each(|at| each(row[at])));
        let mut table =
            Table::new(&terminal, columns.iter().zip(CELLS).map(|(column, cell)| column.of(cell)).collect())
                .named(names);
        let mut out = Vec::new();
        for row in rows {
            table.row(&mut out, &row.iter().map(|cell| (*cell).to_owned()).collect()).unwrap();
        }
        table.finish(&mut out).unwrap();
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    fn columns() -> [Column; 4] {
        [
            Column::right("#"),
            Column::name("NAME", 5),
            Column::left("SHAPE").drop_order(2),
            Column::right("OFFSET").drop_order(1),
        ]
    }

    const ROWS_OF_TWO: &[&[&str]] = &[&["1", "arg:gamma", "3×3", "7"], &["12", "名前", "16", "12,345"]];

    #[test]
    fn columns_are_dropped_in_order_and_names_are_cut() {
        let whole = [" #  NAME       SHAPE  OFFSET", " 1  arg:gamma  3×3         7", "12  名前       16     12,345"];
        for width in [None, Some(28), Some(100)] {
            assert_eq!(printed(width, &columns(), ROWS_OF_TWO), whole);
        }
        let less = [" #  NAME       SHAPE", " 1  arg:gamma  3×3", "12  名前       16", "(--wide also shows", "OFFSET)"];
        assert_eq!(printed(Some(20), &columns(), ROWS_OF_TWO), less);
        let names = &printed(Some(19), &columns(), ROWS_OF_TWO)[..3];
        assert_eq!(names, [" #  NAME", " 1  arg:gamma", "12  名前"]);
        let least = &printed(Some(10), &columns(), ROWS_OF_TWO)[..3];
        assert_eq!(least, [" #  NAME", " 1  arg…ma", "12  名前"]);
    }

    #[test]
    fn numbers_are_aligned_at_the_point_if_there_is_room() {
        let columns = [Column::point("MEAN"), Column::left("X")];
        let rows: &[&[&str]] = &[&["-1.5", "a"], &["1235", "b"], &["0.0005", "c"], &["inf", "d"]];
        let aligned = ["     MEAN  X", "  -1.5     a", "1235       b", "   0.0005  c", " inf       d"];
        assert_eq!(printed(None, &columns, rows), aligned);
        let narrow = ["  MEAN  X", "  -1.5  a", "  1235  b", "0.0005  c", "   inf  d"];
        assert_eq!(printed(Some(9), &columns, rows), narrow);
    }

    #[test]
    fn a_last_text_wraps_below_itself() {
        let columns = [Column::left("A"), Column::text("WARNINGS")];
        let rows: &[&[&str]] = &[&["x", "the quick brown fox jumps over it"], &["y", "-"]];
        let wrapped = ["A  WARNINGS", "x  the quick brown fox", "   jumps over it", "y  -"];
        assert_eq!(printed(Some(24), &columns, rows), wrapped);
        assert_eq!(printed(None, &columns, rows)[1], "x  the quick brown fox jumps over it");
    }

    /// The short names are not padded to the one long name, with or without a width.
    #[test]
    fn a_long_cell_does_not_widen_the_other_rows() {
        let long = "n".repeat(65_000);
        let mut rows: Vec<Vec<&str>> = vec![vec!["0", "a", "2", "3"]; 10_000];
        rows[5000][1] = &long;
        let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
        for width in [None, Some(80)] {
            let lines = printed(width, &columns(), &rows);
            // Beside the rows a header, and the line of the columns that have left.
            assert_eq!(lines.len(), 10_001 + usize::from(width.is_some()));
            let bytes: usize = lines.iter().map(String::len).sum();
            assert!(bytes < 10_001 * 120 + long.len(), "{bytes}");
        }
    }
}
