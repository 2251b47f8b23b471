//! Placement on a machine of the bandwidth paper's kind, and on damaged descriptions.

use entresol_memory::placement::{
    Limits, Policy, ThreadPlacement, Topology, allowed_cpus, bind_near, format_cpu_list, parse_cpu_list,
    prefer_node,
};
use entresol_memory::profile::Profile;
use entresol_memory::{Pool, PoolOffset, PoolOptions};
use std::path::Path;

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, format!("{text}\n")).unwrap();
}

/// Two sockets of six cores with two hyperthreads each, a node a socket; numbered as Linux does: cores first.
fn two_sockets(root: &Path) {
    put(root, "cpu/online", "0-23");
    put(root, "node/online", "0-1");
    put(root, "node/node0/cpulist", "0-5,12-17");
    put(root, "node/node1/cpulist", "6-11,18-23");
    put(root, "node/node0/distance", "10 21");
    put(root, "node/node1/distance", "21 10");
    for cpu in 0..24 {
        put(root, &format!("cpu/cpu{cpu}/topology/physical_package_id"), &format!("{}", cpu % 12 / 6));
        let core = cpu % 12;
        put(root, &format!("cpu/cpu{cpu}/topology/thread_siblings_list"), &format!("{core},{}", core + 12));
    }
}

fn policy(root: &Path, profile: &str) -> Policy {
    Policy::new(Topology::from_sysfs(root).unwrap(), Limits::of(&Profile::embedded(profile).unwrap()))
}

#[test]
fn threads_are_near_a_node_on_its_processors() {
    let root = tempfile::TempDir::new().unwrap();
    two_sockets(root.path());
    let topology = Topology::from_sysfs(root.path()).unwrap();
    let near = |allowed: &[usize], node| ThreadPlacement::near_node(&topology, allowed, node);
    let all: Vec<usize> = (0..24).collect();
    let place = near(&all, 1).unwrap();
    assert_eq!((place.node(), place.cpus()), (1, &[6, 7, 8, 9, 10, 11, 18, 19, 20, 21, 22, 23][..]));
    assert_eq!(near(&[0, 1, 7, 20], 1).unwrap().cpus(), [7, 20], "of those that the process may use");
    assert_eq!(near(&[0, 1, 2], 1), None, "none of them is near");
    assert_eq!(near(&all, 2), None, "there is no such node");
    put(root.path(), "node/online", "0-2");
    put(root.path(), "node/node2/cpulist", "");
    let topology = Topology::from_sysfs(root.path()).unwrap();
    assert_eq!(topology.nodes().len(), 3);
    assert_eq!(ThreadPlacement::near_node(&topology, &all, 2), None, "a node without processors");
    put(root.path(), "node/online", "0");
    put(root.path(), "node/node0/cpulist", "0-23");
    let one = Topology::from_sysfs(root.path()).unwrap();
    assert_eq!(ThreadPlacement::near_node(&one, &all, 0), None, "on one node it makes no difference");
}

#[test]
fn lists_of_processors() {
    for (text, expected) in [
        ("0", vec![0]),
        ("0-3,8,10-11\n", vec![0, 1, 2, 3, 8, 10, 11]),
        ("", vec![]),
        ("3,1,1-2", vec![1, 2, 3]),
        (" 0-1 ", vec![0, 1]),
    ] {
        assert_eq!(parse_cpu_list(text).unwrap(), expected, "{text}");
        assert_eq!(parse_cpu_list(&format_cpu_list(&expected)).unwrap(), expected, "{text}");
    }
    assert_eq!(format_cpu_list(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
    for text in ["a", "1-", "-1", "3-1", "0-99999999999999999999", "0-4000000000", "1;2", "0x3"] {
        assert_eq!(parse_cpu_list(text), None, "{text}");
    }
}

#[test]
fn a_machine_with_two_sockets() {
    let dir = tempfile::TempDir::new().unwrap();
    two_sockets(dir.path());
    let policy = policy(dir.path(), "optane-dcpmm");
    assert_eq!(policy.sockets(), [0, 1]);
    assert_eq!(
        policy.cpus_of_socket(1),
        [6, 7, 8, 9, 10, 11, 18, 19, 20, 21, 22, 23],
        "cores before hyperthreads"
    );
    assert_eq!((policy.writers_per_socket(0), policy.readers_per_socket(0)), (6, 6));
    assert_eq!((policy.access_bytes(), policy.small_access_bytes()), (4096, 256));
    assert!(policy.serializes_mixed());
    let workers: Vec<usize> = (0..5).map(|worker| policy.cpu_of_worker(worker)).collect();
    assert_eq!(workers, [0, 6, 1, 7, 2], "sockets in turn");
    assert_eq!(policy.cpu_of_worker(12), 12, "hyperthreads once all cores are taken");
    assert_eq!(policy.cpu_of_worker(24), 0, "then from the start");
    assert_eq!((policy.node_of_worker(0), policy.node_of_worker(1)), (0, 1));
    let topology = policy.topology();
    assert_eq!(
        (topology.distance(0, 0), topology.distance(0, 1), topology.distance(0, 7)),
        (Some(10), Some(21), None)
    );

    let mine = topology.clone().restricted_to(&[1, 13]);
    assert_eq!((mine.sockets(), mine.cores_of_socket(0)), (vec![0], 1));
    assert_eq!(topology.clone().restricted_to(&[99]), *topology, "a list that leaves none changes nothing");
}

#[test]
fn regions_are_distinct_and_cover_all() {
    let dir = tempfile::TempDir::new().unwrap();
    two_sockets(dir.path());
    let policy = policy(dir.path(), "optane-dcpmm");
    for (bytes, workers) in [(1 << 20, 3), (5000, 4), (4096, 1), (0, 2)] {
        let regions = policy.regions(bytes, workers);
        assert_eq!(regions.len(), workers);
        assert_eq!((regions[0].start, regions[workers - 1].end), (0, bytes));
        assert!(regions.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert!(regions.iter().all(|region| region.start % 4096 == 0 || region.start == bytes));
    }
}

#[test]
fn machines_that_tell_little() {
    let dir = tempfile::TempDir::new().unwrap();
    put(dir.path(), "cpu/online", "0-2");
    let topology = Topology::from_sysfs(dir.path()).unwrap();
    assert_eq!((topology.nodes().len(), topology.cpus().len(), topology.sockets()), (1, 3, vec![0]));
    assert_eq!(topology.cores_of_socket(0), 3, "without siblings every processor is a core");

    // A node with memory and no processors, as CXL memory is.
    put(dir.path(), "node/online", "0,2");
    put(dir.path(), "node/node0/cpulist", "0-2");
    put(dir.path(), "node/node2/cpulist", "");
    let topology = Topology::from_sysfs(dir.path()).unwrap();
    assert_eq!(topology.nodes().iter().map(|node| node.id).collect::<Vec<_>>(), [0, 2]);
    assert!(topology.cpus().iter().all(|cpu| cpu.node == 0));

    put(dir.path(), "node/node0/cpulist", "zero to two");
    let error = Topology::from_sysfs(dir.path()).unwrap_err().to_string();
    assert!(error.contains("cpulist") && error.contains("zero to two"), "{error}");
    let empty = tempfile::TempDir::new().unwrap();
    assert!(
        !Topology::from_sysfs(empty.path()).unwrap().cpus().is_empty(),
        "at least what this process may use"
    );
}

#[test]
fn this_machine_has_a_policy() {
    let policy = Policy::of_this_machine(&Profile::embedded("dram").unwrap()).unwrap();
    let allowed = allowed_cpus().unwrap();
    assert!((0..8).all(|worker| allowed.contains(&policy.cpu_of_worker(worker))));
    let topology = policy.topology();
    if topology.nodes().len() == 1 {
        let pool = Pool::volatile(&PoolOptions::default()).unwrap();
        let words = pool.words(PoolOffset::NULL, 4096);
        // No call is made, so even a missing node is no error.
        bind_near(topology, words, 5).unwrap();
        prefer_node(topology, 5).unwrap();
    }
}
