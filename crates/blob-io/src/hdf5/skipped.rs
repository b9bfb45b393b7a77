//! Links and attributes that are left out: the number, and the first names for one warning.
//!
//! Knows neither the tree nor the attributes, which both count here.

use crate::names::{NameTable, name_from_bytes};

/// How many names a warning lists, and how many characters of each.
const MAX_LISTED: usize = 3;
const LONGEST_LISTED: usize = 64;

/// The names that are left out for one reason.
#[derive(Default)]
pub(super) struct Skipped {
    names: Vec<String>,
    count: usize,
}

impl Skipped {
    pub(super) fn add(&mut self, path: &str, name: &[u8]) {
        self.count += 1;
        if self.names.len() < MAX_LISTED {
            let name = format!("{path}/{}", name_from_bytes(name));
            self.names.push(name[1..].chars().take(LONGEST_LISTED).collect());
        }
    }

    /// Warns of the names, if there are any; `reason` comes before the names.
    pub(super) fn warn(self, reason: &str, table: &mut NameTable) {
        let more = match self.count - self.names.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        if self.count > 0 {
            table.warn_of_loss(None, format!("{reason}: {}{more}", self.names.join(", ")));
        }
    }
}
