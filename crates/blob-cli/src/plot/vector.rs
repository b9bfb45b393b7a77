//! A picture as SVG: a path for each colour, sharp at any size, and a legend.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::raster::{Colours, NOT_FINITE, Picture, Raster, Scale};
use crate::failure::Failure;
use crate::render::svg::Drawing;
use crate::units;

/// A picture is enlarged to about this many units a side; the legend is as wide.
const SIDE: usize = 640;

/// The least height of a picture: a vector is one row.
const MIN_HEIGHT: usize = 48;

/// The most points; a file with more would be slow to show.
const MAX_POINTS: usize = 1 << 18;

/// The height of the legend's colours.
const RAMP: usize = 12;

/// The picture with the legend below.
pub(super) fn drawing(picture: &Picture) -> Result<Drawing, Failure> {
    let raster = &picture.raster;
    if raster.pixels.len() > MAX_POINTS {
        let points = units::grouped(raster.pixels.len() as u64);
        return Err(Failure::new(format!("an SVG of {points} points would be too large")).help("write a .png"));
    }
    let (width, height) = (raster.width.max(1), raster.height().max(1));
    let by = (SIDE as f64 / width.max(height) as f64).min(40.0);
    let down = by.max(MIN_HEIGHT as f64 / height as f64);
    let (wide, high) = ((width as f64 * by).ceil() as usize, (height as f64 * down).ceil() as usize);
    let mut markup = format!("<g transform=\"scale({by:.4} {down:.4})\" shape-rendering=\"crispEdges\">");
    for ([r, g, b], path) in paths(raster) {
        let _ = write!(markup, "<path fill=\"#{r:02x}{g:02x}{b:02x}\" d=\"{path}\"/>");
    }
    markup.push_str("</g>");
    let legend = legend(&picture.scale, raster);
    let _ = write!(markup, "<g transform=\"translate(0 {})\">{legend}</g>", high + 14);
    Ok(Drawing { width: wide, height: high + 14 + RAMP + 22, markup })
}

/// For each colour the rectangles of that colour: runs of points in a row.
fn paths(raster: &Raster) -> BTreeMap<[u8; 3], String> {
    let mut paths = BTreeMap::<_, String>::new();
    for y in 0..raster.height() {
        let mut x = 0;
        while x < raster.width {
            let pixel = raster.at(x, y);
            let run = (x..raster.width).take_while(|at| raster.at(*at, y) == pixel).count();
            if let Some(colour) = pixel {
                let _ = write!(paths.entry(colour).or_default(), "M{x} {y}h{run}v1h-{run}z");
            }
            x += run;
        }
    }
    paths
}

/// The scale from low to high, and the colour of values that are not finite where there are some.
fn legend(scale: &Scale, raster: &Raster) -> String {
    let mut text = String::new();
    let below = RAMP + 16;
    if scale.low <= scale.high {
        let (low, high) = (units::number(scale.low), units::number(scale.high));
        let stops = scale.colours.stops();
        text.push_str("<linearGradient id=\"scale\">");
        for (number, [r, g, b]) in stops.iter().enumerate() {
            let at = 100 * number / (stops.len() - 1);
            let _ = write!(text, "<stop offset=\"{at}%\" stop-color=\"#{r:02x}{g:02x}{b:02x}\"/>");
        }
        let wide = SIDE / 2;
        let _ = write!(text, "</linearGradient><rect width=\"{wide}\" height=\"{RAMP}\" fill=\"url(#scale)\"/>");
        let _ = write!(text, "<text x=\"0\" y=\"{below}\">{low}</text>");
        let _ = write!(text, "<text x=\"{wide}\" y=\"{below}\" text-anchor=\"end\">{high}</text>");
        if scale.colours == Colours::Signed {
            let _ = write!(text, "<text x=\"{}\" y=\"{below}\" text-anchor=\"middle\">0</text>", wide / 2);
        }
    }
    if raster.pixels.contains(&Some(NOT_FINITE)) {
        let [r, g, b] = NOT_FINITE;
        let x = SIDE / 2 + 40;
        let _ = write!(text, "<rect x=\"{x}\" width=\"{RAMP}\" height=\"{RAMP}\" fill=\"#{r:02x}{g:02x}{b:02x}\"/>");
        let _ = write!(text, "<text x=\"{}\" y=\"{RAMP}\">NaN or Inf</text>", x + RAMP + 6);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_one_colour_are_one_path_of_runs() {
        let (red, blue) = (Some([255, 0, 0]), Some([0, 0, 255]));
        let raster = Raster { width: 3, pixels: vec![red, red, blue, None, None, red] };
        let paths = paths(&raster);
        assert_eq!(paths[&[255, 0, 0]], "M0 0h2v1h-2zM2 1h1v1h-1z");
        assert_eq!(paths[&[0, 0, 255]], "M2 0h1v1h-1z");
        assert_eq!(paths.len(), 2);
    }
}
