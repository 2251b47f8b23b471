//! A guest: QEMU without hardware virtualisation, a processor for each memory node, NVDIMMs backed by files.

use crate::{Paths, Result};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Where QEMU puts the first NVDIMM in the guest's physical addresses.
pub(crate) const FIRST_NVDIMM: u64 = 1 << 32;
/// DRAM of a guest.
const RAM_MIB: usize = 256;
/// A boot takes 3 to 7 s alone; a guest that says nothing for this long hangs.
const SILENCE_MAX: Duration = Duration::from_secs(300);

/// What to start.
pub(crate) struct Machine<'a> {
    pub(crate) archive: PathBuf,
    pub(crate) nvdimms: Vec<PathBuf>,
    /// Further properties of the processor, as ",clwb=off".
    pub(crate) processor: &'a str,
    /// How far a store must have come to be durable: `mem-ctrl` or `cpu`.
    pub(crate) persistence: &'a str,
    /// For the guest's init.
    pub(crate) command_line: String,
    /// Memory nodes, with a processor each; the NVDIMMs are on the last.
    pub(crate) nodes: usize,
    /// Arguments of the plugin, which also makes the run repeatable.
    pub(crate) plugin: Option<String>,
}

/// A guest that runs; dropped, it is killed.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Machine<'_> {
    pub(crate) fn start(&self, paths: &Paths) -> Result<Running> {
        let root = &paths.root;
        let mut qemu = Command::new(root.join("usr/bin/qemu-system-x86_64"));
        let libraries = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"].map(|dir| root.join(dir));
        qemu.env("LD_LIBRARY_PATH", std::env::join_paths(libraries)?);
        for firmware in ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"] {
            qemu.arg("-L").arg(root.join(firmware));
        }
        qemu.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio"]);
        qemu.args(["-accel", "tcg", "-rtc", "base=2026-01-01,clock=vm", "-smp"]).arg(self.nodes.to_string());
        qemu.arg("-cpu").arg(format!("max,la57=off{}", self.processor));
        qemu.arg("-m").arg(format!("{RAM_MIB}M,slots={},maxmem=64G", self.nvdimms.len()));
        for node in (0..self.nodes).filter(|_| self.nodes > 1) {
            let mib = RAM_MIB / self.nodes;
            qemu.arg("-object").arg(format!("memory-backend-ram,id=ram{node},size={mib}M"));
            qemu.arg("-numa").arg(format!("node,nodeid={node},cpus={node},memdev=ram{node}"));
        }
        let mut machine = format!("pc,nvdimm=on,nvdimm-persistence={}", self.persistence);
        if let Some(plugin) = &self.plugin {
            // The plugin walks the guest's page tables in memory that it can find.
            qemu.arg("-object").arg(format!("memory-backend-memfd,id=ram,size={RAM_MIB}M,share=on"));
            machine.push_str(",memory-backend=ram");
            // Eight nanoseconds an instruction: with fewer, the kernel's waits take most of the time.
            qemu.args(["-icount", "shift=3,sleep=off", "-seed", "1"]);
            qemu.arg("-plugin").arg(format!("{},{plugin}", paths.plugin.display()));
        }
        qemu.arg("-machine").arg(machine);
        for (number, file) in self.nvdimms.iter().enumerate() {
            let (bytes, file) = (crate::image::NVDIMM_BYTES, file.display());
            qemu.arg("-object")
                .arg(format!("memory-backend-file,id=nvdimm{number},share=on,mem-path={file},size={bytes}"));
            let node = self.nodes - 1;
            qemu.arg("-device").arg(format!("nvdimm,memdev=nvdimm{number},node={node}"));
        }
        qemu.arg("-kernel").arg(root.join("guest/vmlinuz")).arg("-initrd").arg(&self.archive);
        qemu.arg("-append").arg(format!(
            "console=ttyS0 quiet loglevel=3 panic=-1 nokaslr mitigations=off \
             entresol.first={FIRST_NVDIMM} entresol.bytes={} {}",
            crate::image::NVDIMM_BYTES,
            self.command_line
        ));
        let mut child = qemu
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("QEMU does not start: {e}"))?;
        let stdout = child.stdout.take().ok_or("no console")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n').map_while(std::result::Result::ok) {
                let line = String::from_utf8_lossy(&line).trim().to_string();
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Running { child, lines })
    }
}

impl Running {
    /// The next line of the console; none once the guest is gone.
    pub(crate) fn line(&self) -> Result<Option<String>> {
        match self.lines.recv_timeout(SILENCE_MAX) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err("the guest has been silent for too long".into()),
        }
    }

    /// Kills QEMU as a power failure would, and returns what it had said before.
    pub(crate) fn kill(mut self) -> Result<Vec<String>> {
        self.child.kill()?;
        self.child.wait()?;
        let mut rest = Vec::new();
        while let Some(line) = self.line()? {
            rest.push(line);
        }
        Ok(rest)
    }

    /// All that it says until it is gone.
    pub(crate) fn finish(mut self) -> Result<Vec<String>> {
        let started = Instant::now();
        let mut said = Vec::new();
        while let Some(line) = self.line()? {
            said.push(line);
            if started.elapsed() > 2 * SILENCE_MAX {
                return Err("the guest does not come to an end".into());
            }
        }
        let status = self.child.wait()?;
        if status.success() {
            return Ok(said);
        }
        Err(format!("QEMU: {status}; the console's end:\n{}", tail(&said)).into())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Already gone, in most cases.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The last lines, for a message.
pub(crate) fn tail(lines: &[String]) -> String {
    lines[lines.len().saturating_sub(15)..].join("\n")
}

/// A sparse copy.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::copy(from, to).map_err(|e| format!("copy {} to {}: {e}", from.display(), to.display()))?;
    Ok(())
}
