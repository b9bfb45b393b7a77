//! Builds HDF5 files message by message, including files that no writer produces.

/// A minimal HDF5 file: a superblock of version 2 and objects with headers of version 1, which have no checksums.
pub(crate) struct File(pub(crate) Vec<u8>);

impl File {
    pub(crate) fn new() -> Self {
        Self(vec![0; 48])
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) -> u64 {
        let at = self.0.len() as u64;
        self.0.extend(bytes);
        at
    }

    /// Adds an object header with these messages and returns its address.
    pub(crate) fn object(&mut self, messages: &[Vec<u8>]) -> u64 {
        let body = messages.concat();
        let mut header = vec![1, 0];
        header.extend((messages.len() as u16).to_le_bytes());
        header.extend([1, 0, 0, 0]);
        header.extend((body.len() as u32).to_le_bytes());
        header.extend([0; 4]);
        header.extend(body);
        self.add(&header)
    }

    pub(crate) fn finish(mut self, root: u64) -> Vec<u8> {
        let end = self.0.len() as u64;
        let mut superblock = b"\x89HDF\r\n\x1A\n\x02\x08\x08\0".to_vec();
        for word in [0, u64::MAX, end, root] {
            superblock.extend(word.to_le_bytes());
        }
        superblock.extend(lookup3(&superblock).to_le_bytes());
        self.0[..48].copy_from_slice(&superblock);
        self.0
    }
}

pub(crate) fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(8);
    let mut message = [kind.to_le_bytes(), (padded as u16).to_le_bytes()].concat();
    message.extend([0; 4]);
    message.extend(body);
    message.resize(8 + padded, 0);
    message
}

/// A link message: a hard link to the object at `to`.
pub(crate) fn link(name: &str, to: u64) -> Vec<u8> {
    message(6, &[&[1, 0, name.len() as u8], name.as_bytes(), &to.to_le_bytes()].concat())
}

/// The messages of a dataset of two f32, whose data is at address `at`.
pub(crate) fn floats(at: u64) -> Vec<Vec<u8>> {
    let float = [0x11, 0x20, 31, 0, 4, 0, 0, 0, 0, 0, 32, 0, 23, 8, 0, 23, 127, 0, 0, 0];
    let layout = [&[3, 1][..], &at.to_le_bytes(), &8_u64.to_le_bytes()].concat();
    let space = [&[1, 1, 0, 0, 0, 0, 0, 0][..], &2_u64.to_le_bytes()].concat();
    vec![message(1, &space), message(3, &float), message(8, &layout)]
}

/// Bob Jenkins' lookup3, HDF5's checksum of metadata, for lengths that are not multiples of 12.
fn lookup3(bytes: &[u8]) -> u32 {
    let mut s = [0xDEAD_BEEF_u32.wrapping_add(bytes.len() as u32); 3];
    let (last, whole) = (bytes.len() / 12, bytes.chunks(12));
    for (i, chunk) in whole.enumerate() {
        let mut block = [0; 12];
        block[..chunk.len()].copy_from_slice(chunk);
        for (word, bytes) in s.iter_mut().zip(block.as_chunks::<4>().0) {
            *word = word.wrapping_add(u32::from_le_bytes(*bytes));
        }
        let steps = if i < last { [(0, 2, 4), (1, 0, 6), (2, 1, 8), (0, 2, 16), (1, 0, 19), (2, 1, 4)] } else { break };
        for (to, from, by) in steps {
            s[to] = s[to].wrapping_sub(s[from]) ^ s[from].rotate_left(by);
            s[from] = s[from].wrapping_add(s[3 - to - from]);
        }
    }
    let [mut a, mut b, mut c] = s;
    for (by, turn) in [(14, 2), (11, 0), (25, 1), (16, 2), (4, 0), (14, 1), (24, 2)] {
        let (x, y) = match turn {
            2 => (&mut c, b),
            0 => (&mut a, c),
            _ => (&mut b, a),
        };
        *x = (*x ^ y).wrapping_sub(y.rotate_left(by));
    }
    c
}
