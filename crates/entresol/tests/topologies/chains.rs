//! Random topologies of steps over steps: aggregates of aggregates, filters, unions, DISTINCT, rankings, joins with tables and
//! subqueries of them, joins of steps with each other and windows of rows that are taken back; their rows are inserted, merged
//! into rows that are there, or delete them. At random commits, over aborts, pauses, ALTERs, restarts and kills, each target
//! equals its query over the rows that were read so far.

use super::{Random, rows};
use entresol::{Database, Options, Session};
use std::fmt::Write;
use std::time::{Duration, Instant};

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
    name: String,
    /// Number of rows of its source.
    rows: usize,
    steps: Vec<String>,
    tables: Vec<String>,
    targets: Vec<(String, String)>,
}

const COLUMNS: &str = "k, m, n, c";
/// Numbers of rows of the sources.
const SOURCES: [usize; 3] = [20, 45, 90];

fn base(chain: &Chain) -> Relation {
    let columns = "feeder AS k, 'm' || meter % 7 AS m, meter::bigint AS n, cost::numeric(20,2) AS c";
    Relation {
        name: format!("(SELECT {columns} FROM reading_{})", chain.rows),
        batch: format!("SELECT {columns} FROM {}_readings", chain.name),
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
        "k IN (SELECT k FROM names WHERE w > 1)",
        "n <= (SELECT max(w) FROM places p WHERE p.k = i.k)",
    ])
}

/// Query of one kind, of which FROM is a place for its input, and how its rows change.
fn query(random: &mut Random, of: &Relation) -> (String, bool, bool) {
    match random.below(10) {
        0 | 1 => {
            let text = format!("SELECT {COLUMNS} FROM FROM i WHERE {}", condition(random));
            (text, of.changes, of.is_keyed)
        }
        2 => {
            let (k, m) = [("k", "m"), ("upper(k)", "m"), ("'k' || length(m)", "k")][random.below(3)];
            let text = format!("SELECT {k} AS k, {m} AS m, n * 2 - 1 AS n, c + 1 AS c FROM FROM i");
            (text, of.changes, of.is_keyed && k == "k")
        }
        3 => join(random, of),
        4 => {
            let text = "SELECT DISTINCT k, m, n % 5 AS n, floor(c)::numeric(20,2) AS c FROM FROM i";
            (text.to_owned(), of.changes, false)
        }
        5 | 6 => ranking(random),
        _ => aggregate(random),
    }
}

/// Join with a table: by its key, with several rows, or with none for some.
fn join(random: &mut Random, of: &Relation) -> (String, bool, bool) {
    let (text, keeps_key) = random_of(
        random,
        &[
            (
                "SELECT i.k, p.name AS m, i.n + p.w AS n, i.c FROM FROM i JOIN places p ON p.k = i.k AND p.w < i.n",
                false,
            ),
            ("SELECT i.k, i.m, i.n + p.w AS n, i.c FROM FROM i JOIN names p ON p.k = i.k", true),
            (
                "SELECT i.k, i.m, i.n + coalesce(p.w, 50) AS n, i.c FROM FROM i LEFT JOIN names p ON p.k = i.k",
                true,
            ),
            (
                "SELECT i.k, i.m, i.n, i.c + coalesce(p.w, 3) AS c FROM FROM i LEFT JOIN places p ON p.w = i.n AND p.k = i.k",
                true,
            ),
        ],
    );
    (text.to_owned(), of.changes, of.is_keyed && keeps_key)
}

/// First rows of groups, by an order of all columns.
fn ranking(random: &mut Random) -> (String, bool, bool) {
    let order = random.one(&["i.n DESC, i.c, i.m", "i.c DESC, i.n, i.m", "i.m, i.n, i.c"]);
    let (text, is_keyed) = random_of(
        random,
        &[
            (
                "SELECT k, m, n * 10 + place AS n, c FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY #) AS place FROM FROM i) r WHERE place <= 3",
                false,
            ),
            (
                "SELECT k, 'first' AS m, n, c FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY #) AS place FROM FROM i) r WHERE place = 1",
                true,
            ),
        ],
    );
    (text.replace('#', order), true, is_keyed)
}

fn random_of<'t>(random: &mut Random, of: &[(&'t str, bool)]) -> (&'t str, bool) {
    of[random.below(of.len())]
}

/// Join of two relations, of which one is keyed at least, as a query over each of `A` and `B`, and true if its rows have the
/// key of these.
fn join_of_both(random: &mut Random, both_are_keyed: bool) -> (&'static str, bool) {
    const BY_KEY: [&str; 4] = [
        "SELECT a.k, b.m, a.n + b.n AS n, a.c FROM A a JOIN B b ON b.k = a.k AND b.m = a.m",
        "SELECT a.k, a.m, coalesce(b.n, 5) AS n, a.c FROM A a LEFT JOIN B b ON b.k = a.k AND b.m = a.m",
        "SELECT b.k, b.m, coalesce(a.n, 7) - b.n AS n, b.c FROM A a RIGHT JOIN B b ON b.k = a.k AND b.m = a.m",
        "SELECT a.k, a.m, coalesce(b.n, 3) AS n, a.c FROM A a LEFT JOIN B b ON b.k = a.k AND b.m = a.m AND b.n % 3 <> a.n % 2",
    ];
    // Of rows without a key there would be too many.
    const BY_PART: [&str; 5] = [
        "SELECT a.k, b.m, a.n, b.c FROM A a JOIN B b ON b.k = a.k AND a.n % 3 <> b.n % 3",
        "SELECT a.k, coalesce(b.m, 'none') AS m, a.n, a.c FROM A a LEFT JOIN B b ON b.k = upper(a.k)",
        "SELECT b.k, a.m, a.n, b.c FROM A a, B b WHERE b.m = a.m AND a.n < b.n",
        "SELECT a.k, coalesce(b.m, 'none') AS m, a.n, a.c FROM A a LEFT JOIN B b ON b.k = a.k AND a.n % 3 < b.n % 3",
        "SELECT coalesce(a.k, upper(b.k)) AS k, coalesce(b.m, 'none') AS m, a.n, b.c FROM A a FULL JOIN B b ON b.m = a.m AND a.n % 2 < b.n % 3",
    ];
    if both_are_keyed && random.below(2) == 0 {
        return (BY_PART[random.below(BY_PART.len())], false);
    }
    (BY_KEY[random.below(BY_KEY.len())], both_are_keyed)
}

/// Windows over column `at` of stream `S`, the same over the relation `Q`, and true if their rows have the key of these.
fn windows(random: &mut Random) -> (String, String, bool) {
    let group = |edge: &str| {
        format!(
            "SELECT k, coalesce('w' || extract(minute FROM {})::bigint, 'none') AS m,
                count(*) * 10 + coalesce(sum(n), 0)::bigint AS n, coalesce(sum(c), 0)::numeric(20,2) AS c
                FROM FROM w GROUP BY k, {edge}",
            edge.split(',').next().unwrap_or(edge)
        )
    };
    let bin = |minutes: usize| format!("date_bin(INTERVAL '{minutes} minutes', at, TIMESTAMP '1970-01-01')");
    let tumbling = format!("(SELECT *, {} AS window_start FROM Q t)", bin(10));
    let sessions = "(SELECT v.*, min(at) OVER (PARTITION BY k, s) AS window_start,
            max(at) OVER (PARTITION BY k, s) + INTERVAL '4 minutes' AS window_end
        FROM (SELECT u.*, sum(CASE WHEN at < before + INTERVAL '4 minutes' THEN 0 ELSE 1 END) OVER (PARTITION BY k ORDER BY at) AS s
            FROM (SELECT t.*, lag(at) OVER (PARTITION BY k ORDER BY at) AS before FROM Q t) u) v)";
    let (text, stream, relation, is_keyed) = match random.below(6) {
        0 => (group("window_start"), "TUMBLE(S, at, INTERVAL '10 minutes')", tumbling, false),
        1 => (
            "SELECT k, m, n + extract(minute FROM window_start)::bigint AS n, c FROM FROM w".to_owned(),
            "TUMBLE(S, at, INTERVAL '10 minutes')",
            tumbling,
            true,
        ),
        2 => (
            group("window_start"),
            "HOP(S, at, INTERVAL '5 minutes', INTERVAL '15 minutes')",
            format!(
                "(SELECT t.*, {} - i * INTERVAL '5 minutes' AS window_start FROM Q t, generate_series(0, 2) g(i))",
                bin(5)
            ),
            false,
        ),
        3 | 4 => (
            group(random.one(&["window_start", "window_end", "window_start, window_end"])),
            "SESSION(S, at, INTERVAL '4 minutes')",
            sessions.to_owned(),
            false,
        ),
        _ => (
            group("window_end"),
            "CUMULATE(S, at, INTERVAL '5 minutes', INTERVAL '15 minutes')",
            format!(
                "(SELECT * FROM (SELECT t.*, {} + i * INTERVAL '5 minutes' AS window_end FROM Q t, generate_series(1, 3) g(i)) u
                    WHERE at < window_end)",
                bin(15)
            ),
            false,
        ),
    };
    (
        text.replace("FROM FROM", &format!("FROM {stream}")),
        text.replace("FROM FROM", &format!("FROM {relation}")),
        is_keyed,
    )
}

fn aggregate(random: &mut Random) -> (String, bool, bool) {
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
    let text =
        format!("SELECT {k} AS k, {m} AS m, {n} AS n, ({c})::numeric(20,2) AS c FROM FROM i{by}{having}");
    (text, true, true)
}

fn random_group(random: &mut Random) -> (&'static str, &'static str, &'static str) {
    [
        ("k", "m", " GROUP BY k, m"),
        ("k", "'all'", " GROUP BY k"),
        ("'all'", "m", " GROUP BY m"),
        ("'all'", "'all'", ""),
    ][random.below(4)]
}

/// Statement that changes table `#T`, which has the rows of `before`, by the rows of `#S`, and the query of what it makes of
/// them with the rows of `Q`.
const MERGES: [(&str, &str); 4] = [
    (
        "MERGE INTO #T t USING #S s ON t.k = s.k AND t.m = s.m
            WHEN MATCHED AND s.n % 5 = 0 THEN DELETE
            WHEN MATCHED AND s.n % 5 = 1 THEN DO NOTHING
            WHEN MATCHED THEN UPDATE SET n = t.n + s.n
            WHEN NOT MATCHED AND s.n % 2 = 0 THEN INSERT VALUES (s.k, s.m, s.n, s.c)",
        "SELECT b.k, b.m, CASE WHEN s.k IS NULL OR s.n % 5 = 1 THEN b.n ELSE b.n + s.n END AS n, b.c
            FROM before b LEFT JOIN (Q) s ON s.k = b.k AND s.m = b.m WHERE s.k IS NULL OR s.n % 5 IS DISTINCT FROM 0
            UNION ALL SELECT s.k, s.m, s.n, s.c FROM (Q) s LEFT JOIN before b ON s.k = b.k AND s.m = b.m
            WHERE b.k IS NULL AND s.n % 2 = 0",
    ),
    (
        "INSERT INTO #T AS t SELECT k, m, n, c FROM #S
            ON CONFLICT (k, m) DO UPDATE SET n = t.n - EXCLUDED.n WHERE EXCLUDED.n % 3 <> 0",
        "SELECT b.k, b.m, CASE WHEN s.n IS NULL OR s.n % 3 = 0 THEN b.n ELSE b.n - s.n END AS n, b.c
            FROM before b LEFT JOIN (Q) s ON s.k = b.k AND s.m = b.m
            UNION ALL SELECT s.k, s.m, s.n, s.c FROM (Q) s LEFT JOIN before b ON s.k = b.k AND s.m = b.m WHERE b.k IS NULL",
    ),
    (
        "INSERT INTO #T SELECT k, m, n, c FROM #S ON CONFLICT (k, m) DO NOTHING",
        "SELECT k, m, n, c FROM before
            UNION ALL SELECT s.k, s.m, s.n, s.c FROM (Q) s LEFT JOIN before b ON s.k = b.k AND s.m = b.m WHERE b.k IS NULL",
    ),
    (
        "DELETE FROM #T t USING #S s WHERE t.k = s.k AND t.m = s.m AND s.n % 2 = 0",
        "SELECT b.k, b.m, b.n, b.c FROM before b LEFT JOIN (Q) s ON s.k = b.k AND s.m = b.m AND s.n % 2 = 0 WHERE s.k IS NULL",
    ),
];

/// Rows of both relations.
fn union_of(name: String, of: &Relation, other: &Relation) -> (String, Relation) {
    let both = |one: &str, other: &str| {
        format!("SELECT {COLUMNS} FROM {one} a UNION ALL SELECT {COLUMNS} FROM {other} b")
    };
    let batch = both(&format!("({})", of.batch), &format!("({})", other.batch));
    let changes = of.changes || other.changes;
    (both(&of.name, &other.name), Relation { name, batch, changes, is_keyed: false })
}

/// Join of both relations, which may be one.
fn joined_of(random: &mut Random, name: String, of: &Relation, other: &Relation) -> (String, Relation) {
    let (text, is_keyed) = join_of_both(random, of.is_keyed && other.is_keyed);
    let over = |one: &str, other: &str| {
        text.replace(" A a", &format!(" {one} a")).replace(" B b", &format!(" {other} b"))
    };
    let batch = over(&format!("({})", of.batch), &format!("({})", other.batch));
    (over(&of.name, &other.name), Relation { name, batch, changes: true, is_keyed })
}

impl Chain {
    fn random(random: &mut Random, name: &str) -> Chain {
        let rows = SOURCES[random.below(SOURCES.len())];
        let name = name.to_owned();
        let mut chain = Chain { name, rows, steps: Vec::new(), tables: Vec::new(), targets: Vec::new() };
        chain.steps.push(format!("INSERT INTO {}_readings SELECT * FROM reading_{rows}", chain.name));
        chain.tables.push(format!(
            "CREATE TABLE {}_readings (at TIMESTAMP PRIMARY KEY, meter INT, feeder VARCHAR, kw DOUBLE, cost DECIMAL(8,2))",
            chain.name
        ));
        let mut relations = vec![base(&chain)];
        let wanted = 2 + random.below(3);
        while relations.len() <= wanted {
            // Long chains more often than broad ones.
            let last = relations.len() - 1;
            let of = relations[last.min(random.below(2 * relations.len()))].clone();
            let name = format!("{}_{}", chain.name, relations.len());
            let other = relations[random.below(relations.len())].clone();
            let relation = match random.below(10) {
                0 => union_of(name, &of, &other),
                1 | 2 if of.is_keyed || other.is_keyed => joined_of(random, name, &of, &other),
                3 if of.changes => chain.windows_of(random, name, &of),
                _ => {
                    let (text, changes, is_keyed) = query(random, &of);
                    let batch = text.replace("FROM FROM", &format!("FROM ({})", of.batch));
                    let stream = text.replace("FROM FROM", &format!("FROM {}", of.name));
                    (stream, Relation { name, batch, changes, is_keyed })
                }
            };
            let (stream, relation) = relation;
            chain.steps.push(format!("CREATE STREAM {} AS {stream}", relation.name));
            relations.push(relation);
        }
        for relation in &relations[1..] {
            chain.target(random, relation);
        }
        chain
    }

    /// Adds a step with times that follow from the rows of a relation; returns a query of windows over them.
    fn windows_of(&mut self, random: &mut Random, name: String, of: &Relation) -> (String, Relation) {
        let (stream, batch, keeps_key) = windows(random);
        // Without a time a row is of no window, which only tumbling ones have in common with the query.
        let n = if stream.contains("TUMBLE") { "n" } else { "coalesce(n, 0)" };
        let timed = |from: &str| {
            format!(
                "SELECT {COLUMNS}, TIMESTAMP '2020-01-01 00:00:00' + ({n} % 60) * INTERVAL '1 minute' AS at FROM {from} i"
            )
        };
        self.steps.push(format!("CREATE STREAM {name}_at AS {}", timed(&of.name)));
        let batch = batch.replace("FROM Q t", &format!("FROM ({}) t", timed(&format!("({})", of.batch))));
        let stream = stream.replace("(S, at", &format!("({name}_at, at"));
        (stream, Relation { name, batch, changes: true, is_keyed: of.is_keyed && keeps_key })
    }

    /// Adds a target of a relation: changes without a key are counted.
    fn target(&mut self, random: &mut Random, of: &Relation) {
        let table = format!("target_{}", of.name);
        let key = if of.changes { ", PRIMARY KEY (k, m)" } else { "" };
        self.tables.push(format!("CREATE TABLE {table} (k TEXT, m TEXT, n BIGINT, c NUMERIC(20,2){key})"));
        if of.is_keyed && random.below(2) == 0 {
            let (step, query) = MERGES[random.below(MERGES.len())];
            let step = step.replace("#T", &table).replace("#S", &of.name);
            self.tables.push(format!("INSERT INTO {table} SELECT {COLUMNS} FROM before"));
            self.steps.push(step);
            self.targets.push((table, query.replace("(Q)", &format!("({})", of.batch))));
            return;
        }
        let set = " ON CONFLICT (k, m) DO UPDATE SET n = EXCLUDED.n, c = EXCLUDED.c";
        let counted = |from: &str| {
            format!(
                "SELECT k, 'all' AS m, count(*) * 1000 + sum(n) AS n, sum(c) AS c FROM {from} f GROUP BY k"
            )
        };
        let (step, query) = match (of.changes, of.is_keyed) {
            (false, _) => (format!("SELECT {COLUMNS} FROM {}", of.name), of.batch.clone()),
            (true, true) => (format!("SELECT {COLUMNS} FROM {}{set}", of.name), of.batch.clone()),
            (true, false) => (counted(&of.name) + set, counted(&format!("({})", of.batch))),
        };
        self.steps.push(format!("INSERT INTO {table} {step}"));
        self.targets.push((table, query));
    }

    /// Compares all targets with their queries, as of one commit.
    fn compare(&self, session: &mut Session, what: &str) {
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap();
        // An aggregate of one group has no row before the first commit.
        let count = format!("SELECT count(*) FROM {}_readings", self.name);
        let is_begun = rows(session, &count)[0] != ["0"];
        for (table, batch) in self.targets.iter().filter(|_| is_begun) {
            let shown = "SELECT k, m, n::bigint, round(c, 2)::numeric(20,2) FROM";
            let mut found = rows(session, &format!("{shown} {table}"));
            let mut wanted = rows(session, &format!("{shown} ({batch}) b"));
            found.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(found, wanted, "{what}: {table} is other than {batch}");
        }
        session.execute("COMMIT").unwrap();
    }

    fn remove(&self, session: &mut Session) {
        session.execute(&format!("DROP TOPOLOGY {}; DROP TABLE {}_readings", self.name, self.name)).unwrap();
        for (table, _) in &self.targets {
            session.execute(&format!("DROP TABLE {table}")).unwrap();
        }
    }
}

/// Tables that all chains read.
const TABLES: &str = "
    CREATE TABLE places (k TEXT, w BIGINT, name TEXT, PRIMARY KEY (k, w));
    CREATE TABLE names (k TEXT PRIMARY KEY, w BIGINT);
    CREATE TABLE before (k TEXT, m TEXT, n BIGINT, c NUMERIC(20,2), PRIMARY KEY (k, m));
    INSERT INTO places SELECT 'feeder ' || i % 4, i % 9, 'place ' || i FROM generate_series(0, 35) g(i);
    INSERT INTO names SELECT 'feeder ' || i, i FROM generate_series(0, 2) g(i);
    INSERT INTO before SELECT 'feeder ' || i % 5, 'm' || i / 5, i * 100, i FROM generate_series(0, 29) g(i);
    INSERT INTO before SELECT 'feeder ' || i, 'all', i * 1000, NULL FROM generate_series(1, 4) g(i);
    INSERT INTO before VALUES ('all', 'all', 7, 8), ('all', 'm3', 6, 5), ('feeder 1', 'first', 3, 2)";

fn source(rows: usize, rate: &str) -> String {
    format!(
        "CREATE SOURCE reading_{rows} (
             at TIMESTAMP NOT NULL, meter INT NOT NULL, feeder VARCHAR NOT NULL, kw DOUBLE, cost DECIMAL(8,2),
             WATERMARK FOR at AS at - INTERVAL '2 minutes'
         ) WITH (connector = 'generator', rows = {rows}, step = '67 seconds', meter.cardinality = 23,
             feeder.cardinality = 4, cost.cardinality = 500{rate})"
    )
}

impl Chain {
    /// Lets it read a source with so many rows.
    fn read(&mut self, rows: usize) {
        let (from, to) = (format!("reading_{}", self.rows), format!("reading_{rows}"));
        self.steps.iter_mut().for_each(|step| *step = step.replace(&from, &to));
        self.rows = rows;
    }
}

/// Statement of a topology of a chain.
fn create(chain: &Chain, random: &mut Random) -> String {
    let commit = random.one(&["EVERY 7 ROWS", "EVERY 13 ROWS", "EVERY 37 ROWS", "EVERY 5000 ROWS"]);
    let commit = if random.below(20) == 0 { "EACH ROW" } else { commit };
    let name = &chain.name;
    let aborts = if random.below(3) == 0 {
        format!(
            "; ABORT WHEN (SELECT count(*) FROM CHANGES({name}_readings) WHERE meter = 3 AND cost < 2) > 0"
        )
    } else {
        String::new()
    };
    let mut text =
        format!("CREATE TOPOLOGY {name} COMMIT {commit} ON ERROR ABORT WITH (durability = 'none') AS (");
    write!(text, "{}{aborts})", chain.steps.join("; ")).unwrap();
    text
}

/// Creates the tables of a chain, and returns the statement of its topology.
fn prepare(session: &mut Session, chain: &Chain, random: &mut Random) -> String {
    for table in &chain.tables {
        session.execute(table).unwrap_or_else(|error| panic!("{table}: {error}"));
    }
    create(chain, random)
}

/// Numbers of topologies and the seed: `ENTRESOL_TOPOLOGIES` and `ENTRESOL_SEED`.
fn wanted(topologies: usize, seed: u64) -> (usize, Random) {
    let set = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = set("ENTRESOL_SEED").unwrap_or(seed);
    println!("ENTRESOL_SEED={seed}");
    (set("ENTRESOL_TOPOLOGIES").map_or(topologies, |topologies| topologies as usize), Random(seed))
}

/// Waits until all topologies have ended.
fn wait_for_all(session: &mut Session) {
    let begin = Instant::now();
    loop {
        let running =
            rows(session, "SELECT name, state, error FROM entresol.topologies WHERE state <> 'ended'");
        if running.is_empty() {
            return;
        }
        let are_running = running.iter().all(|topology| topology[1] != "failed");
        assert!(are_running && begin.elapsed() < Duration::from_secs(120), "{running:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs chains in one database, some side by side.
fn run_chains(topologies: usize, mut random: Random) {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    for rows in SOURCES {
        session.execute(&source(rows, "")).unwrap();
    }
    session.execute(TABLES).unwrap();
    let mut running: Vec<(Chain, String)> = Vec::new();
    for number in 0..topologies {
        let chain = Chain::random(&mut random, &format!("x{number}"));
        let create = prepare(&mut session, &chain, &mut random);
        session.execute(&create).unwrap_or_else(|error| panic!("{create}: {error}"));
        if random.below(4) == 0 {
            chain.compare(&mut session, &create);
        }
        running.push((chain, create));
        if running.len() == 8 || number + 1 == topologies {
            wait_for_all(&mut session);
            for (chain, create) in running.drain(..) {
                chain.compare(&mut session, &create);
                chain.remove(&mut session);
            }
        }
    }
}

#[test]
fn chains_of_steps_equal_their_queries() {
    let (topologies, random) = wanted(1000, 5);
    run_chains(topologies, random);
}

/// Other chains, on the other processor.
#[test]
fn more_chains_of_steps_equal_their_queries() {
    let (topologies, mut random) = wanted(1000, 7);
    random.below(2);
    run_chains(topologies, random);
}

/// The same, while the topology is paused, altered, closed with its database and left as by a crash.
#[test]
fn chains_of_steps_live_through_alterations_and_kills() {
    let (topologies, mut random) = wanted(12, 6);
    for _ in 0..topologies.div_ceil(10) {
        let directory = tempfile::tempdir().unwrap();
        let mut chain = Chain::random(&mut random, "x");
        chain.read(2000);
        let mut create = String::new();
        let mut steps = 0;
        for round in 0.. {
            let database = Database::open(directory.path(), Options::default()).unwrap();
            let mut session = database.session().unwrap();
            if round == 0 {
                session.execute(&source(2000, ", rows_per_second = 4000")).unwrap();
                session.execute(TABLES).unwrap();
                create = prepare(&mut session, &chain, &mut random);
                session.execute(&create).unwrap_or_else(|error| panic!("{create}: {error}"));
            }
            if round == 4 {
                wait_for_all(&mut session);
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
            format!("ALTER TABLE x_readings ADD COLUMN more_{columns} INT")
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
            std::thread::sleep(Duration::from_millis(random.below(20) as u64));
            return;
        }
    };
    if let Err(error) = session.execute(&statements) {
        // What was sent for rows that are taken back has all columns of the table.
        let is_refused = error.to_string().contains("the table exists with other columns");
        assert!(is_refused && statements.contains("places ADD COLUMN"), "{statements}: {error}");
    }
}
