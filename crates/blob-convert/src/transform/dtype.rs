//! `dtype`: floats of every width as those of one width, each rounded once, to nearest even.
//!
//! Integers and bools stay as they are. What becomes infinite on the way is counted where the values are rounded.

use blob_core::DType;
use serde_json::{Value, json};

use super::step::{Context, Made, Misfit, Outcome, Spec, Transform};

/// Writes floats of every width as one dtype.
///
/// A value rounds to the nearest one of the dtype, of two the even one, and past the largest to infinity; those are among
/// [`Summary::found`](crate::Summary::found), and [`Options::strict`](crate::Options::strict) refuses them. NaN stays NaN.
#[derive(Clone, Copy, Debug)]
pub struct Dtype(DType);

impl Dtype {
    /// Rounds floats to `dtype`; `None` where that is no dtype of floats.
    #[must_use]
    pub fn new(dtype: DType) -> Option<Self> {
        dtype.is_float().then_some(Self(dtype))
    }

    pub(super) fn read(settings: &Value) -> Option<Self> {
        Self::new(settings["to"].as_str()?.parse().ok()?)
    }
}

impl Transform for Dtype {
    fn name(&self) -> &'static str {
        "dtype"
    }

    fn settings(&self) -> Value {
        json!({ "to": self.0.name() })
    }

    fn plan(&self, tensors: &[Spec<'_>], _: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let mut others = 0;
        let made = tensors.iter().enumerate().map(|(place, spec)| {
            let same = Made::same(place, spec);
            match spec.tensor.dtype {
                dtype if dtype == self.0 => same,
                dtype if dtype.is_float() => same.rounded(self.0).saying(format!("written as {}", self.0)),
                _ => {
                    others += 1;
                    same
                }
            }
        });
        let outcome: Outcome = made.collect();
        Ok(match others {
            0 => outcome,
            1 => outcome.noting("1 tensor does not hold floats, and stays as it is"),
            others => outcome.noting(format!("{others} tensors do not hold floats, and stay as they are")),
        })
    }
}
