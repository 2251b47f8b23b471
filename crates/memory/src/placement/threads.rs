//! Background threads near the device of their pool.

use super::affinity::{prefer, prefers_some_node};
use super::{Topology, allowed_cpus, node_of_device, parse_cpu_list, pin_thread};
use std::path::Path;

/// Processors that background threads run on, and the memory node that they use: those near the device of a
/// pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadPlacement {
    node: usize,
    cpus: Vec<usize>,
}

impl ThreadPlacement {
    /// Placement near the device of the file system that holds a path, on this machine. None where it makes
    /// no difference or is not known: on a machine with one node, if the kernel does not report the device's
    /// node, and if this process may use none of its processors.
    pub fn near_device(path: &Path) -> Option<ThreadPlacement> {
        if !has_several_nodes() {
            return None;
        }
        let node = node_of_device(path)?;
        let found = Topology::read().and_then(|topology| Ok((topology, allowed_cpus()?)));
        match found {
            Ok((topology, allowed)) => ThreadPlacement::near_node(&topology, &allowed, node),
            Err(error) => {
                tracing::debug!(%error, "background threads are not placed: the machine's memory nodes are unknown");
                None
            }
        }
    }

    /// Placement near a node, on a machine of which these processors may be used.
    pub fn near_node(topology: &Topology, allowed: &[usize], node: usize) -> Option<ThreadPlacement> {
        if topology.nodes().len() < 2 {
            return None;
        }
        let near = topology.cpus().iter().filter(|cpu| cpu.node == node && allowed.contains(&cpu.id));
        let cpus: Vec<usize> = near.map(|cpu| cpu.id).collect();
        (!cpus.is_empty()).then_some(ThreadPlacement { node, cpus })
    }

    /// The memory node.
    pub fn node(&self) -> usize {
        self.node
    }

    /// Processors of the node that this process may use; at least one.
    pub fn cpus(&self) -> &[usize] {
        &self.cpus
    }

    /// Places this thread. Settings that the system forbids (containers may) are left as they are: threads
    /// work anywhere. A memory policy that was set for the process (`numactl`) stays.
    pub fn apply(&self) {
        if let Err(error) = pin_thread(&self.cpus) {
            tracing::debug!(%error, "could not pin a background thread");
        }
        let preferred =
            prefers_some_node().and_then(|chosen| if chosen { Ok(()) } else { prefer(self.node) });
        if let Err(error) = preferred {
            tracing::debug!(%error, "could not set the memory node of a background thread");
        }
    }
}

/// Returns true if the machine has more than one node; reads one small file.
fn has_several_nodes() -> bool {
    let online = std::fs::read_to_string("/sys/devices/system/node/online");
    online.ok().and_then(|text| parse_cpu_list(&text)).is_some_and(|nodes| nodes.len() > 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::env::Env;

    #[test]
    fn threads_of_a_real_world_are_put_where_it_says() {
        let allowed = allowed_cpus().unwrap();
        let last = *allowed.last().unwrap();
        let place = || Some(ThreadPlacement { node: 0, cpus: vec![last] });
        let of_thread = |env: &Env| env.spawn("placed", || allowed_cpus().unwrap()).unwrap().join().unwrap();
        assert_eq!(of_thread(&Env::real().with_threads(place())), [last]);
        assert_eq!(of_thread(&Env::real()), allowed);
        assert_eq!(
            of_thread(&Env::simulated(1).with_threads(place())),
            allowed,
            "a simulated world is everywhere the same"
        );
        assert_eq!(allowed_cpus().unwrap(), allowed, "who starts a thread stays where it is");
    }

    #[test]
    fn a_thread_that_cannot_be_put_anywhere_works_on() {
        // No machine has these processors: the system refuses the call as a container would.
        let place = ThreadPlacement { node: 1023, cpus: vec![1023] };
        let allowed = allowed_cpus().unwrap();
        if !allowed.contains(&1023) {
            let env = Env::real().with_threads(Some(place));
            assert_eq!(env.spawn("refused", || allowed_cpus().unwrap()).unwrap().join().unwrap(), allowed);
        }
    }
}
