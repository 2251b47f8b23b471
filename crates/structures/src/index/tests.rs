//! Tests of indexes of several widths and structures.

use super::*;
use entresol_memory::PoolOptions;

const KEYS: u64 = 700;

fn index(pool: &Arc<Pool>, name: &str, width: KeyWidth) -> OrderedIndex {
    let mut publication = pool.publication();
    let root = OrderedIndex::create(pool, width, &mut publication).unwrap();
    publication.set_root(name, root).unwrap();
    publication.publish().unwrap();
    let index = OrderedIndex::open(pool, root).unwrap();
    for number in (0..KEYS).step_by(2) {
        let value = number * 3 + name.len() as u64;
        index.insert(&number.to_be_bytes(), value, pool.publication()).unwrap();
    }
    index
}

#[test]
fn keys_of_several_indexes_are_found_each_in_its_own_whatever_their_widths() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    let widths =
        [KeyWidth::Eight, KeyWidth::Eight, KeyWidth::Variable, KeyWidth::Variable, KeyWidth::Sixteen];
    let indexes: Vec<_> =
        (1..).zip(widths).map(|(length, width)| index(&pool, &"x".repeat(length), width)).collect();
    let mut values = vec![Some(1)];
    for among in [&indexes[..0], &indexes[..1], &indexes[..2], &indexes[2..4], &indexes[4..], &indexes[..]] {
        // Some are missing; more than go down together; in turns and in runs; one that is too long for
        // most.
        let keys: Vec<Vec<u8>> = (0..100).map(|step| (step * 7 % KEYS).to_be_bytes().to_vec()).collect();
        let too_long = [vec![1; 9]];
        for run in [1, 5] {
            let turns = keys.iter().enumerate();
            let mut lookups: Vec<(&OrderedIndex, &[u8])> = turns
                .filter(|_| !among.is_empty())
                .map(|(step, key)| (&among[step / run % among.len()], &key[..]))
                .collect();
            for with_long in [false, true] {
                if with_long {
                    lookups.extend(among.first().map(|index| (index, &too_long[0][..])));
                }
                OrderedIndex::get_many_of(lookups.iter().copied(), &mut values).unwrap();
                let alone: Vec<_> = lookups.iter().map(|(index, key)| index.get(key).unwrap()).collect();
                assert_eq!(values, alone);
            }
        }
    }
    assert!(values.iter().any(Option::is_some) && values.iter().any(Option::is_none));
}

#[test]
fn a_structure_is_known_by_its_header_name_and_number() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    for structure in IndexStructure::ALL {
        assert_eq!(structure.name().to_uppercase().parse::<IndexStructure>().unwrap(), structure);
        assert_eq!(IndexStructure::from_number(structure.number()), Some(structure));
        for width in [KeyWidth::Eight, KeyWidth::Sixteen, KeyWidth::Variable] {
            let mut publication = pool.publication();
            let created = OrderedIndex::create_as(&pool, structure, width, &mut publication);
            if !structure.supports(width) {
                let error = created.unwrap_err().to_string();
                let bytes = structure.key_bytes_max();
                assert!(
                    error.starts_with(&format!("{structure} has keys of up to {bytes} bytes")),
                    "{error}"
                );
                continue;
            }
            publication.publish().unwrap();
            let index = OrderedIndex::open(&pool, created.unwrap()).unwrap();
            assert_eq!((index.structure(), index.width()), (structure, width));
            assert_eq!(index.note(), Some(0));
            index.set_note(7);
            assert_eq!(index.note(), Some(7));
        }
    }
    let error = "heap".parse::<IndexStructure>().unwrap_err().to_string();
    assert!(error.contains("\"heap\"") && error.contains("hybrid_wbtree"), "{error}");
}

#[test]
fn nodes_of_each_size_hold_the_same_keys_and_are_known_by_the_header() {
    let pool = Pool::volatile(&PoolOptions::default()).unwrap();
    for structure in IndexStructure::ALL {
        let sizes = structure.node_sizes();
        assert_eq!(structure.chosen_node_bytes(Some(sizes[0])).unwrap(), None);
        let error = structure.chosen_node_bytes(Some(700)).unwrap_err().to_string();
        assert!(error.contains(&format!("{structure} has nodes of {} bytes", sizes[0])) || sizes.len() > 1);
        assert_eq!(error.contains("there is a choice of wbtree"), sizes.len() == 1, "{error}");
        assert!(structure.node_bytes_of(sizes.len() as u8).is_none());
        for (number, bytes) in (0..).zip(sizes) {
            let chosen = structure.chosen_node_bytes(Some(*bytes)).unwrap();
            assert_eq!(
                (structure.number_of_size(chosen), structure.node_bytes_of(number)),
                (number, Some(chosen))
            );
            for width in [KeyWidth::Eight, KeyWidth::Sixteen].into_iter().filter(|of| structure.supports(*of))
            {
                let mut publication = pool.publication();
                let design = (structure, Some(*bytes));
                let root = OrderedIndex::create_sized(&pool, design, width, &mut publication).unwrap();
                publication.publish().unwrap();
                let index = OrderedIndex::open(&pool, root).unwrap();
                for number in 0..3_000_u64 {
                    let key = (number * 7919 % 3_001).to_be_bytes();
                    index.insert(&key, number, pool.publication()).unwrap();
                }
                (0..=600_u64).for_each(|number| {
                    index.remove(&(number * 5).to_be_bytes(), pool.publication()).unwrap();
                });
                drop(index);
                let index = OrderedIndex::open(&pool, root).unwrap();
                assert_eq!((index.structure(), index.node_bytes()), (structure, chosen));
                let (mut entries, mut next) = (Vec::new(), Some(KeyBytes::new()));
                while let Some(from) = next {
                    next = index.scan(Bound::Included(&from), 100, &mut entries).unwrap();
                }
                let keys: Vec<u64> =
                    entries.iter().map(|(key, _)| u64::from_be_bytes(key[..8].try_into().unwrap())).collect();
                let all: Vec<u64> =
                    (0..=3_000).filter(|key| key % 5 > 0 && *key != 3_000 * 7919 % 3_001).collect();
                assert_eq!(keys, all, "{structure}, {bytes}, {width:?}");
                index.check(|_| {}).unwrap();
                drop(index);
                while !OrderedIndex::destroy_step(&pool, root, false, 3).unwrap() {}
            }
        }
    }
}
