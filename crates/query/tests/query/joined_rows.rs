//! Random `(a, b) IN (SELECT …)`, UPDATE ... FROM and DELETE ... USING over small random tables, against an evaluation
//! of their own that pairs each row with each and knows nothing of joins.

use crate::runner::{TestDatabase, rows};
use entresol_query::{Session, StatementResult};

const ROUNDS: usize = 60;
const SEED: u64 = 65;

type Cell = Option<i64>;
/// Columns a and b; the key is the place of the row.
type Line = [Cell; 2];

/// Splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }

    fn lines(&mut self) -> Vec<Line> {
        let count = self.below(7);
        (0..count).map(|_| [self.cell(), self.cell()]).collect()
    }

    fn cell(&mut self) -> Cell {
        (self.below(5) > 0).then(|| self.below(3) as i64)
    }
}

fn shown(cell: Cell) -> String {
    cell.map_or_else(|| "NULL".to_owned(), |value| value.to_string())
}

async fn run(session: &mut Session, sql: &str) -> Vec<StatementResult> {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

async fn texts(session: &mut Session, sql: &str) -> Vec<String> {
    rows(&session.query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")))
}

async fn fill(session: &mut Session, table: &str, lines: &[Line]) {
    run(session, &format!("DELETE FROM {table}")).await;
    for (id, line) in lines.iter().enumerate() {
        let values = line.map(shown).join(", ");
        run(session, &format!("INSERT INTO {table} VALUES ({id}, {values})")).await;
    }
}

async fn tables() -> (TestDatabase, Session) {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    run(
        &mut session,
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT); CREATE TABLE s (id INT PRIMARY KEY, a INT, b INT)",
    )
    .await;
    (database, session)
}

/// Value of an IN by the three-valued logic of the standard.
fn member(line: Line, list: &[Line]) -> Option<bool> {
    let equal = |one: Cell, other: Cell| Some(one? == other?);
    let and = |one: Option<bool>, other: Option<bool>| match (one, other) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    };
    let mut found = Some(false);
    for other in list {
        match and(equal(line[0], other[0]), equal(line[1], other[1])) {
            Some(true) => return Some(true),
            None => found = None,
            Some(false) => {}
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_in_queries_as_the_standard_says() {
    let (_database, mut session) = tables().await;
    let mut random = Random(SEED);
    for round in 0..ROUNDS {
        let (lines, all) = (random.lines(), random.lines());
        fill(&mut session, "t", &lines).await;
        fill(&mut session, "s", &all).await;
        let least = random.below(3);
        let list: Vec<Line> = all.iter().copied().skip(least).collect();
        let query = format!("(SELECT a, b FROM s WHERE id >= {least})");
        let text = |value: Option<bool>| value.map_or_else(|| "NULL".to_owned(), |value| value.to_string());
        let inside: Vec<Option<bool>> = lines.iter().map(|line| member(*line, &list)).collect();
        let expected: Vec<String> = inside
            .iter()
            .map(|value| format!("{} {}", text(*value), text(value.map(|value| !value))))
            .collect();
        let sql = format!("SELECT (a, b) IN {query}, (a, b) NOT IN {query} FROM t ORDER BY id");
        assert_eq!(
            texts(&mut session, &sql).await,
            expected,
            "seed {SEED}, round {round}: {lines:?} {all:?}"
        );
        for (condition, wanted) in [
            (format!("(a, b) IN {query}"), Some(true)),
            (format!("(a, b) NOT IN {query}"), Some(false)),
            (format!("NOT (a, b) IN {query}"), Some(false)),
            (format!("NOT ((a, b) NOT IN {query}) AND id >= 0"), Some(true)),
            (format!("((a, b) IN {query}) IS NULL"), None),
        ] {
            let ids = (0..lines.len()).filter(|&id| inside[id] == wanted).map(|id| id.to_string());
            let sql = format!("SELECT id FROM t WHERE {condition} ORDER BY id");
            let found = texts(&mut session, &sql).await;
            assert_eq!(
                found,
                ids.collect::<Vec<_>>(),
                "seed {SEED}, round {round}, {sql}: {lines:?} {all:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn joined_rows_are_changed_once_with_one_of_their_partners() {
    let (_database, mut session) = tables().await;
    let mut random = Random(SEED);
    for round in 0..ROUNDS {
        let (lines, others) = (random.lines(), random.lines());
        let partners = |line: &Line| -> Vec<Line> {
            others.iter().copied().filter(|other| line[0].is_some() && line[0] == other[0]).collect()
        };
        let matched: Vec<usize> = (0..lines.len()).filter(|&id| !partners(&lines[id]).is_empty()).collect();
        let context = format!("seed {SEED}, round {round}: {lines:?} {others:?}");
        for returning in ["", " RETURNING t.id, t.b, s.b"] {
            fill(&mut session, "t", &lines).await;
            fill(&mut session, "s", &others).await;
            let sql = format!("UPDATE t SET b = s.b FROM s WHERE t.a = s.a{returning}");
            match run(&mut session, &sql).await.pop() {
                Some(StatementResult::Count { rows, .. }) => {
                    assert_eq!(rows as usize, matched.len(), "{context}")
                }
                Some(StatementResult::Returned { returned, .. }) => {
                    let returned = rows(&returned.batches);
                    assert_eq!(returned.len(), matched.len(), "{context}");
                    for row in returned {
                        let cells: Vec<&str> = row.split(' ').collect();
                        assert_eq!(cells[1], cells[2], "{context}");
                    }
                }
                other => panic!("{other:?}"),
            }
            let found = texts(&mut session, "SELECT id, a, b FROM t ORDER BY id").await;
            assert_eq!(found.len(), lines.len(), "{context}");
            for (id, (row, line)) in found.iter().zip(&lines).enumerate() {
                let mut possible: Vec<Cell> = partners(line).iter().map(|other| other[1]).collect();
                if possible.is_empty() {
                    possible.push(line[1]);
                }
                let is_possible = |b: &Cell| *row == format!("{id} {} {}", shown(line[0]), shown(*b));
                assert!(possible.iter().any(is_possible), "{row}: {context}");
            }
            let sql = format!("DELETE FROM t USING s WHERE t.a = s.a{}", &returning.replace("t.b, ", ""));
            match run(&mut session, &sql).await.pop() {
                Some(StatementResult::Count { rows, .. } | StatementResult::Returned { rows, .. }) => {
                    assert_eq!(rows as usize, matched.len(), "{context}");
                }
                other => panic!("{other:?}"),
            }
            let left = (0..lines.len()).filter(|id| !matched.contains(id)).map(|id| id.to_string());
            let found = texts(&mut session, "SELECT id FROM t ORDER BY id").await;
            assert_eq!(found, left.collect::<Vec<_>>(), "{context}");
        }
    }
}
