//! Replays the committed corpus and seeded random scripts through the flow harness.

use std::time::Instant;

const LOCAL: &str = include_str!("../../../topology/samples/local.yaml");
const SEED: u64 = 0x5eed_0001;
const ROUNDS: u32 = 3000;

#[test]
#[expect(clippy::disallowed_methods, reason = "a test has to begin somewhere")]
fn corpus_and_seeded_scripts() {
    let topology = topology::load(LOCAL, "local.yaml").unwrap();
    let start = Instant::now();
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/corpora/flows")).unwrap() {
        let path = entry.unwrap().path();
        pop_proto::fuzz::flows(&topology, start, &std::fs::read(&path).unwrap());
    }
    println!("seed {SEED:#x}");
    let mut state = SEED;
    for _ in 0..ROUNDS {
        let script: Vec<u8> = (0..400)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_be_bytes()[3]
            })
            .collect();
        pop_proto::fuzz::flows(&topology, start, &script);
    }
}
