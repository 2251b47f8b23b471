//! What is run, two guests at a time, and the table of what came of it.

use crate::machine::Machine;
use crate::power::PowerFailures;
use crate::{Paths, Result, archive, image, kill};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

/// Guests at a time: each takes one processor.
const GUESTS: usize = 2;

/// Small seeded numbers (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// Histories that are tried until a deliberate bug shows.
const MUTANT_HISTORIES_MAX: usize = 4;

/// How long the guest with mutants may take to be built.
const BUILD_S_MAX: u64 = 900;

/// What all jobs share.
struct Setting<'a> {
    paths: &'a Paths,
    /// An initial file system with the guest program as it ships.
    shipped: PathBuf,
    blank: PathBuf,
    seed: u64,
}

impl Setting<'_> {
    /// An initial file system with the guest program with mutants, which may still be under construction.
    fn mutants_archive(&self, work: &Path) -> Result<PathBuf> {
        let guest = &self.paths.mutants;
        let started = Instant::now();
        while !guest.exists() {
            if guest.with_extension("failed").exists() || started.elapsed().as_secs() > BUILD_S_MAX {
                return Err("the guest with mutants was not built".into());
            }
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        let archive = work.join("mutants.cpio");
        archive::pack(self.paths, guest, &archive)?;
        Ok(archive)
    }
}

type Job = (&'static str, fn(&Setting<'_>, &Path) -> Result<String>);

/// Longest first.
const JOBS: [Job; 9] = [
    ("power failures, and again while recovering", power_failures_and_in_recovery),
    ("killed guests recover", killed),
    ("power failures, another history", |setting, work| {
        power_failures(setting, work, setting.seed + 1, 40, "")
    }),
    ("power failures with clflushopt", |setting, work| {
        power_failures(setting, work, setting.seed + 2, 25, ",clwb=off")
    }),
    ("power failures with clflush", |setting, work| {
        power_failures(setting, work, setting.seed + 3, 25, ",clwb=off,clflushopt=off")
    }),
    ("a missing clwb is found", |setting, work| mutant(setting, work, "lines-written-back:left-out", 20, 12)),
    ("a missing sfence is found", |setting, work| {
        mutant(setting, work, "write-backs-fenced:left-out", 500, 32)
    }),
    ("eADR is seen and used on request", eadr),
    ("two memory nodes, an NVDIMM on one", two_nodes),
];

/// Runs those with `only` in their names; an error names those that failed.
pub(crate) fn run(paths: &Paths, seed: u64, only: &str) -> Result<()> {
    if !JOBS.iter().any(|(name, _)| name.contains(only)) {
        return Err(format!("no part of the test has '{only}' in its name").into());
    }
    // A second run beside this one waits: both would write the same images.
    let lock = std::fs::File::create(paths.work.with_extension("lock"))?;
    lock.lock()?;
    if paths.work.exists() {
        std::fs::remove_dir_all(&paths.work)?;
    }
    std::fs::create_dir_all(&paths.work)?;
    let setting = Setting {
        paths,
        shipped: paths.work.join("shipped.cpio"),
        blank: paths.work.join("blank.img"),
        seed,
    };
    archive::pack(paths, &paths.guest, &setting.shipped)?;
    image::format(&setting.blank)?;
    println!("seed {seed}");
    let left = Mutex::new(
        JOBS.iter().filter(|(name, _)| name.contains(only)).enumerate().collect::<Vec<_>>().into_iter(),
    );
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..GUESTS {
            scope.spawn(|| {
                while let Some((number, job)) = left.lock().unwrap_or_else(|e| e.into_inner()).next() {
                    if !one(&setting, number, job) {
                        failed.lock().unwrap_or_else(|e| e.into_inner()).push(job.0);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(|e| e.into_inner());
    if failed.is_empty() {
        std::fs::remove_dir_all(&paths.work)?;
        return Ok(());
    }
    Err(format!("failed with seed {seed}: {}; images are in {}", failed.join(", "), paths.work.display())
        .into())
}

fn one(setting: &Setting<'_>, number: usize, (name, job): &Job) -> bool {
    let started = Instant::now();
    let work = setting.paths.work.join(number.to_string());
    let outcome = std::fs::create_dir_all(&work).map_err(Into::into).and_then(|()| job(setting, &work));
    let seconds = started.elapsed().as_secs_f64();
    match &outcome {
        Ok(what) => {
            println!("ok      {name} ({seconds:.1} s): {what}");
            // Room for the next one's images.
            let _ = std::fs::remove_dir_all(&work);
        }
        Err(failure) => println!("FAILED  {name} ({seconds:.1} s): {failure}"),
    }
    outcome.is_ok()
}

fn killed(setting: &Setting<'_>, work: &Path) -> Result<String> {
    kill::run(setting.paths, &setting.shipped, &setting.blank, work, setting.seed)
}

/// The images of a run, all of which must be sound.
fn sound(found: &crate::power::Found) -> Result<String> {
    let mut bad = found.crashes.iter().filter_map(|crash| Some((crash, crash.failure.as_ref()?)));
    if let Some((crash, failure)) = bad.next() {
        let (others, what) = (bad.count(), &crash.what);
        return Err(format!("{what}: {failure} ({others} more of {})", found.crashes.len()).into());
    }
    let last = found.crashes.last().map_or(0, |crash| crash.acknowledged);
    Ok(format!("{} images up to step {last} recovered ({})", found.crashes.len(), found.summary))
}

fn power_failures(
    setting: &Setting<'_>,
    work: &Path,
    seed: u64,
    every: u64,
    processor: &str,
) -> Result<String> {
    let run = PowerFailures {
        archive: &setting.shipped,
        start: &setting.blank,
        acknowledged: 0,
        seed,
        first: 1 + Random::new(seed).below(every),
        every,
        images: 16,
        processor,
        mutant: None,
    };
    sound(&run.run(setting.paths, work)?)
}

/// Power failures over a long history; then one of the images is started again under the plugin, with a power
/// failure at nearly every fence of its recovery.
fn power_failures_and_in_recovery(setting: &Setting<'_>, work: &Path) -> Result<String> {
    let seed = setting.seed;
    let first = PowerFailures {
        archive: &setting.shipped,
        start: &setting.blank,
        acknowledged: 0,
        seed,
        first: 200,
        every: 200,
        images: 24,
        processor: "",
        mutant: None,
    };
    let found = first.run(setting.paths, work)?;
    let report = sound(&found)?;
    let last = found.crashes.last().ok_or("no image")?;
    let again = work.join("again");
    std::fs::create_dir_all(&again)?;
    let second =
        PowerFailures { start: &last.image, acknowledged: last.acknowledged, first: 1, every: 2, ..first };
    Ok(format!("{report}; in recovery: {}", sound(&second.run(setting.paths, &again)?)?))
}

/// A deliberate bug, which the images of one of a few histories must show: what a power failure takes is drawn.
fn mutant(setting: &Setting<'_>, work: &Path, name: &str, first: u64, images: usize) -> Result<String> {
    let archive = setting.mutants_archive(work)?;
    let mut missed = Vec::new();
    for seed in (setting.seed..).take(MUTANT_HISTORIES_MAX) {
        let run = PowerFailures {
            archive: &archive,
            start: &setting.blank,
            acknowledged: 0,
            seed,
            first,
            every: 20,
            images,
            processor: "",
            mutant: Some(name),
        };
        // Beside the archive: what the plugin writes is added to what is there.
        let own = work.join(seed.to_string());
        std::fs::create_dir_all(&own)?;
        let found = run.run(setting.paths, &own)?;
        std::fs::remove_dir_all(&own)?;
        let bad: Vec<_> = found.crashes.iter().filter_map(|crash| crash.failure.as_ref()).collect();
        if let Some(first) = bad.first() {
            let (bad, all) = (bad.len(), found.crashes.len());
            return Ok(format!("in {bad} of {all} images of seed {seed}, e.g. {first:.160}"));
        }
        missed.push(format!("seed {seed}: {}", found.summary));
    }
    Err(format!("{name} was not found: {}", missed.join("; ")).into())
}

/// A platform with durable caches: lines are left alone only when the options say so.
fn eadr(setting: &Setting<'_>, work: &Path) -> Result<String> {
    let boot = |flush: &str| -> Result<Vec<String>> {
        let nvdimm = work.join("nvdimm.img");
        crate::machine::copy(&setting.blank, &nvdimm)?;
        let command_line = format!(
            "entresol.mode=run entresol.seed=1 entresol.steps=30 entresol.acknowledged=0 entresol.flush={flush}"
        );
        Machine {
            archive: setting.shipped.clone(),
            nvdimms: vec![nvdimm],
            processor: "",
            persistence: "cpu",
            command_line,
            nodes: 1,
            plugin: None,
        }
        .start(setting.paths)?
        .finish()
    };
    for (flush, expected) in [("always", "flush=clwb"), ("as-platform", "flush=none")] {
        let said = boot(flush)?;
        let says = |what: &str| said.iter().any(|line| line.starts_with("dax: ") && line.contains(what));
        if !says("cpu_cache") || !says(expected) || !says("domain=dax ") || !says("finished 30") {
            let said = crate::machine::tail(&said);
            return Err(format!("'{expected}' on cpu_cache was expected:\n{said}").into());
        }
    }
    Ok("persistence domain cpu_cache: flush=clwb by default, none as the platform says".to_string())
}

/// A machine with two memory nodes: the guest asks its kernel where threads and pages are.
fn two_nodes(setting: &Setting<'_>, work: &Path) -> Result<String> {
    let nvdimm = work.join("nvdimm.img");
    crate::machine::copy(&setting.blank, &nvdimm)?;
    let said = Machine {
        archive: setting.shipped.clone(),
        nvdimms: vec![nvdimm],
        processor: "",
        persistence: "mem-ctrl",
        command_line: "entresol.mode=nodes entresol.acknowledged=0".to_string(),
        nodes: 2,
        plugin: None,
    }
    .start(setting.paths)?
    .finish()?;
    let found = said.iter().find_map(|line| line.strip_prefix("dax: nodes "));
    found.map(str::to_string).ok_or_else(|| crate::machine::tail(&said).into())
}
