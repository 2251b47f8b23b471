//! Orders and their lines.
//!
//! - An order has 1 to 7 lines, and one customer, date, priority and total price for all of them. Its key is
//!   one of the first eight of 32 numbers. A third of the customers, those whose key three divides, has no
//!   orders. All of this is TPC-H's.
//! - Order dates are uniform from 1992-01-01 to 1998-08-02, and lines are committed 30 to 90 days later.
//! - Prices are in cents, and divisions drop what is left over:
//!   `lo_extendedprice` = quantity × retail price, `lo_revenue` = extended price × (100 − discount) / 100,
//!   `lo_supplycost` = 6 × retail price / 10, `lo_ordtotalprice` = the sum of revenue × (100 + tax) / 100.

use super::calendar::Calendar;
use super::line::Line;
use super::part::retail_price;
use super::random::{Random, table_seed};
use super::{Rows, Scale};
use std::ops::Range;

const LINES_MAX: usize = 7;
/// Days from the first to the last order date, both included.
const ORDER_DAYS: u32 = 2406;
const PRIORITIES: [&str; 5] = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"];
const MODES: [&str; 7] = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"];

/// Rows of lineorder; the units are orders.
pub(super) struct Lineorders {
    orders: u64,
    customers: u32,
    parts: u32,
    suppliers: u32,
    seed: u64,
    calendar: Calendar,
}

/// Values of a line.
#[derive(Clone, Copy, Default)]
struct OrderLine {
    part: u32,
    supplier: u32,
    quantity: u32,
    extended_price: u32,
    discount: u32,
    revenue: u32,
    tax: u32,
    commit_days: u32,
    mode: &'static str,
}

/// Key of an order, the first being 1: the lower three bits, two that are 0, the others.
fn order_key(order: u64) -> u64 {
    let number = order + 1;
    (number >> 3) << 5 | number & 7
}

/// Key of a customer with orders.
fn customer_key(customers: u32, random: &mut Random) -> u32 {
    let at = random.below(customers - customers / 3);
    at / 2 * 3 + at % 2 + 1
}

impl Lineorders {
    pub(super) fn new(scale: &Scale, seed: u64) -> Lineorders {
        Lineorders {
            orders: scale.orders(),
            customers: scale.customers(),
            parts: scale.parts(),
            suppliers: scale.suppliers(),
            seed: table_seed(seed, "lineorder"),
            calendar: Calendar::new(),
        }
    }

    fn line(&self, random: &mut Random) -> OrderLine {
        let part = random.between(1, self.parts);
        let quantity = random.between(1, 50);
        let discount = random.below(11);
        let extended_price = quantity * retail_price(part);
        OrderLine {
            part,
            supplier: random.between(1, self.suppliers),
            quantity,
            extended_price,
            discount,
            // The price is at most 10.5 million: the product fits 32 bits.
            revenue: extended_price * (100 - discount) / 100,
            tax: random.below(9),
            commit_days: random.between(30, 90),
            mode: random.pick(&MODES),
        }
    }

    /// Writes the lines of an order; returns their number.
    fn write_order(&self, order: u64, bytes: &mut Vec<u8>) -> u64 {
        let mut random = Random::of_row(self.seed, order);
        let (key, customer) = (order_key(order), customer_key(self.customers, &mut random));
        let (day, priority) = (random.below(ORDER_DAYS), random.pick(&PRIORITIES));
        let mut lines = [OrderLine::default(); LINES_MAX];
        let lines = &mut lines[..random.between(1, LINES_MAX as u32) as usize];
        lines.iter_mut().for_each(|line| *line = self.line(&mut random));
        let total: u32 = lines.iter().map(|line| line.revenue * (100 + line.tax) / 100).sum();
        let date = |day: u32| self.calendar.keys()[day as usize];
        for (number, values) in (1u32..).zip(&*lines) {
            let mut line = Line::new(bytes);
            line.number(key).number(number).number(customer).number(values.part).number(values.supplier);
            line.number(date(day)).text(priority).number(0u32).number(values.quantity);
            line.number(values.extended_price).number(total).number(values.discount).number(values.revenue);
            line.number(6 * retail_price(values.part) / 10).number(values.tax);
            line.number(date(day + values.commit_days)).text(values.mode).end();
        }
        lines.len() as u64
    }
}

impl Rows for Lineorders {
    fn units(&self) -> u64 {
        self.orders
    }

    fn write(&self, units: Range<u64>, bytes: &mut Vec<u8>) -> u64 {
        units.map(|order| self.write_order(order, bytes)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_orders_are_eight_of_thirty_two() {
        let keys: Vec<u64> = (0..20).map(order_key).collect();
        let expected = [1, 2, 3, 4, 5, 6, 7, 32, 33, 34, 35, 36, 37, 38, 39, 64, 65, 66, 67, 68];
        assert_eq!(keys, expected);
    }

    #[test]
    fn customers_with_orders_are_all_but_each_third() {
        let mut seen = std::collections::BTreeSet::new();
        for row in 0..2_000 {
            seen.insert(customer_key(31, &mut Random::of_row(3, row)));
        }
        let expected: Vec<u32> = (1..=31).filter(|key| key % 3 != 0).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn order_dates_end_with_the_second_of_august() {
        let calendar = Calendar::new();
        assert_eq!(calendar.keys()[ORDER_DAYS as usize - 1], 19_980_802);
        assert_eq!(calendar.keys()[ORDER_DAYS as usize - 1 + 90], 19_981_031);
    }
}
