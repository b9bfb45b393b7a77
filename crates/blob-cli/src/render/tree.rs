//! `blob ls --tree`: names as a tree, by what stands between their slashes.

use std::collections::HashMap;
use std::io::Write;

use blob_core::DType;
use blob_io::{Checkpoint, Entry};

use crate::failure::Failure;
use crate::output::Terminal;
use crate::output::width::{cut, width};
use crate::units;

/// Slashes beyond this many stay in the last part: a hostile name can have thousands.
const DEPTH: usize = 16;

/// The least that is left of a name.
const LEAST: usize = 8;

#[derive(Default)]
struct Node<'a> {
    name: &'a str,
    tensor: Option<&'a Entry>,
    children: Vec<usize>,
    tensors: u64,
    bytes: u64,
}

/// Prints the chosen tensors as a tree, with sums for the branches.
pub(crate) fn print(
    checkpoint: &Checkpoint,
    chosen: &[usize],
    terminal: &Terminal,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let nodes = grow(chosen.iter().map(|i| &checkpoint.entries()[*i]));
    let root = &nodes[0];
    writeln!(out, "{}  {}", terminal.strong(terminal.name(checkpoint.name())), terminal.dim(sums(root)))?;
    branch(&nodes, root, "", terminal, out)
}

/// The tree as a list; the root is its first node, children stand in the order of the file.
fn grow<'a>(entries: impl Iterator<Item = &'a Entry>) -> Vec<Node<'a>> {
    let mut nodes = vec![Node::default()];
    let mut places: HashMap<(usize, &str), usize> = HashMap::new();
    for entry in entries {
        let mut at = 0;
        let bytes = entry.byte_len();
        nodes[0].tensors += 1;
        nodes[0].bytes += bytes;
        for part in entry.name().splitn(DEPTH, '/') {
            let next = nodes.len();
            let place = *places.entry((at, part)).or_insert(next);
            if place == next {
                nodes.push(Node { name: part, ..Node::default() });
                nodes[at].children.push(place);
            }
            at = place;
            nodes[at].tensors += 1;
            nodes[at].bytes += bytes;
        }
        nodes[at].tensor = Some(entry);
    }
    nodes
}

fn branch(
    nodes: &[Node<'_>],
    node: &Node<'_>,
    indent: &str,
    terminal: &Terminal,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let (tee, corner, bar) = match terminal.ascii {
        true => ("|- ", "`- ", "|  "),
        false => ("├─ ", "└─ ", "│  "),
    };
    for (i, child) in node.children.iter().enumerate() {
        let is_last = i + 1 == node.children.len();
        let child = &nodes[*child];
        let stem = if is_last { corner } else { tee };
        let facts = match child.tensor {
            Some(entry) => leaf(entry, terminal),
            None => sums(child),
        };
        let mut name = terminal.name(child.name);
        if let Some(most) = terminal.width {
            let taken = width(indent) + width(stem) + 2 + width(&facts);
            name = cut(&name, most.saturating_sub(taken).max(LEAST), terminal.ascii).into_owned().into();
        }
        writeln!(out, "{indent}{stem}{name}  {}", terminal.dim(facts))?;
        let deeper = format!("{indent}{}", if is_last { "   " } else { bar });
        branch(nodes, child, &deeper, terminal, out)?;
    }
    Ok(())
}

fn leaf(entry: &Entry, terminal: &Terminal) -> String {
    match (entry.fault(), entry.dtype()) {
        (Some(_), _) => "error".to_owned(),
        (None, None) if entry.foreign_dtype().is_none() => "none".to_owned(),
        (None, dtype) => {
            let dtype = dtype.map(DType::name).or(entry.foreign_dtype());
            let dtype = dtype.unwrap_or_default();
            let shape = terminal.shape(entry.shape());
            format!("{dtype} {shape}  {}", units::bytes(entry.byte_len()))
        }
    }
}

fn sums(node: &Node<'_>) -> String {
    format!("{}, {}", units::plural(node.tensors, "tensor"), units::bytes(node.bytes))
}
