//! Fails the power by the rule of persistent memory: the plugin writes images that keep only what was flushed and
//! fenced, and a seeded choice of the rest; stock QEMU then boots with all of them and recovers each.

use crate::image::NVDIMM_BYTES;
use crate::machine::{FIRST_NVDIMM, Machine, copy, tail};
use crate::{Paths, Result};
use std::path::{Path, PathBuf};

/// A run under the plugin.
pub(crate) struct PowerFailures<'a> {
    pub(crate) archive: &'a Path,
    /// What the NVDIMM holds at first, and how many steps of the history that are certain to be in it.
    pub(crate) start: &'a Path,
    pub(crate) acknowledged: u64,
    pub(crate) seed: u64,
    /// The first fence with a power failure, and about how many fences lie between two.
    pub(crate) first: u64,
    pub(crate) every: u64,
    pub(crate) images: usize,
    pub(crate) processor: &'a str,
    pub(crate) mutant: Option<&'a str>,
}

/// An image that a power failure left.
pub(crate) struct Crash {
    pub(crate) image: PathBuf,
    pub(crate) acknowledged: u64,
    /// As the plugin describes it.
    pub(crate) what: String,
    /// Why it is not what it should be.
    pub(crate) failure: Option<String>,
}

pub(crate) struct Found {
    pub(crate) crashes: Vec<Crash>,
    pub(crate) summary: String,
}

impl PowerFailures<'_> {
    pub(crate) fn run(&self, paths: &Paths, work: &Path) -> Result<Found> {
        let mut crashes = self.crash(paths, work)?;
        self.check(paths, &mut crashes)?;
        let summary = std::fs::read_to_string(work.join("summary.txt"))?.trim().to_string();
        Ok(Found { crashes, summary })
    }

    /// Runs the history under the plugin until it has written all images.
    fn crash(&self, paths: &Paths, work: &Path) -> Result<Vec<Crash>> {
        let nvdimm = work.join("nvdimm.img");
        copy(self.start, &nvdimm)?;
        let mutant = self.mutant.map_or(String::new(), |name| format!(" entresol.mutant={name}"));
        let (seed, acknowledged) = (self.seed, self.acknowledged);
        let machine = Machine {
            archive: self.archive.to_path_buf(),
            nvdimms: vec![nvdimm.clone()],
            processor: self.processor,
            persistence: "mem-ctrl",
            command_line: format!(
                "entresol.mode=run entresol.seed={seed} entresol.steps={} entresol.acknowledged={acknowledged}{mutant}",
                u64::MAX
            ),
            nodes: 1,
            plugin: Some(format!(
                "nvdimm={},base={FIRST_NVDIMM},out={},seed={seed},first={},every={},images={}",
                nvdimm.display(),
                work.display(),
                self.first,
                self.every,
                self.images
            )),
        };
        let said = machine.start(paths)?.finish()?;
        if !said.iter().any(|line| line.contains(&format!("memory_controller {FIRST_NVDIMM}"))) {
            return Err(format!("the NVDIMM is not where the plugin looks:\n{}", tail(&said)).into());
        }
        let list = std::fs::read_to_string(work.join("crashes.txt"))
            .map_err(|e| format!("no power failure happened ({e}):\n{}", tail(&said)))?;
        let crashes: Vec<Crash> =
            list.lines().map(|line| self.described(line, work)).collect::<Result<_>>()?;
        if crashes.len() == self.images && !said.iter().any(|line| line.contains("FAILED")) {
            return Ok(crashes);
        }
        Err(format!("{} power failures of {}:\n{}", crashes.len(), self.images, tail(&said)).into())
    }

    fn described(&self, line: &str, work: &Path) -> Result<Crash> {
        let field = |name: &str| -> Result<u64> {
            let value = line.split_whitespace().find_map(|word| word.strip_prefix(name));
            Ok(value.ok_or_else(|| format!("no {name} in '{line}'"))?.parse()?)
        };
        let image = work.join(format!("crash-{}.img", field("image=")?));
        // Before its first mark the guest has what it started with.
        let acknowledged = field("acknowledged=")?.max(self.acknowledged);
        assert_eq!(std::fs::metadata(&image)?.len(), NVDIMM_BYTES, "a whole image");
        Ok(Crash { image, acknowledged, what: line.to_string(), failure: None })
    }

    /// Boots stock QEMU with all images and notes which of them fail.
    fn check(&self, paths: &Paths, crashes: &mut [Crash]) -> Result<()> {
        let acknowledged: Vec<String> = crashes.iter().map(|crash| crash.acknowledged.to_string()).collect();
        // The check changes what it looks at; the image stays for a power failure in its recovery.
        let copies: Vec<PathBuf> =
            crashes.iter().map(|crash| crash.image.with_extension("checked")).collect();
        for (crash, copied) in crashes.iter().zip(&copies) {
            copy(&crash.image, copied)?;
        }
        let machine = Machine {
            archive: self.archive.to_path_buf(),
            nvdimms: copies.clone(),
            processor: self.processor,
            persistence: "mem-ctrl",
            command_line: format!(
                "entresol.mode=check entresol.seed={} entresol.acknowledged={}",
                self.seed,
                acknowledged.join(",")
            ),
            nodes: 1,
            plugin: None,
        };
        let said = machine.start(paths)?.finish()?;
        if !said.iter().any(|line| line == "dax: end") {
            return Err(format!("the check came to no end:\n{}", tail(&said)).into());
        }
        for (number, (crash, copied)) in crashes.iter_mut().zip(copies).enumerate() {
            let good = format!("dax: checked /mnt/{number} ");
            if !said.iter().any(|line| line.starts_with(&good)) {
                crash.failure = Some(about(number, &said));
            }
            std::fs::remove_file(copied)?;
        }
        Ok(())
    }
}

/// What the guest said of a device.
fn about(number: usize, said: &[String]) -> String {
    let from = said.iter().position(|line| line.starts_with(&format!("dax: device {number} ")));
    let lines = &said[from.map_or(said.len(), |at| at + 1)..];
    let end = lines.iter().position(|line| line.starts_with("dax: device ") || line == "dax: end");
    lines[..end.unwrap_or(lines.len())].join("; ")
}
