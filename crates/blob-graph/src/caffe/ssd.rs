//! SSD: the boxes that detections are relative to, and the detections.
//!
//! Rules are those of `PriorBoxLayer`, `DecodeBBoxes` and `ApplyNMSFast` in weiliu89/caffe.

mod detection;

use blob_io::onnx::Attribute;

pub(super) use detection::detection_output;

use crate::operand::{Operand, count};
use crate::site::Site;
use crate::target::Ssd;
use crate::unsupported::Refusal;

/// The most numbers of one layer's boxes; SSD512 has 200,000 in all.
const MAX_PRIORS: u64 = 1 << 23;

/// The boxes of a layer, as one image sees them.
struct Priors {
    /// Width and height of each box around a place.
    boxes: Vec<(f64, f64)>,
    variance: [f32; 4],
    clip: bool,
    offset: f32,
}

pub(super) fn prior_box(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (map, image) = (site.x(), site.inputs[1].clone());
    site.rank(&map, 4..=4)?;
    site.rank(&image, 4..=4)?;
    let priors = priors(site)?;
    let [height, width] = [map.shape[2], map.shape[3]];
    let total = count(&[height, width, priors.boxes.len() as u64, 4])?;
    if total > MAX_PRIORS {
        return Err(Refusal::shape(format!("{total} numbers of boxes, where {MAX_PRIORS} are supported")));
    }
    let shape = vec![1, 2, total];
    if site.target.ssd == Ssd::OpenCv {
        let attributes = stated(site, &priors)?;
        return Ok(vec![site.op("PriorBox", &[&map, &image], attributes, shape)?]);
    }
    let image_h = stated_or(site, "img_h", image.shape[2])?;
    let image_w = stated_or(site, "img_w", image.shape[3])?;
    let step = |name: &str, image: u64, cells: u64| -> Result<f32, Refusal> {
        let of = [name, "step"].into_iter().find(|name| site.is_stated(name));
        let step = of.map(|name| site.float(name)).transpose()?.unwrap_or(0.0);
        Ok(if step == 0.0 { image as f32 / cells as f32 } else { step })
    };
    let (step_h, step_w) = (step("step_h", image_h, height)?, step("step_w", image_w, width)?);
    site.body.room(8 * total)?;
    let mut values = Vec::with_capacity(2 * total as usize);
    for row in 0..height {
        for column in 0..width {
            let x = f64::from((column as f32 + priors.offset) * step_w);
            let y = f64::from((row as f32 + priors.offset) * step_h);
            for (wide, high) in &priors.boxes {
                let edges = [
                    (x - wide / 2.0) / image_w as f64,
                    (y - high / 2.0) / image_h as f64,
                    (x + wide / 2.0) / image_w as f64,
                    (y + high / 2.0) / image_h as f64,
                ];
                values.extend(edges.map(|edge| if priors.clip { edge.clamp(0.0, 1.0) as f32 } else { edge as f32 }));
            }
        }
    }
    values.extend(std::iter::repeat_n(priors.variance, total as usize / 4).flatten());
    Ok(vec![site.floats_of(&values, &shape)?])
}

fn stated_or(site: &Site<'_>, name: &str, extent: u64) -> Result<u64, Refusal> {
    let name = [name, "img_size"].into_iter().find(|name| site.is_stated(name));
    name.map_or(Ok(extent), |name| site.size(name))
}

fn priors(site: &Site<'_>) -> Result<Priors, Refusal> {
    if !site.is_stated("clip") {
        return site.refuse("clip", "must be stated: the default is false in SSD's fork, true in others");
    }
    let (least, most) = (site.floats("min_size")?, site.floats("max_size")?);
    let (stated, flip) = (site.floats("aspect_ratio")?, site.flag("flip")?);
    if least.is_empty() || least.iter().chain(&most).any(|size| *size < 1.0) {
        return site.refuse("min_size", "has no sizes from 1 on");
    }
    if !most.is_empty() && most.len() != least.len() {
        return site.refuse("max_size", "has another number of sizes than min_size");
    }
    let mut ratios: Vec<f32> = vec![1.0];
    for ratio in stated {
        if ratio <= 0.0 {
            return site.refuse("aspect_ratio", "is no ratio");
        }
        if ratios.iter().all(|known| (known - ratio).abs() >= 1e-6) {
            ratios.push(ratio);
            ratios.extend(flip.then(|| 1.0 / ratio));
        }
    }
    let mut boxes = Vec::new();
    for (place, size) in least.iter().enumerate() {
        // Caffe keeps the sizes as integers here.
        let size = f64::from(size.trunc());
        boxes.push((size, size));
        if let Some(largest) = most.get(place) {
            let side = f64::from((size * f64::from(largest.trunc())).sqrt() as f32);
            boxes.push((side, side));
        }
        for ratio in ratios.iter().filter(|ratio| (**ratio - 1.0).abs() >= 1e-6) {
            let root = f64::from(*ratio).sqrt();
            boxes.push((f64::from((size * root) as f32), f64::from((size / root) as f32)));
        }
    }
    let variance = match site.floats("variance")?[..] {
        [] => [0.1; 4],
        [one] => [one; 4],
        [x, y, w, h] => [x, y, w, h],
        _ => return site.refuse("variance", "has not 1 or 4 numbers"),
    };
    Ok(Priors { boxes, variance, clip: site.flag("clip")?, offset: site.float("offset")? })
}

/// The parameters as OpenCV's layer reads them.
fn stated(site: &Site<'_>, priors: &Priors) -> Result<Vec<(&'static str, Attribute)>, Refusal> {
    let mut attributes = Vec::new();
    for name in ["min_size", "max_size", "aspect_ratio"] {
        if site.is_stated(name) {
            attributes.push((name, Attribute::Floats(site.floats(name)?)));
        }
    }
    for name in ["step", "step_h", "step_w"] {
        if site.is_stated(name) {
            attributes.push((name, Attribute::Float(site.float(name)?)));
        }
    }
    for name in ["img_size", "img_h", "img_w"] {
        if site.is_stated(name) {
            attributes.push((name, Attribute::Int(site.int(name)?)));
        }
    }
    attributes.push(("flip", Attribute::Int(i64::from(site.flag("flip")?))));
    attributes.push(("clip", Attribute::Int(i64::from(priors.clip))));
    attributes.push(("variance", Attribute::Floats(priors.variance.to_vec())));
    attributes.push(("offset", Attribute::Float(priors.offset)));
    Ok(attributes)
}
