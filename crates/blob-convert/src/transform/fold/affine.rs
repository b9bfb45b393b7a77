//! Computes the weights and biases that a fold makes: each channel's factor and summand, in f64, rounded once.

use blob_core::DType;
use blob_io::Error;

use super::side::Run;
use crate::transform::reports::Amount;
use crate::transform::values::{Compute, Inputs, Stream, read, ready};

/// The number of tensors that a fold may use besides weight and bias.
pub(super) const PARTS: usize = 7;
const MEAN: usize = 0;
const VARIANCE: usize = 1;
pub(super) const FACTOR: usize = 2;
const GAMMA: usize = 3;
const BETA: usize = 4;
const SCALE: usize = 5;
const SHIFT: usize = 6;

/// The affine map that a normalisation applies to each channel.
#[derive(Debug)]
pub(super) struct Norm {
    /// The index of each part among the inputs.
    pub(super) inputs: [Option<usize>; PARTS],
    pub(super) eps: f64,
    pub(super) channels: usize,
}

impl Norm {
    /// The factor and the summand of each channel.
    fn affine(&self, inputs: &Inputs<'_>) -> Result<Vec<(f64, f64)>, Error> {
        let part = |part: usize, absent: f64| match self.inputs[part] {
            Some(input) => inputs.floats(input),
            None => Ok(vec![absent; self.channels]),
        };
        let factor = match self.inputs[FACTOR] {
            Some(input) => inputs.floats(input)?.first().copied().unwrap_or(0.0),
            None => 1.0,
        };
        let by = if factor == 0.0 { 0.0 } else { 1.0 / factor };
        if factor == 0.0 {
            let what = "became 0 before the fold: the layer's factor is 0, so no statistics were gathered";
            inputs.report(Amount::Lost(self.channels as u64), what);
        }
        let (mean, variance) = (part(MEAN, 0.0)?, part(VARIANCE, 1.0)?);
        let (gamma, beta, scale, shift) = (part(GAMMA, 1.0)?, part(BETA, 0.0)?, part(SCALE, 1.0)?, part(SHIFT, 0.0)?);
        let is_normal = self.inputs[VARIANCE].is_some();
        let affine = (0..self.channels).map(|c| {
            let deviation = if is_normal { (variance[c] * by + self.eps).sqrt() } else { 1.0 };
            let own = gamma[c] / deviation;
            let factor = own * scale[c];
            (factor, (beta[c] - mean[c] * by * own) * scale[c] + shift[c])
        });
        let affine: Vec<(f64, f64)> = affine.collect();
        match affine.iter().position(|(factor, summand)| !(factor.is_finite() && summand.is_finite())) {
            Some(channel) => Err(inputs
                .error(format!("cannot be folded: channel {channel} would be multiplied by {}", affine[channel].0))),
            None => Ok(affine),
        }
    }
}

/// Values of a layer after the normalisation.
#[derive(Debug)]
pub(super) struct Normalised {
    pub(super) norm: Norm,
    pub(super) of: Of,
}

/// The values that a normalisation changes.
#[derive(Debug)]
pub(super) enum Of {
    /// The first input, times the factor of each channel.
    Weights(Run),
    /// The first input, a value for each channel: times the factor, and the summand added.
    Bias,
    /// A layer without a bias, taken as zeros: the summands.
    NoBias,
}

impl Compute for Normalised {
    fn open<'a>(&'a self, inputs: Inputs<'a>) -> Result<Box<dyn Stream + 'a>, Error> {
        let affine = self.norm.affine(&inputs)?;
        let bias = match &self.of {
            Of::Weights(run) => return scaled(inputs, affine, run),
            Of::Bias => inputs.floats(0)?,
            Of::NoBias => vec![0.0; self.norm.channels],
        };
        let new: Vec<f64> = bias.iter().zip(affine).map(|(bias, (factor, summand))| bias * factor + summand).collect();
        Ok(ready(inputs.rounded(&new)))
    }
}

fn scaled<'a>(inputs: Inputs<'a>, affine: Vec<(f64, f64)>, run: &'a Run) -> Result<Box<dyn Stream + 'a>, Error> {
    let dtype: DType = inputs.made.dtype;
    let mut weights = inputs.open(0)?;
    let mut at = 0;
    Ok(Box::new(move |out: &mut [u8]| {
        let n = weights.pull(out)?;
        let old = read(&out[..n], dtype);
        let new: Vec<f64> = old.iter().enumerate().map(|(i, value)| value * affine[run.channel(at + i)].0).collect();
        let most = old.iter().zip(&new).fold(0.0, |most: f64, (old, new)| most.max((new - old).abs()));
        inputs.report(Amount::Most(most), "is the largest change of a weight");
        at += old.len();
        out[..n].copy_from_slice(&inputs.rounded(&new));
        Ok(n)
    }))
}
