//! Cookies (RFC 9018) and limits on answers: who is beyond them, who is truncated or dropped.

use super::*;

#[test]
fn cookies_come_back_and_a_right_one_is_kept() {
    let served = unsigned();
    let client = *b"clientck";
    let ask_with = |cookie: &[u8]| ask(STEERED, A).cookie(cookie);
    let (_, message) = answered(&served, &ask_with(&client));
    let cookie = cookie_of(&message).unwrap();
    assert_eq!((cookie.len(), &cookie[..8]), (24, &client[..]));
    let (_, message) = answered(&served, &ask_with(&cookie));
    assert_eq!(cookie_of(&message).unwrap(), cookie);
    for wrong in [
        [&client[..], &[0; 16]].concat(),
        [&client[..], &[0; 8]].concat(),
        [&client[..], &[1; 32]].concat(),
    ] {
        let (_, message) = answered(&served, &ask_with(&wrong));
        assert_eq!(code(&message), ResponseCode::NoError);
        assert_eq!(cookie_of(&message).unwrap(), cookie, "the right one");
    }
    for len in [0, 7, 9, 15, 41] {
        let (_, message) = answered(&served, &ask_with(&vec![3; len]));
        assert_eq!(code(&message), ResponseCode::FormErr, "{len} bytes");
    }
    // Options together, in any order, and the first of two cookies.
    let all = ask(STEERED, A).cookie(&client).ecs("0001 18 00 080808");
    let all = all.opt(&option(3, &[])).cookie(&[5; 8]);
    let (_, message) = answered(&served, &all);
    assert_eq!(cookie_of(&message).unwrap(), cookie);
    assert_eq!(scope(&message), Some(16));
}

#[test]
fn a_right_cookie_is_beyond_limits_and_others_are_truncated_or_dropped() {
    let served = unsigned();
    let limits = Limits {
        responses_per_s: 4,
        slip: 2,
    };
    let mut responder = responder(limits);
    let plain = ask(STEERED, A).opt(&[]).bytes();
    let mut seen = [0; 3];
    for _ in 0..24 {
        match send(&mut responder, &served, &plain, source()) {
            Ok(answer) if answer[2] & 2 == 0 => seen[0] += 1,
            Ok(answer) => {
                seen[1] += 1;
                assert_eq!(
                    answer.len(),
                    plain.len(),
                    "a truncated answer is no longer than its query"
                );
            }
            Err(verdict) => {
                seen[2] += 1;
                assert_eq!(verdict, Verdict::Drop(DropReason::RateLimited));
            }
        }
    }
    assert_eq!(seen, [4, 10, 10]);
    assert_eq!(responder.counts().slipped, 10);
    // Another class of answer, another prefix.
    let other = ask("rtc.example.com", 6).bytes();
    assert!(send(&mut responder, &served, &other, source()).is_ok());
    let elsewhere = "1.0.1.9:53".parse().unwrap();
    assert!(send(&mut responder, &served, &plain, elsewhere).is_ok());
    // A client cookie alone is no proof; the cookie it is told is.
    let mut cookie = b"clientck".to_vec();
    let told = loop {
        let query = ask(STEERED, A).cookie(&cookie).bytes();
        if let Ok(answer) = send(&mut responder, &served, &query, source()) {
            assert_ne!(answer[2] & 2, 0);
            break Message::from_vec(&answer).unwrap();
        }
    };
    cookie = cookie_of(&told).unwrap();
    let query = ask(STEERED, A).cookie(&cookie).bytes();
    for _ in 0..100 {
        let answer = send(&mut responder, &served, &query, source()).unwrap();
        assert_eq!(answer[2] & 2, 0);
    }
}

#[test]
fn missing_names_share_one_limit_and_so_do_queries_that_go_the_slow_way() {
    let served = unsigned();
    let limits = Limits {
        responses_per_s: 5,
        slip: 0,
    };
    let mut responder = responder(limits);
    let mut sent = [0; 2];
    for host in 0..20 {
        let absent = ask(&format!("x{host}.rtc.example.com"), A).bytes();
        sent[0] += usize::from(send(&mut responder, &served, &absent, source()).is_ok());
        let transfer = ask("rtc.example.com", 252).bytes();
        let verdict = send(&mut responder, &served, &transfer, source());
        sent[1] += usize::from(verdict == Err(Verdict::Slow(SlowReason::MetaType)));
    }
    assert_eq!(sent, [5, 5]);
}

#[test]
fn neither_type_nor_dnssec_nor_client_subnet_multiplies_what_one_victim_gets() {
    let served = signed_once();
    let limits = Limits {
        responses_per_s: 5,
        slip: 0,
    };
    let mut responder = responder(limits);
    let mut sent = 0;
    for network in 0..20 {
        for qtype in [A, AAAA, 65, 255, 16, 15] {
            let ecs = format!("0001 18 00 {network:02x}0808");
            let plain = ask(STEERED, qtype).ecs(&ecs);
            let signed = plain.clone().with(|opt| opt.dnssec_ok = true);
            for query in [plain, signed] {
                sent += usize::from(send(&mut responder, served, &query.bytes(), source()).is_ok());
            }
        }
    }
    assert_eq!(sent, 5);
    // Another name has an allowance of its own, and so has another prefix.
    let other = ask("eu.signaling.rtc.example.com", A).bytes();
    assert!(send(&mut responder, served, &other, source()).is_ok());
    let elsewhere = "1.0.1.9:53".parse().unwrap();
    let again = ask(STEERED, A).bytes();
    assert!(send(&mut responder, served, &again, elsewhere).is_ok());
}
