//! Events of the NEXMark benchmark: people who open auctions, and bids on them.
//!
//! - Of 50 events one is a person, three are auctions and 46 are bids, always in this order. A source has those
//!   of one entity, and its position is their number, so three sources agree on one stream of events.
//! - An event is computed from its number and the seed alone, and each column from a draw of its own: any
//!   position can be computed directly, and a column has the same values whichever others are there.
//! - Proportions, hot keys and sizes of strings are those that the benchmark publishes (`events.rs`); the values
//!   are not those of another generator.
//! - Memory: the strings of 10,000 channels, about a megabyte, if `channel` or `url` is there.

mod events;
mod strings;

use crate::UTC;
use crate::sources::Source;
use crate::sources::generator::GeneratorSource;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use entresol_tables::{Column, DataType, arrow_schema};
use events::{Draws, Prices};
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;
use strings::{Channels, Letters};

/// 2026-01-01 00:00:00 in microseconds.
const START_US: i64 = 1_767_225_600_000_000;
/// Events in a second of event time.
const EVENTS_PER_SECOND: u64 = 10_000;
const SEED: u64 = 1;
const NANOS: u64 = 1_000_000_000;

/// Kind of the events that a source has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NexmarkEntity {
    /// People.
    Person,
    /// Auctions that they open.
    Auction,
    /// Bids on auctions.
    Bid,
}

/// Events of one kind.
#[derive(Debug, Clone)]
pub struct Nexmark {
    /// Kind.
    pub entity: NexmarkEntity,
    /// Number of events of all kinds, of which the source has its part.
    pub events: u64,
    /// Event time of the first event, in microseconds.
    pub start_us: i64,
    /// Events of all kinds in a second of event time, up to 1,000,000,000.
    pub events_per_second: u64,
    /// Seed of all draws.
    pub seed: u64,
}

impl FromStr for NexmarkEntity {
    type Err = String;

    fn from_str(text: &str) -> Result<NexmarkEntity, String> {
        match text {
            "person" => Ok(NexmarkEntity::Person),
            "auction" => Ok(NexmarkEntity::Auction),
            "bid" => Ok(NexmarkEntity::Bid),
            _ => Err(format!("entity \"{text}\" does not exist; there are person, auction and bid")),
        }
    }
}

impl NexmarkEntity {
    /// Name, as it is parsed.
    pub fn name(self) -> &'static str {
        match self {
            NexmarkEntity::Person => "person",
            NexmarkEntity::Auction => "auction",
            NexmarkEntity::Bid => "bid",
        }
    }

    /// All columns that its events have.
    pub fn columns(self) -> Vec<Column> {
        use DataType::{BigInt, Timestamp, Varchar};
        let columns: &[(&str, DataType)] = match self {
            NexmarkEntity::Person => &[
                ("id", BigInt),
                ("name", Varchar),
                ("email_address", Varchar),
                ("credit_card", Varchar),
                ("city", Varchar),
                ("state", Varchar),
                ("date_time", Timestamp),
                ("extra", Varchar),
            ],
            NexmarkEntity::Auction => &[
                ("id", BigInt),
                ("item_name", Varchar),
                ("description", Varchar),
                ("initial_bid", BigInt),
                ("reserve", BigInt),
                ("date_time", Timestamp),
                ("expires", Timestamp),
                ("seller", BigInt),
                ("category", BigInt),
                ("extra", Varchar),
            ],
            NexmarkEntity::Bid => &[
                ("auction", BigInt),
                ("bidder", BigInt),
                ("price", BigInt),
                ("channel", Varchar),
                ("url", Varchar),
                ("date_time", Timestamp),
                ("extra", Varchar),
            ],
        };
        columns.iter().map(|(name, data_type)| Column::new(*name, *data_type).not_null()).collect()
    }
}

impl Nexmark {
    /// Events of a kind without end, 10,000 in a second of event time.
    pub fn new(entity: NexmarkEntity) -> Nexmark {
        let (events, start_us, events_per_second, seed) = (u64::MAX, START_US, EVENTS_PER_SECOND, SEED);
        Nexmark { entity, events, start_us, events_per_second, seed }
    }

    /// Number of rows that a source of them has.
    pub fn rows(&self) -> u64 {
        self.entity.rows(self.events)
    }

    /// Source of some of the columns of the events; only these are computed. Fails if a column is none of
    /// [`NexmarkEntity::columns`], or of another type.
    pub fn source(&self, columns: &[Column]) -> Result<Box<dyn Source>, String> {
        let known = self.entity.columns();
        for column in columns {
            let found = known.iter().find(|known| known.name == column.name);
            if found
                .is_none_or(|found| (found.data_type, found.modifier) != (column.data_type, column.modifier))
            {
                let all: Vec<String> =
                    known.iter().map(|known| format!("{} {}", known.name, known.data_type)).collect();
                return Err(format!(
                    "column {} {} is none of the entity {}, whose columns are {}",
                    column.name,
                    column.data_type,
                    self.entity.name(),
                    all.join(", ")
                ));
            }
        }
        let (rows, schema) = (self.rows(), arrow_schema(columns, UTC));
        let generator = Generator::new(self, columns);
        let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        Ok(Box::new(GeneratorSource::batches(columns.to_vec(), move |first, tuples_max| {
            let range = first.min(rows)..rows.min(first.saturating_add(tuples_max as u64));
            let arrays = names.iter().map(|name| generator.array(name, range.clone())).collect();
            RecordBatch::try_new(Arc::clone(&schema), arrays).expect("the arrays are of the columns")
        })))
    }
}

/// Arrays of columns.
struct Generator {
    entity: NexmarkEntity,
    draws: Draws,
    prices: Prices,
    channels: Channels,
    start_us: i64,
    /// Event time between two events.
    step_ns: u64,
}

impl Generator {
    fn new(nexmark: &Nexmark, columns: &[Column]) -> Generator {
        let has_channels = columns.iter().any(|column| ["channel", "url"].contains(&column.name.as_str()));
        Generator {
            entity: nexmark.entity,
            draws: Draws::new(nexmark.seed),
            prices: Prices::new(),
            channels: Channels::new(nexmark.seed, has_channels),
            start_us: nexmark.start_us,
            step_ns: NANOS / nexmark.events_per_second.max(1),
        }
    }

    fn time_us(&self, event: u64) -> i64 {
        self.start_us.saturating_add_unsigned(event.saturating_mul(self.step_ns) / 1000)
    }

    /// Array of a column of the rows of a range.
    fn array(&self, column: &str, rows: Range<u64>) -> ArrayRef {
        match self.entity {
            NexmarkEntity::Person => self.of_people(column, rows),
            NexmarkEntity::Auction => self.of_auctions(column, rows),
            NexmarkEntity::Bid => self.of_bids(column, rows),
        }
    }

    fn numbers(&self, rows: Range<u64>, value: impl Fn(u64) -> u64) -> ArrayRef {
        let values: Vec<i64> = rows.map(|row| value(self.entity.event(row)) as i64).collect();
        Arc::new(Int64Array::from(values))
    }

    fn times(&self, rows: Range<u64>, after_us: impl Fn(u64) -> i64) -> ArrayRef {
        let value = |event| self.time_us(event).saturating_add(after_us(event));
        let values: Vec<i64> = rows.map(|row| value(self.entity.event(row))).collect();
        Arc::new(TimestampMicrosecondArray::from(values))
    }

    /// Strings, of which `value` appends the one of an event.
    fn strings(&self, rows: Range<u64>, bytes: usize, value: impl Fn(u64, &mut Letters)) -> ArrayRef {
        let mut letters = Letters::with_capacity((rows.end - rows.start) as usize, bytes);
        for row in rows {
            value(self.entity.event(row), &mut letters);
            letters.end_of_string();
        }
        Arc::new(letters.finish())
    }

    fn chosen(&self, rows: Range<u64>, draw: u64, of: &[&str]) -> ArrayRef {
        let value = |row| strings::one(of, self.draws.at(self.entity.event(row), draw));
        Arc::new(StringArray::from_iter_values(rows.map(value)))
    }

    fn extra(&self, rows: Range<u64>, draw: u64) -> ArrayRef {
        let bytes = self.entity.extra_bytes();
        self.strings(rows, bytes, |event, letters| letters.push_about(self.draws.at(event, draw), bytes))
    }

    fn of_people(&self, column: &str, rows: Range<u64>) -> ArrayRef {
        let draw = |event, number| self.draws.at(event, number);
        match column {
            "id" => self.numbers(rows, events::person_id),
            "name" => self.strings(rows, strings::NAME_BYTES, |event, name| name.push_name(draw(event, 0))),
            "email_address" => {
                self.strings(rows, strings::EMAIL_BYTES, |event, email| email.push_email(draw(event, 1)))
            }
            "credit_card" => {
                self.strings(rows, strings::CARD_BYTES, |event, card| card.push_card(draw(event, 2)))
            }
            "city" => self.chosen(rows, 3, &strings::CITIES),
            "state" => self.chosen(rows, 4, &strings::STATES),
            "date_time" => self.times(rows, |_| 0),
            _ => self.extra(rows, 5),
        }
    }

    fn of_auctions(&self, column: &str, rows: Range<u64>) -> ArrayRef {
        let draw = |event, number| self.draws.at(event, number);
        let initial = |event| self.prices.of(draw(event, 2));
        match column {
            "id" => self.numbers(rows, events::auction_id),
            "item_name" => self.strings(rows, strings::ITEM_BYTES_MAX, |event, name| {
                name.push_up_to(draw(event, 0), strings::ITEM_BYTES_MAX);
            }),
            "description" => self.strings(rows, strings::DESCRIPTION_BYTES_MAX, |event, text| {
                text.push_up_to(draw(event, 1), strings::DESCRIPTION_BYTES_MAX);
            }),
            "initial_bid" => self.numbers(rows, initial),
            "reserve" => self.numbers(rows, |event| initial(event) + self.prices.of(draw(event, 3))),
            "date_time" => self.times(rows, |_| 0),
            "expires" => self.times(rows, |event| events::duration_us(draw(event, 4), self.step_ns)),
            "seller" => self.numbers(rows, |event| events::seller(event, draw(event, 5))),
            "category" => self.numbers(rows, |event| events::category(draw(event, 6))),
            _ => self.extra(rows, 7),
        }
    }

    fn of_bids(&self, column: &str, rows: Range<u64>) -> ArrayRef {
        let draw = |event, number| self.draws.at(event, number);
        let channel = |row| events::channel(draw(self.entity.event(row), 3));
        match column {
            "auction" => self.numbers(rows, |event| events::bid_auction(event, draw(event, 0))),
            "bidder" => self.numbers(rows, |event| events::bidder(event, draw(event, 1))),
            "price" => self.numbers(rows, |event| self.prices.of(draw(event, 2))),
            "channel" => {
                Arc::new(StringArray::from_iter_values(rows.map(|row| self.channels.name(channel(row)))))
            }
            "url" => Arc::new(StringArray::from_iter_values(rows.map(|row| self.channels.url(channel(row))))),
            "date_time" => self.times(rows, |_| 0),
            _ => self.extra(rows, 4),
        }
    }
}

#[cfg(test)]
mod tests;
