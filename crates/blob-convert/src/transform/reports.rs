//! Collects reports while values are computed: how many values were lost, how far others changed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use blob_core::DType;

use crate::cast::Lost;
use crate::change::{Change, Effect, Group, Groups};

/// A file besides the receipt that says which tensors a transform changes.
#[derive(Clone, Debug)]
pub struct Witness {
    /// The file's name.
    pub file: String,
    /// The names in the source of the tensors that the file names.
    pub tensors: Vec<String>,
}

/// A report about the values of a tensor.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Found {
    /// The tensor's name in the output.
    pub tensor: String,
    /// The report, worded to follow the amount, such as `2 values`: `became infinite as f16`.
    pub what: Cow<'static, str>,
    /// The amount.
    pub amount: Amount,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.amount {
            Amount::Most(value) => write!(f, "{:?}: {value:e} {}", self.tensor, self.what),
            Amount::Infinite(count) | Amount::Zeroed(count) | Amount::Lost(count) => {
                let plural = if count == 1 { "" } else { "s" };
                write!(f, "{:?}: {count} value{plural} {}", self.tensor, self.what)
            }
        }
    }
}

/// The amount of a report.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Amount {
    /// The number of finite values that became infinite. [`Options::strict`](crate::Options::strict) refuses these and
    /// all other lost values.
    Infinite(u64),
    /// The number of values other than 0 that became 0.
    Zeroed(u64),
    /// The number of values that were lost otherwise.
    Lost(u64),
    /// The largest of several numbers, for information only.
    Most(f64),
}

impl Amount {
    /// The number of values that were lost; `None` for a report that is for information only.
    #[must_use]
    pub fn lost(&self) -> Option<u64> {
        match *self {
            Self::Infinite(count) | Self::Zeroed(count) | Self::Lost(count) => Some(count),
            Self::Most(_) => None,
        }
    }

    /// Both reports together: lost values are added up, of other numbers the largest is kept.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Infinite(sum), Self::Infinite(count)) => Self::Infinite(sum + count),
            (Self::Zeroed(sum), Self::Zeroed(count)) => Self::Zeroed(sum + count),
            (Self::Lost(sum), Self::Lost(count)) => Self::Lost(sum + count),
            (Self::Most(most), Self::Most(value)) => Self::Most(most.max(value)),
            // Of two kinds under the same words, a loss is the more important.
            (Self::Most(_), other) => other,
            (first, _) => first,
        }
    }
}

impl Found {
    /// The change that the report tells; `None` where no value is lost.
    pub(crate) fn change(&self) -> Option<Change> {
        let words = self.what.clone();
        let effect = match self.amount {
            Amount::Infinite(_) => Effect::Infinite { words },
            Amount::Zeroed(_) => Effect::Zeroed { words },
            Amount::Lost(_) => Effect::Lost { words },
            Amount::Most(_) => return None,
        };
        Some(Change::unasked(effect))
    }
}

/// Reports as changes, grouped by kind.
pub(crate) fn grouped(found: &[Found]) -> Vec<Group> {
    let mut groups = Groups::default();
    for found in found {
        if let (Some(change), Some(count)) = (found.change(), found.amount.lost()) {
            groups.of_values(&found.tensor, &change, count);
        }
    }
    groups.finish()
}

/// Collects reports from several threads.
#[derive(Debug, Default)]
pub(crate) struct Reports(Mutex<BTreeMap<(String, Cow<'static, str>), Amount>>);

impl Reports {
    /// Adds a report about a tensor; no lost values are no report.
    pub(crate) fn add(&self, tensor: &str, amount: Amount, what: impl Into<Cow<'static, str>>) {
        if amount.lost() == Some(0) {
            return;
        }
        let mut all = self.lock();
        all.entry((tensor.to_owned(), what.into())).and_modify(|sum| *sum = sum.and(amount)).or_insert(amount);
    }

    /// Adds reports of the values of a tensor that rounding to `to` has lost.
    pub(crate) fn rounded(&self, tensor: &str, lost: Lost, to: DType) {
        if lost != Lost::default() {
            self.add(tensor, Amount::Infinite(lost.infinite), format!("became infinite as {to}"));
            self.add(tensor, Amount::Zeroed(lost.zeroed), format!("became 0 as {to}"));
        }
    }

    /// The number of lost values of all tensors together: first the values that became 0, then the others.
    pub(crate) fn lost_values(&self) -> (u64, u64) {
        let all = self.lock();
        let sum = |take: fn(&Amount) -> bool| {
            all.values().filter(|amount| take(amount)).filter_map(Amount::lost).sum::<u64>()
        };
        (sum(|amount| matches!(amount, Amount::Zeroed(_))), sum(|amount| !matches!(amount, Amount::Zeroed(_))))
    }

    /// All reports, sorted by tensor.
    pub(crate) fn found(&self) -> Vec<Found> {
        let all = self.lock();
        let found = all.iter().map(|((tensor, what), amount)| Found {
            tensor: tensor.clone(),
            what: what.clone(),
            amount: *amount,
        });
        found.collect()
    }

    /// A poisoned lock is taken all the same: the panic of the thread that held the lock is reported when the thread is
    /// joined.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, Cow<'static, str>), Amount>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
