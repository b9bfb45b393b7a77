//! How tensors are arranged in an HDF5 file: Caffe's two forms, or datasets by the tensors' names.

use std::path::Path;

/// The numbers that Caffe stores of a solver besides the history.
pub(super) const COUNTERS: [&str; 2] = ["iter", "current_step"];
pub(super) const LEARNED_NET: &str = "learned_net";

/// How tensors are arranged in an HDF5 file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Form {
    /// Each tensor under its name, in which `/` separates the groups.
    Datasets,
    /// Caffe's `.caffemodel.h5`: `<layer>/<index>` becomes `data/<layer>/<index>`, `<layer>/<index>.diff` becomes
    /// `diff/<layer>/<index>`.
    Weights,
    /// Caffe's `.solverstate.h5`: `@<index>` becomes `history/<index>`; `iter`, `current_step` and `learned_net` of the
    /// metadata become datasets.
    SolverState,
}

impl Form {
    /// Caffe's form, if the file's name is one that Caffe uses.
    #[must_use]
    pub fn of_name(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let stem = name.strip_suffix(".h5").or_else(|| name.strip_suffix(".hdf5"))?;
        match stem.rsplit('.').next()? {
            "caffemodel" => Some(Self::Weights),
            "solverstate" => Some(Self::SolverState),
            _ => None,
        }
    }

    /// The form in words, for [`Checkpoint::dialect`](crate::Checkpoint::dialect).
    pub(crate) fn dialect(self) -> &'static str {
        match self {
            Self::Datasets => "datasets",
            Self::Weights => "Caffe weights",
            Self::SolverState => "Caffe solver state",
        }
    }

    /// Whether a key of the metadata becomes a dataset instead of an attribute.
    #[must_use]
    pub fn stores(self, key: &str) -> bool {
        self == Self::SolverState && (COUNTERS.contains(&key) || key == LEARNED_NET)
    }
}
