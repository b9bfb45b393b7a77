//! A table of measured figures, each with a bar: the limit that the project has set.

/// One measured figure.
pub(crate) struct Row {
    name: String,
    value: f64,
    unit: &'static str,
    /// `None` for a figure that is only printed for comparison.
    bar: Option<f64>,
    low_is_good: bool,
    note: String,
}

impl Row {
    pub(crate) fn at_most(name: &str, value: f64, unit: &'static str, bar: f64) -> Self {
        Self { name: name.to_owned(), value, unit, bar: Some(bar), low_is_good: true, note: String::new() }
    }

    pub(crate) fn at_least(name: &str, value: f64, unit: &'static str, bar: f64) -> Self {
        Self { low_is_good: false, ..Self::at_most(name, value, unit, bar) }
    }

    /// A figure without a bar, for comparison.
    pub(crate) fn unjudged(name: &str, value: f64, unit: &'static str) -> Self {
        Self { bar: None, ..Self::at_most(name, value, unit, 0.0) }
    }

    /// The row with a note at the end.
    pub(crate) fn noted(self, note: String) -> Self {
        Self { note, ..self }
    }

    /// The bar, and whether the figure meets it.
    fn verdict(&self) -> String {
        let Some(bar) = self.bar else {
            return format!("{:>4} {:<6} {:<6}", "", "", "");
        };
        let (bound, is_met) = if self.low_is_good { ("<=", self.value <= bar) } else { (">=", self.value >= bar) };
        let verdict = if is_met { "ok" } else { "MISSED" };
        format!("{bound:>4} {bar:<6} {verdict:<6}")
    }
}

/// The median; of an even number of values, the upper one of the middle two.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Prints the machine, then a line for each figure.
pub(crate) fn print(rows: &[Row]) {
    machine().iter().for_each(|line| println!("{line}"));
    println!("{:<66} {:>14} {:>12}", "case", "measured", "bar");
    for row in rows {
        let line = format!("{:<66} {:>8.3} {:<5} {} {}", row.name, row.value, row.unit, row.verdict(), row.note);
        println!("{}", line.trim_end());
    }
}

/// Describes the machine: name, cores and system; processor and caches; the kernels that we choose there.
pub(crate) fn machine() -> [String; 3] {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let field = cpu.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim())
        });
        field.unwrap_or("unknown")
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let (vendor, family, model) = (field("vendor_id"), field("cpu family"), field("model"));
    [
        format!("machine: {}, {cores} cores, {} {}", field("model name"), std::env::consts::OS, std::env::consts::ARCH),
        format!("processor: {vendor} family {family} model {model}, caches {}", caches()),
        format!(
            "blob's instruction set: {}, its stores of large results: {}",
            blob_ops::instruction_set(),
            blob_ops::stores()
        ),
    ]
}

/// The caches of the first core, as described by Linux.
fn caches() -> String {
    let all = (0..8).filter_map(|index: usize| {
        let read = |file: &str| {
            let folder = format!("/sys/devices/system/cpu/cpu0/cache/index{index}");
            let text = std::fs::read_to_string(format!("{folder}/{file}")).ok()?;
            Some(text.trim().to_owned())
        };
        let (level, kind, size) = (read("level")?, read("type")?, read("size")?);
        (kind != "Instruction").then(|| format!("L{level} {size}"))
    });
    let all: Vec<String> = all.collect();
    if all.is_empty() { "unknown".to_owned() } else { all.join(", ") }
}
