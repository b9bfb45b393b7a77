//! An operation from its request to its end: at once, or by the loop of `step`; then the work that is left behind, with
//! no access to fail: sets of ranges are bounded, memory is given back, users of copies are waited for. One thread at a
//! time does that. Decides nothing, and performs nothing.

use crate::borrow::QueueHandle;
use crate::coherence::plan::{Bound, Request};
use crate::coherence::uses::Uses;
use crate::engine::events::{Followup, Pending};
use crate::engine::state::{Asked, Met, Operation, State};
use crate::engine::step::run;
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

// ---- left behind ----

/// Gives back the memory of copies that hold no valid byte, and waits for the queues that use it.
pub(crate) fn shrink(mut door: impl Door<State>) {
    let users = door.with(|state| {
        state.free_stale();
        state.facts().retired.iter().flat_map(Uses::queues).collect::<Vec<_>>()
    });
    users.into_iter().for_each(|queue| housekeeping(&mut door, Request::Idle(vec![queue])));
    let followup = door.with(State::followup);
    follow_up(&mut door, followup, Bound::Gaps);
}

/// The end of a memory. User code runs last.
pub(crate) fn end(mut door: impl Door<State>) {
    let pending = door.with(State::end);
    pending.into_iter().for_each(Pending::run);
}

fn follow_up(door: &mut impl Door<State>, followup: Option<Followup>, bound: Bound) {
    match followup {
        None => {}
        Some(Followup::Tell(pending)) => pending.run(),
        Some(Followup::Tidy) => tidy(door, bound),
    }
}

#[cold]
fn tidy(door: &mut impl Door<State>, bound: Bound) {
    housekeeping(door, Request::Bound(bound));
    let users = door.with(|state| {
        state.sweep();
        state.facts().users_of_retired()
    });
    housekeeping(door, Request::Idle(users));
    let users = door.with(|state| {
        state.release_holds();
        state.facts().excess_users()
    });
    housekeeping(door, Request::Idle(users));
    let mut put_off = Vec::new();
    loop {
        let freed = door.with(State::take_freed);
        if freed.is_empty() {
            break;
        }
        for freed in freed {
            match freed.finish_uses() {
                // This thread runs a kernel. The next access that is made elsewhere gives the block back.
                Err(Error::CalledFromKernel { .. }) => put_off.push(freed),
                finished => door.with(|state| state.end_block(freed, finished)),
            }
        }
    }
    let pending = door.with(|state| state.end_tidying(put_off));
    pending.into_iter().for_each(Pending::run);
}

/// Runs a request of our own, which no access made. A failure is counted and reported to the observer, not returned:
/// the access keeps its bytes, and the next access tries again.
fn housekeeping(door: &mut impl Door<State>, request: Request<QueueHandle>) {
    let mut operation = Operation::new(request);
    if let (Err(error), ()) = run(door, &mut operation, |_| Ok(()), |_, _| (), |_| ()) {
        door.with(|state| state.failed(error));
    }
}
