//! Exported functions for the tests, which [`crate::control`] looks up in the loaded library. A real driver does not
//! have them.

use super::memory::leaks;
use crate::abi::Code;
use crate::driver::lock;
use crate::host::{self, Out};
use crate::random::Random;
use crate::setup::{Counts, Leaks, Setup};

/// A text that the caller passes by address and length.
fn text(start: usize, len: usize) -> String {
    String::from_utf8_lossy(host::bytes(start, len)).into_owned()
}

#[unsafe(no_mangle)]
extern "C" fn fake_cuda_reset(setup: Setup) {
    lock().driver().reset(setup);
}

#[unsafe(no_mangle)]
extern "C" fn fake_cuda_reseed(seed: u64) {
    lock().driver().random = Random::new(seed);
}

#[unsafe(no_mangle)]
extern "C" fn fake_cuda_fail(name: usize, len: usize, nth: u64, code: u32) {
    lock().driver().calls.plan(&text(name, len), nth, Code(code));
}

#[unsafe(no_mangle)]
extern "C" fn fake_cuda_fail_work(nth: u64, code: u32) {
    lock().driver().calls.plan_work(nth, Code(code));
}

#[unsafe(no_mangle)]
extern "C" fn fake_cuda_calls(name: usize, len: usize) -> u64 {
    lock().driver().calls.count(&text(name, len))
}

#[unsafe(no_mangle)]
extern "C" fn fake_cuda_leaks(out: Out<Leaks>) {
    out.put_if_wanted(leaks(lock().driver()));
}

/// Writes the reports, one per line, as many as fit completely. Returns the number of bytes written.
#[unsafe(no_mangle)]
extern "C" fn fake_cuda_reports(to: usize, room: usize) -> usize {
    let mut guard = lock();
    let reports = &mut guard.driver().reports;
    let mut all = String::new();
    while let Some(report) = reports.first().filter(|report| all.len() + report.len() < room) {
        all += report;
        all.push('\n');
        reports.remove(0);
    }
    host::write(to, all.as_bytes());
    all.len()
}

#[unsafe(no_mangle)]
extern "C" fn fake_cuda_counts(name: usize, len: usize, out: Out<Counts>) {
    let mut guard = lock();
    let counts = guard.driver().modules.counts.get(&text(name, len));
    out.put_if_wanted(counts.copied().unwrap_or_default());
}
