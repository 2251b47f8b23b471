#![allow(clippy::unwrap_used)]

use super::*;
use crate::sources::{Next, Position};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use arrow_select::concat::concat_batches;
use std::collections::BTreeSet;

const ENTITIES: [NexmarkEntity; 3] = [NexmarkEntity::Person, NexmarkEntity::Auction, NexmarkEntity::Bid];

fn of(entity: NexmarkEntity, events: u64) -> Nexmark {
    Nexmark { events, ..Nexmark::new(entity) }
}

/// All rows from a position on, in batches of a size.
fn read(nexmark: &Nexmark, columns: &[Column], from: u64, size: usize) -> RecordBatch {
    let mut source = nexmark.source(columns).unwrap();
    source.open(Some(Position { offset: from, line: 0 })).unwrap();
    let (mut batches, mut end) = (Vec::new(), from);
    while let Next::Batch(batch) = source.next(size).unwrap() {
        end += batch.tuples.num_rows() as u64;
        assert_eq!(batch.end.offset, end);
        batches.push(batch.tuples);
    }
    concat_batches(&arrow_schema(columns, UTC), &batches).unwrap()
}

fn numbers(batch: &RecordBatch, column: &str) -> Vec<i64> {
    let array = batch.column_by_name(column).unwrap();
    if let Some(times) = array.as_primitive_opt::<TimestampMicrosecondType>() {
        return times.values().to_vec();
    }
    array.as_primitive::<Int64Type>().values().to_vec()
}

#[test]
fn of_fifty_events_one_is_a_person_and_three_are_auctions() {
    for events in [0, 1, 2, 4, 5, 49, 50, 51, 100, 12_345] {
        let rows: Vec<u64> = ENTITIES.iter().map(|entity| of(*entity, events).rows()).collect();
        assert_eq!(rows.iter().sum::<u64>(), events);
        let mut all = BTreeSet::new();
        for (entity, rows) in ENTITIES.iter().zip(&rows) {
            all.extend((0..*rows).map(|row| entity.event(row)));
        }
        assert_eq!(all.len() as u64, events, "each event is of one entity");
        assert!(all.last().is_none_or(|last| *last == events - 1));
    }
    assert_eq!(ENTITIES.map(|entity| of(entity, 1_000_000).rows()), [20_000, 60_000, 920_000]);
}

#[test]
fn any_position_gives_the_same_rows_and_columns_do_not_depend_on_others() {
    for entity in ENTITIES {
        let (nexmark, columns) = (of(entity, 5_000), entity.columns());
        let all = read(&nexmark, &columns, 0, 4096);
        assert_eq!(all.num_rows() as u64, nexmark.rows());
        assert!(all.columns().iter().all(|array| array.null_count() == 0));
        for from in [1, 7, 99] {
            let rest = read(&nexmark, &columns, from, 13);
            assert_eq!(rest, all.slice(from as usize, all.num_rows() - from as usize));
        }
        for (at, column) in columns.iter().enumerate() {
            assert_eq!(read(&nexmark, std::slice::from_ref(column), 0, 100).column(0), all.column(at));
        }
        let other = Nexmark { seed: 2, ..nexmark.clone() };
        assert_ne!(read(&other, &columns, 0, 4096), all);
    }
}

#[test]
fn keys_refer_to_what_is_there_and_hot_ones_are_many() {
    const EVENTS: u64 = 200_000;
    let [people, auctions, bids] = ENTITIES.map(|entity| {
        let columns = entity.columns();
        let numeric: Vec<Column> =
            columns.into_iter().filter(|column| column.data_type != DataType::Varchar).collect();
        read(&of(entity, EVENTS), &numeric, 0, 4096)
    });
    assert_eq!(numbers(&people, "id"), (1000..1000 + EVENTS as i64 / 50).collect::<Vec<_>>());
    assert_eq!(numbers(&auctions, "id"), (1000..1000 + 3 * EVENTS as i64 / 50).collect::<Vec<_>>());

    let times = numbers(&bids, "date_time");
    let last_auction = |at: usize| 999 + 3 * ((times[at] - START_US) / 100 / 50 + 1);
    let mut hot = 0;
    for (at, auction) in numbers(&bids, "auction").into_iter().enumerate() {
        let last = last_auction(at);
        assert!((last - 100..=last + 10).contains(&auction), "{auction} of {last}");
        hot += u64::from(auction % 100 == 0);
    }
    let share = |count: u64, of: &RecordBatch| count as f64 / of.num_rows() as f64;
    assert!((0.49..0.52).contains(&share(hot, &bids)), "half of the bids are on a hot auction");
    let of_hot = |batch: &RecordBatch, column, rest| {
        share(numbers(batch, column).iter().filter(|id| **id % 100 == rest).count() as u64, batch)
    };
    assert!((0.74..0.77).contains(&of_hot(&bids, "bidder", 1)));
    assert!((0.74..0.77).contains(&of_hot(&auctions, "seller", 0)));
    let categories: BTreeSet<i64> = numbers(&auctions, "category").into_iter().collect();
    assert_eq!(categories, (10..15).collect());

    let mut prices = numbers(&bids, "price");
    prices.sort_unstable();
    let (least, median, most) = (prices[0], prices[prices.len() / 2], prices[prices.len() - 1]);
    assert!((100..110).contains(&least) && (95_000_000..=100_000_000).contains(&most), "{least} {most}");
    assert!((95_000..105_000).contains(&median), "{median}");
    let lengths = numbers(&auctions, "expires").into_iter().zip(numbers(&auctions, "date_time"));
    let lengths: Vec<i64> = lengths.map(|(expires, begins)| expires - begins).collect();
    assert!(lengths.iter().all(|length| (1000..=335_000).contains(length)));
    let pairs = numbers(&auctions, "reserve").into_iter().zip(numbers(&auctions, "initial_bid"));
    assert!(pairs.into_iter().all(|(reserve, initial)| reserve >= initial + 100));
}

#[test]
fn strings_have_the_forms_that_queries_look_for() {
    let bids = read(&of(NexmarkEntity::Bid, 50_000), &NexmarkEntity::Bid.columns(), 0, 4096);
    let strings = |batch: &RecordBatch, column: &str| -> Vec<String> {
        let array = batch.column_by_name(column).unwrap().as_string::<i32>().clone();
        array.iter().map(|text| text.unwrap().to_owned()).collect()
    };
    let urls = strings(&bids, "url");
    let with_id = urls.iter().filter(|url| url.contains("&channel_id=")).count() as f64 / urls.len() as f64;
    assert!((0.42..0.48).contains(&with_id), "{with_id}");
    for (channel, url) in strings(&bids, "channel").iter().zip(&urls) {
        let parts: Vec<&str> = url.split('/').collect();
        assert_eq!((parts.len(), parts[2]), (7, "www.nexmark.com"));
        assert!(parts[3..6].iter().all(|folder| folder.len() == 5));
        assert!(channel.starts_with("channel-") || !url.contains("channel_id"), "{channel} {url}");
    }
    let extra = strings(&bids, "extra");
    assert!(extra.iter().all(|text| (55..=81).contains(&text.len())));
    assert!(extra.iter().flat_map(|text| text.bytes()).all(|byte| byte.is_ascii_lowercase()));

    let people = read(&of(NexmarkEntity::Person, 50_000), &NexmarkEntity::Person.columns(), 0, 4096);
    assert!(
        strings(&people, "email_address").iter().all(|email| email.ends_with(".com") && email.contains('@'))
    );
    assert!(strings(&people, "credit_card").iter().all(|card| card.len() == 19));
    assert_eq!(strings(&people, "state").into_iter().collect::<BTreeSet<_>>().len(), 6);
}

#[test]
fn columns_that_events_do_not_have_are_refused() {
    let bids = Nexmark::new(NexmarkEntity::Bid);
    let refused = |column: Column| bids.source(&[column]).err().unwrap();
    assert_eq!(
        refused(Column::new("seller", DataType::BigInt)),
        "column seller BIGINT is none of the entity bid, whose columns are auction BIGINT, bidder BIGINT, \
         price BIGINT, channel VARCHAR, url VARCHAR, date_time TIMESTAMP, extra VARCHAR"
    );
    assert!(refused(Column::new("price", DataType::Int)).starts_with("column price INT is none"));
    assert!("bidder".parse::<NexmarkEntity>().unwrap_err().contains("person, auction and bid"));
}
