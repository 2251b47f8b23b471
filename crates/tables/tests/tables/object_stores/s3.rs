//! Stores that speak the protocol of S3: objects, and servers that refuse requests or do not answer.

use super::s3_server::{Mode, S3Server};
use super::{Place, batch, definition, delete_and_merge, deleted, ids, scanned, try_scanned};
use entresol_memory::Durability;
use entresol_tables::{Catalog, Error, Table, TableOptions, check};
use entresol_transactions::Cancellation;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn with_facts(place: &Place, server: &S3Server) -> (Arc<Catalog>, Arc<Table>) {
    let address = format!(
        "s3://lake/sales?endpoint=http://127.0.0.1:{}&region=local&anonymous=true&timeout=1",
        server.port
    );
    let catalog = place.open();
    let table =
        catalog.create_table_as("facts", definition(&[], Some(&address)), TableOptions::default()).unwrap();
    for first in [0, 20_000, 40_000] {
        let tx = catalog.begin().unwrap();
        table.append(&tx, &batch(first..first + 20_000)).unwrap();
        tx.commit(Durability::Sync).unwrap();
    }
    (catalog, table)
}

#[test]
fn row_groups_are_objects_of_a_bucket() {
    let (place, server) = (Place::new(), S3Server::start());
    let (catalog, table) = with_facts(&place, &server);
    let objects = server.objects();
    assert_eq!(objects.len(), 3);
    assert!(objects.iter().all(|path| path.starts_with("lake/sales/")), "{objects:?}");
    drop((table, catalog));
    let catalog = place.open();
    let table = catalog.table("facts").unwrap();
    let before = server.requests();
    let tx = catalog.begin().unwrap();
    assert_eq!(ids(&scanned(&table, &tx)), (0..60_000).collect::<Vec<i64>>());
    drop(tx);
    // Four columns of the first row group one by one, those of the others by one request each.
    assert!(server.requests() - before <= 7, "{} requests", server.requests() - before);
    delete_and_merge(&catalog, &table, 0..20_000);
    assert!(deleted(&catalog).0 > 0);
    let tx = catalog.begin().unwrap();
    assert_eq!(ids(&scanned(&table, &tx)), (20_000..60_000).collect::<Vec<i64>>());
    assert_eq!(check(&catalog, |_| {}).unwrap().problems, []);
}

#[test]
fn a_store_that_refuses_or_does_not_answer_ends_the_statement_and_can_be_used_again() {
    let (place, server) = (Place::new(), S3Server::start());
    let (catalog, table) = with_facts(&place, &server);
    catalog.limit_cache(0);
    for mode in [Mode::Refuses, Mode::Hangs] {
        server.set_mode(mode);
        let (tx, began) = (catalog.begin().unwrap(), Instant::now());
        let read = try_scanned(&table, &tx, Vec::new()).unwrap_err();
        assert!(matches!(read, Error::ObjectStore { .. }), "{mode:?}: {read}");
        let written = table.append(&tx, &batch(60_000..70_000)).unwrap_err();
        assert!(matches!(written, Error::ObjectStore { .. }), "{mode:?}: {written}");
        assert!(began.elapsed() < Duration::from_secs(20), "{mode:?}: {:?}", began.elapsed());
        assert!(!read.to_string().contains("anonymous"), "{read}");
        server.set_mode(Mode::Works);
        drop(tx);
        let tx = catalog.begin().unwrap();
        assert_eq!(scanned(&table, &tx).len(), 60_000);
    }
    assert!(catalog.object_store_stats().failures >= 4);
}

#[test]
fn a_statement_that_is_cancelled_does_not_wait_for_the_store() {
    let (place, server) = (Place::new(), S3Server::start());
    let (catalog, table) = with_facts(&place, &server);
    catalog.limit_cache(0);
    server.set_mode(Mode::Hangs);
    let (tx, statement) = (catalog.begin().unwrap(), Arc::new(Cancellation::default()));
    tx.set_cancellation(Arc::clone(&statement));
    let began = Instant::now();
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        statement.interrupt(entresol_transactions::Interrupt::Requested);
    });
    try_scanned(&table, &tx, Vec::new()).unwrap_err();
    assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
    stopper.join().unwrap();
}
