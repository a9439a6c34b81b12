//! Replays the committed corpus through the flow harness, then mutates it and makes scripts up with a fixed seed.
//! A failure prints the input, which then becomes a corpus file.

use std::panic::catch_unwind;
use std::path::Path;

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

const SEED: [u8; 32] = *b"firsthop flow corpora seed no. 1";
const SCRIPTS: usize = 3000;
const MUTATIONS: usize = 3000;
const SCRIPT_LEN: usize = 800;

#[test]
fn flows_hold() {
    corpus_mutations_and_seeded_scripts("flows", pop_proto::fuzz::flows);
}

#[test]
fn timing_holds() {
    corpus_mutations_and_seeded_scripts("timing", pop_proto::fuzz::timing);
}

#[test]
fn history_holds() {
    corpus_mutations_and_seeded_scripts("history", pop_proto::fuzz::history);
}

fn corpus_mutations_and_seeded_scripts(name: &str, harness: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpora")
        .join(name);
    let mut paths: Vec<_> = std::fs::read_dir(directory)
        .expect("the corpus is readable")
        .map(|entry| entry.expect("the corpus is readable").path())
        .collect();
    paths.sort();
    assert!(paths.len() >= 10, "the corpus is missing");
    let corpus: Vec<_> = paths
        .iter()
        .map(|path| std::fs::read(path).expect("the corpus is readable"))
        .collect();
    for (path, input) in paths.iter().zip(&corpus) {
        check(harness, input, &path.display().to_string());
    }
    let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &SEED);
    for round in 0..MUTATIONS {
        // Two scripts one after the other, with one byte in sixteen changed.
        let mut input = Vec::new();
        for _ in 0..2 {
            let at = rng.next_u32() as usize % corpus.len();
            input.extend(corpus.get(at).expect("the corpus is readable"));
        }
        for byte in &mut input {
            let [change, value, ..] = rng.next_u32().to_ne_bytes();
            if change < 16 {
                *byte = value;
            }
        }
        check(harness, &input, &format!("mutation {round}"));
    }
    for round in 0..SCRIPTS {
        let mut input = vec![0; SCRIPT_LEN];
        rng.fill_bytes(&mut input);
        check(harness, &input, &format!("script {round}"));
    }
}

fn check(harness: fn(&[u8]), input: &[u8], origin: &str) {
    let outcome = catch_unwind(|| harness(input));
    assert!(outcome.is_ok(), "failed on {origin}: {input:02x?}");
}
