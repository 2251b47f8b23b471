//! Topologies that write the same rows: one waits for the commit of the other, and no row is lost.

use super::{rows, wait_for_end};
use entresol::{Database, Options};

/// A commit that is on its way to the disk is visible to nobody, and already in the way of the other topology.
#[test]
fn a_topology_waits_for_the_commit_that_it_conflicts_with() {
    let directory = tempfile::tempdir().unwrap();
    let database = Database::open(directory.path(), Options::default()).unwrap();
    let mut session = database.session().unwrap();
    session.execute("CREATE TABLE total (id INT PRIMARY KEY, n BIGINT)").unwrap();
    for name in ["one", "two"] {
        // Both have the same rows in the same order, so the one that is behind meets the other now and then.
        let statements = format!(
            "CREATE SOURCE {name}_row (id INT NOT NULL) WITH (connector = 'generator', rows = 300, id.cardinality = 4);
             CREATE TOPOLOGY {name} COMMIT EACH ROW AS (
                INSERT INTO total AS t SELECT id, 1 FROM {name}_row ON CONFLICT (id) DO UPDATE SET n = t.n + 1
             )"
        );
        session.execute(&statements).unwrap();
    }
    wait_for_end(&mut session, "one");
    wait_for_end(&mut session, "two");
    assert_eq!(rows(&mut session, "SELECT sum(n)::bigint FROM total"), [["600"]]);
    let retries = rows(&mut session, "SELECT sum(retries)::bigint > 0 FROM entresol.topologies");
    assert_eq!(retries, [["true"]], "the topologies were never in each other's way");
    drop(session);
    database.close().unwrap();
}
