//! Goldens with random changes at several places, as many as a campaign asks for: no panic, bounded memory, and an
//! error with its offset, as in `hostile`.

use blob_io::Format;

use crate::hostile::{FAMILIES, Golden, exercise, exercise_as, goldens};
use crate::support::random::{number, on_threads};
use crate::support::report;

/// Goldens of all families with several places changed at once, as many as `BLOB_HOSTILE_CASES` says, from the seed
/// `BLOB_HOSTILE_SEED`. Each is opened by name, and as a format that a user might name.
#[test]
fn as_many_random_changes_as_are_asked_for() {
    let Some(cases) = number("BLOB_HOSTILE_CASES") else {
        return report("NOT TESTED: random changes of goldens (BLOB_HOSTILE_CASES is their number)");
    };
    let goldens: Vec<Golden> = (0..FAMILIES.len()).flat_map(|family| goldens(family, 16 << 10)).collect();
    let seed = number("BLOB_HOSTILE_SEED").unwrap_or(1);
    let whole: u64 = on_threads(cases.div_ceil(2), seed, |mut random, cases| {
        let mut whole = 0_u64;
        for _ in 0..cases {
            let (golden, other) = (random.one(&goldens), random.one(&goldens));
            let mut bytes = golden.bytes.clone();
            for _ in 0..=random.below(6) {
                random.change(&mut bytes, &other.bytes);
            }
            whole += u64::from(exercise(&golden.name, &bytes));
            let from = *random.one(Format::ALL);
            whole += u64::from(exercise_as(Some(from), &golden.name, &bytes));
        }
        whole
    })
    .iter()
    .sum();
    report(&format!("hostile: {cases} goldens with random changes, {whole} of them read whole (seed {seed})"));
}
