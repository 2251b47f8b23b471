//! What the targets share.

use std::path::Path;

/// Writes inputs to begin with into the directory of the corpus, which the command line names first.
pub fn plant(seeds: Vec<Vec<u8>>) {
    let Some(corpus) = std::env::args().skip(1).find(|argument| Path::new(argument).is_dir()) else { return };
    for (number, seed) in seeds.iter().enumerate() {
        let path = Path::new(&corpus).join(format!("seed-{number:03}"));
        std::fs::write(path, seed).expect("the corpus can be written");
    }
}
