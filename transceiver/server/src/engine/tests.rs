//! The engine with real DTLS, SRTP and SCTP clients in memory, under an invented clock.

mod drops;
mod mutants;
mod roam;
mod voices;
mod world;

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use transceiver_proto::DropReason;
use wire::{Owner, RegionId, TransceiverId};

use self::world::{INGRESS, World, address, datagram, line, relay_address};
use crate::engine::handle::{
    IceParameters, OfferError, Precondition, Request, SessionError, SessionState,
};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_client_connects_and_hears_itself() {
    let mut world = World::new();
    let client = world.connect(address(1, 4000));
    let now = world.now;
    let profile = world.nodes[client].client.srtp_profile(now);
    assert_eq!(profile, "SRTP_AEAD_AES_128_GCM");
    assert_eq!(world.talk(client, 50), 50);
    let heard = &world.nodes[client].client.heard;
    assert_eq!(heard[7], "frame 7");
    let now = world.now;
    world.nodes[client].client.send_text("hello", now);
    world.nodes[client].client.send_binary(&[0, 1, 2], now);
    world.nodes[client].client.send_binary(&[5; 60_000], now);
    world.run(SECOND);
    let messages = &world.nodes[client].client.messages;
    assert_eq!(messages[0], "hello");
    assert_eq!(messages[1], Bytes::from_static(&[0, 1, 2]));
    assert_eq!(messages[2].len(), 60_000);
    let snapshot = world.snapshot(client).unwrap();
    assert_eq!(snapshot.state, SessionState::Connected);
    assert_eq!(snapshot.pop.as_deref(), Some("pop-1"));
    assert_eq!(snapshot.ingress, Some(INGRESS[0]));
    assert_eq!(snapshot.core_relay.as_deref(), Some("eu-r1"));
    assert_eq!(snapshot.client.as_deref(), Some("203.0.113.0/24"));
    assert_eq!(
        (snapshot.rtp_in, snapshot.rtp_out, snapshot.rtp_lost),
        (50, 50, 0)
    );
    assert!(snapshot.packets_in > 50 && snapshot.packets_out > 50);
    assert_eq!(world.core.media.messages_in, 3);
    assert_eq!(world.core.drops.get(DropReason::MediaRefused), 0);
}

#[test]
fn an_answer_names_ingress_and_nothing_of_ours() {
    let mut world = World::new();
    let client = world.join(address(1, 4000));
    let answer = world.nodes[client].session.clone().unwrap().answer;
    let candidates: Vec<&str> = answer
        .lines()
        .filter(|line| line.starts_with("a=candidate:"))
        .collect();
    assert_eq!(candidates.len(), 2, "{answer}");
    assert!(candidates[0].contains(" 198.51.100.1 3478 typ host"));
    assert!(answer.contains("a=ice-lite") && answer.contains("a=setup:passive"));
    for secret in ["virtual", "firsthop-virtual", "192.0.2.", "127.9.0"] {
        assert!(!answer.contains(secret), "{secret}");
    }
}

#[test]
fn a_handshake_survives_loss() {
    for every in [3, 4, 5, 7] {
        let mut world = World::new();
        world.lose_every = Some(every);
        let client = world.join(address(1, 4000));
        world.run_until(15 * SECOND, |world| world.nodes[client].client.channel_open);
    }
}

#[test]
fn a_silent_call_lives_as_long_as_its_checks() {
    let mut world = World::new();
    let client = world.connect(address(1, 4000));
    world.run(600 * SECOND);
    assert_eq!(
        world.snapshot(client).unwrap().state,
        SessionState::Connected
    );
    assert_eq!(world.talk(client, 10), 10);
}

#[test]
fn a_nominating_check_from_another_address_moves_the_call() {
    let mut world = World::new();
    let client = world.connect(address(1, 4000));
    assert_eq!(world.talk(client, 5), 5);
    world.nodes[client].nat = address(1, 4001);
    assert_eq!(world.talk(client, 3), 3, "known by its stream");
    assert_eq!(world.core.sessions.load().guests, 1, "copies");
    world.nominate(client, address(1, 4001));
    assert_eq!(world.core.sessions.load().guests, 0);
    assert_eq!(world.talk(client, 5), 5);
}

#[test]
fn a_rebind_without_nomination_heals_at_the_next_check() {
    let mut world = World::new();
    let client = world.connect(address(1, 4000));
    world.nodes[client].nat = address(2, 999);
    world.talk(client, 200);
    assert_eq!(world.talk(client, 50), 50);
}

#[test]
fn srtp_alone_moves_the_way_back_to_another_relay_and_pop() {
    let mut world = World::new();
    let client = world.connect(address(1, 4000));
    world.relay = 2;
    let now = world.now;
    world.nodes[client]
        .client
        .speak(Bytes::from_static(b"one"), now);
    world.exchange();
    assert_eq!(world.nodes[client].client.heard.len(), 1);
    assert_eq!(world.sent.last().map(|sent| (sent.0, sent.1)), Some((2, 1)));
    // The same packet again is a replay, by whatever way it comes, and moves nothing.
    world.nodes[client]
        .client
        .speak(Bytes::from_static(b"two"), now);
    let (_, packet) = world.nodes[client].client.next_datagram().unwrap();
    world.uplink(address(1, 4000), INGRESS[1], &packet);
    world.exchange();
    assert_eq!(world.sent.last().map(|sent| (sent.0, sent.1)), Some((2, 2)));
    let refused = world.core.drops.get(DropReason::MediaRefused);
    world.uplink(address(1, 4000), INGRESS[0], &packet);
    world.exchange();
    assert_eq!(world.core.drops.get(DropReason::MediaRefused), refused + 1);
    assert_eq!(
        world.snapshot(client).unwrap().pop.as_deref(),
        Some("pop-2")
    );
}

#[test]
fn forged_media_from_a_bound_address_moves_nothing() {
    let mut world = World::new();
    let client = world.connect(address(1, 4000));
    world.relay = 2;
    world.uplink(
        address(1, 4000),
        INGRESS[1],
        &[0x80, 111, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 7, 7, 7, 7],
    );
    world.exchange();
    let snapshot = world.snapshot(client).unwrap();
    assert_eq!(snapshot.core_relay.as_deref(), Some("eu-r1"));
    assert_eq!(world.core.drops.get(DropReason::MediaRefused), 1);
}

#[test]
fn ice_restart_by_fragment() {
    let mut world = World::new();
    let client = world.connect(address(1, 4000));
    let session = world.nodes[client].session.clone().unwrap();
    let stale = restart(
        &mut world,
        client,
        "stale",
        ("unused", "unused-unused-unused-1"),
    );
    assert_eq!(stale.unwrap_err(), SessionError::EtagMismatch);
    let first = restart(
        &mut world,
        client,
        &session.etag,
        ("unused", "unused-unused-unused-1"),
    )
    .unwrap();
    assert_ne!(first.etag, session.etag);
    assert_eq!(world.talk(client, 50), 50, "the former credentials hold");
    let now = world.now;
    let offer = world.nodes[client].client.offer(true, now);
    let theirs = (line(&offer, "a=ice-ufrag:"), line(&offer, "a=ice-pwd:"));
    let ours = restart(&mut world, client, &first.etag, theirs).unwrap();
    let answer = session
        .answer
        .replace(line(&session.answer, "a=ice-ufrag:"), &ours.ufrag)
        .replace(line(&session.answer, "a=ice-pwd:"), &ours.pwd);
    world.nodes[client].client.answer(&answer, now);
    world.run(3 * SECOND);
    assert_eq!(world.talk(client, 50), 50);
    for (ufrag, outcome) in [(theirs.0, Ok(())), ("old", Err(SessionError::EtagMismatch))] {
        let asked = world.ask(|reply| Request::Trickle {
            key: session.key,
            precondition: Precondition::Etag(ours.etag.clone()),
            ufrag: Some(ufrag.to_owned()),
            reply,
        });
        assert_eq!(asked, outcome);
    }
}

fn restart(
    world: &mut World,
    client: usize,
    etag: &str,
    (ufrag, pwd): (&str, &str),
) -> Result<IceParameters, SessionError> {
    let key = world.nodes[client].session.as_ref().unwrap().key;
    world.ask(|reply| Request::RestartIce {
        key,
        precondition: Precondition::Etag(etag.to_owned()),
        ufrag: ufrag.to_owned(),
        pwd: pwd.to_owned(),
        reply,
    })
}

#[test]
fn ice_restart_by_offer() {
    let mut world = World::new();
    let client = world.connect(address(1, 4000));
    let session = world.nodes[client].session.clone().unwrap();
    let answer = renegotiate(&mut world, client, true);
    assert_ne!(answer.etag, session.etag);
    assert_ne!(
        line(&answer.sdp, "a=ice-ufrag:"),
        line(&session.answer, "a=ice-ufrag:")
    );
    world.run(3 * SECOND);
    assert_eq!(world.talk(client, 50), 50);
}

#[test]
fn renegotiation_adds_a_stream_and_what_goes_back_stays_one() {
    let mut world = World::new();
    let client = world.connect(address(1, 4000));
    assert_eq!(world.talk(client, 20), 20);
    world.nodes[client].client.add_stream(0xabcd);
    let session = world.nodes[client].session.clone().unwrap();
    let answer = renegotiate(&mut world, client, false);
    assert_eq!(answer.etag, session.etag);
    assert_eq!(
        line(&answer.sdp, "a=ice-ufrag:"),
        line(&session.answer, "a=ice-ufrag:")
    );
    assert_eq!(answer.sdp.matches("m=audio ").count(), 2);
    world.nodes[client].client.sequence = 40_000;
    world.run(SECOND);
    assert_eq!(world.talk(client, 20), 20);
    let sequences = &world.nodes[client].client.sequences;
    assert!(
        sequences
            .windows(2)
            .all(|pair| pair[0].wrapping_add(1) == pair[1]),
        "{sequences:?}"
    );
    assert_eq!(world.snapshot(client).unwrap().rtp_lost, 0);
}

fn renegotiate(
    world: &mut World,
    client: usize,
    ice_restart: bool,
) -> crate::engine::handle::Answer {
    let now = world.now;
    let offer = world.nodes[client].client.offer(ice_restart, now);
    let key = world.nodes[client].session.as_ref().unwrap().key;
    let answer = world
        .ask(|reply| Request::Renegotiate {
            key,
            precondition: Precondition::Any,
            offer,
            reply,
        })
        .unwrap();
    world.nodes[client].client.answer(&answer.sdp, now);
    world.exchange();
    answer
}

#[test]
fn video_beside_audio_is_rejected_and_audio_works() {
    let mut world = World::new();
    let client = world.arrive(address(1, 4000));
    let now = world.now;
    let offer = world.nodes[client].client.offer(false, now);
    let mid = "a=mid:video\r\na=rtcp-mux\r\na=sendrecv\r\na=rtpmap:96 VP8/90000\r\n";
    let common: String = offer
        .lines()
        .filter(|line| {
            ["a=ice-ufrag", "a=ice-pwd", "a=fingerprint", "a=setup"]
                .iter()
                .any(|p| line.starts_with(p))
        })
        .map(|line| format!("{line}\r\n"))
        .collect();
    let bundle = line(&offer, "a=group:BUNDLE");
    let with_video = format!(
        "{}m=video 9 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\n{common}{mid}",
        offer.replace(
            &format!("a=group:BUNDLE{bundle}"),
            &format!("a=group:BUNDLE{bundle} video")
        )
    );
    let created = world.create(&with_video).unwrap();
    assert!(created.answer.contains("m=video 0 "), "{}", created.answer);
    assert!(created.answer.contains("m=audio 9 "), "{}", created.answer);
    let group = line(&created.answer, "a=group:BUNDLE");
    assert!(
        !group.contains("video"),
        "a rejected m-line is bundled with nothing: {group}"
    );
}

#[test]
fn whatever_ends_a_session_tells_the_pop_of_each_address() {
    type End = fn(&mut World, usize);
    let asked: End = |world, _| world.core.close_all(world.now);
    let closed: End = |world, client| {
        let now = world.now;
        world.nodes[client].client.close(now);
    };
    let vanished: End = |world, client| world.nodes[client].online = false;
    for (end, time) in [(asked, 1), (closed, 1), (vanished, 30)] {
        let mut world = World::new();
        let client = world.connect(address(1, 4000));
        world.relay = 2;
        world.nodes[client].nat = address(1, 4001);
        world.nominate(client, address(1, 4001));
        assert_eq!(world.talk(client, 5), 5);
        let sent = world.sent.len();
        end(&mut world, client);
        world.run(time * SECOND);
        let mut ends: Vec<_> = world
            .ends
            .iter()
            .map(|(relay, header, _)| (*relay, header.client.socket_addr()))
            .collect();
        ends.sort_unstable();
        let expected = [
            (relay_address(1), address(1, 4000)),
            (relay_address(2), address(1, 4001)),
        ];
        assert_eq!(ends, expected);
        for (_, header, before) in &world.ends {
            assert_eq!((header.owner, header.hops), (world.core.owner, 0));
            assert!(*before >= sent && *before == world.sent.len(), "it is last");
        }
        assert_eq!(world.core.egress.ends, 2);
    }
}

#[test]
fn a_close_ends_the_session_at_once() {
    let mut world = World::new();
    let client = world.connect(address(1, 4000));
    let now = world.now;
    world.nodes[client].client.close(now);
    world.exchange();
    assert!(world.snapshot(client).is_none());
    assert_eq!(world.core.ended.closed, 1);
    assert_eq!(world.core.load().sessions, 0);
    assert_eq!(world.core.sessions.load().addresses, 0);
}

#[test]
fn a_client_that_vanishes_is_gone_within_30_s() {
    let mut world = World::new();
    let client = world.connect(address(1, 4000));
    world.nodes[client].online = false;
    world.run(15 * SECOND);
    assert!(world.snapshot(client).is_some());
    world.run(6 * SECOND);
    assert!(world.snapshot(client).is_none());
    assert_eq!(world.core.ended.vanished, 1);
}

#[test]
fn forged_packets_keep_nobody_alive_and_end_nobody() {
    let mut world = World::new();
    let client = world.connect(address(1, 4000));
    let mut forged = world.check(client);
    let last = forged.len() - 9;
    forged[last] ^= 1;
    for kind in [20, 21, 22, 23] {
        // Plaintext records, fatal alert and close_notify among them, and records of the next epoch.
        for (epoch, body) in [(0, [2, 40]), (0, [1, 0]), (1, [1, 0])] {
            let packet = [
                &[kind, 254, 253, 0, epoch, 0, 0, 0, 0, 255, 255, 0, 2],
                &body[..],
            ]
            .concat();
            world.uplink(address(1, 4000), INGRESS[0], &packet);
        }
    }
    world.uplink(address(1, 4000), INGRESS[0], &forged);
    world.sent.clear();
    world.exchange();
    assert_eq!(world.sent, [], "nothing is answered");
    assert_eq!(world.talk(client, 20), 20);
    world.nodes[client].online = false;
    for _ in 0..25 {
        world.uplink(address(1, 4000), INGRESS[0], &forged);
        world.run(SECOND);
    }
    assert!(world.snapshot(client).is_none());
}

#[test]
fn packets_of_every_size_and_kind_end_no_session() {
    let mut world = World::new();
    let client = world.connect(address(1, 4000));
    for len in 1..=1472usize {
        for first in [0, 1, 20, 22, 23, 63, 64, 128, 191, 200, 255] {
            let mut packet: Vec<u8> = (0..=250u8).cycle().step_by(31).take(len).collect();
            packet[0] = first;
            world.uplink(address(1, 4000), INGRESS[0], &packet);
            world.uplink(address(9, 9), INGRESS[0], &packet);
        }
    }
    world.exchange();
    assert_eq!(world.talk(client, 20), 20);
    assert_eq!(
        world.snapshot(client).unwrap().state,
        SessionState::Connected
    );
}

#[test]
fn packets_longer_than_a_datagram_are_split_both_ways() {
    let mut world = World::new();
    let client = world.connect(address(1, 4000));
    let (now, voice) = (world.now, Bytes::from(vec![7; 1430]));
    world.nodes[client].client.speak(voice.clone(), now);
    world.exchange();
    assert_eq!(world.nodes[client].client.heard, [voice]);
    assert!(world.sent.iter().any(|sent| sent.3 > 1430));
    // Parts that never meet are counted.
    let header = wire::record::RecordHeader {
        fragment: Some(wire::record::Fragment {
            id: 7,
            index: 0,
            count: 2,
        }),
        ..world.header(address(1, 4000), 1)
    };
    let part = datagram(&header, b"half");
    world.core.handle_datagram(relay_address(1), &part, now);
    let later = wire::record::RecordHeader {
        fragment: Some(wire::record::Fragment {
            id: 8,
            index: 0,
            count: 2,
        }),
        ..header
    };
    world
        .core
        .handle_datagram(relay_address(1), &datagram(&later, b"half"), now + SECOND);
    assert_eq!(world.core.drops.get(DropReason::Reassembly), 1);
}

#[test]
fn records_from_elsewhere_or_for_others_are_dropped() {
    let mut world = World::new();
    let (header, now) = (world.header(address(1, 4000), 1), world.now);
    let good = datagram(&header, b"\x80data");
    let other = wire::record::RecordHeader {
        owner: Owner {
            region: RegionId(1),
            transceiver: TransceiverId(2),
        },
        ..header
    };
    let cases = [
        (address(3, 7543), good.clone(), DropReason::UnknownRelay),
        (
            std::net::SocketAddr::from(([127, 0, 1, 1], 7544)),
            good.clone(),
            DropReason::UnknownRelay,
        ),
        (relay_address(1), b"\xf1".to_vec(), DropReason::BadRecord),
        (
            relay_address(1),
            good[..good.len() - 1].to_vec(),
            DropReason::BadRecord,
        ),
        (
            relay_address(1),
            datagram(&other, b"\x80data"),
            DropReason::WrongOwner,
        ),
        (relay_address(1), good, DropReason::UnboundAddress),
        (
            relay_address(1),
            datagram(&header, b""),
            DropReason::BadRecord,
        ),
    ];
    for (from, bytes, reason) in cases {
        let before = world.core.drops.get(reason);
        world.core.handle_datagram(from, &bytes, now);
        assert_eq!(world.core.drops.get(reason), before + 1, "{reason:?}");
    }
}

#[test]
fn a_second_session_on_the_port_of_a_dead_one_works_at_once() {
    let mut world = World::new();
    let dead = world.connect(address(1, 4000));
    assert_eq!(world.talk(dead, 5), 5);
    world.nodes[dead].online = false;
    let second = world.connect(address(1, 4000));
    assert_eq!(world.talk(second, 50), 50);
    world.run(25 * SECOND);
    assert!(world.snapshot(dead).is_none());
    assert_eq!(world.talk(second, 50), 50);
}

#[test]
fn a_session_that_claims_anothers_address_takes_nothing() {
    let mut world = World::new();
    let victim = world.connect(address(1, 4000));
    let attacker = world.connect(address(2, 4000));
    world.nominate(attacker, address(1, 4000));
    assert_eq!(world.talk(victim, 50), 50);
    world.run(30 * SECOND);
    assert_eq!(world.talk(victim, 50), 50);
}

#[test]
fn ending_a_session_tells_its_client() {
    let mut world = World::new();
    let client = world.connect(address(1, 4000));
    let key = world.nodes[client].session.as_ref().unwrap().key;
    world.ask(|reply| Request::End { key, reply }).unwrap();
    world.exchange();
    assert!(!world.nodes[client].client.channel_open);
    assert!(world.nodes[client].client.closed);
    assert_eq!(
        world.ask(|reply| Request::End { key, reply }),
        Err(SessionError::NotFound)
    );
    assert!(world.snapshot(client).is_none());
}

#[test]
fn a_draining_engine_keeps_what_it_has_and_says_goodbye() {
    let mut world = World::new();
    let client = world.connect(address(1, 4000));
    world.core.draining = true;
    let offer = world.nodes[client].offer.clone();
    assert_eq!(world.create(&offer).unwrap_err(), OfferError::Draining);
    assert_eq!(world.talk(client, 20), 20);
    let now = world.now;
    world.core.close_all(now);
    world.exchange();
    assert!(world.nodes[client].client.closed);
    assert_eq!(world.core.load().sessions, 0);
}

#[test]
fn sessions_are_bounded_and_leave_nothing_behind() {
    let mut world =
        World::with_signaling(&json!({ "sessions_max": 3, "pending_max": 2, "pending_ttl_s": 5 }));
    let first = world.connect(address(1, 4000));
    let offer = world.nodes[first].offer.clone();
    world.create(&offer).unwrap();
    world.create(&offer).unwrap();
    assert_eq!(world.create(&offer).unwrap_err(), OfferError::Full);
    world.run(6 * SECOND);
    assert_eq!(world.core.load().sessions, 1);
    assert_eq!(world.core.ended.never_came, 2);
    let second = world.connect(address(2, 4000));
    world.create(&offer).unwrap();
    assert_eq!(world.create(&offer).unwrap_err(), OfferError::Full);
    for bad in [
        "",
        "v=0\r\n",
        "v=0\r\nm=video 9 UDP/TLS/RTP/SAVPF 96\r\n",
        "v=0\r\nm=audio 9 x\r\n",
    ] {
        assert!(world.create(bad).is_err());
    }
    let now = world.now;
    for client in [first, second] {
        world.nodes[client].client.close(now);
    }
    world.run(6 * SECOND);
    assert_eq!(
        (
            world.core.load().sessions,
            world.core.by_key.len(),
            world.core.by_id.len()
        ),
        (0, 0, 0)
    );
}

#[test]
fn pending_sessions_are_bounded() {
    let mut world = World::with_signaling(&json!({ "pending_max": 1 }));
    let client = world.join(address(1, 4000));
    let offer = world.nodes[client].offer.clone();
    assert_eq!(world.create(&offer).unwrap_err(), OfferError::Pending);
    world.run(SECOND);
    world.create(&offer).unwrap();
}

#[test]
fn the_pop_of_an_address_that_gives_way_to_a_ninth_is_told() {
    let mut world = World::new();
    let client = world.connect(address(1, 4000));
    for host in 2..=8 {
        drops::nominate(&mut world, client, host);
    }
    assert_eq!(world.core.egress.ends, 0);
    drops::nominate(&mut world, client, 9);
    assert_eq!(world.core.egress.ends, 1);
}

#[test]
fn too_many_data_channels_end_the_session() {
    let mut world = World::new();
    let client = world.connect(address(1, 4000));
    for _ in 0..70 {
        world.nodes[client].client.open_channel();
    }
    world.run(5 * SECOND);
    assert!(world.snapshot(client).is_none());
    assert_eq!(world.core.ended.failed, 1);
}

#[test]
fn invented_ssrcs_do_not_shut_the_client_out() {
    let mut world = World::new();
    let client = world.connect(address(1, 4000));
    for ssrc in 0..10_000u32 {
        let mut packet = [
            0x80, 111, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 7, 7, 7, 7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,
            12,
        ];
        packet[8..12].copy_from_slice(&ssrc.to_be_bytes());
        world.uplink(address(1, 4000), INGRESS[0], &packet);
    }
    assert_eq!(world.core.drops.get(DropReason::MediaRefused), 10_000);
    assert_eq!(world.talk(client, 20), 20);
}
