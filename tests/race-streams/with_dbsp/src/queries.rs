//! The queries, as circuits. A window is a group by its begin: its rows are in the result from its first event on, and
//! change with each. What a window needs is dropped when the waterline has passed its end; rows come at most four
//! seconds late.

use crate::Output;
use crate::input::{self, Source};
use anyhow::{Result, bail};
use dbsp::dynamic::DynData;
use dbsp::operator::Max;
use dbsp::typed_batch::{IndexedZSetReader, TypedBox};
use dbsp::utils::{Tup2, Tup3, Tup4};
use dbsp::{DBData, OrdIndexedZSet, OrdZSet, RootCircuit, Stream};

const WINDOW_US: i64 = 10_000_000;
/// Step between windows that overlap.
const STEP_US: i64 = 2_000_000;
const LATE_US: i64 = 4_000_000;

/// Writes the changes of the result by the last transaction.
pub type Changes = Box<dyn FnMut(&mut Output) -> Result<()> + Send>;
/// Files that a query reads, and its result.
pub type Query = (Vec<Source>, Changes);
/// Builds the circuit of a query.
pub type Build = fn(&mut RootCircuit) -> Result<Query>;
type Rows<K> = Stream<RootCircuit, OrdZSet<K>>;
/// Prices by auction, expiry and another column.
type WinningBids = Stream<RootCircuit, OrdIndexedZSet<Tup3<i64, i64, i64>, i64>>;
/// Time before which no more rows come.
type Waterline = Stream<RootCircuit, TypedBox<i64, DynData>>;

/// The query of a name.
pub fn named(name: &str) -> Result<Build> {
    Ok(match name {
        "q0" => q0,
        "q1" => q1,
        "q2" => q2,
        "q3" => q3,
        "q4" => q4,
        "q5" => q5,
        "q6" => q6,
        "q7" => q7,
        "q8" => q8,
        "q12" => q12,
        _ => bail!("no query {name}"),
    })
}

/// Begin of the window of an event time.
fn window(at: i64) -> i64 {
    at - at.rem_euclid(WINDOW_US)
}

/// Returns true if rows may still come for the window that begins at a time.
fn is_open(from: i64, waterline: i64) -> bool {
    from + WINDOW_US > waterline
}

/// Waterline of rows that begin with their event time.
fn waterline<K: DBData>(rows: &Rows<K>, at: fn(&K) -> i64) -> Waterline {
    rows.waterline_monotonic(|| i64::MIN, move |row| at(row) - LATE_US)
}

/// Drops the groups of windows that have ended from the state of the operators that read them.
fn drop_ended<K: DBData, V: DBData>(
    groups: &Stream<RootCircuit, OrdIndexedZSet<K, V>>,
    waterline: &Waterline,
    from: fn(&K) -> i64,
) {
    let is_kept = move |key: &K, waterline: &i64| is_open(from(key), *waterline);
    groups.accumulate_integrate_trace_retain_keys(waterline, is_kept);
}

/// Row of a result as the numbers of its columns.
trait Columns: DBData {
    fn columns(&self) -> impl AsRef<[i64]>;
}

impl Columns for Tup2<i64, i64> {
    fn columns(&self) -> impl AsRef<[i64]> {
        [self.0, self.1]
    }
}

impl Columns for Tup3<i64, i64, i64> {
    fn columns(&self) -> impl AsRef<[i64]> {
        [self.0, self.1, self.2]
    }
}

impl Columns for Tup4<i64, i64, i64, i64> {
    fn columns(&self) -> impl AsRef<[i64]> {
        [self.0, self.1, self.2, self.3]
    }
}

/// Writer of the changes of a result.
fn changes<K: Columns>(result: &Rows<K>) -> Changes {
    let handle = result.accumulate_output();
    Box::new(move |output| {
        for (row, (), weight) in handle.concat().consolidate().iter() {
            output.change(row.columns().as_ref(), weight)?;
        }
        Ok(())
    })
}

/// Bids of all columns: event time, auction, bidder, price.
fn all_of_bids(circuit: &mut RootCircuit) -> (Rows<Tup4<i64, i64, i64, i64>>, Source) {
    input::source(circuit, "bid", &["at_us", "auction", "bidder", "price"], |row| {
        Ok(Tup4(row.number(0)?, row.number(1)?, row.number(2)?, row.number(3)?))
    })
}

fn q0(circuit: &mut RootCircuit) -> Result<Query> {
    let (bids, source) = all_of_bids(circuit);
    let passed = bids.map(|Tup4(at, auction, bidder, price)| Tup4(*auction, *bidder, *price, *at));
    Ok((vec![source], changes(&passed)))
}

fn q1(circuit: &mut RootCircuit) -> Result<Query> {
    let (bids, source) = all_of_bids(circuit);
    let euro = bids.map(|Tup4(at, auction, bidder, price)| Tup4(*auction, *bidder, 908 * price, *at));
    Ok((vec![source], changes(&euro)))
}

fn q2(circuit: &mut RootCircuit) -> Result<Query> {
    let (bids, source) = input::source(circuit, "bid", &["at_us", "auction", "price"], |row| {
        Ok(Tup3(row.number(0)?, row.number(1)?, row.number(2)?))
    });
    let chosen = bids.filter(|Tup3(_, auction, _)| auction % 123 == 0);
    Ok((vec![source], changes(&chosen.map(|Tup3(_, auction, price)| Tup2(*auction, *price)))))
}

fn q3(circuit: &mut RootCircuit) -> Result<Query> {
    let (people, of_people) = input::source(circuit, "person", &["at_us", "person", "state"], |row| {
        Ok(Tup3(row.number(0)?, row.number(1)?, row.string(2)?.to_string()))
    });
    let columns = &["at_us", "auction", "seller", "category"];
    let (auctions, of_auctions) = input::source(circuit, "auction", columns, |row| {
        Ok(Tup4(row.number(0)?, row.number(1)?, row.number(2)?, row.number(3)?))
    });
    let near = people.filter(|Tup3(_, _, state)| matches!(state.as_str(), "OR" | "ID" | "CA"));
    let sellers = near.map_index(|Tup3(_, person, _)| (*person, ()));
    let offers = auctions.filter(|Tup4(_, _, _, category)| *category == 10);
    let by_seller = offers.map_index(|Tup4(_, auction, seller, _)| (*seller, *auction));
    let joined = by_seller.join(&sellers, |seller, auction, ()| Tup2(*auction, *seller));
    Ok((vec![of_people, of_auctions], changes(&joined)))
}

/// Highest price of each auction, with the time at which it expires and another of its columns, among the bids while it was
/// open.
fn winning_bids(
    circuit: &mut RootCircuit,
    columns: &'static [&'static str; 4],
) -> (WinningBids, Vec<Source>) {
    let (bids, of_bids) = input::source(circuit, "bid", &["at_us", "auction", "price"], |row| {
        Ok(Tup3(row.number(0)?, row.number(1)?, row.number(2)?))
    });
    let (auctions, of_auctions) = input::source(circuit, "auction", columns, |row| {
        Ok(Tup4(row.number(0)?, row.number(1)?, row.number(2)?, row.number(3)?))
    });
    let auctions = auctions.map_index(|Tup4(at, expires, auction, of)| (*auction, Tup3(*at, *expires, *of)));
    let bids = bids.map_index(|Tup3(at, auction, price)| (*auction, Tup2(*at, *price)));
    let valid = auctions.join_index(&bids, |auction, Tup3(from, to, of), Tup2(at, price)| {
        (from..=to).contains(&at).then_some((Tup3(*auction, *to, *of), *price))
    });
    (valid.aggregate(Max), vec![of_bids, of_auctions])
}

fn q4(circuit: &mut RootCircuit) -> Result<Query> {
    let (winning, sources) = winning_bids(circuit, &["at_us", "expires_us", "auction", "category"]);
    let by_category = winning.map_index(|(Tup3(_, _, category), price)| (*category, *price));
    let prices = by_category.aggregate_linear(|price| Tup2(1, *price));
    let result = prices.map(|(category, Tup2(auctions, prices))| Tup3(*category, *auctions, *prices));
    Ok((sources, changes(&result)))
}

fn q6(circuit: &mut RootCircuit) -> Result<Query> {
    let (winning, sources) = winning_bids(circuit, &["at_us", "expires_us", "auction", "seller"]);
    let by_seller = winning
        .map_index(|(Tup3(auction, expires, seller), price)| (*seller, Tup3(*expires, *auction, *price)));
    let prices = by_seller.topk_desc(10).aggregate_linear(|Tup3(_, _, price)| Tup2(1, *price));
    let result = prices.map(|(seller, Tup2(auctions, prices))| Tup3(*seller, *auctions, *prices));
    Ok((sources, changes(&result)))
}

fn q5(circuit: &mut RootCircuit) -> Result<Query> {
    let (bids, source) =
        input::source(circuit, "bid", &["at_us", "auction"], |row| Ok(Tup2(row.number(0)?, row.number(1)?)));
    let waterline = waterline(&bids, |bid| bid.0);
    let by_window = bids.flat_map_index(|Tup2(at, auction)| {
        let (last, auction) = (at - at.rem_euclid(STEP_US), *auction);
        (0..WINDOW_US / STEP_US).map(move |step| (Tup2(last - step * STEP_US, auction), ()))
    });
    let counted = by_window.aggregate_linear_retain_keys(
        &waterline,
        |key, waterline| is_open(key.0, *waterline),
        |()| 1_i64,
    );
    drop_ended(&counted, &waterline, |key| key.0);
    // The older of auctions with the same number is the greater one here.
    let counts = counted.map_index(|(Tup2(from, auction), bids)| (*from, Tup2(*bids, -auction)));
    drop_ended(&counts, &waterline, |from| *from);
    let hot = counts.aggregate(Max);
    drop_ended(&hot, &waterline, |from| *from);
    Ok((vec![source], changes(&hot.map(|(from, Tup2(bids, auction))| Tup3(*from, -auction, *bids)))))
}

fn q7(circuit: &mut RootCircuit) -> Result<Query> {
    let (bids, source) =
        input::source(circuit, "bid", &["at_us", "price"], |row| Ok(Tup2(row.number(0)?, row.number(1)?)));
    let waterline = waterline(&bids, |bid| bid.0);
    let by_window = bids.map_index(|Tup2(at, price)| (window(*at), *price));
    drop_ended(&by_window, &waterline, |from| *from);
    let highest = by_window.aggregate(Max);
    drop_ended(&highest, &waterline, |from| *from);
    Ok((vec![source], changes(&highest.map(|(from, price)| Tup2(*from, *price)))))
}

fn q8(circuit: &mut RootCircuit) -> Result<Query> {
    let row = |row: &input::Records| Ok(Tup2(row.number(0)?, row.number(1)?));
    let (people, of_people) = input::source(circuit, "person", &["at_us", "person"], row);
    let (auctions, of_auctions) = input::source(circuit, "auction", &["at_us", "seller"], row);
    let waterline = waterline(&people, |row| row.0)
        .apply2(&waterline(&auctions, |row| row.0), |people, auctions| {
            TypedBox::new((**people).min(**auctions))
        });
    let once = |rows: &Rows<Tup2<i64, i64>>| {
        let active = rows.map(|Tup2(at, person)| Tup2(*person, window(*at)));
        active
            .accumulate_integrate_trace_retain_keys(&waterline, |key, waterline| is_open(key.1, *waterline));
        let once = active.distinct().map_index(|key| (*key, ()));
        drop_ended(&once, &waterline, |key| key.1);
        once
    };
    let joined = once(&people).join(&once(&auctions), |key, (), ()| *key);
    Ok((vec![of_people, of_auctions], changes(&joined)))
}

fn q12(circuit: &mut RootCircuit) -> Result<Query> {
    let (bids, source) = input::source(circuit, "bid", &["at_us", "bidder", "price"], |row| {
        Ok(Tup3(row.number(0)?, row.number(1)?, row.number(2)?))
    });
    let waterline = waterline(&bids, |bid| bid.0);
    let by_bidder = bids.map_index(|Tup3(at, bidder, price)| (Tup2(*bidder, window(*at)), *price));
    let counted = by_bidder.aggregate_linear_retain_keys(
        &waterline,
        |key, waterline| is_open(key.1, *waterline),
        |price| Tup2(1, *price),
    );
    drop_ended(&counted, &waterline, |key| key.1);
    let result = counted.map(|(Tup2(bidder, from), Tup2(bids, prices))| Tup4(*bidder, *from, *bids, *prices));
    Ok((vec![source], changes(&result)))
}
