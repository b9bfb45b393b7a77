//! One interface for the crates that are measured, a file for each. All memory is prepared before the clock runs,
//! and the destination is warm, unless the crate offers no operation that takes one.

mod candle;
mod nd;
mod strided;

use std::hint::black_box;

use anyhow::Result;

use crate::cases::Case;
use crate::input::Input;

/// A crate under measurement.
pub(crate) trait Peer {
    /// The head of its column.
    fn name(&self) -> &'static str;

    /// The most threads that it may use.
    fn threads(&self) -> usize;

    /// The case made ready to run, or none where the crate has no such operation.
    ///
    /// # Errors
    ///
    /// Those of the crate.
    fn prepare<'a>(&'a self, case: &Case, input: &'a Input) -> Result<Option<Box<dyn Work + 'a>>>;
}

/// An operation with its memory: what is timed, and what came out.
pub(crate) trait Work {
    /// What is timed.
    ///
    /// # Errors
    ///
    /// Those of the crate.
    fn run(&mut self) -> Result<()>;

    /// The result of the last run; of a split, the parts one after another.
    ///
    /// # Errors
    ///
    /// Those of the crate.
    fn result(&self) -> Result<Vec<f32>>;
}

/// The peers in the order of the columns: each with one thread, and with two where it can use them.
///
/// # Errors
///
/// Threads that cannot be started.
pub(crate) fn all() -> Result<Vec<Box<dyn Peer>>> {
    Ok(vec![
        Box::new(nd::NdArray::new(1)?),
        Box::new(nd::NdArray::new(2)?),
        Box::new(candle::Candle),
        Box::new(strided::StridedPerm::new(1)?),
        Box::new(strided::StridedPerm::new(2)?),
    ])
}

/// Work made of its memory and two closures.
struct Prepared<S, R, G> {
    state: S,
    run: R,
    result: G,
}

impl<S, R, G> Work for Prepared<S, R, G>
where
    R: FnMut(&mut S) -> Result<()>,
    G: Fn(&S) -> Result<Vec<f32>>,
{
    fn run(&mut self) -> Result<()> {
        (self.run)(black_box(&mut self.state))?;
        black_box(&mut self.state);
        Ok(())
    }

    fn result(&self) -> Result<Vec<f32>> {
        (self.result)(&self.state)
    }
}

fn prepared<'a, S: 'a>(
    state: S,
    run: impl FnMut(&mut S) -> Result<()> + 'a,
    result: impl Fn(&S) -> Result<Vec<f32>> + 'a,
) -> Box<dyn Work + 'a> {
    Box::new(Prepared { state, run, result })
}
