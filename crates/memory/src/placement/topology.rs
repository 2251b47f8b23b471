//! Processors, sockets and memory nodes, as `/sys/devices/system` reports them.

use crate::error::{Error, Result};
use std::path::Path;

/// Processor of the scheduler (a hyperthread, where there are any).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpu {
    /// Its number.
    pub id: usize,
    /// Near memory node.
    pub node: usize,
    /// Socket.
    pub socket: usize,
    /// Lowest number among the hyperthreads of its core.
    pub core: usize,
}

/// A memory node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub id: usize,
    /// Processors of the node, ascending; none for memory without processors (CXL, persistent memory as
    /// system memory).
    pub cpus: Vec<usize>,
    /// Distance to each node, in the order of the nodes; 10 is near. Empty where it is not reported.
    pub distances: Vec<u64>,
}

/// Topology of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    cpus: Vec<Cpu>,
    nodes: Vec<Node>,
}

/// Parses a list such as `0-3,8,10-11`. None if it is not such a list.
pub fn parse_cpu_list(text: &str) -> Option<Vec<usize>> {
    /// Upper limit beyond any machine; keeps a damaged list from taking memory.
    const CPUS_MAX: usize = 1 << 16;
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

/// Formats ascending numbers as [`parse_cpu_list`] reads them: `0-3,8`.
pub fn format_cpu_list(cpus: &[usize]) -> String {
    let ranges = cpus.chunk_by(|cpu, next| cpu + 1 == *next).map(|range| match range {
        [only] => only.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    ranges.collect::<Vec<_>>().join(",")
}

fn read(path: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_string())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("read", path, &e)),
    }
}

fn read_list(path: &Path) -> Result<Option<Vec<usize>>> {
    let Some(text) = read(path)? else { return Ok(None) };
    let refuse = || Error::Invalid(format!("{} is '{text}'; expected a list such as 0-3,8", path.display()));
    parse_cpu_list(&text).map(Some).ok_or_else(refuse)
}

impl Topology {
    /// Topology of this machine.
    pub fn read() -> Result<Topology> {
        Topology::from_sysfs(Path::new("/sys/devices/system"))
    }

    /// Topology of the machine that a tree like `/sys/devices/system` describes. A kernel without nodes, or a
    /// container that hides them, has one node with all processors.
    pub fn from_sysfs(root: &Path) -> Result<Topology> {
        let online = match read_list(&root.join("cpu/online"))? {
            Some(online) if !online.is_empty() => online,
            _ => (0..std::thread::available_parallelism().map_or(1, usize::from)).collect(),
        };
        let mut nodes = Vec::new();
        for id in read_list(&root.join("node/online"))?.unwrap_or_default() {
            let dir = root.join(format!("node/node{id}"));
            let cpus = read_list(&dir.join("cpulist"))?.unwrap_or_default();
            let distances = read(&dir.join("distance"))?.unwrap_or_default();
            let distances = distances.split_whitespace().map_while(|number| number.parse().ok()).collect();
            nodes.push(Node { id, cpus, distances });
        }
        if !nodes.iter().any(|node| online.iter().any(|cpu| node.cpus.contains(cpu))) {
            nodes = vec![Node { id: 0, cpus: online.clone(), distances: vec![10] }];
        }
        let mut cpus = Vec::new();
        for id in online {
            let dir = root.join(format!("cpu/cpu{id}/topology"));
            let node = nodes.iter().find(|node| node.cpus.contains(&id)).map_or(nodes[0].id, |node| node.id);
            // Virtual machines may report -1, or nothing: then a node is taken for a socket.
            let socket = read(&dir.join("physical_package_id"))?.and_then(|text| text.parse().ok());
            let siblings = read_list(&dir.join("thread_siblings_list"))?.unwrap_or_default();
            let core = siblings.first().copied().unwrap_or(id);
            cpus.push(Cpu { id, node, socket: socket.unwrap_or(node), core });
        }
        Ok(Topology { cpus, nodes })
    }

    /// Topology without the processors that are not in the list. A list that leaves none changes nothing.
    pub fn restricted_to(mut self, allowed: &[usize]) -> Topology {
        if self.cpus.iter().any(|cpu| allowed.contains(&cpu.id)) {
            self.cpus.retain(|cpu| allowed.contains(&cpu.id));
        }
        self
    }

    /// All processors.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// All memory nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Socket numbers, ascending.
    pub fn sockets(&self) -> Vec<usize> {
        let mut sockets: Vec<usize> = self.cpus.iter().map(|cpu| cpu.socket).collect();
        sockets.sort_unstable();
        sockets.dedup();
        sockets
    }

    /// Number of physical cores of a socket.
    pub fn cores_of_socket(&self, socket: usize) -> usize {
        let mut cores: Vec<usize> =
            self.cpus.iter().filter(|cpu| cpu.socket == socket).map(|cpu| cpu.core).collect();
        cores.sort_unstable();
        cores.dedup();
        cores.len()
    }

    /// Processors of a socket: one of each core, then the second ones, and so on.
    pub fn cpus_of_socket(&self, socket: usize) -> Vec<usize> {
        let of_socket: Vec<&Cpu> = self.cpus.iter().filter(|cpu| cpu.socket == socket).collect();
        let mut ranked: Vec<(usize, usize)> = of_socket
            .iter()
            .map(|cpu| {
                let before = of_socket.iter().filter(|other| other.core == cpu.core && other.id < cpu.id);
                (before.count(), cpu.id)
            })
            .collect();
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, id)| id).collect()
    }

    /// Distance between two nodes; 10 is near. None where the machine does not report it.
    pub fn distance(&self, from: usize, to: usize) -> Option<u64> {
        let to = self.nodes.iter().position(|node| node.id == to)?;
        self.nodes.iter().find(|node| node.id == from)?.distances.get(to).copied()
    }
}
