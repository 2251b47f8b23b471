//! Bandwidth of workloads of many threads that only read or write.

use super::{Curve, Profile, ThreadCurve, curve::lookup};

/// Direction of accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Loads.
    Read,
    /// Stores that go to the medium.
    Write,
}

/// Distribution of the data over the threads (bandwidth paper, 3.1 and 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Every thread reads or writes a region of its own in order.
    Individual,
    /// The threads take turns in one region: together one sequence.
    Grouped,
    /// Random addresses.
    Random,
}

/// Sockets of the threads and of their memory (bandwidth paper, 3.3 to 3.5, 4.3 to 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SocketPlacement {
    /// Threads pinned to the memory's own socket.
    Near,
    /// Threads that the scheduler may put on any socket.
    Unpinned,
    /// Threads of the other socket, which were also the last to use the memory.
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

/// Accesses of threads that all do the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Access {
    /// Reading or writing.
    pub direction: Direction,
    /// Distribution over the threads.
    pub pattern: Pattern,
    /// Number of threads; of each socket where both take part.
    pub threads: u64,
    /// Bytes of one access.
    pub access_bytes: u64,
}

/// Workload on a socket's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Workload {
    /// Accesses of the measured threads.
    pub access: Access,
    /// Sockets of the threads and of the memory.
    pub place: SocketPlacement,
    /// Number of threads that do the opposite on the same memory at the same time.
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

/// Access from the other socket, individual, 4 KiB each.
#[derive(Debug, Clone, PartialEq)]
pub struct FarAccess {
    /// Factor of the latencies.
    pub latency_factor: f64,
    /// Repeated reading.
    pub read: ThreadCurve,
    /// First reading.
    pub first_read: ThreadCurve,
    /// Writing.
    pub write: ThreadCurve,
    /// Reading by threads that are not pinned.
    pub unpinned_read: ThreadCurve,
    /// Writing by threads that are not pinned.
    pub unpinned_write: ThreadCurve,
}

/// Peak bandwidth of both sockets together.
#[derive(Debug, Clone, PartialEq)]
pub struct Sockets {
    /// Each socket reads its own memory.
    pub read_near_gb_per_s: f64,
    /// Each socket reads the other's memory.
    pub read_far_gb_per_s: f64,
    /// Both sockets read one socket's memory.
    pub read_shared_gb_per_s: f64,
    /// Each socket writes its own memory.
    pub write_near_gb_per_s: f64,
    /// Each socket writes the other's memory.
    pub write_far_gb_per_s: f64,
    /// Both sockets write one socket's memory.
    pub write_shared_gb_per_s: f64,
}

/// Shares of the bandwidth where readers and writers use the same memory.
#[derive(Debug, Clone, PartialEq)]
pub struct MixedAccess {
    /// Numbers of writing threads, ascending.
    pub writers: Vec<u64>,
    /// Numbers of reading threads, ascending.
    pub readers: Vec<u64>,
    /// Share of the reading bandwidth: a row for each writer count.
    pub read_share: Vec<Vec<f64>>,
    /// Share of the writing bandwidth.
    pub write_share: Vec<Vec<f64>>,
}

impl Access {
    /// Accesses of `threads` threads with `access_bytes` each.
    pub fn new(direction: Direction, pattern: Pattern, threads: u64, access_bytes: u64) -> Access {
        Access { direction, pattern, threads, access_bytes }
    }

    /// Workload of these accesses alone on their own socket's memory.
    pub fn near(self) -> Workload {
        self.at(SocketPlacement::Near)
    }

    /// Workload of these accesses alone, with this placement.
    pub fn at(self, place: SocketPlacement) -> Workload {
        Workload { access: self, place, opposite_threads: 0 }
    }
}

impl Workload {
    /// Workload beside threads that do the opposite.
    pub fn beside(self, opposite_threads: u64) -> Workload {
        Workload { opposite_threads, ..self }
    }
}

impl Bandwidth {
    /// Curve of a direction and a pattern.
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

impl MixedAccess {
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
    /// Bandwidth in GB/s (10⁹ bytes) of all the workload's threads together. A profile without another socket
    /// treats all placements as near; one without mixed figures lets readers and writers not disturb each
    /// other.
    pub fn bandwidth_gb_per_s(&self, workload: &Workload) -> f64 {
        let Access { direction, threads, .. } = workload.access;
        let shares =
            self.mixed.as_ref().map_or(1.0, |m| m.share(direction, threads, workload.opposite_threads));
        self.near_gb_per_s(&workload.access) * self.place_factor(workload) * shares
    }

    fn near_gb_per_s(&self, access: &Access) -> f64 {
        self.bandwidth.curve(access.direction, access.pattern).at(access.threads, access.access_bytes)
    }

    /// Factor of the placement on the near bandwidth. Measured for 4 KiB individual access; other accesses
    /// are assumed to lose the same share.
    fn place_factor(&self, workload: &Workload) -> f64 {
        let (Some(far), Some(sockets)) = (&self.far, &self.sockets) else { return 1.0 };
        let Access { direction, threads, .. } = workload.access;
        let near = self.near_gb_per_s(&Access::new(direction, Pattern::Individual, threads, 4096));
        let reading = direction == Direction::Read;
        let pick = |read: f64, write: f64| if reading { read } else { write };
        let near_peak = self.bandwidth.curve(direction, Pattern::Individual).peak();
        let far_curve = if reading { &far.read } else { &far.write };
        match workload.place {
            SocketPlacement::Near => 1.0,
            SocketPlacement::Far => far_curve.at(threads) / near,
            SocketPlacement::FarFirst => pick(far.first_read.at(threads), far.write.at(threads)) / near,
            SocketPlacement::Unpinned => {
                pick(far.unpinned_read.at(threads), far.unpinned_write.at(threads)) / near
            }
            SocketPlacement::BothNear => {
                pick(sockets.read_near_gb_per_s, sockets.write_near_gb_per_s) / near_peak
            }
            SocketPlacement::BothFar => {
                let both = pick(sockets.read_far_gb_per_s, sockets.write_far_gb_per_s);
                both / far_curve.peak() * far_curve.at(threads) / near
            }
            SocketPlacement::Shared => {
                pick(sockets.read_shared_gb_per_s, sockets.write_shared_gb_per_s) / near_peak
            }
        }
    }
}
