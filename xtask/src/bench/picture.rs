//! Growth curves for the documentation, as SVG that is legible on light and on dark pages.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result, bail};

use super::Scenario;
use super::measured::Unit;
use super::percentile::percentile;
use super::report::Report;
use crate::process::print_line;
use crate::workspace;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
/// The space around the plot for the labels: left, top, right, bottom.
const MARGIN: [f64; 4] = [72.0, 56.0, 24.0, 48.0];
/// Colours that differ in lightness as well, and have enough contrast to white and to black.
const COLOURS: [&str; 5] = ["#2f7ed8", "#d9730d", "#7a8088", "#1a9e6c", "#b4459d"];

/// The pictures: file, title, scenario, figure, what the size counts.
const PICTURES: [(&str, &str, Scenario, &str, &str); 6] = [
    ("clusters-ready", "Created to all ready", Scenario::Clusters, "all ready after", "RayClusters"),
    ("clusters-cpu", "CPU per RayCluster", Scenario::Clusters, "operator CPU per RayCluster", "RayClusters"),
    ("clusters-memory", "Memory at rest", Scenario::Rest, "memory at rest", "RayClusters"),
    ("restart", "Restart until all is looked at", Scenario::Restart, "restart until all is looked at", "RayClusters"),
    ("scale-up", "One RayCluster scaled up", Scenario::Scale, "single-host scaled up after", "workers"),
    ("scale-down", "One RayCluster scaled down", Scenario::Scale, "single-host scaled down after", "workers"),
];

/// The points of one operator on one server.
#[derive(Debug, PartialEq)]
struct Line {
    operator: String,
    server: String,
    /// Size and value.
    points: Vec<(f64, f64)>,
}

/// Draws the pictures whose figures are in the report into docs/pictures.
pub(super) fn draw_all(report: &Report) -> Result<()> {
    let folder = workspace::root().join("docs/pictures");
    let mut drawn = 0;
    for (file, title, scenario, what, counted) in PICTURES {
        let (unit, lines) = lines(report, scenario, what);
        if lines.iter().any(|line| line.points.len() > 1) {
            let path = folder.join(format!("bench-{file}.svg"));
            std::fs::write(&path, draw(title, counted, unit, &lines))
                .with_context(|| format!("cannot write {}", path.display()))?;
            print_line(&path.display().to_string());
            drawn += 1;
        }
    }
    if drawn == 0 {
        bail!("the report has no scenario with several sizes");
    }
    Ok(())
}

/// Returns the medians of a figure by operator, server and size: those of different servers cannot be compared.
fn lines(report: &Report, scenario: Scenario, what: &str) -> (Unit, Vec<Line>) {
    let mut unit = Unit::Count;
    let mut columns: Vec<(_, BTreeMap<usize, Vec<f64>>)> = Vec::new();
    for measured in report.measured.iter().filter(|measured| measured.scenario == scenario) {
        for figure in measured.figures.iter().filter(|figure| figure.what == what) {
            unit = figure.unit;
            let of = (measured.operator.as_str(), measured.server.as_str());
            let index = columns.iter().position(|(column, _)| *column == of).unwrap_or_else(|| {
                columns.push((of, BTreeMap::new()));
                columns.len() - 1
            });
            columns[index].1.entry(measured.size).or_default().push(figure.value);
        }
    }
    let medians = |sizes: BTreeMap<usize, Vec<f64>>| {
        let medians =
            sizes.into_iter().map(|(size, values)| (size as f64, percentile(&values, 0.5).unwrap_or_default()));
        medians.collect()
    };
    let line = |((operator, server), sizes): ((&str, &str), _)| Line {
        operator: operator.to_owned(),
        server: server.to_owned(),
        points: medians(sizes),
    };
    (unit, columns.into_iter().map(line).collect())
}

/// Draws lines over sizes; both axes start at 0. Points on another than the first server are hollow.
fn draw(title: &str, counted: &str, unit: Unit, lines: &[Line]) -> String {
    let [left, top, right, bottom] = MARGIN;
    let (width, height) = (WIDTH - left - right, HEIGHT - top - bottom);
    let all = || lines.iter().flat_map(|line| &line.points);
    let highest = round_up(all().map(|point| point.1).fold(0.0, f64::max));
    let widest = all().map(|point| point.0).fold(0.0, f64::max).max(1.0);
    let place = |(size, value): (f64, f64)| (left + width * size / widest, top + height * (1.0 - value / highest));

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\n\
         <style>\n\
         text {{ font: 13px system-ui, sans-serif; fill: #24292f }}\n\
         .grid {{ stroke: #d0d7de }}\n\
         @media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3 }} .grid {{ stroke: #3d444d }} }}\n\
         </style>\n\
         <text x=\"{left}\" y=\"20\" style=\"font-weight: bold\">{}</text>\n",
        escape(title)
    );
    for step in 0..=4 {
        let value = highest * f64::from(step) / 4.0;
        let (_, y) = place((0.0, value));
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{left} {y:.1}H{:.1}\"/>", left + width);
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 8.0,
            y + 4.0,
            unit.show(value)
        );
    }
    let mut sizes: Vec<f64> = all().map(|point| point.0).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    // Labels that would overlap are left out, the largest first of all kept.
    let mut free = f64::INFINITY;
    for size in sizes.into_iter().rev() {
        let (x, y) = place((size, 0.0));
        if x <= free {
            let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{size}</text>", y + 18.0);
            free = x - 48.0;
        }
    }
    let first_server = lines.first().map_or("", |line| &line.server);
    let other_server = lines.iter().map(|line| line.server.as_str()).find(|server| *server != first_server);
    let other_server = other_server.map_or(String::new(), |server| format!(" (hollow: on {})", escape(server)));
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{counted}{other_server}</text>",
        left + width / 2.0,
        HEIGHT - 8.0
    );
    let mut operators: Vec<&str> = Vec::new();
    for Line { operator, server, points } in lines {
        let known = operators.iter().position(|known| known == operator);
        let index = known.unwrap_or(operators.len());
        let colour = COLOURS[index % COLOURS.len()];
        let fill = if server == first_server { colour } else { "none" };
        let path: Vec<String> =
            points.iter().map(|point| place(*point)).map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let _ = writeln!(svg, "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>", path.join("L"));
        for (x, y) in points.iter().map(|point| place(*point)) {
            let _ =
                writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{fill}\" stroke=\"{colour}\"/>");
        }
        if known.is_some() {
            continue;
        }
        operators.push(operator);
        let x = left + 120.0 * index as f64;
        let _ = writeln!(svg, "<circle cx=\"{:.1}\" cy=\"38\" r=\"4\" fill=\"{colour}\"/>", x + 4.0);
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"42\">{}</text>", x + 14.0, escape(operator));
    }
    svg + "</svg>\n"
}

/// Returns a round number that is not smaller: 1, 2, 4 or 8 times a power of ten.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let step = [1.0, 2.0, 4.0, 8.0, 10.0].into_iter().find(|step| step * power >= value * 0.999_999);
    step.unwrap_or(10.0) * power
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measured::Measured;

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, expect) in [(0.0, 1.0), (1.0, 1.0), (1.1, 2.0), (3.0, 4.0), (43e6, 80e6), (9.0, 10.0), (0.03, 0.04)]
        {
            let rounded = round_up(value);
            assert!((rounded - expect).abs() < expect * 1e-9, "{value}: {rounded}");
        }
    }

    #[test]
    fn points_are_placed_between_the_axes() {
        let line = |operator: &str, points: &[(f64, f64)]| Line {
            operator: operator.to_owned(),
            server: "etcd".to_owned(),
            points: points.to_vec(),
        };
        let lines = [line("ours", &[(100.0, 1.0), (1000.0, 4.0)]), line("<b>", &[(100.0, 2.0)])];
        let svg = draw("Time", "RayClusters", Unit::Seconds, &lines);
        let [left, top, right, bottom] = MARGIN;
        let corner = format!("<circle cx=\"{:.1}\" cy=\"{top:.1}\"", WIDTH - right);
        assert!(svg.contains(&corner), "the highest value at the largest size is in the corner: {svg}");
        let first = left + (WIDTH - left - right) * 0.1;
        let quarter = top + (HEIGHT - top - bottom) * 0.75;
        assert!(svg.contains(&format!("M{first:.1} {quarter:.1}L")), "{svg}");
        assert!(svg.contains(">4.00 s</text>") && svg.contains(">1000</text>") && svg.contains("&lt;b>"), "{svg}");
        assert!(svg.contains("prefers-color-scheme: dark"));
        assert!(!svg.contains("hollow"), "there is one server only");
    }

    #[test]
    fn points_of_different_servers_are_not_joined() {
        let mut report = Report::default();
        for (size, server, seconds) in [(100, "etcd", 1.0), (1000, "etcd", 4.0), (10_000, "embedded", 3.0)] {
            let mut measured = Measured::new(Scenario::Clusters, size, server, "ours", 0);
            measured.add("all ready after", seconds, Unit::Seconds);
            report.measured.push(measured);
        }
        let (unit, lines) = lines(&report, Scenario::Clusters, "all ready after");
        let points: Vec<_> = lines.iter().map(|line| (line.server.as_str(), line.points.len())).collect();
        assert_eq!(points, [("etcd", 2), ("embedded", 1)]);
        let svg = draw("Time", "RayClusters", unit, &lines);
        assert_eq!((svg.matches('L').count(), svg.matches(">ours</text>").count()), (1, 1), "{svg}");
        assert!(svg.contains("RayClusters (hollow: on embedded)"), "{svg}");
    }
}
