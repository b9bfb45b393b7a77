//! The parts of a comparison that `verify` and `diff` share: the size of a piece, the first value in which two streams
//! differ, an index in words, broken bytes as a finding.

use blob_core::{DType, Shape};
use blob_io::{Error, Reason};

use crate::transform::Stream;

/// How many bytes of each file are compared at once: both pieces stay in the second-level cache.
pub(crate) const PIECE: usize = 256 << 10;

/// The bytes of two streams that are compared at a time.
pub(crate) struct Pieces([Vec<u8>; 2]);

impl Pieces {
    pub(crate) fn new() -> Self {
        Self([vec![0; PIECE], vec![0; PIECE]])
    }

    /// The code and the place of the first value in which two arrays of one dtype and shape differ; `None` for equal
    /// arrays.
    pub(crate) fn difference(
        &mut self,
        dtype: DType,
        shape: &Shape,
        ours: &mut dyn Stream,
        theirs: &mut dyn Stream,
    ) -> Result<Option<(Reason, String)>, Error> {
        let [a, b] = &mut self.0;
        let mut done = 0;
        loop {
            // Both readers fill a piece with whole elements of the same width.
            let (n, m) = (ours.pull(a)?, theirs.pull(b)?);
            if a[..n] != b[..m] {
                let same = a[..n].iter().zip(&b[..m]).take_while(|(a, b)| a == b).count() as u64;
                let index = index_of(shape, (done + same) / dtype.size() as u64);
                return Ok(Some((Reason::Differs, format!("differs, first at [{index}]"))));
            }
            if n == 0 {
                return Ok(None);
            }
            done += n as u64;
        }
    }
}

/// The index of an element of the shape, as text: `2,0,17`.
pub(crate) fn index_of(shape: &Shape, element: u64) -> String {
    let index = usize::try_from(element).ok().and_then(|at| shape.index(at).ok()).unwrap_or_default();
    index.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

/// The result of one comparison. Broken bytes are a finding about one array, and the comparison of the others goes on.
pub(crate) fn found(compared: Result<Option<(Reason, String)>, Error>) -> Result<Option<(Reason, String)>, Error> {
    match compared {
        Err(Error::Malformed { file, fault, .. }) => {
            Ok(Some((fault.reason(), format!("is broken in {file}: {fault}"))))
        }
        compared => compared,
    }
}
