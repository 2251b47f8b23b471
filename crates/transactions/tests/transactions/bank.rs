//! A bank: threads move money between accounts and record the transfers, in another state of the same
//! transaction. After a power failure, a kill, or a full disk no money is lost or made, no transfer is there
//! by half or twice, and none that was acknowledged is missing: the book, replayed, gives the balances.

use crate::common::key;
use entresol_memory::crash::{CrashPoint, Survivors};
use entresol_memory::{DomainChoice, Durability, Env, JournalOptions, Pool, PoolOptions};
use entresol_structures::KeyWidth;
use entresol_transactions::crash_histories::check_sound;
use entresol_transactions::{
    ContextOptions, Error, KeyRange, Protocol, Result, State, StateContext, StateId, Transaction,
};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ACCOUNTS: u64 = 6;
const OPENING_BALANCE: i64 = 1_000;
const THREADS: usize = 3;

/// Transfers that each thread has begun, and those acknowledged to it.
#[derive(Default)]
struct Counters {
    attempted: [AtomicU64; THREADS],
    acknowledged: [AtomicU64; THREADS],
}

impl Counters {
    fn read(counters: &[AtomicU64; THREADS]) -> [u64; THREADS] {
        counters.each_ref().map(|counter| counter.load(SeqCst))
    }
}

struct Bank {
    context: Arc<StateContext>,
    accounts: Arc<State>,
    book: Arc<State>,
}

fn word(value: &[u8], at: usize) -> i64 {
    i64::from_le_bytes(value[8 * at..8 * at + 8].try_into().unwrap())
}

fn entry(thread: usize, number: u64) -> [u8; 8] {
    key((thread as u64) << 32 | number)
}

impl Bank {
    fn found(pool: Arc<Pool>, protocol: Protocol, one_group: bool) -> Bank {
        let options = ContextOptions { protocol, ..ContextOptions::default() };
        let context = StateContext::open_or_create_with(pool, options).unwrap();
        let group = context.create_group().unwrap();
        let other = if one_group { group } else { context.create_group().unwrap() };
        let accounts = context.create_state(group, KeyWidth::Eight).unwrap();
        let book = context.create_state(other, KeyWidth::Eight).unwrap();
        let transaction = context.begin().unwrap();
        for account in 0..ACCOUNTS {
            transaction.write(&accounts, &key(account), Some(&OPENING_BALANCE.to_le_bytes())).unwrap();
        }
        transaction.commit(Durability::Sync).unwrap();
        Bank { context, accounts, book }
    }

    fn open(pool: Arc<Pool>) -> Bank {
        let context = StateContext::open_or_create(pool).unwrap();
        check_sound(&context).unwrap();
        let [accounts, book] = [0, 1].map(|id| context.state(StateId(id)).unwrap());
        Bank { context, accounts, book }
    }

    fn balance(&self, transaction: &Transaction, account: u64) -> Result<i64> {
        Ok(transaction.read(&self.accounts, &key(account), |value| word(value, 0))?.unwrap())
    }

    /// A transfer and its entry of the book, with some more bytes; tried again as long as only others are in
    /// the way.
    fn transfer(&self, thread: usize, number: u64, bytes: usize) -> Result<()> {
        let mut random = (number << 8 | thread as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16;
        let mut draw = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % bound
        };
        let from = draw(ACCOUNTS);
        let to = (from + 1 + draw(ACCOUNTS - 1)) % ACCOUNTS;
        let amount = 1 + draw(50) as i64;
        // Values change their lengths, so objects are replaced now and then.
        let filler = draw(40) as usize;
        loop {
            let done = (|| {
                let transaction = self.context.begin()?;
                for (account, change) in [(from, -amount), (to, amount)] {
                    let mut value = (self.balance(&transaction, account)? + change).to_le_bytes().to_vec();
                    value.resize(8 + filler, 7);
                    transaction.write(&self.accounts, &key(account), Some(&value))?;
                }
                let mut value: Vec<u8> =
                    [from as i64, to as i64, amount].iter().flat_map(|word| word.to_le_bytes()).collect();
                value.resize(24 + bytes, 9);
                transaction.write(&self.book, &entry(thread, number), Some(&value))?;
                transaction.commit(Durability::Sync)
            })();
            match done {
                Err(error) if error.is_retryable() => std::thread::yield_now(),
                Err(error) => return Err(error),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Number of transfers of each thread in the book, after checking that everything is right.
    fn audit(&self) -> [u64; THREADS] {
        let transaction = self.context.begin().unwrap();
        let mut balances = [OPENING_BALANCE; ACCOUNTS as usize];
        let mut numbers: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        let mut from = None;
        let mut read = |key: &[u8], value: &[u8]| {
            let entry = u64::from_be_bytes(key.try_into().unwrap());
            numbers.entry((entry >> 32) as usize).or_default().push(entry & 0xFFFF_FFFF);
            balances[word(value, 0) as usize] -= word(value, 2);
            balances[word(value, 1) as usize] += word(value, 2);
        };
        while transaction.scan_batch(&self.book, &KeyRange::full(), &mut from, &mut read).unwrap() {}
        let found: Vec<i64> =
            (0..ACCOUNTS).map(|account| self.balance(&transaction, account).unwrap()).collect();
        transaction.commit(Durability::None).unwrap();
        assert_eq!(found.iter().sum::<i64>(), OPENING_BALANCE * ACCOUNTS as i64, "money was lost or made");
        assert_eq!(found, balances, "the book and the accounts differ: {numbers:?}");
        std::array::from_fn(|thread| {
            let numbers = numbers.get(&thread).map_or(&[][..], Vec::as_slice);
            assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "thread {thread}: {numbers:?}");
            numbers.len() as u64
        })
    }

    fn audit_within(&self, acknowledged: [u64; THREADS], attempted: [u64; THREADS]) {
        let found = self.audit();
        for thread in 0..THREADS {
            let legal = acknowledged[thread]..=attempted[thread];
            assert!(legal.contains(&found[thread]), "thread {thread}: {} is not in {legal:?}", found[thread]);
        }
    }

    /// Transfers of all threads until one fails or each has made `last`.
    fn run(
        &self,
        counters: &Counters,
        last: u64,
        bytes: usize,
        done: impl Fn(usize, u64) + Sync,
    ) -> Option<Error> {
        let (failed, stop) = (Mutex::new(None), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (failed, stop, done) = (&failed, &stop, &done);
                scope.spawn(move || {
                    for number in counters.acknowledged[thread].load(SeqCst) + 1..=last {
                        if stop.load(SeqCst) {
                            return;
                        }
                        counters.attempted[thread].store(number, SeqCst);
                        if let Err(error) = self.transfer(thread, number, bytes) {
                            *failed.lock().unwrap() = Some(error);
                            stop.store(true, SeqCst);
                            return;
                        }
                        counters.acknowledged[thread].store(number, SeqCst);
                        done(thread, number);
                    }
                });
            }
        });
        failed.into_inner().unwrap()
    }
}

struct Failure {
    image: Vec<u64>,
    acknowledged: [u64; THREADS],
    attempted: [u64; THREADS],
}

fn crashing() -> PoolOptions {
    PoolOptions {
        extent_bytes: 256 << 10,
        address_space_bytes: 64 << 20,
        env: Env::simulated(3),
        ..PoolOptions::default()
    }
}

fn power_failures(protocol: Protocol, one_group: bool) {
    let (counters, failures) = (Arc::new(Counters::default()), Arc::new(Mutex::new(Vec::new())));
    let armed = Arc::new(AtomicBool::new(false));
    let observer = {
        let (counters, failures, armed) = (Arc::clone(&counters), Arc::clone(&failures), Arc::clone(&armed));
        let random = Env::simulated(11);
        move |point: &CrashPoint<'_>| {
            if !armed.load(SeqCst) || !random.random_u64().is_multiple_of(11) {
                return;
            }
            // Transfers acknowledged before the image have to be in it, those in it were attempted before.
            let acknowledged = Counters::read(&counters.acknowledged);
            let seed = random.random_u64();
            let survivors = [Survivors::Fenced, Survivors::Flushed, Survivors::Everything];
            let survivors = survivors.get(seed as usize % 6).copied().unwrap_or(Survivors::Random(seed));
            let image = point.image(survivors);
            let attempted = Counters::read(&counters.attempted);
            failures.lock().unwrap().push(Failure { image, acknowledged, attempted });
        }
    };
    let pool = Pool::crashing(&crashing(), None, Some(Box::new(observer))).unwrap();
    let bank = Bank::found(pool, protocol, one_group);
    armed.store(true, SeqCst);
    assert!(bank.run(&counters, crate::common::soak(80, 2_000), 0, |_, _| ()).is_none());
    armed.store(false, SeqCst);
    bank.audit_within(Counters::read(&counters.acknowledged), Counters::read(&counters.attempted));
    let failures = std::mem::take(&mut *failures.lock().unwrap());
    assert!(failures.len() > 40, "{} power failures", failures.len());
    for Failure { image, acknowledged, attempted } in failures {
        let pool = Pool::crashing(&crashing(), Some(image), None).unwrap();
        let bank = Bank::open(pool);
        bank.audit_within(acknowledged, attempted);
        // It goes on.
        let counters =
            Counters { attempted: Default::default(), acknowledged: bank.audit().map(AtomicU64::new) };
        assert!(bank.run(&counters, 1 + attempted.into_iter().max().unwrap(), 0, |_, _| ()).is_none());
        bank.audit();
    }
}

#[test]
fn power_failures_with_versions_in_place() {
    power_failures(Protocol::MvccInPlace, true);
    power_failures(Protocol::MvccInPlace, false);
}

#[test]
fn power_failures_with_versions_out_of_place() {
    power_failures(Protocol::MvccOutOfPlace, false);
}

#[test]
fn power_failures_with_locks() {
    power_failures(Protocol::S2pl, true);
}

#[test]
fn power_failures_with_validation() {
    power_failures(Protocol::Bocc, true);
}

fn on_disk() -> PoolOptions {
    PoolOptions {
        domain: DomainChoice::Journal,
        extent_bytes: 256 << 10,
        journal: JournalOptions { slot_bytes: 256 << 10, ..JournalOptions::default() },
        ..PoolOptions::default()
    }
}

/// Names the directory for the process that is to be killed.
const CHILD_DIR: &str = "ENTRESOL_TEST_BANK_DIR";

/// Transfers until it is killed; prints each acknowledged transfer, a line each, when it was.
fn be_killed(dir: &Path) {
    let bank = if dir.exists() {
        Bank::open(Pool::open(dir, &on_disk()).unwrap())
    } else {
        Bank::found(Pool::create(dir, &on_disk()).unwrap(), Protocol::MvccInPlace, false)
    };
    let counters = Counters { attempted: Default::default(), acknowledged: bank.audit().map(AtomicU64::new) };
    let said = Mutex::new(std::io::stdout());
    say(&said, "open");
    bank.run(&counters, u64::MAX, 0, |thread, number| say(&said, &format!("done {thread} {number}")));
}

fn say(to: &Mutex<std::io::Stdout>, what: &str) {
    let mut to = to.lock().unwrap();
    to.write_all(format!("\nbank {what}\n").as_bytes()).and_then(|()| to.flush()).unwrap();
}

#[test]
fn a_process_that_is_killed_again_and_again() {
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        return be_killed(Path::new(&dir));
    }
    let scratch = tempfile::TempDir::new().unwrap();
    let (dir, said) = (scratch.path().join("bank"), scratch.path().join("said"));
    let mut before = [0; THREADS];
    for life in 0..crate::common::soak(5, 100) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "bank::a_process_that_is_killed_again_and_again", "--nocapture"])
            .env(CHILD_DIR, &dir)
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&said).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = || std::fs::read_to_string(&said).unwrap();
        while !lines().contains("bank open") {
            assert!(child.try_wait().unwrap().is_none(), "life {life} did not open: {}", lines());
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(20 + 37 * life % 150));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut acknowledged = before;
        for line in lines().lines().filter_map(|line| line.strip_prefix("bank done ")) {
            let Some((thread, number)) = line.split_once(' ') else { continue };
            let thread: usize = thread.parse().unwrap();
            acknowledged[thread] = acknowledged[thread].max(number.parse().unwrap_or(0));
        }
        let bank = Bank::open(Pool::open(&dir, &on_disk()).unwrap());
        // Beside the printed ones, a thread has made at most one more, which it could not print.
        bank.audit_within(acknowledged, acknowledged.map(|number| number + 1));
        before = bank.audit();
        let pool = Arc::clone(bank.context.pool());
        drop(bank);
        pool.close().unwrap();
    }
    assert!(before.iter().sum::<u64>() > 20, "{before:?} transfers");
}

/// A file system of its own while it lives; `None` where that is not allowed.
struct Mount(tempfile::TempDir);

impl Mount {
    fn tmpfs(size: &str) -> Option<Mount> {
        let dir = tempfile::TempDir::new().unwrap();
        let mounted = mount(&["-t", "tmpfs", "-o", size, "tmpfs"], dir.path());
        if !mounted {
            eprintln!("skipped: a tmpfs may not be mounted here");
        }
        mounted.then_some(Mount(dir))
    }
}

fn mount(arguments: &[&str], path: &Path) -> bool {
    Command::new("mount").args(arguments).arg(path).output().is_ok_and(|output| output.status.success())
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
fn a_disk_that_is_full() {
    let Some(scratch) = Mount::tmpfs("size=12m") else { return };
    let dir = scratch.0.path().join("bank");
    let counters = Counters::default();
    let bank = Bank::found(Pool::create(&dir, &on_disk()).unwrap(), Protocol::MvccInPlace, false);
    let error = bank.run(&counters, 1_000_000, 2_000, |_, _| ()).expect("the disk is small");
    let text = error.to_string();
    assert!(text.contains("space") || text.contains("full"), "{text}");
    let (acknowledged, attempted) =
        (Counters::read(&counters.acknowledged), Counters::read(&counters.attempted));
    assert!(acknowledged.iter().sum::<u64>() > 100, "{acknowledged:?} transfers before {text}");
    // Still open: it can be read, and is right.
    bank.audit_within(acknowledged, attempted);
    drop(bank);
    assert!(mount(&["-o", "remount,size=64m"], scratch.0.path()));
    let bank = Bank::open(Pool::open(&dir, &on_disk()).unwrap());
    bank.audit_within(acknowledged, attempted);
    // With more space it goes on where it was.
    let counters = Counters { attempted: Default::default(), acknowledged: bank.audit().map(AtomicU64::new) };
    let last = attempted.into_iter().max().unwrap() + 50;
    if let Some(error) = bank.run(&counters, last, 0, |_, _| ()) {
        panic!("with more space: {error}");
    }
    assert_eq!(bank.audit(), [last; THREADS]);
}
