//! Offers that are nearly right.

use serde_json::json;

use super::world::{World, address};
use crate::engine::handle::Request;

#[test]
fn mutated_offers_are_answered_or_refused() {
    let mut world =
        World::with_signaling(&json!({ "pending_max": 1_000_000, "sessions_max": 1_000_000 }));
    let client = world.join(address(1, 4000));
    let offer = world.nodes[client].offer.clone();
    let mut random = Sequence(0x5eed_0007);
    let (mut answered, rounds) = (0, 400);
    for _ in 0..rounds {
        let mutant = random.mutate(&offer);
        if let Ok(created) = world.create(&mutant) {
            answered += 1;
            world
                .ask(|reply| Request::End {
                    key: created.key,
                    reply,
                })
                .unwrap();
        }
    }
    assert!((1..rounds).contains(&answered), "{answered} answered");
    assert_eq!(world.core.load().sessions, 1);
}

/// xorshift: the same sequence in every run.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound.max(1) as u64).unwrap()
    }

    /// Drops, doubles, swaps and cuts lines, and changes characters.
    fn mutate(&mut self, offer: &str) -> String {
        let mut lines: Vec<String> = offer.lines().map(str::to_owned).collect();
        for _ in 0..=self.below(4) {
            let (at, other) = (self.below(lines.len()), self.below(lines.len()));
            match self.below(6) {
                0 => drop(lines.remove(at)),
                1 => lines.insert(other, lines[at].clone()),
                2 => lines.swap(at, other),
                3 => {
                    let cut = self.below(lines[at].len() + 1);
                    lines[at].truncate(cut);
                }
                4 => {
                    let with =
                        ["-1", "99999999999999999999", "\u{e9}", " ", "", "*", "0"][self.below(7)];
                    let digit = lines[at].find(|c: char| c.is_ascii_digit()).unwrap_or(0);
                    let end = (digit + 1).min(lines[at].len());
                    if lines[at].is_char_boundary(end) {
                        lines[at].replace_range(digit..end, with);
                    }
                }
                _ => {
                    let with = [
                        "recvonly",
                        "inactive",
                        "=",
                        ":",
                        "rtx/90000",
                        "opus/48000/2",
                    ][self.below(6)];
                    lines[at].push_str(with);
                }
            }
        }
        lines.join("\r\n") + "\r\n"
    }
}
