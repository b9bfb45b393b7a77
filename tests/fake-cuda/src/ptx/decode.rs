//! Parses one instruction into an [`Op`]. Every part of the opcode must be consumed: a remaining part is an error, so
//! that no rounding, saturation or memory order is silently ignored.

use super::body::Scope;
use super::op::{Address, Op, Operand, Place, Reg, Space, Special, Type};
use super::shapes;

/// An instruction as written.
pub(crate) struct Line {
    pub(crate) line: u32,
    pub(crate) guard: Option<(String, bool)>,
    pub(crate) opcode: String,
    pub(crate) operands: Vec<Text>,
}

/// An operand as written.
pub(crate) enum Text {
    Name(String),
    /// `!%p1`
    Not(String),
    /// `%r1|%p1`
    Pair(String, String),
    Number(u64),
    Address(String, u64),
    List(Vec<Text>),
}

/// An instruction during parsing: the remaining parts of the opcode, and the operands.
pub(super) struct Reader<'a> {
    pub(super) base: &'a str,
    parts: Vec<&'a str>,
    pub(super) operands: &'a [Text],
    pub(super) scope: &'a Scope,
}

/// Reads one instruction.
pub(super) fn op(line: &Line, scope: &Scope) -> Result<Op, String> {
    let mut parts = line.opcode.split('.');
    let base = parts.next().unwrap_or_default();
    let mut reader = Reader { base, parts: parts.collect(), operands: &line.operands, scope };
    let op = shapes::op(&mut reader).map_err(|error| format!("`{}`: {error}", line.opcode))?;
    match reader.parts.first() {
        Some(part) => Err(format!("`.{part}` of `{}` is not known", line.opcode)),
        None => Ok(op),
    }
}

impl Reader<'_> {
    /// Consumes a part of the opcode, wherever that stands.
    pub(super) fn take(&mut self, part: &str) -> bool {
        let at = self.parts.iter().position(|each| *each == part);
        at.map(|at| self.parts.remove(at)).is_some()
    }

    /// Consumes the one of these parts that is present.
    pub(super) fn one_of<T: Copy>(&mut self, known: &[(&str, T)]) -> Option<T> {
        known.iter().find(|(part, _)| self.take(part)).map(|(_, value)| *value)
    }

    /// Consumes the first type.
    pub(super) fn ty(&mut self) -> Result<Type, String> {
        let at = self.parts.iter().position(|part| shapes::ty(part).is_some()).ok_or("no type")?;
        shapes::ty(self.parts.remove(at)).ok_or_else(|| "no type".to_string())
    }

    /// Refuses any other number of operands.
    pub(super) fn count(&self, count: usize) -> Result<(), String> {
        if self.operands.len() == count {
            Ok(())
        } else {
            Err(format!("{} operands, not {count}", self.operands.len()))
        }
    }

    fn text(&self, at: usize) -> Result<&Text, String> {
        self.operands.get(at).ok_or_else(|| format!("operand {} is missing", at + 1))
    }

    /// A register that is written.
    pub(super) fn to(&self, at: usize) -> Result<Reg, String> {
        match self.text(at)? {
            Text::Name(name) => self.scope.register(name),
            _ => Err(format!("operand {} is no register", at + 1)),
        }
    }

    /// A register that is written, and optionally a predicate after a bar.
    pub(super) fn to_pair(&self, at: usize) -> Result<(Option<Reg>, Option<Reg>), String> {
        let register = |name: &str| if name == "_" { Ok(None) } else { self.scope.register(name).map(Some) };
        match self.text(at)? {
            Text::Name(name) => Ok((register(name)?, None)),
            Text::Pair(first, second) => Ok((register(first)?, register(second)?)),
            _ => Err(format!("operand {} is no register", at + 1)),
        }
    }

    /// A value that is read.
    pub(super) fn from(&self, at: usize) -> Result<Operand, String> {
        self.operand(self.text(at)?)
    }

    /// A value that is read, and whether negated.
    pub(super) fn negated(&self, at: usize) -> Result<(Operand, bool), String> {
        match self.text(at)? {
            Text::Not(name) => Ok((Operand::Reg(self.scope.register(name)?), true)),
            text => Ok((self.operand(text)?, false)),
        }
    }

    pub(super) fn operand(&self, text: &Text) -> Result<Operand, String> {
        let Text::Name(name) = text else {
            return match text {
                Text::Number(value) => Ok(Operand::Value(*value)),
                _ => Err("an operand that is neither register nor number".to_string()),
            };
        };
        if let Some(special) = special(name) {
            return Ok(Operand::Special(special));
        }
        match self.scope.names.get(name) {
            Some(address) => Ok(Operand::Value(*address)),
            None => self.scope.register(name).map(Operand::Reg),
        }
    }

    /// The parts of an operand in braces, or the operand itself.
    pub(super) fn list(&self, at: usize) -> Result<&[Text], String> {
        match self.text(at)? {
            Text::List(parts) => Ok(parts),
            text => Ok(std::slice::from_ref(text)),
        }
    }

    /// Whether an operand is in braces.
    pub(super) fn is_list(&self, at: usize) -> bool {
        matches!(self.text(at), Ok(Text::List(_)))
    }

    /// The registers of a part in braces; `_` takes nothing.
    pub(super) fn registers(&self, at: usize) -> Result<Vec<Option<Reg>>, String> {
        let registers = self.list(at)?.iter().map(|text| match text {
            Text::Name(name) if name == "_" => Ok(None),
            Text::Name(name) => self.scope.register(name).map(Some),
            _ => Err(format!("operand {} is no register", at + 1)),
        });
        registers.collect()
    }

    /// The values of a part in braces.
    pub(super) fn values(&self, at: usize) -> Result<Vec<Operand>, String> {
        self.list(at)?.iter().map(|text| self.operand(text)).collect()
    }

    /// The name of a label or of a list of labels.
    pub(super) fn name(&self, at: usize) -> Result<&str, String> {
        match self.text(at)? {
            Text::Name(name) => Ok(name),
            _ => Err(format!("operand {} is no name", at + 1)),
        }
    }

    /// An address in square brackets.
    pub(super) fn place(&self, at: usize, space: Space, ty: Type) -> Result<Place, String> {
        let Text::Address(base, offset) = self.text(at)? else {
            return Err(format!("operand {} is no address", at + 1));
        };
        let address = match (self.scope.names.get(base), super::text::number(base)) {
            (Some(start), _) => Address { base: None, offset: start.wrapping_add(*offset) },
            (None, Some(start)) => Address { base: None, offset: start.wrapping_add(*offset) },
            (None, None) => Address { base: Some(self.scope.register(base)?), offset: *offset },
        };
        Ok(Place { space, address, ty })
    }

    /// The space in the opcode.
    pub(super) fn space(&mut self) -> Space {
        let spaces = [
            ("global", Space::Global),
            ("shared", Space::Shared),
            ("local", Space::Local),
            ("param", Space::Param),
            ("const", Space::Const),
        ];
        self.one_of(&spaces).unwrap_or(Space::Generic)
    }
}

/// A special register by name.
fn special(name: &str) -> Option<Special> {
    let axis = |rest: &str| ["x", "y", "z"].iter().position(|axis| *axis == rest);
    Some(match name.split_once('.') {
        Some(("%tid", rest)) => Special::Thread(axis(rest)?),
        Some(("%ntid", rest)) => Special::Threads(axis(rest)?),
        Some(("%ctaid", rest)) => Special::Block(axis(rest)?),
        Some(("%nctaid", rest)) => Special::Blocks(axis(rest)?),
        None if name == "%laneid" => Special::Lane,
        None if name == "%warpid" => Special::Warp,
        _ => return None,
    })
}
