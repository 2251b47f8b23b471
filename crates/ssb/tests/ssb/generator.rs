//! The files: rows, domains, references, formulas, selectivities, determinism.

use crate::reference::{FILTERS, Filter, Joined, Tables};
use crate::support::{file, generated, refused, small_files, text};
use entresol_ssb::TABLES;
use entresol_ssb::generate::{Scale, lines};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Fields of the lines of a table of scale factor 0.01.
fn rows(table: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(file(small_files(), table)).unwrap();
    assert!(text.ends_with('\n') && !text.contains("|\n"), "{table}");
    text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect()
}

fn column(rows: &[Vec<String>], at: usize) -> BTreeSet<&str> {
    rows.iter().map(|row| row[at].as_str()).collect()
}

fn numbers(rows: &[Vec<String>], at: usize) -> BTreeSet<u64> {
    rows.iter().map(|row| row[at].parse().unwrap()).collect()
}

#[test]
fn files_have_the_rows_that_the_scale_factor_asks_for() {
    let counts = TABLES.map(|table| rows(table).len());
    assert_eq!(counts[..4], [300, 20, 2000, 2557]);
    let orders: BTreeSet<u64> = numbers(&rows("lineorder"), 0);
    assert_eq!(orders.len(), 15_000);
    // Four lines of an order on average, with a standard deviation of two.
    assert!((59_000..61_000).contains(&counts[4]), "{counts:?}");
    let columns = TABLES.map(|table| rows(table).iter().map(Vec::len).collect::<BTreeSet<_>>());
    assert_eq!(columns, [8, 7, 9, 17, 17].map(|count| BTreeSet::from([count])));
}

#[test]
fn keys_are_dense_and_references_are_there() {
    for (table, count) in [("customer", 300), ("supplier", 20), ("part", 2000)] {
        let keys: Vec<u64> = rows(table).iter().map(|row| row[0].parse().unwrap()).collect();
        assert_eq!(keys, (1..=count).collect::<Vec<u64>>(), "{table}");
    }
    let lineorder = rows("lineorder");
    let dates = numbers(&rows("date"), 0);
    for (at, known) in [
        (2, (1..=300).collect()),
        (3, (1..=2000).collect()),
        (4, (1..=20).collect()),
        (5, dates.clone()),
        (15, dates),
    ] {
        let known: BTreeSet<u64> = known;
        let used = numbers(&lineorder, at);
        assert!(used.is_subset(&known), "column {at}");
    }
    // All suppliers and parts are sold, to two thirds of the customers.
    assert_eq!(numbers(&lineorder, 4).len(), 20);
    assert_eq!(numbers(&lineorder, 3).len(), 2000);
    assert!(numbers(&lineorder, 2).iter().all(|key| key % 3 != 0));
    assert_eq!(numbers(&lineorder, 2).len(), 200);
    assert_eq!(
        (numbers(&lineorder, 5).first(), numbers(&lineorder, 5).last()),
        (Some(&19920101), Some(&19980802))
    );
}

#[test]
fn values_are_in_their_domains() {
    let lineorder = rows("lineorder");
    let range = |least, most| (least..=most).collect::<BTreeSet<u64>>();
    for (at, expected) in
        [(1, range(1, 7)), (7, range(0, 0)), (8, range(1, 50)), (11, range(0, 10)), (14, range(0, 8))]
    {
        assert_eq!(numbers(&lineorder, at), expected, "column {at}");
    }
    let priorities = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"];
    assert_eq!(column(&lineorder, 6), BTreeSet::from(priorities));
    let modes = ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"];
    assert_eq!(column(&lineorder, 16), BTreeSet::from(modes));

    let part = rows("part");
    for row in &part {
        let [manufacturer, category, brand] = [&row[2], &row[3], &row[4]];
        let digits = |text: &str| text.strip_prefix("MFGR#").unwrap().to_owned();
        assert!(
            category.starts_with(manufacturer.as_str()) && brand.starts_with(category.as_str()),
            "{row:?}"
        );
        let in_range = |text: &str, most: u32| (1..=most).contains(&text.parse::<u32>().unwrap());
        assert!(digits(manufacturer).len() == 1 && digits(category).len() == 2, "{row:?}");
        assert!(in_range(&digits(manufacturer), 5) && in_range(&digits(category)[1..], 5), "{row:?}");
        assert!(in_range(&digits(brand)[2..], 40), "{row:?}");
        assert!(row[1].len() <= 22 && !row[1].split(' ').any(|word| word == row[5]), "{row:?}");
    }
    assert_eq!((column(&part, 2).len(), column(&part, 3).len()), (5, 25));
    assert_eq!((column(&part, 5).len(), column(&part, 6).len(), column(&part, 8).len()), (92, 150, 40));
    assert_eq!(numbers(&part, 7), range(1, 50));

    let customer = rows("customer");
    for row in customer.iter().chain(&rows("supplier")) {
        assert_eq!(row[3].len(), 10, "{row:?}");
        assert_eq!(row[3][..9].trim_end(), row[4].chars().take(9).collect::<String>().trim_end(), "{row:?}");
        assert!(row[3].as_bytes()[9].is_ascii_digit() && row[6].len() == 15 && row[2].len() <= 25, "{row:?}");
    }
    assert_eq!(
        (customer[6][1].as_str(), rows("supplier")[9][1].as_str()),
        ("Customer#000000007", "Supplier#000000010")
    );
    let nations: BTreeMap<&str, BTreeSet<&str>> =
        customer.iter().fold(BTreeMap::new(), |mut nations, row| {
            nations.entry(row[5].as_str()).or_insert_with(BTreeSet::new).insert(row[4].as_str());
            nations
        });
    let expected = [
        ("AFRICA", ["ALGERIA", "ETHIOPIA", "KENYA", "MOROCCO", "MOZAMBIQUE"]),
        ("AMERICA", ["ARGENTINA", "BRAZIL", "CANADA", "PERU", "UNITED STATES"]),
        ("ASIA", ["CHINA", "INDIA", "INDONESIA", "JAPAN", "VIETNAM"]),
        ("EUROPE", ["FRANCE", "GERMANY", "ROMANIA", "RUSSIA", "UNITED KINGDOM"]),
        ("MIDDLE EAST", ["EGYPT", "IRAN", "IRAQ", "JORDAN", "SAUDI ARABIA"]),
    ];
    let expected: BTreeMap<&str, BTreeSet<&str>> =
        expected.into_iter().map(|(region, nations)| (region, BTreeSet::from(nations))).collect();
    assert_eq!(nations, expected);
    assert_eq!(column(&customer, 7).len(), 5);
}

/// Prices as the specifications of both benchmarks have them, from the keys and quantities of the lines.
#[test]
fn prices_follow_from_parts_quantities_and_discounts() {
    let mut totals: BTreeMap<u64, (u64, BTreeSet<u64>, u64)> = BTreeMap::new();
    for row in rows("lineorder") {
        let value = |at: usize| row[at].parse::<u64>().unwrap();
        let part = value(3);
        let retail = 90_000 + (part / 10) % 20_001 + 100 * (part % 1_000);
        assert_eq!(value(9), retail * value(8), "{row:?}");
        assert_eq!(value(12), value(9) * (100 - value(11)) / 100, "{row:?}");
        assert_eq!(value(13), retail * 6 / 10, "{row:?}");
        let (sum, stored, lines) = totals.entry(value(0)).or_default();
        *sum += value(12) * (100 + value(14)) / 100;
        stored.insert(value(10));
        *lines += 1;
        assert_eq!(value(1), *lines, "{row:?}");
    }
    for (order, (sum, stored, lines)) in &totals {
        assert_eq!(*stored, BTreeSet::from([*sum]), "order {order}");
        assert!((1..=7).contains(lines) && order % 32 < 8, "order {order}");
    }
}

/// Filter factors of the specification (table 3.1): shares of lineorder that the queries select. Its years are
/// sevenths, but orders end in August 1998, so a year has 0.152 of them and the last two have 0.241.
#[test]
fn queries_select_the_share_that_the_specification_states() {
    let scale: Scale = "1".parse().unwrap();
    // Orders are independent: the first tenth of them is a sample of all.
    let text = |table: &str| {
        let units = if table == "lineorder" { 150_000 } else { 1_000_000 };
        String::from_utf8(lines(table, &scale, 1, 0..units).unwrap()).unwrap()
    };
    let tables = Tables::new(text);
    assert_eq!(
        (tables.customers.len(), tables.suppliers.len(), tables.parts.len()),
        (30_000, 2_000, 200_000)
    );
    let mut counts = [0u32; 13];
    for joined in tables.joined() {
        for (count, (_, filter)) in counts.iter_mut().zip(&FILTERS) {
            *count += u32::from(filter(&joined));
        }
    }
    // The greatest difference, as a share: of years, as above; of the few suppliers of a nation or city; of 90 lines in 1.3.
    let expected = [
        ("1.1", 1.0 / 7.0 * 0.5 * 3.0 / 11.0, 0.1),
        ("1.2", 1.0 / 84.0 * 3.0 / 11.0 * 0.2, 0.15),
        ("1.3", 1.0 / 364.0 * 3.0 / 11.0 * 0.2, 0.4),
        ("2.1", 1.0 / 25.0 / 5.0, 0.1),
        ("2.2", 1.0 / 125.0 / 5.0, 0.1),
        ("2.3", 1.0 / 1000.0 / 5.0, 0.3),
        ("3.1", 1.0 / 5.0 / 5.0 * 6.0 / 7.0, 0.2),
        ("3.2", 1.0 / 25.0 / 25.0 * 6.0 / 7.0, 0.35),
        ("3.3", 1.0 / 125.0 / 125.0 * 6.0 / 7.0, 0.8),
        ("4.1", 1.0 / 5.0 / 5.0 * 2.0 / 5.0, 0.15),
        ("4.2", 2.0 / 7.0 / 5.0 / 5.0 * 2.0 / 5.0, 0.3),
        ("4.3", 2.0 / 7.0 / 5.0 / 25.0 / 25.0, 0.5),
    ];
    let total = tables.lines.len() as f64;
    for (name, share, tolerance) in expected {
        let at = FILTERS.iter().position(|(known, _)| *known == name).unwrap();
        let difference = f64::from(counts[at]) / total / share - 1.0;
        assert!(difference.abs() <= tolerance, "{name}: {} of {total}, {difference:+.3}", counts[at]);
    }
    // Of query 3.4 a line in two million is left; its month alone:
    let december: Filter = |joined: &Joined<'_>| joined.date.month_name == "Dec1997";
    let share = tables.joined().filter(december).count() as f64 / total;
    assert!((share * 84.0 - 1.0).abs() < 0.15, "{share}");
}

#[test]
fn bytes_depend_on_seed_and_scale_factor_only() {
    let dir = tempfile::tempdir().unwrap();
    let written = |name: &str, arguments: &[&str]| {
        let out = dir.path().join(name);
        let files = generated(&[&["--sf", "0.003", "--out", text(&out)], arguments].concat()).unwrap();
        let texts = files.iter().map(|made| {
            let bytes = fs::read(&made.path).unwrap();
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
            assert_eq!((made.bytes, made.rows), (bytes.len() as u64, lines as u64));
            bytes
        });
        texts.collect::<Vec<_>>()
    };
    let first = written("one", &["--threads", "1"]);
    assert_eq!(first, written("many", &["--threads", "5"]));
    let other = written("seed", &["--seed", "2"]);
    let different: Vec<bool> = first.iter().zip(&other).map(|(a, b)| a != b).collect();
    assert_eq!(different, [true, true, true, false, true]);
    // Files are replaced on demand only, and nothing else is left in the directory.
    let out = dir.path().join("one");
    let error = generated(&["--sf", "0.003", "--out", text(&out)]).unwrap_err().to_string();
    assert!(error.contains("customer.tbl") && error.contains("--force"), "{error}");
    assert_eq!(written("one", &["--force"]), first);
    assert_eq!(fs::read_dir(&out).unwrap().count(), 5);
}

#[test]
fn wrong_arguments_are_refused_with_their_value() {
    for (arguments, word) in [
        (["generate", "--sf", "0"], "0.001 to 10000"),
        (["generate", "--sf", "big"], "'big' is not a number"),
        (["run", "--dir=db", "--queries=5.1"], "'5.1' is not a query"),
        (["run", "--dir=db", "--memory=many"], "'many' is not a memory size"),
        (["load", "files", "--layout=heap"], "heap"),
    ] {
        let message = refused(&arguments);
        assert!(message.contains(word), "{message}");
    }
    let dir = tempfile::tempdir().unwrap();
    let in_the_way = dir.path().join("file");
    fs::write(&in_the_way, "").unwrap();
    let error = generated(&["--sf", "0.001", "--out", text(&in_the_way)]).unwrap_err().to_string();
    assert!(error.contains("cannot make") && error.contains(text(&in_the_way)), "{error}");
}
