//! The bandwidth paper's experiments (Daase et al., SIGMOD 2021, figures 3 to 13) on the media of this
//! machine and on modelled Optane and DRAM, and its twelve insights, each with the figures of the medium and
//! whether it holds there.
//!
//! The curves of modelled Optane are transcribed from the paper's figures: that its insights follow from them
//! checks the transcription. What the model says by itself comes from single accesses through a modelled
//! pool, line by line.

mod figures;
mod insights;
mod through_pool;

use crate::media::file::DirectFile;
use crate::media::journal::JournalPool;
use crate::media::memory::Memory;
use crate::media::modelled::ModelledMedium;
use crate::media::{CachedMedium, rounds};
use crate::report::Report;
use crate::{Error, RunOptions};
use entresol_memory::placement::Policy;
use entresol_memory::profile::{Direction, Profile};
use serde_json::json;

/// Runs the experiment.
pub(super) fn run(options: &RunOptions, report: &mut Report) -> Result<(), Error> {
    let optane_profile = Profile::embedded("optane-dcpmm")?;
    let dram_profile = Profile::embedded("dram")?;
    let policy = Policy::of_this_machine(&dram_profile)?;
    describe_machine(&policy, report);
    let rounds = rounds(options.quick);
    let (memory_mib, file_mib, journal_mib) = if options.quick { (64, 16, 16) } else { (1024, 512, 128) };
    {
        let memory = Memory::new(memory_mib, rounds, &policy)?;
        let mut dram = CachedMedium::new(&memory);
        figures::curves(&mut dram, report)?;
        figures::pinning(&mut dram, report)?;
        figures::mixed(&mut dram, report)?;
        figures::peaks(&mut dram, [Some("about 100"), None], report)?;
        insights::all(&mut dram, report)?;
    }
    {
        let file = DirectFile::new(options, file_mib, rounds, &policy)?;
        let mut file = CachedMedium::new(&file);
        figures::curves(&mut file, report)?;
        figures::mixed(&mut file, report)?;
        insights::all(&mut file, report)?;
    }
    {
        let journal = JournalPool::new(options, journal_mib, rounds, &policy)?;
        figures::curves_of(&mut CachedMedium::new(&journal), Direction::Write, report)?;
    }
    let optane = ModelledMedium::new("modelled Optane", optane_profile.clone());
    let modelled_dram = ModelledMedium::new("modelled DRAM", dram_profile);
    let mut optane = CachedMedium::new(&optane);
    figures::curves(&mut optane, report)?;
    figures::pinning(&mut optane, report)?;
    figures::mixed(&mut optane, report)?;
    figures::places(&mut optane, report)?;
    figures::peaks(&mut optane, [Some("about 40"), Some("12.6")], report)?;
    figures::places(&mut CachedMedium::new(&modelled_dram), report)?;
    let holding = insights::all(&mut optane, report)?;
    report
        .check("transcription: the profile's curves say what the paper's twelve insights say", holding == 12);
    through_pool::run(&optane_profile, report)
}

fn describe_machine(policy: &Policy, report: &mut Report) {
    let topology = policy.topology();
    report.row(json!({
        "topology": "this machine",
        "sockets": policy.sockets().len(),
        "nodes": topology.nodes().len(),
        "processors": topology.cpus().len(),
        "cores": policy.readers_per_socket(policy.sockets()[0]),
    }));
    let source = "bandwidth paper, section 2.3";
    report.paper(source, "sockets", "2", Some(policy.sockets().len() as f64));
    let cores = policy.readers_per_socket(policy.sockets()[0]);
    report.paper(source, "cores of a socket", "18", Some(cores as f64));
}
