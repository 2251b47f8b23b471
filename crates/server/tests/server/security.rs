//! Passwords, privileges, encryption.

use crate::raw::{Raw, shorts, startup};
use crate::support::{Served, code, one, options};
use entresol::{Database, Options};
use entresol_server::roles::{self, Privileges, Role};
use entresol_server::{Server, ServerOptions, TlsOptions};
use std::net::SocketAddr;
use std::process::Command;

fn role(name: &str, grants: &[(&str, Privileges)]) -> Role {
    let grants = grants.iter().map(|(table, access)| ((*table).to_owned(), *access)).collect();
    Role { name: name.to_owned(), administrator: grants_nothing(&grants), grants }
}

fn grants_nothing(grants: &std::collections::BTreeMap<String, Privileges>) -> bool {
    grants.is_empty()
}

fn database() -> Database {
    let db = Database::volatile(Options::default().worker_threads(2)).unwrap();
    let mut session = db.session().unwrap();
    session.execute("CREATE TABLE a (id INT PRIMARY KEY); CREATE TABLE b (id INT PRIMARY KEY)").unwrap();
    session.execute("CREATE TABLE c (id INT PRIMARY KEY)").unwrap();
    roles::create(&db, &role("admin", &[]), "top secret").unwrap();
    let anna = role("anna", &[("a", Privileges::SELECT), ("b", Privileges::ALL)]);
    roles::create(&db, &anna, "p\u{e4}ssword").unwrap();
    db
}

#[tokio::test(flavor = "multi_thread")]
async fn passwords_are_asked_for_and_checked() {
    let served = Served::on(database(), options()).await;
    let mut config = served.config();
    config.user("anna").password("p\u{e4}ssword");
    drop(served.connect(&config).await.unwrap());
    config.password("password");
    assert_eq!(code(served.connect(&config).await), "28P01");
    config.user("nobody");
    assert_eq!(code(served.connect(&config).await), "28P01");
    assert_eq!(served.metric("entresol_authentication_failures_total").await, 2.0);
    // The stored verifier is none of the password.
    let (user, password) = ("admin", "top secret");
    config.user(user).password(password);
    let admin = served.connect(&config).await.unwrap();
    let stored = one(&admin, "SELECT verifier FROM entresol_roles WHERE name = 'admin'").await;
    assert!(stored.starts_with("SCRAM-SHA-256$4096:") && !stored.contains("secret"), "{stored}");
    // Without an answer no client gets in.
    let mut raw = Raw::open(served.address).await;
    raw.send(&startup(&[("user", "admin")])).await;
    assert_eq!(shorts(&[raw.next().await.unwrap()]), ["R"]);
    raw.send(&crate::raw::message('Q', b"SELECT 1\0")).await;
    assert_eq!(shorts(&raw.until_ready().await), ["E FATAL 08P01"]);
    drop((admin, raw));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_do_what_they_were_granted() {
    let served = Served::on(database(), options()).await;
    let mut config = served.config();
    config.user("anna").password("p\u{e4}ssword");
    let anna = served.connect(&config).await.unwrap();
    anna.batch_execute("SELECT * FROM a; BEGIN; INSERT INTO b SELECT id FROM a; COMMIT").await.unwrap();
    anna.execute("INSERT INTO b VALUES ($1)", &[&1i32]).await.unwrap();
    assert!(anna.copy_out("COPY a TO STDOUT").await.is_ok());
    assert!(anna.copy_out("COPY (SELECT id FROM a) TO STDOUT").await.is_ok());
    for sql in ["COPY c TO STDOUT", "COPY (SELECT * FROM a, c) TO STDOUT", "COPY entresol_roles TO STDOUT"] {
        assert_eq!(code(anna.copy_out(sql).await.map(drop)), "42501", "{sql}");
    }
    for (sql, expected) in [("COPY a FROM STDIN", "42501"), ("COPY b FROM STDIN", "00000")] {
        assert_eq!(code(anna.copy_in::<_, bytes::Bytes>(sql).await.map(drop)), expected, "{sql}");
    }
    for sql in [
        "SELECT * FROM c",
        "INSERT INTO a VALUES (1)",
        "SELECT verifier FROM entresol_roles",
        "UPDATE entresol_roles SET administrator = true",
        "CREATE TABLE d (id INT PRIMARY KEY)",
        "DROP TABLE b",
        "BACKUP TO '/tmp/never'",
    ] {
        assert_eq!(code(anna.batch_execute(sql).await), "42501", "{sql}");
        assert_eq!(code(anna.query(sql, &[]).await), "42501", "{sql}");
    }
    // A new grant holds for new connections.
    roles::grant(&served.db, "anna", Privileges::SELECT, &["c".to_owned()]).unwrap();
    let again = served.connect(&config).await.unwrap();
    again.batch_execute("SELECT * FROM c").await.unwrap();
    roles::drop_role(&served.db, "anna").unwrap();
    assert_eq!(code(served.connect(&config).await), "28P01");
    assert!(matches!(roles::drop_role(&served.db, "anna"), Err(roles::Error::Missing(_))));
    assert!(matches!(roles::create(&served.db, &role("admin", &[]), "x"), Err(roles::Error::Exists(_))));
    drop((anna, again));
    served.stop().await;
}

/// Queries inside AS OF, in arguments, and behind names of common table expressions.
#[tokio::test(flavor = "multi_thread")]
async fn nested_queries_are_checked_too() {
    let served = Served::on(database(), options()).await;
    let mut config = served.config();
    config.user("anna").password("p\u{e4}ssword");
    let anna = served.connect(&config).await.unwrap();
    anna.batch_execute("PREPARE p(int) AS SELECT * FROM a WHERE id = $1; EXECUTE p(1)").await.unwrap();
    anna.batch_execute("SELECT * FROM generate_series(1, 3)").await.unwrap();
    for sql in [
        "BEGIN AS OF SYSTEM TIME (SELECT CASE WHEN count(*) > 0 THEN now() END FROM c)",
        "SELECT * FROM a FOR SYSTEM_TIME AS OF (SELECT max(id) FROM c)",
        "EXECUTE p((SELECT max(id) FROM c))",
        "WITH q AS (SELECT * FROM c), c AS (SELECT 1) SELECT * FROM q",
    ] {
        assert_eq!(code(anna.batch_execute(sql).await), "42501", "{sql}");
        assert_eq!(code(anna.execute(sql, &[]).await), "42501", "{sql}");
    }
    // In a recursive WITH, DataFusion does not look for the table at all.
    for sql in [
        "WITH RECURSIVE q AS (SELECT * FROM c), c AS (SELECT 1) SELECT * FROM q",
        "WITH RECURSIVE c AS (SELECT id FROM c UNION ALL SELECT id FROM c) SELECT * FROM c",
    ] {
        assert_eq!(code(anna.batch_execute(sql).await), "42P01", "{sql}");
    }
    anna.batch_execute("BEGIN").await.unwrap();
    let set = "SET TRANSACTION AS OF SYSTEM TIME (SELECT CASE WHEN count(*) > 0 THEN now() END FROM c)";
    assert_eq!(code(anna.batch_execute(set).await), "42501");
    anna.batch_execute("ROLLBACK").await.unwrap();
    drop(anna);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn views_take_grants() {
    let served = Served::on(database(), options()).await;
    let mut config = served.config();
    config.user("admin").password("top secret");
    let admin = served.connect(&config).await.unwrap();
    admin.batch_execute("INSERT INTO c VALUES (7); CREATE VIEW v AS SELECT id FROM c").await.unwrap();
    config.user("anna").password("p\u{e4}ssword");
    let anna = served.connect(&config).await.unwrap();
    let denied = anna.batch_execute("SELECT * FROM v").await.unwrap_err();
    assert_eq!(denied.as_db_error().unwrap().message(), "permission denied for view v");
    admin.batch_execute("GRANT SELECT ON v TO anna").await.unwrap();
    assert_eq!(one(&anna, "SELECT * FROM v").await, "7");
    assert_eq!(code(anna.batch_execute("SELECT * FROM c").await), "42501", "the owner of the view reads it");
    admin.batch_execute("REVOKE SELECT ON v FROM anna").await.unwrap();
    assert_eq!(code(anna.batch_execute("SELECT * FROM v").await), "42501");
    admin.batch_execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO anna").await.unwrap();
    assert_eq!(one(&anna, "SELECT * FROM v").await, "7");
    assert_eq!(code(admin.batch_execute("GRANT SELECT ON nothing TO anna").await), "42P01");
    admin.batch_execute("CREATE INDEX i ON c (id)").await.unwrap();
    assert_eq!(code(admin.batch_execute("GRANT SELECT ON i TO anna").await), "42P01");
    drop((admin, anna));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_prepared_before_a_revoke_is_refused_after_it() {
    let served = Served::on(database(), options()).await;
    let mut config = served.config();
    config.user("anna").password("p\u{e4}ssword");
    let anna = served.connect(&config).await.unwrap();
    let read = anna.prepare("SELECT id FROM a").await.unwrap();
    let write = anna.prepare("INSERT INTO b VALUES ($1)").await.unwrap();
    anna.batch_execute("PREPARE p AS SELECT id FROM a").await.unwrap();
    anna.query(&read, &[]).await.unwrap();
    anna.execute(&write, &[&1i32]).await.unwrap();
    config.user("admin").password("top secret");
    let admin = served.connect(&config).await.unwrap();
    admin.batch_execute("REVOKE SELECT ON a FROM anna").await.unwrap();
    assert_eq!(code(anna.query(&read, &[]).await), "42501");
    assert_eq!(code(anna.batch_execute("EXECUTE p").await), "42501");
    anna.execute(&write, &[&2i32]).await.unwrap();
    admin.batch_execute("GRANT SELECT ON a TO anna").await.unwrap();
    anna.query(&read, &[]).await.unwrap();
    drop((anna, admin));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_are_managed_in_sql() {
    let db = Database::volatile(Options::default().worker_threads(2)).unwrap();
    let served = Served::on(db, options()).await;
    let mut config = served.config();
    config.user("somebody");
    let first = served.connect(&config).await.unwrap();
    first
        .batch_execute("CREATE TABLE a (id INT PRIMARY KEY); CREATE TABLE b (id INT PRIMARY KEY)")
        .await
        .unwrap();
    // The first must be one that can manage the others.
    assert_eq!(code(first.batch_execute("CREATE ROLE anna LOGIN PASSWORD 'x'").await), "55000");
    assert_eq!(code(first.batch_execute("BEGIN; CREATE ROLE boss SUPERUSER PASSWORD 'x'").await), "25001");
    first.batch_execute("ROLLBACK").await.unwrap();
    first.batch_execute("CREATE ROLE boss WITH SUPERUSER LOGIN PASSWORD 'top secret'").await.unwrap();
    // A client that connected before there were roles goes on.
    first.execute("CREATE USER anna PASSWORD 'secret'", &[]).await.unwrap();
    config.password("none");
    assert_eq!(code(served.connect(&config).await), "28P01");
    config.user("boss").password("top secret");
    let boss = served.connect(&config).await.unwrap();
    config.user("anna").password("secret");
    let anna = served.connect(&config).await.unwrap();
    assert_eq!(code(anna.batch_execute("SELECT * FROM a").await), "42501");
    for refused in
        ["CREATE ROLE eve", "GRANT ALL ON a TO anna", "DROP ROLE boss", "ALTER ROLE anna SUPERUSER"]
    {
        assert_eq!(code(anna.batch_execute(refused).await), "42501", "{refused}");
        assert_eq!(code(anna.execute(refused, &[]).await), "42501", "{refused}");
    }
    // Each privilege for itself, and from the next statement on.
    boss.batch_execute("GRANT SELECT ON a TO anna; GRANT INSERT ON TABLE b TO anna").await.unwrap();
    anna.batch_execute("INSERT INTO b SELECT id FROM a; INSERT INTO b VALUES (1)").await.unwrap();
    for refused in [
        "SELECT * FROM b",
        "DELETE FROM b",
        "INSERT INTO a VALUES (1)",
        "INSERT INTO b VALUES (2) RETURNING id",
    ] {
        assert_eq!(code(anna.batch_execute(refused).await), "42501", "{refused}");
    }
    let privileges = "SELECT has_table_privilege('b', 'INSERT') AND NOT has_table_privilege('b', 'SELECT')";
    assert_eq!(one(&anna, &format!("SELECT CASE WHEN ({privileges}) THEN 'yes' ELSE 'no' END")).await, "yes");
    assert_eq!(
        one(&boss, "SELECT array_to_string(relacl, ' ') FROM pg_class WHERE relname = 'b'").await,
        "anna=a/entresol"
    );
    boss.batch_execute("REVOKE INSERT ON b FROM anna; GRANT ALL ON ALL TABLES IN SCHEMA public TO anna")
        .await
        .unwrap();
    anna.batch_execute("DELETE FROM b; UPDATE a SET id = 2 WHERE id = 1").await.unwrap();
    assert_eq!(code(anna.batch_execute("SELECT * FROM entresol_roles").await), "42501");
    // Passwords: one's own, in any form.
    anna.batch_execute("ALTER ROLE anna PASSWORD 'changed'").await.unwrap();
    config.password("changed");
    drop(served.connect(&config).await.unwrap());
    let stored = one(&boss, "SELECT verifier FROM entresol_roles WHERE name = 'anna'").await;
    boss.batch_execute(&format!("CREATE ROLE copy PASSWORD '{stored}'; ALTER ROLE anna NOLOGIN"))
        .await
        .unwrap();
    assert_eq!(code(served.connect(&config).await), "28P01");
    config.user("copy");
    drop(served.connect(&config).await.unwrap());
    assert_eq!(code(boss.batch_execute("DROP ROLE boss").await), "55006");
    assert_eq!(code(boss.batch_execute("ALTER ROLE boss NOSUPERUSER").await), "55000");
    assert_eq!(code(boss.batch_execute("CREATE ROLE anna").await), "42710");
    assert_eq!(code(boss.batch_execute("DROP ROLE nobody").await), "42704");
    assert_eq!(code(boss.batch_execute("GRANT SELECT ON nothing TO anna").await), "42P01");
    boss.batch_execute("DROP ROLE IF EXISTS nobody, anna").await.unwrap();
    // A dropped role has no privileges any more.
    assert_eq!(code(anna.batch_execute("SELECT * FROM a").await), "42501");
    drop((first, boss, anna));
    served.stop().await;
}

/// Grants of a version that knew reading and writing only.
#[tokio::test(flavor = "multi_thread")]
async fn old_grants_are_read_as_they_were() {
    let db = Database::volatile(Options::default().worker_threads(2)).unwrap();
    let mut session = db.session().unwrap();
    session
        .execute(
            "CREATE TABLE a (id INT PRIMARY KEY); CREATE TABLE b (id INT PRIMARY KEY);
             CREATE TABLE entresol_grants (role VARCHAR NOT NULL, table_name VARCHAR NOT NULL, \
                 may_write BOOLEAN NOT NULL, PRIMARY KEY (role, table_name));
             CREATE TABLE entresol_roles (name VARCHAR PRIMARY KEY, verifier VARCHAR, administrator BOOLEAN NOT NULL);
             INSERT INTO entresol_roles VALUES ('boss', NULL, true), ('anna', NULL, false);
             INSERT INTO entresol_grants VALUES ('anna', 'a', false), ('anna', 'b', true)",
        )
        .unwrap();
    let granted = |name: &str| {
        let anna = roles::list(&db).unwrap().into_iter().find(|role| role.name == "anna").unwrap();
        anna.grants.get(name).copied().unwrap_or(Privileges::NONE)
    };
    assert_eq!((granted("a"), granted("b")), (Privileges::SELECT, Privileges::ALL));
    roles::grant(&db, "anna", Privileges::DELETE, &["a".to_owned()]).unwrap();
    assert_eq!((granted("a"), granted("b")), (Privileges::SELECT.with(Privileges::DELETE), Privileges::ALL));
    roles::revoke_some(&db, "anna", Privileges::SELECT, &["b".to_owned()]).unwrap();
    assert_eq!(granted("b"), Privileges::ALL.without(Privileges::SELECT));
}

#[tokio::test(flavor = "multi_thread")]
async fn other_addresses_need_roles() {
    let any = ServerOptions { listen: SocketAddr::from(([0, 0, 0, 0], 0)), ..options() };
    let open = Database::volatile(Options::default()).unwrap();
    let refused = Server::bind(open, any.clone()).await.unwrap_err();
    assert!(refused.to_string().contains("role"), "{refused}");
    Server::bind(database(), any).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_are_not_taken_away_at_once() {
    let served = Served::on(database(), options()).await;
    let mut config = served.config();
    config.user("admin").password("top secret");
    let admin = served.connect(&config).await.unwrap();
    for table in ["entresol_roles", "entresol_grants"] {
        for statement in [
            format!("TRUNCATE {table}"),
            format!("TRUNCATE a, {table}"),
            format!("DROP TABLE {table}"),
            format!("DROP TABLE IF EXISTS {table} CASCADE"),
            format!("ALTER TABLE {table} RENAME TO q"),
            format!("ALTER TABLE {table} DROP COLUMN privileges"),
            format!("CREATE INDEX i ON {table} (name)"),
        ] {
            assert_eq!(code(admin.batch_execute(&statement).await), "42501", "{statement}");
        }
    }
    config.password("wrong");
    assert_eq!(code(served.connect(&config).await), "28P01");
    drop(admin);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_logs_in_from_outside_without_roles() {
    let db = database();
    let any = ServerOptions { listen: SocketAddr::from(([0, 0, 0, 0], 0)), ..options() };
    let served = Served::on(db, any).await;
    let mut config = served.config();
    config.user("admin").password("top secret");
    let admin = served.connect(&config).await.unwrap();
    // Rows of roles are an administrator's to delete.
    admin.execute("DELETE FROM entresol_roles", &[]).await.unwrap();
    assert_eq!(code(served.connect(&config).await), "28000");
    config.user("somebody");
    assert_eq!(code(served.connect(&config).await), "28000");
    drop(admin);
    served.stop().await;
}

/// A certificate for 127.0.0.1 that signs itself; `None` if there is no openssl here.
fn certificate(dir: &std::path::Path) -> Option<TlsOptions> {
    let (certificate, key) = (dir.join("server.crt"), dir.join("server.key"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output();
    match made {
        Ok(output) if output.status.success() => Some(TlsOptions { certificate, key, required: true }),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cleartext_is_refused_where_encryption_is_required() {
    let dir = tempfile::tempdir().unwrap();
    let Some(tls) = certificate(dir.path()) else {
        eprintln!("skipped: openssl is not installed");
        return;
    };
    let root = tls.certificate.clone();
    let served = Served::on(database(), ServerOptions { tls: Some(tls), ..options() }).await;
    assert_eq!(code(served.connect(&served.config()).await), "28000");
    // Cleartext behind the request for encryption could come from an attacker in between.
    let mut raw = Raw::open(served.address).await;
    let mut bytes = vec![0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
    bytes.extend(startup(&[("user", "admin")]));
    raw.send(&bytes).await;
    let mut answer = [0];
    tokio::io::AsyncReadExt::read_exact(&mut raw.socket, &mut answer).await.unwrap();
    assert_eq!(answer, *b"S");
    assert_eq!(shorts(&raw.until_ready().await), ["E FATAL 08P01"]);
    if crate::psql::installed() {
        let address = served.address;
        let psql = move |mode: &str| {
            let mut command = crate::psql::command(address);
            command.env("PGSSLMODE", mode).env("PGSSLROOTCERT", &root);
            command.env("PGUSER", "admin").env("PGPASSWORD", "top secret");
            command.args(["-Atc", "SELECT 40 + 2"]).output().unwrap()
        };
        let psql =
            tokio::task::spawn_blocking(move || (psql("disable"), psql("require"), psql("verify-full")));
        let (clear, encrypted, verified) = psql.await.unwrap();
        assert!(String::from_utf8_lossy(&clear.stderr).contains("accepts encrypted connections only"));
        assert_eq!(String::from_utf8_lossy(&encrypted.stdout), "42\n", "{encrypted:?}");
        assert_eq!(String::from_utf8_lossy(&verified.stdout), "42\n", "{verified:?}");
    }
    drop(raw);
    served.stop().await;
}
