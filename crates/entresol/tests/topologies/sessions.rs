//! Sessions in SQL: out of order, merged, late, over a restart.

use super::{append, rows, wait_for};
use entresol::{Database, Options};
use std::path::Path;

/// Sessions of each user, from rows out of order, beside a table that is joined before.
#[test]
fn sessions_end_when_nothing_follows() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("clicks.csv");
    append(&path, "at,person,page\n2026-01-01 10:00:00,ada,a\n2026-01-01 10:20:00,alan,b\n");
    // Ada's second visit is between; 10:52 makes one of two visits of Alan's; the last line is late.
    append(&path, "2026-01-01 10:10:00,ada,c\n2026-01-01 11:15:00,alan,d\n2026-01-01 10:52:00,alan,a\n");
    append(&path, "2026-01-01 13:00:00,ada,a\n2026-01-01 10:11:00,ada,d\n");
    let path = path.display();
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session
        .execute(&format!(
            "CREATE SOURCE click (at TIMESTAMP NOT NULL, person VARCHAR NOT NULL, page VARCHAR NOT NULL,
                     WATERMARK FOR at AS at - INTERVAL '30 minutes')
                 WITH (connector = 'file', path = '{path}', tail = true);
             CREATE TABLE page (name VARCHAR PRIMARY KEY, weight INT);
             INSERT INTO page VALUES ('a', 1), ('b', 2), ('c', 3), ('d', 4);
             CREATE TABLE visit (person VARCHAR, began TIMESTAMP, ended TIMESTAMP, clicks BIGINT, weight BIGINT,
                 PRIMARY KEY (person, began));
             CREATE TOPOLOGY visits COMMIT EACH ROW AS (
                 INSERT INTO visit SELECT c.person, c.window_start, c.window_end, count(*), sum(p.weight)
                     FROM SESSION(click, at, INTERVAL '40 minutes') c JOIN page p ON p.name = c.page
                     GROUP BY c.person, c.window_start, c.window_end
                     EMIT ON WINDOW CLOSE LATE ROWS INTO late_click)"
        ))
        .unwrap();
    wait_for(&mut session, "SELECT count(*) FROM late_click", "1");
    let visits =
        "SELECT person, began::time::text, ended::time::text, clicks, weight FROM visit ORDER BY 1, 2";
    let expected = [["ada", "10:00:00", "10:50:00", "2", "4"], ["alan", "10:20:00", "11:55:00", "3", "7"]];
    assert_eq!(rows(&mut session, visits), expected);
    let open = "SELECT person, window_start::time::text, window_end::time::text, count FROM visits_open";
    assert_eq!(rows(&mut session, open), [["ada", "13:00:00", "13:40:00", "1"]]);
    drop(session);
    database.close().unwrap();
    drop(database);
    let database = Database::open(directory.path().join("db"), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    append(
        Path::new(&path.to_string()),
        "2026-01-01 13:39:59,ada,b\n2026-01-01 13:00:00,alan,b\n2026-01-01 16:00:00,alan,b\n",
    );
    wait_for(&mut session, "SELECT count(*) FROM visit", "3");
    assert_eq!(rows(&mut session, visits)[1], ["ada", "13:00:00", "14:19:59", "2", "3"]);
    assert_eq!(
        rows(&mut session, "SELECT person, page FROM late_click ORDER BY at"),
        [["ada", "d"], ["alan", "b"]]
    );
}
