//! Orders that are refused: for another PoP, without room to keep them, while the process ends, of the last PoPs. And a PoP that starts while the
//! backbone is gone.

use super::*;

/// How `firsthop VERB POP ..` ends at the admin address of p1, and what it says of it.
pub(super) fn command_at_p1(network: &Network, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(programs_dir().unwrap().join("firsthop"))
        .args(arguments)
        .arg("--topology")
        .arg(network.topology_file())
        .arg("--token")
        .arg(network.credentials("p1").join("admin.token"))
        .arg("--at")
        .arg(network.admin("p1").trim_start_matches("http://"))
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), error)
}

#[test]
fn a_pop_that_starts_without_a_backbone_announces_nothing_until_it_has_one() {
    in_namespace(|| {
        let mut network = Network::prepare(&Shape::default(), |topology| {
            anycast(topology, 1);
            topology.network.anycast.as_mut().unwrap().up_after_s = 0;
        })
        .unwrap();
        let dir = network.topology_file().with_file_name("orders");
        fs::create_dir_all(&dir).unwrap();
        // Nobody waits for it to be ready: it is not.
        let _pop = Keeping::start(&network, &dir);
        let state = || -> Value {
            let said = http::get(&format!("{}/state", network.admin("p1")));
            said.map_or(Value::Null, |said| {
                serde_json::from_str(&said.body).unwrap()
            })
        };
        wait::until_true("the PoP to miss its backbone", SOON, || {
            state()["announce"]["reason"] == "backbone"
        })
        .unwrap();
        let later = clock::now() + Duration::from_secs(2);
        wait::until_true("it to stay away", SOON, || {
            assert_eq!(metrics(&[]), NOTHING);
            clock::now() > later
        })
        .unwrap();
        for relay in ["r1", "r2"] {
            network.start_node(relay).unwrap();
        }
        wait_announced(&[], Some(100), SOON);
    });
}

#[test]
fn an_order_for_another_pop_is_refused_and_changes_nothing() {
    in_namespace(|| {
        let shape = Shape {
            pops: 2,
            ..Shape::default()
        };
        let mut network = Network::prepare(&shape, |topology| anycast(topology, 1)).unwrap();
        network.rewrite_credential("admin.token", TOKEN).unwrap();
        for node in ["r1", "r2", "p1"] {
            network.start_node(node).unwrap();
        }
        wait_announced(&[], Some(100), SOON);
        for verb in ["drain", "undrain"] {
            let (code, error) = command_at_p1(&network, &[verb, "p2"]);
            assert_eq!(code, Some(2), "{error}");
            assert!(error.ends_with("this is p1, not p2\n"), "{error}");
            assert_eq!(drain(&network)["ordered"], false);
        }
        let (code, error) = command_at_p1(&network, &["drain", "p1", "--no-wait"]);
        assert_eq!(code, Some(0), "{error}");
        assert_eq!(drain(&network)["ordered"], true);
        assert_eq!(drain(&network)["node"], "p1");
        let (code, _) = command_at_p1(&network, &["undrain", "p2"]);
        assert_eq!(code, Some(2));
        assert_eq!(drain(&network)["ordered"], true);
    });
}

/// A directory with room for one page. Gone when dropped.
struct Tiny(PathBuf);

impl Tiny {
    fn new(dir: PathBuf) -> Self {
        fs::create_dir_all(&dir).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=4096", "tmpfs"])
            .arg(&dir)
            .status();
        assert!(mounted.unwrap().success());
        Self(dir)
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        // Lazily: a PoP may have it open still.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn post(network: &Network, verb: &str) -> http::Response {
    let url = format!("{}/v1/{verb}", network.admin("p1"));
    let token = format!("Bearer {TOKEN}");
    http::send("POST", &url, &[("authorization", &token)], &[]).unwrap()
}

#[test]
fn an_order_that_finds_no_room_is_refused_and_has_no_effect_after_a_restart() {
    in_namespace(|| {
        let mut network =
            Network::prepare(&Shape::default(), |topology| anycast(topology, 1)).unwrap();
        network.rewrite_credential("admin.token", TOKEN).unwrap();
        for relay in ["r1", "r2"] {
            network.start_node(relay).unwrap();
        }
        let tiny = Tiny::new(network.topology_file().with_file_name("tiny"));
        let pop = Keeping::start_with(
            &network,
            &tiny.0,
            &network.topology_file().with_file_name("p1.log"),
        );
        wait_announced(&[], Some(100), SOON);
        let filler = tiny.0.join("filler");
        let falls = tiny.0.join("p1.falls");
        wait::until_true("its falls to be kept", SOON, || {
            falls.metadata().is_ok_and(|file| file.len() > 0)
        })
        .unwrap();
        // The page that the falls have is not to be had.
        assert!(fs::write(&filler, [0; 4096]).is_err());
        let said = post(&network, "drain");
        assert_eq!(said.status, 500, "{}", said.body);
        assert!(said.body.contains("No space left"), "{}", said.body);
        assert!(!tiny.0.join("p1.drain").exists());
        assert_eq!(drain(&network)["ordered"], false);
        assert_eq!(metrics(&[]), announced(100));
        drop(pop);
        wait_announced(&[], None, SOON);

        // Nothing can be kept: a check says so. Calls are served all the same.
        let output = Command::new(programs_dir().unwrap().join("pop"))
            .args(flags(&network, "p1"))
            .arg("--state-dir")
            .arg(&tiny.0)
            .arg("--check")
            .output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        // Its log is written beside it.
        let told = error.lines().find(|line| !line.starts_with('{')).unwrap();
        assert!(told.starts_with("pop: --state-dir /"), "{error}");
        assert!(
            told.contains("nothing can be kept there: No space left"),
            "{error}"
        );
        let pop = Keeping::start_with(
            &network,
            &tiny.0,
            &network.topology_file().with_file_name("p1.log"),
        );
        wait_announced(&[], Some(100), SOON);
        // On its way to the end there is no way back.
        let pid = nix::unistd::Pid::from_raw(pop.0.id().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        wait::until_true("it to drain", SOON, || metrics(&[]) != announced(100)).unwrap();
        let said = post(&network, "undrain");
        assert_eq!(said.status, 409, "{}", said.body);
    });
}

impl Far {
    /// An order, given inside.
    fn order(&self, path: &str) -> http::Response {
        let namespace = Path::new("/run/netns").join(&self.namespace);
        let inside = || {
            setns(File::open(namespace).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
            let token = format!("Bearer {TOKEN}");
            let url = format!("http://127.0.0.1:9100{path}");
            http::send("POST", &url, &[("authorization", &token)], &[]).unwrap()
        };
        std::thread::scope(|scope| scope.spawn(inside).join().unwrap())
    }
}

#[test]
fn the_last_pops_drain_only_by_force_and_a_full_store_is_told_once() {
    in_namespace(|| {
        ip(&["address", "add", &format!("{REDIS}/32"), "dev", "lo"]);
        let redis = Redis::start_at(REDIS.parse().unwrap()).unwrap();
        let (network, pops) = three_pops(&redis);
        network.rewrite_credential("admin.token", TOKEN).unwrap();
        wait::until_true("all to be up", SOON, || census(&pops) == (0, 0, 3)).unwrap();
        let [first, second, third] = &pops[..] else {
            panic!("three")
        };
        let others_up = |said: &http::Response| -> Value {
            serde_json::from_str::<Value>(&said.body).unwrap()["others_up"].clone()
        };
        // The token is read again within a second or two; the others are known as soon as each has told.
        wait::until_true("the first to be drained", SOON, || {
            let said = first.order("/v1/drain?node=p1");
            said.status == 200 && others_up(&said) == 2
        })
        .unwrap();
        let said = second.order("/v1/drain?node=p2");
        assert_eq!(said.status, 409, "{}", said.body);
        assert!(
            said.body
                .starts_with("1 other PoPs are up, and min_announced is 2")
        );
        wait::until_true("it to go on", SOON, || second.metrics() == announced(100)).unwrap();
        let said = second.order("/v1/drain?node=p2&force=true");
        assert_eq!((said.status, others_up(&said)), (200, 1.into()));
        assert_eq!(third.order("/v1/undrain").status, 200);

        redis.fill().unwrap();
        let log = network.topology_file().with_file_name("p3.log");
        let told = || {
            fs::read_to_string(&log)
                .unwrap()
                .matches("no memory left")
                .count()
        };
        wait::until_true("it to be told", SOON, || told() > 0).unwrap();
        let later = clock::now() + Duration::from_secs(3);
        wait::until_true("it not to be told again", SOON, || {
            assert_eq!(told(), 1);
            clock::now() > later
        })
        .unwrap();
    });
}
