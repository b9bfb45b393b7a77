//! Tables for people: a header, columns two spaces apart, numbers to the right.
//!
//! Where the width is known a table obeys it: columns leave in the order that `Column::leaves` gives them, names are
//! cut in their middle, the last column wraps. A table is printed in parts, so that a million rows do not fill the
//! memory.

use std::io::{self, Write};

use crate::output::Terminal;
use crate::output::width::{cut, width, wrap};

/// How many rows, or bytes, a part of the table has when it is printed.
const ROWS: usize = 4096;
const BYTES: usize = 1 << 20;

/// Where the width is not limited, a longer cell moves the rest of its row: the others are not padded to it.
const PADDED: usize = 100;

/// The most columns of a cell other than a name or a text, where the width is limited.
const CELL: usize = 32;

/// The most of a text that is kept, where the width is limited.
const TEXT: usize = 2000;

/// The least room that a text is wrapped into.
const LEAST_TEXT: usize = 20;

/// From this turn on a column leaves only where a text has no room for its title.
pub(crate) const LAST: u8 = 100;

/// Between two columns.
const GAP: usize = 2;

/// A table of `T`s in the making.
pub(crate) struct Table<'a, T> {
    terminal: &'a Terminal,
    columns: Vec<Column>,
    cells: Vec<fn(&T, &Terminal) -> String>,
    rows: Vec<Vec<String>>,
    bytes: usize,
    /// The widths of the part before this one, and which columns it had; empty before the first.
    widths: Vec<Option<Extent>>,
}

/// How a column's cells lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Left,
    Right,
    /// Numbers, their points below each other.
    Point,
    /// To the left; cut in the middle, to no less than this.
    Name(usize),
    /// To the left, wrapped; only as the last column.
    Text,
}

/// A column's title, how its cells lie, and when it leaves a table that is too wide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    title: &'static str,
    kind: Kind,
    leaves: Option<u8>,
}

impl Column {
    fn new(title: &'static str, kind: Kind) -> Self {
        Self { title, kind, leaves: None }
    }

    /// A column of words.
    pub(crate) fn left(title: &'static str) -> Self {
        Self::new(title, Kind::Left)
    }

    /// A column of whole numbers.
    pub(crate) fn right(title: &'static str) -> Self {
        Self::new(title, Kind::Right)
    }

    /// A column of numbers with points.
    pub(crate) fn point(title: &'static str) -> Self {
        Self::new(title, Kind::Point)
    }

    /// A column of names, cut to no less than `least`.
    pub(crate) fn name(title: &'static str, least: usize) -> Self {
        Self::new(title, Kind::Name(least))
    }

    /// A last column of sentences; where there is no room to wrap them into, it leaves after all others.
    pub(crate) fn text(title: &'static str) -> Self {
        Self::new(title, Kind::Text).leaves(u8::MAX)
    }

    /// The column leaves a table that is too wide, as the `turn`th one.
    pub(crate) fn leaves(self, turn: u8) -> Self {
        Self { leaves: Some(turn), ..self }
    }

    /// Document what a row has in the column.
    pub(crate) fn of<T>(self, cell: fn(&T, &Terminal) -> String) -> Filled<T> {
        Filled { column: self, cell }
    }
}

/// A column of a table of `T`s, with what stands in it.
pub(crate) struct Filled<T> {
    column: Column,
    cell: fn(&T, &Terminal) -> String,
}

/// The room of a column: before the point and from it on, or all of it before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Extent {
    left: usize,
    right: usize,
}

impl Extent {
    fn whole(self) -> usize {
        self.left + self.right
    }

    fn max(self, other: Self) -> Self {
        Self { left: self.left.max(other.left), right: self.right.max(other.right) }
    }
}

impl<'a, T> Table<'a, T> {
    pub(crate) fn new(terminal: &'a Terminal, columns: Vec<Filled<T>>) -> Self {
        let (columns, cells) = columns.into_iter().map(|filled| (filled.column, filled.cell)).unzip();
        Self { terminal, columns, cells, rows: Vec::new(), bytes: 0, widths: Vec::new() }
    }

    /// Adds a row, and prints a part of the table when enough rows are there.
    pub(crate) fn row(&mut self, out: &mut dyn Write, row: &T) -> io::Result<()> {
        let mut cells: Vec<String> = self.cells.iter().map(|cell| cell(row, self.terminal)).collect();
        for (cell, column) in cells.iter_mut().zip(&self.columns) {
            let most = match (self.terminal.width, column.kind) {
                (None, _) => continue,
                (Some(width), Kind::Name(_)) => width,
                (Some(_), Kind::Text) => TEXT,
                (Some(_), _) => CELL,
            };
            if cell.len() > most {
                *cell = cut(cell, most, self.terminal.ascii).into_owned();
            }
        }
        self.bytes += cells.iter().map(String::len).sum::<usize>();
        self.rows.push(cells);
        match self.rows.len() >= ROWS || self.bytes >= BYTES {
            true => self.print(out),
            false => Ok(()),
        }
    }

    /// Prints what is left. A table without rows is not printed at all.
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
        let is_shown = |widths: &[Option<Extent>]| widths.iter().map(Option::is_some).collect::<Vec<_>>();
        // Later parts continue the table, unless other columns are shown.
        if is_shown(&self.widths) != is_shown(&widths) {
            let titles: Vec<String> = self.columns.iter().map(|c| c.title.to_owned()).collect();
            let mut line = Vec::new();
            self.lay(&titles, &widths, true, &mut line)?;
            let line = String::from_utf8_lossy(&line);
            writeln!(out, "{}", self.terminal.strong(line.trim_end()))?;
        }
        for row in &self.rows {
            self.lay(row, &widths, false, out)?;
        }
        self.widths = widths;
        self.rows.clear();
        self.bytes = 0;
        Ok(())
    }

    /// The room of each column; none for those that leave.
    fn fit(&self) -> Vec<Option<Extent>> {
        let mut widths: Vec<Extent> = (0..self.columns.len()).map(|i| self.wanted(i)).collect();
        let Some(most) = self.terminal.width else {
            return widths.into_iter().map(Some).collect();
        };
        let mut shown = vec![true; widths.len()];
        let least = |widths: &[Extent], shown: &[bool], text: usize| {
            let each = self.columns.iter().zip(widths).zip(shown).filter(|(_, shown)| **shown);
            each.map(|((c, w), _)| c.least(w.whole(), text) + GAP).sum::<usize>().saturating_sub(GAP)
        };
        if least(&widths, &shown, LEAST_TEXT) > most {
            // Points below each other take more room than numbers that end below each other.
            for (i, column) in self.columns.iter().enumerate() {
                if column.kind == Kind::Point {
                    widths[i] = self.extent(i, Kind::Right);
                }
            }
        }
        for (text, turns) in [(LEAST_TEXT, 0..=LAST - 1), (0, 0..=u8::MAX)] {
            while least(&widths, &shown, text) > most {
                let leaves = |i: &usize| self.columns[*i].leaves.filter(|turn| turns.contains(turn));
                let next = (0..shown.len()).filter(|i| shown[*i] && leaves(i).is_some()).min_by_key(leaves);
                let Some(next) = next else { break };
                shown[next] = false;
            }
        }
        // What is over goes to the name first, then to the text.
        let mut over = most.saturating_sub(least(&widths, &shown, LEAST_TEXT));
        for (i, column) in self.columns.iter().enumerate().filter(|(i, _)| shown[*i]) {
            let least = column.least(widths[i].whole(), LEAST_TEXT);
            if least < widths[i].whole() {
                let more = over.min(widths[i].whole() - least);
                widths[i] = Extent { left: least + more, right: 0 };
                over -= more;
            }
        }
        widths.into_iter().zip(shown).map(|(width, shown)| shown.then_some(width)).collect()
    }

    /// The room that a column wants: its cells', its title's, and what it had before.
    fn wanted(&self, i: usize) -> Extent {
        let before = self.widths.get(i).copied().flatten().unwrap_or_default();
        let mut wanted = self.extent(i, self.columns[i].kind).max(before);
        let title = width(self.columns[i].title);
        wanted.left = wanted.left.max(title.saturating_sub(wanted.right));
        wanted
    }

    fn extent(&self, i: usize, kind: Kind) -> Extent {
        let cells = self.rows.iter().map(|row| extent(&row[i], kind));
        let title = Extent { left: width(self.columns[i].title), right: 0 };
        let start = if kind == Kind::Point { Extent::default() } else { title };
        let limited = cells.filter(|e| self.terminal.width.is_some() || e.whole() <= PADDED);
        limited.fold(start, Extent::max)
    }

    /// Writes one row: a line, and more where its text wraps.
    fn lay(&self, cells: &[String], widths: &[Option<Extent>], is_header: bool, out: &mut dyn Write) -> io::Result<()> {
        let (mut pending, mut column) = (0, 0);
        for ((cell, format), room) in cells.iter().zip(&self.columns).zip(widths) {
            let Some(room) = room else { continue };
            let text = match (self.terminal.width, format.kind) {
                (Some(_), Kind::Name(_)) => cut(cell, room.whole(), self.terminal.ascii),
                (Some(most), Kind::Text) => {
                    let lines = wrap(cell, room.whole().min(most.saturating_sub(column)));
                    let indent = format!("\n{:column$}", "");
                    lines.join(&indent).into()
                }
                _ => cell.into(),
            };
            let kind = if is_header && format.kind == Kind::Point { Kind::Right } else { format.kind };
            let before = match kind {
                Kind::Right => room.whole().saturating_sub(width(&text)),
                Kind::Point if room.right == 0 => room.left.saturating_sub(width(&text)),
                Kind::Point => room.left.saturating_sub(extent(&text, kind).left),
                _ => 0,
            };
            if !text.is_empty() {
                write!(out, "{:1$}{2}", "", pending + before, text.trim_end())?;
                pending = 0;
            }
            let used = if text.is_empty() { 0 } else { before + width(&text) };
            pending += room.whole().saturating_sub(used) + GAP;
            column += room.whole() + GAP;
        }
        writeln!(out)
    }
}

impl Column {
    /// The least room of a column whose cells want `wanted`; for a text at least its title's.
    fn least(&self, wanted: usize, text: usize) -> usize {
        match self.kind {
            Kind::Name(least) => wanted.min(least),
            Kind::Text => wanted.min(text.max(self.title.len())),
            _ => wanted,
        }
    }
}

/// The room of one cell.
fn extent(cell: &str, kind: Kind) -> Extent {
    match cell.find('.').filter(|_| kind == Kind::Point) {
        Some(at) => Extent { left: width(&cell[..at]), right: width(&cell[at..]) },
        None => Extent { left: width(cell), right: 0 },
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
        let mut table =
            Table::new(&terminal, columns.iter().zip(CELLS).map(|(column, cell)| column.of(cell)).collect());
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
            Column::left("SHAPE").leaves(2),
            Column::right("OFFSET").leaves(1),
        ]
    }

    const ROWS_OF_TWO: &[&[&str]] = &[&["1", "arg:gamma", "3×3", "7"], &["12", "名前", "16", "12,345"]];

    #[test]
    fn columns_leave_in_their_order_and_names_are_cut() {
        let whole = [" #  NAME       SHAPE  OFFSET", " 1  arg:gamma  3×3         7", "12  名前       16     12,345"];
        for width in [None, Some(28), Some(100)] {
            assert_eq!(printed(width, &columns(), ROWS_OF_TWO), whole);
        }
        let cut = [" #  NAME   SHAPE  OFFSET", " 1  ar…ma  3×3         7", "12  名前   16     12,345"];
        assert_eq!(printed(Some(24), &columns(), ROWS_OF_TWO), cut);
        let less = [" #  NAME      SHAPE", " 1  arg:…mma  3×3", "12  名前      16", "(--wide also shows", "OFFSET)"];
        assert_eq!(printed(Some(19), &columns(), ROWS_OF_TWO), less);
        let least = &printed(Some(10), &columns(), ROWS_OF_TWO)[..3];
        assert_eq!(least, [" #  NAME", " 1  arg…ma", "12  名前"]);
    }

    #[test]
    fn points_stand_below_each_other_where_there_is_room() {
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

    /// One long name among short ones: the others are not padded to it, with or without a width.
    #[test]
    fn a_long_cell_costs_its_own_length() {
        let long = "n".repeat(65_000);
        let mut rows: Vec<Vec<&str>> = vec![vec!["0", "a", "2", "3"]; 10_000];
        rows[5000][1] = &long;
        let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
        for width in [None, Some(80)] {
            let lines = printed(width, &columns(), &rows);
            assert_eq!(lines.len(), 10_001, "one header");
            let bytes: usize = lines.iter().map(String::len).sum();
            assert!(bytes < 10_001 * 120 + long.len(), "{bytes}");
        }
    }
}
