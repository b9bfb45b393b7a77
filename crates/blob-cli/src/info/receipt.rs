//! The line of `blob info` about a receipt: the files that the tensors came from.

use blob_convert::{Account, Origin, RECEIPT_KEY};
use blob_io::words::and_more;

use super::short;
use crate::output::Terminal;
use crate::units;

/// How many sources of a merged file are named.
const MAX_SOURCES: usize = 3;

/// The first sources named by a receipt: `from net.caffemodel (caffemodel, 1,679 bytes, BLAKE3 55bf…)`.
pub(super) fn receipt(key: &str, value: &str, terminal: &Terminal) -> Option<String> {
    let sources = (key == RECEIPT_KEY).then(|| Origin::of_receipt(value))?;
    if sources.is_empty() {
        let why = Account::of_receipt(value)?.sources_left_out?;
        return Some(format!("from several files, which it does not name: {}", short(terminal, &why)));
    }
    let source = |source: &Origin| {
        format!(
            "{} ({}, {}, BLAKE3 {})",
            short(terminal, &source.name),
            short(terminal, &source.format),
            units::plural(source.bytes, "byte"),
            short(terminal, &source.blake3)
        )
    };
    let named: Vec<String> = sources.iter().take(MAX_SOURCES).map(source).collect();
    Some(format!("from {}{}", named.join(", "), and_more(sources.len() - named.len())))
}
