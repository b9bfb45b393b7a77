//! Collects the output of the phases into one page: each row has a bar, a figure, and whether the figure meets the bar.
//! Pure.
//!
//! The input is lines of tab-separated fields: `about TEXT`, `check NAME RESULT WORDS`, `case INDEX`, `figure NAME
//! VALUE`, and `time CASE PROGRAM SECONDS`, where the minimum and maximum may follow the median. A missing figure is
//! printed as "not run", never left out.

use blob_core::DType;

use crate::cases::{self, Against, Case, Op};
use crate::checks::FILES;
use crate::table::median;

/// The programs and operations that times are measured of.
pub(crate) const OURS: &str = "blob";
pub(crate) const COPY: &str = "driver copy";
pub(crate) const OWN_COPY: &str = "own copy";
pub(crate) const MEMSET: &str = "driver memset";
const TORCH: &str = "torch";
const CUPY: &str = "CuPy";
const CUTENSOR: &str = "cuTENSOR";
const CLONE: &str = "torch clone";
const SAFE_OPEN: &str = "safe_open";
const PINNED: &str = "torch, pinned";

/// The peers, and by which factor an operation may be slower than each.
const PEERS: [(&str, f64); 3] = [(TORCH, 1.0), (CUPY, 1.0), (CUTENSOR, 1.03)];

/// The figures besides the cases, each with a bar.
fn figures() -> Vec<(String, &'static str, f64)> {
    let transfers = [("H2D pinned", 0.97), ("D2H pinned", 0.97), ("H2D pageable", 1.0), ("D2H pageable", 1.0)];
    let mut figures: Vec<_> =
        transfers.map(|(way, bar)| (format!("{way}, of the driver's own"), "at least", bar)).into();
    for name in ["safetensors", ".params"] {
        figures.push((format!("{name} to the GPU, of the lesser of its parts"), "at least", 0.8));
        figures.push((format!("{name} through a quarter of its bytes, of reads"), "at least", 0.9));
        figures.push((format!("{name}: host memory on the way, MiB"), "at most", 64.0));
    }
    for (who, bar) in [(SAFE_OPEN, 1.2), (PINNED, 1.0)] {
        figures.push((format!("safetensors to the GPU, of {who}'s speed"), "at least", bar));
    }
    figures.push((format!("host time of {}, µs", cases::SMALL), "at most", 6.0));
    for (process, bar) in [("first", 500.0), ("second", 30.0)] {
        figures.extend(FILES.map(|file| (format!("first use of {file}, {process} process, ms"), "at most", bar)));
    }
    figures
}

const NOT_RUN: &str = "not run";

/// The output of all phases so far.
#[derive(Default)]
pub(crate) struct Found {
    about: Vec<String>,
    checks: Vec<[String; 3]>,
    /// Case, program, and seconds: the median, and the minimum and maximum if they were printed.
    times: Vec<(String, String, Vec<f64>)>,
    figures: Vec<(String, f64)>,
}

impl Found {
    /// Adds the output of a phase. Any other line is kept as text.
    pub(crate) fn read(&mut self, text: &str) {
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let fields: Vec<&str> = line.split('\t').collect();
            match fields[..] {
                ["about", text] => self.about(text),
                ["check", name, result, words] => self.check(name, result, words),
                ["case", _] => {}
                ["time", case, program, ref seconds @ ..] if matches!(seconds.len(), 1 | 3) => {
                    let seconds = seconds.iter().map(|seconds| seconds.parse().unwrap_or(f64::NAN)).collect();
                    self.times.push((case.to_string(), program.to_string(), seconds));
                }
                ["figure", name, value] if value.parse::<f64>().is_ok() => {
                    self.figures.push((name.to_string(), value.parse().unwrap_or(f64::NAN)));
                }
                _ => self.about(&format!("said without being asked: {line}")),
            }
        }
    }

    pub(crate) fn about(&mut self, text: &str) {
        self.about.push(text.to_string());
    }

    pub(crate) fn check(&mut self, name: &str, result: &str, words: &str) {
        self.checks.push([name, result, words].map(str::to_string));
    }

    pub(crate) fn says(&self, text: &str) -> bool {
        self.about.iter().any(|line| line.contains(text))
    }

    /// Whether a check has failed. A missed bar is not a failure.
    pub(crate) fn has_failed(&self) -> bool {
        self.checks.iter().any(|[_, result, _]| result == "failed")
    }

    fn times(&self, case: &str, program: &str) -> Option<&[f64]> {
        self.times.iter().find(|(each, by, _)| each == case && by == program).map(|(.., seconds)| &seconds[..])
    }

    fn time(&self, case: &str, program: &str) -> Option<f64> {
        self.times(case, program)?.first().copied()
    }

    /// The time in µs, with the minimum and maximum of the rounds.
    fn micros(&self, case: &str, program: &str) -> Option<String> {
        let micros: Vec<String> =
            self.times(case, program)?.iter().map(|seconds| format!("{:.2}", seconds * 1e6)).collect();
        Some(match &micros[..] {
            [median, least, most] => format!("{median} ({least} to {most})"),
            all => all.join(" "),
        })
    }

    /// The median of all processes that measured the figure, and their number.
    fn figure(&self, name: &str) -> Option<(f64, usize)> {
        let values: Vec<f64> = self.figures.iter().filter(|(each, _)| each == name).map(|(_, value)| *value).collect();
        (!values.is_empty()).then(|| (median(values.iter().copied()), values.len()))
    }

    /// The whole page, for cases of `bytes`. `label` says why the figures are not those of a GPU; then none is judged.
    pub(crate) fn markdown(&self, title: &str, bytes: usize, label: Option<&str>) -> String {
        let mut page = format!("# {title}\n\n");
        let mut line = |text: &str| {
            page.push_str(text);
            page.push('\n');
        };
        if let Some(label) = label {
            line(&format!("**{label}**\n"));
        }
        self.about.iter().for_each(|about| line(&format!("* {about}")));
        line("\n| check | result | |\n| --- | --- | --- |");
        self.checks.iter().for_each(|[name, result, words]| line(&format!("| {name} | {result} | {words} |")));
        line(&format!("\n{LEGEND}\n\n{HEAD}"));
        let mut missed = Vec::new();
        for case in cases::all(bytes).into_iter().chain([cases::small()]) {
            let row = self.row(&case, bytes, label.is_none());
            missed.extend(row.iter().any(|cell| MARKS.iter().any(|mark| cell.contains(mark))).then(|| row[0].clone()));
            line(&format!("| {} |", row.join(" | ")));
        }
        line("\n| figure | bar | measured | |\n| --- | --: | --: | --- |");
        for (name, bound, bar) in figures() {
            let value = self.figure(&name);
            let met = value.map(|(value, _)| if bound == "at most" { value <= bar } else { value >= bar });
            let verdict = verdict(met, label.is_none());
            missed.extend((verdict == MARKS[0]).then(|| name.clone()));
            let value = value.map_or(NOT_RUN.to_string(), |(value, processes)| match processes {
                1 => format!("{value:.3}"),
                _ => format!("{value:.3}, the median of {processes}"),
            });
            line(&format!("| {name} | {bound} {bar} | {value} | {verdict} |"));
        }
        if !missed.is_empty() {
            line("\nWhat limits each row that is missed or behind, to be said before this page is kept:\n");
            missed.iter().for_each(|name| line(&format!("* {name}: ")));
        }
        page
    }

    fn row(&self, case: &Case, bytes: usize, is_judged: bool) -> Vec<String> {
        let ours = self.time(&case.name, OURS);
        let rate = ours.map(|seconds| case.moved() / seconds / 1e9);
        let best = self.best(case, bytes);
        let ratio = rate.zip(best).map(|(rate, best)| rate / best);
        let show = |value: Option<f64>| value.map_or(NOT_RUN.to_string(), |value| format!("{value:.2}"));
        let met = ratio.zip(case.bar).map(|(ratio, bar)| ratio >= bar);
        let judged = if case.bar.is_some() { verdict(met, is_judged) } else { "" };
        let mut cells = vec![
            case.name.clone(),
            case.bar.map_or(String::new(), |bar| bar.to_string()),
            if case.bar.is_some() { show(ratio) } else { String::new() },
            judged.to_string(),
            self.micros(&case.name, OURS).unwrap_or(NOT_RUN.to_string()),
            show(rate),
            if case.bar.is_some() { show(best) } else { String::new() },
        ];
        cells.extend(PEERS.map(|(program, _)| self.micros(&case.name, program).unwrap_or_default()));
        cells.push(if is_judged { self.against_peers(case) } else { String::new() });
        cells
    }

    /// The peers that the case is ahead of, those that it is behind, and those that were not run.
    fn against_peers(&self, case: &Case) -> String {
        let ours = self.time(&case.name, OURS);
        let stand = |(program, most): (&str, f64)| match ours.zip(self.time(&case.name, program)) {
            Some((ours, peer)) if ours > most * peer => MARKS[1],
            Some(_) => "ahead",
            _ => NOT_RUN,
        };
        let all: Vec<_> =
            PEERS.into_iter().filter(|(program, _)| has_it(program, case)).map(|peer| (peer.0, stand(peer))).collect();
        let found = [MARKS[1], "ahead", NOT_RUN].into_iter().filter_map(|wanted| {
            let names: Vec<_> = all.iter().filter(|(_, stand)| *stand == wanted).map(|(program, _)| *program).collect();
            (!names.is_empty()).then(|| format!("{wanted}: {}", names.join(", ")))
        });
        found.collect::<Vec<_>>().join("; ")
    }

    /// The rate in GB/s that the case is compared with: of its [`Against`], the fastest that was measured.
    fn best(&self, case: &Case, bytes: usize) -> Option<f64> {
        let rate = |name: &str, program, moved: f64| self.time(name, program).map(|seconds| moved / seconds / 1e9);
        let length = case.bytes() as f64;
        let copies = [
            rate(&case.name, COPY, 2.0 * length),
            rate(&case.name, OWN_COPY, 2.0 * length),
            rate("copy", CLONE, 2.0 * bytes as f64),
        ];
        let found: Vec<f64> = match case.against() {
            Against::Copy => copies.into_iter().flatten().collect(),
            Against::Memset => rate(&case.name, MEMSET, length).into_iter().collect(),
            Against::Read => copies.into_iter().chain([rate(&case.name, TORCH, length)]).flatten().collect(),
        };
        found.into_iter().max_by(f64::total_cmp)
    }
}

/// The marks of a row that misses its bar, and of one that is slower than a peer.
const MARKS: [&str; 2] = ["MISSED", "BEHIND"];

/// Whether a peer has the operation. CuPy does not support bf16; cuTENSOR is measured on permutations of floats only.
fn has_it(program: &str, case: &Case) -> bool {
    let is_bf16 = case.dtype == DType::BF16 || case.op == Op::Convert(DType::BF16);
    match program {
        CUPY => !is_bf16,
        CUTENSOR => matches!(case.op, Op::Permute(_)) && case.dtype.is_float(),
        _ => true,
    }
}

fn verdict(met: Option<bool>, is_judged: bool) -> &'static str {
    match met {
        None => NOT_RUN,
        Some(_) if !is_judged => "not judged",
        Some(true) => "met",
        Some(false) => MARKS[0],
    }
}

const LEGEND: &str = "Ratio: of the bytes read and written in a second to those of the fastest copy of the same bytes in this run (the driver's,
our own kernel, torch's `clone`); of fill to the driver's memset; of sums, the bytes read to the rate of that copy, as nothing here only
reads, or of torch's own sum where that is faster. Times in µs: the median of rounds (the least to the most), waited for after each
batch. We, the driver and our own copy take turns; the peers run after us in a process of their own, and our own copy is measured just
before and after them: how far the two differ is what a difference to a peer has to exceed. A sum is in the host's hands when its time
ends, ours and the peers': to the kernel's time come a transfer of 8 bytes for each 4096 elements and the host's joining of these.
Last cell: `BEHIND` names the peers that took less, cuTENSOR by over 3 %.";

const HEAD: &str = "| case | bar | ratio | | µs | GB/s | against GB/s | torch µs | CuPy µs | cuTENSOR µs | |
| --- | --: | --: | --- | --: | --: | --: | --: | --: | --: | --- |";

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 1 << 30;

    /// The page made from these lines.
    fn page(lines: &str) -> String {
        let mut found = Found::default();
        found.read(lines);
        found.markdown("T", BYTES, None)
    }

    fn row(page: &str, name: &str) -> Vec<String> {
        let line = page.lines().find(|line| line.starts_with(&format!("| {name} |"))).unwrap();
        line.split(" | ").map(|cell| cell.trim_matches(['|', ' ']).to_string()).collect()
    }

    #[test]
    fn what_was_not_run_says_so() {
        let page = page("");
        for case in cases::all(BYTES) {
            assert_eq!(row(&page, &case.name)[2..4], ["not run", "not run"], "{page}");
        }
        for (name, ..) in figures() {
            assert_eq!(row(&page, &name)[2..4], ["not run", "not run"], "{page}");
        }
        assert!(!page.contains("MISSED") && !page.contains("What limits"), "{page}");
    }

    #[test]
    fn a_row_is_compared_with_the_fastest_copy() {
        let ours = "time\tscale, f32\tblob\t1\n";
        assert_eq!(
            row(&page(&format!("{ours}time\tscale, f32\tdriver copy\t1\n")), "scale, f32")[2..4],
            ["1.00", "met"]
        );
        for faster in ["scale, f32\town copy\t0.9", "copy\ttorch clone\t0.9"] {
            let page = page(&format!("{ours}time\tscale, f32\tdriver copy\t1\ntime\t{faster}\n"));
            assert_eq!(row(&page, "scale, f32")[2..4], ["0.90", "MISSED"], "{page}");
            assert!(page.contains("\n* scale, f32: \n"), "{page}");
        }
        // An addition moves 3 bytes for 2 of a copy, so 1.5 times the time is the same rate.
        let add = page("time\tadd, f32\tblob\t1.5\ntime\tadd, f32\tdriver copy\t1\n");
        assert_eq!(row(&add, "add, f32")[2..4], ["1.00", "met"]);
        let fill =
            page("time\tfill, f32\tblob\t1\ntime\tfill, f32\tdriver memset\t1\ntime\tfill, f32\town copy\t0.1\n");
        assert_eq!(row(&fill, "fill, f32")[2..4], ["1.00", "met"]);
        // A sum reads half of what a copy moves; torch's may be faster than any copy.
        let lines = "time\tasum, f32\tblob\t0.5\ntime\tasum, f32\tdriver copy\t1\n";
        assert_eq!(row(&page(lines), "asum, f32")[2..4], ["1.00", "met"]);
        let page = page(&format!("{lines}time\tasum, f32\ttorch\t0.4\n"));
        assert_eq!(row(&page, "asum, f32")[2..4], ["0.80", "MISSED"]);
    }

    #[test]
    fn peers_that_take_less_are_named() {
        let lines =
            "time\ttranspose, 4 B\tblob\t1\ntime\ttranspose, 4 B\tdriver copy\t1\ntime\ttranspose, 4 B\tCuPy\t2\n";
        let cutensor = |seconds| page(&format!("{lines}time\ttranspose, 4 B\tcuTENSOR\t{seconds}\n"));
        let marks = |page: &str| row(page, "transpose, 4 B")[10].clone();
        assert_eq!(marks(&cutensor(0.98)), "ahead: CuPy, cuTENSOR; not run: torch");
        assert_eq!(marks(&cutensor(0.9)), "BEHIND: cuTENSOR; ahead: CuPy; not run: torch");
        let small = page("time\tadd, 64 KiB\tblob\t2e-6\ntime\tadd, 64 KiB\ttorch\t1e-6\n");
        assert_eq!(row(&small, "add, 64 KiB")[10], "BEHIND: torch; not run: CuPy");
        assert!(small.contains("\n* add, 64 KiB: \n") && row(&small, "convert, f32 to bf16")[10] == "not run: torch");
    }

    #[test]
    fn figures_that_are_not_of_a_gpu_are_labelled_and_not_judged() {
        let mut found = Found::default();
        found.read("time\tscale, f32\tblob\t1\ntime\tscale, f32\tdriver copy\t0.1\nfigure\tH2D pinned, of the driver's own\t0.1\n");
        let page = found.markdown("T", BYTES, Some("Not a GPU."));
        assert!(page.starts_with("# T\n\n**Not a GPU.**\n") && !page.contains("MISSED"), "{page}");
        assert_eq!(row(&page, "scale, f32")[3], "not judged");
    }

    #[test]
    fn a_figure_has_its_bar_and_a_failed_check_is_a_failure() {
        let page =
            page("figure\thost time of add, 64 KiB, µs\t6.5\nfigure\tH2D pinned, of the driver's own\t0.98\nwhat?\n");
        assert_eq!(row(&page, "host time of add, 64 KiB, µs")[1..], ["at most 6", "6.500", "MISSED"]);
        assert_eq!(row(&page, "H2D pinned, of the driver's own")[1..], ["at least 0.97", "0.980", "met"]);
        let three = [900, 100, 200].map(|ms| format!("figure\tfirst use of floats, first process, ms\t{ms}\n"));
        let three = self::page(&three.concat());
        assert_eq!(row(&three, "first use of floats, first process, ms")[2..], ["200.000, the median of 3", "met"]);
        let spread = self::page("time\tscale, f32\tblob\t2e-6\t1e-6\t4e-6\n");
        assert_eq!(row(&spread, "scale, f32")[4], "2.00 (1.00 to 4.00)");
        assert!(page.contains("* said without being asked: what?"), "{page}");
        let mut found = Found::default();
        found.read("check\ta\tpassed\tb\n");
        assert!(!found.has_failed());
        found.read("check\ta\tfailed\tb\n");
        assert!(found.has_failed());
    }
}
