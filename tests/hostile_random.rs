//! Goldens with random changes at several places, as many as a campaign asks for: no panic, bounded memory, and an
//! error with its offset, as in `hostile`.

use blob_io::Format;

use crate::hostile::{FAMILIES, Golden, exercise, exercise_as, goldens};
use crate::support::message::varint;
use crate::support::report;

/// Marsaglia's xorshift64.
struct Random(u64);

impl Random {
    /// A number below `end`, which is at least 1.
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    fn part(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let begin = self.below(bytes.len() + 1);
        begin..begin + self.below((bytes.len() - begin).min(200) + 1)
    }

    /// Changes one place of a file: a byte, a length, a part that is cut, repeated, or taken from another file.
    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(bytes.len() + 1);
        match self.below(8) {
            0 | 1 if at < bytes.len() => bytes[at] = self.below(256) as u8,
            2 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            3 | 4 => {
                let value = [0, 1, u64::MAX, 1 << 63, 1 << 40, 1 << 31, u64::from(u32::MAX)][self.below(7)];
                let fields = [value.to_le_bytes().to_vec(), (value as u32).to_le_bytes().to_vec(), varint(value)];
                let field = &fields[self.below(3)];
                let end = (at + field.len()).min(bytes.len());
                bytes[at..end].copy_from_slice(&field[..end - at]);
            }
            5 => drop(bytes.drain(self.part(bytes))),
            6 => {
                let part = bytes[self.part(bytes)].repeat(self.below(20));
                drop(bytes.splice(at..at, part));
            }
            _ => {
                let part = other[self.part(other)].to_vec();
                drop(bytes.splice(at..at, part));
            }
        }
    }
}

/// Goldens of all families with several places changed at once, as many as `BLOB_HOSTILE_CASES` says, from the seed
/// `BLOB_HOSTILE_SEED`. Each is opened by its name, and as a format that a user might name.
#[test]
fn as_many_random_changes_as_are_asked_for() {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let Some(cases) = number("BLOB_HOSTILE_CASES") else {
        return report("NOT TESTED: random changes of goldens (BLOB_HOSTILE_CASES is their number)");
    };
    let goldens: Vec<Golden> = (0..FAMILIES.len()).flat_map(|family| goldens(family, 16 << 10)).collect();
    let seed = number("BLOB_HOSTILE_SEED").unwrap_or(1);
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let run = |thread: u64| {
        let mut random = Random((seed << 8 | thread).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut whole = 0_u64;
        for _ in 0..cases.div_ceil(2 * threads) {
            let (golden, other) = (random.below(goldens.len()), random.below(goldens.len()));
            let mut bytes = goldens[golden].bytes.clone();
            for _ in 0..=random.below(6) {
                random.change(&mut bytes, &goldens[other].bytes);
            }
            whole += u64::from(exercise(&goldens[golden].name, &bytes));
            let from = Format::ALL[random.below(Format::ALL.len())];
            whole += u64::from(exercise_as(Some(from), &goldens[golden].name, &bytes));
        }
        whole
    };
    let whole: u64 = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn({
                    let run = &run;
                    move || run(thread)
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().expect("no case panics")).sum()
    });
    report(&format!("hostile: {cases} goldens with random changes, {whole} of them read whole (seed {seed})"));
}
