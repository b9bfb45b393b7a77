//! Operators that make images larger or smaller.

use blob_io::onnx::Attribute;

use crate::forms::{bilinear, concat, nearest, sum};
use crate::operand::{Operand, shown};
use crate::site::{Site, ints};
use crate::unsupported::Refusal;

/// Bilinear, with corners on corners unless the layer says otherwise.
pub(super) fn bilinear_resize(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let x = site.x();
    site.rank(&x, 4..=4)?;
    let mut shape = x.shape.clone();
    match site.text("mode") {
        "size" if site.inputs.len() == 1 => {
            for (axis, (extent, scale)) in [("height", "scale_height"), ("width", "scale_width")].iter().enumerate() {
                shape[axis + 2] = if site.is_none(scale) {
                    site.size(extent)?
                } else {
                    // MXNet multiplies in f32, and cuts off.
                    (x.shape[axis + 2] as f32 * site.float(scale)?) as u64
                };
            }
        }
        "like" if site.inputs.len() == 2 && site.inputs[1].shape.len() == 4 => {
            shape[2..].copy_from_slice(&site.inputs[1].shape[2..]);
        }
        _ => return site.refuse("mode", format!("with {} inputs is not supported", site.inputs.len())),
    }
    if shape.contains(&0) {
        return Err(Refusal::shape(format!("{} as {}", shown(&x.shape), shown(&shape))));
    }
    // MXNet takes the first place where an extent is 1, as `area_pixel_compute_scale` gives 0 there.
    let how = if site.flag("align_corners")? {
        "align_corners"
    } else if shape[2..].contains(&1) {
        "pytorch_half_pixel"
    } else {
        "half_pixel"
    };
    Ok(vec![bilinear(site, &x, &shape, how)?])
}

/// Each value repeated; or bilinear, which is a transposed convolution with stored weights.
pub(super) fn up_sampling(site: &mut Site<'_>) -> Result<Vec<Operand>, Refusal> {
    let (x, scale) = (site.x(), site.size("scale")?);
    site.rank(&x, 4..=4)?;
    if site.choice("sample_type", 0, &["nearest", "bilinear"])? == 1 {
        return smooth(site, &x, scale);
    }
    let large = [2, 3].map(|axis| x.shape[axis].saturating_mul(scale));
    let mut parts = Vec::new();
    for input in site.inputs {
        let fits =
            input.shape.len() == 4 && [2, 3].iter().all(|axis| large[axis - 2].is_multiple_of(input.shape[*axis]));
        if !fits {
            return Err(Refusal::shape(format!("{} beside {}", shown(&input.shape), shown(&x.shape))));
        }
        parts.push(nearest(site, input, [2, 3].map(|axis| large[axis - 2] / input.shape[axis]))?);
    }
    if site.choice("multi_input_mode", 0, &["concat", "sum"])? == 0 {
        return Ok(vec![concat(site, &parts, 1)?]);
    }
    crate::window::same_shape(&parts)?;
    Ok(vec![sum(site, &parts)?])
}

fn smooth(site: &mut Site<'_>, x: &Operand, scale: u64) -> Result<Vec<Operand>, Refusal> {
    let kernel = scale.saturating_mul(2) - scale % 2;
    let channels = x.shape[1];
    let Some(weight) = site.inputs.get(1).filter(|weight| weight.shape == [channels, 1, kernel, kernel]) else {
        let found = site.inputs.get(1).map_or("none".to_owned(), |weight| shown(&weight.shape));
        let message = format!("weights of {}, where {found} are there", shown(&[channels, 1, kernel, kernel]));
        return Err(Refusal::shape(message));
    };
    let shape = vec![x.shape[0], channels, x.shape[2].saturating_mul(scale), x.shape[3].saturating_mul(scale)];
    // The paddings of both sides are ⌈(scale − 1) / 2⌉, so that the output has `scale` times the input's extents.
    let attributes = vec![
        ("kernel_shape", ints([kernel; 2])),
        ("strides", ints([scale; 2])),
        ("pads", ints([scale / 2; 4])),
        ("group", Attribute::Int(channels as i64)),
    ];
    Ok(vec![site.op("ConvTranspose", &[x, weight], attributes, shape)?])
}
