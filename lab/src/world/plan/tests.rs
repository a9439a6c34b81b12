use super::*;
use crate::world::file::worlds_dir;

fn file(name: &str) -> WorldFile {
    WorldFile::find(name).unwrap()
}

#[test]
fn every_world_of_the_repository_can_be() {
    for entry in std::fs::read_dir(worlds_dir()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_file() && !name.starts_with("rtt-") {
            let plan = Plan::new(&WorldFile::load(&path).unwrap()).unwrap();
            let text = serde_json::to_string(&plan.wan).unwrap();
            wan::Plan::parse(&text).unwrap();
        }
    }
}

#[test]
fn the_nearest_is_the_shortest_of_the_matrix() {
    let plan = Plan::new(&file("small")).unwrap();
    let all = ["lon", "fra", "wdc"];
    for (client, alive, pop) in [
        ("c-lon", &all[..], Some("lon")),
        ("c-mad", &all[..], Some("fra")),
        ("c-dal", &all[..], Some("wdc")),
        ("c-lon", &["fra", "wdc"], Some("fra")),
        ("c-mad", &["lon", "wdc"], Some("lon")),
        ("c-dal", &["lon", "fra"], Some("lon")),
        ("c-dal", &[], None),
        ("lon", &all[..], None),
    ] {
        assert_eq!(plan.shortest(client, alive), pop, "{client} {alive:?}");
    }
    // 2 x 4 to the ISP, 2 x 0.25 within a city twice, 13 between cities.
    assert_eq!(plan.rtt_ms("c-lon", "fra").unwrap(), 22.0);
    assert_eq!(plan.rtt_ms("c-mad", "fra").unwrap(), 8.0 + 29.0 + 0.5);
    let world = Plan::new(&file("world")).unwrap();
    let pops: Vec<&str> = world.pops().collect();
    assert_eq!((pops.len(), world.clients().count()), (12, 14));
    assert_eq!(world.shortest("c-par", &pops), Some("lon"), "by distance");
    assert_eq!(
        world.shortest("c-bom", &pops),
        Some("sin"),
        "by its upstream"
    );
}

#[test]
fn equal_ways_are_decided_by_the_id_of_the_router() {
    let mut file = file("small");
    let row = file.cities.published_rtt_ms.get_mut("wdc").unwrap();
    row.insert("fra".to_owned(), 76.0);
    let plan = Plan::new(&file).unwrap();
    assert_eq!(plan.shortest("c-dal", &["fra", "lon"]), Some("lon"));
}

#[test]
fn nodes_have_the_addresses_of_the_topology() {
    let plan = Plan::new(&file("small")).unwrap();
    let addresses = |node: &str| {
        let own = plan.nodes[node].addresses.iter();
        own.map(ToString::to_string).collect::<Vec<_>>()
    };
    let lon = [
        "192.0.2.100",
        "203.0.113.1",
        "2001:db8:1::1",
        "2001:db8:100::100",
    ];
    assert_eq!(addresses("lon"), lon);
    assert_eq!(addresses("eu-t1"), ["203.0.113.111"]);
    assert_eq!(addresses("eu-r1"), [] as [String; 0]);
    assert_eq!(addresses("c-mad"), ["198.18.1.1", "2001:db8:f001::1"]);
    let at = "10.200.0.240:6379".parse().unwrap();
    assert_eq!(plan.nodes["redis-all"].kind, Kind::Redis(at));
    let link = plan
        .wan
        .links
        .iter()
        .find(|link| link.a.node == "lon")
        .unwrap();
    assert_eq!(link.b.node, "r-lon");
    let ends = [&link.a.addresses, &link.b.addresses].map(|own| own[0].to_string());
    assert_eq!(ends, ["10.253.1.1/31", "10.253.1.0/31"]);
    let members = plan.wan.clouds[0].members.len();
    assert_eq!(members, 3 + 4 + 3 + 1 + 2, "all but clients and routers");
}

#[test]
fn a_world_that_cannot_be_says_why() {
    let refused = |change: &dyn Fn(&mut WorldFile)| {
        let mut file = file("small");
        change(&mut file);
        Plan::new(&file).unwrap_err().to_string()
    };
    let homeless = refused(&|file| {
        file.places.remove("ns1");
    });
    assert!(homeless.contains("where ns1 is"), "{homeless}");
    let stranger = refused(&|file| file.topology.pops[0].bgp[0].asn = 65_099);
    assert!(
        stranger.contains("no router has the AS 65099"),
        "{stranger}"
    );
    let lost = refused(&|file| file.topology.pops[0].backbone = IpAddr::from([0, 0, 0, 0]));
    assert!(lost.contains("needs its `backbone`"), "{lost}");
    let named = refused(&|file| {
        file.topology.failover_groups[0].redis[0].host = "flows.example".to_owned();
    });
    assert!(named.contains("addresses, not names"), "{named}");
    let twice = refused(&|file| file.topology.pops[0].name = "r-lon".to_owned());
    assert!(
        twice.contains("where r-lon is") || twice.contains("two nodes"),
        "{twice}"
    );
}

#[test]
fn a_place_of_nothing_is_a_slip_of_the_pen() {
    let good = file("small");
    Plan::new(&good).unwrap().check_places(&good).unwrap();
    for name in ["frra", "r-lon", "c-lon"] {
        let mut typo = file("small");
        typo.places.insert(name.to_owned(), "fra".to_owned());
        let refused = Plan::new(&typo).unwrap().check_places(&typo);
        let said = format!("places.{name}: the topology has no such region or node");
        assert_eq!(refused.unwrap_err().to_string(), said);
    }
}

#[test]
fn routers_tell_peers_of_customers_and_customers_of_everything() {
    let plan = Plan::new(&file("small")).unwrap();
    let config = plan.nodes["r-fra"].bird.clone().unwrap();
    let session = |name: &str| {
        let mut lines = config.lines();
        let line = lines.find(|line| line.starts_with(&format!("protocol bgp {name} ")));
        line.unwrap_or_else(|| panic!("{name} in {config}"))
            .to_owned()
    };
    let pop = session("c_fra_4");
    assert!(
        pop.contains("local 10.253.2.0 as 65002; neighbor 10.253.2.1 as 64500;"),
        "{pop}"
    );
    assert!(
        pop.contains("hold time 9;") && pop.contains("bfd on;") && pop.contains("export none;")
    );
    assert!(session("c_isp_mad_6").contains("export all;"));
    assert!(session("p_r_lon_4").contains("export filter of_customers;"));
    assert!(
        config.contains("route 203.0.113.111/32 via "),
        "WHIP of eu-t1"
    );
    assert!(config.contains(
        "if net !~ [ 192.0.2.0/24, 192.0.2.0/23 ] then reject; bgp_local_pref = 3000000;"
    ));
    assert!(config.contains(
        "filter from_p_r_lon_4 { bgp_local_pref = 1998700; if (65535, 0) ~ bgp_community"
    ));
    // What is to be avoided comes after whatever is not, a customer's route, too.
    assert!(config.contains(
        "bgp_local_pref = 3000000; if (65535, 0) ~ bgp_community then bgp_local_pref = 1000000;"
    ));
    assert!(config.contains("if (65002, 80) ~ bgp_community then bgp_local_pref = 998700;"));
    let isp = plan.nodes["isp-mad"].bird.clone().unwrap();
    assert!(
        isp.contains("route 198.18.1.0/24 via ")
            && isp.contains("export where source = RTS_STATIC")
    );
    assert!(plan.nodes["fra"].bird.is_none(), "from the topology");
}

#[test]
fn a_router_may_ignore_graceful_shutdown_and_prefer_nobody() {
    let mut file = file("small");
    file.routers[0].graceful_shutdown = false;
    file.routers[0].prefers_customers = false;
    let plan = Plan::new(&file).unwrap();
    let config = plan.nodes["r-lon"].bird.clone().unwrap();
    assert!(!config.contains("65535, 0"));
    assert!(config.contains("filter from_p_r_fra_4 { bgp_local_pref = 2000000;"));
    assert!(
        config.contains("then reject; bgp_local_pref = 2000000;"),
        "{config}"
    );
}
