//! One interface for the measured crates, each of which has a file. All memory is allocated and touched before the
//! clock starts, including the destination, unless the crate has no operation that takes one.

mod candle;
mod nd;
mod strided;

use std::hint::black_box;

use anyhow::Result;

use crate::cases::Case;
use crate::input::Input;

/// A crate under measurement.
pub(crate) trait Peer {
    /// The column's title.
    fn name(&self) -> &'static str;

    /// The maximum number of threads.
    fn threads(&self) -> usize;

    /// Prepares a case to run; `None` if the crate has no such operation.
    ///
    /// # Errors
    ///
    /// The crate fails.
    fn prepare<'a>(&'a self, case: &Case, input: &'a Input) -> Result<Option<Box<dyn Work + 'a>>>;
}

/// An operation with memory.
pub(crate) trait Work {
    /// Runs the operation once. This is timed.
    ///
    /// # Errors
    ///
    /// The crate fails.
    fn run(&mut self) -> Result<()>;

    /// The result of the last run; of a split, the parts one after another.
    ///
    /// # Errors
    ///
    /// The crate fails.
    fn result(&self) -> Result<Vec<f32>>;
}

/// The peers in the order of the columns: each with one thread, and also with two where the peer can use two.
///
/// # Errors
///
/// A thread pool cannot be started.
pub(crate) fn all() -> Result<Vec<Box<dyn Peer>>> {
    Ok(vec![
        Box::new(nd::NdArray::new(1)?),
        Box::new(nd::NdArray::new(2)?),
        Box::new(candle::Candle),
        Box::new(strided::StridedPerm::new(1)?),
        Box::new(strided::StridedPerm::new(2)?),
    ])
}

/// A [`Work`] that consists of memory and two closures.
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
