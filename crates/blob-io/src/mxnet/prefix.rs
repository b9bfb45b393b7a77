//! The prefix by which MXNet's files tell a net's parameters from its auxiliary states.

/// Of a parameter, and of an auxiliary state.
const PREFIXES: [&str; 2] = ["arg:", "aux:"];

/// The prefix of a name in MXNet's files, `arg:`, `aux:` or none, and the name without it.
///
/// ```
/// use blob_io::mxnet::split_prefix;
///
/// assert_eq!(split_prefix("aux:bn0_moving_mean"), ("aux:", "bn0_moving_mean"));
/// assert_eq!(split_prefix("bn0_gamma"), ("", "bn0_gamma"));
/// ```
#[must_use]
pub fn split_prefix(name: &str) -> (&str, &str) {
    let len = PREFIXES.iter().find(|prefix| name.starts_with(**prefix)).map_or(0, |prefix| prefix.len());
    name.split_at(len)
}
