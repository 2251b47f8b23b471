//! Damaged bytes of one table: it is named, the others work, a check finds all damage.
use entresol_memory::env::{Env, OverlayFiles};
use entresol_memory::{DomainChoice, Durability, JournalOptions, Pool, PoolOffset, PoolOptions};
use entresol_tables::{
    Catalog, CheckReport, Column, DataType, Error, ScanRange, Schema, TableOptions, Value, check,
};
use entresol_transactions::StateContext;
use std::fs;
use std::path::Path;
use std::sync::Arc;

const TABLES: [&str; 3] = ["alpha", "beta", "gamma"];
const ROWS: i32 = 400;

fn options(files: bool) -> PoolOptions {
    let env = if files { Env::real() } else { Env::real().with_files(Arc::new(OverlayFiles::new())) };
    let journal = JournalOptions { slot_bytes: 64 << 10, ..JournalOptions::default() };
    PoolOptions {
        domain: DomainChoice::Journal,
        extent_bytes: 1 << 20,
        journal,
        env,
        ..PoolOptions::default()
    }
}

fn open(directory: &Path) -> Result<Arc<Catalog>, Error> {
    let pool = Pool::open(directory, &options(true))?;
    Catalog::open_or_create(StateContext::open_or_create(pool)?)
}

fn look(directory: &Path) -> Result<CheckReport, Error> {
    let pool = Pool::open(directory, &options(false))?;
    check(&Catalog::open_or_create(StateContext::open_or_create(pool)?)?, |_| {})
}

fn marker(table: &str, row: i32) -> String {
    format!("row {row:04} of {table}, with a text that is long enough not to be mistaken")
}

/// Creates and closes a database with three tables of rows; `beta` has keys of variable length.
fn database() -> tempfile::TempDir {
    let directory = tempfile::TempDir::new().unwrap();
    let pool = Pool::create(directory.path(), &options(true)).unwrap();
    let catalog = Catalog::open_or_create(StateContext::open_or_create(Arc::clone(&pool)).unwrap()).unwrap();
    for name in TABLES {
        let columns = vec![Column::new("id", DataType::Varchar), Column::new("text", DataType::Varchar)];
        let numbers = vec![Column::new("id", DataType::Int), Column::new("text", DataType::Varchar)];
        let schema = Schema::new(if name == "beta" { columns } else { numbers }, &["id"]).unwrap();
        let table = catalog.create_table(name, schema, TableOptions::default()).unwrap();
        let tx = catalog.begin().unwrap();
        for row in 0..ROWS {
            table.insert(&tx, &[key(name, row), Value::from(marker(name, row).as_str())]).unwrap();
        }
        tx.commit(Durability::Sync).unwrap();
    }
    pool.close().unwrap();
    directory
}

fn key(table: &str, row: i32) -> Value {
    match table {
        "beta" => Value::from(format!("the key of row {row:04}").as_str()),
        _ => Value::Int(row),
    }
}

/// Reads all rows of a table; their number, or the error.
fn read(catalog: &Catalog, name: &str) -> Result<usize, Error> {
    let table = catalog.table(name)?;
    let tx = catalog.begin()?;
    let (mut rows, mut cursor) = (0, table.scan(ScanRange::full()));
    while cursor.next_batch(&tx, |_| rows += 1)? {}
    table.get(&tx, &[key(name, 17)])?;
    Ok(rows)
}

struct File {
    path: std::path::PathBuf,
    bytes: Vec<u8>,
}

impl File {
    fn of(directory: &tempfile::TempDir) -> File {
        let path = directory.path().join("pool.entresol");
        File { bytes: fs::read(&path).unwrap(), path }
    }

    fn find(&self, wanted: &[u8]) -> usize {
        self.bytes.windows(wanted.len()).position(|window| window == wanted).unwrap()
    }

    /// Offset of the object that holds a row.
    fn object(&self, table: &str, row: i32) -> usize {
        self.find(marker(table, row).as_bytes()) / 64 * 64
    }

    /// Offset of the word that refers to the object with a row; searched from the object's start backwards.
    fn reference(&self, table: &str, row: i32) -> usize {
        let text = self.find(marker(table, row).as_bytes());
        let refers = |object: usize| {
            self.bytes
                .chunks_exact(8)
                .position(|word| word == (object as u64).to_le_bytes())
                .map(|word| word * 8)
        };
        (0..8).find_map(|back| refers(text / 64 * 64 - back * 64)).unwrap()
    }

    fn damage(&self, offset: usize, bytes: &[u8]) {
        let mut damaged = self.bytes.clone();
        damaged[offset..offset + bytes.len()].copy_from_slice(bytes);
        fs::write(&self.path, damaged).unwrap();
    }
}

fn assert_others_work(catalog: &Catalog, but: &str) {
    for name in TABLES.iter().filter(|name| **name != but) {
        assert_eq!(read(catalog, name).unwrap(), ROWS as usize, "{name}");
        let table = catalog.table(name).unwrap();
        let tx = catalog.begin().unwrap();
        table.upsert(&tx, &[key(name, 3), Value::from("changed")]).unwrap();
        tx.commit(Durability::Sync).unwrap();
    }
}

#[test]
fn a_sound_database_has_no_problems() {
    let directory = database();
    let report = look(directory.path()).unwrap();
    assert_eq!(report.problems, []);
    let rows: Vec<_> = report.tables.iter().map(|t| (t.name.as_str(), t.rows, t.sound)).collect();
    assert_eq!(rows, TABLES.map(|name| (name, ROWS as u64, true)));
    assert!(report.pages.unwrap().sound > 20 && report.objects > 3 * ROWS as u64);
    // Open, with commits that only the journal has.
    let catalog = open(directory.path()).unwrap();
    let table = catalog.table("alpha").unwrap();
    let tx = catalog.begin().unwrap();
    table.insert(&tx, &[Value::Int(ROWS), Value::from("one more")]).unwrap();
    tx.commit(Durability::Sync).unwrap();
    catalog.drop_table("gamma").unwrap();
    drop((tx, table, catalog));
    let report = look(directory.path()).unwrap();
    assert_eq!((report.problems, report.tables.len()), (vec![], 2));
    assert!(report.replayed_bytes > 0);
}

#[test]
fn a_flipped_bit_in_an_index_takes_one_table_down_by_name() {
    for name in TABLES {
        let directory = database();
        let file = File::of(&directory);
        let at = file.reference(name, 200);
        file.damage(at, &[file.bytes[at] ^ 64]);
        let catalog = open(directory.path()).unwrap();
        let error = catalog.table(name).unwrap_err().to_string();
        assert!(error.contains(&format!("table {name}")) && error.contains("pool.entresol"), "{error}");
        assert!(error.contains(&(at / 4096 * 4096).to_string()), "{error}");
        assert!(catalog.create_table(name, schema_of("x"), TableOptions::default()).is_err());
        assert_others_work(&catalog, name);
        drop(catalog);
        let report = look(directory.path()).unwrap();
        assert!(report.problems.iter().any(|p| p.object == format!("table {name}")), "{:?}", report.problems);
        assert!(report.tables.iter().all(|table| table.name != name && table.sound), "{report:?}");
    }
}

fn schema_of(column: &str) -> Schema {
    Schema::new(vec![Column::new(column, DataType::Int)], &[column]).unwrap()
}

#[test]
fn a_flipped_bit_in_a_row_is_found_by_a_check_with_its_place_and_its_table() {
    let directory = database();
    let file = File::of(&directory);
    let at = file.find(marker("gamma", 321).as_bytes()) + 9;
    file.damage(at, &[file.bytes[at] ^ 1]);
    let report = look(directory.path()).unwrap();
    let [problem] = report.problems.as_slice() else { panic!("{:?}", report.problems) };
    assert!(problem.object.contains("table gamma"), "{problem}");
    assert_eq!(problem.offset, Some(PoolOffset::new(at as u64 / 4096 * 4096)));
    assert!(problem.to_string().contains("pool.entresol"), "{problem}");
}

/// Bytes of a tree's leaf, and the offset of its link to the next one.
const LEAF_BYTES: usize = 1024;
const NEXT_LEAF: usize = 64;

/// Copies a database without the checksums of its pages, with a word of the pool file changed.
fn damaged_copy(of: &tempfile::TempDir, at: usize, word: u64) -> tempfile::TempDir {
    let copy = tempfile::TempDir::new().unwrap();
    for name in ["pool.entresol", "journal.entresol"] {
        fs::copy(of.path().join(name), copy.path().join(name)).unwrap();
    }
    File::of(&copy).damage(at, &word.to_le_bytes());
    copy
}

#[test]
fn wild_bytes_that_no_checksum_covers_are_errors_not_panics() {
    let directory = database();
    let file = File::of(&directory);
    for name in TABLES {
        // The last entry was never moved by a split: there is no stale one.
        let reference = file.reference(name, ROWS - 1);
        let leaf = reference / LEAF_BYTES * LEAF_BYTES;
        let object = u64::from_le_bytes(*file.bytes[reference..].first_chunk().unwrap()) as usize;
        assert!(object <= file.object(name, ROWS - 1));
        // The object's header; the word that refers to it; the chain of leaves.
        let objects = [(object + 8, u64::MAX), (object + 8, 0), (reference, 1 << 41), (reference, 7)];
        let next = leaf + NEXT_LEAF;
        let leaves = [(next, 3), (next, 1 << 41), (next, leaf as u64), (leaf, u64::MAX)];
        for (at, word) in objects.into_iter().chain(leaves) {
            let copy = damaged_copy(&directory, at, word);
            let report = look(copy.path()).unwrap();
            let object = format!("table {name}");
            assert!(report.problems.iter().any(|problem| problem.object == object), "{:?}", report.problems);
            let catalog = open(copy.path()).unwrap();
            let error = read(&catalog, name).unwrap_err().to_string();
            assert!(error.contains(&object) && error.contains("pool.entresol"), "{error}");
            assert_others_work(&catalog, name);
        }
    }
}

#[test]
fn a_damaged_row_of_the_catalog_costs_no_data() {
    let directory = database();
    let file = File::of(&directory);
    // The position of the schemas.
    let column = b"\x04text";
    let rows: Vec<usize> =
        file.bytes.windows(5).enumerate().filter(|(_, window)| window == column).map(|(at, _)| at).collect();
    assert!(rows.len() >= 3, "{rows:?}");
    let mut named = Vec::new();
    for at in rows {
        let copy = damaged_copy(&directory, 0, u64::from_le_bytes(*b"ENTRESOL"));
        File::of(&copy).damage(at + 2, b"o");
        let catalog = open(copy.path()).unwrap();
        let damaged = catalog.damaged_tables();
        let (name, reason) = damaged.first_key_value().unwrap();
        assert!(reason.contains("checksum") && reason.contains(name.as_str()), "{reason}");
        assert!(matches!(catalog.table(name), Err(Error::Corrupt { .. })));
        for other in TABLES.iter().filter(|other| *other != name) {
            assert_eq!(read(&catalog, other).unwrap(), ROWS as usize);
        }
        named.push(name.clone());
        drop(catalog);
        // The state was not taken for an orphan: repaired, everything is there.
        File::of(&copy).damage(at + 2, &column[2..3]);
        let catalog = open(copy.path()).unwrap();
        assert!(catalog.damaged_tables().is_empty());
        TABLES.iter().for_each(|name| assert_eq!(read(&catalog, name).unwrap(), ROWS as usize));
    }
    named.sort();
    named.dedup();
    assert_eq!(named, TABLES);
}

#[test]
fn no_damaged_word_makes_a_check_panic() {
    let directory = database();
    let file = File::of(&directory);
    let random = Env::simulated(11);
    // Nonzero words, behind the pool's own header.
    let words: Vec<usize> = (4096..file.bytes.len())
        .step_by(8)
        .filter(|at| file.bytes[*at..*at + 8].iter().any(|byte| *byte != 0))
        .collect();
    let (mut refused, mut found, mut unseen) = (0, 0, 0);
    for _ in 0..if std::env::var_os("ENTRESOL_SOAK").is_some() { 10_000 } else { 200 } {
        let at = words[random.random_u64() as usize % words.len()];
        let old = u64::from_le_bytes(*file.bytes[at..].first_chunk().unwrap());
        let word = match random.random_u64() % 4 {
            0 => old ^ 1 << (random.random_u64() % 64),
            1 => random.random_u64(),
            2 => u64::MAX,
            _ => old.wrapping_add(64),
        };
        let copy = damaged_copy(&directory, at, word);
        match look(copy.path()) {
            Err(_) => refused += 1,
            Ok(report) if report.problems.is_empty() => unseen += 1,
            Ok(_) => found += 1,
        }
    }
    println!(
        "without checksums of pages: {refused} refused, {found} found, {unseen} in values or in free space"
    );
    assert!(found > 10);
}
