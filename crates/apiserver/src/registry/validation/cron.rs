//! Validation of cron schedules, in the syntax that CronJobs accept.

/// The names and ranges of the five fields.
const FIELDS: [(&str, u32, u32); 5] =
    [("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 6)];
const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const MACROS: &[&str] = &["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// Returns why a schedule is invalid, or `None`.
pub(super) fn error_of(schedule: &str) -> Option<String> {
    if schedule.contains("TZ") {
        return Some("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned());
    }
    if schedule.starts_with('@') {
        let known = MACROS.contains(&schedule) || schedule.strip_prefix("@every ").is_some_and(is_duration);
        return (!known).then(|| format!("unrecognized descriptor: {schedule}"));
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Some(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    let wrong = fields.iter().zip(FIELDS).find(|(field, (name, low, high))| !is_field(field, name, *low, *high));
    wrong.map(|(field, (name, low, high))| format!("{field:?} is not a {name} between {low} and {high}"))
}

fn is_duration(text: &str) -> bool {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    !digits.is_empty() && digits != text && digits.starts_with(|letter: char| letter.is_ascii_digit())
}

fn is_field(field: &str, name: &str, low: u32, high: u32) -> bool {
    field.split(',').all(|part| {
        let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
        if step.is_some_and(|step| !step.parse::<u32>().is_ok_and(|step| step > 0)) {
            return false;
        }
        if matches!(range, "*" | "?") {
            return true;
        }
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (number(first, name), number(last, name)) {
            (Some(first), Some(last)) => low <= first && first <= last && last <= high,
            _ => false,
        }
    })
}

fn number(text: &str, name: &str) -> Option<u32> {
    let names: &[&str] = match name {
        "month" => MONTHS,
        "day of week" => DAYS,
        _ => &[],
    };
    let text = text.to_lowercase();
    let named = names.iter().position(|known| *known == text).and_then(|index| u32::try_from(index).ok());
    named.map(|index| if name == "month" { index + 1 } else { index }).or_else(|| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_checked() {
        for schedule in ["* * * * *", "*/5 0-6,22 1 jan-mar mon-fri", "@hourly", "@every 1h30m", "0 0 ? * 0"] {
            assert_eq!(error_of(schedule), None, "{schedule}");
        }
        for schedule in [
            "",
            "* * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "5-1 * * * *",
            "*/0 * * * *",
            "@never",
            "TZ=UTC * * * * *",
        ] {
            assert!(error_of(schedule).is_some(), "{schedule}");
        }
    }
}
