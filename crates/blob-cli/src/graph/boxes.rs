//! A graph as boxes with arrows between them, and the texts of it for Graphviz and Mermaid.
//!
//! Knows no net: lines of text, and places in a list.

use std::collections::HashMap;
use std::fmt::Write;

use crate::escape::escape;
use crate::graph::{FileGraph, shape};

/// A layer, or a value that no layer writes.
pub(super) struct Vertex {
    /// The lines of the box.
    pub(super) lines: Vec<String>,
    /// The name of the value, where the box is one.
    value: Option<String>,
    /// Whether the layer has tensors.
    pub(super) has_tensors: bool,
}

impl Vertex {
    /// A box of one line.
    #[cfg(test)]
    pub(super) fn test(line: &str, is_value: bool) -> Self {
        Self { lines: vec![line.to_owned()], value: is_value.then(|| line.to_owned()), has_tensors: false }
    }

    /// Whether the box is a value that no layer writes.
    pub(super) fn is_value(&self) -> bool {
        self.value.is_some()
    }
}

/// Boxes, and arrows by the boxes' places. A value stands before the readers, a layer behind the inputs.
pub(super) struct Boxes {
    pub(super) vertices: Vec<Vertex>,
    /// From and to, in the order of the readers.
    pub(super) arrows: Vec<(usize, usize)>,
}

impl Boxes {
    /// The inputs and the layers of a graph.
    pub(super) fn of(graph: &FileGraph<'_>) -> Self {
        let mut boxes = Self { vertices: Vec::new(), arrows: Vec::new() };
        // The place of the box that has each value.
        let mut written: HashMap<usize, usize> = HashMap::new();
        for place in graph.graph.inputs() {
            boxes.value(graph, *place, &mut written);
        }
        for row in &graph.layers {
            // A tensor of the file that is a value of the net has a box before its first reader.
            for place in row.node.inputs.iter().filter(|place| !written.contains_key(place)).collect::<Vec<_>>() {
                boxes.value(graph, *place, &mut written);
            }
            let reader = boxes.vertices.len();
            boxes.arrows.extend(row.node.inputs.iter().map(|place| (written[place], reader)));
            written.extend(row.node.outputs.iter().map(|place| (*place, reader)));
            let lines = vec![row.node.name.clone(), row.node.type_name.clone(), row.shapes("x")];
            boxes.vertices.push(Vertex { lines, value: None, has_tensors: row.parameters > 0 });
        }
        boxes
    }

    fn value(&mut self, graph: &FileGraph<'_>, place: usize, written: &mut HashMap<usize, usize>) {
        if written.insert(place, self.vertices.len()).is_none() {
            let value = &graph.graph.values()[place];
            let lines = vec![value.name.clone(), shape(value, "x")];
            self.vertices.push(Vertex { lines, value: Some(value.name.clone()), has_tensors: false });
        }
    }

    /// The graph in Graphviz's language.
    pub(super) fn dot(&self) -> String {
        let named = self.numbered().map(|(vertex, number)| match &vertex.value {
            Some(value) => format!("{:?}", format!("value {value}").escape_default().to_string()),
            None => format!("layer{number}"),
        });
        let named: Vec<String> = named.collect();
        let mut text = "digraph net {\n  node [shape=box];\n".to_owned();
        self.each(|place, vertex, sources| {
            let (name, label) = (&named[place], vertex.lines.join("\n"));
            let shape = if vertex.is_value() { "shape=oval, " } else { "" };
            let _ = writeln!(text, "  {name} [{shape}label={label:?}];");
            sources.iter().for_each(|source| text += &format!("  {} -> {name};\n", named[*source]));
        });
        text + "}\n"
    }

    /// The graph in Mermaid's language.
    pub(super) fn mermaid(&self) -> String {
        let named =
            self.numbered().map(|(vertex, number)| format!("{}{number}", if vertex.is_value() { "v" } else { "l" }));
        let named: Vec<String> = named.collect();
        let mut text = "flowchart TD\n".to_owned();
        self.each(|place, vertex, sources| {
            let name = &named[place];
            let label = vertex.lines.iter().map(|line| entities(line)).collect::<Vec<_>>().join("<br>");
            let [open, close] = if vertex.is_value() { ["([", "])"] } else { ["[", "]"] };
            let _ = writeln!(text, "  {name}{open}\"{label}\"{close}");
            sources.iter().for_each(|source| text += &format!("  {} --> {name}\n", named[*source]));
        });
        text
    }

    /// The boxes, each with its number among the values or among the layers.
    fn numbered(&self) -> impl Iterator<Item = (&Vertex, usize)> {
        let mut counts = [0; 2];
        self.vertices.iter().map(move |vertex| {
            let count = &mut counts[usize::from(vertex.is_value())];
            *count += 1;
            (vertex, *count - 1)
        })
    }

    /// Calls with each box: the place, the box, and the places of those with arrows to it.
    fn each(&self, mut call: impl FnMut(usize, &Vertex, &[usize])) {
        let mut arrows = self.arrows.iter().peekable();
        for (place, vertex) in self.vertices.iter().enumerate() {
            let mut sources = Vec::new();
            while let Some((from, _)) = arrows.next_if(|(_, to)| *to == place) {
                sources.push(*from);
            }
            call(place, vertex, &sources);
        }
    }
}

/// A line for Mermaid, which reads markup in labels, and entities that begin with `#`.
fn entities(line: &str) -> String {
    let escaped = escape(line);
    let shown = escaped.chars().map(|c| match c {
        plain if plain.is_alphanumeric() || " _./:-×".contains(plain) => plain.to_string(),
        other => format!("#{};", u32::from(other)),
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text_in_both_languages() {
        let name = "a\"]; b<script>#35;\n";
        let boxes =
            Boxes { vertices: vec![Vertex::test(name, true), Vertex::test(name, false)], arrows: vec![(0, 1), (0, 1)] };
        let mermaid = "flowchart TD\n  v0([\"a#34;#93;#59; b#60;script#62;#35;35#59;#92;n\"])\n  \
                       l0[\"a#34;#93;#59; b#60;script#62;#35;35#59;#92;n\"]\n  v0 --> l0\n  v0 --> l0\n";
        assert_eq!(boxes.mermaid(), mermaid);
        let dot = boxes.dot();
        assert!(dot.contains("  layer0 [label=\"a\\\"]; b<script>#35;\\n\"];\n"), "{dot}");
        assert_eq!(dot.lines().count(), 7, "{dot}");
    }
}
