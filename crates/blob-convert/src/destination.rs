//! Where the output of a plan goes.

use std::path::PathBuf;

use blob_io::IfExists;
use blob_io::layout::Layout;

use crate::shards::Shards;

/// Where the output goes, with the fields that only this kind of output needs.
#[derive(Debug)]
pub(crate) enum Destination {
    File {
        path: PathBuf,
        if_exists: IfExists,
        layout: Layout,
    },
    Stdout {
        layout: Layout,
    },
    Shards {
        if_exists: IfExists,
        shards: Shards,
    },
    /// `files` has the path of each tensor's file.
    Folder {
        path: PathBuf,
        if_exists: IfExists,
        files: Vec<String>,
    },
}
