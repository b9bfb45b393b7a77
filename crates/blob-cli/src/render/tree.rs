//! `blob ls --tree`: prints the names as a tree, split at their slashes.

use std::collections::HashMap;
use std::io::Write;

use blob_core::DType;
use blob_io::{Checkpoint, Entry};

use crate::failure::Failure;
use crate::output::Terminal;
use crate::output::width::{cut, width};
use crate::units;

/// The maximum depth; further slashes stay in the last part. A hostile name can have thousands, and `branch` recurses.
const MAX_DEPTH: usize = 16;

/// A name is cut to this width at the shortest.
const MIN_NAME: usize = 8;

#[derive(Default)]
struct Node<'a> {
    name: &'a str,
    tensor: Option<&'a Entry>,
    children: Vec<usize>,
    tensors: u64,
    bytes: u64,
}

/// Prints the chosen tensors as a tree, with totals for the branches.
pub(crate) fn print(
    checkpoint: &Checkpoint,
    chosen: &[usize],
    terminal: &Terminal,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let nodes = build(chosen.iter().map(|i| &checkpoint.entries()[*i]));
    let root = &nodes[0];
    writeln!(out, "{}  {}", terminal.strong(terminal.name(checkpoint.name())), terminal.dim(totals(root)))?;
    branch(&nodes, root, "", terminal, out)
}

/// The nodes of the tree: the root first, children in the order of the file.
fn build<'a>(entries: impl Iterator<Item = &'a Entry>) -> Vec<Node<'a>> {
    let mut nodes = vec![Node::default()];
    // The child of a node with a name.
    let mut children: HashMap<(usize, &str), usize> = HashMap::new();
    for entry in entries {
        let mut at = 0;
        let bytes = entry.byte_len();
        nodes[0].tensors += 1;
        nodes[0].bytes += bytes;
        for part in entry.name().splitn(MAX_DEPTH, '/') {
            let next = nodes.len();
            let child = *children.entry((at, part)).or_insert(next);
            if child == next {
                nodes.push(Node { name: part, ..Node::default() });
                nodes[at].children.push(child);
            }
            at = child;
            nodes[at].tensors += 1;
            nodes[at].bytes += bytes;
        }
        nodes[at].tensor = Some(entry);
    }
    nodes
}

/// Prints the nodes below a node.
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
            None => totals(child),
        };
        let mut name = terminal.name(child.name);
        if let Some(most) = terminal.width {
            let taken = width(indent) + width(stem) + 2 + width(&facts);
            name = cut(&name, most.saturating_sub(taken).max(MIN_NAME), terminal.ascii).into_owned().into();
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

fn totals(node: &Node<'_>) -> String {
    format!("{}, {}", units::plural(node.tensors, "tensor"), units::bytes(node.bytes))
}
