//! Durability of the platform's processor caches over a power failure (eADR), as Linux reports it.
//!
//! The block device under a DAX file system belongs to an NVDIMM region, and the region reports in sysfs how
//! far a store must have come to be durable (`persistence_domain`): `memory_controller` (ADR: a line must be
//! written back) or `cpu_cache` (eADR: it need not be). A device that is not directly on a region (a striped
//! volume, an older kernel) reports nothing, and then lines are written back.

use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns true if the memory behind an open file keeps the processor's caches over a power failure.
pub(super) fn caches_are_durable(file: BorrowedFd<'_>) -> bool {
    let device = file.try_clone_to_owned().and_then(|file| fs::File::from(file).metadata());
    device.is_ok_and(|metadata| {
        let device = metadata.dev();
        let number = format!("{}:{}", libc::major(device), libc::minor(device));
        persistence_domain(Path::new("/sys"), &number).as_deref() == Some("cpu_cache")
    })
}

/// Persistence domain of a block device's region; none if it belongs to no region.
fn persistence_domain(sysfs: &Path, device_number: &str) -> Option<String> {
    let device = fs::canonicalize(sysfs.join("dev/block").join(device_number)).ok()?;
    let said = device.ancestors().find_map(|at| fs::read_to_string(at.join("persistence_domain")).ok())?;
    Some(said.trim().to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// A sysfs with two NVDIMM regions, a partition, and a disk.
    fn sysfs() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let devices = [
            ("259:0", "devices/ndbus0/region0/pfn0.0/block/pmem0", Some("memory_controller\n")),
            ("259:1", "devices/ndbus0/region1/pfn1.0/block/pmem1", Some("cpu_cache\n")),
            ("259:2", "devices/ndbus0/region1/pfn1.0/block/pmem1/pmem1p1", None),
            ("8:0", "devices/pci0/block/sda", None),
        ];
        let numbers = dir.path().join("dev/block");
        fs::create_dir_all(&numbers).unwrap();
        for (number, device, persistence) in devices {
            let device = dir.path().join(device);
            fs::create_dir_all(&device).unwrap();
            if let Some(persistence) = persistence {
                let region = device.ancestors().nth(3).unwrap();
                fs::write(region.join("persistence_domain"), persistence).unwrap();
            }
            std::os::unix::fs::symlink(device, numbers.join(number)).unwrap();
        }
        dir
    }

    #[test]
    fn the_region_of_the_device_decides() {
        let sysfs = sysfs();
        let domain = |number| persistence_domain(sysfs.path(), number);
        assert_eq!(domain("259:0").as_deref(), Some("memory_controller"));
        assert_eq!(domain("259:1").as_deref(), Some("cpu_cache"));
        assert_eq!(domain("259:2").as_deref(), Some("cpu_cache"), "a partition asks its device's region");
        assert_eq!(domain("8:0"), None);
        assert_eq!(domain("1:1"), None, "no such device");
    }

    #[test]
    fn an_ordinary_file_is_not_on_such_memory() {
        let file = tempfile::tempfile().unwrap();
        assert!(!caches_are_durable(file.as_fd()));
    }
}
