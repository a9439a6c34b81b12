//! A snapshot of the sample network, with four lists and four selections.

use std::net::IpAddr;
use std::sync::Arc;

use geodns::slow::Snapshot;
use geodns_proto::cookie::Secrets;
use geodns_proto::render::AnswerId;
use geodns_proto::select::{Locate, Place, SLOTS, Selection, Served};
use geodns_proto::{Content, Keys, Signer, Validity, Zone};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};

pub(crate) const NOW_S: u32 = 1_800_000_000;

/// Lists by the upper bits of the address.
#[derive(Debug)]
pub(crate) struct Quarters;

impl Locate for Quarters {
    fn locate_v4(&self, address: u32) -> Place {
        Place {
            list: address >> 30,
            scope: 2,
        }
    }

    fn locate_v6(&self, address: u128) -> Place {
        Place {
            list: u32::try_from(address >> 126).unwrap(),
            scope: 33,
        }
    }

    fn first_word(&self, _: IpAddr) -> &u32 {
        &0
    }

    fn slot(&self, client: IpAddr) -> u8 {
        match client {
            IpAddr::V4(v4) => v4.octets()[1],
            IpAddr::V6(v6) => v6.octets()[4],
        }
    }
}

pub(crate) fn snapshot(signed: bool) -> Snapshot<Quarters> {
    let text = include_str!("../../../../topology/samples/world.yaml");
    let mut topology = topology::load(text, "world.yaml").unwrap();
    topology.regions[2].signaling_addresses.truncate(1);
    let dns = topology.dns.as_mut().unwrap();
    dns.answers_max = 2;
    dns.txt = vec!["v=spf1 -all".to_owned(), "x".repeat(255)];
    dns.apex = vec!["192.0.2.77".parse().unwrap()];
    let zone = Zone::new(&topology).unwrap();
    let rankings: [&[u16]; 4] = [&[0, 1], &[1, 2, 3], &[2], &[3, 0]];
    let mut steered: Vec<_> = rankings
        .iter()
        .map(|ranking| zone.steered(&zone.carried(ranking.iter().copied(), [])))
        .collect();
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    let keys = Keys::from_pkcs8([key.as_ref()], &random).unwrap();
    let apex = zone.apex().clone();
    let signer = Signer {
        apex: &apex,
        keys: &keys,
        validity: Validity::at(NOW_S.into()),
        random: &random,
    };
    let zone = if signed {
        zone.sign(&signer).unwrap()
    } else {
        zone
    };
    for steered in &mut steered {
        zone.sign_steered(steered, &signer).unwrap();
    }
    let content = Content::new(zone, steered);
    let mut selection = Selection::new();
    for answer in 0..3 {
        selection.push(AnswerId(answer));
    }
    selection.push_shared(std::array::from_fn(|slot| {
        AnswerId(u16::try_from(slot % 4).unwrap())
    }));
    assert_eq!(SLOTS % 4, 0);
    Snapshot {
        served: Served {
            tables: Arc::new(Quarters),
            selection: Arc::new(selection),
            rendered: Arc::new(content.render(7).unwrap()),
        },
        content: Arc::new(content),
        secrets: Secrets::single([9; 16]),
    }
}
