//! Compresses the bytes of a frame. Each thread keeps its compressor.

use std::cell::RefCell;

use flate2::{Compress, Compression, FlushCompress, Status};

/// The compressor stays with the thread: to make its tables takes as long as to compress the frame of a small file.
pub(super) fn deflated(bytes: &[u8]) -> Vec<u8> {
    thread_local! {
        static COMPRESS: RefCell<Compress> = RefCell::new(Compress::new(Compression::best(), false));
    }
    COMPRESS.with_borrow_mut(|compress| {
        compress.reset();
        let mut out = Vec::with_capacity(bytes.len() / 2 + 64);
        loop {
            let rest = &bytes[compress.total_in() as usize..];
            // Writing to memory does not fail.
            match compress.compress_vec(rest, &mut out, FlushCompress::Finish) {
                Ok(Status::Ok | Status::BufError) => out.reserve(out.len() + 64),
                _ => return out,
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::write::DeflateEncoder;

    use super::*;

    /// Receipts of earlier versions have frames of `DeflateEncoder`: the bytes stay the same.
    #[test]
    fn a_compressor_that_is_used_again_gives_the_same_bytes() {
        let mut state = 7_u64;
        let mut noise = |len: usize, kinds: u64| -> Vec<u8> {
            let next = |state: &mut u64| {
                *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                ((*state >> 33) % kinds) as u8
            };
            (0..len).map(|_| next(&mut state)).collect()
        };
        for (len, kinds) in [(0, 1), (1, 2), (448, 3), (3000, 256), (70_000, 4), (300_000, 256), (1_000_000, 9), (5, 5)]
        {
            let bytes = noise(len, kinds);
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(&bytes).unwrap();
            assert!(deflated(&bytes) == encoder.finish().unwrap(), "{len} bytes of {kinds} kinds");
        }
    }
}
