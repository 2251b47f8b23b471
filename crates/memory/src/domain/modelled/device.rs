//! Device model behind the caches: blocks, the buffers of its modules, queues, and completion times.
//!
//! Reading: a block that a module has in its buffer, or is combining writes for, is answered from there; any
//! other is read from the medium. Writing: a line goes into its block among the module's open blocks; the
//! least recently used one is evicted when the module is full, and if lines of it are missing, they are read
//! first. Both take the medium for the time of the profile's bandwidth, shared among the threads of the
//! [`Load`].
//!
//! Memory: the modules' buffers and the queue, as large as the profile says.

use super::cost::ModelledCost;
use crate::profile::{Access, Direction, Pattern, Profile, SocketPlacement};
use std::collections::VecDeque;

/// Other threads that use the device, and its distance. They are not simulated: they take their share of the
/// bandwidth.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Number of other threads that read.
    pub readers: u64,
    /// Number of other threads that write.
    pub writers: u64,
    /// True if the device belongs to the other socket.
    pub far: bool,
}

/// Whole picoseconds, so that sums do not depend on their order.
fn picoseconds(ns: f64) -> u64 {
    (ns * 1000.0 + 0.5) as u64
}

/// Times of a profile under a load, in picoseconds.
struct Times {
    random_read: u64,
    buffered_read: u64,
    accept: u64,
    block_read: u64,
    block_write: u64,
}

impl Times {
    fn new(profile: &Profile, load: Load) -> Times {
        let far_factor = match &profile.far {
            Some(far) if load.far => far.latency_factor,
            _ => 1.0,
        };
        let block_bytes = profile.medium.block_bytes;
        let block_time = |direction, same: u64, opposite: u64| {
            let threads = same + 1;
            let access = Access::new(direction, Pattern::Individual, threads, block_bytes.max(4096));
            let workload = access
                .at(if load.far { SocketPlacement::Far } else { SocketPlacement::Near })
                .beside(opposite);
            let share_gb_per_s = profile.bandwidth_gb_per_s(&workload) / threads as f64;
            picoseconds(block_bytes as f64 / share_gb_per_s)
        };
        Times {
            random_read: picoseconds(profile.read.random_ns * far_factor),
            buffered_read: picoseconds(profile.buffered_read_ns() * far_factor),
            accept: picoseconds(profile.write.accept_ns * far_factor),
            block_read: block_time(Direction::Read, load.readers, load.writers),
            block_write: block_time(Direction::Write, load.writers, load.readers),
        }
    }
}

/// Block in which writes are combined; the written lines as bits.
struct OpenBlock {
    block: u64,
    written: u64,
}

/// Buffers of one module; the most recently used entry is last.
#[derive(Default)]
struct Module {
    read: Vec<u64>,
    open: Vec<OpenBlock>,
}

impl Module {
    /// Returns true if the read buffer has one of the blocks; the block is its latest entry afterwards.
    fn reads_from_buffer(&mut self, block: u64, same_stream: &[u64], capacity: usize) -> bool {
        let found = self.read.iter().position(|held| same_stream.contains(held));
        if let Some(position) = found {
            self.read.remove(position);
        } else if self.read.len() == capacity {
            self.read.remove(0);
        }
        self.read.push(block);
        found.is_some()
    }
}

pub(super) struct Device {
    times: Times,
    modules: Vec<Module>,
    interleave_bytes: u64,
    block_bytes: u64,
    line_bytes: u64,
    read_blocks_max: usize,
    open_blocks_max: usize,
    queue_max: usize,
    /// Time at which the medium has done all reads, and all writes, that it was given.
    reads_done: u64,
    writes_done: u64,
    /// Time at which each of the last accepted lines is on the medium.
    queue: VecDeque<u64>,
}

impl Device {
    pub(super) fn new(profile: &Profile) -> Device {
        let medium = &profile.medium;
        Device {
            times: Times::new(profile, Load::default()),
            modules: (0..medium.modules).map(|_| Module::default()).collect(),
            interleave_bytes: medium.interleave_bytes,
            block_bytes: medium.block_bytes,
            line_bytes: medium.transfer_bytes,
            read_blocks_max: profile.read.buffer_blocks as usize,
            open_blocks_max: profile.write.combining_blocks as usize,
            queue_max: profile.write.queue_transfers as usize,
            reads_done: 0,
            writes_done: 0,
            queue: VecDeque::new(),
        }
    }

    pub(super) fn set_load(&mut self, profile: &Profile, load: Load) {
        self.times = Times::new(profile, load);
    }

    fn lines_per_block(&self) -> u64 {
        self.block_bytes / self.line_bytes
    }

    fn module_of(&self, line: u64) -> usize {
        // A device without blocks larger than a line has streams instead of buffers, over all modules.
        if self.lines_per_block() == 1 {
            return 0;
        }
        (line * self.line_bytes / self.interleave_bytes % self.modules.len() as u64) as usize
    }

    /// Reads a line; returns the time of its arrival.
    pub(super) fn read(&mut self, line: u64, now: u64, cost: &mut ModelledCost) -> u64 {
        cost.lines_read += 1;
        let block = line / self.lines_per_block();
        let module = self.module_of(line);
        if self.lines_per_block() > 1 {
            let module = &mut self.modules[module];
            let combining = module.open.iter().any(|open| open.block == block);
            if combining || module.reads_from_buffer(block, &[block], self.read_blocks_max) {
                return now + self.times.buffered_read;
            }
            return self.read_block(now, self.times.random_read, cost);
        }
        let streams_max = self.read_blocks_max * self.modules.len();
        let same_stream = [block.wrapping_sub(1), block];
        let goes_on = self.modules[module].reads_from_buffer(block, &same_stream, streams_max);
        let latency = if goes_on { self.times.buffered_read } else { self.times.random_read };
        self.read_block(now, latency, cost)
    }

    fn read_block(&mut self, now: u64, latency: u64, cost: &mut ModelledCost) -> u64 {
        cost.blocks_read += 1;
        self.reads_done = self.reads_done.max(now) + self.times.block_read;
        self.reads_done.max(now + latency)
    }

    /// Sends a changed line to the device; returns the time at which it is safe from a power failure.
    pub(super) fn write(&mut self, line: u64, now: u64, cost: &mut ModelledCost) -> u64 {
        cost.lines_written += 1;
        let block = line / self.lines_per_block();
        let bit = 1 << (line % self.lines_per_block());
        let module = self.module_of(line);
        let open = &mut self.modules[module].open;
        let mut entry = match open.iter().position(|open| open.block == block) {
            Some(position) => open.remove(position),
            None => {
                let leaving = if open.len() == self.open_blocks_max { Some(open.remove(0)) } else { None };
                self.open_block(leaving, now, cost);
                OpenBlock { block, written: 0 }
            }
        };
        entry.written |= bit;
        self.modules[module].open.push(entry);
        self.accept(now)
    }

    /// Work of the medium when a block is opened and another one is evicted for it.
    fn open_block(&mut self, leaving: Option<OpenBlock>, now: u64, cost: &mut ModelledCost) {
        cost.blocks_written += 1;
        self.writes_done = self.writes_done.max(now) + self.times.block_write;
        let whole = u64::MAX >> (64 - self.lines_per_block());
        if leaving.is_some_and(|leaving| leaving.written != whole) {
            cost.blocks_completed += 1;
            cost.blocks_read += 1;
            self.writes_done += self.times.block_read;
        }
    }

    /// Accepts a line: it is safe once the queue has it, and the queue takes it once it has room.
    fn accept(&mut self, now: u64) -> u64 {
        let mut accepted = now + self.times.accept;
        self.queue.push_back(self.writes_done);
        if self.queue.len() > self.queue_max
            && let Some(room) = self.queue.pop_front()
        {
            accepted = accepted.max(room);
        }
        accepted
    }
}
