//! Where a tensor's bytes go: to its place in one file, or to a file of its own in a folder.

use std::collections::HashMap;

use blob_io::{Error, Layout, Output, OutputDir, Place, TensorSpec, file_names};

/// The CRC-32 of each tensor's bytes so far.
#[derive(Debug)]
pub(crate) struct Crcs(Vec<u32>);

impl Crcs {
    pub(crate) fn new(tensors: usize) -> Self {
        Self(vec![0; tensors])
    }

    fn update(&mut self, tensor: usize, bytes: &[u8]) {
        let mut crc = crc32fast::Hasher::new_with_initial(self.0[tensor]);
        crc.update(bytes);
        self.0[tensor] = crc.finalize();
    }
}

/// Takes tensors' bytes; those of one tensor come in their order.
pub(crate) enum Sink<'a> {
    File {
        output: &'a Output,
        places: &'a [Place],
        crcs: Option<Crcs>,
    },
    Folder(Folder<'a>),
}

/// A folder of npy files in the making.
pub(crate) struct Folder<'a> {
    dir: &'a OutputDir,
    specs: &'a [TensorSpec],
    names: Vec<String>,
    begun: Vec<bool>,
    /// Files that miss bytes yet, and how many they miss: one at a time, unless the source mixes its arrays.
    open: HashMap<usize, (Output, u64)>,
    written: u64,
}

impl<'a> Sink<'a> {
    pub(crate) fn file(output: &'a Output, places: &'a [Place], crcs: Option<Crcs>) -> Self {
        Self::File {
            output,
            places,
            crcs,
        }
    }

    pub(crate) fn folder(dir: &'a OutputDir, specs: &'a [TensorSpec]) -> Self {
        let raw: Vec<&str> = specs.iter().map(TensorSpec::name).collect();
        Self::Folder(Folder {
            dir,
            specs,
            names: file_names(&raw),
            begun: vec![false; specs.len()],
            open: HashMap::new(),
            written: 0,
        })
    }

    /// Puts bytes at `at` within a tensor.
    pub(crate) fn put(&mut self, tensor: usize, at: u64, bytes: &[u8]) -> Result<(), Error> {
        match self {
            Self::File {
                output,
                places,
                crcs,
            } => {
                if let Some(crcs) = crcs {
                    crcs.update(tensor, bytes);
                }
                output.write_all_at(places[tensor].offset() + at, bytes)
            }
            Self::Folder(folder) => folder.put(tensor, bytes),
        }
    }

    /// The checksums, one a tensor; none where none were asked for.
    pub(crate) fn into_crcs(self) -> Vec<u32> {
        match self {
            Self::File {
                crcs: Some(crcs), ..
            } => crcs.0,
            _ => Vec::new(),
        }
    }

    /// Writes the files of tensors without bytes; returns the bytes of all files.
    pub(crate) fn complete_folder(self) -> Result<u64, Error> {
        match self {
            Self::Folder(mut folder) => {
                for tensor in 0..folder.specs.len() {
                    if !folder.begun[tensor] {
                        folder.put(tensor, &[])?;
                    }
                }
                Ok(folder.written)
            }
            Self::File { .. } => Ok(0),
        }
    }
}

impl Folder<'_> {
    fn put(&mut self, tensor: usize, bytes: &[u8]) -> Result<(), Error> {
        let (mut output, left) = match self.open.remove(&tensor) {
            Some(open) => open,
            None => self.begin(tensor)?,
        };
        output.write_all(bytes)?;
        self.written += bytes.len() as u64;
        match left - bytes.len() as u64 {
            0 => output.finish(),
            left => {
                self.open.insert(tensor, (output, left));
                Ok(())
            }
        }
    }

    fn begin(&mut self, tensor: usize) -> Result<(Output, u64), Error> {
        self.begun[tensor] = true;
        let layout = Layout::npy(&self.specs[tensor])?;
        let mut output = self.dir.file(format!("{}.npy", self.names[tensor]))?;
        output.set_len(layout.len())?;
        for (_, head) in layout.frame(&[], &[])? {
            output.write_all(&head)?;
            self.written += head.len() as u64;
        }
        Ok((output, self.specs[tensor].byte_len()))
    }
}
