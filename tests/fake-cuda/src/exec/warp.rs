//! A warp: the registers and program counters of the 32 threads, and the instructions that do not access memory. A set
//! of the threads, `lanes`, is a bit mask.

use super::{Launch, convert, float, whole};
use crate::abi::WARP;
use crate::ptx::{Bool, Op, Operand, Reg, Special};

/// The numbers of the threads in a set.
pub(super) fn each(lanes: u32) -> impl Iterator<Item = usize> {
    let mut rest = lanes;
    std::iter::from_fn(move || {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest.wrapping_sub(1);
        (lane < WARP).then_some(lane)
    })
}

/// 32 threads of a block.
pub(super) struct Warp {
    /// The number of the warp in the block.
    pub(super) number: u32,
    registers: Vec<[u64; WARP]>,
    /// The next instruction of each thread.
    pub(super) at: [u32; WARP],
    /// The threads that can run.
    pub(super) ready: u32,
    /// The threads that wait for others of the warp.
    pub(super) waiting: u32,
    /// The threads that wait at a barrier of the block.
    pub(super) stopped: u32,
    /// Each thread's own memory, one after the other.
    pub(super) local: Vec<u8>,
    /// Counts the barriers.
    pub(super) epoch: u16,
}

impl Warp {
    pub(super) fn new(launch: &Launch, number: u32) -> Warp {
        let threads = launch.threads() - number * WARP as u32;
        Warp {
            number,
            registers: vec![[0; WARP]; launch.kernel.masks.len()],
            at: [0; WARP],
            ready: if threads >= WARP as u32 { !0 } else { !(!0 << threads) },
            waiting: 0,
            stopped: 0,
            local: vec![0; WARP * launch.kernel.local],
            epoch: 1,
        }
    }

    /// The lowest next instruction of the threads that can run, and all threads there.
    pub(super) fn furthest_behind(&self) -> (u32, u32) {
        let at = (0..WARP).map(|lane| if self.ready >> lane & 1 == 1 { self.at[lane] } else { u32::MAX });
        let least = at.fold(u32::MAX, u32::min);
        let here = (0..WARP).fold(0, |lanes, lane| lanes | u32::from(self.at[lane] == least) << lane);
        (least, here & (self.ready | self.waiting))
    }

    /// The threads that have not returned.
    pub(super) fn alive(&self) -> u32 {
        self.ready | self.waiting | self.stopped
    }

    pub(super) fn register(&self, register: Reg) -> &[u64; WARP] {
        &self.registers[usize::from(register.0)]
    }

    /// Sets a register of one thread, truncated to the register's bits.
    pub(super) fn set(&mut self, masks: &[u64], register: Reg, lane: usize, value: u64) {
        let number = usize::from(register.0);
        self.registers[number][lane] = value & masks[number];
    }

    /// The threads whose predicate is true.
    pub(super) fn holds(&self, register: Reg) -> u32 {
        let values = self.register(register);
        values.iter().enumerate().fold(0, |lanes, (lane, value)| lanes | ((*value & 1) as u32) << lane)
    }
}

/// A warp and the position in the launch, while an instruction runs.
pub(super) struct Now<'a> {
    pub(super) launch: &'a Launch,
    pub(super) block: [u32; 3],
    pub(super) warp: &'a mut Warp,
}

impl Now<'_> {
    /// An operand's values for all threads.
    fn values(&self, operand: Operand) -> [u64; WARP] {
        match operand {
            Operand::Reg(register) => *self.warp.register(register),
            Operand::Value(value) => [value; WARP],
            Operand::Special(_) => std::array::from_fn(|lane| self.value(operand, lane)),
        }
    }

    /// An operand's value for a thread.
    #[inline]
    pub(super) fn value(&self, operand: Operand, lane: usize) -> u64 {
        match operand {
            Operand::Reg(register) => self.warp.register(register)[lane],
            Operand::Value(value) => value,
            Operand::Special(special) => u64::from(self.special(special, lane)),
        }
    }

    fn special(&self, special: Special, lane: usize) -> u32 {
        let sizes = self.launch.block;
        let index = self.warp.number * WARP as u32 + lane as u32;
        match special {
            Special::Thread(0) => index % sizes[0],
            Special::Thread(1) => index / sizes[0] % sizes[1],
            Special::Thread(_) => index / sizes[0] / sizes[1],
            Special::Threads(axis) => sizes[axis],
            Special::Block(axis) => self.block[axis],
            Special::Blocks(axis) => self.launch.grid[axis],
            Special::Lane => lane as u32,
            Special::Warp => self.warp.number,
        }
    }

    /// Sets a register of some threads to the value of a function for each.
    pub(super) fn fill(&mut self, to: Reg, lanes: u32, value: impl Fn(&Self, usize) -> u64) {
        let mask = self.launch.kernel.masks[usize::from(to.0)];
        for lane in each(lanes) {
            let value = value(self, lane) & mask;
            self.warp.registers[usize::from(to.0)][lane] = value;
        }
    }

    /// Runs an instruction that accesses only registers; returns false for any other instruction.
    pub(super) fn compute(&mut self, op: &Op, lanes: u32) -> bool {
        match *op {
            Op::Unary { f, ty, to, a } => {
                let (run, a) = (if ty.is_float() { float::unary } else { whole::unary }, self.values(a));
                self.fill(to, lanes, |_, lane| run(f, ty, a[lane]));
            }
            Op::Binary { f, ty, to, a, b } => {
                let (a, b) = (self.values(a), self.values(b));
                if ty.is_float() {
                    self.fill(to, lanes, |_, lane| float::binary(f, ty, a[lane], b[lane]));
                } else {
                    let run = whole::binary(f);
                    self.fill(to, lanes, |_, lane| run(ty, a[lane], b[lane]));
                }
            }
            Op::Ternary { f, ty, to, a, b, c } => {
                let run = if ty.is_float() { float::ternary } else { whole::ternary };
                let [a, b, c] = [a, b, c].map(|operand| self.values(operand));
                self.fill(to, lanes, |_, lane| run(f, ty, a[lane], b[lane], c[lane]));
            }
            Op::Insert { ty, to, a, b, at, len } => self.fill(to, lanes, |now, lane| {
                let [a, b, at, len] = [a, b, at, len].map(|operand| now.value(operand, lane));
                whole::insert(ty, a, b, at, len)
            }),
            Op::Convert { to_ty, from_ty, rounding, is_saturating, to, a } => self.fill(to, lanes, |now, lane| {
                convert::convert(to_ty, from_ty, rounding, is_saturating, now.value(a, lane))
            }),
            Op::ActiveMask { to } => self.fill(to, lanes, |_, _| u64::from(lanes)),
            Op::Compare { .. } => self.compare(op, lanes),
            Op::Join { ty, to, ref parts } => {
                let bits = ty.bits / parts.len() as u32;
                self.fill(to, lanes, |now, lane| {
                    let mask = !0 >> (64 - bits);
                    parts.iter().rev().fold(0, |all, part| all << (bits % 64) | now.value(*part, lane) & mask)
                });
            }
            Op::Split { ty, ref to, a } => {
                let bits = ty.bits / to.len() as u32;
                // The source may be one of the targets.
                let values: Vec<u64> = (0..WARP).map(|lane| self.value(a, lane)).collect();
                for (index, to) in to.iter().enumerate() {
                    if let Some(to) = to {
                        self.fill(*to, lanes, |_, lane| values[lane] >> (bits * index as u32));
                    }
                }
            }
            _ => return false,
        }
        true
    }

    fn compare(&mut self, op: &Op, lanes: u32) {
        let Op::Compare { test, is_unordered, ty, to, inverse, a, b, with } = *op else { return };
        let (a, b) = (self.values(a), self.values(b));
        for lane in each(lanes) {
            let holds = float::compare(test, is_unordered, ty, a[lane], b[lane]);
            let combined = |holds: bool| match with {
                None => holds,
                Some((f, other, is_negated)) => {
                    let other = (self.value(other, lane) & 1 == 1) != is_negated;
                    match f {
                        Bool::And => holds & other,
                        Bool::Or => holds | other,
                        Bool::Xor => holds ^ other,
                    }
                }
            };
            let (holds, fails) = (combined(holds), combined(!holds));
            let masks = &self.launch.kernel.masks;
            to.into_iter().for_each(|to| self.warp.set(masks, to, lane, u64::from(holds)));
            inverse.into_iter().for_each(|to| self.warp.set(masks, to, lane, u64::from(fails)));
        }
    }
}
