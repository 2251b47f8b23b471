//! Bandwidth of whole workloads: many threads that do nothing but read or write.

use super::{Curve, Profile, ThreadCurve, curve::lookup};

/// Reading or writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Loads.
    Read,
    /// Stores that go to the medium.
    Write,
}

/// How the threads share the data (bandwidth paper, 3.1 and 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Every thread has a region of its own and goes through it in order.
    Individual,
    /// The threads take turns in one region: together one sequence.
    Grouped,
    /// Anywhere.
    Random,
}

/// Which threads use which socket's memory (bandwidth paper, 3.3 to 3.5, 4.3 to 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// Threads pinned to the memory's own socket.
    Near,
    /// Threads that the scheduler may put on any socket.
    Unpinned,
    /// Threads of the other socket, who were the last to use the memory, too.
    Far,
    /// Threads of the other socket, after threads of its own.
    FarFirst,
    /// Each socket its own memory.
    BothNear,
    /// Each socket the other's memory.
    BothFar,
    /// Both sockets one socket's memory.
    Shared,
}

/// Threads that all do the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Access {
    /// Reading or writing.
    pub direction: Direction,
    /// Where to.
    pub pattern: Pattern,
    /// Threads; of each socket where both take part.
    pub threads: u64,
    /// Bytes that a thread reads or writes in one piece.
    pub access_bytes: u64,
}

/// What runs on a socket's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Workload {
    /// The threads that are looked at.
    pub access: Access,
    /// On which socket they and the memory are.
    pub place: Place,
    /// Threads that do the opposite on the same memory at the same time.
    pub opposite_threads: u64,
}

/// Bandwidth of one socket's memory from that socket.
#[derive(Debug, Clone, PartialEq)]
pub struct Bandwidth {
    /// Reading.
    pub read: Patterns,
    /// Writing.
    pub write: Patterns,
}

/// A curve for each pattern.
#[derive(Debug, Clone, PartialEq)]
pub struct Patterns {
    /// See [`Pattern::Individual`].
    pub individual: Curve,
    /// See [`Pattern::Grouped`].
    pub grouped: Curve,
    /// See [`Pattern::Random`].
    pub random: Curve,
}

/// Access from the other socket, individual, 4 KiB a piece.
#[derive(Debug, Clone, PartialEq)]
pub struct Far {
    /// By how much latencies grow.
    pub latency_factor: f64,
    /// Reading again and again.
    pub read: ThreadCurve,
    /// The first time.
    pub first_read: ThreadCurve,
    /// Writing.
    pub write: ThreadCurve,
    /// Reading by threads that nobody pins.
    pub unpinned_read: ThreadCurve,
    /// Writing by threads that nobody pins.
    pub unpinned_write: ThreadCurve,
}

/// Both sockets at once: the peak of both together.
#[derive(Debug, Clone, PartialEq)]
pub struct Sockets {
    /// Each reads its own memory.
    pub read_near_gb_per_s: f64,
    /// Each reads the other's.
    pub read_far_gb_per_s: f64,
    /// Both read one socket's.
    pub read_shared_gb_per_s: f64,
    /// Each writes its own memory.
    pub write_near_gb_per_s: f64,
    /// Each writes the other's.
    pub write_far_gb_per_s: f64,
    /// Both write one socket's.
    pub write_shared_gb_per_s: f64,
}

/// What is left of the bandwidth where readers and writers share the memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Mixed {
    /// Writing threads, growing.
    pub writers: Vec<u64>,
    /// Reading threads, growing.
    pub readers: Vec<u64>,
    /// Share of the reading bandwidth: a row for each writer count.
    pub read_share: Vec<Vec<f64>>,
    /// Share of the writing bandwidth.
    pub write_share: Vec<Vec<f64>>,
}

impl Access {
    /// So many threads with pieces of so many bytes.
    pub fn new(direction: Direction, pattern: Pattern, threads: u64, access_bytes: u64) -> Access {
        Access { direction, pattern, threads, access_bytes }
    }

    /// Alone on their own socket's memory.
    pub fn near(self) -> Workload {
        self.at(Place::Near)
    }

    /// Alone, at a place.
    pub fn at(self, place: Place) -> Workload {
        Workload { access: self, place, opposite_threads: 0 }
    }
}

impl Workload {
    /// Beside threads that do the opposite.
    pub fn beside(self, opposite_threads: u64) -> Workload {
        Workload { opposite_threads, ..self }
    }
}

impl Bandwidth {
    /// The curve of a direction and a pattern.
    pub fn curve(&self, direction: Direction, pattern: Pattern) -> &Curve {
        let patterns = match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        };
        match pattern {
            Pattern::Individual => &patterns.individual,
            Pattern::Grouped => &patterns.grouped,
            Pattern::Random => &patterns.random,
        }
    }
}

impl Mixed {
    fn share(&self, direction: Direction, threads: u64, opposite: u64) -> f64 {
        if opposite == 0 {
            return 1.0;
        }
        match direction {
            Direction::Read => lookup(&self.writers, &self.readers, &self.read_share, opposite, threads),
            Direction::Write => lookup(&self.writers, &self.readers, &self.write_share, threads, opposite),
        }
    }
}

impl Profile {
    /// GB/s (10⁹ bytes) of all the workload's threads together. A profile without another socket treats all
    /// places as near; one without mixed figures lets readers and writers not disturb each other.
    pub fn bandwidth_gb_per_s(&self, workload: &Workload) -> f64 {
        let Access { direction, threads, .. } = workload.access;
        let shares =
            self.mixed.as_ref().map_or(1.0, |m| m.share(direction, threads, workload.opposite_threads));
        self.near_gb_per_s(&workload.access) * self.place_factor(workload) * shares
    }

    fn near_gb_per_s(&self, access: &Access) -> f64 {
        self.bandwidth.curve(access.direction, access.pattern).at(access.threads, access.access_bytes)
    }

    /// What the place leaves of the near bandwidth. Measured for 4 KiB individual access; other accesses are
    /// taken to lose the same share.
    fn place_factor(&self, workload: &Workload) -> f64 {
        let (Some(far), Some(sockets)) = (&self.far, &self.sockets) else { return 1.0 };
        let Access { direction, threads, .. } = workload.access;
        let near = self.near_gb_per_s(&Access::new(direction, Pattern::Individual, threads, 4096));
        let reading = direction == Direction::Read;
        let pick = |read: f64, write: f64| if reading { read } else { write };
        let near_peak = self.bandwidth.curve(direction, Pattern::Individual).peak();
        let far_curve = if reading { &far.read } else { &far.write };
        match workload.place {
            Place::Near => 1.0,
            Place::Far => far_curve.at(threads) / near,
            Place::FarFirst => pick(far.first_read.at(threads), far.write.at(threads)) / near,
            Place::Unpinned => pick(far.unpinned_read.at(threads), far.unpinned_write.at(threads)) / near,
            Place::BothNear => pick(sockets.read_near_gb_per_s, sockets.write_near_gb_per_s) / near_peak,
            Place::BothFar => {
                let both = pick(sockets.read_far_gb_per_s, sockets.write_far_gb_per_s);
                both / far_curve.peak() * far_curve.at(threads) / near
            }
            Place::Shared => pick(sockets.read_shared_gb_per_s, sockets.write_shared_gb_per_s) / near_peak,
        }
    }
}
