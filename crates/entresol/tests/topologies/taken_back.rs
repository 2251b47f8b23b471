//! Rows that are taken back behind joins with tables, rankings and MERGE: also where others have changed the tables since,
//! over restarts and kills.

use super::{Random, rows, wait_for, wait_for_end};
use entresol::{Database, Options, Session};
use std::path::Path;

const ACCOUNTS: &str = "
    CREATE TABLE account (id INT PRIMARY KEY, owner TEXT, amount BIGINT) WITH (changes = '1 day');
    CREATE TABLE rate (owner TEXT PRIMARY KEY, factor BIGINT);
    CREATE TABLE label (owner TEXT, label TEXT, PRIMARY KEY (owner, label));
    CREATE TABLE weighted (factor BIGINT PRIMARY KEY, owners BIGINT, amount BIGINT);
    CREATE TABLE labelled (label TEXT PRIMARY KEY, amount BIGINT);
    CREATE TABLE balance (owner TEXT PRIMARY KEY, amount BIGINT, remark TEXT);
    INSERT INTO rate VALUES ('Ada', 2), ('Alan', 3);
    INSERT INTO label VALUES ('Ada', 'a'), ('Ada', 'b'), ('Alan', 'b');
    INSERT INTO balance VALUES ('Ada', 1000, 'old'), ('Grace', 9, 'untouched');
    CREATE TOPOLOGY x COMMIT EVERY INTERVAL '5 milliseconds' AS (
        CREATE STREAM total AS
            SELECT coalesce(owner, old_owner) AS owner,
                sum(CASE change_type WHEN 'delete' THEN -old_amount ELSE amount - coalesce(old_amount, 0) END)::bigint AS amount
            FROM CHANGES(account) GROUP BY coalesce(owner, old_owner);
        CREATE STREAM w AS SELECT r.factor, t.amount FROM total t JOIN rate r ON r.owner = t.owner;
        INSERT INTO weighted SELECT factor, count(*), sum(amount)::bigint FROM w GROUP BY factor
            ON CONFLICT (factor) DO UPDATE SET owners = EXCLUDED.owners, amount = EXCLUDED.amount;
        CREATE STREAM l AS SELECT l.label, t.amount FROM total t JOIN label l ON l.owner = t.owner;
        INSERT INTO labelled SELECT label, sum(amount)::bigint FROM l GROUP BY label
            ON CONFLICT (label) DO UPDATE SET amount = EXCLUDED.amount;
        MERGE INTO balance b USING (SELECT * FROM total WHERE amount < 1000) t ON b.owner = t.owner
            WHEN MATCHED THEN UPDATE SET amount = b.amount + t.amount
            WHEN NOT MATCHED THEN INSERT (owner, amount) VALUES (t.owner, t.amount)
    )";

/// Opens a database, or opens it again.
fn open(directory: &Path) -> (Database, Session) {
    let database = Database::open(directory, Options::default()).unwrap();
    let session = database.session().unwrap();
    (database, session)
}

fn balance(session: &mut Session, owner: &str, wanted: &str) {
    let text = "concat(amount, ' ', coalesce(remark, 'NULL'))";
    wait_for(session, &format!("SELECT {text} FROM balance WHERE owner = '{owner}'"), wanted);
}

#[test]
fn what_was_sent_is_taken_back_whatever_others_have_changed() {
    let directory = tempfile::tempdir().unwrap();
    let (database, mut session) = open(directory.path());
    session.execute(ACCOUNTS).unwrap();
    session.execute("INSERT INTO account VALUES (1, 'Ada', 100), (2, 'Alan', 50)").unwrap();
    balance(&mut session, "Ada", "1100 old");
    balance(&mut session, "Alan", "50 NULL");
    let weighted = "SELECT * FROM weighted ORDER BY factor";
    let labelled = "SELECT * FROM labelled ORDER BY label";
    assert_eq!(rows(&mut session, weighted), [["2", "1", "100"], ["3", "1", "50"]]);
    assert_eq!(rows(&mut session, labelled), [["a", "100"], ["b", "150"]]);

    // What others write stays; what was joined before is taken back.
    session
        .execute(
            "UPDATE rate SET factor = 5 WHERE owner = 'Ada'; DELETE FROM label WHERE label = 'a';
             UPDATE balance SET remark = 'mine' WHERE owner <> 'Grace'",
        )
        .unwrap();
    drop(session);
    database.close().unwrap();
    drop(database);
    let (database, mut session) = open(directory.path());
    session
        .execute("INSERT INTO account VALUES (3, 'Ada', 7); UPDATE account SET amount = 51 WHERE id = 2")
        .unwrap();
    balance(&mut session, "Ada", "1107 mine");
    balance(&mut session, "Alan", "51 mine");
    wait_for(&mut session, "SELECT sum(amount)::bigint FROM weighted", "158");
    assert_eq!(rows(&mut session, weighted), [["3", "1", "51"], ["5", "1", "107"]]);
    assert_eq!(rows(&mut session, labelled), [["b", "158"]]);

    session
        .execute(
            "UPDATE balance SET amount = 2000 WHERE owner = 'Ada'; DELETE FROM balance WHERE owner = 'Alan'",
        )
        .unwrap();
    drop((session, database));
    let (database, mut session) = open(directory.path());
    session.execute("UPDATE account SET amount = amount + 1 WHERE id < 3").unwrap();
    balance(&mut session, "Ada", "2108 mine");
    balance(&mut session, "Alan", "52 NULL");

    // Without a row of the stream there is the row of before.
    session.execute("INSERT INTO account VALUES (4, 'Ada', 5000), (5, 'Alan', 1000)").unwrap();
    balance(&mut session, "Ada", "2000 mine");
    wait_for(&mut session, "SELECT count(*) FROM balance", "2");
    balance(&mut session, "Grace", "9 untouched");
    session.execute("DELETE FROM account WHERE id > 3").unwrap();
    balance(&mut session, "Ada", "2108 mine");
    let plan: Vec<String> = rows(&mut session, "EXPLAIN TOPOLOGY x").into_iter().flatten().collect();
    for text in ["rows that JOIN has sent for those of changes", "rows of balance before changes are merged"]
    {
        assert!(plan.iter().any(|line| line.contains(text)), "{text}: {plan:?}");
    }
    assert!(database.check(|_| {}).unwrap().problems.is_empty());
}

/// A transaction that is aborted leaves neither results nor what is stored of them.
#[test]
fn rankings_of_results_equal_their_queries_over_aborts_and_kills() {
    let mut random = Random(3);
    for boundary in ["EACH ROW", "EVERY 17 ROWS", "EVERY 120 ROWS"] {
        let directory = tempfile::tempdir().unwrap();
        for round in 0..4 {
            let (database, mut session) = open(directory.path());
            if round == 0 {
                session
                    .execute(
                        "CREATE SOURCE reading (at TIMESTAMP NOT NULL, meter INT NOT NULL, feeder VARCHAR NOT NULL, kw DOUBLE,
                            WATERMARK FOR at AS at) WITH (connector = 'generator', rows = 600, step = '30 seconds',
                            meter.cardinality = 40, feeder.cardinality = 5);
                         CREATE TABLE readings (at TIMESTAMP PRIMARY KEY, meter INT, feeder VARCHAR, kw DOUBLE);
                         CREATE TABLE busiest (feeder VARCHAR, place BIGINT, meter INT, readings BIGINT, PRIMARY KEY (feeder, place));
                         CREATE TABLE runners_up (readings BIGINT PRIMARY KEY, feeders BIGINT)",
                    )
                    .unwrap();
                session
                    .execute(&format!(
                        "CREATE TOPOLOGY x COMMIT {boundary} ON ERROR ABORT WITH (durability = 'none') AS (
                            INSERT INTO readings SELECT * FROM reading;
                            CREATE STREAM m AS SELECT feeder, meter, count(*) AS readings FROM reading GROUP BY feeder, meter
                                HAVING count(*) % 5 <> 2;
                            CREATE STREAM r AS SELECT feeder, place, meter, readings
                                FROM (SELECT *, row_number() OVER (PARTITION BY feeder ORDER BY readings DESC, meter) AS place
                                    FROM m) p WHERE place <= 3;
                            INSERT INTO busiest SELECT * FROM r
                                ON CONFLICT (feeder, place) DO UPDATE SET meter = EXCLUDED.meter, readings = EXCLUDED.readings;
                            INSERT INTO runners_up SELECT readings, count(*) FROM r WHERE place = 2 GROUP BY readings
                                ON CONFLICT (readings) DO UPDATE SET feeders = EXCLUDED.feeders;
                            ABORT WHEN (SELECT count(*) FROM CHANGES(readings) WHERE meter = 7 AND kw < 15) > 0)"
                    ))
                    .unwrap();
            }
            if round == 3 {
                wait_for_end(&mut session, "x");
            } else {
                std::thread::sleep(std::time::Duration::from_millis(random.below(60) as u64));
            }
            session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").unwrap();
            let ranked = "(SELECT feeder, place, meter, readings
                FROM (SELECT *, row_number() OVER (PARTITION BY feeder ORDER BY readings DESC, meter) AS place
                    FROM (SELECT feeder, meter, count(*) AS readings FROM readings GROUP BY feeder, meter
                        HAVING count(*) % 5 <> 2) m) p WHERE place <= 3)";
            let pairs = [
                (
                    "SELECT * FROM busiest ORDER BY 1, 2".to_owned(),
                    format!("SELECT * FROM {ranked} r ORDER BY 1, 2"),
                ),
                (
                    "SELECT * FROM runners_up ORDER BY 1".to_owned(),
                    format!(
                        "SELECT readings, count(*) FROM {ranked} r WHERE place = 2 GROUP BY readings ORDER BY 1"
                    ),
                ),
            ];
            for (target, query) in &pairs {
                assert_eq!(rows(&mut session, target), rows(&mut session, query), "{boundary}: {target}");
            }
            session.execute("COMMIT").unwrap();
            if round == 1 {
                drop(session);
                database.close().unwrap();
            } else if round == 3 {
                assert!(database.check(|_| {}).unwrap().problems.is_empty());
            }
        }
    }
}

#[test]
fn what_cannot_be_taken_back_is_refused() {
    let database = Database::volatile(Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(
            "CREATE TABLE account (id INT PRIMARY KEY, owner TEXT, amount BIGINT) WITH (changes = '1 day');
             CREATE TABLE t (id INT PRIMARY KEY, n BIGINT);
             CREATE TABLE padded (id CHAR(5) PRIMARY KEY, n BIGINT)",
        )
        .unwrap();
    let stream =
        "CREATE STREAM s AS SELECT id, owner, count(*) AS n FROM CHANGES(account) GROUP BY id, owner; ";
    for (step, expected) in [
        (
            "INSERT INTO t SELECT id, n FROM s ON CONFLICT (id) DO NOTHING",
            "by a key that is the columns of GROUP BY",
        ),
        (
            "MERGE INTO t USING s ON t.id = s.id + 1 WHEN MATCHED THEN UPDATE SET n = t.n + 1",
            "by a key that is the columns of GROUP BY",
        ),
        ("DELETE FROM t USING s WHERE t.id = s.id", "by a key that is the columns of GROUP BY"),
        (
            "INSERT INTO padded SELECT owner, count(*) FROM CHANGES(account) GROUP BY owner ON CONFLICT (id) DO NOTHING",
            "is CHAR, of which a row that is taken back is not found",
        ),
    ] {
        let refused = session.execute(&format!("CREATE TOPOLOGY x AS ({stream}{step})"));
        let error = refused.err().unwrap_or_else(|| panic!("{step} is accepted")).to_string();
        assert!(error.contains(expected), "{step}: {error}");
    }
}
