//! `blob ls --tree`: prints the names as a tree, split at slashes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Write;

use blob_core::DType;
use blob_io::{Checkpoint, Entry};

use crate::failure::Failure;
use crate::output::Terminal;
use crate::output::width::{cut, width};
use crate::render::table::Cut;
use crate::units;

/// The maximum depth; further slashes stay in the last part. A hostile name can have thousands, and `branch` recurses.
const MAX_DEPTH: usize = 16;

/// A name is cut to this width at the shortest.
const MIN_NAME: usize = 8;

#[derive(Default)]
struct Branch<'a> {
    name: &'a str,
    /// The tensor and the place in the file.
    tensor: Option<(usize, &'a Entry)>,
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
    let nodes = build(chosen.iter().map(|place| (*place, &checkpoint.entries()[*place])));
    let root = &nodes[0];
    writeln!(out, "{}  {}", terminal.strong(terminal.name(checkpoint.name())), terminal.dim(totals(root)))?;
    branch(&nodes, root, "", terminal, out)
}

/// The nodes of the tree: the root first, children in the order of the file.
fn build<'a>(entries: impl Iterator<Item = (usize, &'a Entry)>) -> Vec<Branch<'a>> {
    let mut nodes = vec![Branch::default()];
    // The child of a node with a name.
    let mut children: HashMap<(usize, &str), usize> = HashMap::new();
    for (place, entry) in entries {
        let mut at = 0;
        let bytes = entry.byte_len();
        nodes[0].tensors += 1;
        nodes[0].bytes += bytes;
        for part in entry.name().splitn(MAX_DEPTH, '/') {
            let next = nodes.len();
            let child = *children.entry((at, part)).or_insert(next);
            if child == next {
                nodes.push(Branch { name: part, ..Branch::default() });
                nodes[at].children.push(child);
            }
            at = child;
            nodes[at].tensors += 1;
            nodes[at].bytes += bytes;
        }
        nodes[at].tensor = Some((place, entry));
    }
    nodes
}

/// Prints the nodes below a node.
fn branch(
    nodes: &[Branch<'_>],
    node: &Branch<'_>,
    indent: &str,
    terminal: &Terminal,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let (tee, corner, bar) = if terminal.ascii { ("|- ", "`- ", "|  ") } else { ("├─ ", "└─ ", "│  ") };
    let children = || node.children.iter().map(|child| &nodes[*child]);
    // The names of one branch are cut to one width, so that no two look alike.
    let room = terminal.width.map(|most| {
        let facts = children().map(|child| width(&facts(child, terminal))).max().unwrap_or(0);
        most.saturating_sub(width(indent) + width(tee) + 2 + facts).max(MIN_NAME)
    });
    let place = room.and_then(|room| {
        Cut::distinct(
            &|each: &mut dyn FnMut(&str)| children().for_each(|child| each(&terminal.name(child.name))),
            room,
            terminal.ascii,
        )
    });
    for (i, child) in node.children.iter().enumerate() {
        let is_last = i + 1 == node.children.len();
        let child = &nodes[*child];
        let stem = if is_last { corner } else { tee };
        let name = terminal.name(child.name);
        let name = match (place, room) {
            (Some(place), _) => place.of(&name, terminal.ascii),
            (None, Some(room)) => cut(&name, room, terminal.ascii),
            (None, None) => Cow::Borrowed(&*name),
        };
        writeln!(out, "{indent}{stem}{name}  {}", terminal.dim(facts(child, terminal)))?;
        let deeper = format!("{indent}{}", if is_last { "   " } else { bar });
        branch(nodes, child, &deeper, terminal, out)?;
    }
    Ok(())
}

/// `f32 20×1×5×5  1.95 KiB  #3` of a tensor, `2 tensors, 3.91 KiB` of a node without one.
fn facts(node: &Branch<'_>, terminal: &Terminal) -> String {
    let Some((place, entry)) = node.tensor else { return totals(node) };
    let about = match (entry.fault(), entry.dtype()) {
        (Some(_), _) => "error".to_owned(),
        (None, None) if entry.foreign_dtype().is_none() => "none".to_owned(),
        (None, dtype) => {
            let dtype = dtype.map(DType::name).or(entry.foreign_dtype());
            let dtype = dtype.unwrap_or_default();
            let shape = terminal.shape(entry.shape());
            format!("{dtype} {shape}  {}", units::bytes(entry.byte_len()))
        }
    };
    format!("{about}  #{place}")
}

fn totals(node: &Branch<'_>) -> String {
    format!("{}, {}", units::plural(node.tensors, "tensor"), units::bytes(node.bytes))
}
