//! Boxes: anchors, decoding, suppression of overlapping boxes, and SSD's detections.
//!
//! `NonMaxSuppression` limits the boxes that are left, MXNet those that are suppressed, so `TopK` stands before it. It
//! suppresses above the threshold, MXNet from the threshold on.

use blob_core::DType;
use blob_io::onnx::Attribute;

use crate::forms::{Cut, FLOAT, clipped, compared, concat, cut, indices, reduced, split, unary, with};
use crate::operand::{Operand, count, shown};
use crate::site::Site;
use crate::target::Ssd;
use crate::unsupported::Refusal;

/// The most numbers of one layer's anchors.
const MAX_ANCHORS: u64 = 1 << 23;
/// The most images, or classes apart, of one suppression: each has nodes of its own.
const MAX_IMAGES: u64 = 256;
/// The most classes.
const MAX_CLASSES: u64 = 1 << 12;

/// Four numbers of a parameter.
fn four(site: &Site<'_>, name: &str) -> Result<[f32; 4], Refusal> {
    let numbers = site.floats(name)?;
    <[f32; 4]>::try_from(numbers).or_else(|_| site.refuse(name, "has not 4 numbers"))
}

fn two(site: &Site<'_>, name: &str) -> Result<[f32; 2], Refusal> {
    let numbers = site.floats(name)?;
    <[f32; 2]>::try_from(numbers).or_else(|_| site.refuse(name, "has not 2 numbers"))
}

/// The anchors around each place of a map, in parts of the image.
pub(super) fn multi_box_prior(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    site.rank(&x, 4..=4)?;
    let (sizes, ratios) = (site.floats("sizes")?, site.floats("ratios")?);
    let (steps, offsets) = (two(site, "steps")?, two(site, "offsets")?);
    let [height, width] = [x.shape[2], x.shape[3]];
    let (Some(smallest), Some(first)) = (sizes.first().copied(), ratios.first().copied()) else {
        return site.refuse("sizes", "and ratios have a number each at least");
    };
    if ratios.iter().chain(&sizes).any(|number| *number <= 0.0) {
        return site.refuse("ratios", "and sizes are above 0");
    }
    let narrow = height as f32 / width as f32;
    let half = |size: f32, ratio: f32| (size * narrow * ratio.sqrt() / 2.0, size / ratio.sqrt() / 2.0);
    let mut boxes: Vec<(f32, f32)> = sizes.iter().map(|size| half(*size, first)).collect();
    boxes.extend(ratios[1..].iter().map(|ratio| half(smallest, *ratio)));
    let total = count(&[height, width, boxes.len() as u64, 4])?;
    if total > MAX_ANCHORS {
        return Err(Refusal::shape(format!("{total} numbers of boxes, where {MAX_ANCHORS} are supported")));
    }
    let step = |stated: f32, cells: u64| if stated <= 0.0 { 1.0 / cells as f32 } else { stated };
    let (step_y, step_x) = (step(steps[0], height), step(steps[1], width));
    let clip = site.flag("clip")?;
    site.body.room(4 * total)?;
    let mut values = Vec::with_capacity(total as usize);
    for place in 0..height * width {
        let y = ((place / width) as f32 + offsets[0]) * step_y;
        let x = ((place % width) as f32 + offsets[1]) * step_x;
        for (wide, high) in &boxes {
            let edges = [x - wide, y - high, x + wide, y + high];
            values.extend(edges.map(|edge| if clip { edge.clamp(0.0, 1.0) } else { edge }));
        }
    }
    Ok(vec![site.floats_of(&values, &[1, total / 4, 4])?])
}

/// The parameters of a decoding.
struct Decoding {
    factors: [f32; 4],
    /// Whether anchors are edges, not centre and size.
    by_edges: bool,
    /// The most by which a size grows, as a logarithm.
    most: Option<f32>,
}

impl Decoding {
    /// The edges of the boxes that moves of anchors mean; the last axis has 4 numbers in both.
    fn boxes(&self, site: &mut Site<'_>, moves: &Operand, anchors: &Operand) -> Result<Operand, Refusal> {
        let last = moves.shape.len() - 1;
        let mut shape = moves.shape.clone();
        shape[last] = 2;
        let (moves, anchors) = (split(site, moves, last, &[2, 2])?, split(site, anchors, last, &[2, 2])?);
        let half = site.scalar(0.5)?;
        let small = anchors[0].shape.clone();
        let (centre, size) = if self.by_edges {
            let size = site.op("Sub", &[&anchors[1], &anchors[0]], vec![], small.clone())?;
            let reach = site.op("Mul", &[&size, &half], vec![], small.clone())?;
            (site.op("Add", &[&anchors[0], &reach], vec![], small)?, size)
        } else {
            (anchors[0].clone(), anchors[1].clone())
        };
        let moved = self.scaled(site, &moves[0], 0)?;
        let mut grown = self.scaled(site, &moves[1], 2)?;
        if let Some(most) = self.most {
            grown = clipped(site, &grown, f32::MIN, most)?;
        }
        let grown = unary(site, "Exp", &grown, vec![])?;
        let mut op = |op_type: &str, inputs: &[&Operand]| site.op(op_type, inputs, vec![], shape.clone());
        let moved = op("Mul", &[&moved, &size])?;
        let centre = op("Add", &[&moved, &centre])?;
        let extent = op("Mul", &[&grown, &size])?;
        let reach = op("Mul", &[&extent, &half])?;
        let (low, high) = (op("Sub", &[&centre, &reach])?, op("Add", &[&centre, &reach])?);
        concat(site, &[low, high], last)
    }

    /// Two of four numbers by which the moves are multiplied.
    fn scaled(&self, site: &mut Site<'_>, moves: &Operand, first: usize) -> Result<Operand, Refusal> {
        let pair = &self.factors[first..first + 2];
        if pair[0] == pair[1] {
            return with(site, "Mul", moves.clone(), pair[0], 1.0);
        }
        let factors = site.floats_of(pair, &[2])?;
        site.op("Mul", &[moves, &factors], vec![], moves.shape.clone())
    }
}

pub(super) fn box_decode(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (moves, anchors) = (site.x(), site.inputs[1].clone());
    let boxes = moves.shape.get(1).copied().unwrap_or(0);
    if moves.shape.len() != 3 || moves.shape[2] != 4 || anchors.shape != [1, boxes, 4] {
        return Err(Refusal::shape(format!("{} moves of {} anchors", shown(&moves.shape), shown(&anchors.shape))));
    }
    let factors = [site.float("std0")?, site.float("std1")?, site.float("std2")?, site.float("std3")?];
    let (by_edges, most) = (site.choice("format", 0, &["corner", "center"])? == 0, site.float("clip")?);
    let decoding = Decoding { factors, by_edges, most: (most > 0.0).then_some(most) };
    Ok(vec![decoding.boxes(site, &moves, &anchors)?])
}

/// The elements at places along the first axis; no place is known before the run where `places` says 0.
fn gathered(site: &mut Site<'_>, x: &Operand, places: &Operand) -> Result<Operand, Refusal> {
    let shape = [&places.shape[..], &x.shape[1..]].concat();
    let outputs = site.ops("Gather", &[x, places], vec![("axis", Attribute::Int(0))], vec![(x.dtype, shape)])?;
    outputs.into_iter().next().ok_or_else(|| Refusal::shape("no output"))
}

/// One column of rows.
fn column(site: &mut Site<'_>, rows: &Operand, at: u64) -> Result<Operand, Refusal> {
    let one = cut(site, rows, &[Cut { axis: 1, start: at, end: at + 1 }])?;
    site.reshape(&one, &[rows.shape[0]])
}

/// More than any score.
const BELOW: f32 = 1e30;

/// The columns of rows of boxes, and how many boxes are looked at.
struct Columns {
    edges: u64,
    score: u64,
    class: Option<u64>,
    most: u64,
}

/// The rows of boxes that overlap no better one of their class, the best first; the others are −1. Each image is
/// looked at alone.
pub(super) fn box_nms(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    site.rank(&x, 2..=8)?;
    let (leading, [rows, width]) = x.shape.split_at(x.shape.len() - 2) else {
        return Err(Refusal::shape(format!("boxes of {}", shown(&x.shape))));
    };
    let images = count(leading)?;
    if images > MAX_IMAGES {
        return Err(Refusal::shape(format!("{images} images with boxes, where {MAX_IMAGES} are supported")));
    }
    let (rows, width) = (*rows, *width);
    let place = |name: &str| -> Result<u64, Refusal> {
        let place = u64::try_from(site.int(name)?).ok().filter(|place| *place < width);
        place.map_or_else(|| site.refuse(name, format!("of {width} numbers")), Ok)
    };
    let (edges, score) = (place("coord_start")?, place("score_index")?);
    if edges + 4 > width || site.text("in_format") != "corner" || site.text("out_format") != "corner" {
        return site.refuse("coord_start", "without the four edges of boxes is not supported");
    }
    let class = if site.int("id_index")? >= 0 { Some(place("id_index")?) } else { None };
    let most = u64::try_from(site.int("topk")?).ok().filter(|most| *most > 0).map_or(rows, |most| most.min(rows));
    let columns = Columns { edges, score, class, most };
    let all = site.reshape(&x, &[images, rows, width])?;
    let mut results = split(site, &all, 0, &vec![1; images as usize])?;
    for image in &mut results {
        *image = site.reshape(image, &[rows, width])?;
        let kept = best_boxes(site, image, &columns)?;
        *image = site.reshape(&kept, &[1, rows, width])?;
    }
    let result = concat(site, &results, 0)?;
    Ok(vec![site.reshape(&result, &x.shape)?])
}

/// The rows of one image that are left, then rows of −1.
///
/// Boxes of several classes are moved apart by more than all of them cover, so that they do not overlap.
fn best_boxes(site: &mut Site<'_>, all: &Operand, columns: &Columns) -> Result<Operand, Refusal> {
    let [rows, width] = [all.shape[0], all.shape[1]];
    let (first, most) = (columns.edges, columns.most);
    let mut scores = column(site, all, columns.score)?;
    if let Some(class) = columns.class {
        // Boxes of the background, which is −1 unless stated, are below all others, and below the least score.
        let (classes, background) = (column(site, all, class)?, site.int("background_id")?);
        let background = site.scalar(background as f32)?;
        let is_background = compared(site, "Equal", &classes, &background)?;
        let below = with(site, "Mul", is_background, BELOW, 1.0)?;
        scores = site.op("Sub", &[&scores, &below], vec![], vec![rows])?;
    }
    let limit = site.ints_of(&[most as i64])?;
    let outputs = vec![(DType::F32, vec![most]), (DType::I64, vec![most])];
    let best = site.ops("TopK", &[&scores, &limit], vec![("axis", Attribute::Int(0))], outputs)?;
    let best_rows = gathered(site, all, &best[1])?;
    let mut boxes = cut(site, &best_rows, &[Cut { axis: 1, start: first, end: first + 4 }])?;
    let is_forced = site.flag("force_suppress")?;
    if let Some(class) = columns.class.filter(|_| !is_forced) {
        let classes = cut(site, &best_rows, &[Cut { axis: 1, start: class, end: class + 1 }])?;
        let (high, low) =
            (reduced(site, "ReduceMax", &boxes, &[0, 1], true)?, reduced(site, "ReduceMin", &boxes, &[0, 1], true)?);
        let covered = site.op("Sub", &[&high, &low], vec![], vec![1, 1])?;
        let apart = with(site, "Add", covered, 1.0, 0.0)?;
        let moves = site.op("Mul", &[&classes, &apart], vec![], vec![most, 1])?;
        boxes = site.op("Add", &[&boxes, &moves], vec![], vec![most, 4])?;
    }
    let (overlap, threshold) = (site.float("overlap_thresh")?, site.float("valid_thresh")?);
    if overlap.is_nan() || overlap < 0.0 {
        return site.refuse("overlap_thresh", "below 0 is not supported");
    }
    // No overlap is above 1, and ONNX takes no more. Both operators keep a box that overlaps by exactly so much.
    let left = suppressed(site, &boxes, &best[0], 1, overlap.min(1.0), threshold)?;
    let kept = gathered(site, &best_rows, &left)?;
    // As many rows of −1 as are missing.
    let length = indices(site, "Shape", &[&left], vec![], vec![1])?;
    let whole = site.ints_of(&[rows as i64])?;
    let missing = indices(site, "Sub", &[&whole, &length], vec![], vec![1])?;
    let (none, last) = (site.ints_of(&[0, 0])?, site.ints_of(&[0])?);
    let pads = indices(site, "Concat", &[&none, &missing, &last], vec![("axis", Attribute::Int(0))], vec![4])?;
    let fill = site.scalar(-1.0)?;
    site.op("Pad", &[&kept, &pads, &fill], vec![], vec![rows, width])
}

/// The places of the boxes that overlap no better one, of so many classes; `scores` has one row a class.
fn suppressed(
    site: &mut Site<'_>,
    boxes: &Operand,
    scores: &Operand,
    classes: u64,
    overlap: f32,
    threshold: f32,
) -> Result<Operand, Refusal> {
    let most = boxes.shape[0];
    let boxes = site.reshape(boxes, &[1, most, 4])?;
    let scores = site.reshape(scores, &[1, classes, most])?;
    let (limit, overlap) = (site.ints_of(&[most as i64])?, site.floats_of(&[overlap], &[1])?);
    let threshold = site.floats_of(&[threshold], &[1])?;
    let inputs = [&boxes, &scores, &limit, &overlap, &threshold];
    let left = indices(site, "NonMaxSuppression", &inputs, vec![], vec![0, 3])?;
    let third = site.ints_of(&[2])?;
    let third = indices(site, "Gather", &[&left, &third], vec![("axis", Attribute::Int(1))], vec![0, 1])?;
    let axes = site.ints_of(&[1])?;
    indices(site, "Squeeze", &[&third, &axes], vec![], vec![0])
}

/// SSD's detections: for each anchor the best class, its score and box, the best first. −1 as the class marks a row
/// without a meaning.
pub(super) fn multi_box_detection(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let [scores, moves, anchors] = [0, 1, 2].map(|place| site.inputs[place].clone());
    let boxes = anchors.shape.get(1).copied().unwrap_or(0);
    let classes = scores.shape.get(1).copied().unwrap_or(0);
    let fits =
        scores.shape == [1, classes, boxes] && anchors.shape == [1, boxes, 4] && count(&moves.shape)? == boxes * 4;
    if !fits || !(2..=MAX_CLASSES).contains(&classes) {
        let shapes = [&scores, &moves, &anchors].map(|operand| shown(&operand.shape)).join(", ");
        return Err(Refusal::shape(format!("scores, moves and anchors of {shapes} for one image")));
    }
    match site.target.ssd {
        Ssd::Raw => return Ok(Vec::new()),
        Ssd::OpenCv => return Err(Refusal::parameter("OpenCV has no node for MXNet's detections")),
        Ssd::Standard => {}
    }
    let (overlap, threshold) = (site.float("nms_threshold")?, site.float("threshold")?);
    if site.int("background_id")? != 0 || !(overlap > 0.0 && overlap <= 1.0) || threshold < 0.0 {
        return site.refuse("nms_threshold", "beyond 0 to 1, or another background_id than 0, is not supported");
    }
    let decoding = Decoding { factors: four(site, "variances")?, by_edges: true, most: None };
    let moves = site.reshape(&moves, &[boxes, 4])?;
    let anchors = site.reshape(&anchors, &[boxes, 4])?;
    let mut places = decoding.boxes(site, &moves, &anchors)?;
    if site.flag("clip")? {
        places = clipped(site, &places, 0.0, 1.0)?;
    }
    let shown = cut(site, &scores, &[Cut { axis: 1, start: 1, end: classes }])?;
    let best = reduced(site, "ReduceMax", &shown, &[0, 1], false)?;
    let attributes = vec![("axis", Attribute::Int(1)), ("keepdims", Attribute::Int(0))];
    let ids = indices(site, "ArgMax", &[&shown], attributes, vec![1, boxes])?;
    let ids = unary_float(site, &ids)?;
    let ids = site.reshape(&ids, &[boxes])?;
    let (least, none) = (site.scalar(threshold)?, site.scalar(-1.0)?);
    let valid = site.ops("GreaterOrEqual", &[&best, &least], vec![], vec![(DType::Bool, vec![boxes])])?;
    let best = site.op("Where", &[&valid[0], &best, &none], vec![], vec![boxes])?;
    let limit = site.ints_of(&[boxes as i64])?;
    let outputs = vec![(DType::F32, vec![boxes]), (DType::I64, vec![boxes])];
    let sorted = site.ops("TopK", &[&best, &limit], vec![("axis", Attribute::Int(0))], outputs)?;
    let (places, ids) = (gathered(site, &places, &sorted[1])?, gathered(site, &ids, &sorted[1])?);
    // MXNet suppresses a box that overlaps by exactly so much, and ONNX only one that overlaps by more.
    let left = left_of(site, &places, &sorted[0], &ids, classes - 1, overlap.next_down())?;
    let flags = flagged(site, &left, boxes)?;
    let ids = site.op("Where", &[&flags, &ids, &none], vec![], vec![boxes])?;
    let ids = site.reshape(&ids, &[boxes, 1])?;
    let best = site.reshape(&sorted[0], &[boxes, 1])?;
    let rows = concat(site, &[ids, best, places], 1)?;
    Ok(vec![site.reshape(&rows, &[1, boxes, 6])?])
}

fn unary_float(site: &mut Site<'_>, x: &Operand) -> Result<Operand, Refusal> {
    unary(site, "Cast", x, vec![("to", Attribute::Int(FLOAT))])
}

/// The places of the detections that are left, of the best `nms_topk`.
fn left_of(
    site: &mut Site<'_>,
    boxes: &Operand,
    scores: &Operand,
    ids: &Operand,
    classes: u64,
    overlap: f32,
) -> Result<Operand, Refusal> {
    let rows = boxes.shape[0];
    let most = u64::try_from(site.int("nms_topk")?).ok().filter(|most| *most > 0).map_or(rows, |most| most.min(rows));
    let first = [Cut { axis: 0, start: 0, end: most }];
    let (boxes, scores, ids) = (cut(site, boxes, &first)?, cut(site, scores, &first)?, cut(site, ids, &first)?);
    // A row without a detection has the score −1. OpenCV 5 takes no threshold below 0.
    const THRESHOLD: f32 = 0.0;
    if site.flag("force_suppress")? {
        return suppressed(site, &boxes, &scores, 1, overlap, THRESHOLD);
    }
    let numbers: Vec<f32> = (0..classes).map(|class| class as f32).collect();
    let numbers = site.floats_of(&numbers, &[classes, 1])?;
    let own = site.ops("Equal", &[&numbers, &ids], vec![], vec![(DType::Bool, vec![classes, most])])?;
    let none = site.scalar(-1.0)?;
    let scores = site.op("Where", &[&own[0], &scores, &none], vec![], vec![classes, most])?;
    suppressed(site, &boxes, &scores, classes, overlap, THRESHOLD)
}

/// Whether each of so many places is among those named.
fn flagged(site: &mut Site<'_>, places: &Operand, rows: u64) -> Result<Operand, Refusal> {
    let numbers = unary_float(site, places)?;
    let zero = site.scalar(0.0)?;
    let zeros = site.op("Mul", &[&numbers, &zero], vec![], vec![0])?;
    let ones = with(site, "Add", zeros, 1.0, 0.0)?;
    let extents = site.ints_of(&[rows as i64])?;
    let empty = site.op("Expand", &[&zero, &extents], vec![], vec![rows])?;
    let marked = site.op("ScatterElements", &[&empty, places, &ones], vec![("axis", Attribute::Int(0))], vec![rows])?;
    let outputs = site.ops("Greater", &[&marked, &zero], vec![], vec![(DType::Bool, vec![rows])])?;
    outputs.into_iter().next().ok_or_else(|| Refusal::shape("no output"))
}
