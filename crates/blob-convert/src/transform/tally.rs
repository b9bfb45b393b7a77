//! What comes up while values are made: how many were lost, how far others changed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What came up about a tensor.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Found {
    /// The tensor's name in the output.
    pub tensor: String,
    /// What, in words that follow the amount: `values became infinite as f16`.
    pub what: Cow<'static, str>,
    /// How much of it.
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

/// How much of something came up.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Amount {
    /// The number of values that were lost: [`Options::strict`](crate::Options::strict) refuses them.
    Lost(u64),
    /// The largest of several numbers, which is only told.
    Most(f64),
}

/// Collects what comes up, from several threads.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<BTreeMap<(String, Cow<'static, str>), Amount>>);

impl Tally {
    /// Adds lost values of a tensor to those before; none are nothing.
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

    /// Keeps the largest number of a tensor.
    pub(crate) fn most(&self, tensor: &str, value: f64, what: impl Into<Cow<'static, str>>) {
        let mut all = self.lock();
        match all.entry((tensor.to_owned(), what.into())).or_insert(Amount::Most(value)) {
            Amount::Most(most) => *most = most.max(value),
            Amount::Lost(_) => {}
        }
    }

    /// How many values of all tensors were lost.
    pub(crate) fn lost_values(&self) -> u64 {
        let all = self.lock();
        all.values().map(|amount| if let Amount::Lost(count) = amount { *count } else { 0 }).sum()
    }

    /// All that came up, by the tensors' names.
    pub(crate) fn found(&self) -> Vec<Found> {
        let found = |((tensor, what), amount): (&(String, Cow<'static, str>), &Amount)| Found {
            tensor: tensor.clone(),
            what: what.clone(),
            amount: *amount,
        };
        self.lock().iter().map(found).collect()
    }

    /// A poisoned lock is taken all the same: the panic of the thread that held it is reported when the thread is joined.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, Cow<'static, str>), Amount>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
