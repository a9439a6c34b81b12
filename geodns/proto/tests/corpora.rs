//! Replays the committed corpora through every harness, then mutates them with a fixed seed.
//! A failure prints the target, the seed and the input; the input then becomes a corpus file.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

/// Mutated inputs for each target.
const MUTATIONS: usize = 10_000;
const SEED: [u8; 32] = *b"firsthop dns corpora seed no. 01";
const INPUT_LEN_MAX: usize = 1400;

#[test]
fn corpora_and_mutations_hold() {
    for (name, target) in geodns_proto::fuzz::TARGETS {
        let corpus = corpus(name);
        assert!(corpus.len() >= 4, "{name}: corpus is missing");
        for (path, input) in &corpus {
            check(name, target, input, &path.display().to_string());
        }
        let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &SEED);
        for round in 0..MUTATIONS {
            let input = mutate(&corpus, &mut rng);
            check(name, target, &input, &format!("seeded input {round}"));
        }
    }
}

fn check(name: &str, target: geodns_proto::fuzz::Target, input: &[u8], origin: &str) {
    let outcome = catch_unwind(AssertUnwindSafe(|| target(input)));
    assert!(outcome.is_ok(), "{name} failed on {origin}: {input:02x?}");
}

fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpora")
        .join(name);
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .filter_map(|entry| Some((entry.path(), std::fs::read(entry.path()).ok()?)))
        .collect();
    files.sort();
    files
}

/// A corpus file with a few random edits, two spliced together, or noise.
fn mutate(corpus: &[(PathBuf, Vec<u8>)], rng: &mut TestRng) -> Vec<u8> {
    let pick = |rng: &mut TestRng| {
        corpus
            .get(below(rng, corpus.len()))
            .map(|(_, bytes)| bytes.clone())
            .unwrap_or_default()
    };
    let mut input = pick(rng);
    if below(rng, 4) == 0 {
        let other = pick(rng);
        input.truncate(below(rng, input.len() + 1));
        let from = below(rng, other.len() + 1);
        input.extend(other.get(from..).unwrap_or_default());
    }
    for _ in 0..=below(rng, 6) {
        edit(&mut input, rng);
    }
    input.truncate(INPUT_LEN_MAX);
    input
}

fn edit(input: &mut Vec<u8>, rng: &mut TestRng) {
    let at = below(rng, input.len() + 1);
    let (byte, kind) = (low_byte(rng), below(rng, 5));
    if kind == 0 || at == input.len() {
        input.insert(at, byte);
        return;
    }
    match (kind, input.get_mut(at)) {
        (1, _) => drop(input.remove(at)),
        (2, _) => input.truncate(at),
        (3, Some(slot)) => *slot = byte,
        (_, Some(slot)) => *slot ^= 1 << (byte % 8),
        (_, None) => {}
    }
}

fn below(rng: &mut TestRng, bound: usize) -> usize {
    rng.next_u32() as usize % bound.max(1)
}

fn low_byte(rng: &mut TestRng) -> u8 {
    let [byte, ..] = rng.next_u32().to_le_bytes();
    byte
}
