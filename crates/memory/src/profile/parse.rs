//! Parser from TOML to a [`Profile`]: names every field that is missing, unknown or of the wrong kind.
//!
//! The fields are taken out of their tables one by one; the remaining ones are unknown. Deriving this would
//! pull serde's features into every crate of the workspace.

use super::bandwidth::{Bandwidth, FarAccess, MixedAccess, Patterns, Sockets};
use super::{Cache, Curve, Medium, Profile, Read, ThreadCurve, Write};
use std::collections::BTreeMap;
use toml::de::{DeTable, DeValue};

type ParseResult<T> = Result<T, String>;

/// Table of the file, and its path.
struct Section<'t> {
    path: String,
    entries: BTreeMap<String, DeValue<'t>>,
}

/// Representation of a value in the file, for errors.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(is) => is.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "a list".to_string(),
        DeValue::Table(_) => "a table".to_string(),
    }
}

fn refuse<T>(field: &str, value: &DeValue<'_>, expected: &str) -> ParseResult<T> {
    Err(format!("{field} is {}; it must be {expected}", shown(value)))
}

fn number(field: &str, value: &DeValue<'_>) -> ParseResult<f64> {
    let parsed = match value {
        DeValue::Float(number) => number.as_str().parse().ok(),
        DeValue::Integer(number) => {
            // Whole numbers of this size are exact.
            i32::from_str_radix(number.as_str(), number.radix()).ok().map(f64::from)
        }
        _ => None,
    };
    parsed.map_or_else(|| refuse(field, value, "a number"), Ok)
}

fn whole(field: &str, value: &DeValue<'_>) -> ParseResult<u64> {
    let parsed = match value {
        DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
        _ => None,
    };
    parsed.map_or_else(|| refuse(field, value, "a whole number, not below 0"), Ok)
}

fn text(field: &str, value: &DeValue<'_>) -> ParseResult<String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        other => refuse(field, other, "a string"),
    }
}

fn list<T>(
    field: &str,
    value: &DeValue<'_>,
    of: impl Fn(&str, &DeValue<'_>) -> ParseResult<T>,
) -> ParseResult<Vec<T>> {
    let DeValue::Array(entries) = value else { return refuse(field, value, "a list") };
    entries.iter().enumerate().map(|(i, entry)| of(&format!("{field}[{i}]"), entry.get_ref())).collect()
}

fn numbers(field: &str, value: &DeValue<'_>) -> ParseResult<Vec<f64>> {
    list(field, value, number)
}

impl<'t> Section<'t> {
    fn new(path: &str, table: &DeTable<'t>) -> Section<'t> {
        let entries = table.iter().map(|(name, value)| (name.get_ref().to_string(), value.get_ref().clone()));
        Section { path: path.to_string(), entries: entries.collect() }
    }

    fn field(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_string() } else { format!("{}.{name}", self.path) }
    }

    fn take<T>(&mut self, name: &str, read: impl Fn(&str, &DeValue<'_>) -> ParseResult<T>) -> ParseResult<T> {
        let field = self.field(name);
        let value = self.entries.remove(name).ok_or_else(|| format!("{field} is missing"))?;
        read(&field, &value)
    }

    fn number(&mut self, name: &str) -> ParseResult<f64> {
        self.take(name, number)
    }

    fn whole(&mut self, name: &str) -> ParseResult<u64> {
        self.take(name, whole)
    }

    /// Parses a table inside with `read`, which must take all of its fields.
    fn section<T>(
        &mut self,
        name: &str,
        read: impl Fn(&mut Section<'_>) -> ParseResult<T>,
    ) -> ParseResult<T> {
        self.take(name, |field, value| inside(field, value, &read))
    }

    fn optional<T>(
        &mut self,
        name: &str,
        read: impl Fn(&mut Section<'_>) -> ParseResult<T>,
    ) -> ParseResult<Option<T>> {
        if self.entries.contains_key(name) { self.section(name, read).map(Some) } else { Ok(None) }
    }

    fn finish(&self) -> ParseResult<()> {
        match self.entries.iter().next() {
            None => Ok(()),
            Some((name, value)) => {
                Err(format!("{} (which is {}) is an unknown field", self.field(name), shown(value)))
            }
        }
    }
}

fn inside<T>(
    field: &str,
    value: &DeValue<'_>,
    read: impl Fn(&mut Section<'_>) -> ParseResult<T>,
) -> ParseResult<T> {
    let DeValue::Table(table) = value else { return refuse(field, value, "a table") };
    let mut section = Section::new(field, table);
    let parsed = read(&mut section)?;
    section.finish()?;
    Ok(parsed)
}

/// Parses the profile of a file's content, not validated yet.
pub(super) fn profile(file: &str) -> ParseResult<Profile> {
    let table = DeTable::parse(file).map_err(|e| e.to_string().trim_end().to_string())?;
    let mut section = Section::new("", table.get_ref());
    let profile = Profile {
        name: section.take("name", text)?,
        sources: section.take("sources", |field, value| list(field, value, text))?,
        medium: section.section("medium", medium)?,
        read: section.section("read", read)?,
        write: section.section("write", write)?,
        caches: section
            .take("caches", |field, value| list(field, value, |field, value| inside(field, value, cache)))?,
        bandwidth: section.section("bandwidth", |section| {
            Ok(Bandwidth {
                read: section.section("read", patterns)?,
                write: section.section("write", patterns)?,
            })
        })?,
        far: section.optional("far", far)?,
        sockets: section.optional("sockets", sockets)?,
        mixed: section.optional("mixed", mixed)?,
    };
    section.finish()?;
    Ok(profile)
}

fn medium(section: &mut Section<'_>) -> ParseResult<Medium> {
    Ok(Medium {
        transfer_bytes: section.whole("transfer_bytes")?,
        block_bytes: section.whole("block_bytes")?,
        interleave_bytes: section.whole("interleave_bytes")?,
        modules: section.whole("modules")?,
    })
}

fn read(section: &mut Section<'_>) -> ParseResult<Read> {
    Ok(Read {
        sequential_ns: section.number("sequential_ns")?,
        random_ns: section.number("random_ns")?,
        buffer_blocks: section.whole("buffer_blocks")?,
        in_flight_max: section.whole("in_flight_max")?,
    })
}

fn write(section: &mut Section<'_>) -> ParseResult<Write> {
    Ok(Write {
        flush_ns: section.number("flush_ns")?,
        accept_ns: section.number("accept_ns")?,
        combining_blocks: section.whole("combining_blocks")?,
        queue_transfers: section.whole("queue_transfers")?,
        flush_keeps_line: section.take("flush_keeps_line", |field, value| match value {
            DeValue::Boolean(is) => Ok(*is),
            other => refuse(field, other, "true or false"),
        })?,
    })
}

fn cache(section: &mut Section<'_>) -> ParseResult<Cache> {
    Ok(Cache {
        name: section.take("name", text)?,
        bytes: section.whole("bytes")?,
        ways: section.whole("ways")?,
        hit_ns: section.number("hit_ns")?,
    })
}

fn patterns(section: &mut Section<'_>) -> ParseResult<Patterns> {
    Ok(Patterns {
        individual: section.section("individual", curve)?,
        grouped: section.section("grouped", curve)?,
        random: section.section("random", curve)?,
    })
}

fn curve(section: &mut Section<'_>) -> ParseResult<Curve> {
    Ok(Curve {
        threads: section.take("threads", |field, value| list(field, value, whole))?,
        access_bytes: section.take("access_bytes", |field, value| list(field, value, whole))?,
        gb_per_s: section.take("gb_per_s", |field, value| list(field, value, numbers))?,
    })
}

fn thread_curve(section: &mut Section<'_>) -> ParseResult<ThreadCurve> {
    Ok(ThreadCurve {
        threads: section.take("threads", |field, value| list(field, value, whole))?,
        gb_per_s: section.take("gb_per_s", numbers)?,
    })
}

fn far(section: &mut Section<'_>) -> ParseResult<FarAccess> {
    Ok(FarAccess {
        latency_factor: section.number("latency_factor")?,
        read: section.section("read", thread_curve)?,
        first_read: section.section("first_read", thread_curve)?,
        write: section.section("write", thread_curve)?,
        unpinned_read: section.section("unpinned_read", thread_curve)?,
        unpinned_write: section.section("unpinned_write", thread_curve)?,
    })
}

fn sockets(section: &mut Section<'_>) -> ParseResult<Sockets> {
    Ok(Sockets {
        read_near_gb_per_s: section.number("read_near_gb_per_s")?,
        read_far_gb_per_s: section.number("read_far_gb_per_s")?,
        read_shared_gb_per_s: section.number("read_shared_gb_per_s")?,
        write_near_gb_per_s: section.number("write_near_gb_per_s")?,
        write_far_gb_per_s: section.number("write_far_gb_per_s")?,
        write_shared_gb_per_s: section.number("write_shared_gb_per_s")?,
    })
}

fn mixed(section: &mut Section<'_>) -> ParseResult<MixedAccess> {
    Ok(MixedAccess {
        writers: section.take("writers", |field, value| list(field, value, whole))?,
        readers: section.take("readers", |field, value| list(field, value, whole))?,
        read_share: section.take("read_share", |field, value| list(field, value, numbers))?,
        write_share: section.take("write_share", |field, value| list(field, value, numbers))?,
    })
}
