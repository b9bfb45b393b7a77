//! An operation from its request to its end: the loop of `step`, then the work that is left behind, by `tidy`. Decides
//! nothing, and performs nothing.

use crate::coherence::plan::Bound;
use crate::engine::state::{Asked, Met, Operation, State};
use crate::engine::step::run;
use crate::engine::tidy::follow_up;
use crate::error::Error;
use crate::sync::Door;

/// Brings bytes to where they are asked for, then does the work that this leaves behind. `answer` is asked under the
/// lock under which the access was met. Afterwards the sets of ranges are `bound`.
pub(crate) fn access<R>(
    mut door: impl Door<State>,
    asked: &Asked<'_>,
    bound: Bound,
    answer: impl Fn(&State, Met) -> R,
) -> Result<R, Error> {
    let at_once = door.with(|state| {
        let met = state.meet_at_once(asked)?;
        Some((answer(state, met), state.followup()))
    });
    let (answered, followup) = if let Some((answered, followup)) = at_once {
        (Ok(answered), followup)
    } else {
        run(
            &mut door,
            &mut Operation::new(asked.request()),
            |_| Ok(()),
            |state, has_acted| {
                let met = state.meet(asked, has_acted);
                answer(state, met)
            },
            State::followup,
        )
    };
    follow_up(&mut door, followup, bound);
    answered
}

/// Runs an operation to its end, and then the work that the operation leaves behind. `check` may refuse it each time
/// that the lock is taken. Afterwards the sets of ranges are `bound`.
pub(crate) fn act(
    mut door: impl Door<State>,
    mut operation: Operation<'_>,
    bound: Bound,
    check: impl Fn(&State) -> Result<(), Error>,
) -> Result<(), Error> {
    let (result, followup) = run(&mut door, &mut operation, check, |_, _| (), State::followup);
    follow_up(&mut door, followup, bound);
    result
}
