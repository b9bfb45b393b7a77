//! Counts the calls of each entry point, and plans failures of calls and of work on a device.

use std::collections::BTreeMap;

use crate::abi::Code;

/// The state that an entry point requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Works before `cuInit`.
    Early,
    /// Needs an initialised driver.
    Ready,
    /// Needs a current context that has not failed.
    Context,
    /// Releases something; takes effect even with an error.
    Release,
}

/// The counts and the plans.
#[derive(Default)]
pub(crate) struct Calls {
    counts: BTreeMap<&'static str, u64>,
    total: u64,
    work: u64,
    plans: Vec<Plan>,
    work_plans: Vec<(u64, Code)>,
}

/// The failure of one call, counted over those of this name or over all, with this code.
struct Plan {
    name: Option<String>,
    at: u64,
    code: Code,
}

impl Calls {
    /// Counts a call, and returns the planned failure, if any.
    pub(crate) fn enter(&mut self, name: &'static str) -> Option<Code> {
        let count = self.counts.entry(name).or_default();
        *count += 1;
        self.total += 1;
        let (count, total) = (*count, self.total);
        let mut plans = self.plans.iter();
        let due = plans.find(|plan| match &plan.name {
            Some(planned) => planned == name && plan.at == count,
            None => plan.at == total,
        });
        due.map(|plan| plan.code)
    }

    /// Counts a piece of work on a device, and returns the planned failure, if any.
    pub(crate) fn enter_work(&mut self) -> Option<Code> {
        self.work += 1;
        self.work_plans.iter().find(|(at, _)| *at == self.work).map(|(_, code)| *code)
    }

    /// Plans that the `nth` call from now on fails, counted over this entry point, or over all if the name is empty.
    pub(crate) fn plan(&mut self, name: &str, nth: u64, code: Code) {
        let name = Some(name.to_string()).filter(|name| !name.is_empty());
        let at = self.count(name.as_deref().unwrap_or_default()) + nth;
        self.plans.push(Plan { name, at, code });
    }

    /// Plans that the `nth` piece of work from now on fails.
    pub(crate) fn plan_work(&mut self, nth: u64, code: Code) {
        self.work_plans.push((self.work + nth, code));
    }

    /// The number of calls of the entry point; of all entry points if the name is empty.
    pub(crate) fn count(&self, name: &str) -> u64 {
        match name {
            "" => self.total,
            _ => self.counts.get(name).copied().unwrap_or_default(),
        }
    }
}
