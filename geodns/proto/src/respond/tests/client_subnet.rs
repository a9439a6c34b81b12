//! Client subnets (RFC 7871): what is refused, what is echoed, and the scope that is told.

use super::*;

/// What gdnsd 3.8.1 does, and Knot, PowerDNS and hickory-proto in part do not.
#[test]
fn client_subnets_are_taken_strictly() {
    let served = unsigned();
    let malformed = [
        ("0001 18 18 080808", "scope in a query"),
        (
            "0001 18 00 08080808",
            "address longer than the prefix needs",
        ),
        ("0001 18 00 0808", "address too short"),
        ("0001 17 00 080809", "bits beyond the prefix"),
        ("0001 21 00 0808080808", "prefix longer than an address"),
        ("0000 00 00", "family 0"),
        ("0003 18 00 080808", "family 3"),
        ("0001", "half an option"),
        ("", "nothing"),
    ];
    for (data, why) in malformed {
        let (bytes, message) = answered(&served, &ask(STEERED, A).ecs(data));
        assert_eq!(code(&message), ResponseCode::FormErr, "{why}");
        assert_eq!(bytes[2], 0x81, "{why}: not authoritative");
        assert!(
            message.answers.is_empty() && scope(&message).is_none(),
            "{why}"
        );
        assert!(message.edns.is_some(), "{why}");
        assert_eq!(message.queries.len(), 1, "{why}");
    }
    // List 8 % 4, scope 8 + 8 % 17.
    let taken = [
        ("0001 18 00 080808", "192.0.2.131", 16),
        ("0001 20 00 08080808", "192.0.2.131", 16),
        ("0001 01 00 80", "192.0.2.131", 17),
        ("0001 10 00 0901", "192.0.2.132", 17),
        // List 3 shares by slot; the second byte is the slot.
        ("0001 18 00 030100", "192.0.2.131", 20),
        ("0001 18 00 030200", "192.0.2.133", 20),
        ("0002 38 00 20010db8000000", "192.0.2.132", 17),
        ("0002 38 00 2a000001000200", "192.0.2.133", 16),
        // The client wants not to be known: the resolver's address counts, the scope is 0.
        ("0001 00 00", "192.0.2.132", 0),
        ("0002 00 00", "192.0.2.132", 0),
    ];
    for (data, address, expected) in taken {
        let (bytes, message) = answered(&served, &ask(STEERED, A).ecs(data));
        assert_eq!(addresses(&message), [address], "{data}");
        assert_eq!(scope(&message), Some(expected), "{data}");
        let mut echoed = hex(data);
        echoed[3] = expected;
        assert!(bytes.ends_with(&option(8, &echoed)), "{data}");
    }
}

#[test]
fn without_a_client_subnet_the_resolver_counts_and_none_is_told() {
    let served = unsigned();
    for ask in [ask(STEERED, A), ask(STEERED, A).opt(&[])] {
        let (_, message) = answered(&served, &ask);
        assert_eq!(addresses(&message), ["192.0.2.132"]);
        assert_eq!(scope(&message), None);
    }
}

#[test]
fn the_last_of_two_client_subnets_counts() {
    let served = unsigned();
    let two = ask(STEERED, A)
        .ecs("0001 18 00 080808")
        .ecs("0001 18 00 010101");
    let (_, message) = answered(&served, &two);
    assert_eq!(addresses(&message), ["192.0.2.132"]);
    assert_eq!(scope(&message), Some(9));
    let (_, message) = answered(&served, &two.ecs("0001 18 01 010101"));
    assert_eq!(code(&message), ResponseCode::FormErr);
}

#[test]
fn what_does_not_depend_on_the_client_has_scope_0() {
    let served = unsigned();
    for name in [
        "eu.signaling.rtc.example.com",
        "nothing.rtc.example.com",
        "ingress.rtc.example.com",
        "example.com",
    ] {
        let (bytes, message) = answered(&served, &ask(name, A).ecs("0001 18 00 080808"));
        assert_eq!(scope(&message), Some(0), "{name}");
        assert!(bytes.ends_with(&hex("0001 18 00 080808")), "{name}");
    }
    let (_, message) = answered(&served, &ask(STEERED, 16).ecs("0001 18 00 080808"));
    assert_eq!(scope(&message), Some(0), "no text for anybody");
}
