//! The table of instructions: the parts and operands of each opcode. `exec` must be able to run all of them.

use super::decode::Reader;
use super::op::{
    AtomicOp, Binary, Bool, Kind, Op, Operand, Rounding, Shuffle, Space, Ternary, Test, Type, Unary, Vote,
};

type Result<T> = std::result::Result<T, String>;

/// A type by name.
pub(super) fn ty(part: &str) -> Option<Type> {
    let kind = match part.chars().next()? {
        'b' => Kind::Bits,
        'u' => Kind::Unsigned,
        's' => Kind::Signed,
        'f' => Kind::Float,
        _ => return (part == "pred").then_some(Type::new(Kind::Predicate, 1)),
    };
    match part[1..].parse() {
        Ok(bits @ (8 | 16 | 32 | 64)) => Some(Type::new(kind, bits)),
        _ => (part == "pred").then_some(Type::new(Kind::Predicate, 1)),
    }
}

/// Reads one instruction, by the first part of the opcode.
pub(super) fn op(r: &mut Reader<'_>) -> Result<Op> {
    let base = r.base;
    match base {
        "mov" => moved(r),
        "not" | "neg" | "abs" | "popc" | "clz" | "brev" | "bfind" | "sqrt" | "rcp" => unary(r),
        "add" | "sub" | "mul" | "div" | "rem" | "min" | "max" | "and" | "or" | "xor" | "shl" | "shr" | "copysign" => {
            binary(r)
        }
        "mad" | "fma" | "selp" | "prmt" | "shf" | "bfe" | "lop3" | "sad" | "dp4a" => ternary(r),
        "bfi" => {
            let ty = r.ty()?;
            r.count(5)?;
            Ok(Op::Insert { ty, to: r.to(0)?, a: r.from(1)?, b: r.from(2)?, at: r.from(3)?, len: r.from(4)? })
        }
        "setp" => compare(r),
        "cvt" => convert(r),
        "cvta" => generic(r),
        "ld" | "ldu" => load(r),
        "st" => store(r),
        "atom" | "red" => atomic(r),
        "shfl" => shuffle(r),
        "vote" => vote(r),
        "activemask" if r.take("b32") => Ok(Op::ActiveMask { to: r.to(0)? }),
        "bra" => {
            r.take("uni");
            Ok(Op::Branch { to: r.scope.label(r.name(0)?)? })
        }
        "brx" if r.take("idx") => {
            r.take("uni");
            let list = r.name(1)?;
            let labels = r.scope.lists.get(list).ok_or_else(|| format!("list {list} is not there"))?;
            let to = labels.iter().map(|label| r.scope.label(label)).collect::<Result<Vec<_>>>()?;
            Ok(Op::Switch { on: r.from(0)?, to })
        }
        "bar" if r.take("warp") && r.take("sync") => Ok(Op::WarpBarrier { members: r.from(0)? }),
        "bar" | "barrier" if r.take("sync") => {
            r.take("aligned");
            r.count(1)?;
            match r.from(0)? {
                Operand::Value(0) => Ok(Op::Barrier),
                _ => Err("only barrier 0, of all threads".to_string()),
            }
        }
        "membar" | "fence" => {
            r.take("acq_rel");
            r.take("sc");
            r.one_of(&[("gl", ()), ("cta", ()), ("sys", ()), ("gpu", ())]).ok_or("which threads?")?;
            Ok(Op::Fence)
        }
        "ret" | "exit" => {
            r.take("uni");
            Ok(Op::Return)
        }
        "trap" => Ok(Op::Trap),
        _ => Err("this instruction is not known".to_string()),
    }
}

fn moved(r: &mut Reader<'_>) -> Result<Op> {
    let ty = r.ty()?;
    r.count(2)?;
    if r.is_list(1) {
        return Ok(Op::Join { ty, to: r.to(0)?, parts: r.values(1)? });
    }
    if r.is_list(0) {
        return Ok(Op::Split { ty, to: r.registers(0)?, a: r.from(1)? });
    }
    Ok(Op::Unary { f: Unary::Move, ty, to: r.to(0)?, a: r.from(1)? })
}

fn unary(r: &mut Reader<'_>) -> Result<Op> {
    let ty = r.ty()?;
    r.count(2)?;
    let base = r.base;
    let f = match base {
        "not" if ty.kind == Kind::Predicate => Unary::LogicNot,
        "not" => Unary::Not,
        "neg" => Unary::Negate,
        "abs" => Unary::Absolute,
        "popc" => Unary::CountOnes,
        "clz" => Unary::LeadingZeros,
        "brev" => Unary::Reverse,
        "bfind" if r.take("shiftamt") => Unary::FindTopShift,
        "bfind" => Unary::FindTop,
        "sqrt" if r.take("rn") => Unary::SquareRoot,
        "rcp" if r.take("rn") => Unary::Reciprocal,
        _ => return Err("only rounded to nearest".to_string()),
    };
    let is_whole_only = !matches!(f, Unary::Negate | Unary::Absolute | Unary::SquareRoot | Unary::Reciprocal);
    refuse_float(ty, is_whole_only)?;
    Ok(Op::Unary { f, ty, to: r.to(0)?, a: r.from(1)? })
}

/// Refuses half precision, and floats if there is no such instruction.
fn refuse_float(ty: Type, is_whole_only: bool) -> Result<()> {
    if ty.is_float() && (ty.bits == 16 || is_whole_only) { Err("not of this type".to_string()) } else { Ok(()) }
}

fn binary(r: &mut Reader<'_>) -> Result<Op> {
    let ty = r.ty()?;
    r.count(3)?;
    let base = r.base;
    let f = match base {
        "add" => Binary::Add,
        "sub" => Binary::Subtract,
        "mul" if ty.is_float() => Binary::Multiply,
        "mul" => r
            .one_of(&[("lo", Binary::Multiply), ("hi", Binary::MultiplyHigh), ("wide", Binary::MultiplyWide)])
            .ok_or("which half?")?,
        "div" => Binary::Divide,
        "rem" => Binary::Remainder,
        "min" => Binary::Minimum,
        "max" => Binary::Maximum,
        "and" => Binary::And,
        "or" => Binary::Or,
        "xor" => Binary::Xor,
        "shl" => Binary::ShiftLeft,
        "shr" => Binary::ShiftRight,
        _ => Binary::CopySign,
    };
    let is_rounded = matches!(f, Binary::Add | Binary::Subtract | Binary::Multiply | Binary::Divide);
    // Without a rounding modifier, the assembler may fuse a multiplication and an addition, which changes the result.
    if ty.is_float() && is_rounded && !r.take("rn") {
        return Err("only rounded to nearest, and written so: otherwise it may be fused with another".to_string());
    }
    refuse_float(ty, !is_rounded && !matches!(f, Binary::Minimum | Binary::Maximum | Binary::CopySign))?;
    Ok(Op::Binary { f, ty, to: r.to(0)?, a: r.from(1)?, b: r.from(2)? })
}

fn ternary(r: &mut Reader<'_>) -> Result<Op> {
    if r.base == "lop3" {
        let ty = r.ty()?;
        r.count(5)?;
        let Operand::Value(table) = r.from(4)? else { return Err("the table must be a number".to_string()) };
        let f = Ternary::Logic(table as u8);
        return Ok(Op::Ternary { f, ty, to: r.to(0)?, a: r.from(1)?, b: r.from(2)?, c: r.from(3)? });
    }
    let ty = r.ty()?;
    r.count(4)?;
    let base = r.base;
    let f = match base {
        "dp4a" => Ternary::DotBytes([ty, r.ty()?].map(|ty| ty.kind == Kind::Signed)),
        "mad" if !ty.is_float() => r
            .one_of(&[
                ("lo", Ternary::MultiplyAdd),
                ("hi", Ternary::MultiplyAddHigh),
                ("wide", Ternary::MultiplyAddWide),
            ])
            .ok_or("which half?")?,
        "fma" if ty.is_float() && r.take("rn") => Ternary::Fused,
        "selp" => Ternary::Select,
        "prmt" => Ternary::Permute,
        "shf" => {
            let is_left = r.take("l");
            if !is_left && !r.take("r") {
                return Err("left or right?".to_string());
            }
            let is_clamped = r.one_of(&[("clamp", true), ("wrap", false)]).ok_or("clamp or wrap?")?;
            if is_left { Ternary::FunnelLeft { is_clamped } } else { Ternary::FunnelRight { is_clamped } }
        }
        "bfe" => Ternary::Extract,
        "sad" => Ternary::Difference,
        _ => return Err("not of this type".to_string()),
    };
    refuse_float(ty, !matches!(f, Ternary::Fused | Ternary::Select))?;
    Ok(Op::Ternary { f, ty, to: r.to(0)?, a: r.from(1)?, b: r.from(2)?, c: r.from(3)? })
}

/// The comparisons by name, and whether each also holds for NaN.
const TESTS: &[(&str, (Test, bool))] = &[
    ("eq", (Test::Equal, false)),
    ("ne", (Test::NotEqual, false)),
    ("lt", (Test::Less, false)),
    ("le", (Test::LessEqual, false)),
    ("gt", (Test::Greater, false)),
    ("ge", (Test::GreaterEqual, false)),
    ("lo", (Test::Less, false)),
    ("ls", (Test::LessEqual, false)),
    ("hi", (Test::Greater, false)),
    ("hs", (Test::GreaterEqual, false)),
    ("equ", (Test::Equal, true)),
    ("neu", (Test::NotEqual, true)),
    ("ltu", (Test::Less, true)),
    ("leu", (Test::LessEqual, true)),
    ("gtu", (Test::Greater, true)),
    ("geu", (Test::GreaterEqual, true)),
    ("num", (Test::Numbers, false)),
    ("nan", (Test::NotNumbers, false)),
];

fn compare(r: &mut Reader<'_>) -> Result<Op> {
    let (test, is_unordered) = r.one_of(TESTS).ok_or("which comparison?")?;
    let with = r.one_of(&[("and", Bool::And), ("or", Bool::Or), ("xor", Bool::Xor)]);
    let ty = r.ty()?;
    refuse_float(ty, false)?;
    r.count(if with.is_some() { 4 } else { 3 })?;
    let with = match with {
        Some(with) => {
            let (value, is_negated) = r.negated(3)?;
            Some((with, value, is_negated))
        }
        None => None,
    };
    let (to, inverse) = r.to_pair(0)?;
    Ok(Op::Compare { test, is_unordered, ty, to, inverse, a: r.from(1)?, b: r.from(2)?, with })
}

fn convert(r: &mut Reader<'_>) -> Result<Op> {
    let whole = [("rni", Rounding::Nearest), ("rzi", Rounding::Zero), ("rmi", Rounding::Down), ("rpi", Rounding::Up)];
    let is_to_whole = r.one_of(&whole);
    let rounding = is_to_whole.or(r.take("rn").then_some(Rounding::Nearest)).unwrap_or(Rounding::None);
    let is_saturating = r.take("sat");
    let (to_ty, from_ty) = (r.ty()?, r.ty()?);
    let is_sound = match (from_ty.is_float(), to_ty.is_float()) {
        (true, false) => is_to_whole.is_some(),
        (true, true) if from_ty.bits == to_ty.bits => is_to_whole.is_some() || rounding == Rounding::None,
        (true, true) if from_ty.bits < to_ty.bits => rounding == Rounding::None,
        (_, true) => is_to_whole.is_none() && rounding == Rounding::Nearest,
        (false, false) => rounding == Rounding::None,
    };
    if !is_sound || is_saturating && to_ty.is_float() {
        return Err("this rounding or saturation is not known".to_string());
    }
    r.count(2)?;
    Ok(Op::Convert { to_ty, from_ty, rounding, is_saturating, to: r.to(0)?, a: r.from(1)? })
}

/// To a generic address from one within a space, or back.
fn generic(r: &mut Reader<'_>) -> Result<Op> {
    let f = if r.take("to") { Binary::Subtract } else { Binary::Add };
    let (space, ty) = (r.space(), r.ty()?);
    r.count(2)?;
    Ok(Op::Binary { f, ty, to: r.to(0)?, a: r.from(1)?, b: Operand::Value(space.window()) })
}

/// Modifiers that only affect how a cache is used.
fn caches(r: &mut Reader<'_>) {
    for part in ["nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "L1::no_allocate", "L1::evict_last", "L1::evict_first"]
    {
        r.take(part);
    }
}

/// The number of elements of one access.
fn width(r: &mut Reader<'_>) -> usize {
    r.one_of(&[("v2", 2), ("v4", 4)]).unwrap_or(1)
}

fn load(r: &mut Reader<'_>) -> Result<Op> {
    caches(r);
    let (space, width, ty) = (r.space(), width(r), r.ty()?);
    r.count(2)?;
    let to: Option<Vec<_>> = r.registers(0)?.into_iter().collect();
    let to = to.filter(|to| to.len() == width).ok_or("as many registers as elements")?;
    Ok(Op::Load { place: r.place(1, space, ty)?, to })
}

fn store(r: &mut Reader<'_>) -> Result<Op> {
    caches(r);
    let (space, width, ty) = (r.space(), width(r), r.ty()?);
    r.count(2)?;
    let from = r.values(1)?;
    if from.len() != width || matches!(space, Space::Param | Space::Const) {
        return Err("as many registers as elements, and a space that can be written".to_string());
    }
    Ok(Op::Store { place: r.place(0, space, ty)?, from })
}

fn atomic(r: &mut Reader<'_>) -> Result<Op> {
    for part in ["relaxed", "gpu", "cta"] {
        r.take(part);
    }
    let space = r.space();
    let names = [
        ("add", AtomicOp::Add),
        ("min", AtomicOp::Minimum),
        ("max", AtomicOp::Maximum),
        ("and", AtomicOp::And),
        ("or", AtomicOp::Or),
        ("xor", AtomicOp::Xor),
        ("exch", AtomicOp::Exchange),
        ("cas", AtomicOp::CompareAndSwap),
    ];
    let f = r.one_of(&names).ok_or("which operation?")?;
    let ty = r.ty()?;
    refuse_float(ty, f != AtomicOp::Add)?;
    let first = usize::from(r.base == "atom");
    let count = if f == AtomicOp::CompareAndSwap { 2 } else { 1 };
    r.count(first + 1 + count)?;
    let to = if first == 1 { r.to_pair(0)?.0 } else { None };
    let c = if count == 2 { Some(r.from(first + 2)?) } else { None };
    Ok(Op::Atomic { f, place: r.place(first, space, ty)?, to, b: r.from(first + 1)?, c })
}

fn shuffle(r: &mut Reader<'_>) -> Result<Op> {
    if !r.take("sync") || !r.take("b32") {
        return Err("only `.sync` of `.b32`".to_string());
    }
    let modes = [("up", Shuffle::Up), ("down", Shuffle::Down), ("bfly", Shuffle::Butterfly), ("idx", Shuffle::Index)];
    let mode = r.one_of(&modes).ok_or("which lanes?")?;
    r.count(5)?;
    let (to, inside) = r.to_pair(0)?;
    let to = to.ok_or("no register to write")?;
    Ok(Op::Shuffle { mode, to, inside, a: r.from(1)?, b: r.from(2)?, c: r.from(3)?, members: r.from(4)? })
}

fn vote(r: &mut Reader<'_>) -> Result<Op> {
    if !r.take("sync") {
        return Err("only `.sync`".to_string());
    }
    let mode = r.one_of(&[("all", Vote::All), ("any", Vote::Any), ("ballot", Vote::Ballot)]).ok_or("which vote?")?;
    let _ = r.ty()?;
    r.count(3)?;
    let (a, is_negated) = r.negated(1)?;
    Ok(Op::Vote { mode, to: r.to(0)?, a, is_negated, members: r.from(2)? })
}
