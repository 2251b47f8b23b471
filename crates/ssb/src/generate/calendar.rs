//! The date table: all days of the years 1992 to 1998.
//!
//! - Weeks of a year (`d_weeknuminyear`) are seven days each and begin with the first of January; the last has
//!   one day or two. Days of a week are counted from Sunday.
//! - The specification gives 2,556 rows; these seven years, two of them leap years, have 2,557 days.

use super::Rows;
use super::line::Line;
use std::ops::Range;

const FIRST_YEAR: u16 = 1992;
const LAST_YEAR: u16 = 1998;
/// The first of January 1992 was a Wednesday; Sunday is 0.
const FIRST_WEEKDAY: usize = 3;

const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const SATURDAY: usize = 6;
/// Names, days, and selling seasons of the months.
const MONTHS: [(&str, u8, &str); 12] = [
    ("January", 31, "Winter"),
    ("February", 28, "Winter"),
    ("March", 31, "Winter"),
    ("April", 30, "Spring"),
    ("May", 31, "Summer"),
    ("June", 30, "Summer"),
    ("July", 31, "Summer"),
    ("August", 31, "Summer"),
    ("September", 30, "Fall"),
    ("October", 31, "Fall"),
    ("November", 30, "Christmas"),
    ("December", 31, "Christmas"),
];
/// Months and days of the holidays; the specification leaves them open, the public generators have these.
const HOLIDAYS: [(u8, u8); 10] =
    [(1, 1), (2, 20), (4, 20), (5, 20), (7, 20), (8, 20), (9, 20), (10, 20), (11, 20), (12, 24)];

/// A day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Day {
    year: u16,
    /// From 1.
    month: u8,
    /// Of the month, from 1.
    day: u8,
    /// Of the year, from 1.
    day_of_year: u16,
    /// Sunday is 0.
    weekday: usize,
}

impl Day {
    /// The number that stands for it, such as 19920131.
    fn key(&self) -> u32 {
        u32::from(self.year) * 10_000 + u32::from(self.month) * 100 + u32::from(self.day)
    }
}

/// The days, and rows of the date table.
#[derive(Debug)]
pub(super) struct Calendar {
    days: Vec<Day>,
    keys: Vec<u32>,
}

fn days_of_month(year: u16, month: usize) -> u8 {
    // No year of these is a century.
    MONTHS[month].1 + u8::from(month == 1 && year.is_multiple_of(4))
}

impl Calendar {
    pub(super) fn new() -> Calendar {
        let mut days = Vec::new();
        for year in FIRST_YEAR..=LAST_YEAR {
            let mut day_of_year = 0;
            for month in 0..MONTHS.len() {
                for day in 1..=days_of_month(year, month) {
                    day_of_year += 1;
                    let weekday = (FIRST_WEEKDAY + days.len()) % WEEKDAYS.len();
                    days.push(Day { year, month: month as u8 + 1, day, day_of_year, weekday });
                }
            }
        }
        let keys = days.iter().map(Day::key).collect();
        Calendar { days, keys }
    }

    /// Keys of all days, in order.
    pub(super) fn keys(&self) -> &[u32] {
        &self.keys
    }
}

impl Rows for Calendar {
    fn units(&self) -> u64 {
        self.days.len() as u64
    }

    fn write(&self, units: Range<u64>, bytes: &mut Vec<u8>) -> u64 {
        for day in &self.days[units.start as usize..units.end as usize] {
            write_day(day, bytes);
        }
        units.end - units.start
    }
}

fn write_day(day: &Day, bytes: &mut Vec<u8>) {
    let Day { year, month, day: day_of_month, day_of_year, weekday } = *day;
    let (month_name, _, season) = MONTHS[usize::from(month) - 1];
    let (year_text, day_text) = (year.to_string(), day_of_month.to_string());
    let is_weekday = (1..SATURDAY).contains(&weekday);
    let is_last_of_month = day_of_month == days_of_month(year, usize::from(month) - 1);
    let mut line = Line::new(bytes);
    line.number(day.key()).texts(&[month_name, " ", &day_text, ", ", &year_text]);
    line.text(WEEKDAYS[weekday]).text(month_name).number(year);
    line.number(u32::from(year) * 100 + u32::from(month)).texts(&[&month_name[..3], &year_text]);
    line.number(weekday as u32 + 1).number(day_of_month).number(day_of_year).number(month);
    line.number((day_of_year - 1) / 7 + 1).text(season);
    line.flag(weekday == SATURDAY).flag(is_last_of_month);
    line.flag(HOLIDAYS.contains(&(month, day_of_month))).flag(is_weekday).end();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(key: u32) -> String {
        let calendar = Calendar::new();
        let at = calendar.keys().iter().position(|known| *known == key).unwrap() as u64;
        let mut bytes = Vec::new();
        assert_eq!(calendar.write(at..at + 1, &mut bytes), 1);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn days_have_their_properties() {
        let expected = [
            "19920101|January 1, 1992|Wednesday|January|1992|199201|Jan1992|4|1|1|1|1|Winter|0|0|1|1",
            "19940207|February 7, 1994|Monday|February|1994|199402|Feb1994|2|7|38|2|6|Winter|0|0|0|1",
            "19960229|February 29, 1996|Thursday|February|1996|199602|Feb1996|5|29|60|2|9|Winter|0|1|0|1",
            "19971224|December 24, 1997|Wednesday|December|1997|199712|Dec1997|4|24|358|12|52|Christmas|0|0|1|1",
            "19980801|August 1, 1998|Saturday|August|1998|199808|Aug1998|7|1|213|8|31|Summer|1|0|0|0",
            "19981231|December 31, 1998|Thursday|December|1998|199812|Dec1998|5|31|365|12|53|Christmas|0|1|0|1",
        ];
        for expected in expected {
            let key = expected.split('|').next().unwrap().parse().unwrap();
            assert_eq!(line(key), format!("{expected}\n"));
        }
    }

    #[test]
    fn the_calendar_has_all_days_of_seven_years() {
        let calendar = Calendar::new();
        assert_eq!((calendar.units(), calendar.keys().len()), (2557, 2557));
        assert!(calendar.keys().is_sorted_by(|a, b| a < b));
        let sixth = calendar.days.iter().filter(|day| day.year == 1994 && (day.day_of_year - 1) / 7 + 1 == 6);
        assert_eq!(sixth.count(), 7);
    }
}
