//! Replays the committed corpora through every harness, then noise and corpus files with bytes changed.

#![cfg(test)]

use std::path::Path;

use geodns::slow::fuzz::TARGETS;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const MUTATIONS: u32 = 10_000;

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpora")
        .join(name);
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect()
}

#[test]
fn corpora_and_mutations_hold() {
    for (name, target) in TARGETS {
        let corpus = corpus(name);
        assert!(corpus.len() >= 8, "{name}: corpus is missing");
        corpus.iter().for_each(|input| target(input));
        let edits = vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
        let mutated = (
            prop::sample::select(corpus),
            edits,
            any::<prop::sample::Index>(),
            vec(any::<u8>(), 0..40),
            0..4u8,
        );
        let mut runner = TestRunner::new(Config {
            cases: MUTATIONS,
            failure_persistence: None,
            ..Config::default()
        });
        let held = runner.run(&mutated, |(mut input, edits, cut, noise, kind)| {
            for (at, byte) in edits {
                if !input.is_empty() {
                    let at = at.index(input.len());
                    input[at] = byte;
                }
            }
            if kind == 0 {
                input.truncate(cut.index(input.len() + 1));
                input.extend(noise);
            }
            target(&input);
            Ok(())
        });
        held.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
