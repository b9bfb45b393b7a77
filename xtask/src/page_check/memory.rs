//! The memory of the browser's process that runs the page and its worker, as Linux counts it: garbage too.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::Check;

/// The processes of the driver's that render, each with what it has at the start: one is the page's, others are idle.
pub(super) struct Processes(Vec<(u32, f64)>);

impl Processes {
    /// Begins anew to count the peaks.
    pub(super) fn begin(check: &Check<'_>) -> Result<Self> {
        let (mut found, mut below) = (Vec::new(), vec![check.browser.driver()]);
        while let Some(parent) = below.pop() {
            let all = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            for process in all.filter(|process| mib(*process, "PPid:") == Some(f64::from(parent) / 1024.0)) {
                below.push(process);
                let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
                if String::from_utf8_lossy(&words).contains("--type=renderer") {
                    found.push(started(process)?);
                }
            }
        }
        ensure!(!found.is_empty(), "no process of the browser's renders");
        Ok(Self(found))
    }

    /// How many MiB the one that grew most had more, at its peak since then.
    pub(super) fn grown(&self) -> f64 {
        let grown = self.0.iter().filter_map(|(process, start)| Some(mib(*process, "VmHWM:")? - start));
        grown.fold(0.0, f64::max)
    }
}

fn started(process: u32) -> Result<(u32, f64)> {
    fs::write(format!("/proc/{process}/clear_refs"), "5")?;
    Ok((process, mib(process, "VmRSS:").context("a process has gone")?))
}

/// A number of `/proc/PID/status`, in thousands.
fn mib(process: u32, name: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let number: u32 =
        status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())?;
    Some(f64::from(number) / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_above_the_start() {
        let own = Processes(vec![started(std::process::id()).unwrap()]);
        assert!(own.grown() < 16.0);
        let held = std::hint::black_box(vec![1_u8; 32 << 20]);
        assert!(own.grown() >= 31.0, "{} bytes are held", held.len());
    }
}
