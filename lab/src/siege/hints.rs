//! Good ufrags, sealed with the key the PoP holds: what a transceiver would have put into its answers.

use anyhow::Context;
use runtime::clock;
use wire::hint::{Hint, KeyRing, Minute, Ufrag};
use wire::{Owner, TransceiverId};

use crate::net::Network;

/// A source of ufrags, each its own, that all name one transceiver.
#[derive(Debug)]
pub struct Hints {
    keys: KeyRing,
    owner: Owner,
    sealed: u32,
}

impl Hints {
    /// Of the transceiver with this id, whether there is one or not, in the only region of `network`.
    ///
    /// # Errors
    /// The PoP has no readable keys.
    pub fn of(network: &Network, transceiver: TransceiverId) -> anyhow::Result<Self> {
        let file = network.credentials("p1").join("hint.keys");
        let keys = std::fs::read_to_string(file).context("reading the hint keys")?;
        let region = network.topology().regions.first().context("no region")?;
        Ok(Self {
            keys: KeyRing::parse(&keys)?,
            owner: Owner {
                region: region.region_id(),
                transceiver,
            },
            sealed: 0,
        })
    }

    /// Another one.
    pub fn seal(&mut self) -> Ufrag {
        self.sealed += 1;
        let [_, a, b, c] = self.sealed.to_be_bytes();
        let hint = Hint {
            owner: self.owner,
            issued: Minute::from_unix_s(clock::unix_s()),
        };
        self.keys.seal(hint, [a, b, c])
    }
}
