//! The experiments by name.

mod allocation;
mod atomicity;
mod bandwidth;
#[cfg(feature = "database")]
mod basics;
mod caching;
mod calibrate;
mod chapter3;
#[cfg(feature = "database")]
mod churn;
mod clustered;
#[cfg(feature = "database")]
mod commit_latency;
mod cost_model;
mod crash_states;
mod elf;
mod encodings;
mod flush_cost;
pub mod histories;
mod hotspot;
mod independence;
mod journal_commit;
#[cfg(feature = "database")]
mod load_rate;
mod lsm;
#[cfg(feature = "database")]
mod mview_cost;
#[cfg(feature = "database")]
mod nexmark;
mod page_replacement;
mod protocols;
mod race_kv;
mod race_trees;
mod race_tsp;
mod recovery;
mod representations;
#[cfg(feature = "database")]
mod resume;
#[cfg(feature = "database")]
mod scan_rate;
#[cfg(feature = "database")]
pub mod small_memory;
#[cfg(feature = "database")]
mod ssb;
#[cfg(feature = "database")]
mod stream_rate;
#[cfg(feature = "database")]
mod subscribe_latency;
mod time_travel;
#[cfg(feature = "database")]
mod values;
#[cfg(feature = "database")]
mod wire_rate;

use crate::report::Report;
use crate::{Error, RunOptions};

/// An experiment.
#[derive(Debug)]
pub struct Experiment {
    /// Name for `lab run`.
    pub name: &'static str,
    /// One line on what it measures.
    pub about: &'static str,
    /// Measures and checks.
    pub run: fn(&RunOptions, &mut Report) -> Result<(), Error>,
}

const fn chapter3(
    name: &'static str,
    about: &'static str,
    run: fn(&RunOptions, &mut Report) -> Result<(), Error>,
) -> Experiment {
    Experiment { name, about, run }
}

/// All of them.
pub const ALL: &[Experiment] = &[
    #[cfg(feature = "database")]
    Experiment {
        name: "basics",
        about: "FPTree beside BTreeMap, snapshot reads, opening a large database",
        run: basics::run,
    },
    #[cfg(feature = "database")]
    Experiment {
        name: "wire-rate",
        about: "SELECT and UPDATE by key over the PostgreSQL wire: rates, percentiles, processor time",
        run: wire_rate::run,
    },
    #[cfg(feature = "database")]
    Experiment {
        name: "churn",
        about: "rows inserted and deleted for ten minutes: time, memory and space over time, beside SQLite, RocksDB",
        run: churn::run,
    },
    #[cfg(feature = "database")]
    Experiment {
        name: "load-rate",
        about: "rows loaded by COPY, beside DuckDB; batches appended; INSERT ... SELECT",
        run: load_rate::run,
    },
    #[cfg(feature = "database")]
    Experiment {
        name: "mview-cost",
        about: "an update of one row without materialized views, beside one, three and ten",
        run: mview_cost::run,
    },
    #[cfg(feature = "database")]
    Experiment {
        name: "nexmark",
        about: "the queries of NEXMark as topologies in SQL: rates of each, compared with batch queries",
        run: nexmark::run,
    },
    #[cfg(feature = "database")]
    Experiment {
        name: "scan-rate",
        about: "a row table read by one thread and by two: sums, counts, groups, the latest rows",
        run: scan_rate::run,
    },
    #[cfg(feature = "database")]
    Experiment {
        name: "stream-rate",
        about: "topologies on one thread: filter and map, tumbling aggregates, transactions of one tuple",
        run: stream_rate::run,
    },
    #[cfg(feature = "database")]
    Experiment {
        name: "commit-latency",
        about: "commits of topologies: from the punctuation behind 1,000 tuples until they are visible",
        run: commit_latency::run,
    },
    #[cfg(feature = "database")]
    Experiment {
        name: "subscribe-latency",
        about: "changes at 1,000 commits a second: from the commit to the arrival at one subscriber, and at eight",
        run: subscribe_latency::run,
    },
    #[cfg(feature = "database")]
    Experiment {
        name: "resume",
        about: "a database with 200 topologies is opened: time until all run, and have committed new rows",
        run: resume::run,
    },
    #[cfg(feature = "database")]
    Experiment {
        name: "small-memory",
        about: "a table of eight times the memory budget: load, scan, random updates and reads, resident memory",
        run: small_memory::run,
    },
    Experiment {
        name: "allocation",
        about: "allocating nodes beside undo-log transactions, fragmentation, share of a split",
        run: allocation::run,
    },
    Experiment {
        name: "atomicity",
        about: "ways of failure atomicity: none, one word, publication, undo log, PMwCAS (E6)",
        run: atomicity::run,
    },
    Experiment {
        name: "crash-states",
        about: "states that a power failure may leave: how many are checked, how many are wrong",
        run: crash_states::run,
    },
    Experiment {
        name: "journal-commit",
        about: "commits beside the device, flush cost, write amplification, stalls, recovery",
        run: journal_commit::run,
    },
    Experiment {
        name: "bandwidth",
        about: "the bandwidth paper's figures 3 to 13 and its insights: DRAM, disk, modelled Optane",
        run: bandwidth::run,
    },
    Experiment {
        name: "flush-cost",
        about: "a store, a flush, a fence; one fence or many; real domains and modelled Optane",
        run: flush_cost::run,
    },
    Experiment {
        name: "page-replacement",
        about: "a pool larger than memory: hit rate and time of clock, 2Q, S3-FIFO, beside an LRU told of all",
        run: page_replacement::run,
    },
    Experiment {
        name: "hpcache-policies",
        about: "the page cache of tables by column: LRU, MRU, LFU, 2Q, S3-FIFO and HPCache, in virtual time",
        run: caching::run,
    },
    Experiment {
        name: "hpcache-2.1",
        about: "a scan on one, two and four emulated drives, with 0 to 100% of its input in memory",
        run: caching::run_proportions,
    },
    Experiment {
        name: "hpcache-alternating",
        about: "two scans alternately on emulated drives, under LRU, MRU, S3-FIFO and HPCache",
        run: caching::run_alternating,
    },
    Experiment {
        name: "hpcache-prediction",
        about: "times of scans predicted after a fifth of their input, beside the measured ones",
        run: caching::run_prediction,
    },
    #[cfg(feature = "database")]
    Experiment {
        name: "ssb",
        about: "the 13 SSB queries, cold and hot, with memory for a part of them, under each policy, on emulated drives",
        run: ssb::run_policies,
    },
    #[cfg(feature = "database")]
    Experiment {
        name: "hpcache-ssb",
        about: "the HPCache paper's figures 4 to 9 with the queries of SSB, on emulated drives",
        run: ssb::run_hpcache,
    },
    #[cfg(feature = "database")]
    Experiment {
        name: "ssb-pmem",
        about: "the bandwidth paper's figure 14: SSB by columns and by rows, modelled Optane and the real medium",
        run: ssb::run_media,
    },
    #[cfg(feature = "database")]
    Experiment {
        name: "ssb-steps",
        about: "the bandwidth paper's table 1: SSB query 2.1 by one thread, by all processors, pinned",
        run: ssb::run_steps,
    },
    Experiment {
        name: "encodings",
        about: "encodings of columns: bytes beside plain, speed of encoding, decoding and conditions beside a copy",
        run: encodings::run,
    },
    Experiment {
        name: "lsm",
        about: "the LSM-tree: moving (E6), merging (E7) in all ways, levels, Bloom filters, write amplification",
        run: lsm::run,
    },
    Experiment {
        name: "elf-build-query",
        about: "Elf, ten uniform dimensions: building by one thread and by two, opening, size",
        run: elf::run_build,
    },
    Experiment {
        name: "elf-exact",
        about: "Elf: exact matches, beside a scan; on modelled Optane with selective caching",
        run: elf::run_exact,
    },
    Experiment {
        name: "elf-range",
        about: "Elf: ranges on all dimensions, beside a scan; on modelled Optane with selective caching",
        run: elf::run_range,
    },
    Experiment {
        name: "elf-partial",
        about: "Elf: ranges on some dimensions, beside a scan; on modelled Optane with selective caching",
        run: elf::run_partial,
    },
    Experiment {
        name: "elf-policies",
        about: "selective caching of an Elf on modelled Optane: policies over bytes, copying all",
        run: elf::run_policies,
    },
    Experiment {
        name: "elf-parallel",
        about: "Elf: ranges and partial matches by one thread, by two, and by estimate",
        run: elf::run_parallel,
    },
    #[cfg(feature = "database")]
    Experiment {
        name: "elf-sql",
        about: "selections of a table by columns with an Elf index and without",
        run: elf::sql,
    },
    Experiment {
        name: "ptable-key-range",
        about: "clustered tables: ranges of the key by index and block iterator, beside rows",
        run: clustered::run_keys,
    },
    Experiment {
        name: "ptable-attribute-range",
        about: "clustered tables: ranges of other attributes, beside full scans; rates of writing",
        run: clustered::run_attributes,
    },
    Experiment {
        name: "ptable-block-size",
        about: "clustered tables: ranges of an attribute with blocks of 16 KiB to 1 MiB",
        run: clustered::run_block_sizes,
    },
    Experiment {
        name: "ptable-point",
        about: "clustered tables: points by key, with their rows and without, beside rows",
        run: clustered::run_points,
    },
    Experiment {
        name: "cost-model",
        about: "the cost model of tables: its constants, its predictions beside measurements, the designs it takes",
        run: cost_model::run,
    },
    Experiment {
        name: "representations",
        about: "a table over each structure: rows by key, ranges, writes, opening, bytes; beside the cost model (5.6)",
        run: representations::run,
    },
    Experiment {
        name: "hotspot",
        about: "the hotspot paper's tables 3 to 5 and a moving hot set: modelled Optane, journal",
        run: hotspot::run,
    },
    Experiment {
        name: "independence",
        about: "writers beside writers of other tables, readers of a hot leaf beside an overloaded journal",
        run: independence::run,
    },
    Experiment {
        name: "mvcc-versions",
        about: "dissertation, figure 5.10: throughput over the version slots of an object",
        run: protocols::versions,
    },
    Experiment {
        name: "time-travel",
        about: "version history: its cost for writers, reads AS OF beside reads of the latest state, bytes of a version",
        run: time_travel::run,
    },
    Experiment {
        name: "protocol-overhead",
        about: "dissertation, figure 5.11: snapshot reads and commits beside the bare base table",
        run: protocols::overhead,
    },
    Experiment {
        name: "cc-short",
        about: "dissertation, figure 5.14: MVCC, S2PL, BOCC over the skew, transactions of 2 operations",
        run: protocols::short,
    },
    Experiment {
        name: "cc-medium",
        about: "dissertation, figure 5.12: the same with transactions of 10 operations",
        run: protocols::medium,
    },
    Experiment {
        name: "cc-long",
        about: "dissertation, figure 5.15: the same with transactions of 100 operations",
        run: protocols::long,
    },
    Experiment {
        name: "abort-rate",
        about: "dissertation, figure 5.13: restarts under each protocol over the skew",
        run: protocols::abort_rate,
    },
    Experiment {
        name: "histories",
        about: "random transactions under each protocol and level, killed again and again, judged by a checker",
        run: histories::run,
    },
    Experiment {
        name: "race-kv",
        about: "our structures beside BTreeMap, LMDB, redb, RocksDB and fjall (`make race` builds them)",
        run: race_kv::run,
    },
    Experiment {
        name: "race-trees",
        about: "every tree and the hash table beside BTreeMap and the published C++ figures",
        run: race_trees::run,
    },
    Experiment {
        name: "race-tsp",
        about: "two states under one writer and one reader, beside RocksDB, SQLite, LMDB and redb (`make race-tsp`)",
        run: race_tsp::run,
    },
    Experiment {
        name: "recovery",
        about: "from opening the files to the first answer: 1 and 10 M tuples, after a kill and after a close (5.16)",
        run: recovery::run,
    },
    chapter3("e1", "dissertation, search in a node: modelled Optane and journal", chapter3::e1),
    chapter3("e2", "dissertation, traversal without search: modelled Optane and journal", chapter3::e2),
    chapter3("e3", "dissertation, iteration: modelled Optane and journal", chapter3::e3),
    chapter3("e4", "dissertation, insert into a node: modelled Optane and journal", chapter3::e4),
    chapter3("e5", "dissertation, split of a node: modelled Optane and journal", chapter3::e5),
    chapter3("e6", "dissertation, move from DRAM to a node: modelled Optane and journal", chapter3::e6),
    chapter3("e7", "dissertation, merge of a level: modelled Optane and journal", chapter3::e7),
    chapter3("e8", "dissertation, erase from a node: modelled Optane and journal", chapter3::e8),
    chapter3("e9", "dissertation, balance of two nodes: modelled Optane and journal", chapter3::e9),
    chapter3("e10", "dissertation, merge of two nodes: modelled Optane and journal", chapter3::e10),
    chapter3(
        "performance-profiles",
        "dissertation, figure 3.17 and table 3.3, from the measurements of e1 to e10",
        chapter3::performance_profiles,
    ),
    Experiment {
        name: "calibrate",
        about: "measures memory and disk of this machine into device profiles",
        run: calibrate::run,
    },
];

/// Experiments that only a build with the feature `database` has.
const WITH_DATABASE: [&str; 16] = [
    "basics",
    "elf-sql",
    "wire-rate",
    "churn",
    "load-rate",
    "mview-cost",
    "nexmark",
    "scan-rate",
    "stream-rate",
    "commit-latency",
    "subscribe-latency",
    "small-memory",
    "ssb",
    "hpcache-ssb",
    "ssb-pmem",
    "ssb-steps",
];

/// Experiment with a name. Fails if there is none, or if this build does not have it.
pub fn find(name: &str) -> Result<&'static Experiment, Error> {
    check_name(name)?;
    ALL.iter()
        .find(|experiment| experiment.name == name)
        .ok_or_else(|| Error::Invalid(format!("'{name}' needs a build with the feature `database`")))
}

/// Fails if no experiment has this name, in this build or in another.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    if WITH_DATABASE.contains(&name) || ALL.iter().any(|experiment| experiment.name == name) {
        return Ok(());
    }
    Err(Error::Unknown {
        name: name.to_string(),
        known: ALL.iter().map(|experiment| experiment.name).collect::<Vec<_>>().join(", "),
    })
}
