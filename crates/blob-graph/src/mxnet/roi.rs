//! Averages of bilinear samples within boxes, in images of one size.

use blob_core::DType;
use blob_io::onnx::Attribute;

use crate::forms::{Cut, INT64, clipped, cut, indices};
use crate::operand::{Operand, shown};
use crate::site::Site;
use crate::unsupported::Refusal;

/// The first of ONNX's versions whose `RoiAlign` knows `coordinate_transformation_mode`; before it samples lie as where
/// MXNet's `aligned` is not set.
const WITH_MODE: i64 = 16;

/// The boxes' rows are the image's place, and four edges. An image below 0 stands for no box, whose values are 0.
pub(super) fn roi_align(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let [x, rois] = [0, 1].map(|place| site.inputs[place].clone());
    site.rank(&x, 4..=4)?;
    let [boxes, 5] = rois.shape[..] else {
        return Err(Refusal::shape(format!("boxes of {}, where rows of 5 are supported", shown(&rois.shape))));
    };
    let (size, is_aligned) = (site.ints("pooled_size")?, site.flag("aligned")?);
    let Some([height, width]) = sizes(&size) else { return site.refuse("pooled_size", "is no height and width") };
    if site.flag("position_sensitive")? {
        return site.refuse("position_sensitive", "is not supported");
    }
    if is_aligned && site.target.opset < WITH_MODE {
        return site.refuse("aligned", format!("wants --opset {WITH_MODE}"));
    }
    let mut attributes = vec![
        ("output_height", Attribute::Int(height)),
        ("output_width", Attribute::Int(width)),
        ("sampling_ratio", Attribute::Int(site.int("sample_ratio")?.max(0))),
        ("spatial_scale", Attribute::Float(site.float("spatial_scale")?)),
    ];
    if site.target.opset >= WITH_MODE {
        let mode = if is_aligned { "half_pixel" } else { "output_half_pixel" };
        attributes.push(("coordinate_transformation_mode", Attribute::Text(mode.to_owned())));
    }
    let image = cut(site, &rois, &[Cut { axis: 1, start: 0, end: 1 }])?;
    let edges = cut(site, &rois, &[Cut { axis: 1, start: 1, end: 5 }])?;
    let known = clipped(site, &image, 0.0, f32::MAX)?;
    let known = site.reshape(&known, &[boxes])?;
    let known = indices(site, "Cast", &[&known], vec![("to", Attribute::Int(INT64))], vec![boxes])?;
    let shape = vec![boxes, x.shape[1], height as u64, width as u64];
    let pooled = site.op("RoiAlign", &[&x, &edges, &known], attributes, shape.clone())?;
    let (zero, image) = (site.scalar(0.0)?, site.reshape(&image, &[boxes, 1, 1, 1])?);
    let is_box = site.ops("GreaterOrEqual", &[&image, &zero], vec![], vec![(DType::Bool, image.shape.clone())])?;
    Ok(vec![site.op("Where", &[&is_box[0], &pooled, &zero], vec![], shape)?])
}

/// A height and a width from 1 on.
fn sizes(stated: &[i64]) -> Option<[i64; 2]> {
    let sizes = <[i64; 2]>::try_from(stated).ok()?;
    sizes.iter().all(|size| (1..=1 << 16).contains(size)).then_some(sizes)
}
