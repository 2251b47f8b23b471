//! The demo's feeds as sources of topologies.
//!
//! The position of a source is the index in its feed. The infrastructure follows the households: a reading is
//! emitted once all household windows up to the end of its own window are committed. So the transaction that
//! closes its window, which begins with it or later, finds the demand of the households in its snapshot, and
//! its writes depend on the streams alone, not on which of them is faster.

use super::crash::oracle::double;
use super::feed::{Feed, HouseholdReading, InfrastructureReading, Revision, WINDOW_US};
use super::live::LiveCounters;
use entresol::streams::{Next, Position, Source, SourceBatch, Tuple};
use entresol::tables::{BatchBuilder, Column, DataType, Value};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

/// Maximum time that the infrastructure waits for the households at once.
const WAIT: Duration = Duration::from_micros(500);

/// A source that follows the households, and the event time of its items.
struct FollowedHouseholds<T> {
    time_us: fn(&T) -> i64,
    live: Arc<LiveCounters>,
}

/// A feed as a source.
pub struct FeedSource<F: Feed> {
    feed: F,
    columns: Vec<Column>,
    /// Builder of batches, and the tuple of an item.
    builder: BatchBuilder,
    to_tuple: fn(&F::Item, &mut Tuple),
    follows: Option<FollowedHouseholds<F::Item>>,
    position: u64,
    held: Option<F::Item>,
}

impl<F: Feed> FeedSource<F> {
    fn new(
        feed: F,
        columns: Vec<Column>,
        to_tuple: fn(&F::Item, &mut Tuple),
        follows: Option<FollowedHouseholds<F::Item>>,
    ) -> FeedSource<F> {
        let builder = BatchBuilder::new(&columns, 0);
        FeedSource { feed, columns, builder, to_tuple, follows, position: 0, held: None }
    }

    fn next_item(&mut self) -> Option<F::Item> {
        self.held.take().or_else(|| self.feed.at(self.position))
    }
}

impl<F: Feed> Source for FeedSource<F>
where
    F::Item: Send,
{
    fn columns(&self) -> Vec<Column> {
        self.columns.clone()
    }

    fn open(&mut self, from: Option<Position>) -> entresol::streams::Result<()> {
        self.position = from.unwrap_or_default().offset;
        self.held = None;
        Ok(())
    }

    fn next(&mut self, tuples_max: usize) -> entresol::streams::Result<Next> {
        let first = self.position;
        let mut tuple = Tuple::new();
        while self.builder.len() < tuples_max {
            let Some(item) = self.next_item() else {
                if self.builder.is_empty() {
                    return Ok(Next::End);
                }
                break;
            };
            if let Some(FollowedHouseholds { time_us, live }) = &self.follows {
                let window_end_us = (time_us(&item).div_euclid(WINDOW_US) + 1) * WINDOW_US;
                if live.household_closed_us.load(Ordering::Acquire) < window_end_us {
                    self.held = Some(item);
                    if self.builder.is_empty() {
                        thread::sleep(WAIT);
                        return Ok(Next::Idle);
                    }
                    break;
                }
            }
            self.position += 1;
            tuple.clear();
            (self.to_tuple)(&item, &mut tuple);
            if let Err(reason) = self.builder.push(&tuple) {
                return Ok(Next::Invalid(reason));
            }
        }
        Ok(Next::Batch(SourceBatch::counted(self.builder.finish(), first)))
    }
}

/// Stream 1: `time, meter, feeder, kw, voltage`.
pub fn household(
    feed: Box<dyn Feed<Item = HouseholdReading>>,
) -> FeedSource<Box<dyn Feed<Item = HouseholdReading>>> {
    let columns = vec![
        Column::new("time", DataType::Timestamp).not_null(),
        Column::new("meter", DataType::Int).not_null(),
        Column::new("feeder", DataType::Int).not_null(),
        Column::new("kw", DataType::Double),
        Column::new("voltage", DataType::Double),
    ];
    let to_tuple = |reading: &HouseholdReading, tuple: &mut Tuple| {
        tuple.extend([
            Value::Timestamp(reading.time_us),
            Value::Int(reading.meter as i32),
            Value::Int(reading.feeder as i32),
            double(reading.active_kw),
            double(reading.voltage),
        ]);
    };
    FeedSource::new(feed, columns, to_tuple, None)
}

/// Stream 2: `time, asset, quantity, reading`.
pub fn infrastructure(
    feed: Box<dyn Feed<Item = InfrastructureReading>>,
    live: Arc<LiveCounters>,
) -> FeedSource<Box<dyn Feed<Item = InfrastructureReading>>> {
    let columns = vec![
        Column::new("time", DataType::Timestamp).not_null(),
        Column::new("asset", DataType::Varchar).not_null(),
        Column::new("quantity", DataType::Varchar).not_null(),
        Column::new("reading", DataType::Double),
    ];
    let to_tuple = |reading: &InfrastructureReading, tuple: &mut Tuple| {
        tuple.extend([
            Value::Timestamp(reading.time_us),
            Value::from(reading.channel.asset.as_str()),
            Value::from(reading.channel.quantity.as_str()),
            double(reading.value),
        ]);
    };
    let follows =
        Some(FollowedHouseholds { time_us: |reading: &InfrastructureReading| reading.time_us, live });
    FeedSource::new(feed, columns, to_tuple, follows)
}

/// Stream 3: the columns of the table `specification`.
pub fn specification(feed: Box<dyn Feed<Item = Revision>>) -> FeedSource<Box<dyn Feed<Item = Revision>>> {
    let columns = vec![
        Column::new("asset", DataType::Varchar).not_null(),
        Column::new("quantity", DataType::Varchar).not_null(),
        Column::new("low", DataType::Double).not_null(),
        Column::new("high", DataType::Double).not_null(),
        Column::new("per_demand_max", DataType::Double),
        Column::new("revision", DataType::Int).not_null(),
        Column::new("valid_from", DataType::Timestamp).not_null(),
    ];
    let to_tuple = |revision: &Revision, tuple: &mut Tuple| {
        tuple.extend([
            Value::from(revision.channel.asset.as_str()),
            Value::from(revision.channel.quantity.as_str()),
            Value::Double(revision.low),
            Value::Double(revision.high),
            double(revision.per_demand_max),
            Value::Int(revision.revision as i32),
            Value::Timestamp(revision.time_us),
        ]);
    };
    FeedSource::new(feed, columns, to_tuple, None)
}
