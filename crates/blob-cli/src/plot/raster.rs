//! A picture in memory: points, and the scale that says which value each colour stands for.

use std::ops::Range;

/// The colour of NaN and Inf, and of no finite value.
pub(super) const NOT_FINITE: [u8; 3] = [255, 0, 255];

/// Points in row-major order.
pub(super) struct Raster {
    pub(super) width: usize,
    /// The colours; `None` is nothing, the gap between two filters.
    pub(super) pixels: Vec<Option<[u8; 3]>>,
}

impl Raster {
    pub(super) fn height(&self) -> usize {
        self.pixels.len() / self.width.max(1)
    }

    /// The point at a place; nothing outside the picture.
    pub(super) fn at(&self, x: usize, y: usize) -> Option<[u8; 3]> {
        let pixel = self.pixels.get(y * self.width + x).filter(|_| x < self.width);
        pixel.copied().flatten()
    }

    /// The picture with each point as a rectangle of points, `across` wide and `down` high.
    pub(super) fn enlarged(&self, across: usize, down: usize) -> Self {
        let rows = self.pixels.chunks(self.width.max(1));
        let wide = rows.map(|row| row.iter().flat_map(|pixel| std::iter::repeat_n(*pixel, across)).collect::<Vec<_>>());
        let pixels = wide.flat_map(|row| row.repeat(down)).collect();
        Self { width: self.width * across, pixels }
    }

    /// The picture scaled down to at most this size; each point is the mean of a square of points, or not finite where
    /// one of them is not.
    pub(super) fn shrunk(&self, columns: usize, rows: usize) -> Self {
        let height = self.height();
        let by = self.width.div_ceil(columns.max(1)).max(height.div_ceil(rows.max(1))).max(1);
        let (width, height) = (self.width / by.min(self.width.max(1)), height / by.min(height.max(1)));
        let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        Self { width, pixels: pixels.map(|(x, y)| self.mean(x * by..(x + 1) * by, y * by..(y + 1) * by)).collect() }
    }

    /// The mean of a rectangle of points; no point where the rectangle has none.
    fn mean(&self, columns: Range<usize>, rows: Range<usize>) -> Option<[u8; 3]> {
        let points = rows.flat_map(|row| columns.clone().map(move |column| (column, row)));
        let pixels: Vec<[u8; 3]> = points.filter_map(|(column, row)| self.at(column, row)).collect();
        if pixels.is_empty() || pixels.contains(&NOT_FINITE) {
            return pixels.first().map(|_| NOT_FINITE);
        }
        Some(std::array::from_fn(|channel| {
            let sum: u64 = pixels.iter().map(|pixel| u64::from(pixel[channel])).sum();
            (sum / pixels.len() as u64) as u8
        }))
    }
}

/// The colours of a scale, from low to high.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colours {
    /// Blue, white, red: white is 0.
    Signed,
    /// Dark to light.
    Plain,
    /// Black to white, for one channel or for each of three.
    Grey,
}

impl Colours {
    /// The colours at equal distances from the lowest to the highest.
    pub(super) fn stops(self) -> &'static [[u8; 3]] {
        match self {
            Self::Signed => &[[33, 102, 172], [247, 247, 247], [178, 24, 43]],
            Self::Plain => &[[68, 1, 84], [33, 145, 140], [253, 231, 37]],
            Self::Grey => &[[0, 0, 0], [255, 255, 255]],
        }
    }
}

/// Which value each colour stands for. Values beyond the ends have the colours of the ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) colours: Colours,
}

impl Scale {
    /// The scale for a range of values: signed, with 0 in the middle, if both signs occur.
    fn of_range(low: f64, high: f64) -> Self {
        if low < 0.0 && high > 0.0 {
            let most = high.max(-low);
            return Self { low: -most, high: most, colours: Colours::Signed };
        }
        Self { low, high, colours: Colours::Plain }
    }

    /// The scale for most of these values: without the hundredth with the largest magnitudes if both signs occur, else
    /// without a hundredth at either end. A few outliers would leave all other values in one colour.
    pub(super) fn clipped(values: &[f64]) -> Self {
        let mut finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        let (least, most) = extremes(&finite);
        let is_signed = least < 0.0 && most > 0.0;
        if is_signed {
            finite.iter_mut().for_each(|value| *value = value.abs());
        }
        if finite.is_empty() {
            return Self::of_range(least, most);
        }
        let (share, last) = (finite.len() / 100, finite.len() - 1);
        let high = *finite.select_nth_unstable_by(last - share, f64::total_cmp).1;
        let low = if is_signed { -high } else { *finite.select_nth_unstable_by(share, f64::total_cmp).1 };
        if low < high { Self::of_range(low, high) } else { Self::of_range(least, most) }
    }

    /// The scale of grey for these values.
    pub(super) fn grey(values: &[f64]) -> Self {
        let (low, high) = extremes(values);
        Self { low, high, colours: Colours::Grey }
    }

    pub(super) fn colour(&self, value: f64) -> [u8; 3] {
        if !value.is_finite() {
            return NOT_FINITE;
        }
        let stops = self.colours.stops();
        let last = (stops.len() - 1) as f64;
        let at = if self.high > self.low { (value - self.low) / (self.high - self.low) * last } else { 0.0 };
        let at = at.clamp(0.0, last);
        let from = (at as usize).min(stops.len() - 2);
        let share = at - from as f64;
        std::array::from_fn(|i| {
            let (left, right) = (f64::from(stops[from][i]), f64::from(stops[from + 1][i]));
            (left + share * (right - left)).round() as u8
        })
    }

    /// Whether a value is beyond the scale's ends.
    pub(super) fn is_beyond(&self, value: f64) -> bool {
        value.is_finite() && (value < self.low || value > self.high)
    }
}

/// The minimum and maximum of the finite values; infinite ones if there are none.
pub(super) fn extremes(values: &[f64]) -> (f64, f64) {
    let finite = values.iter().filter(|value| value.is_finite());
    finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| (min.min(*value), max.max(*value)))
}

/// A drawn tensor with the notes that a reader of the colours needs.
pub(super) struct Picture {
    pub(super) raster: Raster,
    pub(super) scale: Scale,
    /// The number of points beyond the scale.
    pub(super) beyond: usize,
    /// Remarks for people.
    pub(super) notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colour_shows_sign_and_magnitude() {
        let signed = Scale::of_range(-2.0, 1.0);
        assert_eq!((signed.low, signed.high), (-2.0, 2.0));
        assert_eq!(
            [-2.0, 0.0, 2.0, 9.0].map(|x| signed.colour(x)),
            [[33, 102, 172], [247; 3], [178, 24, 43], [178, 24, 43]]
        );
        let plain = Scale::of_range(5.0, 9.0);
        assert_eq!([5.0, 9.0, f64::NAN].map(|x| plain.colour(x)), [[68, 1, 84], [253, 231, 37], NOT_FINITE]);
        assert_eq!(Scale::of_range(5.0, 5.0).colour(5.0), [68, 1, 84]);
        assert_eq!(Scale::of_range(f64::INFINITY, f64::NEG_INFINITY).colour(0.0), [68, 1, 84]);
        let grey = Scale::grey(&[0.0, 255.0, f64::INFINITY]);
        assert_eq!([0.0, 77.0, 255.0].map(|x| grey.colour(x)), [[0; 3], [77; 3], [255; 3]]);
    }

    #[test]
    fn an_outlier_of_a_hundred_does_not_set_the_scale() {
        let range = |values: &[f64]| {
            let scale = Scale::clipped(values);
            (scale.low, scale.high, values.iter().filter(|value| scale.is_beyond(**value)).count())
        };
        let mut values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(range(&values), (3.0, 198.0, 4));
        values[199] = -1e9;
        assert_eq!(range(&values), (-198.0, 198.0, 2), "1e9 and 199");
        assert_eq!(range(&values[190..]), (-1e9, 1e9, 0), "of fewer than a hundred values none is left out");
        // Nearly all are 0: the others are shown all the same.
        let mut values = vec![0.0; 500];
        values[7] = 3.0;
        assert_eq!(range(&values), (0.0, 3.0, 0));
        values[8] = -1.0;
        assert_eq!(range(&values), (-3.0, 3.0, 0));
        assert_eq!(range(&[f64::NAN]).2, 0);
    }

    #[test]
    fn a_shrunk_picture_has_the_means() {
        let raster = Raster { width: 4, pixels: (0..16).map(|i| Some([i as u8 * 10; 3])).collect() };
        let small = raster.shrunk(2, 9);
        assert_eq!((small.width, small.height()), (2, 2));
        assert_eq!(small.pixels, [[25; 3], [45; 3], [105; 3], [125; 3]].map(Some));
        assert_eq!(raster.shrunk(9, 9).pixels, raster.pixels);
        assert_eq!(Raster { width: 0, pixels: Vec::new() }.shrunk(2, 2).height(), 0);
        assert_eq!(Raster { width: 100, pixels: vec![Some([1; 3]); 100] }.shrunk(10, 10).height(), 1);
        let odd = Raster { width: 2, pixels: vec![Some([1; 3]), Some(NOT_FINITE), None, None] };
        assert_eq!(odd.shrunk(1, 1).pixels, [Some(NOT_FINITE)], "one value that is not finite stays visible");
        assert_eq!(Raster { width: 2, pixels: vec![None; 4] }.shrunk(1, 1).pixels, [None]);
    }

    #[test]
    fn an_enlarged_picture_repeats_its_points() {
        let raster = Raster { width: 2, pixels: vec![Some([1; 3]), None] };
        let large = raster.enlarged(2, 3);
        let row = [Some([1; 3]), Some([1; 3]), None, None];
        assert_eq!((large.width, large.pixels), (4, row.repeat(3)));
    }
}
