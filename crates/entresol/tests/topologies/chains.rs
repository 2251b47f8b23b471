//! Random topologies of steps over steps: aggregates of aggregates, filters, unions, DISTINCT, joins with tables. At random
//! commits, over aborts, pauses, ALTERs, restarts and kills, each target equals its query over the rows
//! that were read so far.

use super::{Random, rows, wait_for_end};
use entresol::{Database, Options, Session};
use std::fmt::Write;

/// Query that may be a step or be over others: of `k` and `m`, which are strings, `n` BIGINT and `c` NUMERIC.
#[derive(Clone)]
struct Relation {
    name: String,
    /// Query over the table of all rows.
    batch: String,
    /// True if its rows are taken back.
    changes: bool,
    /// True if `k` and `m` are the key of rows that are taken back.
    is_keyed: bool,
}

/// Steps of a topology, and what each of its targets equals.
struct Chain {
    steps: Vec<String>,
    tables: Vec<String>,
    targets: Vec<(String, String)>,
}

const COLUMNS: &str = "k, m, n, c";

fn base() -> Relation {
    let columns = "feeder AS k, 'm' || meter % 7 AS m, meter::bigint AS n, cost::numeric(20,2) AS c";
    Relation {
        name: format!("(SELECT {columns} FROM reading)"),
        batch: format!("SELECT {columns} FROM readings"),
        changes: false,
        is_keyed: false,
    }
}

fn condition(random: &mut Random) -> &'static str {
    random.one(&[
        "n % 3 <> 1",
        "c > 2.5",
        "k <> 'feeder 2' OR n > 10",
        "m IN ('m1', 'm2', 'all')",
        "n > 4 AND c IS NOT NULL",
    ])
}

/// Query of one kind, of which FROM is a place for its input; `None` if that cannot be of this one.
fn query(random: &mut Random, of: &Relation) -> Option<(String, bool, bool)> {
    match random.below(7) {
        0 => Some((format!("SELECT {COLUMNS} FROM FROM i WHERE {}", condition(random)), of.changes, of.is_keyed)),
        1 => {
            let (k, m) = [("k", "m"), ("upper(k)", "m"), ("'k' || length(m)", "k")][random.below(3)];
            let text = format!("SELECT {k} AS k, {m} AS m, n * 2 - 1 AS n, c + 1 AS c FROM FROM i");
            Some((text, of.changes, of.is_keyed && k == "k"))
        }
        2 if !of.changes => Some((
            "SELECT i.k, p.name AS m, i.n + p.w AS n, i.c FROM FROM i JOIN places p ON p.k = i.k AND p.w < i.n".to_owned(),
            false,
            false,
        )),
        3 if !of.changes => {
            Some(("SELECT DISTINCT k, m, n % 5 AS n, floor(c)::numeric(20,2) AS c FROM FROM i".to_owned(), false, false))
        }
        _ => {
            let (k, m, by) = random_group(random);
            let n = random.one(&[
                "count(*)",
                "sum(n)::bigint",
                "min(n)",
                "max(n)",
                "count(DISTINCT n)",
                "coalesce(sum(n) FILTER (WHERE c > 3), 0)::bigint",
                "coalesce(median(n), 0)::bigint",
                "bit_xor(n)",
                "count(c)",
            ]);
            let c = random.one(&["coalesce(sum(c), 0)", "max(c)", "min(c)", "coalesce(max(c) - min(c), 0)"]);
            let having = random.one(&["", "", " HAVING count(*) % 4 <> 1", " HAVING max(n) > 5"]);
            let having = if by.is_empty() { "" } else { having };
            let text = format!("SELECT {k} AS k, {m} AS m, {n} AS n, ({c})::numeric(20,2) AS c FROM FROM i{by}{having}");
            Some((text, true, true))
        }
    }
}

fn random_group(random: &mut Random) -> (&'static str, &'static str, &'static str) {
    [
        ("k", "m", " GROUP BY k, m"),
        ("k", "'all'", " GROUP BY k"),
        ("'all'", "m", " GROUP BY m"),
        ("'all'", "'all'", ""),
    ][random.below(4)]
}

impl Chain {
    fn random(random: &mut Random) -> Chain {
        let mut chain = Chain { steps: Vec::new(), tables: Vec::new(), targets: Vec::new() };
        chain.steps.push("INSERT INTO readings SELECT * FROM reading".to_owned());
        let mut relations = vec![base()];
        let wanted = 2 + random.below(4);
        while relations.len() <= wanted {
            let of = relations[random.below(relations.len())].clone();
            let (stream, batch, changes, is_keyed) = if random.below(8) == 0 {
                let other = relations[random.below(relations.len())].clone();
                let both = |one: &str, other: &str| {
                    format!("SELECT {COLUMNS} FROM {one} a UNION ALL SELECT {COLUMNS} FROM {other} b")
                };
                let stream = both(&of.name, &other.name);
                let batch = both(&format!("({})", of.batch), &format!("({})", other.batch));
                (stream, batch, of.changes || other.changes, false)
            } else {
                let Some((text, changes, is_keyed)) = query(random, &of) else { continue };
                let batch = text.replace("FROM FROM", &format!("FROM ({})", of.batch));
                (text.replace("FROM FROM", &format!("FROM {}", of.name)), batch, changes, is_keyed)
            };
            let name = format!("s{}", relations.len());
            chain.steps.push(format!("CREATE STREAM {name} AS {stream}"));
            relations.push(Relation { name, batch, changes, is_keyed });
        }
        for relation in &relations[1..] {
            chain.target(relation);
        }
        chain
    }

    /// Adds a target of a relation, if it can have one.
    fn target(&mut self, of: &Relation) {
        if of.changes && !of.is_keyed {
            return;
        }
        let table = format!("target_{}", of.name);
        let key = if of.changes { ", PRIMARY KEY (k, m)" } else { "" };
        self.tables.push(format!("CREATE TABLE {table} (k TEXT, m TEXT, n BIGINT, c NUMERIC(20,2){key})"));
        let set =
            if of.changes { " ON CONFLICT (k, m) DO UPDATE SET n = EXCLUDED.n, c = EXCLUDED.c" } else { "" };
        self.steps.push(format!("INSERT INTO {table} SELECT {COLUMNS} FROM {}{set}", of.name));
        self.targets.push((table, of.batch.clone()));
    }

    /// Compares all targets with their queries, as of one commit.
    fn compare(&self, session: &mut Session, what: &str) {
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap();
        // An aggregate of one group has no row before the first commit.
        let is_begun = rows(session, "SELECT count(*) FROM readings")[0] != ["0"];
        for (table, batch) in self.targets.iter().filter(|_| is_begun) {
            let shown = "k, m, n, round(c, 2)";
            let (one, other) =
                (format!("SELECT {shown} FROM {table}"), format!("SELECT {shown} FROM ({batch}) b"));
            for (one, other) in [(&one, &other), (&other, &one)] {
                let found = rows(session, &format!("SELECT * FROM ({one} EXCEPT ALL {other}) d LIMIT 3"));
                assert!(found.is_empty(), "{what}: {one} has more than {other}: {found:?}");
            }
        }
        session.execute("COMMIT").unwrap();
    }
}

const TABLES: &str =
    "CREATE TABLE readings (at TIMESTAMP PRIMARY KEY, meter INT, feeder VARCHAR, kw DOUBLE, cost DECIMAL(8,2));
    CREATE TABLE places (k TEXT, w BIGINT, name TEXT, PRIMARY KEY (k, w))";

fn source(rows: usize, rate: &str) -> String {
    format!(
        "CREATE SOURCE reading (
             at TIMESTAMP NOT NULL, meter INT NOT NULL, feeder VARCHAR NOT NULL, kw DOUBLE, cost DECIMAL(8,2),
             WATERMARK FOR at AS at - INTERVAL '2 minutes'
         ) WITH (connector = 'generator', rows = {rows}, step = '67 seconds', meter.cardinality = 23,
             feeder.cardinality = 4, cost.cardinality = 500{rate})"
    )
}

/// Statement of a topology of a chain.
fn create(chain: &Chain, random: &mut Random) -> String {
    let commit =
        random.one(&["EACH ROW", "EVERY 7 ROWS", "EVERY 37 ROWS", "EVERY 150 ROWS", "EVERY 5000 ROWS"]);
    let aborts = random.one(&[
        "",
        "",
        "; ABORT WHEN (SELECT count(*) FROM CHANGES(readings) WHERE meter = 3 AND cost < 1) > 0",
    ]);
    let mut text =
        format!("CREATE TOPOLOGY x COMMIT {commit} ON ERROR ABORT WITH (durability = 'none') AS (");
    write!(text, "{}{aborts})", chain.steps.join("; ")).unwrap();
    text
}

fn prepare(session: &mut Session, chain: &Chain) {
    session.execute(TABLES).unwrap();
    session
        .execute("INSERT INTO places SELECT 'feeder ' || i % 4, i % 9, 'place ' || i FROM generate_series(0, 35) g(i)")
        .unwrap();
    for table in &chain.tables {
        session.execute(table).unwrap_or_else(|error| panic!("{table}: {error}"));
    }
}

/// Numbers of topologies and the seed: `ENTRESOL_TOPOLOGIES` and `ENTRESOL_SEED`.
fn wanted(topologies: usize, seed: u64) -> (usize, Random) {
    let set = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = set("ENTRESOL_SEED").unwrap_or(seed);
    println!("ENTRESOL_SEED={seed}");
    (set("ENTRESOL_TOPOLOGIES").map_or(topologies, |topologies| topologies as usize), Random(seed))
}

#[test]
fn chains_of_steps_equal_their_queries() {
    let (topologies, mut random) = wanted(100, 5);
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute(&source(400, "")).unwrap();
    for _ in 0..topologies {
        let chain = Chain::random(&mut random);
        prepare(&mut session, &chain);
        let create = create(&chain, &mut random);
        session.execute(&create).unwrap_or_else(|error| panic!("{create}: {error}"));
        for _ in 0..random.below(3) {
            chain.compare(&mut session, &create);
        }
        wait_for_end(&mut session, "x");
        chain.compare(&mut session, &create);
        session.execute("DROP TOPOLOGY x; DROP TABLE readings; DROP TABLE places").unwrap();
        for (table, _) in &chain.targets {
            session.execute(&format!("DROP TABLE {table}")).unwrap();
        }
    }
}

/// The same, while the topology is paused, altered, closed with its database and left as by a crash.
#[test]
fn chains_of_steps_live_through_alterations_and_kills() {
    let (topologies, mut random) = wanted(12, 6);
    for _ in 0..topologies.div_ceil(10) {
        let directory = tempfile::tempdir().unwrap();
        let chain = Chain::random(&mut random);
        let create = create(&chain, &mut random);
        let mut steps = 0;
        for round in 0.. {
            let database = Database::open(directory.path(), Options::default()).unwrap();
            let mut session = database.session().unwrap();
            if round == 0 {
                session.execute(&source(2000, ", rows_per_second = 4000")).unwrap();
                prepare(&mut session, &chain);
                session.execute(&create).unwrap_or_else(|error| panic!("{create}: {error}"));
            }
            if round == 4 {
                wait_for_end(&mut session, "x");
                chain.compare(&mut session, &create);
                assert!(database.check(|_| {}).unwrap().problems.is_empty());
                break;
            }
            for _ in 0..3 {
                alter(&mut session, &mut random, &mut steps);
                chain.compare(&mut session, &create);
            }
            // Closed, or left as by a crash.
            if random.below(2) == 0 {
                drop(session);
                database.close().unwrap();
            }
        }
    }
}

/// One of the things that may happen to a topology that runs.
fn alter(session: &mut Session, random: &mut Random, columns: &mut usize) {
    let statements = match random.below(6) {
        0 => "ALTER TOPOLOGY x PAUSE; ALTER TOPOLOGY x RESUME".to_owned(),
        1 => format!("ALTER TOPOLOGY x SET (parallelism = '{}')", 1 + random.below(3)),
        2 => {
            *columns += 1;
            format!("ALTER TABLE readings ADD COLUMN more_{columns} INT")
        }
        3 => {
            *columns += 1;
            format!("CREATE INDEX places_{columns} ON places (name)")
        }
        4 => {
            *columns += 1;
            format!("ALTER TABLE places ADD COLUMN more_{columns} INT")
        }
        _ => {
            std::thread::sleep(std::time::Duration::from_millis(random.below(20) as u64));
            return;
        }
    };
    session.execute(&statements).unwrap_or_else(|error| panic!("{statements}: {error}"));
}
