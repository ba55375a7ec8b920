//! Points in time as the tables show them, in the local time zone.
//!
//! From:   seconds since 1970 (and nanoseconds for events).
//! To:     `get`, `list`, `status`, `history`, `holds`.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use pool::props::{Form as NumberForm, Kind, Property, Value};

/// The forms of a date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `Sat Nov 21  4:39 2026`: `creation`.
    Minute,
    /// `Sat Nov 21  4:39:07 2026`: `snapshots_changed`.
    Second,
    /// `Sat Nov 21 04:43 2026`: `zfs holds`.
    Hold,
    /// `Sat Nov 21 04:43:10 2026`: scans.
    Scan,
    /// `Sat Nov 21 04:43:10 UTC 2026`: `-T d`.
    Stamp,
    /// `2026-11-21.04:39:00`: `zpool history`.
    History,
    /// `Nov 21 2026 04:39:00`: `zpool events`, with nanoseconds behind it.
    Event,
    /// `04:43:10`: the lines of progress of `zfs send`.
    Clock,
}

impl Form {
    const fn pattern(self) -> &'static str {
        match self {
            Form::Minute => "%a %b %e %k:%M %Y",
            Form::Second => "%a %b %e %k:%M:%S %Y",
            Form::Hold => "%a %b %e %H:%M %Y",
            Form::Scan => "%a %b %e %H:%M:%S %Y",
            Form::Stamp => "%a %b %e %H:%M:%S %Z %Y",
            Form::History => "%Y-%m-%d.%H:%M:%S",
            Form::Event => "%b %e %Y %H:%M:%S",
            Form::Clock => "%H:%M:%S",
        }
    }
}

/// Shows `seconds` since 1970 in the local time zone. A time beyond this program's calendar is shown as its
/// number.
pub fn show(seconds: u64, form: Form) -> String {
    show_in(seconds, form, TimeZone::system())
}

/// Reads `2026-11-21 04:39` or `2026-11-21` in the local time zone, as seconds since 1970. A day alone is its first second, or
/// with `ends` the first of the next.
pub fn read(text: &str, ends: bool) -> Option<u64> {
    let zone = TimeZone::system();
    let at = match jiff::civil::DateTime::strptime("%Y-%m-%d %H:%M", text) {
        Ok(at) => at,
        Err(_) => {
            let day = jiff::civil::Date::strptime("%Y-%m-%d", text).ok()?;
            if ends { day.tomorrow().ok()? } else { day }.to_datetime(jiff::civil::Time::midnight())
        }
    };
    u64::try_from(at.to_zoned(zone).ok()?.timestamp().as_second()).ok()
}

/// Shows any property's value: dates in their form unless `raw` (`-p`) wants seconds, the rest as it is.
pub fn value(property: &Property, value: &Value, raw: bool) -> String {
    match (property.kind, value) {
        (Kind::Number(NumberForm::Date), &Value::Number(seconds)) if !raw => show(seconds, Form::Minute),
        (Kind::Number(NumberForm::DateSeconds), &Value::Number(seconds)) if !raw => {
            show(seconds, Form::Second)
        }
        _ => property.format_value(value, raw).into_owned(),
    }
}

fn show_in(seconds: u64, form: Form, zone: TimeZone) -> String {
    match i64::try_from(seconds).ok().and_then(|s| Timestamp::from_second(s).ok()) {
        Some(instant) => instant.to_zoned(zone).strftime(form.pattern()).to_string(),
        None => seconds.to_string(),
    }
}

/// `00:02:20`, or `1 days 02:03:04`: how long a scan took.
pub fn duration(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    if days == 0 { clock } else { format!("{days} days {clock}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_pads_as_openzfs_does() {
        let at = |seconds, form| show_in(seconds, form, TimeZone::UTC);
        assert_eq!(at(1_795_236_014, Form::Minute), "Sat Nov 21  4:40 2026");
        assert_eq!(at(1_795_237_226, Form::Second), "Sat Nov 21  5:00:26 2026");
        assert_eq!(at(1_795_236_190, Form::Hold), "Sat Nov 21 04:43 2026");
        assert_eq!(at(1_795_236_190, Form::Scan), "Sat Nov 21 04:43:10 2026");
        assert_eq!(at(1_795_236_190, Form::Stamp), "Sat Nov 21 04:43:10 UTC 2026");
        assert_eq!(at(1_795_236_190, Form::History), "2026-11-21.04:43:10");
        assert_eq!(at(1_795_236_190, Form::Clock), "04:43:10");
        assert_eq!(at(0, Form::Minute), "Thu Jan  1  0:00 1970");
    }

    #[test]
    fn a_time_beyond_the_calendar_is_its_number() {
        assert_eq!(show(u64::MAX, Form::Minute), u64::MAX.to_string());
    }

    #[test]
    fn only_dates_are_dates() {
        let property = |name| pool::props::dataset::parse(name).expect("known");
        let shown = |name, n, raw| value(property(name), &Value::Number(n), raw);
        assert_eq!(shown("creation", 1_795_236_014, true), "1795236014");
        assert_eq!(shown("creation", 1_795_236_014, false), show(1_795_236_014, Form::Minute));
        assert_eq!(shown("quota", 1 << 20, false), "1M");
    }

    #[test]
    fn durations_have_days_when_there_are_some() {
        assert_eq!(duration(140), "00:02:20");
        assert_eq!(duration(86_400 + 7384), "1 days 02:03:04");
    }
}
