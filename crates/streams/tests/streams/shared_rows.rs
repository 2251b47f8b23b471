//! Two topologies and other writers at once on the same rows: a history of lists that all of them append to, judged by what
//! snapshot isolation promises.
//!
//! Every transaction appends its number to several lists. The final lists show the order of all appends to a row; so each
//! observation can be judged by itself:
//!
//! - a list that was read is the beginning of the final one: no write is lost, taken back, or seen out of order;
//! - of the lists of a transaction, all that was read together has its appends, or none: no fractured read, also over the
//!   state of the topologies, their positions and their results;
//! - what was acknowledged before an observation began is in it;
//! - in the end each committed append is there once, and no other.

use crate::support::*;
use entresol_memory::Durability;
use entresol_streams::{
    Aggregate, Boundary, GeneratorSource, JoinKind, POSITIONS_TABLE, StateForm, TimeWindow, ToTable, Topology,
};
use entresol_tables::{Catalog, Column, DataType, Row, ScanRange, Schema, TableOptions, Value};
use entresol_transactions::Transaction;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LISTS: u64 = 7;
/// Appends of a transaction, to as many lists.
const APPENDS: u64 = 3;
/// Transactions of each topology, and of each other writer.
const TRANSACTIONS: u64 = 120;
const WRITERS: u64 = 2;
const READERS: usize = 2;

/// Lists by their keys: the numbers of transactions in the order of their appends.
type Lists = BTreeMap<i32, Vec<String>>;

/// One snapshot.
struct Observation {
    /// Transactions that were acknowledged before it.
    acknowledged: usize,
    lists: Lists,
    /// Per topology: its position, and the tuples counted in its open and closed windows.
    counted: Vec<(i64, i64)>,
}

fn list_of(n: u64) -> i32 {
    (n % LISTS) as i32
}

/// Number of the transaction of tuple `n` of a topology.
fn name_of(topology: &str, n: u64) -> String {
    format!("{topology}{}", n / APPENDS)
}

fn lists_in(catalog: &Catalog, tx: &Transaction) -> Lists {
    let rows = catalog.table("lists").unwrap().scan(ScanRange::full()).rows(tx).unwrap();
    let list = |value: &Value| match value {
        Value::Varchar(text) => text.split_terminator(',').map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    rows.iter()
        .map(|row| match row[0] {
            Value::Int(key) => (key, list(&row[1])),
            _ => unreachable!("a key is a number"),
        })
        .collect()
}

/// Position of a topology, and the tuples that its windows count.
fn counted_in(catalog: &Catalog, tx: &Transaction, topology: &str) -> (i64, i64) {
    let bigint = |row: &Row, at: usize| if let Value::BigInt(n) = row[at] { n } else { 0 };
    let key = [Value::from(topology), Value::from("s")];
    let position = catalog.table(POSITIONS_TABLE).unwrap().get(tx, &key).unwrap();
    let sum = |table: String, at: usize| -> i64 {
        let rows = catalog.table(&table).unwrap().scan(ScanRange::full()).rows(tx).unwrap();
        rows.iter().map(|row| bigint(row, at)).sum()
    };
    let counted = sum(format!("{topology}_open"), 2) + sum(format!("{topology}_windows"), 3);
    (position.map_or(0, |row| bigint(&row, 2)), counted)
}

/// Appends to lists in transactions of three tuples, and counts the tuples by list in windows.
fn topology(catalog: &Arc<Catalog>, name: &'static str, form: StateForm) -> Topology {
    let topology = Topology::builder(name, catalog).boundary(Boundary::Every(APPENDS as usize));
    let topology = topology.durability(Durability::None);
    let columns = vec![
        Column::new("k", DataType::Int).not_null(),
        Column::new("at", DataType::Timestamp).not_null(),
        Column::new("name", DataType::Varchar).not_null(),
    ];
    let source = GeneratorSource::new(columns, move |n| {
        std::thread::sleep(Duration::from_micros(100));
        let at = Value::Timestamp(n as i64 * SECOND_US);
        (n < APPENDS * TRANSACTIONS)
            .then(|| vec![Value::Int(list_of(n)), at, Value::from(name_of(name, n).as_str())])
    });
    let tuples = topology.source("s", source);
    let joined = tuples.select(&["k", "name"]).lookup_join("lists", &["k"], JoinKind::Left);
    let lists = vec![Column::new("k", DataType::Int).not_null(), Column::new("list", DataType::Varchar)];
    let appended = joined.map(lists, |tuple| {
        let (Value::Varchar(name), list) = (&tuple[1], &tuple[2]) else { unreachable!("a name is a text") };
        let list = if let Value::Varchar(list) = list { list } else { "" };
        vec![tuple[0].clone(), Value::from(format!("{list}{name},").as_str())]
    });
    appended.to_table(ToTable::upsert("lists").key(&["k"]));
    let windows = tuples.window(TimeWindow::tumbling("at", Duration::from_secs(50))).group_by(&["k"]);
    let windows = windows.state_form(form).aggregate(&[Aggregate::count()], &format!("{name}_open"));
    windows.to_table(ToTable::insert(&format!("{name}_windows")));
    topology.build().unwrap()
}

/// Appends to lists as a client does: in transactions that are tried again after a conflict.
fn write(catalog: &Catalog, writer: u64, random: &mut Random, acknowledged: &Mutex<Vec<String>>) {
    let table = catalog.table("lists").unwrap();
    for number in 0..TRANSACTIONS {
        let name = format!("writer{writer}.{number}");
        let first = random.below(LISTS);
        let gives_up = random.below(8) == 0;
        loop {
            let tx = catalog.begin().unwrap();
            let written = (0..APPENDS).try_for_each(|at| {
                let key = Value::Int(list_of(first + at * 2));
                let row = table.get(&tx, std::slice::from_ref(&key))?;
                let list = match row.as_ref().map(|row| &row[1]) {
                    Some(Value::Varchar(list)) => list.to_string(),
                    _ => String::new(),
                };
                table.upsert(&tx, &[key, Value::from(format!("{list}{name},").as_str())])
            });
            if written.is_ok() && gives_up {
                tx.abort();
                break;
            }
            if written.is_ok() && tx.commit(Durability::None).is_ok() {
                acknowledged.lock().unwrap().push(name);
                break;
            }
            std::thread::sleep(Duration::from_micros(50 + random.below(300)));
        }
        std::thread::sleep(Duration::from_micros(random.below(400)));
    }
}

fn observe(
    catalog: &Catalog,
    topologies: &[&str],
    acknowledged: &Mutex<Vec<String>>,
    ended: &AtomicBool,
) -> Vec<Observation> {
    let mut observations = Vec::new();
    loop {
        let is_last = ended.load(Ordering::Acquire);
        let acknowledged = acknowledged.lock().unwrap().len();
        let tx = catalog.begin().unwrap();
        let lists = lists_in(catalog, &tx);
        let counted = topologies.iter().map(|name| counted_in(catalog, &tx, name)).collect();
        observations.push(Observation { acknowledged, lists, counted });
        if is_last {
            return observations;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Lists that each transaction has appended to.
fn appends(topologies: &[&str], lists: &Lists) -> BTreeMap<String, BTreeSet<i32>> {
    let mut appends: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
    for topology in topologies {
        for n in 0..APPENDS * TRANSACTIONS {
            appends.entry(name_of(topology, n)).or_default().insert(list_of(n));
        }
    }
    for (key, list) in lists {
        for name in list.iter().filter(|name| name.starts_with("writer")) {
            assert!(appends.entry(name.clone()).or_default().insert(*key), "{name} is in list {key} twice");
        }
    }
    appends
}

/// Judges an observation by the final lists.
fn judge(
    observation: &Observation,
    last: &Lists,
    appends: &BTreeMap<String, BTreeSet<i32>>,
    acknowledged: &[String],
) {
    for (key, list) in &observation.lists {
        assert!(last[key].starts_with(list), "list {key} was {list:?}, and is {:?}", last[key]);
    }
    let mut seen: BTreeMap<&String, BTreeSet<i32>> = BTreeMap::new();
    for (key, list) in &observation.lists {
        for name in list {
            seen.entry(name).or_default().insert(*key);
        }
    }
    for (name, lists) in &seen {
        assert_eq!(lists, &appends[*name], "{name} is seen in some of its lists");
    }
    for name in &acknowledged[..observation.acknowledged] {
        assert!(seen.contains_key(name), "{name} was acknowledged, and is not seen");
    }
    for (number, (position, counted)) in observation.counted.iter().enumerate() {
        assert_eq!(position, counted, "topology {number}: its windows count what it has read");
        let prefix = ["a", "b"][number];
        let of_topology = seen.keys().filter(|name| name.starts_with(prefix)).count() as i64;
        assert_eq!(*position, of_topology * APPENDS as i64, "its position is that of its appends");
    }
}

#[test]
fn topologies_and_writers_at_once_see_snapshots() {
    let seed = seed();
    let directory = tempfile::TempDir::new().unwrap();
    let catalog = journal(directory.path());
    let columns = vec![Column::new("k", DataType::Int), Column::new("list", DataType::Varchar)];
    catalog.create_table("lists", Schema::new(columns, &["k"]).unwrap(), TableOptions::default()).unwrap();
    let names = ["a", "b"];
    let running: Vec<_> = [("a", StateForm::Pages), ("b", StateForm::Rows)]
        .map(|(name, form)| topology(&catalog, name, form).start().unwrap())
        .into_iter()
        .collect();
    let (acknowledged, ended) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let observations: Vec<Observation> = std::thread::scope(|scope| {
        let (catalog, acknowledged, ended) = (&catalog, &acknowledged, &ended);
        let readers: Vec<_> = (0..READERS)
            .map(|_| scope.spawn(move || observe(catalog, &names, acknowledged, ended)))
            .collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let mut random = Random(seed ^ writer);
                scope.spawn(move || write(catalog, writer, &mut random, acknowledged))
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        for running in running {
            let report = running.join().unwrap();
            println!("{} retries", report.retries);
            assert_eq!(report.tuples, APPENDS * TRANSACTIONS);
        }
        ended.store(true, Ordering::Release);
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect()
    });
    let last = lists_in(&catalog, &catalog.begin().unwrap());
    let acknowledged = acknowledged.into_inner().unwrap();
    let appends = appends(&names, &last);
    println!("{} observations of {} transactions", observations.len(), appends.len());
    observations.iter().for_each(|observation| judge(observation, &last, &appends, &acknowledged));
    let written: BTreeSet<&String> = last.values().flatten().collect();
    let by_writers = written.iter().filter(|name| name.starts_with("writer")).count();
    assert_eq!(by_writers, acknowledged.len(), "what was given up is not there");
    for (name, lists) in &appends {
        assert_eq!(lists.len() as u64, APPENDS, "{name}");
        let found = lists.iter().filter(|key| last[*key].iter().filter(|found| *found == name).count() == 1);
        assert_eq!(found.count(), lists.len(), "{name} is in each of its lists once");
    }
    let observed: BTreeSet<usize> =
        observations.iter().map(|observation| observation.lists.values().map(Vec::len).sum()).collect();
    assert!(observed.len() > 10, "observations of {} different times", observed.len());
}
