//! `select`: keeps some of the source's tensors.

use serde_json::{Value, json};

use super::selection::{Dims, Selection};
use super::step::{Context, Made, Misfit, Outcome, Spec, Transform, Undone};

impl Selection {
    /// Reads the settings of `select` in a receipt or a recipe; `None` for settings that make no sense.
    #[must_use]
    pub fn read(settings: &Value) -> Option<Self> {
        let texts = |key: &str| -> Option<Vec<String>> {
            let listed = settings.get(key).map_or(Some(&[][..]), |value| value.as_array().map(Vec::as_slice))?;
            listed.iter().map(|text| text.as_str().map(str::to_owned)).collect()
        };
        Some(Self {
            patterns: texts("patterns")?,
            regex: settings["regex"].as_bool().unwrap_or(false),
            exclude: texts("exclude")?,
            dtypes: texts("dtypes")?.iter().map(|name| name.parse().ok()).collect::<Option<_>>()?,
            shapes: texts("shapes")?.iter().map(|text| Dims::parse(text)).collect::<Option<_>>()?,
        })
    }
}

impl Transform for Selection {
    fn name(&self) -> &'static str {
        "select"
    }

    fn settings(&self) -> Value {
        let dtypes: Vec<&str> = self.dtypes.iter().map(|dtype| dtype.name()).collect();
        let shapes: Vec<String> = self.shapes.iter().map(ToString::to_string).collect();
        json!({
            "patterns": self.patterns,
            "regex": self.regex,
            "exclude": self.exclude,
            "dtypes": dtypes,
            "shapes": shapes,
        })
    }

    fn keeps_values(&self) -> bool {
        true
    }

    /// The chosen tensors stay as in the source. The plan reads no other tensors.
    fn undone(&self) -> Undone<'_> {
        Undone::AsItWas
    }

    fn plan(&self, tensors: &[Spec<'_>], _: &Context<'_>) -> Result<Outcome, Vec<Misfit>> {
        Ok(tensors.iter().enumerate().map(|(place, spec)| Made::same(place, spec)).collect())
    }

    fn is_idle(&self) -> bool {
        self.is_all()
    }

    fn selection(&self) -> Option<&Selection> {
        Some(self)
    }
}
