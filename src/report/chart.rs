//! Charts over time as SVG, drawn by `plotters`. A drawing contains no text of the warehouse.
//!
//! The colours below are placeholders. `page/style.css` selects elements by placeholder, and gives each a colour of the
//! theme: light, dark or print.

use plotters::{
    coord::Shift,
    prelude::{
        ChartBuilder, Circle, Color, DrawingArea, IntoDrawingArea, IntoFont, LabelAreaPosition, PathElement, Polygon,
        RGBColor, Rectangle, SVGBackend, ShapeStyle,
    },
};

use super::{ReportError, axis::DayAxis, nps::NpsPeriod, report_data::Day};

/// The first series: answered questions, or NPS.
const FIRST: RGBColor = RGBColor(0x1F, 0x5F, 0xA8);
/// The second series: skipped questions.
const SECOND: RGBColor = RGBColor(0xC2, 0x6A, 0x0E);
/// The error band.
const BAND: RGBColor = RGBColor(0xB9, 0xD2, 0xEE);
const GRID: RGBColor = RGBColor(0xD9, 0xDD, 0xE3);
const INK: RGBColor = RGBColor(0x4A, 0x52, 0x5E);

/// `plotters` rounds to integer units; with four units per pixel the rounding is invisible.
const UNITS_PER_PIXEL: u32 = 4;
const LABEL_PIXELS: u32 = 14;
/// NPS axes begin and end at a multiple of this number.
const NPS_STEP: f64 = 20.0;

/// The size of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// The width of a page.
    Wide,
    /// A phone, or a card.
    Narrow,
}

impl Size {
    fn pixels(self) -> (u32, u32) {
        match self {
            Size::Wide => (1080, 260),
            Size::Narrow => (420, 220),
        }
    }
}

/// A drawing without its `svg` element.
pub(super) struct Drawing {
    /// The size in units, for `viewBox`.
    pub width: u32,
    pub height: u32,
    /// SVG elements.
    pub inside: String,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// The result of drawing. `plotters` has an error type per backend, hence the box.
type DrawResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Draws a column for each day: answered questions, with skipped questions on top. Without days the drawing is empty.
pub(super) fn answers_per_day(days: &[Day], size: Size) -> Result<Drawing, ReportError> {
    let (Some(first), Some(last)) = (days.first(), days.last()) else { return draw(size, |_| Ok(())) };
    let highest = days.iter().map(|day| day.answered + day.skipped).max().unwrap_or(1).max(1);
    let axis = DayAxis::new(first.day, last.day, size.pixels().0);
    draw(size, |area| {
        let mut chart = builder(area).build_cartesian_2d(axis, 0.0..highest as f64 * 1.05)?;
        mesh(&mut chart, |value| short(*value))?;
        let column = |day: &Day, from: i64, to: i64, color: RGBColor| {
            let left = day.day as f64;
            Rectangle::new([(left + 0.08, from as f64), (left + 0.92, to as f64)], color.filled())
        };
        chart.draw_series(days.iter().map(|day| column(day, 0, day.answered, FIRST)))?;
        let top = days.iter().filter(|day| day.skipped > 0);
        chart.draw_series(top.map(|day| column(day, day.answered, day.answered + day.skipped, SECOND)))?;
        Ok(())
    })
}

/// Draws the NPS by week or month with its 95 % band. Periods without answers are gaps. The point of a period
/// that is not whole is hollow, and no line leads to it. Without periods the drawing is empty.
pub(super) fn nps_over_time(periods: &[NpsPeriod], size: Size) -> Result<Drawing, ReportError> {
    let (Some(first), Some(last)) = (periods.first(), periods.last()) else { return draw(size, |_| Ok(())) };
    let ends = |one: &NpsPeriod| [one.nps, one.low.unwrap_or(one.nps), one.high.unwrap_or(one.nps)];
    let lowest = periods.iter().flat_map(ends).fold(f64::INFINITY, f64::min);
    let highest = periods.iter().flat_map(ends).fold(f64::NEG_INFINITY, f64::max);
    let bottom = ((lowest / NPS_STEP).floor() * NPS_STEP).clamp(-100.0, 100.0 - NPS_STEP);
    let top = ((highest / NPS_STEP).ceil() * NPS_STEP).clamp(bottom + NPS_STEP, 100.0);
    let (whole, parts): (Vec<&NpsPeriod>, Vec<&NpsPeriod>) = periods.iter().partition(|one| one.missing.is_none());
    let mut runs: Vec<&[&NpsPeriod]> = whole.chunk_by(|one, next| next.first_day == one.last_day + 1).collect();
    runs.extend(parts.chunks(1));
    draw(size, |area| {
        let axis = DayAxis::new(first.first_day, last.last_day, size.pixels().0);
        let (left, right) = (first.first_day as f64, (last.last_day + 1) as f64);
        let half_bar = (right - left) / 200.0;
        let mut chart = builder(area).build_cartesian_2d(axis, bottom - 1.0..top + 1.0)?;
        chart.draw_series(runs.iter().filter_map(|run| band(run, half_bar)))?;
        mesh(&mut chart, |value| format!("{value:.0}"))?;
        if bottom <= 0.0 && top >= 0.0 {
            chart.draw_series([PathElement::new(vec![(left, 0.0), (right, 0.0)], line(INK, 1))])?;
        }
        for run in &runs {
            let points: Vec<(f64, f64)> = run.iter().map(|one| (middle(one), one.nps)).collect();
            chart.draw_series([PathElement::new(points.clone(), line(FIRST, 2))])?;
            let is_hollow = run.iter().any(|one| one.missing.is_some());
            let style = if is_hollow { line(FIRST, 2) } else { ShapeStyle::from(&FIRST).filled() };
            let circle = |point| Circle::new(point, (3 * UNITS_PER_PIXEL) as i32, style);
            chart.draw_series(points.into_iter().map(circle))?;
        }
        Ok(())
    })
}

/// Returns the area of the 95 % bands of consecutive periods; `None` if no period has a band.
fn band(run: &[&NpsPeriod], half_bar: f64) -> Option<Polygon<(f64, f64)>> {
    let banded: Vec<(f64, f64, f64)> = run.iter().filter_map(|one| Some((middle(one), one.low?, one.high?))).collect();
    let outline: Vec<(f64, f64)> = match banded.as_slice() {
        [] => return None,
        // A single period is a point, so its band is a bar.
        [(at, low, high)] => {
            let (left, right) = (at - half_bar, at + half_bar);
            vec![(left, *low), (right, *low), (right, *high), (left, *high)]
        }
        counted => {
            let lower = counted.iter().map(|(at, low, _)| (*at, *low));
            lower.chain(counted.iter().rev().map(|(at, _, high)| (*at, *high))).collect()
        }
    };
    Some(Polygon::new(outline, BAND.filled()))
}

/// Returns the middle of a period, where its point is drawn.
fn middle(one: &NpsPeriod) -> f64 {
    (one.first_day + one.last_day + 1) as f64 / 2.0
}

fn line(color: RGBColor, pixels: u32) -> ShapeStyle {
    color.stroke_width(pixels * UNITS_PER_PIXEL)
}

fn builder<'a, 'b>(area: &'a Area<'b>) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut builder = ChartBuilder::on(area);
    builder
        .margin(6 * UNITS_PER_PIXEL)
        .margin_right(16 * UNITS_PER_PIXEL)
        .x_label_area_size(24 * UNITS_PER_PIXEL)
        .y_label_area_size(44 * UNITS_PER_PIXEL);
    builder
}

fn mesh<'a>(
    chart: &mut plotters::chart::ChartContext<
        'a,
        SVGBackend<'_>,
        plotters::coord::cartesian::Cartesian2d<DayAxis, plotters::coord::types::RangedCoordf64>,
    >,
    label: impl Fn(&f64) -> String,
) -> DrawResult {
    let type_face = ("sans-serif", LABEL_PIXELS * UNITS_PER_PIXEL).into_font().color(&INK);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .max_light_lines(0)
        .bold_line_style(line(GRID, 1))
        .axis_style(line(GRID, 1))
        .label_style(type_face)
        // The lowest label of the left axis and a month that begins at this axis must not touch.
        .set_tick_mark_size(LabelAreaPosition::Bottom, (8 * UNITS_PER_PIXEL) as i32)
        .y_labels(5)
        .y_label_formatter(&label)
        .draw()?;
    Ok(())
}

/// Formats an axis label: `12`, `35k`, `3.5M`. Returns nothing for a fraction.
fn short(value: f64) -> String {
    let plain = |value: f64, unit: &str| match value.fract() == 0.0 {
        true => format!("{value:.0}{unit}"),
        false => format!("{value:.1}{unit}"),
    };
    match value {
        value if value >= 1e6 => plain(value / 1e6, "M"),
        value if value >= 1e4 => plain(value / 1e3, "k"),
        value if value.fract() != 0.0 => String::new(),
        value => format!("{value:.0}"),
    }
}

/// Makes a drawing of this size with `paint`.
fn draw(size: Size, paint: impl FnOnce(&Area<'_>) -> DrawResult) -> Result<Drawing, ReportError> {
    let (width, height) = size.pixels();
    let (width, height) = (width * UNITS_PER_PIXEL, height * UNITS_PER_PIXEL);
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| ReportError::Draw(error.to_string());
        paint(&area).map_err(failed)?;
        area.present().map_err(|error| failed(error.into()))?;
    }
    // The page adds its own `svg` element, with a title and without a fixed size.
    let inside = svg.split_once('>').and_then(|(_, rest)| rest.rsplit_once("</svg>")).map(|(inside, _)| inside);
    let inside = inside.ok_or_else(|| ReportError::Draw("no drawing was made".to_owned()))?;
    Ok(Drawing { width, height, inside: inside.trim().to_owned() })
}
