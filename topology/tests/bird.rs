//! The bird.conf of a PoP: what is in it, and what never is. Whether BIRD understands it is seen end to end, in the lab.

#![cfg(test)]

use topology::bird::{self, RenderError};
use topology::{Topology, load};

const WORLD: &str = include_str!("../samples/world.yaml");

fn world() -> Topology {
    load(WORLD, "world.yaml").unwrap()
}

/// The block that begins with `head`, up to its closing brace at the beginning of a line.
fn block<'a>(config: &'a str, head: &str) -> &'a str {
    let start = config
        .find(head)
        .unwrap_or_else(|| panic!("no {head} in {config}"));
    let rest = &config[start..];
    let end = rest.find("\n}\n").unwrap();
    &rest[..end]
}

#[test]
fn one_file_says_it_all() {
    let config = bird::config(&world(), "ams").unwrap();
    assert!(config.contains("\nrouter id 198.51.100.101;\n"), "{config}");
    let kernel = block(&config, "protocol kernel kernel_vip4 {");
    assert!(kernel.contains("kernel table 1001;\n  learn;"), "{kernel}");
    assert!(kernel.contains("if net ~ [ 198.19.0.0/24 ] && (krt_metric = 100 || krt_metric = 200) then accept;\n      reject;"), "{kernel}");
    assert!(kernel.contains("export none;"), "{kernel}");
    assert_eq!(
        config.matches("kernel table").count(),
        2 + 1,
        "one of each family, and the comment"
    );
    let cover = block(&config, "protocol static cover_vip6 {");
    assert!(
        cover.contains("route 2001:db8:100::/47 blackhole;"),
        "{cover}"
    );
    assert!(
        block(&config, "protocol bfd {")
            .contains("interface \"*\" { interval 100 ms; multiplier 3; };")
    );
}

#[test]
fn a_session_announces_its_family_and_believes_nothing() {
    let config = bird::config(&world(), "ams").unwrap();
    for (name, family, ends) in [
        (
            "transit1",
            4,
            "local 198.18.1.1 as 64500;\n  neighbor 198.18.1.0 as 64511;",
        ),
        (
            "transit1-v6",
            6,
            "local 2001:db8:e001::1 as 64500;\n  neighbor 2001:db8:e001:: as 64511;",
        ),
        (
            "exchange",
            4,
            "local 198.18.1.3 as 64500;\n  neighbor 198.18.1.2 as 64510;",
        ),
    ] {
        let session = block(&config, &format!("protocol bgp 'bgp-{name}' {{"));
        for part in [
            ends,
            "hold time 9;\n  keepalive time 3;",
            "connect retry time 2;",
            "graceful restart off;",
            "bfd on;",
            &format!(
                "ipv{family} {{\n    table vip{family};\n    import none;\n    import keep filtered;\n"
            ),
            &format!("export filter 'to_{name}';\n    next hop self;"),
        ] {
            assert!(session.contains(part), "{part} in {session}");
        }
    }
    let include = "\ninclude \"/etc/firsthop/bgp/transit1.conf\";\n";
    assert!(
        block(&config, "protocol bgp 'bgp-transit1' {").contains(include),
        "at the beginning of a line"
    );
    assert_eq!(config.matches("include").count(), 1);
    assert!(
        block(&config, "protocol bgp 'bgp-exchange' {")
            .contains("receive limit 1000 action block;")
    );
}

#[test]
fn a_filter_in_full() {
    let config = bird::config(&world(), "ams").unwrap();
    assert_eq!(
        block(&config, "filter 'to_transit1' {"),
        "\
filter 'to_transit1' {
  if source = RTS_INHERIT && net ~ [ 198.19.0.0/24 ] then {
    if krt_metric = 200 then {
      bgp_community.add((65535, 0));
      bgp_community.add((64511, 80));
      bgp_path.prepend(64500);
      bgp_path.prepend(64500);
      bgp_med = 1000;
    }
  }
  else if !(source = RTS_STATIC && net ~ [ 198.19.0.0/23 ]) then reject;
  bgp_community.add((64511, 100));
  bgp_large_community.add((64511, 1, 4000));
  accept;"
    );
    assert_eq!(
        block(&config, "filter 'to_exchange' {"),
        "\
filter 'to_exchange' {
  if source = RTS_INHERIT && net ~ [ 198.19.0.0/24 ] then {
    if krt_metric = 200 then {
      bgp_community.add((65535, 0));
      bgp_path.prepend(64500);
      bgp_path.prepend(64500);
      bgp_med = 1050;
    } else {
      bgp_med = 50;
    }
  }
  else if !(source = RTS_STATIC && net ~ [ 198.19.0.0/23 ]) then reject;
  bgp_path.prepend(64500);
  accept;"
    );
}

/// BIRD has no empty sets: what is not there must not be written.
#[test]
fn without_covers_and_without_ipv6() {
    let mut topology = world();
    topology.network.vips.truncate(1);
    let anycast = topology.network.anycast.as_mut().unwrap();
    anycast.cover.clear();
    anycast.prefixes.truncate(1);
    anycast.drain_prepend = 0;
    topology.pops[0].bgp.truncate(1);
    topology.pops[0].bgp[0].multihop = Some(2);
    topology.pops[0].bgp[0].bfd = false;
    let config = bird::config(&topology, "ams").unwrap();
    for absent in ["ipv6", "vip6", "static", "RTS_STATIC", "[  ]", "prepend"] {
        assert!(!config.contains(absent), "{absent} in {config}");
    }
    assert!(block(&config, "filter 'to_transit1' {").contains("  }\n  else reject;\n"));
    assert!(block(&config, "protocol bgp 'bgp-transit1' {").contains("bfd off;\n  multihop 2;"));
}

#[test]
fn the_identifier_is_the_first_of_three() {
    let mut topology = world();
    let mut id = |edit: fn(&mut topology::Pop)| {
        edit(&mut topology.pops[0]);
        topology.pops[0].bgp_id().map(|id| id.to_string())
    };
    assert_eq!(id(|_| ()).as_deref(), Some("198.51.100.101"));
    assert_eq!(
        id(|pop| pop.backbone = "0.0.0.0".parse().unwrap()).as_deref(),
        Some("192.0.2.1")
    );
    assert_eq!(
        id(|pop| pop.router_id = Some([10, 0, 0, 1].into())).as_deref(),
        Some("10.0.0.1")
    );
    let none = id(|pop| {
        pop.router_id = None;
        pop.ingress.remove(0);
    });
    assert_eq!(none, None);
}

#[test]
fn who_has_no_configuration() {
    let mut topology = world();
    let node = |name: &str| name.to_owned();
    for name in ["eu-r1", "ams2"] {
        assert_eq!(
            bird::config(&topology, name),
            Err(RenderError::NoPop { node: node(name) })
        );
    }
    topology.pops[0].bgp.clear();
    assert_eq!(
        bird::config(&topology, "ams"),
        Err(RenderError::NoSession { node: node("ams") })
    );
    assert!(topology.anycast_of(&topology.pops[0]).is_none());
    assert!(topology.anycast_of(&topology.pops[1]).is_some());
    topology.pops[1].backbone = "0.0.0.0".parse().unwrap();
    topology.pops[1].ingress.remove(0);
    assert_eq!(
        bird::config(&topology, "lhr"),
        Err(RenderError::NoRouterId { node: node("lhr") })
    );
    topology.network.anycast = None;
    assert_eq!(bird::config(&topology, "lhr"), Err(RenderError::NoAnycast));
}

#[test]
fn a_pop_that_announces_is_given_the_time_that_its_drain_takes() {
    let mut world = world();
    let anycast = world.network.anycast.as_mut().unwrap();
    anycast.linger_s = 30;
    for (drain_max_s, ams) in [(30, 50), (50, 50), (60, 60)] {
        world.network.drain_max_s = drain_max_s;
        assert_eq!(world.drain_max_s_of("ams"), ams);
        assert_eq!(world.drain_max_s_of("no-such-node"), drain_max_s);
    }
    world.network.drain_max_s = 30;
    let pop = world.pops.iter_mut().find(|pop| pop.name == "ams").unwrap();
    pop.bgp.clear();
    assert_eq!(world.drain_max_s_of("ams"), 30, "it announces nothing");
}
