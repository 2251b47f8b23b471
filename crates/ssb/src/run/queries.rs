//! The 13 queries.

use std::str::FromStr;

/// A query of the benchmark.
#[derive(Debug)]
pub struct Query {
    /// Flight and number, such as `2.1`.
    pub name: &'static str,
    /// Its text.
    pub sql: &'static str,
    /// Names of its columns, as in the files of answers.
    pub columns: &'static [&'static str],
    /// Positions of the columns of its ORDER BY.
    pub order_by: &'static [usize],
}

macro_rules! query {
    ($name:literal, $columns:expr, $order_by:expr) => {
        Query {
            name: $name,
            sql: include_str!(concat!("../../queries/q", $name, ".sql")),
            columns: $columns,
            order_by: $order_by,
        }
    };
}

const BRANDS: &[&str] = &["sum(lo_revenue)", "d_year", "p_brand1"];
const CITIES: &[&str] = &["c_city", "s_city", "d_year", "revenue"];

/// All queries, in order.
pub static QUERIES: [Query; 13] = [
    query!("1.1", &["revenue"], &[]),
    query!("1.2", &["revenue"], &[]),
    query!("1.3", &["revenue"], &[]),
    query!("2.1", BRANDS, &[1, 2]),
    query!("2.2", BRANDS, &[1, 2]),
    query!("2.3", BRANDS, &[1, 2]),
    query!("3.1", &["c_nation", "s_nation", "d_year", "revenue"], &[2, 3]),
    query!("3.2", CITIES, &[2, 3]),
    query!("3.3", CITIES, &[2, 3]),
    query!("3.4", CITIES, &[2, 3]),
    query!("4.1", &["d_year", "c_nation", "profit"], &[0, 1]),
    query!("4.2", &["d_year", "s_nation", "p_category", "profit"], &[0, 1, 2]),
    query!("4.3", &["d_year", "s_city", "p_brand1", "profit"], &[0, 1, 2]),
];

/// Queries to run, each once.
#[derive(Debug, Clone)]
pub struct Selection(Vec<&'static Query>);

impl Selection {
    /// The queries.
    pub fn queries(&self) -> &[&'static Query] {
        &self.0
    }
}

impl FromStr for Selection {
    type Err = String;

    /// Parses a list such as `1.1,q2.3,4`; a number alone is a flight.
    fn from_str(text: &str) -> Result<Selection, String> {
        let mut selected: Vec<&'static Query> = Vec::new();
        for word in text.split(',').map(str::trim) {
            let name = word.strip_prefix(['q', 'Q']).unwrap_or(word);
            let is_meant = |query: &&Query| {
                query.name == name || query.name.split_once('.').is_some_and(|(flight, _)| flight == name)
            };
            let meant: Vec<&'static Query> = QUERIES.iter().filter(is_meant).collect();
            if meant.is_empty() {
                let names = QUERIES.each_ref().map(|query| query.name).join(", ");
                return Err(format!("'{word}' is not a query: use {names}, or a flight from 1 to 4"));
            }
            selected.extend(
                meant
                    .into_iter()
                    .filter(|query| !selected.iter().any(|s| s.name == query.name))
                    .collect::<Vec<_>>(),
            );
        }
        Ok(Selection(selected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<&'static str> {
        let selection: Selection = text.parse().unwrap();
        selection.queries().iter().map(|query| query.name).collect()
    }

    #[test]
    fn lists_name_queries_and_flights() {
        assert_eq!(names("2.1, q1.1"), ["2.1", "1.1"]);
        assert_eq!(names("3,Q3.2,1.3"), ["3.1", "3.2", "3.3", "3.4", "1.3"]);
        assert_eq!(names("1,2,3,4").len(), 13);
        for wrong in ["5.1", "", "1.1,", "q", "1.", "3.5", "all"] {
            let error = wrong.parse::<Selection>().unwrap_err();
            assert!(error.contains("is not a query") && error.contains("4.3"), "{error}");
        }
    }

    #[test]
    fn columns_and_orders_are_those_of_the_texts() {
        for query in &QUERIES {
            let (_, rest) = query.sql.split_once("SELECT ").unwrap();
            let (columns, rest) = rest.split_once("\nFROM ").unwrap();
            for (column, written) in query.columns.iter().zip(columns.split(", ")) {
                assert!(written.ends_with(column), "{}: {written} is {column}", query.name);
            }
            assert_eq!(columns.split(", ").count(), query.columns.len(), "{}", query.name);
            let order =
                rest.split_once("ORDER BY ").map_or("", |(_, order)| order.trim_end().trim_end_matches(';'));
            let order: Vec<&str> = order.split(", ").filter_map(|word| word.split(' ').next()).collect();
            let order: Vec<&str> = order.into_iter().filter(|word| !word.is_empty()).collect();
            let expected: Vec<&str> = query.order_by.iter().map(|at| query.columns[*at]).collect();
            assert_eq!(order, expected, "{}", query.name);
        }
    }
}
