//! Measures other crates on the cases of our kernel benches: `cargo xtask peers [--mib N] [--only TEXT] [--rounds N]
//! [--tsv]`.
//!
//! A figure is the ratio of the time to memcpy's with one thread, the two in turn in this process, and the time itself.
//! Before anything is measured, each crate's results on small shapes are compared with index loops. Of our own crates
//! it knows only the list of cases, so that the tables can be compared.

#![deny(unsafe_code)] // except in `huge.rs`

#[path = "../../ops/cases.rs"]
#[allow(dead_code)] // the bars are for our own kernels
mod cases;
mod check;
#[allow(unsafe_code)]
mod huge;
mod input;
mod measure;
mod naive;
mod options;
mod peers;
mod print;

use std::process::ExitCode;

use anyhow::Result;

use cases::Case;
use input::Input;
use options::Options;
use peers::Peer;
use print::Print;

#[global_allocator]
static ALLOCATOR: huge::Huge = huge::Huge;

/// The lock file, which has the versions of the crates.
const LOCK: &str = include_str!("../Cargo.lock");

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let mut sections = cases::sections(options.mib);
    for (_, cases) in &mut sections {
        cases.retain(|case| case.name.contains(&options.only));
    }
    let cases: Vec<Case> = sections.iter().flat_map(|(_, cases)| cases.clone()).collect();
    if options.list {
        cases.iter().for_each(|case| println!("{}", case.name));
        return Ok(());
    }
    let peers = peers::all()?;
    let wrong = check::all(&peers, &cases)?;
    anyhow::ensure!(wrong.is_empty(), "wrong results: {}", wrong.join(", "));
    let print = Print { tsv: options.tsv };
    about(&print, options);
    let columns: Vec<_> = peers.iter().map(|peer| (peer.name(), peer.threads())).collect();
    for (kib, cases) in sections.iter().filter(|(_, cases)| !cases.is_empty()) {
        let memcpy = measure::memcpy_rate(kib << 10, options.rounds);
        print.section(&cases::payload(*kib), memcpy, &columns);
        for case in cases {
            print.row(&case.name, &columns, &figures(case, &peers, options.rounds)?);
        }
    }
    Ok(())
}

fn about(print: &Print, options: &Options) {
    print.about(&format!("machine: {}", measure::machine()));
    let crates = ["ndarray", "candle-core", "strided-perm"];
    let versions = crates.map(|name| format!("{name} {}", version(name)));
    print.about(&format!("crates: {}", versions.join(", ")));
    print.about(&format!("crates: medians of {} pairs, of fewer where a crate is slow", options.rounds));
    print.about(&format!("crates' memory: {}", measure::memory()));
}

fn version(name: &str) -> &'static str {
    let entry = LOCK.split_once(&format!("name = \"{name}\"\nversion = \""));
    entry.and_then(|(_, rest)| rest.split('"').next()).unwrap_or("?")
}

/// The figures of one case, one for each peer; `None` for a peer without the operation.
fn figures(case: &Case, peers: &[Box<dyn Peer>], rounds: usize) -> Result<Vec<Option<measure::Figure>>> {
    let input = Input::new(case);
    let mut copy = measure::Memcpy::new(&input.values);
    let mut figures = Vec::with_capacity(peers.len());
    for peer in peers {
        let work = peer.prepare(case, &input)?;
        let figure = work.map(|mut work| measure::paired(work.as_mut(), &mut copy, rounds));
        figures.push(figure.transpose()?);
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_in_the_lock_file() {
        for name in ["ndarray", "candle-core", "strided-perm"] {
            assert!(version(name).contains('.'), "{name}");
        }
    }

    #[test]
    fn the_payload_is_what_was_asked_for() {
        let exact = |case: &Case| !["[", "4000", "127x129", "nchw"].iter().any(|part| case.name.contains(part));
        for mib in [64, 128, 256] {
            for (kib, cases) in cases::sections(mib) {
                for case in cases.into_iter().filter(exact) {
                    let bytes = 4 * case.dims.iter().product::<usize>();
                    assert_eq!(bytes, kib << 10, "{} at {mib}", case.name);
                }
            }
        }
    }

    #[test]
    fn no_two_cases_have_one_name() {
        let sections = cases::sections(256);
        let mut names: Vec<&str> =
            sections.iter().flat_map(|(_, cases)| cases.iter().map(|case| case.name.as_str())).collect();
        assert_eq!(names.len(), 2 * (7 * 2 + 10) + 2 + 3 + 5 + 2 * 13);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 2 * (7 * 2 + 10) + 2 + 3 + 5 + 2 * 13);
        for name in [
            "merge A d=0 parts=4", "split B d=6 parts=4", "transpose A (5, 6)", "transpose 128x128, 64 KiB",
            "fill, 4096 KiB",
        ] {
            assert!(names.contains(&name), "{name}");
        }
    }

    #[test]
    fn a_first_axis_of_one_is_not_split() {
        let has = |mib, part: &str| cases::large(mib).iter().any(|case| case.name.contains(part));
        assert!(!has(8, "A d=0"));
        assert!(has(64, "merge A d=0 parts=2"));
    }
}
