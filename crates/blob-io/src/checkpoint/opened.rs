//! Makes the checkpoint of a file whose headers were read, and says in which files these may lie.

use super::open::OpenOptions;
use super::{Checkpoint, Home, Lookup};
use crate::codec::Found;
use crate::format::Files;
use crate::names::NameTable;
use crate::notes;
use crate::wire::source::Input;

impl OpenOptions {
    /// Whether the caller names a format whose arrays lie in such files, or none.
    pub(super) fn may_be(&self, files: Files) -> bool {
        self.from.is_none_or(|from| from.holds().files == files)
    }

    /// The checkpoint of a file whose headers were read; of a packed one, the caller adds the archive.
    pub(super) fn opened(
        &self,
        name: &str,
        Found { format, dialect, form, outside: _ }: Found,
        input: Input,
        mut table: NameTable,
    ) -> Checkpoint {
        let metadata = std::mem::take(&mut table.metadata);
        let (warnings, faults) = (std::mem::take(&mut table.warnings), std::mem::take(&mut table.faults));
        let (positions, as_planned) = (table.positions as usize, table.as_planned());
        let mut entries = table.into_entries();
        notes::restore_dtypes(&mut entries, &metadata);
        notes::restore_sparse(&mut entries, &metadata);
        Checkpoint {
            name: name.to_owned(),
            format,
            dialect,
            form,
            warnings,
            faults,
            metadata,
            positions,
            entries,
            lookup: Lookup::default(),
            limits: self.limits.clone(),
            input,
            packed: None,
            path: None,
            home: Home::Nowhere,
            shards: Vec::new(),
            model_len: None,
            broken: None,
            is_salvaged: false,
            as_planned,
        }
    }
}
