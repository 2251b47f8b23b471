//! Memory node near a device, as `/sys` reports it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Maximum depth of stacked devices that is searched, e.g. a volume on a mirror on partitions.
const STOREYS_MAX: usize = 8;

/// Node near the device of the file system that holds a path. None if the kernel does not report it: in
/// virtual machines, on file systems without a device of their own (tmpfs, btrfs, overlayfs, NFS), where
/// `/sys` is hidden, and for a volume over devices of several nodes. Cost: a few small files of `/sys`.
pub fn node_of_device(path: &Path) -> Option<usize> {
    let device = fs::metadata(path).ok()?.dev();
    node_in_sysfs(Path::new("/sys"), libc::major(device), libc::minor(device))
}

/// Node of a block device in a tree like `/sys`.
fn node_in_sysfs(root: &Path, major: u32, minor: u32) -> Option<usize> {
    let root = root.canonicalize().ok()?;
    node_of_directory(&root, &root.join(format!("dev/block/{major}:{minor}")), STOREYS_MAX)
}

/// Node of a device's directory: its own or the nearest ancestor's, else the one on which all devices under
/// it agree.
fn node_of_directory(root: &Path, device: &Path, storeys: usize) -> Option<usize> {
    let storeys = storeys.checked_sub(1)?;
    let device = device.canonicalize().ok()?;
    for directory in device.ancestors().take_while(|directory| directory.starts_with(root.join("devices"))) {
        let told = fs::read_to_string(directory.join("numa_node")).ok();
        // It is -1 where the firmware did not report it.
        if let Some(node) = told.and_then(|text| text.trim().parse().ok()) {
            return Some(node);
        }
        let Ok(below) = fs::read_dir(directory.join("slaves")) else { continue };
        let mut nodes = below.flatten().map(|entry| node_of_directory(root, &entry.path(), storeys));
        if let Some(first) = nodes.next() {
            return first.filter(|_| nodes.all(|node| node == first));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    /// Creates a tree with devices, each a path below `devices`, with its numbers.
    fn sysfs(devices: &[(&str, &str)]) -> TempDir {
        let root = TempDir::new().unwrap();
        fs::create_dir_all(root.path().join("dev/block")).unwrap();
        for (numbers, path) in devices {
            let target = root.path().join("devices").join(path);
            fs::create_dir_all(&target).unwrap();
            symlink(target, root.path().join("dev/block").join(numbers)).unwrap();
        }
        root
    }

    fn say(root: &TempDir, directory: &str, node: &str) {
        fs::write(root.path().join("devices").join(directory).join("numa_node"), node).unwrap();
    }

    fn put_on(root: &TempDir, upper: &str, lower: &str) {
        let devices = root.path().join("devices");
        let slaves = devices.join(upper).join("slaves");
        fs::create_dir_all(&slaves).unwrap();
        symlink(devices.join(lower), slaves.join(lower.rsplit('/').next().unwrap())).unwrap();
    }

    const NVDIMM: &str = "LNXSYSTM:00/ACPI0012:00/ndbus0/region3/pfn3.0/block/pmem3";
    const DRIVE: &str = "pci0000:80/0000:80:01.1/nvme/nvme0/nvme0n1";

    #[test]
    fn the_node_is_that_of_the_nearest_device_above() {
        let root = sysfs(&[("259:0", NVDIMM), ("259:1", &format!("{DRIVE}/nvme0n1p2")), ("8:0", "ata1/sda")]);
        say(&root, "LNXSYSTM:00/ACPI0012:00/ndbus0/region3", "3\n");
        say(&root, "LNXSYSTM:00/ACPI0012:00", "0\n");
        say(&root, "pci0000:80/0000:80:01.1", "1\n");
        assert_eq!(node_in_sysfs(root.path(), 259, 0), Some(3));
        assert_eq!(node_in_sysfs(root.path(), 259, 1), Some(1), "a partition lies where its drive does");
        assert_eq!(node_in_sysfs(root.path(), 8, 0), None, "nothing is reported");
        assert_eq!(node_in_sysfs(root.path(), 0, 47), None, "no block device");
        assert_eq!(node_in_sysfs(&root.path().join("hidden"), 259, 0), None);
    }

    #[test]
    fn minus_one_says_nothing() {
        let root = sysfs(&[("259:0", NVDIMM), ("8:0", "pci0000:00/ata1/sda")]);
        say(&root, "LNXSYSTM:00/ACPI0012:00/ndbus0/region3/pfn3.0", "-1\n");
        say(&root, "LNXSYSTM:00/ACPI0012:00/ndbus0/region3", "2\n");
        say(&root, "pci0000:00", "-1\n");
        assert_eq!(node_in_sysfs(root.path(), 259, 0), Some(2), "a device above may know it");
        assert_eq!(node_in_sysfs(root.path(), 8, 0), None);
    }

    #[test]
    fn a_volume_is_near_a_node_if_all_below_it_are() {
        let other = "pci0000:00/0000:00:02.0/nvme/nvme1/nvme1n1";
        let (alike, mixed, on_mirror) = ("virtual/block/md0", "virtual/block/md1", "virtual/block/dm-0");
        let twin = "pci0000:80/0000:80:02.0/nvme/nvme2/nvme2n1";
        let root = sysfs(&[("9:0", alike), ("9:1", mixed), ("253:0", on_mirror), ("259:2", twin)]);
        for (drive, node) in [(DRIVE, "1"), (twin, "1"), (other, "0")] {
            fs::create_dir_all(root.path().join("devices").join(drive)).unwrap();
            say(&root, drive.split("/nvme/").next().unwrap(), node);
        }
        put_on(&root, alike, DRIVE);
        put_on(&root, alike, twin);
        put_on(&root, mixed, DRIVE);
        put_on(&root, mixed, other);
        put_on(&root, on_mirror, alike);
        assert_eq!(node_in_sysfs(root.path(), 9, 0), Some(1));
        assert_eq!(node_in_sysfs(root.path(), 9, 1), None, "half of it is elsewhere");
        assert_eq!(node_in_sysfs(root.path(), 253, 0), Some(1));
        put_on(&root, alike, on_mirror);
        assert_eq!(node_in_sysfs(root.path(), 253, 0), None, "a circle has an end");
    }

    #[test]
    fn a_path_that_is_not_there_is_near_nothing() {
        assert_eq!(node_of_device(Path::new("/no/such/directory")), None);
        // Files of the kernel lie on no device.
        assert_eq!(node_of_device(Path::new("/proc/self/status")), None);
    }
}
