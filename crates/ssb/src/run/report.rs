//! Times and verdicts of a run.

use serde_json::json;

/// Comparison of a result with its answer, and of the runs with each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// No answer to compare with; all runs had the same result.
    NotCompared,
    /// Result equal to the answer.
    Same,
    /// Another result, or a run with another result than the first; the first difference.
    Different(String),
    /// Failure of the query, with this message.
    Failed(String),
}

/// Times of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryReport {
    /// Flight and number, such as `2.1`.
    pub query: &'static str,
    /// Rows of its result.
    pub rows: usize,
    /// Time of the first run.
    pub first_ms: f64,
    /// Times of the others.
    pub repeated_ms: Vec<f64>,
    /// Its result.
    pub verdict: Verdict,
}

impl QueryReport {
    /// Median of the runs after the first.
    pub fn median_ms(&self) -> Option<f64> {
        let mut sorted = self.repeated_ms.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let (middle, count) = (sorted.len() / 2, sorted.len());
        match count {
            0 => None,
            _ if count.is_multiple_of(2) => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
            _ => Some(sorted[middle]),
        }
    }

    /// Least time of all runs.
    pub fn best_ms(&self) -> f64 {
        self.repeated_ms.iter().copied().fold(self.first_ms, f64::min)
    }

    /// Message of a result that is not as it should be.
    pub fn fault(&self) -> Option<String> {
        match &self.verdict {
            Verdict::Different(difference) => {
                Some(format!("query {} is DIFFERENT: {difference}", self.query))
            }
            Verdict::Failed(message) => Some(format!("query {} failed: {message}", self.query)),
            Verdict::NotCompared | Verdict::Same => None,
        }
    }

    fn verdict_text(&self) -> &'static str {
        match self.verdict {
            Verdict::NotCompared => "",
            Verdict::Same => "ok",
            Verdict::Different(_) => "DIFFERENT",
            Verdict::Failed(_) => "FAILED",
        }
    }
}

/// Results of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The queries, in the order in which they ran.
    pub queries: Vec<QueryReport>,
    /// Rows of lineorder; none if they could not be counted.
    pub lineorder_rows: Option<u64>,
    /// Memory budget of the database.
    pub memory_max_bytes: u64,
    /// Threads for queries.
    pub threads: usize,
}

/// Milliseconds in a cell.
fn shown(ms: Option<f64>) -> String {
    ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2}"))
}

impl Report {
    /// Names of the cells of [`Report::rows`].
    pub const HEADER: [&'static str; 6] = ["query", "rows", "first ms", "median ms", "best ms", "answer"];

    /// The times, as people read them: a row for each query, and their sum.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let mut rows: Vec<Vec<String>> = Vec::new();
        for query in &self.queries {
            let times = [Some(query.first_ms), query.median_ms(), Some(query.best_ms())];
            let has_times = !matches!(query.verdict, Verdict::Failed(_));
            let [first, median, best] = times.map(|time| shown(time.filter(|_| has_times)));
            let verdict = query.verdict_text().to_owned();
            rows.push(vec![
                format!("q{}", query.query),
                query.rows.to_string(),
                first,
                median,
                best,
                verdict,
            ]);
        }
        let [first, median, best] = self.sums_ms().map(shown);
        rows.push(vec!["sum".to_owned(), String::new(), first, median, best, String::new()]);
        rows
    }

    /// Sums of first, median and best times; of the medians none if there are none.
    fn sums_ms(&self) -> [Option<f64>; 3] {
        let timed = || self.queries.iter().filter(|query| !matches!(query.verdict, Verdict::Failed(_)));
        let first = timed().map(|query| query.first_ms).sum();
        let best = timed().map(QueryReport::best_ms).sum();
        [Some(first), timed().map(QueryReport::median_ms).sum(), Some(best)]
    }

    /// Messages of results that are not as they should be.
    pub fn faults(&self) -> Vec<String> {
        self.queries.iter().filter_map(QueryReport::fault).collect()
    }

    /// The results as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        let queries: Vec<_> = self
            .queries
            .iter()
            .map(|query| {
                let answer = match query.verdict {
                    Verdict::NotCompared => None,
                    Verdict::Same => Some("ok"),
                    Verdict::Different(_) => Some("different"),
                    Verdict::Failed(_) => Some("failed"),
                };
                json!({
                    "query": query.query, "rows": query.rows, "first_ms": query.first_ms,
                    "median_ms": query.median_ms(), "best_ms": query.best_ms(),
                    "repeated_ms": query.repeated_ms, "answer": answer, "fault": query.fault(),
                })
            })
            .collect();
        let [first, median, best] = self.sums_ms();
        json!({
            "benchmark": "ssb", "queries": queries, "sum_first_ms": first, "sum_median_ms": median,
            "sum_best_ms": best, "lineorder_rows": self.lineorder_rows,
            "memory_max_bytes": self.memory_max_bytes, "threads": self.threads,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(query: &'static str, first_ms: f64, repeated_ms: &[f64], verdict: Verdict) -> QueryReport {
        QueryReport { query, rows: 3, first_ms, repeated_ms: repeated_ms.to_vec(), verdict }
    }

    #[test]
    fn times_are_summed_and_faults_named() {
        let different = Verdict::Different("row 1 is (2), not (1)".to_owned());
        let failed = Verdict::Failed("no memory".to_owned());
        let report = Report {
            queries: vec![
                query("1.1", 9.0, &[3.0, 1.0, 2.0], Verdict::Same),
                query("1.2", 1.0, &[4.0, 2.0], different),
                query("1.3", 100.0, &[], failed),
            ],
            lineorder_rows: Some(7),
            memory_max_bytes: 1 << 20,
            threads: 2,
        };
        let rows: Vec<String> = report.rows().iter().map(|row| row.join(" ")).collect();
        let expected = [
            "q1.1 3 9.00 2.00 1.00 ok",
            "q1.2 3 1.00 3.00 1.00 DIFFERENT",
            "q1.3 3 - - - FAILED",
            "sum  10.00 5.00 2.00 ",
        ];
        assert_eq!(rows, expected);
        let faults = ["query 1.2 is DIFFERENT: row 1 is (2), not (1)", "query 1.3 failed: no memory"];
        assert_eq!(report.faults(), faults);
        let json = report.to_json();
        assert_eq!(
            (&json["sum_median_ms"], &json["queries"][1]["answer"]),
            (&json!(5.0), &json!("different"))
        );
        let once = Report { queries: vec![query("1.1", 9.0, &[], Verdict::NotCompared)], ..report };
        assert_eq!(once.rows()[0].join(" "), "q1.1 3 9.00 - 9.00 ");
        assert_eq!(once.to_json()["queries"][0]["answer"], serde_json::Value::Null);
    }
}
