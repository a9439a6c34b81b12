//! What a reload changes of announcements, and what it may not.

use super::*;

fn change(network: &mut Network, change: impl FnOnce(&mut Anycast)) {
    let text = fs::read_to_string(network.topology_file()).unwrap();
    let mut topology = topology::load(&text, "topology.yaml").unwrap();
    change(topology.network.anycast.as_mut().unwrap());
    network.rewrite_topology(topology).unwrap();
    network.reload().unwrap();
}

fn view(network: &Network) -> Value {
    network.state("p1").unwrap()["announce"].clone()
}

#[test]
fn a_reload_takes_what_decides_and_refuses_what_was_made_at_the_start() {
    in_namespace(|| {
        let shape = Shape {
            pops: 3,
            ..Shape::default()
        };
        let mut network = Network::prepare(&shape, |topology| anycast(topology, 1)).unwrap();
        for node in ["r1", "r2", "p1"] {
            network.start_node(node).unwrap();
        }
        wait_announced(&[], Some(100), SOON);
        assert_eq!(view(&network)["permit_slots"], 2);
        change(&mut network, |anycast| {
            anycast.min_announced = 2;
            anycast.up_after_s = 3;
            anycast.up_after_max_s = 60;
            anycast.hold_s = 3;
            anycast.stalled_after_ms = 2_000;
        });
        let follows = |view: &Value| view["permit_slots"] == 1 && view["up_after_ms"] == 3_000;
        wait::until_true("the new settings", SOON, || follows(&view(&network))).unwrap();
        assert_eq!(view(&network)["announce"], "up", "it stays up meanwhile");
        assert_eq!(metrics(&[]), announced(100));

        // The time of a stall, and the longer way back.
        let pid = network.pid("p1").unwrap();
        let frozen = Frozen::thread_named(pid, "pop-0").unwrap();
        let took = wait_announced(&[], None, SOON);
        assert!(took > Duration::from_millis(1_500), "{took:?}");
        drop(frozen);
        let back = wait_announced(&[], Some(100), SOON);
        assert!(back > Duration::from_secs(5), "{back:?}: doubled");

        let line = "`network.anycast.table` of p1 changed from 1001 to 1002";
        network.expect_error(line);
        change(&mut network, |anycast| anycast.table = 1002);
        assert!(network.log("p1").contains(line), "{}", network.log("p1"));
        assert_eq!(view(&network)["table"], 1001);
        assert_eq!(metrics(&[]), announced(100));
    });
}
