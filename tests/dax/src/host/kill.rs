//! Kills stock QEMU in the middle of a history, boots again, recovers and goes on: what was acknowledged is there.
//!
//! All stores reach the NVDIMM's file, so this finds what a missing clwb or sfence does not hide: recovery that is
//! wrong, a missing `MAP_SYNC` or fsync (the kernel's own caches are lost), a commit reported too early.

use crate::machine::{Machine, copy};
use crate::{Paths, Result};
use std::path::Path;
use std::time::Duration;

/// How often the power fails.
const KILLS: u64 = 4;
/// Steps that go on after the last recovery.
const STEPS_AFTER: u64 = 50;

pub(crate) fn run(paths: &Paths, archive: &Path, blank: &Path, work: &Path, seed: u64) -> Result<String> {
    let nvdimm = work.join("nvdimm.img");
    copy(blank, &nvdimm)?;
    let mut random = crate::jobs::Random::new(seed);
    let boot = |steps: u64, acknowledged: u64| {
        let command_line = format!(
            "entresol.mode=run entresol.seed={seed} entresol.steps={steps} entresol.acknowledged={acknowledged}"
        );
        Machine {
            archive: archive.to_path_buf(),
            nvdimms: vec![nvdimm.clone()],
            processor: "",
            persistence: "mem-ctrl",
            command_line,
            nodes: 1,
            plugin: None,
        }
        .start(paths)
    };
    let (mut acknowledged, mut story) = (0, Vec::new());
    for _ in 0..KILLS {
        let target = acknowledged + random.below(400);
        let guest = boot(u64::MAX, acknowledged)?;
        while acknowledged < target {
            let line = guest.line()?.ok_or("the guest ended by itself")?;
            note(&line, &mut acknowledged)?;
        }
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        for line in guest.kill()? {
            note(&line, &mut acknowledged)?;
        }
        story.push(acknowledged.to_string());
    }
    let last = acknowledged + STEPS_AFTER;
    let said = boot(last, acknowledged)?.finish()?;
    if !said.contains(&format!("dax: finished {last}")) {
        return Err(format!("after the last kill:\n{}", crate::machine::tail(&said)).into());
    }
    Ok(format!("killed after steps {}; all were there", story.join(", ")))
}

/// Keeps the last acknowledged step of a line that the guest said.
fn note(line: &str, acknowledged: &mut u64) -> Result<()> {
    if line.contains("FAILED") || line.contains("panic") {
        return Err(format!("after step {acknowledged} was acknowledged: {line}").into());
    }
    // The last line may be cut in the middle; a number that is cut short is smaller, and asks for less.
    if let Some(number) = line.strip_prefix("dax: done ").and_then(|text| text.parse::<u64>().ok()) {
        *acknowledged = number.max(*acknowledged);
    }
    Ok(())
}
