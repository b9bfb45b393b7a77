//! Measures the operations as ratios to memcpy: `cargo bench -p blob-benches --bench ops -- [--mib N] [--only TEXT]
//! [--rounds N] [--dtypes] [--tsv] [--list]`.
//!
//! A figure is the median of paired runs: the operation and a memcpy of the input in turn, in this process, into memory
//! that was touched before. `--dtypes` measures only the element-wise operations, on many dtypes.

#[path = "ops/cases.rs"]
mod cases;
#[path = "ops/measure.rs"]
mod measure;
#[path = "ops/own.rs"]
mod own;
#[path = "ops/run.rs"]
mod run;
#[allow(dead_code)] // uses only the machine's name and the median, because its table has other columns
mod table;

use measure::{Bench, Figures};
use own::Line;

/// The command line.
struct Options {
    mib: usize,
    only: String,
    rounds: usize,
    dtypes: bool,
    /// Print tab-separated fields for `cargo xtask record` instead of a table.
    tsv: bool,
    /// Print only the names of the cases that the peers measure too.
    list: bool,
}

/// The cases of one payload size.
struct Section {
    title: String,
    kib: usize,
    lines: Vec<Line>,
}

fn main() {
    let options = Options::parse(std::env::args().skip(1));
    if options.list {
        let cases = cases::sections(options.mib).into_iter();
        cases.flat_map(|(_, cases)| cases).for_each(|case| println!("{}", case.name));
        return;
    }
    let bench = Bench::new(options.rounds);
    let about = [format!("blob: medians of {} pairs", options.rounds), format!("blob's memory: {}", measure::memory())];
    for text in table::machine().into_iter().chain(about) {
        println!("{}{text}", if options.tsv { "about\t" } else { "" });
    }
    for mut section in sections(&options) {
        section.lines.retain(|line| line.name.contains(&options.only));
        if !section.lines.is_empty() {
            print_section(&section, &bench, options.tsv);
        }
    }
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Self {
        let mut options = Self { mib: 256, only: String::new(), rounds: 9, dtypes: false, tsv: false, list: false };
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_else(|| panic!("{word} what?"));
            let number = |text: String| text.parse::<usize>().expect("a number").max(1);
            match word.as_str() {
                "--mib" => options.mib = number(value()),
                "--only" => options.only = value(),
                "--rounds" => options.rounds = number(value()),
                "--dtypes" => options.dtypes = true,
                "--tsv" => options.tsv = true,
                "--list" => options.list = true,
                // Cargo passes this to every bench.
                "--bench" => (),
                _ => panic!("unknown: {word:?}"),
            }
        }
        options
    }
}

fn sections(options: &Options) -> Vec<Section> {
    if options.dtypes {
        let kib = options.mib << 10;
        let (title, lines) = (cases::payload(kib), own::dtypes(options.mib));
        return vec![Section { title, kib, lines }];
    }
    cases::sections(options.mib)
        .into_iter()
        .map(|(kib, cases): (usize, Vec<cases::Case>)| {
            let mut lines: Vec<Line> = cases.into_iter().map(Line::from).collect();
            lines.extend(if cases::CACHED.contains(&kib) { own::small(kib) } else { own::large(kib >> 10) });
            let title = cases::payload(kib);
            Section { title, kib, lines }
        })
        .collect()
}

fn print_section(section: &Section, bench: &Bench, tsv: bool) {
    let Section { title, kib, lines } = section;
    let [one, two] = bench.memcpy_rate(kib << 10);
    if tsv {
        println!("memcpy\tblob\t{title}\t1\t{one}\nmemcpy\tblob\t{title}\t2\t{two}");
    } else {
        println!("\n{title}: memcpy reads and writes {one:.1} GB/s by one thread, {two:.1} by two");
        println!(
            "{:<42} {:>8} {:>9} {:>11} {:>11} {:>8} {:>6} {:>6}",
            "case", "1 thread", "2 threads", "1 thread", "2 threads", "2/memcpy", "2/1", "bar"
        );
        println!("{:<42} {:>18} {:>23} {:>8}", "", "/ memcpy by one", "time", "by two");
    }
    for line in lines {
        let figures = bench.line(line);
        if tsv { print_fields(line, &figures) } else { print_row(line, &figures) }
    }
}

fn print_row(line: &Line, figures: &Figures) {
    let Figures { seconds: [one_time, two_time], ratio: [one, two], by_two, speed } = figures;
    let bar = line.bar.map_or(String::new(), |bar| bar.to_string());
    let missed = line.bar.is_some_and(|bar| *one > bar);
    println!(
        "{:<42} {one:>8.2} {two:>9.2} {:>11} {:>11} {by_two:>8.2} {speed:>6.2} {bar:>6}{}{}",
        line.name,
        time(*one_time),
        time(*two_time),
        if missed { " MISSED" } else { "" },
        if *speed > 1.05 { " SLOWER" } else { "" },
    );
}

fn print_fields(line: &Line, figures: &Figures) {
    let bar = line.bar.map_or(String::new(), |bar| bar.to_string());
    for (threads, (seconds, ratio)) in figures.seconds.iter().zip(figures.ratio).enumerate() {
        let threads = threads + 1;
        println!("row\t{}\tblob\t{threads}\t{seconds}\t{ratio}\t{bar}", line.name);
    }
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.2} µs", s * 1e6),
        s => format!("{:.2} ms", s * 1e3),
    }
}
