//! Prints a table for people, or tab-separated fields for `cargo xtask record`, which joins those of all programs.

use crate::measure::Figure;

/// The output format.
pub(crate) struct Print {
    /// Print tab-separated fields instead of a table.
    pub(crate) tsv: bool,
}

impl Print {
    /// Prints a line about the whole run.
    pub(crate) fn about(&self, text: &str) {
        println!("{}{text}", if self.tsv { "about\t" } else { "" });
    }

    /// Prints the header of a payload: memcpy's rate, and the columns' titles, each a crate with the number of threads.
    pub(crate) fn section(&self, payload: &str, memcpy: f64, columns: &[(&str, usize)]) {
        if self.tsv {
            return println!("memcpy\tcrates\t{payload}\t1\t{memcpy}");
        }
        println!("\n{payload}: memcpy by one thread reads and writes {memcpy:.1} GB/s");
        let heads =
            columns.iter().map(|(name, threads): &(&str, usize)| format!(" {:>20}", format!("{name} {threads}t")));
        let heads: String = heads.collect();
        println!("{:40}{heads}   (time / memcpy by one, time)", "case");
    }

    /// Prints the figures of one case, one for each column; `None` if a crate has no such operation.
    pub(crate) fn row(&self, case: &str, columns: &[(&str, usize)], figures: &[Option<Figure>]) {
        if !self.tsv {
            let cells: String = figures.iter().map(|cell| format!(" {:>20}", text(cell))).collect();
            return println!("{case:40}{cells}");
        }
        for ((name, threads), figure) in columns.iter().zip(figures) {
            if let Some(Figure { seconds, ratio }) = figure {
                println!("row\t{case}\t{name}\t{threads}\t{seconds}\t{ratio}");
            }
        }
    }
}

fn text(figure: &Option<Figure>) -> String {
    match figure {
        None => "-".to_string(),
        Some(Figure { seconds, ratio }) => format!("{ratio:.2} {:>11}", time(*seconds)),
    }
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.2} µs", s * 1e6),
        s => format!("{:.2} ms", s * 1e3),
    }
}
