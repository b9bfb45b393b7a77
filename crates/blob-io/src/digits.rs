//! Numbers for people to read.

/// An exact number with commas: `1,724,320`.
#[must_use]
pub fn grouped(n: u64) -> String {
    match n {
        0..1000 => n.to_string(),
        _ => format!("{},{:03}", grouped(n / 1000), n % 1000),
    }
}
