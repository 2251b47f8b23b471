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
