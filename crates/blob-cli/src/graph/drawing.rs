//! Draws boxes and arrows as SVG: from the top down, each box below those with arrows to it.
//!
//! An arrow to the next row is a curve; a longer one goes down beside the rows between, so that it crosses no box.

use std::fmt::Write;

use crate::failure::Failure;
use crate::graph::boxes::{Boxes, Vertex};
use crate::output::width::cut;
use crate::render::svg::{Drawing, escape_markup};

/// The most boxes of a drawing: a larger one is of no use to a reader, and browsers are slow with it.
const MOST: usize = 4096;

/// The size of a box, and the space beside and below it.
const WIDTH: usize = 200;
const HEIGHT: usize = 58;
const BESIDE: usize = 24;
const BELOW: usize = 36;

/// The width of the way of one long arrow, and the lines' height.
const LANE: usize = 12;
const LINE: usize = 17;

/// The most characters of a line in a box.
const LONGEST: usize = 23;

/// Where the boxes and the long arrows are.
struct Places {
    /// The row of each box.
    rows: Vec<usize>,
    /// The left edge of each box.
    lefts: Vec<usize>,
    /// For each arrow that passes rows: the distance from the left.
    ways: Vec<Option<usize>>,
    width: usize,
}

/// The drawing of a graph.
pub(super) fn drawing(boxes: &Boxes) -> Result<Drawing, Failure> {
    let count = boxes.vertices.len();
    if count > MOST {
        let message = format!("the graph has {count} boxes, and a drawing has room for {MOST}");
        return Err(Failure::new(message).help("draw it with Graphviz: --dot"));
    }
    let places = Places::of(boxes);
    let mut markup = "<style>.box{fill:#3b6ea5;fill-opacity:.07;stroke:currentColor;stroke-opacity:.5}\
        .full{fill-opacity:.28}.way{fill:none;stroke:currentColor;stroke-opacity:.55}</style>\
        <marker id=\"end\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">\
        <path d=\"M0 0L8 4L0 8z\" fill=\"currentColor\"/></marker>\n"
        .to_owned();
    for ((from, to), way) in boxes.arrows.iter().zip(&places.ways) {
        let curve = places.curve(*from, *to, *way);
        let _ = writeln!(markup, "<path class=\"way\" marker-end=\"url(#end)\" d=\"{curve}\"/>");
    }
    for (place, vertex) in boxes.vertices.iter().enumerate() {
        markup += &places.vertex(place, vertex);
    }
    let rows = places.rows.iter().max().map_or(0, |last| last + 1);
    Ok(Drawing { width: places.width, height: rows * (HEIGHT + BELOW), markup })
}

/// The row of each box: layers as high as their inputs allow, values above their first reader.
fn rows(boxes: &Boxes) -> Vec<usize> {
    let mut rows = vec![0; boxes.vertices.len()];
    let sorted = boxes.arrows.iter();
    // Arrows stand in the order of their readers, so that a writer's row is known.
    sorted.for_each(|(from, to)| rows[*to] = rows[*to].max(rows[*from] + 1));
    let mut first = vec![usize::MAX; boxes.vertices.len()];
    for (from, to) in &boxes.arrows {
        first[*from] = first[*from].min(rows[*to] - 1);
    }
    for (place, vertex) in boxes.vertices.iter().enumerate() {
        if vertex.is_value() && first[place] != usize::MAX {
            rows[place] = first[place];
        }
    }
    rows
}

impl Places {
    fn of(boxes: &Boxes) -> Self {
        let rows = rows(boxes);
        let count = rows.iter().max().map_or(0, |last| last + 1);
        let mut of_row = vec![Vec::new(); count];
        rows.iter().enumerate().for_each(|(place, row)| of_row[*row].push(place));
        let widest = of_row.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let width = widest * (WIDTH + BESIDE) - BESIDE;
        let (mut lefts, mut sources) = (vec![0; rows.len()], vec![Vec::new(); rows.len()]);
        boxes.arrows.iter().for_each(|(from, to)| sources[*to].push(*from));
        for row in &mut of_row {
            // Below the middle of a box's inputs, arrows cross the least.
            row.sort_by_key(|place| {
                let sources: &Vec<usize> = &sources[*place];
                sources.iter().map(|source| lefts[*source]).sum::<usize>() / sources.len().max(1)
            });
            let own = row.len() * (WIDTH + BESIDE) - BESIDE;
            for (column, place) in row.iter().enumerate() {
                lefts[*place] = (width - own) / 2 + column * (WIDTH + BESIDE);
            }
        }
        let edges: Vec<usize> =
            of_row.iter().map(|row| row.iter().map(|place| lefts[*place] + WIDTH).max().unwrap_or(0)).collect();
        let mut places = Self { rows, lefts, ways: Vec::new(), width };
        places.pass(&boxes.arrows, &edges);
        places
    }

    /// Leads each arrow that passes rows down beside them; `edges` has the right edge of each row.
    fn pass(&mut self, arrows: &[(usize, usize)], edges: &[usize]) {
        // The last row that an arrow of each lane passes.
        let mut lanes: Vec<usize> = Vec::new();
        for (from, to) in arrows {
            let (above, below) = (self.rows[*from] + 1, self.rows[*to]);
            if above >= below {
                self.ways.push(None);
                continue;
            }
            let lane = lanes.iter().position(|last| *last < above).unwrap_or(lanes.len());
            lanes.resize(lanes.len().max(lane + 1), 0);
            lanes[lane] = below;
            let edge = edges[above..below].iter().max().copied().unwrap_or(0);
            let way = edge + LANE * (lane + 1);
            self.width = self.width.max(way + LANE);
            self.ways.push(Some(way));
        }
    }

    fn top(&self, place: usize) -> usize {
        self.rows[place] * (HEIGHT + BELOW)
    }

    /// The way of an arrow from the middle below one box to the middle above another.
    fn curve(&self, from: usize, to: usize, way: Option<usize>) -> String {
        let (x, y) = (self.lefts[from] + WIDTH / 2, self.top(from) + HEIGHT);
        let (end, bottom) = (self.lefts[to] + WIDTH / 2, self.top(to));
        let half = BELOW / 2;
        match way {
            None => format!("M{x} {y}C{x} {} {end} {} {end} {bottom}", y + half, bottom - half),
            Some(way) => {
                let (above, below) = (y + BELOW, bottom - BELOW);
                format!(
                    "M{x} {y}C{x} {0} {way} {0} {way} {above}V{below}C{way} {1} {end} {1} {end} {bottom}",
                    y + half,
                    bottom - half
                )
            }
        }
    }

    fn vertex(&self, place: usize, vertex: &Vertex) -> String {
        let (x, y, round) = (self.lefts[place], self.top(place), if vertex.is_value() { HEIGHT / 2 } else { 4 });
        let class = if vertex.has_tensors { "box full" } else { "box" };
        let mut text = format!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"{round}\"/>"
        );
        let first = y + (HEIGHT - LINE * vertex.lines.len()) / 2 + LINE - 4;
        for (number, line) in vertex.lines.iter().enumerate() {
            let (x, y) = (x + WIDTH / 2, first + LINE * number);
            let weight = if number == 0 { " font-weight=\"bold\"" } else { "" };
            let line = escape_markup(&cut(line, LONGEST, false));
            let _ = write!(text, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\"{weight}>{line}</text>");
        }
        text + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Boxes of which each reads a few of the ones before.
    fn random(seed: u64, count: usize) -> Boxes {
        let mut state = seed;
        let mut below = |most: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % most
        };
        let mut boxes = Boxes { vertices: Vec::new(), arrows: Vec::new() };
        for to in 0..count {
            let sources = if to == 0 { 0 } else { below(4) };
            boxes.arrows.extend((0..sources).map(|_| (to - 1 - below(to.min(6)), to)));
            boxes.vertices.push(Vertex::test(&format!("box {to}"), sources == 0));
        }
        boxes
    }

    #[test]
    fn arrows_lead_down_and_cross_no_box() {
        let (mut long, mut shared) = (0, 0);
        for seed in 0..200 {
            let boxes = random(seed, 2 + seed as usize % 40);
            let places = Places::of(&boxes);
            let (all, right) = (0..boxes.vertices.len(), |place: usize| places.lefts[place] + WIDTH);
            for one in all.clone() {
                for other in all.clone().filter(|other| *other < one && places.rows[*other] == places.rows[one]) {
                    let [first, second] = [one, other].map(|place| places.lefts[place]);
                    assert!(first.abs_diff(second) >= WIDTH + BESIDE, "seed {seed}: {one} and {other} overlap");
                }
                assert!(right(one) <= places.width);
            }
            let mut taken = std::collections::HashSet::new();
            for ((from, to), way) in boxes.arrows.iter().zip(&places.ways) {
                let passed = places.rows[*from] + 1..places.rows[*to];
                assert!(places.rows[*to] > places.rows[*from], "seed {seed}: {from} -> {to} leads up");
                assert_eq!(way.is_some(), !passed.is_empty(), "seed {seed}: {from} -> {to}");
                let Some(way) = way else { continue };
                long += 1;
                let crossed = all.clone().find(|place| passed.contains(&places.rows[*place]) && right(*place) >= *way);
                assert_eq!(crossed, None, "seed {seed}: {from} -> {to}");
                assert!(*way < places.width);
                shared += passed.filter(|row| !taken.insert((*row, *way))).count();
            }
        }
        assert!(long > 500 && shared == 0, "{long} long arrows, {shared} of one way");
    }

    #[test]
    fn a_drawing_has_each_box_and_arrow() {
        let mut boxes = random(7, 30);
        boxes.vertices[3] = Vertex::test("</text><script>", false);
        let drawn = drawing(&boxes).expect("a drawing").markup;
        assert_eq!(drawn.matches("<rect ").count(), 30);
        assert_eq!(drawn.matches("<path class=\"way\"").count(), boxes.arrows.len());
        assert!(drawn.contains("&lt;/text&gt;&lt;script&gt;</text>") && !drawn.contains("<script"));
        assert!(drawing(&random(1, MOST)).is_ok() && drawing(&random(1, MOST + 1)).is_err());
    }
}
