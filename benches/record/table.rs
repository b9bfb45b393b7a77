//! Joins the rows of several programs by the names of the cases into the table of a record. Pure.
//!
//! Relies on all programs using the same names. Ours must be read first.

use anyhow::{Context, Result, bail};

/// The program name in our own rows.
const OURS: &str = "blob";

/// Two threads count as slower than one only beyond this ratio; less is noise.
const SLOWER: f64 = 1.05;

const HEAD: &str = "\
| case | bar | ours 1t | ours 2t | best peer 1t | best peer 2t | numpy | torch 1t | torch 2t | ndarray 1t / 2t | candle | strided-perm 1t / 2t | marks |
| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --- |
";

const LEGEND: &str = "\
Times of a run in ms, in µs where the case ends in KiB; in brackets the ratio to memcpy by one thread in the same program. The best
peer of two threads may be one that uses one. MISSED: one thread takes more than the bar, a ratio. SLOWER: two threads take over 5 %
more than one. BEHIND: the best peer with as many threads takes less time, and ours is so much above it.
";

/// One program's measurement of one case.
struct Figure {
    program: String,
    threads: usize,
    seconds: f64,
    ratio: f64,
}

/// One case.
#[derive(Default)]
struct Row {
    case: String,
    bar: Option<f64>,
    figures: Vec<Figure>,
}

/// A whole record.
#[derive(Default)]
pub(super) struct Table {
    about: Vec<String>,
    /// Each payload with the rates of memcpy in the programs.
    memcpy: Vec<(String, Vec<String>)>,
    rows: Vec<Row>,
}

impl Table {
    /// Adds a line to the head, unless it is already there.
    pub(super) fn about(&mut self, text: &str) {
        if !self.about.iter().any(|line| line == text) {
            self.about.push(text.to_owned());
        }
    }

    /// Adds the output of a program.
    ///
    /// # Errors
    ///
    /// A line is malformed, or a peer has a case that we do not have.
    pub(super) fn read(&mut self, text: &str) -> Result<()> {
        for line in text.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            match fields[..] {
                ["about", text] => self.about(text),
                ["memcpy", program, payload, threads, rate] => {
                    let rate: f64 = rate.parse().with_context(|| line.to_owned())?;
                    self.rate(payload, format!("{rate:.1} {program} {threads}t"));
                }
                ["row", case, program, threads, seconds, ratio, ref bar @ ..] => {
                    let figure = Figure {
                        program: program.to_owned(),
                        threads: threads.parse().with_context(|| line.to_owned())?,
                        seconds: seconds.parse().with_context(|| line.to_owned())?,
                        ratio: ratio.parse().with_context(|| line.to_owned())?,
                    };
                    let row = self.row(case, program)?;
                    row.bar = bar.first().and_then(|bar| bar.parse().ok()).or(row.bar);
                    row.figures.push(figure);
                }
                _ => bail!("not a line of a bench: {line:?}"),
            }
        }
        Ok(())
    }

    fn rate(&mut self, payload: &str, text: String) {
        match self.memcpy.iter_mut().find(|(known, _)| known == payload) {
            Some((_, rates)) => rates.push(text),
            None => self.memcpy.push((payload.to_owned(), vec![text])),
        }
    }

    fn row(&mut self, case: &str, program: &str) -> Result<&mut Row> {
        let at = match self.rows.iter().position(|row| row.case == case) {
            Some(at) => at,
            None if program == OURS => {
                let case = case.to_owned();
                self.rows.push(Row { case, ..Row::default() });
                self.rows.len() - 1
            }
            None => bail!("{program} has the case {case:?}, and we do not"),
        };
        Ok(&mut self.rows[at])
    }

    /// The whole page.
    pub(super) fn markdown(&self) -> String {
        let mut page = String::from("# Operations beside their peers\n\n");
        for line in &self.about {
            page.push_str(&format!("* {line}\n"));
        }
        for (payload, rates) in &self.memcpy {
            let rates = rates.join(", ");
            page.push_str(&format!("* memcpy, GB/s read and written, {payload}: {rates}\n"));
        }
        page.push_str(&format!("\n{LEGEND}\n"));
        let marks: Vec<String> = self.rows.iter().map(|row| row.marks().join(", ")).collect();
        let counts = ["MISSED", "SLOWER", "BEHIND 1t", "BEHIND 2t"]
            .map(|mark| format!("{mark} {}", marks.iter().filter(|marks| marks.contains(mark)).count()));
        page.push_str(&format!("Of {} cases: {}.\n\n", self.rows.len(), counts.join(", ")));
        page.push_str(HEAD);
        for (row, marks) in self.rows.iter().zip(marks) {
            page.push_str(&format!("| {} | {marks} |\n", row.cells().join(" | ")));
        }
        page
    }
}

impl Row {
    fn figure(&self, program: &str, threads: usize) -> Option<&Figure> {
        let mut figures = self.figures.iter();
        figures.find(|figure| figure.program == program && figure.threads == threads)
    }

    /// The fastest peer with at most this many threads.
    fn best(&self, threads: usize) -> Option<&Figure> {
        let peers = self.figures.iter().filter(|figure| figure.program != OURS);
        peers.filter(|figure| figure.threads <= threads).min_by(|a, b| a.seconds.total_cmp(&b.seconds))
    }

    fn marks(&self) -> Vec<String> {
        let (one, two) = (self.figure(OURS, 1), self.figure(OURS, 2));
        let mut marks = Vec::new();
        if let (Some(one), Some(bar)) = (one, self.bar)
            && one.ratio > bar
        {
            marks.push("MISSED".to_owned());
        }
        if let (Some(one), Some(two)) = (one, two)
            && two.seconds > SLOWER * one.seconds
        {
            marks.push("SLOWER".to_owned());
        }
        for ours in [one, two].into_iter().flatten() {
            let behind = self.best(ours.threads).map(|best| ours.seconds / best.seconds);
            // A difference that rounds to 0 % is not marked.
            let percent = behind.map(|behind| (100.0 * (behind - 1.0)).round());
            if let Some(percent) = percent.filter(|percent| *percent >= 1.0) {
                marks.push(format!("BEHIND {}t {percent:.0} %", ours.threads));
            }
        }
        marks
    }

    /// All columns but the marks.
    fn cells(&self) -> Vec<String> {
        let time = |figure: &Figure| self.time(figure.seconds);
        let peer = |program, threads| self.figure(program, threads).map(time);
        let ours = |threads| {
            let figure = self.figure(OURS, threads)?;
            Some(format!("{} ({:.2})", time(figure), figure.ratio))
        };
        let best = |threads| {
            let figure = self.best(threads)?;
            Some(format!("{} {}", time(figure), figure.program))
        };
        let both = |program| Some(format!("{} / {}", peer(program, 1)?, peer(program, 2)?));
        let mut cells = vec![self.case.clone(), self.bar.map_or(String::new(), |b| b.to_string())];
        let columns = [
            ours(1),
            ours(2),
            best(1),
            best(2),
            peer("numpy", 1),
            peer("torch", 1),
            peer("torch", 2),
            both("ndarray"),
            peer("candle", 1),
            both("strided-perm"),
        ];
        cells.extend(columns.map(Option::unwrap_or_default));
        cells
    }

    fn time(&self, seconds: f64) -> String {
        let scale = if self.case.ends_with("KiB") { 1e6 } else { 1e3 };
        format!("{:.2}", seconds * scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Our output: one thread is within the bar, and two threads are no faster.
    const OUR_OUTPUT: &str = "about\tmachine: M\nmemcpy\tblob\t256 MiB\t1\t40.25\n\
        row\tadd\tblob\t1\t0.010\t0.9\t0.95\nrow\tadd\tblob\t2\t0.010\t0.9\t0.95\n\
        row\tfill, 64 KiB\tblob\t1\t0.000002\t1.5\t\nrow\tfill, 64 KiB\tblob\t2\t0.000002\t1.5\t\n";

    fn table(texts: &[&str]) -> Table {
        let mut table = Table::default();
        for text in texts {
            table.read(text).unwrap();
        }
        table
    }

    fn marks(texts: &[&str]) -> Vec<Vec<String>> {
        table(texts).rows.iter().map(Row::marks).collect()
    }

    #[test]
    fn nothing_is_marked_without_a_fault() {
        assert!(marks(&[OUR_OUTPUT]).iter().all(Vec::is_empty));
        let equal = "row\tadd\tnumpy\t1\t0.00996\t0.9\n";
        assert!(marks(&[OUR_OUTPUT, equal]).iter().all(Vec::is_empty));
    }

    #[test]
    fn a_bar_is_of_one_thread_and_a_ratio() {
        let ours = "row\tadd\tblob\t1\t1\t0.96\t0.95\nrow\tadd\tblob\t2\t1\t0.9\t0.95\n";
        assert_eq!(marks(&[ours]), [["MISSED"]]);
        let ours = "row\tadd\tblob\t1\t1\t0.95\t0.95\nrow\tadd\tblob\t2\t1\t0.96\t0.95\n";
        assert!(marks(&[ours])[0].is_empty());
    }

    #[test]
    fn two_threads_slower_than_one_are_marked() {
        let ours = "row\tadd\tblob\t1\t1\t1\t\nrow\tadd\tblob\t2\t1.06\t1\t\n";
        assert_eq!(marks(&[ours]), [["SLOWER"]]);
        let ours = "row\tadd\tblob\t1\t1\t1\t\nrow\tadd\tblob\t2\t1.04\t1\t\n";
        assert!(marks(&[ours])[0].is_empty());
    }

    #[test]
    fn the_best_peer_has_no_more_threads_than_we() {
        // Peers are compared by time, not by ratio, because each program has its own memcpy.
        let two = "row\tadd\tndarray\t1\t0.020\t0.1\nrow\tadd\tndarray\t2\t0.005\t2\n";
        let found = marks(&[OUR_OUTPUT, two]);
        assert_eq!(found[0], ["BEHIND 2t 100 %"]);
        assert!(found[1].is_empty());
        // A caller with two threads can also use a peer that has only one.
        let one = "row\tadd\tnumpy\t1\t0.008\t2\n";
        let found = marks(&[OUR_OUTPUT, one]);
        assert_eq!(found[0], ["BEHIND 1t 25 %", "BEHIND 2t 25 %"]);
    }

    #[test]
    fn the_page_has_a_line_for_a_case_and_a_column_for_a_peer() {
        let peers = "about\tmachine: M\nrow\tfill, 64 KiB\tndarray\t1\t0.000003\t2\n\
            row\tfill, 64 KiB\tndarray\t2\t0.000001\t2\nrow\tadd\tcandle\t1\t0.5\t2\n";
        let page = table(&[OUR_OUTPUT, peers]).markdown();
        assert_eq!(page.matches("* machine: M").count(), 1);
        assert!(page.contains("written, 256 MiB: 40.2 blob 1t\n"), "{page}");
        for line in [
            "| add | 0.95 | 10.00 (0.90) | 10.00 (0.90) | 500.00 candle | 500.00 candle |  |  |  |  | 500.00 |  |  |",
            "| fill, 64 KiB |  | 2.00 (1.50) | 2.00 (1.50) | 3.00 ndarray | 1.00 ndarray |  |  |  | 3.00 / 1.00 |  |  | BEHIND 2t 100 % |",
            "Of 2 cases: MISSED 0, SLOWER 0, BEHIND 1t 0, BEHIND 2t 1.",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }

    #[test]
    fn malformed_lines_and_unknown_cases_are_refused() {
        let mut table = table(&[OUR_OUTPUT]);
        let unknown = table.read("row\tsub\tnumpy\t1\t1\t1\n").unwrap_err();
        assert!(unknown.to_string().contains("\"sub\""), "{unknown}");
        for line in ["hello", "row\tadd\tblob\t1\tfast\t1\t", "memcpy\tblob\t1 MiB\t1\t?"] {
            assert!(table.read(line).is_err(), "{line}");
        }
    }
}
