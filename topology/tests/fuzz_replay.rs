//! Replays the corpus of `topology::fuzz::load`, then seeded mutations of the samples and of the corpus.

#![cfg(test)]

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use topology::fuzz;

/// Mutations per seed file; `FIRSTHOP_FUZZ_ROUNDS` raises it for a long run.
const ROUNDS: u32 = 300;

/// Spliced in, because no bit flip finds them.
const TOKENS: &[&str] = &[
    "[",
    "]",
    "{",
    "}",
    ": ",
    "- ",
    "? ",
    "&a ",
    "*a",
    "---\n",
    "...\n",
    "!!str ",
    "<<: ",
    "|\n",
    ">\n",
    "#",
    "\"",
    "'",
    "\t",
    "\r\n",
    "\u{feff}",
    "\0",
    "~",
    "null",
    ".nan",
    "-1",
    "0",
    "65536",
    "1e99",
    "0.0.0.0",
    "::",
    "255.255.255.255",
    "203.0.113.0/0",
    "::/0",
    "127.0.0.1:0",
    "[::1]:1",
    "admin",
    "workers: 255",
    "id: 0",
    "bgp: []",
    "65535:0",
    "router_id: 10.0.0.1",
];

#[test]
fn the_corpus_holds() -> io::Result<()> {
    for path in seeds()? {
        fuzz::load(&fs::read(path)?);
    }
    Ok(())
}

#[test]
fn mutations_hold() -> io::Result<()> {
    let rounds = env::var("FIRSTHOP_FUZZ_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    for path in seeds()? {
        let original = fs::read(&path)?;
        for seed in 0..rounds {
            let mut random = Random(u64::from(seed) * 2 + 1);
            let mut bytes = original.clone();
            for _ in 0..=random.below(4) {
                mutate(&mut bytes, &mut random);
            }
            let held = std::panic::catch_unwind(|| fuzz::load(&bytes));
            assert!(held.is_ok(), "{} with seed {seed}", path.display());
        }
    }
    Ok(())
}

fn seeds() -> io::Result<Vec<PathBuf>> {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut seeds = Vec::new();
    for directory in ["corpus/load", "samples"] {
        for entry in fs::read_dir(crate_dir.join(directory))? {
            seeds.push(entry?.path());
        }
    }
    seeds.sort();
    assert!(seeds.len() > 5, "the corpus is missing");
    Ok(seeds)
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    match random.below(5) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        1 => {
            let token = TOKENS[random.below(TOKENS.len())];
            bytes.splice(at..at, token.bytes());
        }
        2 => {
            let end = (at + random.below(40)).min(bytes.len());
            bytes.drain(at..end);
        }
        3 => {
            let end = (at + random.below(200)).min(bytes.len());
            let copy = bytes[at..end].to_vec();
            let to = random.below(bytes.len() + 1);
            bytes.splice(to..to, copy);
        }
        _ => swap_tokens(bytes, random),
    }
}

/// Exchanges two words of the text: well-formed YAML that means something else.
fn swap_tokens(bytes: &mut Vec<u8>, random: &mut Random) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let words: Vec<_> = text
        .split([' ', '\n', ','])
        .filter(|word| word.len() > 1)
        .collect();
    if !words.is_empty() {
        let (from, to) = (
            words[random.below(words.len())],
            words[random.below(words.len())],
        );
        *bytes = text.replacen(from, to, 1 + random.below(2)).into_bytes();
    }
}

/// xorshift64: the same bytes for the same seed, everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}
