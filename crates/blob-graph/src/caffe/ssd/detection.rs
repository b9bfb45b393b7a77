//! `DetectionOutput` in ONNX's operators: decode, the best `top_k` of each class, suppression with the classes as
//! batches, the best `keep_top_k` of all.
//!
//! `NonMaxSuppression` limits what is left, Caffe what is suppressed, so `TopK` stands before it. Rows are in the order
//! of the scores, and there is no row where nothing is found; Caffe then has one of −1.

use blob_core::DType;
use blob_io::onnx::Attribute;

use super::indices;
use crate::caffe::neuron::FLOAT;
use crate::onnx::Ssd;
use crate::site::{Operand, Site, shown};
use crate::unsupported::Refusal;

/// The parameters, checked.
struct Detections {
    priors: u64,
    classes: u64,
    /// The first class that is not the background.
    first: u64,
    is_centre: bool,
    is_encoded: bool,
    overlap: f32,
    score: f32,
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
        let first = match site.int("background_label_id")? {
            0 => 1,
            -1 => 0,
            _ => return site.refuse("background_label_id", "where 0 and -1 are supported"),
        };
        if first >= classes {
            return site.refuse("num_classes", "has only the background");
        }
        let is_centre = match site.choice("code_type", 1, &["CORNER", "CENTER_SIZE", "CORNER_SIZE"])? {
            0 => false,
            1 => true,
            _ => return site.refuse("code_type", "is not supported"),
        };
        let (top, keep) = (site.int("nms_param.top_k")?, site.int("keep_top_k")?);
        Ok(Self {
            priors: count,
            classes,
            first,
            is_centre,
            is_encoded: !site.flag("variance_encoded_in_target")?,
            overlap: site.float("nms_param.nms_threshold")?,
            score: site.float("confidence_threshold")?,
            top: u64::try_from(top).map_or(count, |top| top.clamp(1, count)),
            keep: (keep > -1).then_some(keep),
        })
    }

    /// OpenCV's own layer.
    fn opencv(&self, site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
        let code = if self.is_centre { "CENTER_SIZE" } else { "CORNER" };
        let attributes = vec![
            ("num_classes", Attribute::Int(self.classes as i64)),
            ("share_location", Attribute::Int(1)),
            ("background_label_id", Attribute::Int(self.first as i64 - 1)),
            ("nms_threshold", Attribute::Float(self.overlap)),
            ("top_k", Attribute::Int(self.top as i64)),
            ("code_type", Attribute::Text(code.to_owned())),
            ("keep_top_k", Attribute::Int(self.keep.unwrap_or(-1))),
            ("variance_encoded_in_target", Attribute::Int(i64::from(!self.is_encoded))),
            ("confidence_threshold", Attribute::Float(self.score)),
        ];
        let inputs: Vec<Operand> = site.inputs.to_vec();
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
        if !self.is_centre {
            return site.op("Add", &[&both[0], &offsets], vec![], vec![self.priors, 4]);
        }
        let two = site.ints_of(&[2, 2])?;
        let mut halves = |of: &Operand| {
            let outputs = vec![(DType::F32, half_shape()); 2];
            site.ops("Split", &[of, &two], vec![("axis", Attribute::Int(1))], outputs)
        };
        let (edges, moves) = (halves(&both[0])?, halves(&offsets)?);
        let half = site.scalar(0.5)?;
        let mut op = |op_type: &str, inputs: &[&Operand]| site.op(op_type, inputs, vec![], half_shape());
        let size = op("Sub", &[&edges[1], &edges[0]])?;
        let sum = op("Add", &[&edges[0], &edges[1]])?;
        let middle = op("Mul", &[&sum, &half])?;
        let moved = op("Mul", &[&moves[0], &size])?;
        let centre = op("Add", &[&moved, &middle])?;
        let grown = op("Exp", &[&moves[1]])?;
        let extent = op("Mul", &[&grown, &size])?;
        let reach = op("Mul", &[&extent, &half])?;
        let (low, high) = (op("Sub", &[&centre, &reach])?, op("Add", &[&centre, &reach])?);
        site.op("Concat", &[&low, &high], vec![("axis", Attribute::Int(1))], vec![self.priors, 4])
    }

    /// The detections: image, label, score, edges.
    fn choose(&self, site: &mut Site<'_>, boxes: &Operand) -> Result<Vec<Operand>, Refusal> {
        let (classes, first) = (self.classes - self.first, self.first as i64);
        let scores = site.inputs[1].clone();
        let (top, keep) = (self.top, self.keep);
        let at = |axis| vec![("axis", Attribute::Int(axis))];
        let scores = site.reshape(&scores, &[self.priors, self.classes])?;
        let mut scores = site.op("Transpose", &[&scores], vec![], vec![self.classes, self.priors])?;
        let zero = site.ints_of(&[0])?;
        if first > 0 {
            let (from, to) = (site.ints_of(&[first])?, site.ints_of(&[self.classes as i64])?);
            scores = site.op("Slice", &[&scores, &from, &to, &zero], vec![], vec![classes, self.priors])?;
        }
        let most = site.ints_of(&[top as i64])?;
        let outputs = vec![(DType::F32, vec![classes, top]), (DType::I64, vec![classes, top])];
        let best = site.ops("TopK", &[&scores, &most], at(1), outputs)?;
        let best_boxes = site.op("Gather", &[boxes, &best[1]], at(0), vec![classes, top, 4])?;
        let one = site.ints_of(&[1])?;
        let rows = site.op("Unsqueeze", &[&best[0], &one], vec![], vec![classes, 1, top])?;
        let (overlap, score) = (site.floats_of(&[self.overlap], &[1])?, site.floats_of(&[self.score], &[1])?);
        let inputs = [&best_boxes, &rows, &most, &overlap, &score];
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
        let (first, none) = (site.scalar(first as f32)?, site.scalar(0.0)?);
        let labels = site.op("Cast", &[&labels], vec![("to", Attribute::Int(FLOAT))], vec![0, 1])?;
        let image = site.op("Mul", &[&labels, &none], vec![], vec![0, 1])?;
        let labels = site.op("Add", &[&labels, &first], vec![], vec![0, 1])?;
        let found = site.op("Unsqueeze", &[&found, &one], vec![], vec![0, 1])?;
        let rows = site.op("Concat", &[&image, &labels, &found, &edges], at(1), vec![0, 7])?;
        let axes = site.ints_of(&[0, 1])?;
        Ok(vec![site.op("Unsqueeze", &[&rows, &axes], vec![], vec![1, 1, 0, 7])?])
    }
}
