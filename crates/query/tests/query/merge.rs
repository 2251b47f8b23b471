//! Random MERGE statements over small random tables, against an evaluation of their own: rows, counts,
//! RETURNING and errors.
//!
//! The evaluation pairs each row of the target with each row of the source, as the standard says, and knows
//! nothing of joins.

use crate::runner::{TestDatabase, rows};
use entresol_query::{Session, StatementResult};
use std::collections::BTreeSet;
use std::fmt::{self, Display};

const STATEMENTS: usize = 500;
const SEED: u64 = 17;

type Cell = Option<i64>;
/// Columns k, v, w.
type Line = [Cell; 3];

const COLUMNS: [&str; 3] = ["k", "v", "w"];

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

    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn cell(&mut self, bound: usize) -> Cell {
        (!self.once_in(6)).then(|| self.below(bound) as i64)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Matched,
    ByTarget,
    BySource,
}

#[derive(Clone, Debug)]
enum Value {
    Constant(Cell),
    Target(usize),
    Source(usize),
    Sum(Box<Value>, Box<Value>),
    /// Subquery over the target, as it is before the statement.
    Count,
    /// Correlated subquery over the source table: the greatest w of the rows with this v.
    GreatestWith(Box<Value>),
}

#[derive(Clone, Debug)]
enum Condition {
    Always,
    Never,
    Less(Value, Value),
    Equal(Value, Value),
    IsNull(Value),
    Both(Box<Condition>, Box<Condition>),
}

#[derive(Clone, Debug)]
enum Action {
    /// A value for each column that is assigned.
    Update(Vec<(usize, Value)>),
    Delete,
    Insert(Vec<(usize, Value)>),
    Nothing,
}

#[derive(Clone, Debug)]
struct When {
    kind: Kind,
    condition: Option<Condition>,
    action: Action,
}

#[derive(Clone, Debug)]
struct Statement {
    on: Condition,
    whens: Vec<When>,
}

impl Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Constant(None) => write!(f, "CAST(NULL AS INT)"),
            Value::Constant(Some(value)) => write!(f, "{value}"),
            Value::Target(column) => write!(f, "t.{}", COLUMNS[*column]),
            Value::Source(column) => write!(f, "s.{}", COLUMNS[*column]),
            Value::Sum(left, right) => write!(f, "({left} + {right})"),
            Value::Count => write!(f, "(SELECT count(*) FROM target)"),
            Value::GreatestWith(value) => {
                write!(f, "(SELECT max(i.w) FROM source AS i WHERE i.v = {value})")
            }
        }
    }
}

impl Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Always => write!(f, "true"),
            Condition::Never => write!(f, "false"),
            Condition::Less(left, right) => write!(f, "{left} < {right}"),
            Condition::Equal(left, right) => write!(f, "{left} = {right}"),
            Condition::IsNull(value) => write!(f, "{value} IS NULL"),
            Condition::Both(left, right) => write!(f, "({left}) AND ({right})"),
        }
    }
}

impl Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Matched => " WHEN MATCHED",
            Kind::ByTarget => " WHEN NOT MATCHED",
            Kind::BySource => " WHEN NOT MATCHED BY SOURCE",
        })?;
        if let Some(condition) = &self.condition {
            write!(f, " AND {condition}")?;
        }
        match &self.action {
            Action::Nothing => write!(f, " THEN DO NOTHING"),
            Action::Delete => write!(f, " THEN DELETE"),
            Action::Update(set) => {
                let set: Vec<String> =
                    set.iter().map(|(column, value)| format!("{} = {value}", COLUMNS[*column])).collect();
                write!(f, " THEN UPDATE SET {}", set.join(", "))
            }
            Action::Insert(given) => {
                let columns: Vec<&str> = given.iter().map(|(column, _)| COLUMNS[*column]).collect();
                let values: Vec<String> = given.iter().map(|(_, value)| value.to_string()).collect();
                write!(f, " THEN INSERT ({}) VALUES ({})", columns.join(", "), values.join(", "))
            }
        }
    }
}

impl Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MERGE INTO target AS t USING source AS s ON {}", self.on)?;
        self.whens.iter().try_for_each(|when| when.fmt(f))
    }
}

/// Rows that expressions see: the tables before the statement, and the row at hand of each.
#[derive(Clone, Copy)]
struct Seen<'a> {
    target: &'a [Line],
    source: &'a [Line],
    at_target: Option<&'a Line>,
    at_source: Option<&'a Line>,
}

impl Value {
    fn of(&self, seen: Seen<'_>) -> Cell {
        match self {
            Value::Constant(value) => *value,
            Value::Target(column) => seen.at_target.unwrap()[*column],
            Value::Source(column) => seen.at_source.unwrap()[*column],
            Value::Sum(left, right) => Some(left.of(seen)? + right.of(seen)?),
            Value::Count => Some(seen.target.len() as i64),
            Value::GreatestWith(value) => {
                let wanted = value.of(seen)?;
                seen.source.iter().filter(|row| row[1] == Some(wanted)).filter_map(|row| row[2]).max()
            }
        }
    }

    fn random(random: &mut Random, kind: Kind, subqueries: bool) -> Value {
        let column = |random: &mut Random| {
            let column = random.below(3);
            match kind {
                Kind::ByTarget => Value::Source(column),
                Kind::BySource => Value::Target(column),
                Kind::Matched if random.once_in(2) => Value::Source(column),
                Kind::Matched => Value::Target(column),
            }
        };
        match random.below(8) {
            0 => Value::Constant(random.cell(6)),
            1 => {
                Value::Sum(Box::new(column(random)), Box::new(Value::Constant(Some(random.below(3) as i64))))
            }
            2 => Value::Sum(Box::new(column(random)), Box::new(column(random))),
            3 if subqueries => Value::Count,
            4 if subqueries => Value::GreatestWith(Box::new(column(random))),
            _ => column(random),
        }
    }
}

impl Condition {
    /// None is NULL.
    fn of(&self, seen: Seen<'_>) -> Option<bool> {
        match self {
            Condition::Always => Some(true),
            Condition::Never => Some(false),
            Condition::Less(left, right) => Some(left.of(seen)? < right.of(seen)?),
            Condition::Equal(left, right) => Some(left.of(seen)? == right.of(seen)?),
            Condition::IsNull(value) => Some(value.of(seen).is_none()),
            Condition::Both(left, right) => match (left.of(seen), right.of(seen)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            },
        }
    }

    fn random(random: &mut Random, kind: Kind) -> Condition {
        let value = |random: &mut Random| Value::random(random, kind, true);
        match random.below(7) {
            0 => Condition::IsNull(value(random)),
            1 | 2 => Condition::Equal(value(random), value(random)),
            3 => Condition::Both(
                Box::new(Condition::Less(value(random), value(random))),
                Box::new(Condition::Equal(value(random), value(random))),
            ),
            _ => Condition::Less(value(random), value(random)),
        }
    }

    fn random_join(random: &mut Random) -> Condition {
        let keys = || Condition::Equal(Value::Target(0), Value::Source(0));
        match random.below(12) {
            0 => Condition::Always,
            1 => Condition::Never,
            2 => Condition::Less(Value::Target(0), Value::Source(0)),
            3 => Condition::Equal(Value::Target(1), Value::Source(1)),
            4 => Condition::Equal(
                Value::Sum(Box::new(Value::Target(0)), Box::new(Value::Constant(Some(1)))),
                Value::Source(0),
            ),
            5 => Condition::Both(
                Box::new(keys()),
                Box::new(Condition::Less(Value::Target(1), Value::Source(2))),
            ),
            6 => Condition::Both(
                Box::new(keys()),
                Box::new(Condition::Less(Value::Source(1), Value::Constant(Some(3)))),
            ),
            7 => Condition::Both(Box::new(keys()), Box::new(Condition::IsNull(Value::Target(2)))),
            _ => keys(),
        }
    }
}

impl Statement {
    fn random(random: &mut Random) -> Statement {
        let on = Condition::random_join(random);
        let mut whens: Vec<When> = Vec::new();
        for _ in 0..1 + random.below(5) {
            let kind = [Kind::Matched, Kind::ByTarget, Kind::BySource][random.below(3)];
            let is_unconditional = |when: &When| when.kind == kind && when.condition.is_none();
            if whens.iter().any(is_unconditional) {
                continue;
            }
            let condition = (!random.once_in(3)).then(|| Condition::random(random, kind));
            let values = |random: &mut Random, always: usize| {
                let chosen =
                    (0..3).filter(|column| *column < always || random.once_in(2)).collect::<Vec<_>>();
                let value = |column| (column, Value::random(random, kind, true));
                chosen.into_iter().map(value).collect::<Vec<_>>()
            };
            let action = match (kind, random.below(6)) {
                (_, 0) => Action::Nothing,
                (Kind::ByTarget, _) => Action::Insert(values(random, 1)),
                (_, 1 | 2) => Action::Delete,
                _ => {
                    let mut set = values(random, 0);
                    // Keys that move are tried less often: they seldom stay distinct.
                    set.retain(|(column, _)| *column > 0 || random.once_in(3));
                    if set.is_empty() { Action::Delete } else { Action::Update(set) }
                }
            };
            whens.push(When { kind, condition, action });
        }
        Statement { on, whens }
    }
}

/// Table definition.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// k is the primary key; the table has a hidden one otherwise.
    key: bool,
    unique_v: bool,
    index_w: bool,
}

/// Effects of a statement.
#[derive(Default)]
struct Effects {
    target: Vec<Line>,
    count: u64,
    returned: Vec<String>,
    /// SQLSTATEs, one of which is reported.
    errors: BTreeSet<&'static str>,
}

fn shown(cells: &[Cell]) -> String {
    let texts = cells.iter().map(|cell| cell.map_or("NULL".to_owned(), |cell| cell.to_string()));
    texts.collect::<Vec<_>>().join(" ")
}

fn effects(statement: &Statement, rules: Rules, target: &[Line], source: &[Line]) -> Effects {
    let mut effects = Effects::default();
    let mut now: Vec<Option<Line>> = target.iter().copied().map(Some).collect();
    let (mut added, mut touched) = (Vec::new(), vec![false; target.len()]);
    let mut matched_source = vec![false; source.len()];
    let mut joined: Vec<(Option<usize>, Option<usize>)> = Vec::new();
    for (t, at_target) in target.iter().enumerate() {
        let before = joined.len();
        for (s, at_source) in source.iter().enumerate() {
            let seen = Seen { target, source, at_target: Some(at_target), at_source: Some(at_source) };
            if statement.on.of(seen) == Some(true) {
                joined.push((Some(t), Some(s)));
                matched_source[s] = true;
            }
        }
        if joined.len() == before {
            joined.push((Some(t), None));
        }
    }
    joined.extend((0..source.len()).filter(|&s| !matched_source[s]).map(|s| (None, Some(s))));
    for (t, s) in joined {
        let (at_target, at_source) = (t.map(|t| &target[t]), s.map(|s| &source[s]));
        let seen = Seen { target, source, at_target, at_source };
        let kind = match (t, s) {
            (Some(_), Some(_)) => Kind::Matched,
            (None, _) => Kind::ByTarget,
            (_, None) => Kind::BySource,
        };
        let is_met = |when: &&When| {
            when.kind == kind
                && when.condition.as_ref().is_none_or(|condition| condition.of(seen) == Some(true))
        };
        let Some(when) = statement.whens.iter().find(is_met) else { continue };
        if matches!(when.action, Action::Nothing) {
            continue;
        }
        if let Some(t) = t
            && std::mem::replace(&mut touched[t], true)
        {
            effects.errors.insert("21000");
        }
        let (verb, line) = match &when.action {
            Action::Update(set) => {
                let mut line = *at_target.unwrap();
                set.iter().for_each(|(column, value)| line[*column] = value.of(seen));
                now[t.unwrap()] = Some(line);
                ("UPDATE", line)
            }
            Action::Insert(given) => {
                let mut line = [None; 3];
                given.iter().for_each(|(column, value)| line[*column] = value.of(seen));
                added.push(line);
                ("INSERT", line)
            }
            Action::Delete | Action::Nothing => {
                now[t.unwrap()] = None;
                ("DELETE", *at_target.unwrap())
            }
        };
        if rules.key && line[0].is_none() {
            effects.errors.insert("23502");
        }
        effects.count += 1;
        effects.returned.push(format!("{verb} {} {}", shown(at_source.unwrap_or(&[None; 3])), shown(&line)));
    }
    effects.target = now.into_iter().flatten().chain(added).collect();
    effects.target.sort_unstable();
    let is_distinct = |column: usize| {
        let mut values: Vec<i64> = effects.target.iter().filter_map(|line| line[column]).collect();
        let count = values.len();
        values.sort_unstable();
        values.dedup();
        values.len() == count
    };
    // With a row that is changed twice, it is open which values it would have.
    let open = effects.errors.contains("21000");
    if open || (rules.key && !is_distinct(0)) || (rules.unique_v && !is_distinct(1)) {
        if !open {
            effects.errors.insert("23505");
        } else {
            effects.errors.extend(["23502", "23505"]);
        }
    }
    effects.returned.sort_unstable();
    effects
}

async fn run(session: &mut Session, sql: &str) {
    session.execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

async fn stored(session: &mut Session, table: &str) -> Vec<String> {
    let sql = format!("SELECT k, v, w FROM {table}");
    let results = session.execute(&sql).await.unwrap();
    let Some(StatementResult::Rows(found)) = results.last() else { panic!("{sql}") };
    let mut found = rows(&found.batches);
    found.sort_unstable();
    found
}

/// Fills a table with random rows; keys are distinct if they have to be.
async fn fill(session: &mut Session, random: &mut Random, table: &str, rules: Option<Rules>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for _ in 0..random.below(9) {
        let line = [random.cell(8), random.cell(6), random.cell(6)];
        let equal = |column: usize| lines.iter().any(|other| other[column] == line[column]);
        if rules.is_some_and(|rules| {
            (rules.key && (line[0].is_none() || equal(0)))
                || (rules.unique_v && line[1].is_some() && equal(1))
        }) {
            continue;
        }
        lines.push(line);
    }
    run(session, &format!("DELETE FROM {table}")).await;
    if !lines.is_empty() {
        let values: Vec<String> =
            lines.iter().map(|line| format!("({})", shown(line).replace(' ', ", "))).collect();
        run(session, &format!("INSERT INTO {table} (k, v, w) VALUES {}", values.join(", "))).await;
    }
    lines
}

async fn create(session: &mut Session, rules: Rules) {
    run(session, "DROP TABLE IF EXISTS target").await;
    let key = if rules.key { " PRIMARY KEY" } else { "" };
    run(session, &format!("CREATE TABLE target (k INT{key}, v INT, w BIGINT)")).await;
    if rules.unique_v {
        run(session, "CREATE UNIQUE INDEX target_v ON target (v)").await;
    }
    if rules.index_w {
        run(session, "CREATE INDEX target_w ON target (w)").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_merges_do_what_their_evaluation_says() {
    let database = TestDatabase::volatile();
    let mut session = database.session();
    let mut random = Random(SEED);
    run(&mut session, "CREATE TABLE source (k INT, v INT, w INT)").await;
    let mut rules = Rules { key: true, unique_v: false, index_w: false };
    let (mut target, mut source) = (Vec::new(), Vec::new());
    let (mut changed, mut failed, mut returned) = (0, 0, 0);
    for number in 0..STATEMENTS {
        if number % 25 == 0 {
            rules = Rules { key: number % 75 != 0, unique_v: random.once_in(3), index_w: random.once_in(2) };
            create(&mut session, rules).await;
            target.clear();
        }
        if target.len() < 3 || target.len() > 12 || random.once_in(4) {
            target = fill(&mut session, &mut random, "target", Some(rules)).await;
        }
        if number == 0 || random.once_in(2) {
            source = fill(&mut session, &mut random, "source", None).await;
        }
        let statement = Statement::random(&mut random);
        let expected = effects(&statement, rules, &target, &source);
        let returns = random.once_in(2);
        let returning = " RETURNING merge_action(), s.*, t.*";
        let sql = format!("{statement}{}", if returns { returning } else { "" });
        let context =
            format!("seed {SEED}, statement {number}: {sql}\n{rules:?}\nt {target:?}\ns {source:?}");
        match session.execute(&sql).await {
            Err(error) => {
                assert!(expected.errors.contains(error.sqlstate()), "{context}\nfailed: {error}");
                failed += 1;
            }
            Ok(results) => {
                assert!(expected.errors.is_empty(), "{context}\nno error of {:?}", expected.errors);
                let count = match results.last().unwrap() {
                    StatementResult::Count { verb: "MERGE", rows } if !returns => *rows,
                    StatementResult::Returned { verb: "MERGE", rows: count, returned: found } if returns => {
                        let mut found = rows(&found.batches);
                        found.sort_unstable();
                        assert_eq!(found, expected.returned, "{context}");
                        returned += found.len();
                        *count
                    }
                    other => panic!("{context}\ngave {other:?}"),
                };
                assert_eq!(count, expected.count, "{context}");
                changed += count;
                target = expected.target;
            }
        }
        let mut lines: Vec<String> = target.iter().map(|line| shown(line)).collect();
        lines.sort_unstable();
        assert_eq!(stored(&mut session, "target").await, lines, "{context}");
        for (index, column) in [(rules.unique_v, 1), (rules.index_w, 2)] {
            for wanted in (0..8).filter(|_| index && number % 5 == 0) {
                let sql = format!("SELECT count(*) FROM target WHERE {} = {wanted}", COLUMNS[column]);
                let found = session.execute(&sql).await.unwrap();
                let Some(StatementResult::Rows(found)) = found.last() else { panic!("{sql}") };
                let there = target.iter().filter(|line| line[column] == Some(wanted)).count();
                assert_eq!(rows(&found.batches), [there.to_string()], "{context}\n{sql}");
            }
        }
    }
    // The statements are not all of one sort.
    assert!(
        changed > 300 && failed > 30 && returned > 150,
        "{changed} rows, {failed} errors, {returned} returned"
    );
}
