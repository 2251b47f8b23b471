//! Strings read by templates: `to_date(text, template)`, `to_timestamp(text, template)`, `to_number(text, template)`.
//!
//! - Blanks before and behind fields are skipped, and a separator of the template is any separator of the string, or
//!   none; with `FX` each character counts.
//! - A number ends where the next field begins if a digit stands there, else at the first character that is no digit.
//! - Years of one to three digits are the nearest to 2020, as in PostgreSQL.
//! - `TZ`, `TZH`, `TZM` and `OF` are refused; names of days are read and have no meaning.

use super::patterns::{Part, Pattern, parts, takes_ordinal};
use super::times::{DAYS, EPOCH_JULIAN, MONTHS, ROMAN};
use crate::error::{Error, Result};
use chrono::{Datelike, Days, NaiveDate, Weekday};
use entresol_tables::calendar::MICROS_PER_DAY;

/// Digits of the longest number that is read.
const DIGITS_MAX: usize = 18;

/// Local time in microseconds that a string has by a template.
pub(super) fn time_of(text: &str, template: &str) -> Result<i64> {
    let mut reader = Reader { text, rest: text, skipped: 0, is_exact: false, fields: Fields::default() };
    let parts = parts(template);
    for (at, part) in parts.iter().enumerate() {
        if reader.rest.is_empty() {
            break;
        }
        reader.read(*part, at == 0, parts.get(at + 1))?;
    }
    reader
        .fields
        .micros()
        .ok_or_else(|| Error::coded("22008", format!("date/time field value out of range: \"{text}\"")))
}

/// Fields that were read.
#[derive(Debug, Default)]
struct Fields {
    year: Option<i64>,
    century: Option<i64>,
    is_before_christ: bool,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    week: Option<i64>,
    week_of_month: Option<i64>,
    day_of_week: Option<i64>,
    iso_year: Option<i64>,
    iso_week: Option<i64>,
    iso_day: Option<i64>,
    iso_day_of_year: Option<i64>,
    julian: Option<i64>,
    hour: Option<i64>,
    is_half_day: bool,
    is_afternoon: Option<bool>,
    minute: i64,
    second: i64,
    seconds_of_day: Option<i64>,
    micros: i64,
}

impl Fields {
    /// Microseconds since 1970; none if a field is out of range.
    fn micros(&self) -> Option<i64> {
        let days = self.date()?.signed_duration_since(NaiveDate::from_ymd_opt(1970, 1, 1)?).num_days();
        days.checked_mul(MICROS_PER_DAY)?.checked_add(self.time()?)
    }

    fn time(&self) -> Option<i64> {
        if let Some(seconds) = self.seconds_of_day {
            return (0..86_400).contains(&seconds).then(|| seconds * 1_000_000 + self.micros);
        }
        let mut hour = self.hour.unwrap_or(0);
        if self.is_half_day || self.is_afternoon.is_some() {
            if !(1..=12).contains(&hour) {
                return None;
            }
            hour = hour % 12 + if self.is_afternoon == Some(true) { 12 } else { 0 };
        }
        let fits =
            (0..24).contains(&hour) && (0..60).contains(&self.minute) && (0..60).contains(&self.second);
        fits.then(|| ((hour * 60 + self.minute) * 60 + self.second) * 1_000_000 + self.micros)
    }

    fn year(&self) -> Option<i32> {
        let year = match (self.year, self.century) {
            (Some(year), Some(century)) if year < 100 => {
                (century - i64::from(year > 0)).checked_mul(100)?.checked_add(year)?
            }
            (Some(year), _) => year,
            (None, Some(century)) => (century - 1).checked_mul(100)?.checked_add(1)?,
            (None, None) => 0,
        };
        let year = if self.is_before_christ && self.year.is_some() { 1 - year } else { year };
        i32::try_from(year).ok()
    }

    fn date(&self) -> Option<NaiveDate> {
        if let Some(julian) = self.julian {
            let epoch = NaiveDate::from_ymd_opt(1970, 1, 1)?;
            return epoch.checked_add_signed(chrono::TimeDelta::try_days(julian - EPOCH_JULIAN)?);
        }
        let small = |number: i64| u32::try_from(number).ok();
        if let Some(year) = self.iso_year {
            let year = i32::try_from(year).ok()?;
            if let Some(day) = self.iso_day_of_year {
                let first = NaiveDate::from_isoywd_opt(year, 1, Weekday::Mon)?;
                return first.checked_add_days(Days::new(u64::try_from(day.checked_sub(1)?).ok()?));
            }
            let day = u8::try_from(self.iso_day.unwrap_or(1).checked_sub(1)?).ok()?;
            return NaiveDate::from_isoywd_opt(
                year,
                small(self.iso_week.unwrap_or(1))?,
                Weekday::try_from(day).ok()?,
            );
        }
        let year = self.year()?;
        if let Some(day) = self.day_of_year {
            return NaiveDate::from_yo_opt(year, small(day)?);
        }
        if let (Some(week), None) = (self.week, self.day) {
            return NaiveDate::from_yo_opt(
                year,
                small((week.checked_sub(1)?).checked_mul(7)?.checked_add(1)?)?,
            );
        }
        let month = small(self.month.unwrap_or(1))?;
        let day = match (self.day, self.week_of_month) {
            (Some(day), _) => day,
            (None, Some(week)) => week.checked_sub(1)?.checked_mul(7)?.checked_add(1)?,
            (None, None) => 1,
        };
        NaiveDate::from_ymd_opt(year, month, small(day)?).filter(|date| date.year() == year)
    }
}

struct Reader<'t> {
    text: &'t str,
    rest: &'t str,
    /// Characters that were skipped beyond those of the template.
    skipped: i64,
    is_exact: bool,
    fields: Fields,
}

impl<'t> Reader<'t> {
    fn read(&mut self, part: Part<'_>, is_first: bool, next: Option<&Part<'_>>) -> Result<()> {
        if !self.is_exact && (is_first || matches!(part, Part::Pattern(_))) {
            self.skip_blanks();
        }
        match part {
            Part::Exact => self.is_exact = true,
            Part::Text(text) => text.chars().for_each(|c| self.skip(c)),
            Part::Pattern(pattern) => {
                self.field(pattern, next)?;
                if pattern.ordinal.is_some() {
                    let end = self.rest.char_indices().nth(2).map_or(self.rest.len(), |(end, _)| end);
                    self.rest = &self.rest[end..];
                }
                if !self.is_exact {
                    self.skipped = 0;
                    self.skip_blanks();
                }
            }
        }
        Ok(())
    }

    fn skip_blanks(&mut self) {
        let trimmed = self.rest.trim_start();
        self.skipped += (self.rest.len() - trimmed.len()) as i64;
        self.rest = trimmed;
    }

    /// Skips the character of the string that stands for one of the template.
    fn skip(&mut self, of_template: char) {
        let Some(first) = self.rest.chars().next() else { return };
        let is_separator = |c: char| !c.is_alphanumeric();
        let takes = match (self.is_exact, is_separator(of_template)) {
            (true, _) => true,
            (false, true) => {
                self.skipped -= 1;
                let found = is_separator(first);
                self.skipped += i64::from(found);
                found
            }
            (false, false) if self.skipped > 0 => {
                self.skipped -= 1;
                false
            }
            (false, false) => true,
        };
        if takes {
            self.rest = &self.rest[first.len_utf8()..];
        }
    }

    fn invalid(&self, found: &str, pattern: &str) -> Error {
        Error::coded("22007", format!("invalid value \"{found}\" for \"{pattern}\""))
    }

    /// Number of at most so many digits, and how many it has; of any number if no digit can follow it.
    fn number(
        &mut self,
        pattern: Pattern<'_>,
        length: usize,
        next: Option<&Part<'_>>,
    ) -> Result<(i64, usize)> {
        let ends_itself = match next {
            _ if pattern.ordinal.is_some() => true,
            None => true,
            Some(Part::Text(text)) => !text.starts_with(|c: char| c.is_ascii_digit()),
            Some(Part::Pattern(next)) => !takes_ordinal(next.name),
            Some(Part::Exact) => false,
        };
        let is_open = pattern.is_bare || ends_itself;
        let sign = usize::from(self.rest.starts_with(['-', '+']) && is_open);
        let digits = self.rest[sign..].bytes().take_while(u8::is_ascii_digit).count();
        let digits = if is_open { digits } else { digits.min(length) };
        let found = &self.rest[..sign + digits];
        if digits == 0 || (self.is_exact && !is_open && digits < length) {
            let shown: String = self.rest.chars().take(length).collect();
            return Err(self.invalid(&shown, pattern.written));
        }
        if digits > DIGITS_MAX {
            return Err(self.invalid(found, pattern.written));
        }
        let number = found.parse().map_err(|_| self.invalid(found, pattern.written))?;
        self.rest = &self.rest[sign + digits..];
        Ok((number, digits))
    }

    /// Position of the name with which the string begins, whatever its case.
    fn name(&mut self, names: &[&str], length: Option<usize>, pattern: &str) -> Result<usize> {
        let begins =
            |name: &str| self.rest.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        let length_of = |name: &&str| -> usize { length.map_or(name.len(), |length| length.min(name.len())) };
        let found = names.iter().enumerate().filter(|(_, name)| begins(&name[..length_of(name)]));
        // XII begins with X and XI.
        let Some((at, name)) = found.max_by_key(|(_, name)| length_of(name)) else {
            let word: String = self.rest.chars().take_while(|c| c.is_alphanumeric()).take(20).collect();
            return Err(self.invalid(&word, pattern));
        };
        self.rest = &self.rest[length_of(name)..];
        Ok(at)
    }

    fn field(&mut self, pattern: Pattern<'_>, next: Option<&Part<'_>>) -> Result<()> {
        let written = pattern.written;
        match pattern.name {
            "MONTH" => self.fields.month = Some(self.name(&MONTHS, None, written)? as i64 + 1),
            "MON" => self.fields.month = Some(self.name(&MONTHS, Some(3), written)? as i64 + 1),
            "RM" => self.fields.month = Some(self.name(&ROMAN, None, written)? as i64 + 1),
            "DAY" => self.fields.day_of_week = Some(self.name(&DAYS, None, written)? as i64 + 1),
            "DY" => self.fields.day_of_week = Some(self.name(&DAYS, Some(3), written)? as i64 + 1),
            "AM" | "PM" => self.fields.is_afternoon = Some(self.name(&["AM", "PM"], None, written)? == 1),
            "A.M." | "P.M." => {
                self.fields.is_afternoon = Some(self.name(&["A.M.", "P.M."], None, written)? == 1);
            }
            "AD" | "BC" => self.fields.is_before_christ = self.name(&["AD", "BC"], None, written)? == 1,
            "A.D." | "B.C." => {
                self.fields.is_before_christ = self.name(&["A.D.", "B.C."], None, written)? == 1
            }
            "TZ" | "TZH" | "TZM" | "OF" => {
                let what =
                    format!("the pattern {} in a template by which \"{}\" is read", pattern.name, self.text);
                return Err(Error::unsupported(what));
            }
            "Y,YYY" => {
                let (thousands, _) = self.number(pattern, 1, Some(&Part::Text(",")))?;
                self.rest = self.rest.strip_prefix(',').unwrap_or(self.rest);
                let (year, _) = self.number(pattern, 3, next)?;
                let all = thousands.checked_mul(1_000).and_then(|thousands| thousands.checked_add(year));
                self.fields.year = Some(all.ok_or_else(|| self.invalid(&thousands.to_string(), written))?);
            }
            name => self.numeric(name, pattern, next)?,
        }
        Ok(())
    }

    fn numeric(&mut self, name: &'static str, pattern: Pattern<'_>, next: Option<&Part<'_>>) -> Result<()> {
        let length = match name {
            "YYYY" | "IYYY" => 4,
            "YYY" | "IYY" | "DDD" | "IDDD" | "MS" | "FF3" => 3,
            "Y" | "I" | "D" | "ID" | "Q" | "W" | "FF1" => 1,
            "FF4" => 4,
            "SSSS" | "SSSSS" | "FF5" => 5,
            "US" | "FF6" => 6,
            "J" => DIGITS_MAX,
            _ => 2,
        };
        let (number, digits) = self.number(pattern, length, next)?;
        let fields = &mut self.fields;
        match name {
            "YYYY" => fields.year = Some(number),
            "YYY" | "YY" | "Y" => fields.year = Some(if digits < 4 { near_2020(number) } else { number }),
            "IYYY" => fields.iso_year = Some(number),
            "IYY" | "IY" | "I" => fields.iso_year = Some(if digits < 4 { near_2020(number) } else { number }),
            "CC" => fields.century = Some(number),
            "MM" => fields.month = Some(number),
            "DD" => fields.day = Some(number),
            "DDD" => fields.day_of_year = Some(number),
            "D" => fields.day_of_week = Some(number),
            "ID" => fields.iso_day = Some(number),
            "IDDD" => fields.iso_day_of_year = Some(number),
            "IW" => fields.iso_week = Some(number),
            "WW" => fields.week = Some(number),
            "W" => fields.week_of_month = Some(number),
            "J" => fields.julian = Some(number),
            "HH24" => fields.hour = Some(number),
            "HH12" | "HH" => (fields.hour, fields.is_half_day) = (Some(number), true),
            "MI" => fields.minute = number,
            "SS" => fields.second = number,
            "SSSS" | "SSSSS" => fields.seconds_of_day = Some(number),
            "MS" | "US" | "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" => {
                // Digits of a fraction: `.5` of MS are 500 milliseconds.
                let scale = 6_usize.saturating_sub(digits);
                let micros =
                    number.checked_mul(10_i64.pow(scale as u32)).filter(|micros| *micros < 1_000_000);
                let shown = number.to_string();
                self.fields.micros = micros.ok_or_else(|| self.invalid(&shown, pattern.written))?;
            }
            // Quarters say nothing that a month does not.
            _ => {}
        }
        Ok(())
    }
}

/// Year of at most three digits that is the nearest to 2020.
fn near_2020(year: i64) -> i64 {
    year + match year {
        0..70 => 2_000,
        70..100 => 1_900,
        100..520 => 2_000,
        520..1_000 => 1_000,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_tables::calendar::format_timestamp;

    /// Expected values from PostgreSQL 15.
    #[test]
    fn strings_are_read_as_in_postgresql() {
        for (text, template, expected) in [
            ("05 Dec 2000", "DD Mon YYYY", "2000-12-05 00:00:00"),
            ("20000512", "YYYYMMDD", "2000-05-12 00:00:00"),
            ("2000/05-12", "YYYY MM DD", "2000-05-12 00:00:00"),
            ("  2000 - 05 - 12", "YYYY-MM-DD", "2000-05-12 00:00:00"),
            ("12 december 99", "DD MONTH YY", "1999-12-12 00:00:00"),
            ("1 jan 20", "DD mon YY", "2020-01-01 00:00:00"),
            ("2024-060", "YYYY-DDD", "2024-02-29 00:00:00"),
            ("2024-W10-2", "IYYY-\"W\"IW-ID", "2024-03-05 00:00:00"),
            ("2451545", "J", "2000-01-01 00:00:00"),
            ("05 Dec 2000 03:04:05.678 PM", "DD Mon YYYY HH12:MI:SS.MS PM", "2000-12-05 15:04:05.678"),
            ("2000-01-01 23:59:59.5", "YYYY-MM-DD HH24:MI:SS.US", "2000-01-01 23:59:59.5"),
            ("12:30 AM 2000", "HH:MI AM YYYY", "2000-01-01 00:30:00"),
            ("1st of IV 2001", "DDth \"of\" RM YYYY", "2001-04-01 00:00:00"),
            ("2000-XII-05", "YYYY-RM-DD", "2000-12-05 00:00:00"),
            ("Tuesday 5 March 2024", "Day DD Month YYYY", "2024-03-05 00:00:00"),
            ("2,024-01", "Y,YYY-MM", "2024-01-01 00:00:00"),
            ("2000 3661", "YYYY SSSS", "2000-01-01 01:01:01"),
        ] {
            let mut shown = String::new();
            format_timestamp(time_of(text, template).unwrap(), &mut shown).unwrap();
            assert_eq!(shown, expected, "{text} {template}");
        }
        for (text, template, code) in [
            ("2000-13-01", "YYYY-MM-DD", "22008"),
            ("2023-02-29", "YYYY-MM-DD", "22008"),
            ("13:00 PM", "HH12:MI PM", "22008"),
            ("abcd", "YYYY", "22007"),
            ("5 Foo 2000", "DD Mon YYYY", "22007"),
            ("2000+01", "YYYYOF", "0A000"),
            ("999999999999999999", "HH24", "22008"),
            ("999999999999999999", "MI", "22008"),
            ("999999999999999999", "SSSS", "22008"),
            ("999999999999999999", "CC", "22008"),
            ("-999999999999999999 0007", "CC YYYY", "22008"),
            ("999999999999999999,999", "Y,YYY", "22007"),
            ("999999999999999999", "J", "22008"),
        ] {
            assert_eq!(time_of(text, template).unwrap_err().sqlstate(), code, "{text} {template}");
        }
    }
}
