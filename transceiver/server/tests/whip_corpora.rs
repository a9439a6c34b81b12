//! Replays the committed corpora of signaling through every harness, then mutates them with a fixed seed.
//! A failure prints the target and the input; the input then becomes a corpus file.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "functions that tests share panic as tests do"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};
use transceiver::signaling::fuzz::{TARGETS, Target};

/// Mutated inputs for each target.
const MUTATIONS: usize = 20_000;
const SEED: [u8; 32] = *b"firsthop whip corpora seed no. 1";
const EDITS_MAX: usize = 6;

#[test]
fn corpora_and_mutations_hold() {
    for (name, target) in TARGETS {
        let corpus = corpus(name);
        assert!(corpus.len() >= 3, "{name}: corpus is missing");
        for input in &corpus {
            check(name, target, input);
        }
        let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &SEED);
        for _ in 0..MUTATIONS {
            check(name, target, &mutate(&corpus, &mut rng));
        }
    }
}

fn check(name: &str, target: Target, input: &[u8]) {
    let outcome = catch_unwind(AssertUnwindSafe(|| target(input)));
    let shown = String::from_utf8_lossy(input);
    assert!(outcome.is_ok(), "{name} failed on {shown:?}");
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpora")
        .join(name);
    let mut paths: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

/// A corpus file with another one's end and a few bytes changed.
fn mutate(corpus: &[Vec<u8>], rng: &mut TestRng) -> Vec<u8> {
    let mut below = |bound: usize| rng.next_u32() as usize % bound.max(1);
    let mut input = corpus[below(corpus.len())].clone();
    if below(3) == 0 {
        let other = &corpus[below(corpus.len())];
        input.truncate(below(input.len() + 1));
        input.extend_from_slice(&other[below(other.len() + 1)..]);
    }
    for _ in 0..=below(EDITS_MAX) {
        let at = below(input.len() + 1);
        let byte = u8::try_from(below(256)).unwrap();
        match below(3) {
            0 => input.insert(at, byte),
            1 if at < input.len() => drop(input.remove(at)),
            _ if at < input.len() => input[at] = byte,
            _ => {}
        }
    }
    input
}
