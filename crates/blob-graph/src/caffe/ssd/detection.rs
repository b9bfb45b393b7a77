//! `DetectionOutput` in ONNX's operators: decode, the best `top_k` of each class, suppression with the classes as
//! batches, the best `keep_top_k` of all.
//!
//! `NonMaxSuppression` limits what is left, Caffe what is suppressed, so `TopK` stands before it. Rows are in the order
//! of the scores, and there is no row where nothing is found; Caffe then has one of −1.

use blob_core::DType;
use blob_io::onnx::Attribute;

use crate::forms::{Cut, cut, indices};
use crate::operand::{Operand, shown};
use crate::site::Site;
use crate::target::Ssd;
use crate::unsupported::Refusal;

/// The most classes, of which each has a number in the model.
const MAX_CLASSES: u64 = 1 << 16;

/// The meaning of a place, relative to the edges of its prior box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    /// Moves of the edges.
    Corner,
    /// Moves of the centre in sizes of the box, and logarithms of factors of the size.
    CentreSize,
    /// Moves of the edges in sizes of the box.
    CornerSize,
}

/// The parameters, checked.
struct Detections {
    priors: u64,
    classes: u64,
    /// The class that is the background; none if the number is not a class's.
    background: i64,
    code: Code,
    is_encoded: bool,
    overlap: f32,
    /// The score that a detection must exceed; none where none is stated, which OpenCV 5 wants left out.
    score: Option<f32>,
    top: u64,
    keep: Option<i64>,
}

pub(in crate::caffe) fn detection_output(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let detections = Detections::of(site)?;
    match site.target.ssd {
        Ssd::Raw => return Ok(Vec::new()),
        Ssd::OpenCv => return detections.opencv(site),
        Ssd::Standard => {}
    }
    let boxes = detections.decode(site)?;
    detections.choose(site, &boxes)
}

impl Detections {
    fn of(site: &Site<'_>) -> Result<Self, Refusal> {
        let [places, scores, priors] = [0, 1, 2].map(|place| &site.inputs[place].shape);
        let classes = site.size("num_classes")?;
        let count = priors.last().copied().unwrap_or(0) / 4;
        let fits = priors[..] == [1, 2, count * 4]
            && count > 0
            && places[..] == [1, count * 4]
            && Some(&scores[..]) == classes.checked_mul(count).map(|all| [1, all]).as_ref().map(<[u64; 2]>::as_slice);
        if !fits {
            let shapes = [places, scores, priors].map(|shape| shown(shape)).join(", ");
            return Err(Refusal::shape(format!(
                "places, scores and boxes of {shapes} for one image of {classes} classes"
            )));
        }
        if !site.flag("share_location")? {
            return site.refuse("share_location", "is not supported");
        }
        if site.float("nms_param.eta")? != 1.0 {
            return site.refuse("nms_param.eta", "is not supported: the threshold would change");
        }
        let background = site.int("background_label_id")?;
        if classes > MAX_CLASSES || classes == 1 && background == 0 {
            return site.refuse("num_classes", "are too many, or only the background");
        }
        let code = [Code::Corner, Code::CentreSize, Code::CornerSize]
            [site.choice("code_type", 1, &["CORNER", "CENTER_SIZE", "CORNER_SIZE"])?];
        let is_scored = site.is_stated("confidence_threshold");
        let (top, keep) = (site.int("nms_param.top_k")?, site.int("keep_top_k")?);
        if top == 0 {
            return site.refuse("nms_param.top_k", "finds nothing");
        }
        let overlap = site.float("nms_param.nms_threshold")?;
        if !(0.0..=1.0).contains(&overlap) {
            return site.refuse("nms_param.nms_threshold", "beyond 0 to 1 is not supported");
        }
        Ok(Self {
            priors: count,
            classes,
            background,
            code,
            is_encoded: !site.flag("variance_encoded_in_target")?,
            overlap,
            score: if is_scored { Some(site.float("confidence_threshold")?) } else { None },
            top: u64::try_from(top).map_or(count, |top| top.clamp(1, count)),
            keep: (keep > -1).then_some(keep),
        })
    }

    /// OpenCV's own layer.
    fn opencv(&self, site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
        let code = match self.code {
            Code::Corner => "CORNER",
            Code::CentreSize => "CENTER_SIZE",
            Code::CornerSize => "CORNER_SIZE",
        };
        // OpenCV 5 makes room for one row where no number is stated.
        let keep = self.keep.unwrap_or_else(|| self.top.saturating_mul(self.classes).min(i32::MAX as u64) as i64);
        let mut attributes = vec![
            ("num_classes", Attribute::Int(self.classes as i64)),
            ("share_location", Attribute::Int(1)),
            ("background_label_id", Attribute::Int(self.background)),
            ("nms_threshold", Attribute::Float(self.overlap)),
            ("top_k", Attribute::Int(self.top as i64)),
            ("code_type", Attribute::Text(code.to_owned())),
            ("keep_top_k", Attribute::Int(keep)),
            ("variance_encoded_in_target", Attribute::Int(i64::from(!self.is_encoded))),
        ];
        attributes.extend(self.score.map(|score| ("confidence_threshold", Attribute::Float(score))));
        let mut inputs: Vec<Operand> = site.inputs.to_vec();
        if !self.is_encoded {
            // OpenCV reads boxes without variances here.
            inputs[2] = cut(site, &inputs[2].clone(), &[Cut { axis: 1, start: 0, end: 1 }])?;
        }
        let inputs: Vec<&Operand> = inputs.iter().collect();
        Ok(vec![site.op("DetectionOutput", &inputs, attributes, vec![1, 1, 0, 7])?])
    }

    /// The boxes that the places mean, P×4 by edges.
    fn decode(&self, site: &mut Site<'_>) -> Result<Operand, Refusal> {
        let (places, priors) = (site.x(), site.inputs[2].clone());
        let half_shape = || vec![self.priors, 2];
        let places = site.reshape(&places, &[self.priors, 4])?;
        let rows = site.reshape(&priors, &[2 * self.priors, 4])?;
        let parts = site.ints_of(&[self.priors as i64; 2])?;
        let both = vec![(DType::F32, vec![self.priors, 4]); 2];
        let both = site.ops("Split", &[&rows, &parts], vec![("axis", Attribute::Int(0))], both)?;
        let offsets =
            if self.is_encoded { site.op("Mul", &[&places, &both[1]], vec![], vec![self.priors, 4])? } else { places };
        if self.code == Code::Corner {
            return site.op("Add", &[&both[0], &offsets], vec![], vec![self.priors, 4]);
        }
        let two = site.ints_of(&[2, 2])?;
        let halves = || vec![(DType::F32, half_shape()); 2];
        let edges = site.ops("Split", &[&both[0], &two], vec![("axis", Attribute::Int(1))], halves())?;
        let size = site.op("Sub", &[&edges[1], &edges[0]], vec![], half_shape())?;
        let beside = || vec![("axis", Attribute::Int(1))];
        if self.code == Code::CornerSize {
            let sizes = site.op("Concat", &[&size, &size], beside(), vec![self.priors, 4])?;
            let moves = site.op("Mul", &[&offsets, &sizes], vec![], vec![self.priors, 4])?;
            return site.op("Add", &[&both[0], &moves], vec![], vec![self.priors, 4]);
        }
        let moves = site.ops("Split", &[&offsets, &two], beside(), halves())?;
        let half = site.scalar(0.5)?;
        let mut op = |op_type: &str, inputs: &[&Operand]| site.op(op_type, inputs, vec![], half_shape());
        let sum = op("Add", &[&edges[0], &edges[1]])?;
        let middle = op("Mul", &[&sum, &half])?;
        let moved = op("Mul", &[&moves[0], &size])?;
        let centre = op("Add", &[&moved, &middle])?;
        let grown = op("Exp", &[&moves[1]])?;
        let extent = op("Mul", &[&grown, &size])?;
        let reach = op("Mul", &[&extent, &half])?;
        let (low, high) = (op("Sub", &[&centre, &reach])?, op("Add", &[&centre, &reach])?);
        site.op("Concat", &[&low, &high], beside(), vec![self.priors, 4])
    }

    /// The boxes by whose overlap one is chosen. ONNX puts the edges of a box in order; in Caffe a box whose edges are
    /// not in order covers nothing. Only moved edges can be so.
    fn straightened(&self, site: &mut Site<'_>, boxes: &Operand) -> Result<Operand, Refusal> {
        if self.code == Code::CentreSize {
            return Ok(boxes.clone());
        }
        let half: Vec<u64> = boxes.shape[..2].iter().copied().chain([2]).collect();
        let (two, halves) = (site.ints_of(&[2, 2])?, vec![(DType::F32, half.clone()); 2]);
        let edges = site.ops("Split", &[boxes, &two], vec![("axis", Attribute::Int(2))], halves)?;
        let high = site.op("Max", &[&edges[0], &edges[1]], vec![], half)?;
        site.op("Concat", &[&edges[0], &high], vec![("axis", Attribute::Int(2))], boxes.shape.clone())
    }

    /// The detections: image, label, score, edges.
    fn choose(&self, site: &mut Site<'_>, boxes: &Operand) -> Result<Vec<Operand>, Refusal> {
        let shown: Vec<i64> = (0..self.classes as i64).filter(|class| *class != self.background).collect();
        let classes = shown.len() as u64;
        let scores = site.inputs[1].clone();
        let (top, keep) = (self.top, self.keep);
        let at = |axis| vec![("axis", Attribute::Int(axis))];
        let scores = site.reshape(&scores, &[self.priors, self.classes])?;
        let mut scores = site.op("Transpose", &[&scores], vec![], vec![self.classes, self.priors])?;
        let zero = site.ints_of(&[0])?;
        if classes < self.classes {
            let shown = site.ints_of(&shown)?;
            scores = site.op("Gather", &[&scores, &shown], at(0), vec![classes, self.priors])?;
        }
        let most = site.ints_of(&[top as i64])?;
        let outputs = vec![(DType::F32, vec![classes, top]), (DType::I64, vec![classes, top])];
        let best = site.ops("TopK", &[&scores, &most], at(1), outputs)?;
        let best_boxes = site.op("Gather", &[boxes, &best[1]], at(0), vec![classes, top, 4])?;
        let one = site.ints_of(&[1])?;
        let rows = site.op("Unsqueeze", &[&best[0], &one], vec![], vec![classes, 1, top])?;
        let overlap = site.floats_of(&[self.overlap], &[1])?;
        let score = self.score.map(|score| site.floats_of(&[score], &[1])).transpose()?;
        let boxes = self.straightened(site, &best_boxes)?;
        let inputs: Vec<&Operand> = [&boxes, &rows, &most, &overlap].into_iter().chain(&score).collect();
        let left = indices(site, "NonMaxSuppression", &inputs, vec![], vec![0, 3])?;
        let pair = site.ints_of(&[0, 2])?;
        let pairs = indices(site, "Gather", &[&left, &pair], at(1), vec![0, 2])?;
        let mut edges = site.op("GatherND", &[&best_boxes, &pairs], vec![], vec![0, 4])?;
        let mut found = site.op("GatherND", &[&best[0], &pairs], vec![], vec![0])?;
        let mut labels = indices(site, "Gather", &[&left, &zero], at(1), vec![0, 1])?;
        let length = indices(site, "Shape", &[&found], vec![], vec![1])?;
        let kept = match keep {
            Some(keep) => {
                let keep = site.ints_of(&[keep])?;
                indices(site, "Min", &[&length, &keep], vec![], vec![1])?
            }
            None => length,
        };
        let outputs = vec![(DType::F32, vec![0]), (DType::I64, vec![0])];
        let chosen = site.ops("TopK", &[&found, &kept], at(0), outputs)?;
        found = chosen[0].clone();
        edges = site.op("Gather", &[&edges, &chosen[1]], at(0), vec![0, 4])?;
        labels = indices(site, "Gather", &[&labels, &chosen[1]], at(0), vec![0, 1])?;
        let none = site.scalar(0.0)?;
        let known: Vec<f32> = shown.iter().map(|class| *class as f32).collect();
        let known = site.floats_of(&known, &[classes])?;
        let labels = site.op("Gather", &[&known, &labels], at(0), vec![0, 1])?;
        let image = site.op("Mul", &[&labels, &none], vec![], vec![0, 1])?;
        let found = site.op("Unsqueeze", &[&found, &one], vec![], vec![0, 1])?;
        let rows = site.op("Concat", &[&image, &labels, &found, &edges], at(1), vec![0, 7])?;
        let axes = site.ints_of(&[0, 1])?;
        Ok(vec![site.op("Unsqueeze", &[&rows, &axes], vec![], vec![1, 1, 0, 7])?])
    }
}
