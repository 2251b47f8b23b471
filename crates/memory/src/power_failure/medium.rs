//! Medium under the files: the durable part, and the pending changes of which a power failure leaves any
//! part.
//!
//! A file's content at its last sync is certain. Of every write since, each 512-byte sector may be present or
//! not, on its own and in any order; so may each growth of the length, and every block of 4 KiB of each
//! released range may be zeroed or not. Names are durable at a sync of their directory; of those changed
//! since, a prefix is present.
//!
//! A piece of a write that changes nothing is omitted: with and without it the state is the same.

use crate::env::{Env, FileEvent, FilesImage};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Unit that a device writes atomically.
const SECTOR_BYTES: usize = 512;
/// Unit that a file system frees atomically.
const BLOCK_BYTES: usize = 4096;

/// Part of a change that survives or not.
#[derive(Debug, Clone)]
enum Unit {
    /// Growth to a length.
    Length(usize),
    /// Shortening to a length.
    End(usize),
    Sector {
        at: usize,
        bytes: Arc<[u8]>,
        from: usize,
        to: usize,
    },
    Zeros(Range<usize>),
}

#[derive(Debug, Default)]
struct MediumFile {
    durable: Vec<u8>,
    /// Content with all pending changes.
    current: Vec<u8>,
    /// Pending changes since the last sync, each with a unique number.
    pending: Vec<(u64, Unit)>,
    /// Index of the first pending unit of the last write.
    last_write: usize,
}

#[derive(Debug, Clone)]
enum NameChange {
    Created(PathBuf, usize),
    Renamed(PathBuf, PathBuf),
    Removed(PathBuf),
}

/// Medium under the files of a record; events are applied in order.
#[derive(Debug, Default)]
pub(super) struct SimulatedMedium {
    files: Vec<MediumFile>,
    names: BTreeMap<PathBuf, usize>,
    pending_names: Vec<NameChange>,
    units: u64,
    /// File of the last write.
    written: Option<usize>,
}

/// Selection of the pending units that survive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SurvivorChoice {
    /// Survival of each pending unit, by file.
    kept: Vec<Vec<bool>>,
    /// File whose last write is torn, and the length of the prefix that is present.
    torn: Option<(usize, usize)>,
    /// Number of pending changes of names that survive.
    names: usize,
}

impl SurvivorChoice {
    pub(super) fn is_torn(&self) -> bool {
        self.torn.is_some()
    }
}

impl SimulatedMedium {
    /// Medium on which all of an image is durable.
    pub(super) fn holding(image: &FilesImage, numbers: &BTreeMap<PathBuf, usize>) -> SimulatedMedium {
        let mut medium = SimulatedMedium { names: numbers.clone(), ..SimulatedMedium::default() };
        for (path, file) in numbers {
            let bytes = &image[path];
            let file = medium.file(*file);
            file.durable.clone_from(bytes);
            file.current.clone_from(bytes);
        }
        medium
    }

    fn file(&mut self, number: usize) -> &mut MediumFile {
        if self.files.len() <= number {
            self.files.resize_with(number + 1, MediumFile::default);
        }
        &mut self.files[number]
    }

    /// Applies the event. True if there are new states after it.
    pub(super) fn apply(&mut self, event: &FileEvent) -> bool {
        self.written = None;
        match event {
            FileEvent::Created { file, path } => {
                self.file(*file);
                self.pending_names.push(NameChange::Created(path.clone(), *file));
            }
            FileEvent::Wrote { file, offset, bytes } => {
                self.written = Some(*file);
                let first = self.units;
                self.units += 1 << 20;
                return self.file(*file).write(*offset as usize, bytes, first);
            }
            FileEvent::Allocated { file, end } => {
                self.units += 1 << 20;
                let unit = self.units;
                let (file, end) = (self.file(*file), *end as usize);
                if end <= file.current.len() {
                    return false;
                }
                file.current.resize(end, 0);
                file.pending.push((unit, Unit::Length(end)));
            }
            FileEvent::Released { file, offset, bytes } => {
                let first = self.units;
                self.units += 1 << 20;
                return self.file(*file).release(*offset as usize, (offset + bytes) as usize, first);
            }
            FileEvent::Shortened { file, end } => {
                self.units += 1 << 20;
                let unit = self.units;
                let (file, end) = (self.file(*file), *end as usize);
                if end >= file.current.len() {
                    return false;
                }
                file.current.truncate(end);
                file.pending.push((unit, Unit::End(end)));
            }
            FileEvent::Synced { file } => self.file(*file).sync(),
            FileEvent::Renamed { from, to } => {
                self.pending_names.push(NameChange::Renamed(from.clone(), to.clone()));
            }
            FileEvent::Removed { path } => self.pending_names.push(NameChange::Removed(path.clone())),
            FileEvent::DirectorySynced => {
                self.names = self.names_with(self.pending_names.len());
                self.pending_names.clear();
            }
            FileEvent::Noted { .. } => return false,
        }
        true
    }

    fn names_with(&self, changes: usize) -> BTreeMap<PathBuf, usize> {
        let mut names = self.names.clone();
        for change in &self.pending_names[..changes] {
            match change {
                NameChange::Created(path, file) => {
                    names.insert(path.clone(), *file);
                }
                NameChange::Renamed(from, to) => {
                    if let Some(file) = names.remove(from) {
                        names.insert(to.clone(), file);
                    }
                }
                NameChange::Removed(path) => {
                    names.remove(path);
                }
            }
        }
        names
    }

    /// States to check: the extreme ones, each unit alone present and alone missing, the last write torn at
    /// every byte (`torn`), and random subsets.
    pub(super) fn choices(&self, random_states: u32, torn: bool, random: &Env) -> Vec<SurvivorChoice> {
        let all_names = self.pending_names.len();
        let whole = |keep: bool, names: usize| SurvivorChoice {
            kept: self.files.iter().map(|file| vec![keep; file.pending.len()]).collect(),
            torn: None,
            names,
        };
        let mut choices: Vec<SurvivorChoice> =
            (0..=all_names).flat_map(|names| [whole(true, names), whole(false, names)]).collect();
        for (number, file) in self.files.iter().enumerate().filter(|(_, file)| !file.pending.is_empty()) {
            for keep in [true, false] {
                let mut choice = whole(!keep, all_names);
                choice.kept[number].fill(keep);
                choices.push(choice);
            }
            // All units, as long as there are few; else a random selection.
            const ALONE_MAX: usize = 24;
            let pending = file.pending.len();
            for i in 0..pending.min(ALONE_MAX) {
                let unit = if pending <= ALONE_MAX { i } else { random.random_u64() as usize % pending };
                for keep in [true, false] {
                    let mut choice = whole(!keep, all_names);
                    choice.kept[number][unit] = keep;
                    choices.push(choice);
                }
            }
        }
        let free: usize = self.files.iter().map(|file| file.pending.len()).sum();
        for state in 0..if free > 1 { random_states } else { 0 } {
            let density = random.random_u64() % 9;
            let mut choice = whole(false, all_names);
            for kept in choice.kept.iter_mut().flatten() {
                *kept = random.random_u64() % 8 < density;
            }
            // Half of the states keep the order between files: only the units of the file written last are
            // random.
            if let (Some(written), 0) = (self.written, state % 2) {
                for (number, kept) in choice.kept.iter_mut().enumerate() {
                    if number != written {
                        kept.fill(true);
                    }
                }
            }
            choices.push(choice);
        }
        if let Some(written) = self.written.filter(|_| torn) {
            let file = &self.files[written];
            for bytes in file.torn_lengths() {
                let mut choice = whole(true, all_names);
                choice.kept[written][file.last_write..].fill(false);
                choice.torn = Some((written, bytes));
                choices.push(choice);
            }
        }
        choices
    }

    /// Number that identifies a state.
    pub(super) fn fingerprint(&self, choice: &SurvivorChoice) -> u64 {
        let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        let mut hash = mix(1, (self.names.len() * 64 + choice.names) as u64);
        for (number, (file, kept)) in self.files.iter().zip(&choice.kept).enumerate() {
            hash = mix(hash, number as u64);
            for ((unit, _), _) in file.pending.iter().zip(kept).filter(|(_, kept)| **kept) {
                hash = mix(hash, *unit + 1);
            }
        }
        let torn = choice.torn.map_or(0, |(file, bytes)| 1 + file as u64 + ((bytes as u64) << 8));
        mix(mix(hash, torn), self.units * u64::from(choice.torn.is_some()))
    }

    /// Fills an image with the files of a state.
    pub(super) fn image(&self, choice: &SurvivorChoice, image: &mut FilesImage) {
        let names = self.names_with(choice.names);
        image.retain(|path, _| names.contains_key(path));
        for (path, number) in names {
            let file = &self.files[number];
            let content = image.entry(path).or_default();
            content.clone_from(&file.durable);
            let kept = file.pending.iter().zip(&choice.kept[number]).filter(|(_, kept)| **kept);
            kept.for_each(|((_, unit), _)| unit.apply(content, usize::MAX));
            if let Some((torn, bytes)) = choice.torn.filter(|(torn, _)| *torn == number) {
                debug_assert_eq!(torn, number);
                let end = file.pending[file.last_write].1.start() + bytes;
                file.pending[file.last_write..].iter().for_each(|(_, unit)| unit.apply(content, end));
            }
        }
    }
}

impl MediumFile {
    /// Adds the sectors of a write that change something; true if there are any.
    fn write(&mut self, offset: usize, bytes: &Arc<[u8]>, first_unit: u64) -> bool {
        self.last_write = self.pending.len();
        let end = offset + bytes.len();
        let longer = end > self.current.len();
        if longer {
            self.current.resize(end, 0);
        }
        let mut at = offset;
        let mut unit = first_unit;
        while at < end {
            let next = ((at / SECTOR_BYTES + 1) * SECTOR_BYTES).min(end);
            let (from, to) = (at - offset, next - offset);
            if longer || self.current[at..next] != bytes[from..to] {
                self.pending.push((unit, Unit::Sector { at, bytes: bytes.clone(), from, to }));
                unit += 1;
            }
            at = next;
        }
        self.current[offset..end].copy_from_slice(bytes);
        self.pending.len() > self.last_write
    }

    /// Adds the blocks of a released range, as far as they are not zeros; true if there are any.
    fn release(&mut self, offset: usize, end: usize, first_unit: u64) -> bool {
        let end = end.min(self.current.len());
        let before = self.pending.len();
        let mut at = offset;
        while at < end {
            let next = ((at / BLOCK_BYTES + 1) * BLOCK_BYTES).min(end);
            if self.current[at..next].iter().any(|byte| *byte != 0) {
                let unit = first_unit + (self.pending.len() - before) as u64;
                self.pending.push((unit, Unit::Zeros(at..next)));
                self.current[at..next].fill(0);
            }
            at = next;
        }
        self.pending.len() > before
    }

    fn sync(&mut self) {
        self.durable.clone_from(&self.current);
        self.pending.clear();
        self.last_write = 0;
    }

    /// Lengths of prefixes of the last write that leave different states.
    fn torn_lengths(&self) -> Vec<usize> {
        let units = &self.pending[self.last_write..];
        let Some((_, first)) = units.first() else { return Vec::new() };
        let start = first.start();
        let mut before = self.durable.clone();
        before.resize(self.current.len(), 0);
        self.pending[..self.last_write].iter().for_each(|(_, unit)| unit.apply(&mut before, usize::MAX));
        let mut lengths = Vec::new();
        for (_, unit) in units {
            if let Unit::Sector { at, bytes, from, to } = unit {
                let changed = (0..to - from).filter(|i| before[at + i] != bytes[from + i]);
                lengths.extend(changed.map(|i| at + i + 1 - start));
            }
        }
        // The complete write is a state of its own already.
        lengths.pop();
        lengths
    }
}

impl Unit {
    fn start(&self) -> usize {
        match self {
            Unit::Length(_) | Unit::End(_) => 0,
            Unit::Sector { at, .. } => *at,
            Unit::Zeros(range) => range.start,
        }
    }

    /// Applies the part before byte `end` of the file.
    fn apply(&self, content: &mut Vec<u8>, end: usize) {
        match self {
            Unit::Length(length) if *length > content.len() => content.resize(*length, 0),
            Unit::Length(_) => {}
            Unit::End(length) => content.truncate(*length),
            Unit::Zeros(range) => {
                // Bytes behind the end of a file whose growth was lost are absent.
                let end = range.end.min(content.len());
                content[range.start.min(end)..end].fill(0);
            }
            Unit::Sector { at, bytes, from, to } => {
                let to = (*to).min(from + end.saturating_sub(*at));
                let last = at + to - from;
                if last > content.len() {
                    content.resize(last, 0);
                }
                content[*at..last].copy_from_slice(&bytes[*from..to]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::env::{Files, OpenMode, SimulatedFiles};
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Every content of the one file that the choices leave.
    fn contents(medium: &SimulatedMedium, torn: bool) -> BTreeSet<Vec<u8>> {
        let mut image = FilesImage::new();
        let choices = medium.choices(400, torn, &Env::simulated(1));
        choices
            .iter()
            .filter_map(|choice| {
                medium.image(choice, &mut image);
                image.values().next().cloned()
            })
            .collect()
    }

    #[test]
    fn every_subset_of_unsynced_sectors_can_be_left_and_nothing_else() {
        let files = SimulatedFiles::new();
        files.record();
        let path = Path::new("file");
        let file = files.open(path, OpenMode::Create).unwrap();
        file.write_at(&[1; 1536], 0).unwrap();
        file.sync_data().unwrap();
        files.sync_directory(Path::new("")).unwrap();
        file.write_at(&[2; 1536], 0).unwrap();
        let mut medium = SimulatedMedium::default();
        for event in files.take_record() {
            medium.apply(&event);
        }
        let left = contents(&medium, false);
        let sector_values: BTreeSet<[u8; 3]> = left.iter().map(|c| [c[0], c[512], c[1024]]).collect();
        assert_eq!(sector_values.len(), 8, "{sector_values:?}");
        let whole_sectors = |c: &Vec<u8>| c.chunks(512).all(|sector| sector.iter().all(|b| *b == sector[0]));
        assert!(left.iter().all(whole_sectors));
        // Torn at every byte: a prefix of the new over the old.
        let torn = contents(&medium, true);
        assert!((1..1536).all(|cut| torn.contains(&[vec![2; cut], vec![1; 1536 - cut]].concat())));
    }

    #[test]
    fn of_a_range_that_was_released_any_blocks_are_zeros_until_a_sync() {
        let files = SimulatedFiles::new();
        files.record();
        let path = Path::new("file");
        let file = files.open(path, OpenMode::Create).unwrap();
        file.write_at(&[1; 3 * BLOCK_BYTES], 0).unwrap();
        file.sync_data().unwrap();
        files.sync_directory(Path::new("")).unwrap();
        file.release(0, 2 * BLOCK_BYTES as u64).unwrap();
        let mut read = vec![9; 3 * BLOCK_BYTES];
        file.read_at(&mut read, 0).unwrap();
        assert_eq!(read, [vec![0; 2 * BLOCK_BYTES], vec![1; BLOCK_BYTES]].concat());
        let mut medium = SimulatedMedium::default();
        for event in files.take_record() {
            medium.apply(&event);
        }
        let blocks = |medium: &SimulatedMedium| -> BTreeSet<Vec<u8>> {
            let whole = |block: &[u8]| block.iter().all(|byte| *byte == block[0]);
            let of = |content: &Vec<u8>| {
                assert!(content.chunks(BLOCK_BYTES).all(whole));
                content.chunks(BLOCK_BYTES).map(|block| block[0]).collect()
            };
            contents(medium, false).iter().map(of).collect()
        };
        let expected = [[0, 0, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1]].map(Vec::from);
        assert_eq!(blocks(&medium), BTreeSet::from(expected));
        medium.apply(&FileEvent::Synced { file: 0 });
        assert_eq!(blocks(&medium), BTreeSet::from([vec![0, 0, 1]]));
    }

    #[test]
    fn a_file_that_was_shortened_is_as_long_as_before_until_a_sync() {
        let files = SimulatedFiles::new();
        files.record();
        let file = files.open(Path::new("file"), OpenMode::Create).unwrap();
        file.write_at(&[1; 1024], 0).unwrap();
        file.sync_data().unwrap();
        files.sync_directory(Path::new("")).unwrap();
        file.shorten(512).unwrap();
        file.shorten(700).unwrap();
        assert_eq!(file.len().unwrap(), 512);
        file.write_at(&[2; 512], 512).unwrap();
        let mut medium = SimulatedMedium::default();
        for event in files.take_record() {
            medium.apply(&event);
        }
        let lengths = |medium: &SimulatedMedium| -> BTreeSet<(usize, u8)> {
            contents(medium, false).iter().map(|content| (content.len(), *content.last().unwrap())).collect()
        };
        assert_eq!(lengths(&medium), BTreeSet::from([(512, 1), (1024, 1), (1024, 2)]));
        medium.apply(&FileEvent::Synced { file: 0 });
        assert_eq!(lengths(&medium), BTreeSet::from([(1024, 2)]));
    }

    #[test]
    fn lengths_and_names_are_lost_without_their_syncs() {
        let files = SimulatedFiles::new();
        files.record();
        let file = files.open(Path::new("a"), OpenMode::Create).unwrap();
        file.allocate(0, 100).unwrap();
        file.sync_data().unwrap();
        file.allocate(100, 100).unwrap();
        files.rename(Path::new("a"), Path::new("b")).unwrap();
        let mut medium = SimulatedMedium::default();
        for event in files.take_record() {
            medium.apply(&event);
        }
        let mut seen = BTreeSet::new();
        let mut image = FilesImage::new();
        for choice in medium.choices(0, false, &Env::simulated(1)) {
            medium.image(&choice, &mut image);
            seen.insert(image.iter().map(|(p, c)| (p.display().to_string(), c.len())).collect::<Vec<_>>());
        }
        let named = |name: &str, length: usize| vec![(name.to_string(), length)];
        let expected = [vec![], named("a", 100), named("a", 200), named("b", 100), named("b", 200)];
        assert_eq!(seen, BTreeSet::from(expected));
    }
}
