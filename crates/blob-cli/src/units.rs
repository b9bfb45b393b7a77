//! Formats and parses numbers for people: `1.64 MiB`, `431,080`, `102.8 M`, `0.008979`, `33.3%`.

pub(crate) use blob_io::grouped;
pub(crate) use blob_io::words::plural;

/// Bytes in binary units: `512 B`, `1.64 MiB`, `527.8 MiB`.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    // 1023.95 would be printed as 1024.0.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", digits(value), UNITS[unit])
}

/// Bytes in binary units and exactly: `1.64 MiB (1,724,691 bytes)`.
pub(crate) fn exact_bytes(n: u64) -> String {
    let exact = plural(n, "byte");
    if n < 1024 { exact } else { format!("{} ({exact})", bytes(n)) }
}

/// A number of things: exact below ten million, then `102.8 M`, `1.20 G`.
pub(crate) fn count(n: u64) -> String {
    if n < 10_000_000 {
        return grouped(n);
    }
    let mut value = n as f64 / 1e6;
    let mut unit = 0;
    const UNITS: [&str; 5] = ["M", "G", "T", "P", "E"];
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{} {}", digits(value), UNITS[unit])
}

fn digits(value: f64) -> String {
    if value < 9.995 { format!("{value:.2}") } else { format!("{value:.1}") }
}

/// A duration: `0.6 ms`, `1.3 s`.
pub(crate) fn seconds(s: f64) -> String {
    match s {
        s if s < 0.1 => format!("{:.1} ms", s * 1e3),
        s if s < 10.0 => format!("{s:.2} s"),
        s => format!("{s:.1} s"),
    }
}

/// A number with four significant digits, as C's `%#.4g` prints: `0.008979`, `1.500`, `1235`, `5.052e4`.
pub(crate) fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !value.is_finite() {
        let text = if value.is_nan() {
            "nan"
        } else if value > 0.0 {
            "inf"
        } else {
            "-inf"
        };
        return text.to_owned();
    }
    // The exponent is that of the rounded number: 9999.6 has the exponent 4.
    let rounded = format!("{value:.3e}");
    let exponent = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok());
    match exponent {
        Some(e @ -4..=3) => format!("{value:.0$}", (3 - e) as usize),
        _ => rounded,
    }
}

/// A share in percent: 0% or 100% only where exact.
pub(crate) fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    let percent = 100.0 * part as f64 / whole as f64;
    match part {
        0 => "0%".to_owned(),
        p if p == whole => "100%".to_owned(),
        _ if percent < 0.1 => "<0.1%".to_owned(),
        _ if percent > 99.9 => ">99.9%".to_owned(),
        _ => format!("{percent:.1}%"),
    }
}

/// Parses a size: `65536`, `512K`, `1.5GiB`, `2GB`. K and KiB are 1024, KB is 1000.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no size; write bytes, or a number with K, M, G or T: 512M, 1.5GiB");
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim().to_ascii_lowercase();
    let (power, base) = match unit.as_str() {
        "" | "b" => (0, 1u64),
        other => {
            let power = 1 + other.chars().next().and_then(|c| "kmgt".find(c)).ok_or_else(wrong)?;
            let base = match &other[1..] {
                "" | "ib" => 1024,
                "b" => 1000,
                _ => return Err(wrong()),
            };
            (power as u32, base)
        }
    };
    let scale = base.pow(power);
    let size = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(scale),
        Err(_) => {
            let value = number.parse::<f64>().map_err(|_| wrong())? * scale as f64;
            (value < u64::MAX as f64).then_some(value as u64)
        }
    };
    size.ok_or_else(|| format!("{text:?} is larger than any file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_are_printed_in_binary_units() {
        for (n, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (16 << 10, "16.0 KiB"),
            (1_724_691, "1.64 MiB"),
            (553_432_081, "527.8 MiB"),
            (1_048_575, "1.00 MiB"),
            (1 << 30, "1.00 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(n), text);
        }
    }

    #[test]
    fn counts_are_exact_below_ten_million() {
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (4096, "4,096"),
            (1_724_320, "1,724,320"),
            (102_760_448, "102.8 M"),
            (999_950_000, "1.00 G"),
        ] {
            assert_eq!(count(n), text);
        }
        assert_eq!([exact_bytes(48), exact_bytes(1_724_691)], ["48 bytes", "1.64 MiB (1,724,691 bytes)"]);
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(plural(1, "tensor") + &plural(0, " x"), "1 tensor0  xs");
    }

    #[test]
    fn sizes_are_parsed_with_either_base() {
        for (text, n) in [
            ("0", 0),
            ("65536", 65536),
            ("512K", 512 << 10),
            ("1.5GiB", 3 << 29),
            ("2GB", 2_000_000_000),
            ("3 mib", 3 << 20),
            ("7b", 7),
        ] {
            assert_eq!(parse_size(text), Ok(n), "{text}");
        }
        for text in ["", "x", "1Q", "1KiBs", "-1", "1.2.3K", "99999999999T"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    /// The texts are those of C's `printf("%#.4g")`, with our shorter exponents.
    #[test]
    fn numbers_have_four_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (-0.01234567, "-0.01235"),
            (0.008979, "0.008979"),
            (0.0017, "0.001700"),
            (3.405e-4, "0.0003405"),
            (1.5, "1.500"),
            (-99.999, "-100.0"),
            (999.96, "1000"),
            (1234.56, "1235"),
            (9999.4, "9999"),
            (9999.6, "1.000e4"),
            (50516.3, "5.052e4"),
            (1e-4, "0.0001000"),
            (9.9999e-5, "0.0001000"),
            (9.9994e-5, "9.999e-5"),
            (123456.0, "1.235e5"),
            (-2.5e-310, "-2.500e-310"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_number_is_rounded_to_the_nearest_four_digits() {
        for exponent in -12..13 {
            for digits in [1.0, 1.00049, 1.2345, 4.9995, 9.9994, 9.9996] {
                let value = digits * 10f64.powi(exponent);
                let printed = number(value);
                let error = (printed.parse::<f64>().unwrap() - value).abs();
                assert!(error <= value * 0.0005001, "{value} as {printed}");
                let mantissa = printed.split('e').next().unwrap().replace('.', "");
                assert_eq!(mantissa.trim_start_matches('0').len(), 4, "{value} as {printed}");
            }
        }
    }

    #[test]
    fn a_share_is_never_rounded_to_all_or_nothing() {
        let shares = [(0, 9), (9, 9), (1, 10_000), (9_999, 10_000), (1, 3), (0, 0)];
        let texts = shares.map(|(part, whole)| share(part, whole));
        assert_eq!(texts, ["0%", "100%", "<0.1%", ">99.9%", "33.3%", "-"]);
    }

    #[test]
    fn durations_have_a_sensible_unit() {
        assert_eq!(seconds(0.0006), "0.6 ms");
        assert_eq!(seconds(0.25), "0.25 s");
        assert_eq!(seconds(75.04), "75.0 s");
    }
}
