//! Reads MXNet's symbol files (`-symbol.json`): a net's variables with shapes, dtypes and the mark of auxiliary states,
//! and the operators as a net's layers.
//!
//! Reads every generation: nnvm's nodes (MXNet 0.9 and newer), and older nodes, which leave auxiliary states out.
//! Evaluates no operator; `operator` derives shapes from attributes alone.

use std::sync::Arc;

use blob_core::DType;

use super::flags;
use super::layers::{Inputs, Layers};
use super::operator::{Operator, dims_of};
use crate::error::{Error, FaultKind, ReadError, check_limit};
use crate::limits::{LONGEST_NAME, Limit, Limits};
use crate::net::Net;
use crate::wire::cursor::Cursor;
use crate::wire::literal::Literal;
use crate::wire::source::{Bytes, Source};

/// Longer files are refused: the largest net of a model zoo has under a megabyte.
pub(crate) const MAX_BYTES: u64 = 128 << 20;
/// A node with more inputs is refused: the largest concatenations have a few hundred.
const MAX_INPUTS: u64 = 1 << 16;
/// How deep skipped values may nest, for example subgraphs.
const MAX_NESTED: u32 = 64;
/// A longer attribute is not read: those that matter are numbers and short lists. It counts as one with this text.
const MAX_TEXT: u64 = 1 << 10;
const TOO_LONG: &str = "(a text of more than 1024 bytes)";
/// Variables with these suffixes are learnt, under any operator: MXNet's `Initializer` decides by the suffix.
const LEARNT_SUFFIXES: [&str; 9] =
    ["weight", "bias", "gamma", "beta", "moving_mean", "moving_var", "running_mean", "running_var", "parameters"];

/// A net's variables, read from a symbol file.
///
/// ```
/// use blob_io::mxnet::Symbol;
///
/// let json = br#"{"nodes": [
///     {"op": "null", "name": "data", "inputs": []},
///     {"op": "null", "name": "fc_weight", "inputs": []},
///     {"op": "FullyConnected", "name": "fc", "attrs": {"num_hidden": "10", "no_bias": "True"},
///      "inputs": [[0, 0, 0], [1, 0, 0]]}
/// ]}"#;
/// let symbol = Symbol::from_bytes("net-symbol.json", json)?;
/// let [data, weight] = &symbol.variables[..] else { panic!("two variables") };
/// assert_eq!((&*weight.name, weight.dims.as_deref()), ("fc_weight", Some(&[Some(10), None][..])));
/// assert!(weight.is_parameter && !data.is_parameter);
/// # Ok::<(), blob_io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Symbol {
    /// The file's name.
    pub name: String,
    /// The variables, auxiliary states included, in the order of the file.
    pub variables: Vec<Variable>,
    /// The net's operators as layers, in the order of the file.
    pub net: Net,
}

/// A variable of a net: an input, a parameter or an auxiliary state.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Variable {
    /// The name, without `arg:` or `aux:`.
    pub name: Arc<str>,
    /// Whether the variable is an auxiliary state, which an operator changes, such as the running mean of a BatchNorm.
    pub is_auxiliary: bool,
    /// Whether the variable is learnt, so that files of parameters have an array for the variable. The name shows this,
    /// or an operator that reads the variable. Data and labels are not learnt, nor is a variable with another name that
    /// only unknown operators use.
    pub is_parameter: bool,
    /// The declared shape, else the shape from the operator's attributes; `None` for an axis, or for a whole shape,
    /// that depends on the net's input.
    pub dims: Option<Box<[Option<usize>]>>,
    /// The declared dtype, if there is one.
    pub dtype: Option<DType>,
}

impl Symbol {
    /// Reads a symbol file's bytes; errors call the file `name`.
    ///
    /// # Errors
    /// [`Error::Malformed`] or [`Error::LimitExceeded`], with the offset, for bytes that are no symbol file.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Result<Self, Error> {
        Self::from_source(name, &Bytes(bytes.to_vec()))
    }

    pub(crate) fn from_source(name: &str, source: &dyn Source) -> Result<Self, Error> {
        let mut cursor = Cursor::new(source);
        let read = check_limit(0, Limit::Fixed, "the bytes of a symbol file", source.len(), MAX_BYTES)
            .map_err(ReadError::from)
            .and_then(|()| nodes(&mut Literal::new(&mut cursor, source.len()), &Limits::default()));
        let Nodes { variables, of_node, behind, layers } = read.map_err(|stop| stop.into_error(name))?;
        let mut nodes: Vec<(Vec<u64>, &Arc<str>)> =
            variables.iter().map(|variable| (Vec::new(), &variable.name)).collect();
        for (node, (own, behind)) in (0..).zip(of_node.iter().zip(&behind)) {
            if let Some(variable) = own.or(*behind) {
                nodes[variable as usize].0.push(node);
            }
        }
        let net = layers.finish(&nodes).map_err(|fault| ReadError::from(fault).into_error(name))?;
        Ok(Self { name: name.to_owned(), variables, net })
    }
}

impl Variable {
    /// Marks the variable as learnt and adds the extents that an operator determines, without changing declared ones.
    fn mark_parameter(&mut self, dims: Option<Vec<Option<usize>>>, is_auxiliary: bool) {
        self.is_parameter = true;
        self.is_auxiliary |= is_auxiliary;
        let Some(found) = dims else {
            return;
        };
        match &mut self.dims {
            None => self.dims = Some(found.into()),
            Some(own) if own.len() == found.len() => {
                own.iter_mut().zip(found).for_each(|(own, found)| *own = own.or(found));
            }
            Some(_) => {}
        }
    }
}

/// `{"nodes": […], …}`, then blanks.
fn nodes(text: &mut Literal<'_, '_>, limits: &Limits) -> Result<Nodes, ReadError> {
    let mut nodes = Nodes { variables: Vec::new(), of_node: Vec::new(), behind: Vec::new(), layers: Layers::new() };
    let (begin, mut found) = (text.pos(), false);
    text.members(|text| {
        text.blank()?;
        let at = text.pos();
        match (text.key()?.as_str(), found) {
            ("nodes", true) => Err(ReadError::fault(at, FaultKind::words("one list of nodes", "another one"))),
            ("nodes", false) => {
                found = true;
                text.items(|text| nodes.read(text, limits))
            }
            // Each is an output of a node, as in `inputs`. A node that does not exist is ignored.
            ("heads", _) => text.items(|text| {
                let at = text.pos();
                let InputRef { node, output, .. } = input_ref(text)?;
                nodes.layers.head(node, output, at)
            }),
            _ => text.skip_json(MAX_NESTED),
        }
    })?;
    text.blank()?;
    if text.peek()?.is_some() {
        return Err(text.unexpected("blanks after the symbol")?);
    }
    if !found {
        return Err(ReadError::fault(begin, FaultKind::words("a symbol with a list of nodes", "none")));
    }
    Ok(nodes)
}

/// The nodes so far.
struct Nodes {
    variables: Vec<Variable>,
    /// The variable of each node; `None` for operators, which most nodes are.
    of_node: Vec<Option<u32>>,
    /// The variable whose values an operator passes on unchanged.
    behind: Vec<Option<u32>>,
    layers: Layers,
}

/// An entry of a node's inputs: the node, the output of that node, and the version, if the file has versions.
struct InputRef {
    node: u64,
    output: u64,
    version: Option<u64>,
}

impl Nodes {
    fn read(&mut self, text: &mut Literal<'_, '_>, limits: &Limits) -> Result<(), ReadError> {
        text.blank()?;
        let at = text.pos();
        let (mut op, mut name, mut inputs) = (None, None, Vec::new());
        let (mut operator, mut declared) = (Operator::default(), Variable::default());
        text.members(|text| {
            match text.key()?.as_str() {
                "op" => op = Some(text.json_string(LONGEST_NAME, "an operator's name")?),
                "name" => name = Some(text.json_string(LONGEST_NAME, "a node's name")?),
                // Before nnvm an operator's attributes were called param and a user's attr; then attr, now attrs.
                "attrs" | "attr" | "param" => attributes(text, &mut operator, &mut declared)?,
                "inputs" => {
                    inputs.clear();
                    text.items(|text| {
                        let count = inputs.len() as u64 + 1;
                        check_limit(text.pos(), Limit::Fixed, "the number of inputs", count, MAX_INPUTS)?;
                        inputs.push(input_ref(text)?);
                        Ok(())
                    })?;
                }
                _ => text.skip_json(MAX_NESTED)?,
            }
            Ok(())
        })?;
        let missing = |what| ReadError::fault(at, FaultKind::words(what, "a node without it"));
        let (op, name) = (op.ok_or_else(|| missing("an op"))?, name.ok_or_else(|| missing("a name"))?);
        if op == "null" {
            self.of_node.push(Some(self.variables.len() as u32));
            self.behind.push(None);
            let is_parameter = LEARNT_SUFFIXES.iter().any(|ending| name.ends_with(ending));
            if let Some(dims) = declared.dims.as_deref().filter(|_| !is_parameter) {
                self.layers.declare(self.of_node.len() as u64 - 1, dims);
            }
            return self.push(Variable { name: name.into(), is_parameter, ..declared }, at, limits);
        }
        operator.op = op;
        self.apply(&operator, &name, &inputs, at, limits)?;
        let behind = inputs.first().filter(|_| operator.passes_on()).and_then(|used| self.behind(used.node));
        self.behind.push(behind);
        self.of_node.push(None);
        Ok(())
    }

    /// The variable behind a node: the node itself, or the variable whose values the node passes on.
    fn behind(&self, node: u64) -> Option<u32> {
        let node = usize::try_from(node).ok()?;
        self.of_node.get(node).copied().flatten().or_else(|| self.behind.get(node).copied().flatten())
    }

    fn push(&mut self, variable: Variable, at: u64, limits: &Limits) -> Result<(), ReadError> {
        let count = self.variables.len() as u64 + 1;
        check_limit(at, Limit::Arrays, "the number of variables", count, limits.max_arrays)?;
        self.variables.push(variable);
        Ok(())
    }

    /// Adds an operator: marks the variables that are parameters, and adds the layer.
    fn apply(
        &mut self,
        operator: &Operator,
        name: &str,
        inputs: &[InputRef],
        at: u64,
        limits: &Limits,
    ) -> Result<(), ReadError> {
        let mut layer_inputs = Inputs::default();
        for (index, used) in inputs.iter().enumerate() {
            let node = usize::try_from(used.node).ok().and_then(|node| self.of_node.get(node));
            let node = node.ok_or_else(|| {
                let found = format!("node {}, which does not come before", used.node);
                ReadError::fault(at, FaultKind::words("an input that comes before its user", found))
            })?;
            // A parameter may come through operators that only pass values on.
            let behind = self.behind(used.node).filter(|_| operator.has_parameter(index));
            // Measured on 25 models: an edge leads to an auxiliary state exactly if the edge's version is above 0.
            let is_changed = used.version.is_some_and(|version| version > 0);
            let parameter = node.or(behind).filter(|_| is_changed || operator.has_parameter(index));
            if let Some(variable) = parameter {
                let variable = &mut self.variables[variable as usize];
                variable.mark_parameter(operator.dims(index), is_changed);
                layer_inputs.tensors.push((operator.role(index), Arc::clone(&variable.name)));
            } else {
                if !operator.passes_on() {
                    self.layers.reads(used.node);
                }
                layer_inputs.bottoms.push((used.node, used.output));
            }
        }
        // Before nnvm, auxiliary states were not nodes; MXNet adds these states when loading such a file.
        if inputs.iter().all(|used| used.version.is_none()) {
            for (index, suffix) in operator.auxiliary() {
                if inputs.len() <= *index {
                    let mut variable = Variable { name: format!("{name}_{suffix}").into(), ..Variable::default() };
                    variable.mark_parameter(operator.dims(*index), true);
                    layer_inputs.tensors.push((operator.role(*index), Arc::clone(&variable.name)));
                    self.push(variable, at, limits)?;
                }
            }
        }
        self.layers.push(operator, name, self.of_node.len() as u64, layer_inputs, at)?;
        Ok(())
    }
}

/// One entry of `inputs`: `[node, output]`, in newer files `[node, output, version]`.
fn input_ref(text: &mut Literal<'_, '_>) -> Result<InputRef, ReadError> {
    text.blank()?;
    let at = text.pos();
    text.expect(b'[', "an input's numbers")?;
    let numbers = text.numbers(b']', "a number")?;
    match numbers.kept[..] {
        [node, output] => Ok(InputRef { node, output, version: None }),
        [node, output, version] => Ok(InputRef { node, output, version: Some(version) }),
        _ => {
            let found = format!("{} of them", numbers.count);
            Err(ReadError::fault(at, FaultKind::words("an input of two or three numbers", found)))
        }
    }
}

/// Reads the attributes of a node, which are all texts: those of an operator, or the declaration of a variable.
fn attributes(text: &mut Literal<'_, '_>, operator: &mut Operator, declared: &mut Variable) -> Result<(), ReadError> {
    text.members(|text| {
        let key = text.key()?;
        if text.peek()? != Some(b'"') {
            return text.skip_json(MAX_NESTED);
        }
        let value = text.json_string_up_to(MAX_TEXT)?.unwrap_or_else(|| TOO_LONG.to_owned());
        match key.as_str() {
            "__shape__" => declared.dims = dims_of(&value).map(Vec::into_boxed_slice),
            "__dtype__" => declared.dtype = value.parse().ok().and_then(flags::dtype),
            _ => operator.set(&key, &value),
        }
        Ok(())
    })
}
