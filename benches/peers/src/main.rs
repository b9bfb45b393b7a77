//! Other crates on the cases of our kernel benches: `cargo xtask peers [--mib N] [--only TEXT] [--rounds N] [--threads N]`.
//!
//! A figure is time over memcpy's time of the same payload, the two in turn in this process; lower is better, 1 is a copy.
//! Before anything is measured, each crate's result is compared with plain index loops on small shapes.
//! It knows nothing of our own crates: their benches print the same names, so that the tables can be laid side by side.

#![forbid(unsafe_code)]

mod cases;
mod check;
mod measure;
mod naive;
mod options;
mod peers;

use std::process::ExitCode;

use anyhow::Result;

use cases::{Case, Input};
use options::Options;
use peers::Peer;

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
    let mut cases = cases::all(options.mib);
    cases.retain(|case| case.name.contains(&options.only));
    if options.list {
        cases.iter().for_each(|case| println!("{}", case.name));
        return Ok(());
    }
    let peers = peers::all(options.threads)?;
    let wrong = check::all(&peers, &cases)?;
    anyhow::ensure!(wrong.is_empty(), "wrong results: {}", wrong.join(", "));
    print_head(options, &peers);
    for case in &cases {
        println!("{:34}{}", case.name, row(case, &peers, options.rounds)?);
    }
    Ok(())
}

fn print_head(options: &Options, peers: &[Box<dyn Peer>]) {
    println!("machine: {}", measure::machine());
    println!(
        "{} MiB of f32, medians of {} pairs, threads: {}",
        options.mib, options.rounds, options.threads
    );
    let names: String = peers
        .iter()
        .map(|peer| format!(" {:>12}", peer.name()))
        .collect();
    println!("{:34}{names}   (time / memcpy time)", "case");
}

/// The figures of one case, a column for each peer; `-` where it has no such operation.
fn row(case: &Case, peers: &[Box<dyn Peer>], rounds: usize) -> Result<String> {
    let input = Input::new(case);
    let mut copy = measure::Memcpy::new(&input.values);
    let mut text = String::new();
    for peer in peers {
        let figure = match peer.prepare(case, &input)? {
            Some(mut work) => format!("{:.2}", measure::paired(work.as_mut(), &mut copy, rounds)?),
            None => "-".to_string(),
        };
        text.push_str(&format!(" {figure:>12}"));
    }
    Ok(text)
}
