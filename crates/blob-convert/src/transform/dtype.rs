//! `dtype`: converts floats of every width to one float dtype, each rounded once, to nearest even.
//!
//! Integers and bools stay unchanged. Values that overflow to infinity are counted during rounding.

use blob_core::DType;
use serde_json::{Value, json};

use super::step::{Context, Made, Misfit, Outcome, Spec, Transform, Undone};

/// Converts floats of every width to one dtype.
///
/// A value is rounded to the nearest value of the dtype, ties to even. Values that overflow become infinite:
/// [`Summary::found`](crate::Summary::found) counts such values, and [`Options::strict`](crate::Options::strict)
/// refuses such values. NaN stays NaN.
#[derive(Clone, Copy, Debug)]
pub struct Dtype(DType);

impl Dtype {
    /// Rounds floats to `dtype`; `None` if `dtype` is not a float dtype.
    #[must_use]
    pub fn new(dtype: DType) -> Option<Self> {
        dtype.is_float().then_some(Self(dtype))
    }

    /// The dtype that floats are rounded to.
    pub(crate) fn to(self) -> DType {
        self.0
    }

    pub(crate) fn read(settings: &Value) -> Option<Self> {
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

    fn fits_net(&self) -> bool {
        true
    }

    fn undone(&self) -> Undone<'_> {
        Undone::AsItWas
    }

    fn plan(&self, tensors: &[Spec<'_>], _: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        let mut others = 0;
        let made = tensors.iter().enumerate().map(|(place, spec)| {
            let same = Made::same(place, spec);
            match spec.tensor.dtype {
                dtype if dtype == self.0 => same,
                dtype if dtype.is_float() => same.rounded(self.0),
                _ => {
                    others += 1;
                    same
                }
            }
        });
        let outcome: Outcome = made.collect();
        Ok(match others {
            0 => outcome,
            1 => outcome.with_notice("1 tensor does not hold floats, and stays as it is"),
            others => outcome.with_notice(format!("{others} tensors do not hold floats, and stay as they are")),
        })
    }
}
