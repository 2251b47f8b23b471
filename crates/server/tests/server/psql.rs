//! The real psql, if it is installed.

use crate::support::{Served, one};
use std::net::SocketAddr;
use std::process::{Command, Output};

pub(crate) fn installed() -> bool {
    let found = Command::new("psql").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: psql is not installed");
    }
    found
}

/// psql with an empty environment.
pub(crate) fn command(address: SocketAddr) -> Command {
    let mut command = Command::new("psql");
    command.env("PGHOST", address.ip().to_string()).env("PGPORT", address.port().to_string());
    command.env("PGUSER", "test").env("PGDATABASE", "test").env("PGCONNECT_TIMEOUT", "20");
    command.env("LC_ALL", "C.UTF-8").args(["-X", "-v", "VERBOSITY=verbose"]);
    command
}

async fn psql(address: SocketAddr, arguments: &[&str]) -> Output {
    let mut command = command(address);
    command.args(arguments);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn psql_runs_commands_and_scripts() {
    if !installed() {
        return;
    }
    let served = Served::start().await;
    let address = served.address;
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script.sql");
    std::fs::write(
        &script,
        "CREATE TABLE meter (id INT PRIMARY KEY, place VARCHAR, kwh DECIMAL(10,3));\n\
         BEGIN;\n\
         INSERT INTO meter VALUES (1, 'cellar', 17.5), (2, 'roof; or so', -3.25);\n\
         INSERT INTO meter VALUES (3, NULL, NULL);\n\
         COMMIT;\n\
         SELECT * FROM meter ORDER BY id;\n",
    )
    .unwrap();
    let output = psql(address, &["-v", "ON_ERROR_STOP=1", "-f", script.to_str().unwrap()]).await;
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let expected = "CREATE TABLE\nBEGIN\nINSERT 0 2\nINSERT 0 1\nCOMMIT\n id |    place    |  kwh   \n\
                    ----+-------------+--------\n  1 | cellar      | 17.500\n  2 | roof; or so | -3.250\n\
                    \x20 3 |             |       \n(3 rows)\n\n";
    assert_eq!(text, expected);
    let output = psql(address, &["-Atc", "SELECT count(*), sum(kwh) FROM meter"]).await;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "3|14.250\n");
    // The tag of a statement that was prepared by name is its own.
    let prepare = "PREPARE more AS INSERT INTO meter SELECT id + $1, place, kwh FROM meter WHERE id < 3";
    let output = psql(address, &["-c", prepare, "-c", "EXECUTE more(10)", "-c", "EXECUTE more(20)"]).await;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "PREPARE\nINSERT 0 2\nINSERT 0 2\n", "{output:?}");
    // Rows in parts, through a cursor or portal of psql's own.
    let output = psql(address, &["-At", "-c", "SELECT value FROM generate_series(1, 5000)"]).await;
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 5000);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn psql_shows_errors_as_it_does_with_postgresql() {
    if !installed() {
        return;
    }
    let served = Served::start().await;
    let output = psql(served.address, &["-c", "SELECT * FROM nothing"]).await;
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.starts_with("ERROR:  42P01: relation \"nothing\" does not exist\n"), "{text}");
    let output = psql(served.address, &["-c", "SELECT )"]).await;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("42601") && text.contains("LINE 1: SELECT )"), "{text}");
    let script = "CREATE TABLE o (n INT); CREATE SOURCE s (n INT) WITH (connector = 'generator');\n\
        CREATE TOPOLOGY t AS (\n  INSERT INTO o SELECT n FROM s;\n  INSERT INTO o SELECT n FROM o)";
    let output = psql(served.address, &["-c", script]).await;
    let text = String::from_utf8_lossy(&output.stderr);
    let expected =
        "\nLINE 4:   INSERT INTO o SELECT n FROM o)\n          ^\nHINT:  Reading it triggers nothing; ";
    assert!(text.starts_with("ERROR:  0A000: table o in the FROM of a step is not supported\n"), "{text}");
    assert!(text.contains(expected) && text.contains("\nCONTEXT:  step 2 (INSERT INTO o)\n"), "{text}");
    served.stop().await;
}

/// Notices for options without effect, and the blanks of a CHAR.
#[tokio::test(flavor = "multi_thread")]
async fn psql_shows_notices_and_blanks() {
    if !installed() {
        return;
    }
    let served = Served::start().await;
    let create =
        "CREATE TABLE t (c CHAR(4), v VARCHAR(9), s SMALLINT, r REAL, n NUMERIC) WITH (fillfactor = 70)";
    let output = psql(served.address, &["-c", create]).await;
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text, "NOTICE:  00000: storage parameter \"fillfactor\" has no effect\n");
    let quiet = ["-c", "SET client_min_messages = warning", "-c", "CREATE INDEX i ON t (v DESC)"];
    let output = psql(served.address, &quiet).await;
    assert_eq!((String::from_utf8_lossy(&output.stderr).as_ref(), output.status.code()), ("", Some(0)));
    let insert = "INSERT INTO t VALUES ('ab', 'ab  ', 7, 0.1, 1e-7)";
    assert!(psql(served.address, &["-c", insert]).await.status.success());
    let output = psql(served.address, &["-At", "-c", "SELECT * FROM t"]).await;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ab  |ab  |7|0.1|0.0000001000\n");
    let output = psql(served.address, &["-At", "-c", "COPY t TO STDOUT"]).await;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ab  \tab  \t7\t0.1\t0.0000001000\n");
    let described = psql(served.address, &["-At", "-c", "\\d t"]).await;
    let text = String::from_utf8_lossy(&described.stdout);
    for expected in ["c|character(4)", "v|character varying(9)", "s|smallint", "r|real", "n|numeric"] {
        assert!(text.contains(expected), "{text}");
    }
    served.stop().await;
}

/// Materialized views of both kinds: what `\\dm`, `\\d` and `\\d+` of psql show.
#[tokio::test(flavor = "multi_thread")]
async fn psql_lists_materialized_views_with_their_queries() {
    if !installed() {
        return;
    }
    let served = Served::start().await;
    for statement in [
        "CREATE SOURCE number (n INT NOT NULL) WITH (connector = 'generator', rows = 100, n.cardinality = 10)",
        "CREATE TABLE t (n INT PRIMARY KEY)",
        "CREATE MATERIALIZED VIEW counts AS SELECT n, count(*) AS many FROM number GROUP BY n EMIT CHANGES",
        "CREATE MATERIALIZED VIEW of_table AS SELECT n FROM t",
    ] {
        let output = psql(served.address, &["-c", statement]).await;
        assert!(output.status.success(), "{output:?}");
    }
    let shown = async |command: &str| {
        let output = psql(served.address, &["-A", "-c", command]).await;
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let listed = shown("\\dm").await;
    let names: Vec<&str> = listed.lines().filter_map(|line| line.split('|').nth(1)).collect();
    assert_eq!(names, ["Name", "counts", "of_table"], "{listed}");
    assert!(listed.contains("materialized view"), "{listed}");
    let described = shown("\\d+ counts").await;
    for expected in
        ["n|integer", "many|bigint", "SELECT n, count(*) AS many FROM number GROUP BY n EMIT CHANGES"]
    {
        assert!(described.contains(expected), "{expected}: {described}");
    }
    // The state of its aggregate is a table.
    let tables = shown("\\dt").await;
    assert!(tables.contains("|counts_open|") && !tables.contains("|counts|"), "{tables}");
    served.stop().await;
}

/// Comments: what `\\dt+`, `\\d+`, `\\dv+` and `\\di+` of psql show of them.
#[tokio::test(flavor = "multi_thread")]
async fn psql_shows_comments() {
    if !installed() {
        return;
    }
    let served = Served::start().await;
    for (statement, tag) in [
        ("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", "CREATE TABLE\n"),
        ("CREATE VIEW seen AS SELECT v FROM t", "CREATE VIEW\n"),
        ("COMMENT ON TABLE t IS 'all of it'", "COMMENT\n"),
        ("COMMENT ON COLUMN t.v IS 'the value'", "COMMENT\n"),
        ("COMMENT ON VIEW seen IS 'some of it'", "COMMENT\n"),
        ("COMMENT ON INDEX t_pkey IS 'the key'", "COMMENT\n"),
        (
            "CREATE MATERIALIZED VIEW counts AS SELECT v, count(*) AS n FROM t GROUP BY v",
            "CREATE MATERIALIZED VIEW\n",
        ),
        ("COMMENT ON MATERIALIZED VIEW counts IS 'how many'", "COMMENT\n"),
        ("COMMENT ON COLUMN counts.n IS 'of each'", "COMMENT\n"),
    ] {
        let output = psql(served.address, &["-c", statement]).await;
        assert_eq!(String::from_utf8_lossy(&output.stdout), tag, "{output:?}");
    }
    for (command, expected) in [
        ("\\dt+", "|all of it\n"),
        ("\\d+ t", "|the value\n"),
        ("\\dv+", "|some of it\n"),
        ("\\di+", "|the key\n"),
        ("\\dm+", "|how many\n"),
        ("\\d+ counts", "|of each\n"),
    ] {
        let output = psql(served.address, &["-A", "-c", command]).await;
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains(expected), "{command}: {text}");
    }
    served.stop().await;
}

/// EXPLAIN (FORMAT JSON): one value of the type that tools parse.
#[tokio::test(flavor = "multi_thread")]
async fn plans_are_json_to_clients() {
    let served = Served::start().await;
    let client = served.client().await;
    client.batch_execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)").await.unwrap();
    for statement in [
        "EXPLAIN (FORMAT JSON) SELECT v, count(*) FROM t GROUP BY v ORDER BY v",
        "EXPLAIN (FORMAT JSON, ANALYZE) SELECT v, count(*) FROM t GROUP BY v ORDER BY v",
        "EXPLAIN (FORMAT JSON, ANALYZE) INSERT INTO t SELECT id + 1, v FROM t",
    ] {
        let prepared = client.prepare(statement).await.unwrap();
        let [column] = prepared.columns() else { panic!("{statement}: {:?}", prepared.columns()) };
        assert_eq!((column.name(), column.type_()), ("QUERY PLAN", &tokio_postgres::types::Type::JSON));
        let plan = one(&client, statement).await;
        for path in ["{0,Plan,Node Type}", "{0,Plan,Plans,0,Node Type}"] {
            let read = format!("SELECT '{plan}'::json #>> '{path}'");
            assert!(!one(&client, &read).await.is_empty(), "{statement}: {plan}");
        }
    }
    served.stop().await;
}
