//! What an upstream router sees of a PoP: the bird.conf of the topology in a real BIRD, over the WAN emulator.

#![cfg(test)]

#[path = "bgp/site.rs"]
mod site;

use std::collections::BTreeSet;
use std::time::Duration;

use lab::wait;
use runtime::clock;
use site::{COVERS, POP, PREFIXES, SOON, Site, WORLD, parses};

const UP: Option<u32> = Some(topology::bird::METRIC_UP);
const DRAINING: Option<u32> = Some(topology::bird::METRIC_DRAINING);
const WITHDRAWN: Option<u32> = None;

const GRACEFUL_SHUTDOWN: &str = "(65535,0)";

/// Prefixes and covers.
fn all() -> Vec<&'static str> {
    PREFIXES.into_iter().chain(COVERS).collect()
}

#[test]
fn the_router_is_told_how_the_pop_is() {
    let mut site = Site::open("state");
    site.router_has("nothing but the covers", &COVERS);
    site.hold_device();
    site.say(WITHDRAWN, UP);
    let [v4, v6] = PREFIXES;
    let routes = site.router_has("up", &all());
    assert_eq!(routes[v4]["BGP.as_path"], "64500");
    assert_eq!(routes[v4]["BGP.community"], "(64511,100)");
    assert_eq!(routes[v4]["BGP.large_community"], "(64511, 1, 4000)");
    assert_eq!(routes[v4]["BGP.next_hop"], "10.254.0.1");
    assert_eq!(routes[v4].get("BGP.med"), None);
    assert_eq!(
        routes[v6]["BGP.as_path"], "64500 64500",
        "its standing prepend"
    );
    assert_eq!(routes[v6].get("BGP.community"), None);
    assert_eq!(routes[v6]["BGP.med"], "70");

    let withdrawals = site.router.withdrawals();
    site.say(UP, DRAINING);
    let drained = || {
        let routes = site.router_has("the prefixes and covers", &all());
        let says = |prefix: &str| routes[prefix].get("BGP.community");
        let drains = |prefix| says(prefix).is_some_and(|all| all.contains(GRACEFUL_SHUTDOWN));
        PREFIXES.into_iter().all(drains).then_some(routes)
    };
    let routes = wait::until("draining", SOON, drained).unwrap();
    assert_eq!(routes[v4]["BGP.as_path"], "64500 64500 64500");
    assert_eq!(routes[v4]["BGP.med"], "1000");
    let communities = &routes[v4]["BGP.community"];
    for community in ["(64511,80)", "(64511,100)"] {
        assert!(communities.contains(community), "{communities}");
    }
    assert_eq!(routes[v4]["BGP.large_community"], "(64511, 1, 4000)");
    assert_eq!(routes[v6]["BGP.as_path"], "64500 64500 64500 64500");
    assert_eq!(routes[v6]["BGP.med"], "1070");
    for cover in COVERS {
        let communities = routes[cover].get("BGP.community");
        let communities = communities.map_or("", String::as_str);
        assert!(!communities.contains(GRACEFUL_SHUTDOWN), "{communities}");
    }

    site.say(DRAINING, UP);
    let up = || {
        let routes = site.router_has("the prefixes and covers", &all());
        PREFIXES.into_iter().all(|prefix| {
            !routes[prefix]
                .values()
                .any(|value| value.contains(GRACEFUL_SHUTDOWN))
        })
    };
    wait::until_true("up again", SOON, up).unwrap();
    assert_eq!(
        site.router.withdrawals(),
        withdrawals,
        "never away between two states"
    );

    site.say(UP, WITHDRAWN);
    site.router_has("withdrawn", &COVERS);
}

/// Keywords are among the words of the program, whichever version it is; and so is much else that BIRD may have named.
fn words_of_bird() -> BTreeSet<String> {
    let program = std::fs::read("/usr/sbin/bird").expect("package bird2 is installed");
    let part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_name = |word: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        word.len() <= 32
            && word.bytes().all(plain)
            && !word.starts_with('-')
            && !word.ends_with('-')
    };
    let words = program.split(|byte| !part(byte));
    let words = words.filter_map(|word| std::str::from_utf8(word).ok());
    let names = words.filter(|word| !word.is_empty() && is_name(word));
    names.map(str::to_owned).collect()
}

#[test]
fn any_word_of_bird_may_be_the_name_of_a_session() {
    let mut names = words_of_bird();
    for keyword in [
        "primary", "rs", "direct", "local", "all", "bgp", "table", "ipv4",
    ] {
        assert!(names.contains(keyword), "{keyword} in {names:?}");
    }
    // What else has a name in the file, and what BIRD calls a protocol without one.
    let taken = [
        "vip4",
        "vip6",
        "bfd1",
        "device1",
        "static1",
        "bgp1",
        "to-primary",
        "bgp-primary",
    ];
    names.extend(taken.map(str::to_owned));
    let mut topology = topology::load(WORLD, "world.yaml").unwrap();
    let pop = &mut topology.pops[0];
    assert_eq!(pop.name, POP);
    let mut session = pop.bgp[0].clone();
    session.password_file = None;
    let called = |name: &String| topology::BgpSession {
        name: name.clone(),
        ..session.clone()
    };
    pop.bgp = names.iter().map(called).collect();
    let config = topology::bird::config(&topology, POP).unwrap();
    let file = std::env::temp_dir().join(format!("bgp-words-{}.conf", std::process::id()));
    std::fs::write(&file, &config).unwrap();
    let parsed = parses(&file);
    // As they would be without what stands before them: BIRD refuses.
    std::fs::write(
        &file,
        config.replace("protocol bgp 'bgp-", "protocol bgp '"),
    )
    .unwrap();
    let bare = parses(&file);
    std::fs::remove_file(&file).unwrap();
    parsed.unwrap();
    assert!(bare.is_err(), "none of them is a keyword");
    println!("{} names", names.len());
}

#[test]
fn nothing_else_leaves_the_pop() {
    let mut site = Site::open("only");
    site.hold_device();
    // What a PoP has beside: a backbone, a default route, addresses of its own.
    site.ip("address add 198.51.100.101/24 dev lo");
    site.ip("route add default via 10.254.0.0");
    site.ip("route add 203.0.113.0/24 dev vip0");
    // What may stray into the table: other prefixes, parts of a VIP's, the cover, and VIPs' with a metric that is no state.
    for stray in [
        "0.0.0.0/0 dev vip0 table 1001 metric 100",
        "203.0.113.0/24 dev vip0 table 1001 metric 100",
        "198.19.0.128/25 dev vip0 table 1001 metric 100",
        "198.19.0.0/23 dev vip0 table 1001 metric 100",
        "2001:db8::/32 dev vip0 table 1001 metric 100",
        "198.19.0.0/24 dev vip0 table 1001 metric 150",
        "2001:db8:100::/48 dev vip0 table 1001 metric 1024",
    ] {
        site.ip(&format!("route add {stray}"));
    }
    // BIRD hears of routes in their order: it has seen all of those when it has seen these.
    site.say(WITHDRAWN, UP);
    let routes = site.router_has("the prefixes", &all());
    assert_eq!(routes["198.19.0.0/24"]["BGP.as_path"], "64500");
    let kernel = site.pop_says("show route table vip4");
    assert!(kernel.contains("198.19.0.0/24"), "{kernel}");
    site.say(UP, WITHDRAWN);
    site.router_has("the covers", &COVERS);
}

#[test]
fn who_dies_is_not_announced() {
    let mut site = Site::open("death");
    site.hold_device();
    site.say(WITHDRAWN, UP);
    site.router_has("up", &all());
    site.kill_holder();
    site.router_has("nothing but the covers when the device is gone", &COVERS);
    site.hold_device();
    site.say(WITHDRAWN, UP);
    site.router_has("up again", &all());
    site.kill_bird();
    site.router_has("nothing without BIRD", &[]);
}

#[test]
fn what_a_neighbour_says_is_bounded_and_never_used() {
    let mut site = Site::open("flood");
    site.hold_device();
    site.say(WITHDRAWN, UP);
    site.router_has("up", &all());
    for more in ["enable more4", "enable more6"] {
        assert!(site.router.ask(more).contains("enabled"));
    }
    for (session, table) in [("transit1", "vip4"), ("transit1-v6", "vip6")] {
        let question = format!("show protocols all 'bgp-{session}'");
        wait::until_true("the limit", SOON, || {
            let state = site.pop_says(&question);
            state.contains("Receive limit:") && state.contains("[HIT]")
        })
        .unwrap_or_else(|error| panic!("{error}: {}", site.pop_says(&question)));
        assert!(site.pop_says(&question).contains("Established"));
        let kept = site.pop_says(&format!("show route filtered table {table} count"));
        assert!(
            kept.starts_with("BIRD") && kept.contains("10 of "),
            "{kept}"
        );
        let used = site.pop_says(&format!(
            "show route protocol 'bgp-{session}' table {table}"
        ));
        assert!(
            !used.contains("BGP") && !used.contains("blackhole"),
            "{used}"
        );
    }
    site.router_has("announced as before", &all());
}

#[test]
fn a_dead_wire_is_noticed_in_a_few_intervals() {
    let mut site = Site::open("wire");
    let anycast = site.topology.network.anycast.clone().unwrap();
    let interval = Duration::from_millis(anycast.bfd.interval_ms.into());
    let hold = Duration::from_secs(anycast.hold_s.into());
    site.hold_device();
    site.say(WITHDRAWN, UP);
    site.router_has("up", &all());
    let up = |answer: &str| answer.matches(" Up ").count() == 2;
    wait::until_true("BFD", SOON, || {
        up(&site.router.ask("show bfd sessions")) && up(&site.pop_says("show bfd sessions"))
    })
    .unwrap();
    let cut = clock::now();
    site.wire("cut p r");
    site.router_has("nothing behind a dead wire", &[]);
    let took = clock::now() - cut;
    println!("noticed after {took:?}");
    // Three intervals, and a busy machine. Never the hold time.
    assert!(took < 15 * interval && took < hold / 2, "{took:?}");
    site.wire("heal p r");
    site.router_has("all of it when the wire is back", &all());
}
