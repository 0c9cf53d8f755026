//! Tables as kubectl prints them.

use jiff::Timestamp;
use std::io::IsTerminal;

/// The least width of a column, and the blanks after it.
const MIN_WIDTH: usize = 6;
const PADDING: usize = 3;

/// Named columns and rows of as many cells.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table {
    pub(crate) columns: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// One value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Text(String),
    /// A state, in colour on a terminal.
    State(String),
    /// The time since then; equal cells stay equal while time passes.
    Age(Option<Timestamp>),
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::Text(text.into())
    }
}

/// How a table is printed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) now: Timestamp,
    pub(crate) colour: bool,
    pub(crate) header: bool,
}

impl Style {
    /// Returns the style for stdout: in colour on a terminal, unless NO_COLOR is set.
    pub(crate) fn of_stdout() -> Self {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { now: Timestamp::now(), colour, header: true }
    }
}

impl Table {
    /// Formats the table, one line per row.
    pub(crate) fn format(&self, style: Style) -> String {
        let header: Vec<String> = self.columns.iter().map(|name| name.to_uppercase()).collect();
        let texts: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(|cell| cell.text(style.now)).collect()).collect();
        let width = |column: usize| {
            let cells = texts.iter().chain([&header]).filter_map(|row| row.get(column));
            (cells.map(|text| text.chars().count()).max().unwrap_or(0) + PADDING).max(MIN_WIDTH)
        };
        let widths: Vec<usize> = (0..header.len()).map(width).collect();
        let mut out = String::new();
        if style.header {
            push_line(&mut out, &header, &widths, |_, text| text.to_owned());
        }
        for (row, texts) in self.rows.iter().zip(&texts) {
            push_line(&mut out, texts, &widths, |column, text| match &row[column] {
                Cell::State(state) if style.colour => format!("\x1b[{}m{text}\x1b[0m", colour(state)),
                _ => text.to_owned(),
            });
        }
        out
    }
}

fn push_line(out: &mut String, texts: &[String], widths: &[usize], paint: impl Fn(usize, &str) -> String) {
    for (column, text) in texts.iter().enumerate() {
        out.push_str(&paint(column, text));
        if column + 1 < texts.len() {
            out.extend(std::iter::repeat_n(' ', widths[column] - text.chars().count()));
        }
    }
    out.push('\n');
}

impl Cell {
    fn text(&self, now: Timestamp) -> String {
        let text = match self {
            Self::Text(text) | Self::State(text) => text.clone(),
            Self::Age(Some(since)) => human_duration(now.as_second() - since.as_second()),
            Self::Age(None) => "<unknown>".to_owned(),
        };
        // What pods and users say must not break the table or reach the terminal as commands.
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
    }
}

/// Returns the colour of a state: green is well, red is broken, yellow is on its way.
fn colour(state: &str) -> u8 {
    let state = state.to_lowercase();
    let is = |words: &[&str]| words.iter().any(|word| state.contains(word));
    match () {
        () if is(&["fail", "error", "blocked", "unhealthy", "oomkilled", "crash"]) => 31,
        () if is(&["ready", "running", "succeeded", "complete", "provisioned", "healthy"]) => 32,
        () => 33,
    }
}

/// Returns a duration as kubectl shows ages: the two largest units while they matter.
pub(crate) fn human_duration(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |large: i64, large_unit: char, small: i64, small_unit: char| {
        let (whole, rest) = (seconds / large, seconds % large / small);
        if rest == 0 { format!("{whole}{large_unit}") } else { format!("{whole}{large_unit}{rest}{small_unit}") }
    };
    match seconds {
        i64::MIN..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 2 * MINUTE => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => two(MINUTE, 'm', 1, 's'),
        _ if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < 8 * HOUR => two(HOUR, 'h', MINUTE, 'm'),
        _ if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        _ if seconds < 8 * DAY => two(DAY, 'd', HOUR, 'h'),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => two(YEAR, 'y', DAY, 'd'),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn style(colour: bool) -> Style {
        Style { now: Timestamp::from_second(10_000).unwrap(), colour, header: true }
    }

    #[test]
    fn columns_are_aligned_like_those_of_kubectl() {
        let since = Timestamp::from_second(9_970).unwrap();
        let table = Table {
            columns: vec!["Name", "A", "Status", "Age"],
            rows: vec![
                vec!["raycluster-kuberay".into(), "1".into(), Cell::State("ready".into()), Cell::Age(Some(since))],
                vec!["é".into(), "12345678".into(), Cell::State(String::new()), Cell::Age(None)],
            ],
        };
        let expect = "\
NAME                 A          STATUS   AGE
raycluster-kuberay   1          ready    30s
é                    12345678            <unknown>
";
        assert_eq!(table.format(style(false)), expect);
        let coloured = table.format(style(true));
        assert!(coloured.contains("\x1b[32mready\x1b[0m    30s"), "{coloured:?}");
    }

    #[test]
    fn cells_cannot_send_commands_to_the_terminal() {
        let table = Table { columns: vec!["x"], rows: vec![vec!["a\nb\x1b[2J".into()]] };
        assert_eq!(table.format(style(false)), "X\na b [2J\n");
    }

    #[test]
    fn broken_and_healthy_states_differ_in_colour() {
        let check = |state: &str, expect: u8| assert_eq!(colour(state), expect, "{state}");
        check("ready", 32);
        check("FAILED", 31);
        check("UNHEALTHY", 31);
        check("DEPLOY_FAILED", 31);
        check("Initializing", 33);
        check("", 33);
    }

    #[test]
    fn ages_have_two_units_while_the_second_matters() {
        let check = |seconds: i64, expect: &str| assert_eq!(human_duration(seconds), expect, "{seconds}");
        check(-2, "<invalid>");
        check(-1, "0s");
        check(119, "119s");
        check(120, "2m");
        check(121, "2m1s");
        check(11 * 60, "11m");
        check(179 * 60, "179m");
        check(3 * 3600 + 60, "3h1m");
        check(9 * 3600, "9h");
        check(49 * 3600, "2d1h");
        check(400 * 86_400, "400d");
        check(800 * 86_400, "2y70d");
        check(3_000 * 86_400, "8y");
    }
}
