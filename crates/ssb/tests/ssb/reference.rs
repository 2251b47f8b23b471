//! The 13 queries once more, as loops over the lines of the files: what a result has to be.

use crate::support::file;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

pub struct Date {
    pub key: u32,
    pub year: u32,
    pub month: u32,
    pub month_name: String,
    pub week: u32,
}

/// Customer or supplier.
pub struct Place {
    pub city: String,
    pub nation: String,
    pub region: String,
}

pub struct Part {
    pub manufacturer: String,
    pub category: String,
    pub brand: String,
}

pub struct LineOrder {
    pub customer: u32,
    pub part: u32,
    pub supplier: u32,
    pub date: u32,
    pub quantity: i64,
    pub price: i64,
    pub discount: i64,
    pub revenue: i64,
    pub cost: i64,
}

/// Contents of the five files.
pub struct Tables {
    pub dates: HashMap<u32, Date>,
    pub customers: HashMap<u32, Place>,
    pub suppliers: HashMap<u32, Place>,
    pub parts: HashMap<u32, Part>,
    pub lines: Vec<LineOrder>,
}

/// A line with its rows of the dimensions.
pub struct Joined<'a> {
    pub line: &'a LineOrder,
    pub date: &'a Date,
    pub customer: &'a Place,
    pub supplier: &'a Place,
    pub part: &'a Part,
}

pub type Filter = fn(&Joined<'_>) -> bool;
type Group = fn(&Joined<'_>) -> Vec<String>;
type Value = fn(&Joined<'_>) -> i64;

/// The queries' filters.
pub const FILTERS: [(&str, Filter); 13] = [
    ("1.1", |j| j.date.year == 1993 && (1..=3).contains(&j.line.discount) && j.line.quantity < 25),
    ("1.2", |j| j.date.month == 199_401 && (4..=6).contains(&j.line.discount) && is_26_to_35(j)),
    ("1.3", |j| {
        j.date.week == 6 && j.date.year == 1994 && (5..=7).contains(&j.line.discount) && is_26_to_35(j)
    }),
    ("2.1", |j| j.part.category == "MFGR#12" && j.supplier.region == "AMERICA"),
    ("2.2", |j| ("MFGR#2221"..="MFGR#2228").contains(&j.part.brand.as_str()) && j.supplier.region == "ASIA"),
    ("2.3", |j| j.part.brand == "MFGR#2221" && j.supplier.region == "EUROPE"),
    ("3.1", |j| j.customer.region == "ASIA" && j.supplier.region == "ASIA" && j.date.year <= 1997),
    ("3.2", |j| {
        j.customer.nation == "UNITED STATES" && j.supplier.nation == "UNITED STATES" && j.date.year <= 1997
    }),
    ("3.3", |j| is_british(j.customer) && is_british(j.supplier) && j.date.year <= 1997),
    ("3.4", |j| is_british(j.customer) && is_british(j.supplier) && j.date.month_name == "Dec1997"),
    ("4.1", |j| is_american(j) && is_of_first_two(j.part)),
    ("4.2", |j| is_american(j) && is_of_first_two(j.part) && j.date.year >= 1997),
    ("4.3", |j| {
        j.customer.region == "AMERICA"
            && j.supplier.nation == "UNITED STATES"
            && j.date.year >= 1997
            && j.part.category == "MFGR#14"
    }),
];

fn is_26_to_35(joined: &Joined<'_>) -> bool {
    (26..=35).contains(&joined.line.quantity)
}

fn is_british(place: &Place) -> bool {
    place.city == "UNITED KI1" || place.city == "UNITED KI5"
}

fn is_american(joined: &Joined<'_>) -> bool {
    joined.customer.region == "AMERICA" && joined.supplier.region == "AMERICA"
}

fn is_of_first_two(part: &Part) -> bool {
    part.manufacturer == "MFGR#1" || part.manufacturer == "MFGR#2"
}

fn fields(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().map(|line| line.split('|').collect())
}

fn number(field: &str) -> u32 {
    field.parse().unwrap()
}

impl Tables {
    /// Contents of a directory.
    pub fn of_files(dir: &Path) -> Tables {
        Tables::new(|table| std::fs::read_to_string(file(dir, table)).unwrap())
    }

    pub fn new(text: impl Fn(&str) -> String) -> Tables {
        let place = |row: &[&str]| Place {
            city: row[3].to_owned(),
            nation: row[4].to_owned(),
            region: row[5].to_owned(),
        };
        let places = |table: &str| fields(&text(table)).map(|row| (number(row[0]), place(&row))).collect();
        let date = |row: Vec<&str>| Date {
            key: number(row[0]),
            year: number(row[4]),
            month: number(row[5]),
            month_name: row[6].to_owned(),
            week: number(row[11]),
        };
        let part = |row: &[&str]| Part {
            manufacturer: row[2].to_owned(),
            category: row[3].to_owned(),
            brand: row[4].to_owned(),
        };
        let line = |row: Vec<&str>| LineOrder {
            customer: number(row[2]),
            part: number(row[3]),
            supplier: number(row[4]),
            date: number(row[5]),
            quantity: row[8].parse().unwrap(),
            price: row[9].parse().unwrap(),
            discount: row[11].parse().unwrap(),
            revenue: row[12].parse().unwrap(),
            cost: row[13].parse().unwrap(),
        };
        Tables {
            dates: fields(&text("date")).map(date).map(|date| (date.key, date)).collect(),
            customers: places("customer"),
            suppliers: places("supplier"),
            parts: fields(&text("part")).map(|row| (number(row[0]), part(&row))).collect(),
            lines: fields(&text("lineorder")).map(line).collect(),
        }
    }

    /// All lines with their dimensions.
    pub fn joined(&self) -> impl Iterator<Item = Joined<'_>> {
        self.lines.iter().map(|line| Joined {
            line,
            date: &self.dates[&line.date],
            customer: &self.customers[&line.customer],
            supplier: &self.suppliers[&line.supplier],
            part: &self.parts[&line.part],
        })
    }

    /// Sums by group, of the lines that pass a query's filter.
    fn sums(&self, query: &str, group: Group, value: Value) -> BTreeMap<Vec<String>, i64> {
        let (_, filter) = FILTERS.iter().find(|(name, _)| *name == query).unwrap();
        let mut sums = BTreeMap::new();
        for joined in self.joined().filter(filter) {
            *sums.entry(group(&joined)).or_default() += value(&joined);
        }
        sums
    }

    /// Result of a query, in its order.
    pub fn answer(&self, query: &str) -> Vec<Vec<String>> {
        let revenue: Value = |j| j.line.revenue;
        let profit: Value = |j| j.line.revenue - j.line.cost;
        match query {
            "1.1" | "1.2" | "1.3" => {
                let sums = self.sums(query, |_| Vec::new(), |j| j.line.price * j.line.discount);
                let sum = sums.get(&Vec::new()).map_or(String::new(), i64::to_string);
                vec![vec![sum]]
            }
            "2.1" | "2.2" | "2.3" => {
                let sums = self.sums(query, |j| vec![j.date.year.to_string(), j.part.brand.clone()], revenue);
                sums.into_iter().map(|(group, sum)| [vec![sum.to_string()], group].concat()).collect()
            }
            "3.1" => {
                let group: Group =
                    |j| vec![j.customer.nation.clone(), j.supplier.nation.clone(), j.date.year.to_string()];
                by_year_and_revenue(self.sums(query, group, revenue))
            }
            "3.2" | "3.3" | "3.4" => {
                let group: Group =
                    |j| vec![j.customer.city.clone(), j.supplier.city.clone(), j.date.year.to_string()];
                by_year_and_revenue(self.sums(query, group, revenue))
            }
            "4.1" => in_order(self.sums(
                query,
                |j| vec![j.date.year.to_string(), j.customer.nation.clone()],
                profit,
            )),
            "4.2" => {
                let group: Group =
                    |j| vec![j.date.year.to_string(), j.supplier.nation.clone(), j.part.category.clone()];
                in_order(self.sums(query, group, profit))
            }
            "4.3" => {
                let group: Group =
                    |j| vec![j.date.year.to_string(), j.supplier.city.clone(), j.part.brand.clone()];
                in_order(self.sums(query, group, profit))
            }
            other => panic!("there is no query {other}"),
        }
    }

    /// Writes the results of all queries as files of answers.
    pub fn write_answers(&self, dir: &Path) {
        for (query, _) in FILTERS {
            let rows = self.answer(query);
            let columns = match query.as_bytes()[0] {
                b'1' => 1,
                b'2' => 3,
                b'4' if query == "4.1" => 3,
                _ => 4,
            };
            let names: Vec<String> = (0..columns).map(|at| format!("column {at}")).collect();
            let lines: Vec<String> = rows.iter().map(|row| row.join(",")).collect();
            let text = format!("{}\n{}\n", names.join(","), lines.join("\n"));
            std::fs::write(dir.join(format!("q{query}.csv")), text).unwrap();
        }
    }
}

fn in_order(sums: BTreeMap<Vec<String>, i64>) -> Vec<Vec<String>> {
    sums.into_iter().map(|(group, sum)| [group, vec![sum.to_string()]].concat()).collect()
}

fn by_year_and_revenue(sums: BTreeMap<Vec<String>, i64>) -> Vec<Vec<String>> {
    let mut sums: Vec<(Vec<String>, i64)> = sums.into_iter().collect();
    sums.sort_by_key(|(group, sum)| (group[2].clone(), Reverse(*sum)));
    sums.into_iter().map(|(group, sum)| [group, vec![sum.to_string()]].concat()).collect()
}
