//! A machine with two memory nodes, a processor each, and an NVDIMM on the second: what the kernel says of threads
//! and pages.
//!
//! Where a page lies is what `move_pages` says, where a thread may run what `/proc/self/task` says. Each claim has its
//! contrary beside it: a thread on the far node's processor, a pool that was told to let its threads run anywhere.

use crate::history::Failure;
use entresol_memory::placement::{
    ThreadPlacement, Topology, bind_near, node_of_device, parse_cpu_list, pin_thread, prefer_node,
};
use entresol_memory::{
    DomainChoice, DomainKind, Durability, EXTENT_BYTES_MIN, JournalOptions, MemoryBudget, Pool, PoolOptions,
};
use entresol_structures::KeyWidth;
use entresol_transactions::{Reclaimer, StateContext};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The node of the NVDIMM, and the other one; each has the processor of its number.
const NEAR: usize = 1;
const FAR: usize = 0;
/// The threads that two databases have for as long as they are open; the kernel keeps 15 bytes of a name.
const THREADS: [&str; 5] =
    ["entresol-flush", "entresol-checkpoint", "entresol-slots", "entresol-pages", "entresol-reclaim"];
const PAGE_WORDS: usize = 512;
/// Pages that are touched and looked up.
const PAGES: usize = 500;

/// Fails with what was found unless it is what was expected.
fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<(), Failure> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?} instead of {expected:?}").into()) }
}

/// Everything; the directory is on the NVDIMM.
pub(crate) fn run(dir: &Path) -> Result<(), Failure> {
    let topology = machine(dir)?;
    memory(&topology)?;
    let threads = background_threads(dir)?;
    no_background_threads_near(dir, &topology)?;
    println!("dax: nodes seen, memory bound and preferred, processors of threads {threads:?}");
    Ok(())
}

fn list(path: &str) -> Result<Vec<usize>, Failure> {
    let text = fs::read_to_string(path)?;
    Ok(parse_cpu_list(&text).ok_or_else(|| format!("{path} is {text}"))?)
}

/// The kernel's nodes are those that [`Topology`] and [`node_of_device`] see.
fn machine(dir: &Path) -> Result<Topology, Failure> {
    expect("nodes of the kernel", list("/sys/devices/system/node/online")?, vec![FAR, NEAR])?;
    let topology = Topology::read()?;
    for node in [FAR, NEAR] {
        let seen: Vec<usize> =
            topology.cpus().iter().filter(|cpu| cpu.node == node).map(|cpu| cpu.id).collect();
        expect("its processors", list(&format!("/sys/devices/system/node/node{node}/cpulist"))?, vec![node])?;
        expect("processors of a node", seen, vec![node])?;
    }
    expect("distance", topology.distance(FAR, NEAR).is_some_and(|far| far > 10), true)?;
    expect("node of the NVDIMM", node_of_device(dir), Some(NEAR))?;
    expect("node of a file of the kernel's", node_of_device(Path::new("/proc/self/status")), None)?;
    Ok(topology)
}

/// Memory that nobody touched before, a little more than is looked at. It is never freed, so that none of it comes
/// again.
fn fresh() -> &'static [AtomicU64] {
    let mut words = Vec::with_capacity((PAGES + 2) * PAGE_WORDS);
    words.resize_with((PAGES + 2) * PAGE_WORDS, || AtomicU64::new(7));
    words.leak()
}

/// The whole pages of memory by the node that they are on, as the kernel says.
fn pages_by_node(words: &[AtomicU64]) -> Result<BTreeMap<i32, usize>, Failure> {
    let first = words.as_ptr().align_offset(PAGE_WORDS * 8);
    let pages: Vec<*const AtomicU64> =
        words[first..].chunks_exact(PAGE_WORDS).map(|page| page.as_ptr()).collect();
    let mut nodes = vec![-1i32; pages.len()];
    let (this_process, nowhere, flags): (libc::c_long, *const i32, libc::c_long) = (0, std::ptr::null(), 0);
    // SAFETY: reads as many addresses and stores as many numbers as there are; without target nodes nothing moves.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            this_process,
            pages.len(),
            pages.as_ptr(),
            nowhere,
            nodes.as_mut_ptr(),
            flags,
        )
    };
    if result != 0 {
        return Err(format!("move_pages: {}", std::io::Error::last_os_error()).into());
    }
    let mut counts = BTreeMap::new();
    nodes.iter().for_each(|node| *counts.entry(*node).or_insert(0) += 1);
    Ok(counts)
}

/// Tells if all pages of memory are on one node.
fn all_on(what: &str, words: &[AtomicU64], node: usize) -> Result<(), Failure> {
    let counts = pages_by_node(words)?;
    let [(found, pages)] = counts.iter().collect::<Vec<_>>()[..] else {
        return Err(format!("{what}: pages by node {counts:?}").into());
    };
    expect(what, (*found, *pages >= PAGES), (node as i32, true))
}

/// The memory that another thread touches first, after it has got itself a place.
fn touched_after(
    place: impl FnOnce() -> entresol_memory::Result<()> + Send,
) -> Result<&'static [AtomicU64], Failure> {
    std::thread::scope(|scope| scope.spawn(|| place().map(|()| fresh())).join())
        .map_err(|_| "a thread panicked".into())
        .and_then(|touched| Ok(touched?))
}

/// First touch, `bind_near` and `prefer_node`.
fn memory(topology: &Topology) -> Result<(), Failure> {
    for node in [FAR, NEAR] {
        all_on("touched by a thread there", touched_after(|| pin_thread(&[node]))?, node)?;
        let words = touched_after(|| pin_thread(&[1 - node]))?;
        all_on("touched by a thread elsewhere", words, 1 - node)?;
        bind_near(topology, words, node)?;
        all_on("bound", words, node)?;
        expect(
            "bound memory is as it was",
            words.iter().all(|word| word.load(Ordering::Relaxed) == 7),
            true,
        )?;
        let preferred = touched_after(|| {
            pin_thread(&[1 - node])?;
            prefer_node(topology, node)
        })?;
        all_on("touched by a thread elsewhere that prefers it", preferred, node)?;
    }
    Ok(())
}

/// Processors that a thread may run on, and its name; none if it has ended meanwhile.
fn name_and_processors(task: &Path) -> Option<(String, Vec<usize>)> {
    let name = fs::read_to_string(task.join("comm")).ok()?.trim().to_owned();
    let status = fs::read_to_string(task.join("status")).ok()?;
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some((name, parse_cpu_list(allowed)?))
}

/// Processors of the threads whose names begin so, by their names.
fn processors_of_threads(prefix: &str) -> Result<BTreeMap<String, Vec<usize>>, Failure> {
    let tasks = fs::read_dir("/proc/self/task")?;
    let threads = tasks.flatten().filter_map(|task| name_and_processors(&task.path()));
    Ok(threads.filter(|(name, _)| name.starts_with(prefix)).collect())
}

/// Background threads, once there are these at least, and all have the processors: a thread names and places itself
/// when it first runs. No names: none is left.
fn background_threads_on(
    names: &[&str],
    processors: &[usize],
) -> Result<BTreeMap<String, Vec<usize>>, Failure> {
    let began = Instant::now();
    loop {
        let threads = processors_of_threads("entresol-")?;
        let are_there = names.iter().all(|name| threads.contains_key(&name[..name.len().min(15)]));
        if are_there && names.is_empty() == threads.is_empty() && threads.values().all(|on| on == processors)
        {
            return Ok(threads);
        }
        if began.elapsed() > Duration::from_secs(20) {
            return Err(format!("threads {threads:?} instead of {names:?} on {processors:?}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn options(domain: DomainChoice, near_device: bool) -> Result<PoolOptions, Failure> {
    Ok(PoolOptions {
        domain,
        extent_bytes: EXTENT_BYTES_MIN,
        address_space_bytes: 64 << 20,
        journal: JournalOptions {
            slot_bytes: 64 << 10,
            preallocated_slots: 2,
            checkpoint_bytes: 1 << 20,
            journal_bytes_max: 2 << 20,
            ..JournalOptions::default()
        },
        memory: Some(MemoryBudget::new(64 << 20)?),
        near_device,
        ..PoolOptions::default()
    })
}

/// Two databases, one in place and one with a journal, and all threads that they have.
struct Databases {
    contexts: [Arc<StateContext>; 2],
    _reclaimers: [Reclaimer; 2],
}

impl Databases {
    fn open(dir: &Path, near_device: bool) -> Result<Databases, Failure> {
        let on = |domain, name: &str| -> Result<Arc<StateContext>, Failure> {
            let pool = Pool::open_or_create(&dir.join(name), &options(domain, near_device)?)?;
            Ok(StateContext::open_or_create(pool)?)
        };
        let contexts = [on(DomainChoice::Dax, "in place")?, on(DomainChoice::Journal, "with a journal")?];
        expect("domain", contexts[0].pool().domain(), DomainKind::Dax)?;
        let reclaimers = [0, 1].map(|number: usize| Reclaimer::start(&contexts[number]));
        Ok(Databases { contexts, _reclaimers: reclaimers })
    }

    /// Work for all threads: commits, and a checkpoint.
    fn work(&self) -> Result<(), Failure> {
        for context in &self.contexts {
            let group = context.create_group()?;
            let state = context.create_state(group, KeyWidth::Eight)?;
            for key in 0..200u64 {
                let transaction = context.begin()?;
                transaction.write(&state, &(key % 50).to_be_bytes(), Some(&[key as u8; 500]))?;
                transaction.commit(Durability::Sync)?;
            }
            context.pool().checkpoint()?;
        }
        Ok(())
    }

    /// The memory that one of their background threads touches first, while it runs on the far node's processor.
    fn touched_by_thread(&self) -> Result<&'static [AtomicU64], Failure> {
        let touch = || pin_thread(&[FAR]).map(|()| fresh());
        let thread = self.contexts[0].pool().env().spawn("entresol-touch", touch)?;
        Ok(thread.join().map_err(|_| "the thread panicked")??)
    }
}

/// Background threads are near the NVDIMM; others are not, if they should not be.
fn background_threads(dir: &Path) -> Result<BTreeMap<String, Vec<usize>>, Failure> {
    let databases = Databases::open(&dir.join("near"), true)?;
    for context in &databases.contexts {
        let place = context.pool().thread_placement().map(|place| (place.node(), place.cpus().to_vec()));
        expect("place for threads", place, Some((NEAR, vec![NEAR])))?;
        expect("node of the pool's device", context.pool().device_node(), Some(NEAR))?;
    }
    databases.work()?;
    let threads = background_threads_on(&THREADS, &[NEAR])?;
    expect(
        "the program's own thread",
        processors_of_threads("dax-guest")?["dax-guest"].clone(),
        vec![FAR, NEAR],
    )?;
    all_on("touched by a background thread on the far processor", databases.touched_by_thread()?, NEAR)?;
    drop(databases);
    background_threads_on(&[], &[])?;
    Ok(threads)
}

/// Background threads are where they were told, if that is elsewhere.
fn no_background_threads_near(dir: &Path, topology: &Topology) -> Result<(), Failure> {
    let anywhere = Databases::open(&dir.join("anywhere"), false)?;
    anywhere.work()?;
    background_threads_on(&THREADS, &[FAR, NEAR])?;
    all_on("touched by such a thread on the far processor", anywhere.touched_by_thread()?, FAR)?;
    drop(anywhere);
    background_threads_on(&[], &[])?;

    // A process that was started with another policy keeps it, and one without a near processor stays where it is.
    let open = |place: &(dyn Fn() -> entresol_memory::Result<()> + Sync)| {
        std::thread::scope(|scope| {
            let opened = scope.spawn(|| -> Result<_, String> {
                place().map_err(|error| error.to_string())?;
                Databases::open(&dir.join("elsewhere"), true).map_err(|error| error.to_string())
            });
            opened.join().map_err(|_| "opening panicked".to_owned())?
        })
    };
    let chosen = open(&|| prefer_node(topology, FAR))?;
    let touched = std::thread::scope(|scope| {
        let placed = || -> Result<&'static [AtomicU64], String> {
            prefer_node(topology, FAR).map_err(|error| error.to_string())?;
            chosen.touched_by_thread().map_err(|error| error.to_string())
        };
        scope.spawn(placed).join().map_err(|_| "a thread panicked".to_owned())?
    })?;
    all_on("touched by a thread of a process with a policy", touched, FAR)?;
    drop(chosen);
    background_threads_on(&[], &[])?;
    let far = open(&|| pin_thread(&[FAR]))?;
    let place = far.contexts[0].pool().thread_placement().map(ThreadPlacement::node);
    expect("place for threads without a near processor", place, None)?;
    background_threads_on(&THREADS, &[FAR])?;
    Ok(())
}
