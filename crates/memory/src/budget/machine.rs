//! Memory available to this process: the machine's, or the limit of its control group.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of memory of the machine, or the limit of this process's control groups (versions 1 and 2),
/// whichever is less.
pub fn machine_memory_bytes() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = total_of(&meminfo).unwrap_or(1 << 30);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limit_of(&groups, Path::new("/sys/fs/cgroup")).map_or(machine, |limit| limit.min(machine))
}

/// Returns memory that was freed, but that the allocator keeps for later, to the system. Cost: some microseconds for
/// each free piece, in which other threads may wait for the heap. Allocators other than glibc's return it themselves.
pub(super) fn return_spare_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it touches free pieces only, and takes the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Least limit of the groups that `/proc/self/cgroup` names, and of their ancestors.
fn limit_of(groups: &str, mount: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, group) = (parts.next()?, parts.next()?, parts.next()?);
        if controllers.is_empty() {
            least_limit(&[mount.to_path_buf(), mount.join("unified")], group, "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            least_limit(&[mount.join("memory")], group, "memory.limit_in_bytes")
        } else {
            None
        }
    });
    limits.min()
}

fn least_limit(roots: &[PathBuf], group: &str, file: &str) -> Option<u64> {
    let group = Path::new(group.trim_start_matches('/'));
    // In a container the group is often mounted as the root, under which its own path is not there.
    let files = roots.iter().flat_map(|root| group.ancestors().map(move |group| root.join(group).join(file)));
    files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_least_limit_of_a_group_and_those_above_counts() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("a/b/memory.max", "max\n");
        put("a/memory.max", "1048576\n");
        put("memory/x/memory.limit_in_bytes", "4096\n");
        put("memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(limit_of("0::/a/b\n", dir.path()), Some(1 << 20));
        assert_eq!(limit_of("4:cpu,memory:/x\n0::/a\n", dir.path()), Some(4096));
        assert_eq!(limit_of("4:memory:/elsewhere\n", dir.path()), Some(9_223_372_036_854_771_712));
        assert_eq!(limit_of("4:cpu:/x\n", dir.path()), None);
        assert_eq!(limit_of("nonsense", dir.path()), None);
    }

    /// Pieces of 4 KiB, every 64th of which stays: the heap cannot shrink from its end.
    #[cfg(target_env = "gnu")]
    #[test]
    fn spare_memory_is_returned() {
        let pages = || {
            let statm = fs::read_to_string("/proc/self/statm").unwrap();
            statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
        };
        let pieces: Vec<Vec<u8>> = (0..32_768).map(|at| vec![at as u8; 4000]).collect();
        let left: Vec<Vec<u8>> = pieces.into_iter().step_by(64).collect();
        let kept = pages();
        return_spare_heap();
        let now = pages();
        assert!(now + 16_384 < kept, "{now} of {kept} pages are resident with {} pieces", left.len());
    }

    #[test]
    fn a_machine_has_memory() {
        assert!(machine_memory_bytes() > 64 << 20);
        assert_eq!(total_of("MemFree: 1 kB\nMemTotal:       2048 kB\n"), Some(2 << 20));
        assert_eq!(total_of("MemTotal: many kB"), None);
    }
}
