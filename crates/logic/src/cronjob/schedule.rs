//! Cron schedules: when a RayCronJob is due.
//!
//! Five fields (minute, hour, day of month, month, day of week), descriptors such as `@daily`, and
//! `@every <duration>`. Texts of errors and the treatment of daylight saving are those of the parser that
//! KubeRay uses: local times that do not exist are skipped, those that exist twice are due twice.

use crate::go::duration;
use crate::go::quote::quote;
use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp, Zoned};

/// A schedule that can be asked for the next time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule(Rule);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    Every(SignedDuration),
    Fields { minute: Field, hour: Field, day: Field, month: Field, weekday: Field },
}

/// The values that a field admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    bits: u64,
    /// Every value is admitted because nothing was asked for.
    star: bool,
}

/// What a field may hold.
struct Bounds {
    min: u32,
    max: u32,
    /// Names of the values from `min` on.
    names: &'static [&'static str],
}

const MINUTE: Bounds = Bounds { min: 0, max: 59, names: &[] };
const HOUR: Bounds = Bounds { min: 0, max: 23, names: &[] };
const DAY: Bounds = Bounds { min: 1, max: 31, names: &[] };
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const MONTH: Bounds = Bounds { min: 1, max: 12, names: &MONTHS };
const WEEKDAY: Bounds = Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

/// A schedule without a time within these years has none, such as the 30th of February.
const YEARS_TO_SEARCH: i16 = 5;

impl Schedule {
    /// Parses a schedule; the error names the invalid part.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("empty spec string".to_owned());
        }
        if text.starts_with('@') {
            return parse_descriptor(text).map(Self);
        }
        let fields: Vec<_> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
        };
        Ok(Self(Rule::Fields {
            minute: Field::parse(minute, &MINUTE)?,
            hour: Field::parse(hour, &HOUR)?,
            day: Field::parse(day, &DAY)?,
            month: Field::parse(month, &MONTH)?,
            weekday: Field::parse(weekday, &WEEKDAY)?,
        }))
    }

    /// Returns the first time after `base`, or none if there is none within the limit.
    pub fn next_after(&self, base: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let second = Timestamp::from_second(base.as_nanosecond().div_euclid(1_000_000_000).try_into().ok()?).ok()?;
        match &self.0 {
            Rule::Every(delay) => second.checked_add(*delay).ok(),
            Rule::Fields { .. } => self.next_match(second, zone),
        }
    }

    /// Skips months, days and hours that do not match, then minutes.
    fn next_match(&self, base: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let Rule::Fields { minute, hour, day, month, weekday } = &self.0 else { return None };
        let mut now = base.checked_add(SignedDuration::from_secs(1)).ok()?.to_zoned(zone.clone());
        let last_year = now.year().saturating_add(YEARS_TO_SEARCH);
        while now.year() <= last_year {
            let seconds = i64::from(now.second());
            now = if !month.has(now.month()) {
                start_of_month_after(&now)?
            } else if !matches_day(day, weekday, &now) {
                now.tomorrow().ok()?.start_of_day().ok()?
            } else if !hour.has(now.hour()) {
                forward(&now, 3600 - 60 * i64::from(now.minute()) - seconds)?
            } else if !minute.has(now.minute()) || seconds != 0 {
                forward(&now, 60 - seconds)?
            } else {
                return Some(now.timestamp());
            };
        }
        None
    }
}

fn start_of_month_after(now: &Zoned) -> Option<Zoned> {
    let next = now.date().first_of_month().checked_add(Span::new().months(1)).ok()?;
    next.to_datetime(Time::midnight()).to_zoned(now.time_zone().clone()).ok()
}

/// Advances in absolute time, so that hours that exist twice are visited twice.
fn forward(now: &Zoned, seconds: i64) -> Option<Zoned> {
    now.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// Where both days are restricted, either suffices.
fn matches_day(day: &Field, weekday: &Field, now: &Zoned) -> bool {
    let (by_day, by_weekday) = (day.has(now.day()), weekday.has(now.weekday().to_sunday_zero_offset()));
    if day.star || weekday.star { by_day && by_weekday } else { by_day || by_weekday }
}

fn parse_descriptor(text: &str) -> Result<Rule, String> {
    let only = |value: u32| Field { bits: 1 << value, star: false };
    let all = |bounds: &Bounds| Field { bits: range(bounds.min, bounds.max, 1), star: true };
    let (hour, day, month, weekday) = match text {
        "@yearly" | "@annually" => (only(0), only(1), only(1), all(&WEEKDAY)),
        "@monthly" => (only(0), only(1), all(&MONTH), all(&WEEKDAY)),
        "@weekly" => (only(0), all(&DAY), all(&MONTH), only(0)),
        "@daily" | "@midnight" => (only(0), all(&DAY), all(&MONTH), all(&WEEKDAY)),
        "@hourly" => (all(&HOUR), all(&DAY), all(&MONTH), all(&WEEKDAY)),
        _ => return parse_every(text),
    };
    Ok(Rule::Fields { minute: only(0), hour, day, month, weekday })
}

fn parse_every(text: &str) -> Result<Rule, String> {
    let Some(delay) = text.strip_prefix("@every ") else { return Err(format!("unrecognized descriptor: {text}")) };
    let delay = duration::parse(delay).map_err(|error| format!("failed to parse duration {text}: {error}"))?;
    Ok(Rule::Every(SignedDuration::from_secs(delay.as_secs().max(1))))
}

impl Field {
    /// Parses a list of stars, numbers and ranges, each with an optional step.
    fn parse(text: &str, bounds: &Bounds) -> Result<Self, String> {
        let mut field = Self { bits: 0, star: false };
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let part = Self::parse_part(part, bounds)?;
            field.bits |= part.bits;
            field.star |= part.star;
        }
        Ok(field)
    }

    fn parse_part(text: &str, bounds: &Bounds) -> Result<Self, String> {
        let slashes: Vec<_> = text.split('/').collect();
        let hyphens: Vec<_> = slashes[0].split('-').collect();
        let mut star = matches!(hyphens[0], "*" | "?");
        let (start, mut end) = if star {
            (bounds.min, bounds.max)
        } else {
            let start = bounds.value(hyphens[0])?;
            match hyphens[..] {
                [_] => (start, start),
                [_, end] => (start, bounds.value(end)?),
                _ => return Err(format!("too many hyphens: {text}")),
            }
        };
        let step = match slashes[..] {
            [_] => 1,
            [_, step] => {
                let step = parse_number(step)?;
                if hyphens.len() == 1 {
                    end = bounds.max;
                }
                star &= step <= 1;
                step
            }
            _ => return Err(format!("too many slashes: {text}")),
        };
        let (min, max) = (bounds.min, bounds.max);
        if start < min {
            return Err(format!("beginning of range ({start}) below minimum ({min}): {text}"));
        }
        if end > max {
            return Err(format!("end of range ({end}) above maximum ({max}): {text}"));
        }
        if start > end {
            return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
        }
        if step == 0 {
            return Err(format!("step of range should be a positive number: {text}"));
        }
        Ok(Self { bits: range(start, end, step), star })
    }

    fn has(&self, value: i8) -> bool {
        u32::try_from(value).is_ok_and(|value| self.bits & (1 << value) != 0)
    }
}

impl Bounds {
    fn value(&self, text: &str) -> Result<u32, String> {
        let name = text.to_lowercase();
        match (self.min..).zip(self.names).find(|(_, known)| **known == name) {
            Some((value, _)) => Ok(value),
            None => parse_number(text),
        }
    }
}

/// Parses a number as Go does, with Go's errors.
fn parse_number(text: &str) -> Result<u32, String> {
    let fail = |why: &str| format!("failed to parse int from {text}: strconv.Atoi: parsing {}: {why}", quote(text));
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(fail("invalid syntax"));
    }
    let number: i64 = text.parse().map_err(|_| fail("value out of range"))?;
    if number < 0 {
        return Err(format!("negative number ({number}) not allowed: {text}"));
    }
    // Far beyond every bound already.
    Ok(u32::try_from(number).unwrap_or(u32::MAX))
}

/// Returns the bits from `start` to `end`, both below 64.
fn range(start: u32, end: u32, step: u32) -> u64 {
    (start..=end).step_by(step as usize).fold(0, |bits, value| bits | 1 << value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn broken_schedules_are_explained() {
        let check = |text: &str, expect: &str| assert_eq!(Schedule::parse(text), Err(expect.to_owned()), "{text:?}");
        check("", "empty spec string");
        check("a b c", "expected exactly 5 fields, found 3: [a b c]");
        check("not a schedule", "expected exactly 5 fields, found 3: [not a schedule]");
        check("* * * * * *", "expected exactly 5 fields, found 6: [* * * * * *]");
        check("   ", "expected exactly 5 fields, found 0: []");
        check("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax");
        check("* -1 * * *", "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax");
        check("*/-1 * * * *", "negative number (-1) not allowed: -1");
        check("1-2-3 * * * *", "too many hyphens: 1-2-3");
        check("1/2/3 * * * *", "too many slashes: 1/2/3");
        check("* * 0 * *", "beginning of range (0) below minimum (1): 0");
        check("60 * * * *", "end of range (60) above maximum (59): 60");
        check("5-2 * * * *", "beginning of range (5) beyond end of range (2): 5-2");
        check("*/0 * * * *", "step of range should be a positive number: */0");
        check("* * * * 7", "end of range (7) above maximum (6): 7");
        check("* * * * 5L", "failed to parse int from 5L: strconv.Atoi: parsing \"5L\": invalid syntax");
        check(
            "99999999999999999999 * * * *",
            "failed to parse int from 99999999999999999999: strconv.Atoi: parsing \"99999999999999999999\": value out of \
             range",
        );
        check("@x", "unrecognized descriptor: @x");
        check("@Daily", "unrecognized descriptor: @Daily");
        check("@every", "unrecognized descriptor: @every");
        check("@every x", "failed to parse duration @every x: time: invalid duration \"x\"");
    }

    #[test]
    fn schedules_are_due() {
        let check = |text: &str, zone: &str, base: &str, expect: &str| {
            let zone = TimeZone::get(zone).unwrap();
            let next = Schedule::parse(text).unwrap().next_after(time(base), &zone);
            assert_eq!(next.map(|t| t.to_string()).unwrap_or_default(), expect, "{text} after {base}");
        };
        let utc = |text: &str, base: &str, expect: &str| check(text, "UTC", base, expect);
        utc("*/5 * * * *", "2024-01-01T00:00:00Z", "2024-01-01T00:05:00Z");
        utc("*/5 * * * *", "2024-01-01T00:04:59.5Z", "2024-01-01T00:05:00Z");
        utc("*/5 * * * *", "2024-01-01T00:05:00Z", "2024-01-01T00:10:00Z");
        utc("7/20 * * * *", "2024-01-01T00:28:00Z", "2024-01-01T00:47:00Z");
        utc("10-20/5,59 * * * *", "2024-01-01T00:16:00Z", "2024-01-01T00:20:00Z");
        utc("0 9 * * MON-fri", "2024-01-05T09:00:00Z", "2024-01-08T09:00:00Z");
        utc("0 0 29 feb ?", "2024-02-29T00:00:00Z", "2028-02-29T00:00:00Z");
        utc("0 0 30 2 *", "2024-01-01T00:00:00Z", "");
        utc(", * * * *", "2024-01-01T00:00:00Z", "");
        utc("59 23 31 12 *", "2023-12-31T23:59:00Z", "2024-12-31T23:59:00Z");
        // The 13th or a Friday; with a star, both.
        utc("0 0 13 * 5", "2024-01-01T00:00:00Z", "2024-01-05T00:00:00Z");
        utc("0 0 13 * */1", "2024-01-01T00:00:00Z", "2024-01-13T00:00:00Z");
        utc("0 0 */2 * 1", "2024-01-02T00:00:00Z", "2024-01-03T00:00:00Z");
        utc("@yearly", "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z");
        utc("@annually", "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z");
        utc("@monthly", "2024-01-01T00:00:00Z", "2024-02-01T00:00:00Z");
        utc("@weekly", "2024-01-01T00:00:00Z", "2024-01-07T00:00:00Z");
        utc("@daily", "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z");
        utc("@midnight", "2024-01-01T23:59:59Z", "2024-01-02T00:00:00Z");
        utc("@hourly", "2024-01-01T00:00:00Z", "2024-01-01T01:00:00Z");
        utc("@every 90s", "2024-01-01T00:00:00.7Z", "2024-01-01T00:01:30Z");
        utc("@every 1ms", "2024-01-01T00:00:00Z", "2024-01-01T00:00:01Z");
        utc("@every -5m", "2024-01-01T00:00:00Z", "2024-01-01T00:00:01Z");
        utc("@every 1h30m10.9s", "2024-01-01T00:00:00Z", "2024-01-01T01:30:10Z");
        check("0 9 * * *", "Asia/Taipei", "2024-01-01T00:00:00Z", "2024-01-01T01:00:00Z");
        // Berlin has no 02:30 on 2024-03-31, and two on 2024-10-27.
        check("30 2 * * *", "Europe/Berlin", "2024-03-30T12:00:00Z", "2024-04-01T00:30:00Z");
        check("30 2 * * *", "Europe/Berlin", "2024-10-26T12:00:00Z", "2024-10-27T00:30:00Z");
        check("30 2 * * *", "Europe/Berlin", "2024-10-27T00:30:00Z", "2024-10-27T01:30:00Z");
        check("30 2 * * *", "Europe/Berlin", "2024-10-27T01:30:00Z", "2024-10-28T01:30:00Z");
        // A day that begins at one o'clock.
        check("0 * 8 9 *", "America/Santiago", "2024-09-08T00:00:00Z", "2024-09-08T04:00:00Z");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-*/,?0-9a-z@ ]{0,24}") {
            if let Ok(schedule) = Schedule::parse(&text) {
                let _ = schedule.next_after(Timestamp::MAX, &TimeZone::UTC);
                let _ = schedule.next_after(Timestamp::MIN, &TimeZone::UTC);
            }
        }

        #[test]
        fn the_next_time_is_later_and_none_lies_between(
            minute in 0..60u32, hour in 0..24u32, day in 1..29u32, seconds in 0..4_000_000_000i64,
        ) {
            let schedule = Schedule::parse(&format!("{minute} {hour} {day} * *")).unwrap();
            let base = Timestamp::from_second(seconds).unwrap();
            let zone = TimeZone::get("Europe/Berlin").unwrap();
            let next = schedule.next_after(base, &zone).unwrap();
            prop_assert!(next > base);
            let before = next.checked_sub(SignedDuration::from_secs(1)).unwrap();
            prop_assert_eq!(schedule.next_after(before, &zone), Some(next));
        }
    }
}
