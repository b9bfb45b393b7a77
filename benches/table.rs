//! Measured figures beside their bars.

/// One figure.
pub(crate) struct Row {
    name: String,
    value: f64,
    unit: &'static str,
    bar: f64,
    low_is_good: bool,
}

impl Row {
    pub(crate) fn at_most(name: &str, value: f64, unit: &'static str, bar: f64) -> Self {
        Self {
            name: name.to_owned(),
            value,
            unit,
            bar,
            low_is_good: true,
        }
    }

    pub(crate) fn at_least(name: &str, value: f64, unit: &'static str, bar: f64) -> Self {
        Self {
            low_is_good: false,
            ..Self::at_most(name, value, unit, bar)
        }
    }

    fn verdict(&self) -> &'static str {
        match (self.low_is_good, self.value <= self.bar) {
            (true, true) | (false, false) => "ok",
            _ if self.value == self.bar => "ok",
            _ => "MISSED",
        }
    }
}

/// The middle of the values.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// The machine, then a line a figure.
pub(crate) fn print(rows: &[Row]) {
    println!("machine: {}", machine());
    println!("{:<58} {:>12} {:>12}", "case", "measured", "bar");
    for row in rows {
        let bound = if row.low_is_good { "<=" } else { ">=" };
        println!(
            "{:<58} {:>8.3} {:<3} {:>4} {:<6} {}",
            row.name,
            row.value,
            row.unit,
            bound,
            row.bar,
            row.verdict()
        );
    }
}

/// Processor, cores and system, in words.
pub(crate) fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1))
        .unwrap_or("unknown CPU")
        .to_owned();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "{model}, {cores} cores, {} {}",
        std::env::consts::OS,
        std::env::consts::ARCH
    )
}
