//! Instructions at which threads of a warp wait for each other: shuffles, votes, the warp's barrier. Each names the
//! member threads.

use super::block::Team;
use super::warp::{Now, Warp, each};
use crate::ptx::{Op, Shuffle, Vote};

impl Team<'_, '_> {
    /// Whether an instruction can run: always, unless members have not arrived yet.
    pub(super) fn meet(&mut self, warp: &mut Warp, op: &Op, line: u32, lanes: u32) -> bool {
        let members = match op {
            Op::Shuffle { members, .. } | Op::Vote { members, .. } | Op::WarpBarrier { members } => *members,
            _ => return true,
        };
        let (launch, block, alive) = (self.run.launch, self.index, warp.alive());
        let now = Now { launch, block, warp };
        for lane in each(lanes) {
            let members = now.value(members, lane) as u32;
            let who = self.who(now.warp, lane, line);
            if members & !alive != 0 {
                let text = "its mask names threads that are not there or have returned";
                self.run.report(who, "members", |_| text.to_string());
            }
            if members >> lane & 1 == 0 {
                self.run.report(who, "members", |_| "is not in its own mask".to_string());
            }
            if members & alive & !lanes != 0 {
                return false;
            }
        }
        true
    }

    pub(super) fn shuffle(&mut self, now: &mut Now<'_>, line: u32, op: &Op, lanes: u32) {
        let Op::Shuffle { mode, to, inside, a, b, c, .. } = *op else { return };
        let values: [u64; 32] = std::array::from_fn(|lane| now.value(a, lane));
        for lane in each(lanes) {
            let (from, is_inside) = source(mode, lane as u32, now.value(b, lane) as u32, now.value(c, lane) as u32);
            if is_inside && lanes >> from & 1 == 0 {
                let who = self.who(now.warp, lane, line);
                let text = format!("takes the value of lane {from}, which is not part of the shuffle");
                self.run.report(who, "lane", |_| text);
            }
            let masks = &now.launch.kernel.masks;
            let from = if is_inside { from as usize } else { lane };
            now.warp.set(masks, to, lane, values[from]);
            inside.into_iter().for_each(|to| now.warp.set(masks, to, lane, u64::from(is_inside)));
        }
    }

    pub(super) fn vote(&mut self, now: &mut Now<'_>, op: &Op, lanes: u32) {
        let Op::Vote { mode, to, a, is_negated, .. } = *op else { return };
        let voters = each(lanes).filter(|lane| (now.value(a, *lane) & 1 == 1) != is_negated);
        let ballot = voters.fold(0, |all: u32, lane| all | 1 << lane);
        let result = match mode {
            Vote::All => u64::from(ballot == lanes),
            Vote::Any => u64::from(ballot != 0),
            Vote::Ballot => u64::from(ballot),
        };
        now.fill(to, lanes, |_, _| result);
    }
}

/// The source lane of a shuffle, and whether that lane is within the segment, by the PTX ISA.
fn source(mode: Shuffle, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let (b, clamp, segment) = (b & 31, c & 31, c >> 8 & 31);
    let (greatest, least) = (lane & segment | clamp & !segment, lane & segment);
    match mode {
        Shuffle::Up => (lane.wrapping_sub(b) & 31, lane as i32 - b as i32 >= greatest as i32),
        Shuffle::Down => ((lane + b) & 31, lane + b <= greatest),
        Shuffle::Butterfly => (lane ^ b, lane ^ b <= greatest),
        Shuffle::Index => {
            let from = least | b & !segment;
            (from, from <= greatest)
        }
    }
}
