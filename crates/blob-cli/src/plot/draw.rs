//! Encodes pictures as PNG, and prints them in the terminal: as coloured half blocks, or as characters from light to
//! dark.

use std::io::Write;

use blob_convert::stats::Binned;

use super::raster::Raster;
use crate::failure::Failure;
use crate::output::{Out, Terminal};
use crate::render::svg::Title;
use crate::units;

/// The height of a histogram's bars in rows.
const BAR_ROWS: u64 = 8;

/// Encodes a picture as PNG.
pub(super) fn png(raster: &Raster) -> Result<Vec<u8>, Failure> {
    let failed = |e: png::EncodingError| Failure::new(format!("the picture cannot be encoded: {e}"));
    let (width, height) = (raster.width as u32, raster.height() as u32);
    if width == 0 || height == 0 {
        return Err(Failure::new("the tensor has no values, and a picture at least one point"));
    }
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(raster.pixels.as_flattened()).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(bytes)
}

/// Prints a picture, two rows of pixels a line.
pub(super) fn blocks(terminal: &Terminal, raster: &Raster, out: &mut Out) -> Result<(), Failure> {
    let pixel = |x: usize, y: usize| raster.pixels.get(y * raster.width + x).filter(|_| x < raster.width);
    for y in (0..raster.height()).step_by(2) {
        for x in 0..raster.width {
            let (upper, lower) = (pixel(x, y).copied().unwrap_or_default(), pixel(x, y + 1).copied());
            match terminal.has_colour() {
                true => write!(out, "{}", half_block(upper, lower))?,
                false => write!(out, "{}", shade(upper, lower.unwrap_or(upper), terminal.ascii))?,
            }
        }
        writeln!(out, "{}", if terminal.has_colour() { "\x1b[0m" } else { "" })?;
    }
    Ok(())
}

/// `▀` in the colour of the upper pixel on a background in the colour of the lower.
fn half_block([r, g, b]: [u8; 3], lower: Option<[u8; 3]>) -> String {
    let below = lower.map_or("\x1b[49m".to_owned(), |[r, g, b]| format!("\x1b[48;2;{r};{g};{b}m"));
    format!("\x1b[38;2;{r};{g};{b}m{below}▀")
}

/// The character for two pixels: the darker they are, the more of the cell it fills.
fn shade(upper: [u8; 3], lower: [u8; 3], ascii: bool) -> char {
    let light = |[r, g, b]: [u8; 3]| 299 * u32::from(r) + 587 * u32::from(g) + 114 * u32::from(b);
    let light = (light(upper) + light(lower)) / 2000;
    let shades: &[char] = if ascii { &['@', '#', '*', '+', '-', '.', ' '] } else { &['█', '▓', '▒', '░', ' '] };
    shades[light as usize * shades.len() / 256]
}

/// Prints a histogram.
pub(super) fn bars(terminal: &Terminal, title: &Title, bins: Option<&Binned>, out: &mut Out) -> Result<(), Failure> {
    const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    writeln!(out, "{}  {}", terminal.strong(terminal.name(&title.name)), terminal.text(&title.about))?;
    let Some(bins) = bins else {
        writeln!(out, "no value is finite")?;
        return Ok(());
    };
    let most = bins.counts.iter().copied().max().unwrap_or(0).max(1);
    // The height of a bar in eighths of a row, rounded up: only an empty bin has none.
    let height = |count: u64| (u128::from(count) * u128::from(8 * BAR_ROWS)).div_ceil(u128::from(most)) as u64;
    for row in (0..BAR_ROWS).rev() {
        let cell = |count: &u64| {
            let eighths = height(*count).saturating_sub(8 * row).min(8);
            match terminal.ascii {
                true if eighths == 0 => ' ',
                true => '#',
                false => BLOCKS[eighths as usize],
            }
        };
        let line: String = bins.counts.iter().map(cell).collect();
        writeln!(out, " {}", line.trim_end())?;
    }
    let (min, max) = (units::number(bins.min), units::number(bins.max));
    let rule = if terminal.ascii { "-" } else { "─" };
    writeln!(out, " {}", rule.repeat(bins.counts.len()))?;
    let room = bins.counts.len().saturating_sub(min.len());
    writeln!(out, " {min}{max:>room$}")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dark_pixels_are_full_characters() {
        assert_eq!([shade([0; 3], [0; 3], false), shade([255; 3], [255; 3], false)], ['█', ' ']);
        assert_eq!([shade([0; 3], [0; 3], true), shade([255; 3], [255; 3], true)], ['@', ' ']);
        assert_eq!(shade([0; 3], [255; 3], false), '▒');
    }
}
