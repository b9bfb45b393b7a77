//! The heights and widths of a net's values, as far as the description tells: from the input, through convolutions,
//! poolings and layers that keep height and width.
//!
//! Sources: `ConvolutionLayer::compute_output_shape`, `DeconvolutionLayer::compute_output_shape` and
//! `PoolingLayer::Reshape` of BVLC/caffe `9b891540`; `ConvolutionShape` and `PoolingShape` of apache/mxnet 1.9.1.

use blob_io::net::{Layer, LayerKind, Rounding, Window};

/// The height and width of the output of a convolution, a deconvolution or a pooling. The input has the height and
/// width `size`.
pub(super) fn after(layer: &Layer, size: [u64; 2]) -> Option<[u64; 2]> {
    let window = &layer.window;
    let each = |side: usize| match layer.kind {
        _ if layer.channels_last => None,
        LayerKind::Convolution => convolved(window, side, size[side]),
        LayerKind::Deconvolution => spread(window, side, size[side]),
        _ => pooled(window, side, size[side]),
    };
    Some([each(0)?, each(1)?])
}

/// The number of a window for one side. `numbers` has one number for all sides, or one for each side; `absent` stands
/// for an empty list.
fn of(numbers: &[u64], side: usize, absent: u64) -> Option<u64> {
    match *numbers {
        [] => Some(absent),
        [all] => Some(all),
        [height, width] => Some([height, width][side]),
        _ => None,
    }
}

/// The reach of a dilated kernel: a kernel of 3 with dilation 2 reaches over 5 values.
fn reach(window: &Window, side: usize) -> Option<u64> {
    let kernel = of(&window.kernel, side, 0).filter(|kernel| *kernel > 0)?;
    of(&window.dilation, side, 1)?.checked_mul(kernel - 1)?.checked_add(1)
}

fn convolved(window: &Window, side: usize, size: u64) -> Option<u64> {
    let pad = of(&window.pad, side, 0)?.checked_mul(2)?;
    let room = size.checked_add(pad)?.checked_sub(reach(window, side)?)?;
    Some(room.checked_div(of(&window.stride, side, 1)?)? + 1)
}

fn spread(window: &Window, side: usize, size: u64) -> Option<u64> {
    // MXNet's deconvolution has more settings: `adj`, `target_shape`.
    if window.rounding == Rounding::Unknown {
        return None;
    }
    let pad = of(&window.pad, side, 0)?.checked_mul(2)?;
    let steps = of(&window.stride, side, 1)?.checked_mul(size.checked_sub(1)?)?;
    steps.checked_add(reach(window, side)?)?.checked_sub(pad)
}

fn pooled(window: &Window, side: usize, size: u64) -> Option<u64> {
    let (pad, stride) = (of(&window.pad, side, 0)?, of(&window.stride, side, 1)?.max(1));
    let room = size.checked_add(pad.checked_mul(2)?)?.checked_sub(reach(window, side)?)?;
    let up = room.div_ceil(stride) + 1;
    Some(match window.rounding {
        Rounding::Down => room / stride + 1,
        Rounding::Up => up,
        Rounding::Same => size.div_ceil(stride),
        // Caffe clips where height or width is padded.
        Rounding::UpInside => {
            let is_padded = (0..2).any(|side| of(&window.pad, side, 0) != Some(0));
            up - u64::from(is_padded && (up - 1).checked_mul(stride)? >= size.checked_add(pad)?)
        }
        _ => return None,
    })
}
