//! Owners of sources, streams, topologies and materialized views: roles that are no superusers.

use crate::support::{PATIENCE, Served, code, one, options};
use entresol::{Database, Options};
use entresol_server::roles::{self, Privileges, Role};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

const SOURCE: &str = "CREATE SOURCE s (at TIMESTAMP NOT NULL, id INT NOT NULL) \
                      WITH (connector = 'generator', rows_per_second = 100, step = '1 second', id.cardinality = 5)";
const TOPOLOGY: &str = "CREATE TOPOLOGY counting AS (INSERT INTO t SELECT id, count(*) FROM s GROUP BY id \
                        ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n)";

fn with_roles(db: &Database) {
    let mut session = db.session().unwrap();
    session
        .execute(
            "CREATE TABLE a (id INT PRIMARY KEY, n INT) WITH (changes = '1 hour'); INSERT INTO a VALUES (1, 7), (2, 7);
             CREATE TABLE t (id INT PRIMARY KEY, n BIGINT); CREATE TABLE c (id INT PRIMARY KEY, n BIGINT) WITH (changes = '1 hour');
             CREATE VIEW w AS SELECT id FROM c",
        )
        .unwrap();
    let role = |name: &str, administrator, grants: &[(&str, Privileges)]| Role {
        name: name.to_owned(),
        administrator,
        grants: grants.iter().map(|(table, granted)| ((*table).to_owned(), *granted)).collect(),
    };
    roles::create(db, &role("boss", true, &[]), "x").unwrap();
    roles::create(db, &role("app", false, &[("a", Privileges::SELECT), ("t", Privileges::ALL)]), "x")
        .unwrap();
    roles::create(db, &role("anna", false, &[]), "x").unwrap();
}

async fn client(served: &Served, user: &str) -> Client {
    let mut config = served.config();
    config.user(user).password("x");
    served.connect(&config).await.unwrap()
}

async fn served() -> (Served, Client, Client, Client) {
    let db = Database::volatile(Options::default().worker_threads(2)).unwrap();
    with_roles(&db);
    let served = Served::on(db, options()).await;
    let (boss, app) = (client(&served, "boss").await, client(&served, "app").await);
    let anna = client(&served, "anna").await;
    (served, boss, app, anna)
}

/// SQLSTATE and message of a statement that fails.
async fn failure(client: &Client, sql: &str) -> (String, String) {
    let error = client.batch_execute(sql).await.expect_err(sql);
    let error = error.as_db_error().unwrap_or_else(|| panic!("{sql}: {error:?}"));
    (error.code().code().to_owned(), error.message().to_owned())
}

/// Asserts that a statement lacks a privilege, which the message says.
async fn denied(client: &Client, sql: &str, message: &str) {
    let (code, found) = failure(client, sql).await;
    assert!(code == "42501" && found.contains(message), "{sql}: {code} {found}");
}

/// State and error of a topology.
async fn state(client: &Client, topology: &str) -> String {
    one(
        client,
        &format!(
            "SELECT state || ' ' || coalesce(error, '') FROM entresol.topologies WHERE name = '{topology}'"
        ),
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_makes_and_changes_what_it_owns_and_others_do_not() {
    let (served, boss, app, anna) = served().await;
    denied(&app, SOURCE, "permission denied for schema public").await;
    denied(&app, TOPOLOGY, "permission denied for schema public").await;
    boss.batch_execute("GRANT CREATE ON SCHEMA public TO app").await.unwrap();
    app.batch_execute(SOURCE).await.unwrap();
    app.batch_execute(TOPOLOGY).await.unwrap();
    app.batch_execute("CREATE STREAM few AS SELECT at, id FROM s WHERE id < 2").await.unwrap();
    for (sql, noun) in [
        ("ALTER TOPOLOGY counting PAUSE", "topology counting"),
        ("DROP TOPOLOGY counting", "topology counting"),
        ("EXPLAIN TOPOLOGY counting", "topology counting"),
        ("ALTER SOURCE s SET (rows_per_second = 1)", "source s"),
        ("DROP SOURCE s CASCADE", "source s"),
        ("DROP STREAM few", "stream few"),
    ] {
        denied(&anna, sql, &format!("must be owner of {noun}")).await;
    }
    assert_eq!(failure(&anna, "DROP TOPOLOGY nothing").await.0, "42704");
    assert_eq!(one(&boss, "SELECT owner FROM entresol.topologies").await, "app");
    assert_eq!(one(&boss, "SELECT owner FROM entresol.sources").await, "app");
    assert_eq!(one(&boss, "SELECT owner FROM entresol.streams").await, "app");
    assert!(one(&app, "EXPLAIN TOPOLOGY counting").await.ends_with(", of role app"));
    app.batch_execute("ALTER TOPOLOGY counting PAUSE").await.unwrap();
    assert_eq!(state(&app, "counting").await, "paused ");
    boss.batch_execute("ALTER TOPOLOGY counting RESUME").await.unwrap();
    app.batch_execute("CREATE OR REPLACE STREAM few AS SELECT at, id FROM s WHERE id < 3").await.unwrap();
    app.batch_execute("ALTER SOURCE s SET (rows_per_second = 200)").await.unwrap();
    assert_eq!(one(&boss, "SELECT owner FROM entresol.sources").await, "app", "a change keeps the owner");
    assert_eq!(state(&app, "counting").await, "running ");
    app.batch_execute("DROP STREAM few; DROP TOPOLOGY counting; DROP SOURCE s").await.unwrap();
    boss.batch_execute("DROP ROLE app").await.unwrap();
    drop((boss, app, anna));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topology_does_what_its_owner_may_do() {
    let (served, boss, app, anna) = served().await;
    boss.batch_execute("GRANT CREATE ON SCHEMA public TO app; GRANT CREATE ON SCHEMA public TO anna")
        .await
        .unwrap();
    app.batch_execute(SOURCE).await.unwrap();
    boss.batch_execute("CREATE SOURCE other (id INT NOT NULL) WITH (connector = 'generator', rows = 10)")
        .await
        .unwrap();
    boss.batch_execute("CREATE STREAM of_others AS SELECT s.id FROM s JOIN c ON c.id = s.id").await.unwrap();
    for (step, message) in [
        ("INSERT INTO c SELECT id, 1 FROM s", "table c"),
        ("INSERT INTO a SELECT id, 1 FROM s", "table a"),
        ("INSERT INTO t SELECT s.id, c.n FROM s JOIN c ON c.id = s.id", "table c"),
        ("INSERT INTO t SELECT s.id, 1 FROM s JOIN w ON w.id = s.id", "view w"),
        ("INSERT INTO t SELECT s.id, 1 FROM s WHERE s.id IN (SELECT id FROM c)", "table c"),
        ("INSERT INTO t SELECT id, n FROM CHANGES(c)", "table c"),
        ("INSERT INTO t SELECT id, 1 FROM other", "source other"),
        ("INSERT INTO t SELECT id, 1 FROM of_others", "stream of_others"),
        ("DELETE FROM a USING s WHERE a.id = s.id", "table a"),
        ("MERGE INTO a USING s ON a.id = s.id WHEN MATCHED THEN DELETE", "table a"),
        (
            "INSERT INTO t SELECT id, 1 FROM s; ABORT WHEN (SELECT count(*) FROM CHANGES(t)) > 1 INTO c",
            "table c",
        ),
    ] {
        denied(&app, &format!("CREATE TOPOLOGY x AS ({step})"), message).await;
    }
    denied(
        &app,
        "CREATE TOPOLOGY x ON ERROR SKIP ROW INTO c AS (INSERT INTO t SELECT id, 1 FROM s)",
        "table c",
    )
    .await;
    denied(&app, "CREATE TOPOLOGY x WITH (owned) AS (INSERT INTO t SELECT id, 1 FROM s)", "other writers")
        .await;
    for sql in [
        "CREATE SOURCE f (x INT) WITH (connector = 'file', path = '/etc/passwd')",
        "CREATE SOURCE f (x INT) WITH (connector = 'tcp', listen = '127.0.0.1:0')",
        "CREATE SINK f FROM s WITH (connector = 'file', path = '/tmp/never')",
    ] {
        denied(&app, sql, "only superusers may leave the database").await;
    }
    // A stream is read with the rights of its owner, as a view is.
    boss.batch_execute("GRANT SELECT ON of_others TO app; GRANT SELECT ON other TO app").await.unwrap();
    app.batch_execute("CREATE TOPOLOGY x AS (INSERT INTO t SELECT id, 1 FROM of_others)").await.unwrap();
    app.batch_execute("CREATE TOPOLOGY y AS (INSERT INTO t SELECT id, 1 FROM other)").await.unwrap();
    // And what it read is not read by its readers.
    denied(
        &app,
        "CREATE TOPOLOGY z AS (INSERT INTO t SELECT id, 1 FROM of_others; INSERT INTO t SELECT id, n FROM CHANGES(c))",
        "table c",
    )
    .await;
    denied(&anna, "CREATE STREAM stolen AS SELECT id FROM s", "permission denied for source s").await;
    drop((boss, app, anna));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_materialized_view_is_read_by_its_owner_and_those_it_is_granted_to() {
    let (served, boss, app, anna) = served().await;
    let query = "SELECT n, count(*) AS m FROM a GROUP BY n";
    denied(&app, &format!("CREATE MATERIALIZED VIEW v AS {query}"), "permission denied for schema public")
        .await;
    boss.batch_execute("GRANT CREATE ON SCHEMA public TO app").await.unwrap();
    app.batch_execute(&format!("CREATE MATERIALIZED VIEW v AS {query}")).await.unwrap();
    for of in ["c", "w", "a JOIN c USING (id)"] {
        let sql = format!("CREATE MATERIALIZED VIEW x AS SELECT id FROM {of}");
        denied(&app, &sql, "permission denied for").await;
    }
    // The name of another's view is no way to read it.
    boss.batch_execute("CREATE VIEW secret_query AS SELECT id FROM c").await.unwrap();
    assert_eq!(failure(&app, &format!("CREATE MATERIALIZED VIEW secret AS {query}")).await.0, "42P07");
    denied(&app, "SELECT * FROM secret_query", "permission denied for view secret_query").await;
    boss.batch_execute("INSERT INTO a VALUES (3, 7)").await.unwrap();
    assert_eq!(one(&app, "SELECT m FROM v").await, "3");
    assert_eq!(one(&boss, "SELECT matviewowner FROM pg_matviews").await, "app");
    denied(&anna, "SELECT m FROM v", "permission denied for table v").await;
    for sql in ["DROP MATERIALIZED VIEW v", "REFRESH MATERIALIZED VIEW v", "EXPLAIN MATERIALIZED VIEW v"] {
        denied(&anna, sql, "must be owner of materialized view v").await;
    }
    denied(&anna, "GRANT SELECT ON v TO anna", "permission denied to grant").await;
    app.batch_execute("GRANT SELECT ON v TO anna").await.unwrap();
    assert_eq!(one(&anna, "SELECT m FROM v").await, "3");
    app.batch_execute("REVOKE SELECT ON v FROM anna").await.unwrap();
    assert_eq!(code(anna.batch_execute("SELECT m FROM v").await), "42501");
    let owned = failure(&boss, "DROP ROLE app").await;
    assert!(owned.0 == "2BP01" && owned.1.contains("owner of materialized view v"), "{owned:?}");
    app.batch_execute("REFRESH MATERIALIZED VIEW v; DROP MATERIALIZED VIEW v").await.unwrap();
    // One over streams is a topology.
    app.batch_execute(SOURCE).await.unwrap();
    app.batch_execute(
        "CREATE MATERIALIZED VIEW v AS SELECT id, count(*) AS n FROM s GROUP BY id EMIT CHANGES",
    )
    .await
    .unwrap();
    app.batch_execute("SELECT * FROM v").await.unwrap();
    denied(&anna, "SELECT * FROM v", "permission denied for table v").await;
    denied(&anna, "DROP MATERIALIZED VIEW v", "must be owner of materialized view v").await;
    app.batch_execute("DROP MATERIALIZED VIEW v; DROP SOURCE s").await.unwrap();
    boss.batch_execute("DROP ROLE app").await.unwrap();
    drop((boss, app, anna));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topology_ends_when_its_owner_loses_a_privilege() {
    let (served, boss, app, anna) = served().await;
    boss.batch_execute("GRANT CREATE ON SCHEMA public TO app").await.unwrap();
    app.batch_execute(SOURCE).await.unwrap();
    app.batch_execute(TOPOLOGY).await.unwrap();
    boss.batch_execute("REVOKE DELETE ON t FROM app").await.unwrap();
    assert_eq!(state(&boss, "counting").await, "running ", "it deletes nothing");
    boss.batch_execute("REVOKE UPDATE ON t FROM app").await.unwrap();
    let ended = state(&boss, "counting").await;
    assert!(ended.starts_with("failed ") && ended.contains("permission denied for table t"), "{ended}");
    denied(&app, "ALTER TOPOLOGY counting RESUME", "permission denied for table t").await;
    denied(&boss, "ALTER TOPOLOGY counting RESUME", "permission denied for table t").await;
    boss.batch_execute("GRANT UPDATE ON t TO app").await.unwrap();
    app.batch_execute("ALTER TOPOLOGY counting RESUME").await.unwrap();
    let (code, message) = failure(&boss, "DROP ROLE app").await;
    assert!(
        code == "2BP01" && message.contains("owner of source s, owner of topology counting"),
        "{code} {message}"
    );
    denied(&app, "REASSIGN OWNED BY app TO anna", "permission denied to reassign owned").await;
    assert_eq!(failure(&boss, "REASSIGN OWNED BY app TO nobody").await.0, "42704");
    boss.batch_execute("REASSIGN OWNED BY app TO anna").await.unwrap();
    assert_eq!(one(&boss, "SELECT owner FROM entresol.topologies").await, "anna");
    assert!(state(&boss, "counting").await.starts_with("failed "), "anna may not write t");
    denied(&app, "DROP TOPOLOGY counting", "must be owner of topology counting").await;
    boss.batch_execute("REASSIGN OWNED BY anna TO boss; DROP ROLE app; DROP ROLE anna").await.unwrap();
    assert_eq!(one(&boss, "SELECT owner FROM entresol.topologies").await, "entresol");
    boss.batch_execute("ALTER TOPOLOGY counting RESUME").await.unwrap();
    drop((boss, app, anna));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_are_there_when_the_database_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let open = |starts| {
        let options = Options::default().worker_threads(2).start_topologies(starts);
        // The last handle of the one before may take a moment.
        let began = Instant::now();
        loop {
            match Database::open(dir.path(), options.clone()) {
                Ok(db) => return db,
                Err(error) if began.elapsed() > PATIENCE => panic!("{error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    };
    let db = open(true);
    with_roles(&db);
    roles::grant(&db, "app", Privileges::CREATE, &[roles::SCHEMA_GRANT.to_owned()]).unwrap();
    let served = Served::on(db, options()).await;
    let app = client(&served, "app").await;
    app.batch_execute(SOURCE).await.unwrap();
    app.batch_execute(TOPOLOGY).await.unwrap();
    drop(app);
    served.stop().await;
    let served = Served::on(open(true), options()).await;
    let boss = client(&served, "boss").await;
    assert_eq!(state(&boss, "counting").await, "running ");
    denied(&client(&served, "anna").await, "DROP TOPOLOGY counting", "must be owner of topology counting")
        .await;
    drop(boss);
    served.stop().await;
    let db = open(false);
    roles::revoke_some(&db, "app", Privileges::INSERT, &["t".to_owned()]).unwrap();
    drop(db);
    let served = Served::on(open(true), options()).await;
    let boss = client(&served, "boss").await;
    let ended = state(&boss, "counting").await;
    assert!(ended.starts_with("failed ") && ended.contains("permission denied for table t"), "{ended}");
    drop(boss);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_superuser_gives_objects_to_another_role() {
    let (served, boss, app, anna) = served().await;
    boss.batch_execute(
        "GRANT CREATE ON SCHEMA public TO app; CREATE SEQUENCE ids; CREATE MATERIALIZED VIEW m AS SELECT n, count(*) AS c FROM a GROUP BY n",
    )
    .await
    .unwrap();
    boss.batch_execute(SOURCE).await.unwrap();
    boss.batch_execute(TOPOLOGY).await.unwrap();
    boss.batch_execute("CREATE STREAM few AS SELECT at, id FROM s WHERE id < 2").await.unwrap();
    boss.batch_execute("CREATE VIEW v AS SELECT id FROM s WHERE id < 2").await.unwrap();
    denied(&app, "ALTER TOPOLOGY counting OWNER TO app", "permission denied to alter topology").await;
    for sql in [
        "ALTER SOURCE s OWNER TO app",
        "ALTER STREAM few OWNER TO app",
        "ALTER VIEW v OWNER TO app",
        "ALTER TOPOLOGY counting OWNER TO app",
        "ALTER MATERIALIZED VIEW public.m OWNER TO app",
    ] {
        boss.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }
    assert_eq!(one(&boss, "SELECT owner FROM entresol.topologies").await, "app");
    assert_eq!(one(&boss, "SELECT owner FROM entresol.sources").await, "app");
    assert_eq!(one(&boss, "SELECT string_agg(DISTINCT owner, ',') FROM entresol.streams").await, "app");
    assert_eq!(one(&boss, "SELECT matviewowner FROM pg_matviews").await, "app");
    assert_eq!(state(&app, "counting").await, "running ");
    app.batch_execute("ALTER TOPOLOGY counting PAUSE; ALTER TOPOLOGY counting RESUME").await.unwrap();
    app.batch_execute("REFRESH MATERIALIZED VIEW m").await.unwrap();
    // A role that may not do what the topology does: it ends.
    boss.batch_execute("ALTER TOPOLOGY counting OWNER TO anna").await.unwrap();
    let stopped = state(&anna, "counting").await;
    assert!(stopped.starts_with("failed ") && stopped.contains("permission denied for"), "{stopped}");
    boss.batch_execute("ALTER TOPOLOGY counting OWNER TO CURRENT_USER; ALTER TOPOLOGY counting RESUME")
        .await
        .unwrap();
    assert_eq!(state(&boss, "counting").await, "running ");
    denied(&anna, "DROP TOPOLOGY counting", "must be owner of topology counting").await;
    // Tables, views and sequences are the superusers'.
    boss.batch_execute(
        "ALTER TABLE public.t OWNER TO boss; ALTER SEQUENCE ids OWNER TO boss; ALTER VIEW w OWNER TO boss",
    )
    .await
    .unwrap();
    for (sql, expected, message) in [
        ("ALTER TABLE t OWNER TO app", "0A000", "t of role app, who lacks SUPERUSER"),
        ("ALTER TABLE t OWNER TO nobody", "42704", "role \"nobody\" does not exist"),
        ("ALTER TABLE nothing OWNER TO boss", "42P01", "relation \"nothing\" does not exist"),
        ("ALTER TOPOLOGY nothing OWNER TO app", "42704", "topology \"nothing\" does not exist"),
        ("ALTER SINK counting OWNER TO app", "42809", "\"counting\" is not a sink"),
        ("ALTER SEQUENCE t OWNER TO boss", "42809", "\"t\" is not a sequence"),
        ("ALTER MATERIALIZED VIEW t OWNER TO boss", "42809", "\"t\" is not a materialized view"),
        ("BEGIN; ALTER SOURCE s OWNER TO boss", "25001", "cannot run inside a transaction block"),
    ] {
        let (code, found) = failure(&boss, sql).await;
        assert!(code == expected && found.contains(message), "{sql}: {code} {found}");
        boss.batch_execute("ROLLBACK").await.unwrap();
    }
    boss.batch_execute("ALTER TABLE IF EXISTS nothing OWNER TO boss").await.unwrap();
    drop((boss, app, anna));
    served.stop().await;
}
