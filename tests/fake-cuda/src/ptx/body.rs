//! Parses an entry: the parameters and the body. Resolves the names of registers, variables and labels to numbers.

use std::collections::BTreeMap;

use super::decode::{self, Line};
use super::module::{Kernel, parameter, type_bytes, variable};
use super::op::{Instruction, Op, Reg};
use super::text::{Cursor, Token};

/// The meaning of the names in a body.
pub(crate) struct Scope {
    pub(crate) registers: BTreeMap<String, Reg>,
    pub(crate) masks: Vec<u64>,
    /// Parameters, shared and local variables, constants: where each begins in the space.
    pub(crate) names: BTreeMap<String, u64>,
    /// Labels by the index of the instruction that follows.
    pub(crate) labels: BTreeMap<String, usize>,
    /// Lists of labels that a switch goes to.
    pub(crate) lists: BTreeMap<String, Vec<String>>,
}

/// Parses an entry, after `.entry`.
pub(crate) fn entry(cursor: &mut Cursor, constants: &BTreeMap<String, u64>) -> Result<Kernel, String> {
    let mut kernel = Kernel { name: cursor.word()?, ..Kernel::default() };
    let mut scope = Scope {
        registers: BTreeMap::new(),
        masks: Vec::new(),
        names: constants.clone(),
        labels: BTreeMap::new(),
        lists: BTreeMap::new(),
    };
    if cursor.take('(') {
        while !cursor.take(')') {
            let word = cursor.word()?;
            if word != ".param" {
                return cursor.error(format!("a parameter expected, not `{word}`"));
            }
            let each = parameter(cursor)?;
            let at = kernel.params.next_multiple_of(each.align);
            kernel.params = at + each.len;
            kernel.param_places.push((at, each.len));
            scope.names.insert(each.name, at as u64);
            cursor.take(',');
        }
    }
    // The number of threads that the compiler may assume.
    while cursor.peek_word().is_some_and(|word| [".maxntid", ".minnctapersm", ".maxnreg", ".reqntid"].contains(&word)) {
        cursor.word()?;
        cursor.number()?;
        while cursor.take(',') {
            cursor.number()?;
        }
    }
    cursor.expect('{')?;
    let lines = body(cursor, &mut kernel, &mut scope)?;
    for line in &lines {
        let op = decode::op(line, &scope).map_err(|error| format!("line {}: {error}", line.line))?;
        kernel.code.push(Instruction { line: line.line, guard: line.guard(&scope)?, op });
    }
    kernel.code.push(Instruction { line: cursor.line(), guard: None, op: Op::Return });
    kernel.masks = scope.masks;
    kernel.long_divisions = long_divisions(&kernel.code);
    Ok(kernel)
}

/// Parses up to the closing brace. A nested block can declare its own registers, whose names shadow those outside.
fn body(cursor: &mut Cursor, kernel: &mut Kernel, scope: &mut Scope) -> Result<Vec<Line>, String> {
    let (mut lines, mut depth) = (Vec::new(), 1);
    while depth > 0 {
        if cursor.take('{') {
            depth += 1;
            continue;
        }
        if cursor.take('}') {
            depth -= 1;
            continue;
        }
        if cursor.is_followed_by(':') {
            let label = cursor.word()?;
            cursor.expect(':')?;
            match cursor.peek_word() {
                Some(".branchtargets") => drop(scope.lists.insert(label, targets(cursor)?)),
                _ => drop(scope.labels.insert(label, lines.len())),
            }
            continue;
        }
        match cursor.peek_word() {
            Some(".reg") => registers(cursor, scope)?,
            Some(space @ (".shared" | ".local")) => {
                let size = if space == ".shared" { &mut kernel.shared } else { &mut kernel.local };
                cursor.word()?;
                let each = variable(cursor)?;
                let at = size.next_multiple_of(each.align);
                *size = at + each.len;
                scope.names.insert(each.name, at as u64);
            }
            Some(".pragma" | ".loc") => {
                while !cursor.take(';') {
                    drop(cursor.word()?)
                }
            }
            Some(word) if word.starts_with('.') => return cursor.error(format!("`{word}` is not known")),
            _ => lines.push(Line::read(cursor)?),
        }
    }
    Ok(lines)
}

/// `.branchtargets a, b, c;`
fn targets(cursor: &mut Cursor) -> Result<Vec<String>, String> {
    cursor.word()?;
    let mut targets = vec![cursor.word()?];
    while cursor.take(',') {
        targets.push(cursor.word()?);
    }
    cursor.expect(';')?;
    Ok(targets)
}

/// `.reg .b32 %r<9>;`, `.reg .b64 a, b;`
fn registers(cursor: &mut Cursor, scope: &mut Scope) -> Result<(), String> {
    cursor.word()?;
    let word = cursor.word()?;
    let mask = match type_bytes(&word) {
        _ if word == ".pred" => 1,
        Some(bytes) => !0 >> (64 - 8 * bytes),
        None => return cursor.error(format!("register type `{word}` is not known")),
    };
    loop {
        let name = cursor.word()?;
        if cursor.take('<') {
            (0..cursor.number()?).try_for_each(|index| scope.declare(format!("{name}{index}"), mask))?;
            cursor.expect('>')?;
        } else {
            scope.declare(name, mask)?;
        }
        if !cursor.take(',') {
            break;
        }
    }
    if scope.masks.len() > usize::from(u16::MAX) {
        return cursor.error("too many registers");
    }
    cursor.expect(';')
}

/// Counts the divisions of 64-bit integers that are inside a loop, that is between a label and a branch back there.
fn long_divisions(code: &[Instruction]) -> u64 {
    let mut is_in_loop = vec![false; code.len()];
    for (at, instruction) in code.iter().enumerate() {
        let back = match &instruction.op {
            Op::Branch { to } => Some(*to),
            Op::Switch { to, .. } => to.iter().copied().min(),
            _ => None,
        };
        if let Some(first) = back.filter(|first| *first <= at) {
            is_in_loop[first..=at].fill(true);
        }
    }
    let counted = code.iter().zip(is_in_loop).filter(|(each, is_in_loop)| *is_in_loop && each.op.is_long_division());
    counted.count() as u64
}

impl Scope {
    /// Declares a register. Blocks of inline assembly may use a name again, for as many bits.
    fn declare(&mut self, name: String, mask: u64) -> Result<(), String> {
        match self.registers.get(&name) {
            Some(Reg(number)) if self.masks[usize::from(*number)] != mask => {
                return Err(format!("register {name} is declared twice, with other bits"));
            }
            Some(_) => {}
            None => {
                self.registers.insert(name, Reg(self.masks.len() as u16));
                self.masks.push(mask);
            }
        }
        Ok(())
    }

    /// A register by name.
    pub(crate) fn register(&self, name: &str) -> Result<Reg, String> {
        self.registers.get(name).copied().ok_or_else(|| format!("register {name} is not declared"))
    }

    /// The instruction after a label.
    pub(crate) fn label(&self, name: &str) -> Result<usize, String> {
        self.labels.get(name).copied().ok_or_else(|| format!("label {name} is not there"))
    }
}

impl Line {
    /// The predicate in front of the instruction.
    fn guard(&self, scope: &Scope) -> Result<Option<(Reg, bool)>, String> {
        let Some((name, is_negated)) = &self.guard else { return Ok(None) };
        Ok(Some((scope.register(name)?, *is_negated)))
    }

    /// Reads an instruction up to the semicolon.
    fn read(cursor: &mut Cursor) -> Result<Line, String> {
        let line = cursor.line();
        let guard = if cursor.take('@') {
            let is_negated = cursor.take('!');
            Some((cursor.word()?, is_negated))
        } else {
            None
        };
        let opcode = cursor.word()?;
        let mut operands = Vec::new();
        while !cursor.take(';') {
            operands.push(decode::Text::read(cursor)?);
            if !cursor.take(',') && !cursor.is_at(';') {
                return cursor.error(format!("`,` or `;` expected, not {:?}", cursor.peek()));
            }
        }
        Ok(Line { line, guard, opcode, operands })
    }
}

impl decode::Text {
    /// Reads one operand.
    fn read(cursor: &mut Cursor) -> Result<decode::Text, String> {
        use decode::Text;
        if cursor.take('{') {
            let mut parts = Vec::new();
            while !cursor.take('}') {
                parts.push(Text::read(cursor)?);
                cursor.take(',');
            }
            return Ok(Text::List(parts));
        }
        if cursor.take('[') {
            let base = cursor.word()?;
            let offset = if cursor.take('+') { cursor.number()? } else { 0 };
            cursor.expect(']')?;
            return Ok(Text::Address(base, offset));
        }
        if cursor.take('!') {
            return Ok(Text::Not(cursor.word()?));
        }
        if cursor.is_at('-') {
            return Ok(Text::Number(cursor.number()?));
        }
        let word = cursor.word()?;
        match cursor.peek() {
            Some(Token::Mark('|')) => {
                cursor.expect('|')?;
                Ok(Text::Pair(word, cursor.word()?))
            }
            _ => Ok(super::text::number(&word).map_or(Text::Name(word), Text::Number)),
        }
    }
}
