//! Reports collected while values are computed: how many were lost, how far others changed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A report about the values of a tensor.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Found {
    /// The tensor's name in the output.
    pub tensor: String,
    /// The report, worded to follow the amount: `values became infinite as f16`.
    pub what: Cow<'static, str>,
    /// The amount.
    pub amount: Amount,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.amount {
            Amount::Lost(1) => write!(f, "{:?}: 1 {}", self.tensor, self.what.replacen("values ", "value ", 1)),
            Amount::Lost(count) => write!(f, "{:?}: {count} {}", self.tensor, self.what),
            Amount::Most(value) => write!(f, "{:?}: {value:e} {}", self.tensor, self.what),
        }
    }
}

/// The amount of a report.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Amount {
    /// The number of values that were lost: [`Options::strict`](crate::Options::strict) refuses them.
    Lost(u64),
    /// The largest of several numbers, for information only.
    Most(f64),
}

/// Collects reports from several threads.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<BTreeMap<(String, Cow<'static, str>), Amount>>);

impl Tally {
    /// Adds to the lost values of a tensor; 0 adds no report.
    pub(crate) fn lost(&self, tensor: &str, count: u64, what: impl Into<Cow<'static, str>>) {
        if count == 0 {
            return;
        }
        let mut all = self.lock();
        match all.entry((tensor.to_owned(), what.into())).or_insert(Amount::Lost(0)) {
            Amount::Lost(sum) => *sum += count,
            most @ Amount::Most(_) => *most = Amount::Lost(count),
        }
    }

    /// Keeps the largest number reported for a tensor.
    pub(crate) fn most(&self, tensor: &str, value: f64, what: impl Into<Cow<'static, str>>) {
        let mut all = self.lock();
        match all.entry((tensor.to_owned(), what.into())).or_insert(Amount::Most(value)) {
            Amount::Most(most) => *most = most.max(value),
            Amount::Lost(_) => {}
        }
    }

    /// The lost values of all tensors together.
    pub(crate) fn lost_values(&self) -> u64 {
        let all = self.lock();
        all.values().map(|amount| if let Amount::Lost(count) = amount { *count } else { 0 }).sum()
    }

    /// All reports, sorted by tensor.
    pub(crate) fn found(&self) -> Vec<Found> {
        let found = |((tensor, what), amount): (&(String, Cow<'static, str>), &Amount)| Found {
            tensor: tensor.clone(),
            what: what.clone(),
            amount: *amount,
        };
        self.lock().iter().map(found).collect()
    }

    /// A poisoned lock is taken all the same: the panic of the thread that held it is reported when the thread is
    /// joined.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, Cow<'static, str>), Amount>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
