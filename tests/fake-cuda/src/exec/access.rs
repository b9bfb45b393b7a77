//! Loads, stores and atomics: resolves each address, and checks bounds, alignment, uninitialized bytes and races.

use super::block::Team;
use super::races::{self, Cell, Kind};
use super::warp::{Now, Warp, each};
use super::{Stop, Who, counts, float};
use crate::abi::{Code, WARP};
use crate::host;
use crate::memory::Bits;
use crate::ptx::{AtomicOp, Binary, Op, Operand, Place, Reg, Space, Type};

/// A block's shared memory.
pub(super) struct Shared {
    bytes: Vec<u8>,
    written: Bits,
    cells: Vec<Cell>,
}

impl Shared {
    pub(super) fn new(len: usize) -> Shared {
        Shared { bytes: vec![0xCB; len], written: Bits::new(len), cells: vec![Cell::default(); len] }
    }
}

/// The memory that an access resolves to.
#[derive(Clone, Copy)]
enum Spot {
    /// A block of the device's memory, by index, and an offset there.
    Global(usize, usize),
    /// An address of the host, which a device that shares the host's memory reads.
    Host(usize),
    Shared(usize),
    Local(usize),
    Param(usize),
    Const(usize),
}

/// Addresses below are those of null pointers.
const PAGE: u64 = 4096;

/// The bytes that one thread accesses at once.
type Bytes = [u8; 16];

/// The addresses of the threads that access memory together.
struct Addresses {
    all: [u64; WARP],
    count: usize,
}

impl Addresses {
    fn new() -> Addresses {
        Addresses { all: [0; WARP], count: 0 }
    }

    fn push(&mut self, address: u64) {
        self.all[self.count] = address;
        self.count += 1;
    }

    fn get(&mut self) -> &mut [u64] {
        &mut self.all[..self.count]
    }
}

impl Team<'_, '_> {
    pub(super) fn load(
        &mut self,
        now: &mut Now<'_>,
        line: u32,
        place: Place,
        to: &[Reg],
        lanes: u32,
    ) -> Result<(), Stop> {
        let each_len = place.ty.bytes();
        let len = each_len * to.len();
        let mut addresses = Addresses::new();
        let mut spot = Spot::Local(0);
        for lane in each(lanes) {
            let who = self.who(now.warp, lane, line);
            let address = address(now, place, lane);
            spot = self.spot(now, who, place.space, address, lane, len)?;
            addresses.push(address);
            let bytes = self.read(now.warp, who, spot, len, Kind::Read);
            for (index, register) in to.iter().enumerate() {
                let value = u64::from_le_bytes(part(&bytes, index * each_len, each_len));
                now.warp.set(&now.launch.kernel.masks, *register, lane, place.ty.whole(value) as u64);
            }
        }
        self.note(spot, &mut addresses, len, true);
        Ok(())
    }

    pub(super) fn store(
        &mut self,
        now: &mut Now<'_>,
        line: u32,
        place: Place,
        from: &[Operand],
        lanes: u32,
    ) -> Result<(), Stop> {
        let each_len = place.ty.bytes();
        let len = each_len * from.len();
        let mut addresses = Addresses::new();
        let mut spot = Spot::Local(0);
        for lane in each(lanes) {
            let who = self.who(now.warp, lane, line);
            let address = address(now, place, lane);
            spot = self.spot(now, who, place.space, address, lane, len)?;
            addresses.push(address);
            let mut bytes = Bytes::default();
            for (index, operand) in from.iter().enumerate() {
                let value = now.value(*operand, lane).to_le_bytes();
                bytes[index * each_len..][..each_len].copy_from_slice(&value[..each_len]);
            }
            self.write(now.warp, who, spot, &bytes[..len], Kind::Write)?;
        }
        self.note(spot, &mut addresses, len, false);
        Ok(())
    }

    pub(super) fn atomic(&mut self, now: &mut Now<'_>, line: u32, op: &Op, lanes: u32) -> Result<(), Stop> {
        let Op::Atomic { f, place, to, b, c } = *op else { return Ok(()) };
        let len = place.ty.bytes();
        // In an order that the seed decides, because sums of floats depend on it.
        let first = self.run.watch.random.below(WARP);
        for lane in (0..WARP).map(|index| (first + index) % WARP).filter(|lane| lanes >> lane & 1 == 1) {
            let who = self.who(now.warp, lane, line);
            let spot = self.spot(now, who, place.space, address(now, place, lane), lane, len)?;
            let old = u64::from_le_bytes(part(&self.read(now.warp, who, spot, len, Kind::Atomic), 0, len));
            let c = c.map(|operand| now.value(operand, lane));
            let new = combine(f, place.ty, old, now.value(b, lane), c);
            self.write(now.warp, who, spot, &new.to_le_bytes()[..len], Kind::Atomic)?;
            to.into_iter().for_each(|to| now.warp.set(&now.launch.kernel.masks, to, lane, old));
        }
        Ok(())
    }

    /// Resolves an address, and checks the bounds and alignment.
    fn spot(
        &mut self,
        now: &Now<'_>,
        who: Who,
        space: Space,
        address: u64,
        lane: usize,
        len: usize,
    ) -> Result<Spot, Stop> {
        let kernel = &now.launch.kernel;
        let (space, at) = match space {
            Space::Generic => generic(address),
            space => (space, address),
        };
        if !at.is_multiple_of(len as u64) {
            let text = format!("misaligned: {len} bytes at an address that is {} beyond a multiple", at % len as u64);
            return Err(self.run.stop(who, Code::MISALIGNED, &text));
        }
        let (name, size) = match space {
            Space::Global | Space::Generic => {
                return match self.run.global.find(at, len) {
                    Ok((block, at)) => Ok(Spot::Global(block, at)),
                    Err(_) if now.launch.shares_host && host::is_host(at) && at >= PAGE => Ok(Spot::Host(at as usize)),
                    Err(text) => {
                        let text = format!("global access of {len} bytes: {text}");
                        Err(self.run.stop(who, Code::ILLEGAL_ADDRESS, &text))
                    }
                };
            }
            Space::Shared => ("shared", self.shared.bytes.len()),
            Space::Local => ("local", kernel.local),
            Space::Param => ("parameter", now.launch.params.len()),
            Space::Const => ("constant", kernel.constants.len()),
        };
        if at.checked_add(len as u64).is_none_or(|end| end > size as u64) {
            let text = format!("{name} access of {len} bytes at {}: of {size}", at as i64);
            return Err(self.run.stop(who, Code::ILLEGAL_ADDRESS, &text));
        }
        let at = at as usize;
        Ok(match space {
            Space::Shared => Spot::Shared(at),
            Space::Local => Spot::Local(lane * kernel.local + at),
            Space::Param => Spot::Param(at),
            _ => Spot::Const(at),
        })
    }

    /// Reads bytes, and reports uninitialized ones and races.
    fn read(&mut self, warp: &Warp, who: Who, spot: Spot, len: usize, kind: Kind) -> Bytes {
        let now = self.now(warp, who);
        let mut bytes = Bytes::default();
        let launch = self.run.launch;
        let (name, at, is_written, other) = match spot {
            Spot::Global(block, at) => {
                let global = &mut self.run.global;
                bytes[..len].copy_from_slice(global.bytes(block, at, len));
                ("global", at, global.is_written(block, at, len), global.touch(block, at, len, &now, kind))
            }
            Spot::Host(at) => {
                bytes[..len].copy_from_slice(host::bytes(at, len));
                return bytes;
            }
            Spot::Shared(at) => {
                bytes[..len].copy_from_slice(&self.shared.bytes[at..at + len]);
                let other = races::touch(&mut self.shared.cells[at..at + len], &now, kind);
                ("shared", at, self.shared.written.has(at, len), other)
            }
            Spot::Local(at) => {
                bytes[..len].copy_from_slice(&warp.local[at..at + len]);
                return bytes;
            }
            Spot::Param(at) => {
                bytes[..len].copy_from_slice(&launch.params[at..at + len]);
                return bytes;
            }
            Spot::Const(at) => {
                bytes[..len].copy_from_slice(&launch.kernel.constants[at..at + len]);
                return bytes;
            }
        };
        if !is_written {
            let end = at + len;
            self.run.report(who, "unwritten", |_| format!("{name} bytes {at}..{end} are read before they are written"));
        }
        self.race(who, name, at, other);
        bytes
    }

    /// Writes bytes, and reports races.
    fn write(&mut self, warp: &mut Warp, who: Who, spot: Spot, bytes: &[u8], kind: Kind) -> Result<(), Stop> {
        let now = self.now(warp, who);
        let len = bytes.len();
        let (name, at, other) = match spot {
            Spot::Global(block, at) => {
                let global = &mut self.run.global;
                global.bytes(block, at, len).copy_from_slice(bytes);
                global.set_written(block, at, len);
                ("global", at, global.touch(block, at, len, &now, kind))
            }
            Spot::Shared(at) => {
                self.shared.bytes[at..at + len].copy_from_slice(bytes);
                self.shared.written.set(at, len);
                ("shared", at, races::touch(&mut self.shared.cells[at..at + len], &now, kind))
            }
            Spot::Local(at) => {
                warp.local[at..at + len].copy_from_slice(bytes);
                return Ok(());
            }
            Spot::Host(_) => {
                return Err(self.run.stop(who, Code::ILLEGAL_ADDRESS, "a store to the host's memory"));
            }
            Spot::Param(_) | Spot::Const(_) => {
                return Err(self.run.stop(who, Code::ILLEGAL_ADDRESS, "a store to parameters or constants"));
            }
        };
        self.race(who, name, at, other);
        Ok(())
    }

    /// Reports a race with another thread, if there is one.
    fn race(&mut self, who: Who, name: &str, at: usize, other: Option<u32>) {
        if let Some(other) = other {
            self.run.report(who, "race", |run| format!("race on {name} byte {at} with {}", run.name(other)));
        }
    }

    fn now(&self, warp: &Warp, who: Who) -> races::Now {
        let threads = self.run.global.threads;
        races::Now { thread: who.thread, threads, warp_epoch: warp.epoch, block_epoch: self.epoch }
    }

    /// Counts the cost of the threads' addresses, which are all in one space.
    fn note(&mut self, spot: Spot, addresses: &mut Addresses, len: usize, is_load: bool) {
        let counts = &mut self.run.watch.counts;
        match spot {
            Spot::Global(..) | Spot::Host(_) => {
                let traffic = if is_load { &mut counts.loads } else { &mut counts.stores };
                counts::note_global(traffic, addresses.get(), len);
            }
            Spot::Shared(_) => {
                counts.bank_conflict = counts.bank_conflict.max(counts::bank_conflict(addresses.get(), len));
            }
            _ => {}
        }
    }
}

/// The address of an instruction's operand for a thread.
fn address(now: &Now<'_>, place: Place, lane: usize) -> u64 {
    let base = place.address.base.map_or(0, |base| now.warp.register(base)[lane]);
    base.wrapping_add(place.address.offset)
}

/// The space of a generic address, and the address within.
fn generic(address: u64) -> (Space, u64) {
    let spaces = [Space::Shared, Space::Local, Space::Param, Space::Const];
    let found = spaces.into_iter().find(|space| address >> 60 == space.window() >> 60);
    found.map_or((Space::Global, address), |space| (space, address - space.window()))
}

/// A number from up to eight bytes.
fn part(bytes: &Bytes, at: usize, len: usize) -> [u8; 8] {
    let mut part = [0; 8];
    part[..len].copy_from_slice(&bytes[at..at + len]);
    part
}

/// The value that an atomic operation stores.
fn combine(f: AtomicOp, ty: Type, old: u64, b: u64, c: Option<u64>) -> u64 {
    let whole = |f| super::whole::binary(f)(ty, old, b);
    match f {
        AtomicOp::Add if ty.is_float() => float::binary(Binary::Add, ty, old, b),
        AtomicOp::Add => whole(Binary::Add),
        AtomicOp::Minimum => whole(Binary::Minimum),
        AtomicOp::Maximum => whole(Binary::Maximum),
        AtomicOp::And => whole(Binary::And),
        AtomicOp::Or => whole(Binary::Or),
        AtomicOp::Xor => whole(Binary::Xor),
        AtomicOp::Exchange => b,
        AtomicOp::CompareAndSwap => {
            if old == b & ty.mask() {
                c.unwrap_or_default()
            } else {
                old
            }
        }
    }
}
