//! Holds a function to linear work and memory over files of doubling sizes.

use blob_io::work;

use super::alloc::peak;

/// The smallest file, and the number of doublings.
const SMALLEST: usize = 64 << 10;
const DOUBLINGS: u32 = 5;
/// The allowed growth of the work at each of the last three doublings, in tenths.
const MAX_GROWTH: u64 = 22;
/// The memory that a file may cost for each byte, and beside that.
const MEMORY_EACH: u64 = 64;
const MEMORY_FREE: u64 = 16 << 20;

/// Runs `run` on the file that `make` makes of each size, at most that long or a little longer. Returns a line for each
/// rule that is broken: bytes and items visited grow at most 2.2-fold with each of the last three doublings, and the
/// peak of memory is at most 64 bytes for each of the file beside 16 MiB.
pub(crate) fn broken_bounds(name: &str, make: impl Fn(usize) -> Vec<u8>, run: impl Fn(&[u8])) -> Vec<String> {
    let (mut broken, mut works) = (Vec::new(), Vec::new());
    for doubling in 0..=DOUBLINGS {
        let file = make(SMALLEST << doubling);
        let mut visited = work::Work::default();
        let used = peak(|| visited = work::measure(|| run(&file)).1);
        let allowed = MEMORY_EACH * file.len() as u64 + MEMORY_FREE;
        if used > allowed {
            broken.push(format!("{name}: {used} bytes of memory for a file of {}, {allowed} allowed", file.len()));
        }
        works.push(visited.sum());
    }
    if works.windows(2).rev().take(3).any(|pair: &[u64]| pair[1] * 10 > pair[0] * MAX_GROWTH) {
        broken.push(format!("{name}: the work grows faster than the file: {works:?}"));
    }
    broken
}

/// Whether work is counted: in builds with debug assertions alone.
fn is_counted() -> bool {
    work::measure(|| work::visit(1, 0)).1.sum() == 1
}

#[test]
fn quadratic_work_and_memory_are_seen() {
    let file = |size: usize| vec![0_u8; size];
    assert_eq!(broken_bounds("linear", file, |file| work::visit(file.len() as u64, 3)), [""; 0]);
    let hungry =
        broken_bounds("hungry", file, |file| drop(std::hint::black_box(vec![1_u8; file.len() * 65 + (16 << 20)])));
    assert_eq!(hungry.len(), 6, "{hungry:?}");
    if !is_counted() {
        return super::report("NOT TESTED: how work grows (no debug assertions)");
    }
    let quadratic = broken_bounds("quadratic", file, |file| work::visit((file.len() as u64).pow(2), 0));
    assert!(matches!(&quadratic[..], [line] if line.contains("faster")), "{quadratic:?}");
}
