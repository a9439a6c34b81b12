use rcgen::ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};

use super::*;
use crate::issue::{Ca, Dir, HINT_KEYS, Leaf, TOKEN};

/// 2026-01-01.
const NOW_S: u64 = 1_767_225_600;

fn load_error(dir: &Dir) -> String {
    let error = Credentials::load(dir.path()).unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    let prefix = format!("{}/", dir.path().display());
    error.strip_prefix(&prefix).unwrap().to_owned()
}

fn identity_error(leaf: &Leaf<'_>, node: &str) -> String {
    let dir = Dir::with_credentials(&Ca::new(), leaf);
    let credentials = Credentials::load(dir.path()).unwrap();
    let error = credentials.check_identity(node, NOW_S).unwrap_err();
    let prefix = format!("{}/cert.pem: ", dir.path().display());
    error.to_string().strip_prefix(&prefix).unwrap().to_owned()
}

#[test]
fn a_whole_directory_loads_and_shows_no_secret() {
    let dir = Dir::with_credentials(&Ca::new(), &Leaf::of("pop-a"));
    dir.write("whip.secret", &"s".repeat(32));
    dir.write("redis.user", "pops\n");
    dir.write("redis.password", "rrrrrrrr\n");
    let credentials = Credentials::load(dir.path()).unwrap();
    credentials.check_identity("pop-a", NOW_S).unwrap();
    // 2999-01-01.
    assert_eq!(credentials.expires_unix_s, 32_472_144_000);
    let token = credentials.admin_token.clone().unwrap();
    assert!(token.matches(TOKEN.as_bytes()));
    assert!(!token.matches(b"0123456789abcdef0124") && !token.matches(b""));
    assert_eq!(credentials.whip_secret.clone().unwrap().expose().len(), 32);
    let shown = format!("{credentials:?}");
    assert!(shown.contains("PrivateKey(..)"), "{shown}");
    assert_eq!(credentials.redis.user.clone().unwrap().expose(), b"pops");
    assert_eq!(credentials.redis.ca, credentials.ca);
    for secret in [TOKEN, "ssss", "rrrr", "00010203"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn optional_files_may_be_absent_and_the_others_not() {
    let dir = Dir::with_credentials(&Ca::new(), &Leaf::of("pop-a"));
    dir.remove("admin.token");
    let credentials = Credentials::load(dir.path()).unwrap();
    assert!(credentials.admin_token.is_none() && credentials.whip_secret.is_none());
    for name in ["hint.keys", "key.pem", "cert.pem", "ca.pem"] {
        dir.remove(name);
        assert_eq!(
            load_error(&dir),
            format!("{name}: No such file or directory (os error 2)")
        );
    }
}

#[test]
fn what_a_geodns_node_shows_the_public() {
    let ca = Ca::new();
    let dir = Dir::with_credentials(&ca, &Leaf::of("ns1"));
    let (cert, key) = Ca::new().issue(&Leaf::of("ns1.example.com"));
    dir.write("public.key.pem", &key);
    assert_eq!(load_error(&dir), "public.cert.pem: no certificate in it");
    dir.write("public.cert.pem", &cert);
    dir.write("dnssec.pem", &format!("{key}{key}"));
    let credentials = Credentials::load(dir.path()).unwrap();
    let public = credentials.public.clone().unwrap();
    assert_ne!(public.chain, credentials.chain);
    assert_eq!(credentials.dnssec_keys.len(), 2);
    assert!(!format!("{credentials:?}").contains("PrivateKey(PrivateKey"));

    let (_, other) = ca.issue(&Leaf::of("ns1"));
    dir.write("public.key.pem", &other);
    let error = load_error(&dir);
    assert!(
        error.starts_with("public.key.pem: does not go with public.cert.pem: "),
        "{error}"
    );
    dir.remove("public.key.pem");
    assert_eq!(
        load_error(&dir),
        "public.key.pem: No such file or directory (os error 2)"
    );
    dir.remove("public.cert.pem");
    dir.write("dnssec.pem", &cert);
    assert_eq!(load_error(&dir), "dnssec.pem: no private key in it");
}

#[test]
fn every_bad_file_is_one_line_that_names_it() {
    let ca = Ca::new();
    let (cert, key) = ca.issue(&Leaf::of("pop-a"));
    let cases = [
        ("ca.pem", "", "ca.pem: no certificate in it"),
        ("ca.pem", key.as_str(), "ca.pem: no certificate in it"),
        ("cert.pem", "hello", "cert.pem: no certificate in it"),
        ("key.pem", cert.as_str(), "key.pem: no private key in it"),
        (
            "hint.keys",
            "# keys\ncurrent 3 0011\n",
            "hint.keys: line 2: expected `previous|current|next <id 0-15> <32 hex digits>`",
        ),
        ("hint.keys", "", "hint.keys: no `current` key"),
        (
            "admin.token",
            "short",
            "admin.token: expected one line of at least 16 characters without spaces",
        ),
        (
            "admin.token",
            "0123456789abcdef\n0123456789abcdef",
            "admin.token: expected one line of at least 16 characters without spaces",
        ),
        (
            "whip.secret",
            "0123456789abcdef\n",
            "whip.secret: 16 bytes, at least 32 are needed",
        ),
        (
            "redis.user",
            "two\nlines",
            "redis.user: expected one line of visible characters",
        ),
        (
            "redis.password",
            "\n",
            "redis.password: expected one line of visible characters",
        ),
        ("redis.ca.pem", "", "redis.ca.pem: no certificate in it"),
    ];
    for (name, text, error) in cases {
        let dir = Dir::with_credentials(&ca, &Leaf::of("pop-a"));
        dir.write(name, text);
        assert_eq!(load_error(&dir), error);
    }
}

#[test]
fn damaged_and_oversize_files_are_refused() {
    let ca = Ca::new();
    let dir = Dir::with_credentials(&ca, &Leaf::of("pop-a"));
    dir.write("hint.keys", &"#".repeat((1 << 20) + 1));
    assert_eq!(load_error(&dir), "hint.keys: larger than 1048576 bytes");
    let (cert, _) = ca.issue(&Leaf::of("pop-a"));
    dir.write("hint.keys", HINT_KEYS);
    dir.write("cert.pem", &cert[..cert.len() / 2]);
    assert!(load_error(&dir).starts_with("cert.pem: not PEM: "));
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let ca = Ca::new();
    let dir = Dir::with_credentials(&ca, &Leaf::of("pop-a"));
    let (_, other) = ca.issue(&Leaf::of("pop-a"));
    dir.write("key.pem", &other);
    let error = load_error(&dir);
    assert!(
        error.starts_with("key.pem: does not go with cert.pem: "),
        "{error}"
    );
}

#[test]
fn a_certificate_that_peers_would_refuse_is_refused() {
    let leaf = Leaf::of("pop-a");
    assert_eq!(
        identity_error(&leaf, "pop-b"),
        "does not name `pop-b` (SAN dNSName)"
    );
    let old = Leaf {
        years: (2020, 2025),
        ..Leaf::of("pop-a")
    };
    assert_eq!(identity_error(&old, "pop-a"), "expired 31536000 s ago");
    let early = Leaf {
        years: (2027, 2028),
        ..Leaf::of("pop-a")
    };
    assert_eq!(
        identity_error(&early, "pop-a"),
        "valid only in 31536000 s; is the clock right?"
    );
    for purposes in [vec![ServerAuth], vec![ClientAuth]] {
        let half = Leaf {
            purposes,
            ..Leaf::of("pop-a")
        };
        assert_eq!(
            identity_error(&half, "pop-a"),
            "not for both TLS server and TLS client (extended key usage)"
        );
    }
}

#[test]
fn a_certificate_of_another_ca_is_refused() {
    let dir = Dir::with_credentials(&Ca::new(), &Leaf::of("pop-a"));
    dir.write("ca.pem", &Ca::new().pem());
    let credentials = Credentials::load(dir.path()).unwrap();
    let error = credentials.check_identity("pop-a", NOW_S).unwrap_err();
    assert!(matches!(
        error.problem,
        Problem::Identity(IdentityError::OtherCa)
    ));
}
