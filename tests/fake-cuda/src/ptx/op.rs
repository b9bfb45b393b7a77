//! The parsed instruction. The operands are resolved to numbers, so that running needs no lookup.

/// A register's number within the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reg(pub(crate) u16);

/// One instruction.
#[derive(Debug)]
pub(crate) struct Instruction {
    /// The line of the PTX text.
    pub(crate) line: u32,
    /// The predicate that guards the instruction, and whether a false one lets it run.
    pub(crate) guard: Option<(Reg, bool)>,
    pub(crate) op: Op,
}

/// The kind of value that an operand's bits represent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Bits,
    Unsigned,
    Signed,
    Float,
    Predicate,
}

/// The type of an instruction: `.u32`, `.f64`, `.pred`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Type {
    pub(crate) kind: Kind,
    pub(crate) bits: u32,
}

impl Type {
    pub(crate) const fn new(kind: Kind, bits: u32) -> Type {
        Type { kind, bits }
    }

    pub(crate) fn bytes(self) -> usize {
        self.bits as usize / 8
    }

    pub(crate) fn is_float(self) -> bool {
        self.kind == Kind::Float
    }

    /// The bits that a value of this type has.
    pub(crate) fn mask(self) -> u64 {
        !0 >> (64 - self.bits)
    }

    /// The value as an integer, sign-extended if the type is signed.
    pub(crate) fn whole(self, value: u64) -> i128 {
        let value = value & self.mask();
        match self.kind {
            Kind::Signed => i128::from((value as i64) << (64 - self.bits) >> (64 - self.bits)),
            _ => i128::from(value),
        }
    }
}

/// Where an operand's value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Reg(Reg),
    Value(u64),
    Special(Special),
}

/// A special register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Thread(usize),
    Threads(usize),
    Block(usize),
    Blocks(usize),
    Lane,
    Warp,
}

/// A space of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Generic,
    Global,
    Shared,
    Local,
    Param,
    Const,
}

impl Space {
    /// The start of the space among generic addresses; a global address is its own generic address.
    pub(crate) fn window(self) -> u64 {
        match self {
            Space::Generic | Space::Global => 0,
            Space::Shared => 1 << 60,
            Space::Local => 2 << 60,
            Space::Param => 3 << 60,
            Space::Const => 4 << 60,
        }
    }
}

/// A register and an offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) base: Option<Reg>,
    pub(crate) offset: u64,
}

/// The memory of an access: space, address, and element type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) space: Space,
    pub(crate) address: Address,
    pub(crate) ty: Type,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Move,
    Not,
    LogicNot,
    Negate,
    Absolute,
    CountOnes,
    LeadingZeros,
    Reverse,
    FindTop,
    FindTopShift,
    SquareRoot,
    Reciprocal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Subtract,
    Multiply,
    MultiplyHigh,
    MultiplyWide,
    Divide,
    Remainder,
    Minimum,
    Maximum,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    CopySign,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ternary {
    MultiplyAdd,
    MultiplyAddHigh,
    MultiplyAddWide,
    Fused,
    Select,
    Permute,
    FunnelLeft {
        is_clamped: bool,
    },
    FunnelRight {
        is_clamped: bool,
    },
    Extract,
    Logic(u8),
    Difference,
    /// The sum of the products of four bytes each; whether those of the first and of the second are signed.
    DotBytes([bool; 2]),
}

/// A comparison; `Unordered` ones hold where an operand is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Numbers,
    NotNumbers,
}

/// How a comparison's result is combined with a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bool {
    And,
    Or,
    Xor,
}

/// How a conversion rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// The conversion needs no rounding.
    None,
    Nearest,
    Zero,
    Down,
    Up,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomicOp {
    Add,
    Minimum,
    Maximum,
    And,
    Or,
    Xor,
    Exchange,
    CompareAndSwap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Ballot,
}

/// The action of an instruction.
#[derive(Debug)]
pub(crate) enum Op {
    Unary {
        f: Unary,
        ty: Type,
        to: Reg,
        a: Operand,
    },
    Binary {
        f: Binary,
        ty: Type,
        to: Reg,
        a: Operand,
        b: Operand,
    },
    Ternary {
        f: Ternary,
        ty: Type,
        to: Reg,
        a: Operand,
        b: Operand,
        c: Operand,
    },
    /// Inserts `len` bits of `a` into `b` at a position.
    Insert {
        ty: Type,
        to: Reg,
        a: Operand,
        b: Operand,
        at: Operand,
        len: Operand,
    },
    Compare {
        test: Test,
        is_unordered: bool,
        ty: Type,
        to: Option<Reg>,
        inverse: Option<Reg>,
        a: Operand,
        b: Operand,
        with: Option<(Bool, Operand, bool)>,
    },
    Convert {
        to_ty: Type,
        from_ty: Type,
        rounding: Rounding,
        is_saturating: bool,
        to: Reg,
        a: Operand,
    },
    /// Several narrow registers as one wide one.
    Join {
        ty: Type,
        to: Reg,
        parts: Vec<Operand>,
    },
    /// One wide register as several narrow ones.
    Split {
        ty: Type,
        to: Vec<Option<Reg>>,
        a: Operand,
    },
    Load {
        place: Place,
        to: Vec<Reg>,
    },
    Store {
        place: Place,
        from: Vec<Operand>,
    },
    Atomic {
        f: AtomicOp,
        place: Place,
        to: Option<Reg>,
        b: Operand,
        c: Option<Operand>,
    },
    Shuffle {
        mode: Shuffle,
        to: Reg,
        inside: Option<Reg>,
        a: Operand,
        b: Operand,
        c: Operand,
        members: Operand,
    },
    Vote {
        mode: Vote,
        to: Reg,
        a: Operand,
        is_negated: bool,
        members: Operand,
    },
    ActiveMask {
        to: Reg,
    },
    /// Jumps to an instruction by index.
    Branch {
        to: usize,
    },
    /// Jumps to one of several instructions, chosen by a number.
    Switch {
        on: Operand,
        to: Vec<usize>,
    },
    Barrier,
    WarpBarrier {
        members: Operand,
    },
    Fence,
    Return,
    Trap,
}

impl Op {
    /// Whether the instruction divides 64-bit integers, which a GPU does in some hundred instructions.
    pub(crate) fn is_long_division(&self) -> bool {
        matches!(self, Op::Binary { f: Binary::Divide | Binary::Remainder, ty, .. } if ty.bits == 64 && !ty.is_float())
    }
}
