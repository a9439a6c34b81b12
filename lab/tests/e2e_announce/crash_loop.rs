//! A process that dies again and again, with a state directory: it comes back more and more slowly.

use super::*;

/// What the log of this life says, in the directory that it keeps.
fn state(network: &Network) -> Value {
    network.state("p1").unwrap()["announce"].clone()
}

#[test]
fn a_crash_loop_is_damped_over_its_lives_and_an_orderly_end_is_no_fall() {
    in_namespace(|| {
        let mut network =
            Network::prepare(&Shape::default(), |topology| anycast(topology, 1)).unwrap();
        network.start_node("r1").unwrap();
        network.start_node("r2").unwrap();
        let dir = network.topology_file().with_file_name("kept");
        fs::create_dir_all(&dir).unwrap();
        let file = dir.join("p1.falls");
        // Doubled up to the 4 s of `up_after_max_s`.
        for (life, need_ms) in [1_000, 2_000, 4_000, 4_000].into_iter().enumerate() {
            let pop = Keeping::start(&network, &dir);
            let began = clock::now();
            wait_announced(&[], Some(100), SOON);
            let took = clock::now() - began;
            eprintln!("life {life}: up after {took:?}");
            assert!(took >= Duration::from_millis(need_ms), "{life}: {took:?}");
            let view = state(&network);
            assert_eq!(
                (&view["falls"], &view["up_after_ms"]),
                (&life.into(), &need_ms.into())
            );
            let kept = || fs::read_to_string(&file).is_ok_and(|text| text.contains("announced"));
            wait::until_true("it to be kept", SOON, kept).unwrap();
            // Killed when dropped.
            drop(pop);
            wait_announced(&[], None, SOON);
        }

        // What ends as it is told has not fallen.
        let mut pop = Keeping::start(&network, &dir);
        wait_announced(&[], Some(100), SOON);
        for _twice in 0..2 {
            let pid = nix::unistd::Pid::from_raw(pop.0.id().try_into().unwrap());
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
            // Two signals at once would be one.
            let draining = || metrics(&[]) != announced(100);
            wait::until_true("it to drain", SOON, draining).unwrap();
        }
        assert_eq!(pop.0.wait().unwrap().code(), Some(0));
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.lines().nth(1), Some("away"), "{text}");
        assert_eq!(text.lines().count(), 2 + 4, "{text}");
        drop(pop);

        // Garbage is as if there were none, and is told.
        fs::write(&file, "fell down\n").unwrap();
        let _pop = Keeping::start(&network, &dir);
        wait_announced(&[], Some(100), SOON);
        assert_eq!(state(&network)["falls"], 0);
        let scrape = network.metrics("p1").unwrap();
        let troubles = "firsthop_pop_announce_history_troubles_total";
        assert_eq!(scrape.sum(troubles, &[("reason", "garbage")]), 1.0);
        assert_eq!(scrape.sum("firsthop_pop_announce_falls", &[]), 0.0);
    });
}
