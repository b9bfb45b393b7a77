//! Random numbers, choices and changes for campaigns: the same from the same seed.

use super::message::varint;

/// Marsaglia's xorshift64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The seed that repeats the numbers that follow.
    pub(crate) fn state(&self) -> u64 {
        self.0
    }

    /// A number below `end`, which is at least 1.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 3) % end as u64) as usize
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    fn part(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let begin = self.below(bytes.len() + 1);
        begin..begin + self.below((bytes.len() - begin).min(200) + 1)
    }

    /// Changes one place of a file: a byte, a length, a part that is cut, repeated, or taken from another file.
    pub(crate) fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
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

    /// Changes one character of a text to one that such texts have.
    pub(crate) fn slip(&mut self, text: &mut [u8]) {
        if !text.is_empty() {
            let at = self.below(text.len());
            text[at] = *self.one(b"0123456789abcdef\"{}[],:nul-eE.+/=A\\ ");
        }
    }
}

/// The number in an environment variable.
pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs `cases` cases from a seed on all processors, each thread with random numbers of its own. Returns what the
/// threads return.
pub(crate) fn on_threads<R: Send>(cases: u64, seed: u64, run: impl Fn(Random, u64) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    std::thread::scope(|scope| {
        let runs = (0..threads).map(|thread| {
            scope.spawn({
                let run = &run;
                move || run(Random::new(seed << 8 | thread), cases.div_ceil(threads))
            })
        });
        let runs: Vec<_> = runs.collect();
        runs.into_iter().map(|run| run.join().expect("no case panics")).collect()
    })
}
