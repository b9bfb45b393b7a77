//! One file of PTX: the version and target, the constants, the entries with the parameters.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::body;
use super::op::Instruction;
use super::text::Cursor;

/// One file of PTX.
pub(crate) struct Module {
    pub(crate) version: (u32, u32),
    /// The minimum compute capability: ten times the major version plus the minor.
    pub(crate) target: u32,
    kernels: Vec<Arc<Kernel>>,
}

/// One entry.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    /// Bytes of the parameters.
    pub(crate) params: usize,
    /// The offset and the length of each parameter.
    pub(crate) param_places: Vec<(usize, usize)>,
    /// Bytes of shared memory that the kernel declares.
    pub(crate) shared: usize,
    /// Bytes of memory of each thread.
    pub(crate) local: usize,
    /// The module's constants.
    pub(crate) constants: Arc<Vec<u8>>,
    /// The bits that each register holds.
    pub(crate) masks: Vec<u64>,
    pub(crate) code: Vec<Instruction>,
    /// The number of divisions of 64-bit integers inside a loop.
    pub(crate) long_divisions: u64,
}

/// A declared variable: alignment, bytes, name, first bytes.
pub(crate) struct Variable {
    pub(crate) align: usize,
    pub(crate) len: usize,
    pub(crate) name: String,
    bytes: Vec<u8>,
}

impl Module {
    /// Reads the text; an error names the line.
    pub(crate) fn parse(text: &str) -> Result<Module, String> {
        let mut cursor = Cursor::new(text)?;
        let mut module = Module { version: (0, 0), target: 0, kernels: Vec::new() };
        let (mut constants, mut names) = (Vec::new(), BTreeMap::new());
        let mut heads = Vec::new();
        while cursor.peek().is_some() {
            match cursor.word()?.as_str() {
                ".version" => module.version = version(&cursor.word()?).ok_or("`.version` is not read")?,
                ".target" => {
                    let target = cursor.word()?;
                    let number = target.strip_prefix("sm_").and_then(|number| number.parse().ok());
                    module.target = number.ok_or_else(|| format!("target {target}"))?;
                }
                ".address_size" if cursor.number()? == 64 => {}
                ".visible" | ".weak" => {}
                ".const" => {
                    let variable = variable(&mut cursor)?;
                    constants.resize(usize::next_multiple_of(constants.len(), variable.align), 0);
                    names.insert(variable.name, constants.len() as u64);
                    constants.extend(variable.bytes);
                }
                // NVRTC's own variables. A kernel that uses one is refused, because the name is unknown.
                ".global" => drop(variable(&mut cursor)?),
                ".entry" => heads.push(body::entry(&mut cursor, &names)?),
                word => return cursor.error(format!("`{word}` is not known")),
            }
        }
        if module.version == (0, 0) || module.target == 0 {
            return Err("no `.version` or no `.target`".to_string());
        }
        let constants = Arc::new(constants);
        let kernels = heads.into_iter().map(|kernel| Kernel { constants: constants.clone(), ..kernel });
        module.kernels = kernels.map(Arc::new).collect();
        Ok(module)
    }

    pub(crate) fn kernel(&self, name: &str) -> Option<Arc<Kernel>> {
        self.kernels.iter().find(|kernel| kernel.name == name).cloned()
    }
}

fn version(word: &str) -> Option<(u32, u32)> {
    let (major, minor) = word.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The bytes of a declared type: `.u32`, `.b8`, `.f64`.
pub(crate) fn type_bytes(word: &str) -> Option<usize> {
    let bits: usize = word.strip_prefix('.')?.trim_start_matches(['b', 'u', 's', 'f']).parse().ok()?;
    [8, 16, 32, 64].contains(&bits).then_some(bits / 8)
}

/// Reads a variable from behind the space on: `.align 4 .b8 name[32] = {…};`, the part from `=` on perhaps missing.
pub(crate) fn variable(cursor: &mut Cursor) -> Result<Variable, String> {
    let mut variable = declaration(cursor)?;
    if cursor.take('=') {
        let each = if variable.align == 0 { 1 } else { variable.element };
        let is_list = cursor.take('{');
        loop {
            let value = cursor.number()?;
            variable.bytes.extend(&value.to_le_bytes()[..each]);
            if !cursor.take(',') {
                break;
            }
        }
        if is_list {
            cursor.expect('}')?;
        }
    }
    cursor.expect(';')?;
    let Declared { align, len, name, mut bytes, .. } = variable;
    bytes.resize(len, 0);
    Ok(Variable { align, len, name, bytes })
}

/// A variable before the first bytes.
struct Declared {
    align: usize,
    element: usize,
    len: usize,
    name: String,
    bytes: Vec<u8>,
}

fn declaration(cursor: &mut Cursor) -> Result<Declared, String> {
    let (mut align, mut element) = (0, 0);
    loop {
        let word = cursor.word()?;
        match word.as_str() {
            ".align" => align = cursor.number()? as usize,
            ".attribute" => return cursor.error("`.attribute` is not known"),
            _ => match type_bytes(&word) {
                Some(bytes) => element = bytes,
                None if element == 0 => return cursor.error(format!("type `{word}` is not known")),
                None => {
                    let mut count = 1;
                    while cursor.take('[') {
                        count *= cursor.number()? as usize;
                        cursor.expect(']')?;
                    }
                    let align = align.max(element).max(1);
                    return Ok(Declared { align, element, len: element * count, name: word, bytes: Vec::new() });
                }
            },
        }
    }
}

/// A parameter of an entry, from behind `.param` on.
pub(crate) fn parameter(cursor: &mut Cursor) -> Result<Variable, String> {
    let Declared { align, len, name, bytes, .. } = declaration(cursor)?;
    Ok(Variable { align, len, name, bytes })
}
