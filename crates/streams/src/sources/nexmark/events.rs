//! Numbers of events, and the keys and amounts drawn for them.
//!
//! Every draw is a 64-bit number: low bits choose between hot and cold, high bits within them.

use crate::sources::generator::mixed;
use crate::sources::nexmark::NexmarkEntity;

/// Events of a group, of which the first is a person, and the next are auctions.
const GROUP: u64 = 50;
const PEOPLE: u64 = 1;
const AUCTIONS: u64 = 3;
const BIDS: u64 = GROUP - PEOPLE - AUCTIONS;

/// First identifiers.
const FIRST_PERSON: u64 = 1000;
const FIRST_AUCTION: u64 = 1000;
const FIRST_CATEGORY: u64 = 10;
const CATEGORIES: u64 = 5;

/// Auctions that are open at a time, and people who sell and bid.
const OPEN_AUCTIONS: u64 = 100;
const ACTIVE_PEOPLE: u64 = 1000;
/// Identifiers ahead of the last ones, which events may refer to before they exist.
const LEAD: u64 = 10;

/// One of this many people and auctions is hot.
const HOT_EVERY: u64 = 100;
/// Of so many draws one is cold: half of the bids are on a hot auction, three quarters by a hot bidder, and
/// three quarters of the auctions are of a hot seller.
const COLD_AUCTION: u64 = 2;
const COLD_BIDDER: u64 = 4;
const COLD_SELLER: u64 = 4;

/// Channels of bids beside the hot ones, through which half of the bids come.
pub(super) const CHANNELS: u64 = 10_000;
pub(super) const HOT_CHANNELS: u64 = 4;
const COLD_CHANNEL: u64 = 2;

/// Draws per event that have numbers.
const DRAWS: u64 = 16;
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

impl NexmarkEntity {
    /// Number of rows among the first events.
    pub(super) fn rows(self, events: u64) -> u64 {
        let (groups, rest) = (events / GROUP, events % GROUP);
        match self {
            NexmarkEntity::Person => groups * PEOPLE + rest.min(PEOPLE),
            NexmarkEntity::Auction => groups * AUCTIONS + rest.saturating_sub(PEOPLE).min(AUCTIONS),
            NexmarkEntity::Bid => groups * BIDS + rest.saturating_sub(PEOPLE + AUCTIONS),
        }
    }

    /// Event number of a row.
    #[inline]
    pub(super) fn event(self, row: u64) -> u64 {
        match self {
            NexmarkEntity::Person => row * GROUP,
            NexmarkEntity::Auction => row / AUCTIONS * GROUP + PEOPLE + row % AUCTIONS,
            NexmarkEntity::Bid => row / BIDS * GROUP + PEOPLE + AUCTIONS + row % BIDS,
        }
    }

    /// Mean bytes of the column `extra`: an event has about 100 bytes if it is a bid, 500 if it is an auction,
    /// 200 if it is a person.
    pub(super) fn extra_bytes(self) -> usize {
        match self {
            NexmarkEntity::Person => 134,
            NexmarkEntity::Auction => 388,
            NexmarkEntity::Bid => 68,
        }
    }
}

/// Random numbers of events.
pub(super) struct Draws {
    base: u64,
}

impl Draws {
    pub(super) fn new(seed: u64) -> Draws {
        Draws { base: mixed(seed) }
    }

    /// Draw of an event; `number` is below 16.
    #[inline]
    pub(super) fn at(&self, event: u64, number: u64) -> u64 {
        debug_assert!(number < DRAWS);
        mixed(self.base.wrapping_add(event.wrapping_mul(DRAWS).wrapping_add(number).wrapping_mul(GOLDEN)))
    }
}

/// Number below a bound, by the high bits of a draw.
#[inline]
pub(super) fn below(draw: u64, bound: u64) -> u64 {
    ((u128::from(draw) * u128::from(bound)) >> 64) as u64
}

/// Number of the last person, from 0, when an event comes.
#[inline]
fn last_person(event: u64) -> u64 {
    event / GROUP
}

/// Number of auctions up to an event that is an auction or a bid.
#[inline]
fn auctions(event: u64) -> u64 {
    event / GROUP * AUCTIONS + (event % GROUP).min(AUCTIONS)
}

#[inline]
pub(super) fn person_id(event: u64) -> u64 {
    FIRST_PERSON + last_person(event)
}

#[inline]
pub(super) fn auction_id(event: u64) -> u64 {
    FIRST_AUCTION + auctions(event) - 1
}

/// Identifier of an active person, or of one that comes soon.
#[inline]
fn cold_person(event: u64, draw: u64) -> u64 {
    let people = last_person(event) + 1;
    let active = people.min(ACTIVE_PEOPLE);
    FIRST_PERSON + people - active + below(draw, active + LEAD)
}

#[inline]
pub(super) fn seller(event: u64, draw: u64) -> u64 {
    if draw.is_multiple_of(COLD_SELLER) {
        return cold_person(event, draw);
    }
    FIRST_PERSON + last_person(event) / HOT_EVERY * HOT_EVERY
}

/// Person of a bid. A hot one is not a hot seller.
#[inline]
pub(super) fn bidder(event: u64, draw: u64) -> u64 {
    if draw.is_multiple_of(COLD_BIDDER) {
        return cold_person(event, draw);
    }
    FIRST_PERSON + last_person(event) / HOT_EVERY * HOT_EVERY + 1
}

/// Auction of a bid: a hot one, or one that is open or comes soon.
#[inline]
pub(super) fn bid_auction(event: u64, draw: u64) -> u64 {
    let last = auctions(event) - 1;
    let first_open = last.saturating_sub(OPEN_AUCTIONS);
    let hot = last / HOT_EVERY * HOT_EVERY;
    let cold = first_open + below(draw, last - first_open + 1 + LEAD);
    FIRST_AUCTION + if draw.is_multiple_of(COLD_AUCTION) { cold } else { hot }
}

#[inline]
pub(super) fn category(draw: u64) -> u64 {
    FIRST_CATEGORY + below(draw, CATEGORIES)
}

/// Duration of an auction: on average, until as many others have come as are open at a time.
#[inline]
pub(super) fn duration_us(draw: u64, step_ns: u64) -> i64 {
    let mean_us = (OPEN_AUCTIONS * GROUP / AUCTIONS).saturating_mul(step_ns) / 1000;
    1000 + below(draw, mean_us.saturating_mul(2).max(1)).min(i64::MAX as u64 / 2) as i64
}

/// Number of a channel; those from [`CHANNELS`] on are hot.
#[inline]
pub(super) fn channel(draw: u64) -> usize {
    if draw.is_multiple_of(COLD_CHANNEL) {
        return below(draw, CHANNELS) as usize;
    }
    (CHANNELS + below(draw, HOT_CHANNELS)) as usize
}

/// Prices in cents: 100 times a power of ten, of which the exponent is uniform from 0 to 6.
pub(super) struct Prices {
    /// Powers by the first and by the second ten bits of the exponent.
    coarse: Vec<f64>,
    fine: Vec<f64>,
}

const PRICE_EXPONENT: f64 = 6.0;
const PRICE_LEAST: f64 = 100.0;
const STEPS: usize = 1024;

impl Prices {
    pub(super) fn new() -> Prices {
        let powers = |unit: f64| {
            (0..STEPS).map(|at| 10_f64.powf(PRICE_EXPONENT * at as f64 / STEPS as f64 * unit)).collect()
        };
        Prices { coarse: powers(1.0), fine: powers(1.0 / STEPS as f64) }
    }

    /// Price of a draw. Between two powers of the tables it is linear, which is off by less than a cent.
    #[inline]
    pub(super) fn of(&self, draw: u64) -> u64 {
        const FINEST: f64 = PRICE_EXPONENT * std::f64::consts::LN_10 / (STEPS * STEPS) as f64;
        let (coarse, fine) = (self.coarse[(draw >> 54) as usize], self.fine[(draw >> 44) as usize % STEPS]);
        let rest = ((draw >> 12) as u32) as f64 / (1_u64 << 32) as f64;
        (PRICE_LEAST * coarse * fine * (1.0 + FINEST * rest)).round() as u64
    }
}
