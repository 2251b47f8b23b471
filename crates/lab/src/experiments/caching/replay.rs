//! Replay of pipelines against the page cache of the product, with a device and a processor in virtual time.
//!
//! Row groups of a pipeline are loaded ahead of their processing, a bounded number of them or any. The device loads
//! one after another; pages in memory are read at its bandwidth, beside their processing. Nothing depends on a
//! clock, so a replay is the same everywhere.

use entresol_tables::caching::{
    Bandwidths, CachePolicy, ColumnKey, Division, Frames, PageKey, Pipeline, ShareAdvisor, Shares,
    StoreNumber, Workload, advise, advise_after, least_time,
};

/// Store of all columns.
const STORE: StoreNumber = StoreNumber(1);

/// Query with one pipeline: columns by number, and bytes per second that it processes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Query {
    pub(super) columns: &'static [u16],
    pub(super) bytes_per_second: f64,
}

/// Machine and data of a replay.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    pub(super) bandwidths: Bandwidths,
    /// Bytes of each column, by number.
    pub(super) column_bytes: &'static [f64],
    /// Row groups of all columns.
    pub(super) groups: u32,
    /// Row groups that are loaded ahead of the one that is processed; none: any number.
    pub(super) read_ahead: Option<u32>,
    pub(super) division: Division,
}

impl Setting {
    /// Bytes of all columns.
    pub(super) fn bytes(&self) -> f64 {
        self.column_bytes.iter().sum()
    }

    fn page_bytes(&self, column: u16) -> u64 {
        (self.column_bytes[usize::from(column)] / f64::from(self.groups)) as u64
    }
}

/// Outcome of a replay.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outcome {
    pub(super) seconds: f64,
    pub(super) hits: u64,
    pub(super) look_ups: u64,
    /// Greatest number of bytes that were cached.
    pub(super) peak_bytes: u64,
}

/// Cache under a policy, and what it knows of pipelines.
struct Cache {
    setting: Setting,
    frames: Frames<()>,
    policy: CachePolicy,
    budget_bytes: u64,
    advisor: ShareAdvisor,
    shares: Shares,
    outcome: Outcome,
}

/// Runs queries one after another, beginning with an empty cache.
pub(super) fn replay(setting: Setting, policy: CachePolicy, budget_bytes: f64, queries: &[Query]) -> Outcome {
    let mut cache = Cache {
        setting,
        frames: Frames::new(policy, None),
        policy,
        budget_bytes: budget_bytes as u64,
        advisor: ShareAdvisor::new(setting.division),
        shares: Shares::new(),
        outcome: Outcome::default(),
    };
    queries.iter().enumerate().for_each(|(number, query)| cache.run(number as u64, query));
    cache.outcome
}

impl Cache {
    /// Runs a query. What is known of its pipeline is looked at after an eighth of it, and at its end.
    fn run(&mut self, number: u64, query: &Query) {
        let groups = self.setting.groups;
        let (mut device_free, mut processor_free) = (0.0_f64, 0.0_f64);
        let mut ended = Vec::with_capacity(groups as usize);
        let bytes: u64 = query.columns.iter().map(|column| self.setting.page_bytes(*column)).sum();
        let mut processing = 0.0;
        for group in 0..groups {
            let cached = self.look_up(query, group);
            let missing = (bytes - cached) as f64;
            let ahead = self.setting.read_ahead.and_then(|ahead| group.checked_sub(ahead));
            let issued: f64 = ahead.map_or(0.0, |before| ended[before as usize]);
            let mut ready = issued;
            if missing > 0.0 {
                device_free = device_free.max(issued) + missing / self.setting.bandwidths.storage;
                ready = device_free;
            }
            let work = bytes as f64 / query.bytes_per_second;
            processing += work;
            let reading = cached as f64 / self.setting.bandwidths.memory;
            processor_free = ready.max(processor_free) + work.max(reading);
            ended.push(processor_free);
            if group + 1 == groups / 8 || group + 1 == groups {
                let measured = bytes as f64 * f64::from(group + 1) / processing;
                self.tune(number, query, measured);
            }
        }
        self.outcome.seconds += processor_free;
    }

    /// Looks up the pages of a row group, and caches those that are not; returns the bytes that were.
    fn look_up(&mut self, query: &Query, group: u32) -> u64 {
        let mut cached = 0;
        for column in query.columns {
            let (page, bytes) = (PageKey::of_page(STORE, *column, group), self.setting.page_bytes(*column));
            self.outcome.look_ups += 1;
            if self.frames.get(&page).is_some() {
                (cached, self.outcome.hits) = (cached + bytes, self.outcome.hits + 1);
            } else {
                self.frames.put(page, (), bytes, self.budget_bytes);
                self.outcome.peak_bytes = self.outcome.peak_bytes.max(self.frames.bytes());
            }
        }
        cached
    }

    fn tune(&mut self, number: u64, query: &Query, bytes_per_second: f64) {
        let Some(goal) = self.policy.goal() else { return };
        let column = |column: &u16| {
            let bytes = self.setting.page_bytes(*column) * u64::from(self.setting.groups);
            (ColumnKey { store: STORE, column: *column }, bytes as f64)
        };
        let pipeline =
            Pipeline { columns: query.columns.iter().map(column).collect(), bytes_per_second, storage: None };
        self.advisor.observe(number, pipeline);
        let Some(workload) = self.advisor.workload(self.setting.bandwidths) else { return };
        if let Some(shares) = advise_after(&workload, &self.shares, self.budget_bytes, goal) {
            self.frames.set_shares(&shares);
            self.shares = shares;
        }
    }
}

/// Pipeline of a query.
fn pipeline(setting: Setting, query: &Query) -> Pipeline {
    let column = |column: &u16| {
        (ColumnKey { store: STORE, column: *column }, setting.column_bytes[usize::from(*column)])
    };
    let columns = query.columns.iter().map(column).collect();
    Pipeline { columns, bytes_per_second: query.bytes_per_second, storage: None }
}

/// Least time of queries by equation (1), if all of them were known and the cache had its shares from the beginning.
pub(super) fn least_seconds(setting: Setting, budget_bytes: f64, queries: &[Query]) -> f64 {
    let pipelines = queries.iter().map(|query| pipeline(setting, query)).collect();
    let (bandwidths, division) = (setting.bandwidths, setting.division);
    let workload = Workload { pipelines, bandwidths, division };
    least_time(&workload, budget_bytes).map_or(f64::NAN, |proportions| workload.seconds(&proportions))
}

/// Bytes that the policy's goal gives the columns of one query that runs again and again.
pub(super) fn advised_bytes(setting: Setting, policy: CachePolicy, budget_bytes: f64, query: &Query) -> f64 {
    let mut advisor = ShareAdvisor::new(setting.division);
    advisor.observe(0, pipeline(setting, query));
    let workload = advisor.workload(setting.bandwidths);
    let goal = policy.goal().unwrap_or_default();
    let shares = workload.and_then(|workload| advise(&workload, budget_bytes as u64, goal));
    shares.map_or(0.0, |shares| shares.values().map(|share| share.bytes as f64).sum())
}
