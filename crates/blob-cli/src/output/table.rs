//! Tables for people: a header, columns two spaces apart, numbers to the right.
//!
//! Layout is comfy-table's. A table is printed in parts of a few thousand rows, so that a file that lists a million
//! arrays does not fill the memory.

use std::io::{self, Write};

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width};

use super::Terminal;

/// Rows laid out together; a part of them costs about 5 MB.
const PART: usize = 4096;

/// A table in the making.
pub(crate) struct Table<'a> {
    terminal: &'a Terminal,
    columns: Vec<Column>,
    part: comfy_table::Table,
    rows: usize,
    is_first: bool,
    widths: Vec<u16>,
}

/// A column's title, and the side that its cells keep to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    title: &'static str,
    align: CellAlignment,
}

impl Column {
    /// A column of text.
    pub(crate) fn left(title: &'static str) -> Self {
        let align = CellAlignment::Left;
        Self { title, align }
    }

    /// A column of numbers.
    pub(crate) fn right(title: &'static str) -> Self {
        let align = CellAlignment::Right;
        Self { title, align }
    }
}

impl<'a> Table<'a> {
    pub(crate) fn new(terminal: &'a Terminal, columns: Vec<Column>) -> Self {
        let widths = vec![0; columns.len()];
        let mut table = Self {
            terminal,
            columns,
            part: comfy_table::Table::new(),
            rows: 0,
            is_first: true,
            widths,
        };
        table.begin();
        table
    }

    /// Adds a row, and prints a part of the table when enough rows are there.
    pub(crate) fn row(&mut self, out: &mut dyn Write, cells: Vec<String>) -> io::Result<()> {
        self.part.add_row(cells);
        self.rows += 1;
        if self.rows == PART {
            self.print(out)?;
            self.begin();
        }
        Ok(())
    }

    /// Prints what is left. A table without rows is not printed at all.
    pub(crate) fn finish(mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.rows > 0 {
            self.print(out)?;
        }
        Ok(())
    }

    fn begin(&mut self) {
        self.part = comfy_table::Table::new();
        self.part
            .load_style(comfy_table::presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled);
        self.rows = 0;
    }

    fn print(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.part.set_header(self.columns.iter().map(|c| c.title));
        for (i, column) in self.columns.iter().enumerate() {
            let Some(part) = self.part.column_mut(i) else {
                continue;
            };
            part.set_cell_alignment(column.align);
            part.set_padding((0, 2));
            // Later parts are at least as wide as earlier ones.
            part.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(
                self.widths[i],
            )));
        }
        for (width, widest) in self
            .widths
            .iter_mut()
            .zip(self.part.column_max_content_widths())
        {
            *width = (*width).max(widest + 2);
        }
        for (i, line) in self.part.lines().enumerate() {
            let line = line.trim_end();
            match (i, self.is_first) {
                (0, true) => writeln!(out, "{}", self.terminal.strong(line))?,
                (0, false) => {}
                _ => writeln!(out, "{line}")?,
            }
        }
        self.is_first = false;
        Ok(())
    }
}
