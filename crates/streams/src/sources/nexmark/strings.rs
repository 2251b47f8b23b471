//! Strings of events: names, addresses, and letters that only have a length.

use crate::sources::generator::mixed;
use crate::sources::nexmark::events::{CHANNELS, below};
use arrow_array::StringArray;
use arrow_array::builder::StringBuilder;

pub(super) const CITIES: [&str; 10] = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
];
pub(super) const STATES: [&str; 6] = ["AZ", "CA", "ID", "OR", "WA", "WY"];
const FIRST_NAMES: [&str; 11] =
    ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"];
const LAST_NAMES: [&str; 9] =
    ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"];
const HOT_CHANNELS: [&str; 4] = ["Google", "Facebook", "Baidu", "Apple"];

pub(super) const NAME_BYTES: usize = 12;
pub(super) const EMAIL_BYTES: usize = 15;
pub(super) const CARD_BYTES: usize = 19;
pub(super) const ITEM_BYTES_MAX: usize = 20;
pub(super) const DESCRIPTION_BYTES_MAX: usize = 100;
const WORD_BYTES_MIN: usize = 3;
/// Letters of a folder in a URL.
const FOLDER_BYTES: usize = 5;

/// One of some strings, by the high bits of a draw.
pub(super) fn one<'s>(of: &[&'s str], draw: u64) -> &'s str {
    of[below(draw, of.len() as u64) as usize]
}

/// Builder of strings out of letters.
pub(super) struct Letters {
    builder: StringBuilder,
    text: String,
}

impl Letters {
    pub(super) fn with_capacity(strings: usize, bytes: usize) -> Letters {
        let builder = StringBuilder::with_capacity(strings, strings * bytes);
        Letters { builder, text: String::with_capacity(bytes) }
    }

    pub(super) fn end_of_string(&mut self) {
        self.builder.append_value(&self.text);
        self.text.clear();
    }

    pub(super) fn finish(&mut self) -> StringArray {
        self.builder.finish()
    }

    /// Adds so many letters, eight of each draw.
    fn push_letters(&mut self, seed: u64, count: usize) {
        let mut draw = seed;
        for at in (0..count).step_by(8) {
            draw = mixed(draw);
            let letters = draw.to_le_bytes().map(|byte| b'a' + ((u16::from(byte) * 26) >> 8) as u8);
            let some = &letters[..(count - at).min(8)];
            self.text.push_str(std::str::from_utf8(some).unwrap_or_default());
        }
    }

    /// Adds letters of a length from three to a maximum.
    pub(super) fn push_up_to(&mut self, draw: u64, bytes_max: usize) {
        let count = WORD_BYTES_MIN + below(draw, (bytes_max - WORD_BYTES_MIN + 1) as u64) as usize;
        self.push_letters(draw, count);
    }

    /// Adds letters of a length within a fifth of a mean one.
    pub(super) fn push_about(&mut self, draw: u64, bytes: usize) {
        let most = bytes / 5;
        self.push_letters(draw, bytes - most + below(draw, 2 * most as u64 + 1) as usize);
    }

    pub(super) fn push_name(&mut self, draw: u64) {
        self.text.push_str(one(&FIRST_NAMES, draw));
        self.text.push(' ');
        self.text.push_str(one(&LAST_NAMES, mixed(draw)));
    }

    pub(super) fn push_email(&mut self, draw: u64) {
        self.push_up_to(draw, 7);
        self.text.push('@');
        self.push_up_to(mixed(draw), 5);
        self.text.push_str(".com");
    }

    /// Adds the number of a card: four times four digits.
    pub(super) fn push_card(&mut self, draw: u64) {
        for quarter in 0..4 {
            if quarter > 0 {
                self.text.push(' ');
            }
            let number = (draw >> (quarter * 16)) % 10_000;
            self.text.extend([1000, 100, 10, 1].map(|unit| char::from(b'0' + (number / unit % 10) as u8)));
        }
    }
}

/// Names of channels, and the pages to which they lead.
pub(super) struct Channels {
    names: Vec<String>,
    urls: Vec<String>,
}

impl Channels {
    /// All channels, the hot ones last; none if they are not needed.
    pub(super) fn new(seed: u64, needed: bool) -> Channels {
        if !needed {
            return Channels { names: Vec::new(), urls: Vec::new() };
        }
        let cold = (0..CHANNELS).map(|number| format!("channel-{number}"));
        let names: Vec<String> = cold.chain(HOT_CHANNELS.map(str::to_owned)).collect();
        let urls = (0..names.len() as u64).map(|number| url(seed, number)).collect();
        Channels { names, urls }
    }

    pub(super) fn name(&self, number: usize) -> &str {
        &self.names[number]
    }

    pub(super) fn url(&self, number: usize) -> &str {
        &self.urls[number]
    }
}

/// Page of an item behind three folders. Of ten channels that are not hot, nine write their number into it.
fn url(seed: u64, channel: u64) -> String {
    let draw = mixed(mixed(seed).wrapping_add(channel));
    let mut letters = Letters { builder: StringBuilder::new(), text: "https://www.nexmark.com".to_owned() };
    for folder in 0..3 {
        letters.text.push('/');
        letters.push_letters(draw.wrapping_add(folder), FOLDER_BYTES);
    }
    letters.text.push_str("/item.htm?query=1");
    if channel < CHANNELS && below(draw, 10) > 0 {
        let number = (channel as u32).reverse_bits().cast_signed().unsigned_abs();
        letters.text.push_str(&format!("&channel_id={number}"));
    }
    letters.text
}
