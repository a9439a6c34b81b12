//! The command line as a user sees it: texts, errors, exit codes, files.

#![cfg(test)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use firsthop::tempdir::TempDir;

const LOCAL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../topology/samples/local.yaml"
);

#[test]
fn help_names_every_command() {
    let (code, out, _) = run(&["--help"]);
    assert_eq!(code, 0);
    for command in COMMANDS {
        assert!(out.contains(&format!("\n  {command} ")), "{command}: {out}");
    }
    let (_, out, _) = run(&["keys", "rotate", "--help"]);
    assert!(out.contains("The safe order:\n  1. "), "{out}");
}

#[test]
fn wrong_arguments_end_with_2() {
    for line in [&["fly"][..], &[], &["topo", "check"], &["certs", "node"]] {
        let (code, out, err) = run(line);
        assert_eq!((code, out.as_str()), (2, ""), "{line:?}");
        assert!(!err.is_empty());
    }
}

#[test]
fn lab_is_the_program_beside_this_one() {
    let dir = TempDir::create().unwrap();
    let own = dir.path().join("firsthop");
    fs::copy(env!("CARGO_BIN_EXE_firsthop"), &own).unwrap();
    let alone = Command::new(&own).args(["lab", "up"]).output().unwrap();
    let said = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert_eq!(alone.status.code(), Some(2));
    assert!(
        said.ends_with("/lab is not there: `cargo build -p lab`\n"),
        "{said}"
    );
    let lab = dir.path().join("lab");
    fs::write(&lab, "#!/bin/sh\necho \"$@\"\nexit 7\n").unwrap();
    fs::set_permissions(&lab, fs::Permissions::from_mode(0o755)).unwrap();
    let words = ["lab", "fault", "cut", "a>b", "--world", "x", "--help"];
    let both = Command::new(&own).args(words).output().unwrap();
    assert_eq!(both.stdout, b"fault cut a>b --world x --help\n");
    assert_eq!(both.status.code(), Some(7));
}

#[test]
fn topologies_are_checked_all_of_them() {
    let dir = TempDir::create().unwrap();
    let bad = write(
        dir.path(),
        "bad.yaml",
        "version: 1\nnetwork: { name: x }\nregions: []\npops: []\n",
    );
    let (code, out, err) = run(&["topo", "check", &bad, LOCAL]);
    assert_eq!(code, 2);
    assert_eq!(out, format!("{LOCAL}: ok\n"));
    let expected = format!(
        "{bad}:3: regions: at least one region is needed\n{bad}:4: pops: at least one PoP is needed\n"
    );
    assert_eq!(err, expected);

    let (code, _, err) = run(&["topo", "check", "/nowhere.yaml"]);
    assert_eq!(code, 2);
    assert_eq!(
        err,
        "firsthop: reading /nowhere.yaml: No such file or directory (os error 2)\n"
    );
}

#[test]
fn endless_huge_and_silent_files_are_refused_in_a_line() {
    let dir = TempDir::create().unwrap();
    let fifo = dir.path().join("fifo").display().to_string();
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let folder = dir.path().display().to_string();
    let huge = write(dir.path(), "huge.yaml", &"#\n".repeat(2 << 20));
    let not_a_file = "not a regular file";
    let table = [
        ("/dev/zero", not_a_file),
        (&fifo, not_a_file),
        (&folder, not_a_file),
        (&huge, "longer than 2097152 bytes"),
    ];
    for (path, why) in table {
        let (code, out, err) = run(&["topo", "check", path]);
        assert_eq!((code, out.as_str()), (2, ""), "{path}");
        assert_eq!(err, format!("firsthop: reading {path}: {why}\n"));
        let (code, _, err) = run(&["certs", "all", "--topology", path, "--out", &folder]);
        assert_eq!((code, err.lines().count()), (2, 1), "{err}");
    }
    for path in ["/dev/zero", &fifo, &huge] {
        let (code, _, err) = run(&["keys", "rotate", path]);
        assert_eq!((code, err.lines().count()), (2, 1), "{err}");
    }
}

#[test]
fn the_schema_is_json() {
    let (code, out, _) = run(&["topo", "schema"]);
    assert_eq!(code, 0);
    let schema: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(schema["title"], "Topology");
}

#[test]
fn bird_is_configured_from_the_topology() {
    let world = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../topology/samples/world.yaml"
    );
    let render = |topology, node| {
        run(&[
            "topo",
            "render",
            "bird",
            "--topology",
            topology,
            "--node",
            node,
        ])
    };
    let (code, out, err) = render(world, "ams");
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("\nprotocol bgp 'bgp-transit1' {\n"), "{out}");
    for (topology, node, why) in [
        (world, "eu-r1", "no PoP is named `eu-r1`"),
        (
            LOCAL,
            "ams",
            "`network.anycast` is missing: nothing is announced by BGP",
        ),
    ] {
        let refused = (2, String::new(), format!("firsthop: {why}\n"));
        assert_eq!(render(topology, node), refused);
    }
}

#[test]
fn keys_are_made_once_and_rotated_in_place() {
    let dir = TempDir::create().unwrap();
    let file = dir.path().join("hint.keys").display().to_string();
    assert_eq!(
        run(&["keys", "new", &file]),
        (0, String::new(), String::new())
    );
    let first = fs::read_to_string(&file).unwrap();
    assert_eq!(mode(&file), 0o600);

    let (code, _, err) = run(&["keys", "new", &file]);
    assert_eq!(code, 2);
    assert_eq!(
        err,
        format!("firsthop: {file} exists; --force replaces it\n")
    );

    let (code, out, _) = run(&["keys", "rotate", &file]);
    assert_eq!(code, 0);
    assert!(
        out.starts_with("Key 1 is current, key 2 is next. Copy "),
        "{out}"
    );
    let second = fs::read_to_string(&file).unwrap();
    assert_eq!(key(&first, "current"), key(&second, "previous"));
    assert_eq!(key(&first, "next"), key(&second, "current"));
    assert_eq!(mode(&file), 0o600);

    assert_eq!(run(&["keys", "new", "--force", &file]).0, 0);
    assert_ne!(fs::read_to_string(&file).unwrap(), second);
}

#[test]
fn a_damaged_key_file_is_left_alone() {
    let dir = TempDir::create().unwrap();
    let file = write(dir.path(), "hint.keys", "current 99 x\n");
    let (code, _, err) = run(&["keys", "rotate", &file]);
    assert_eq!(code, 2);
    assert!(
        err.starts_with(&format!("firsthop: rotating {file}: line 1: expected ")),
        "{err}"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "current 99 x\n");
}

#[test]
fn certificates_step_by_step() {
    let dir = TempDir::create().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (ca, node) = (at("ca"), at("node"));
    assert_eq!(run(&["certs", "ca", &ca]).0, 0);
    let made = ["certs", "node", "--ca", &ca, "--name", "ams", &node];
    assert_eq!(run(&made), (0, String::new(), String::new()));
    for (name, expected) in [
        ("ca/ca.key.pem", 0o600),
        ("node/key.pem", 0o600),
        ("node/cert.pem", 0o644),
    ] {
        assert_eq!(mode(&at(name)), expected, "{name}");
    }

    let (code, _, err) = run(&made);
    assert_eq!(code, 2);
    assert_eq!(
        err,
        format!("firsthop: {node}/ca.pem exists; --force replaces it\n")
    );

    let (code, _, err) = run(&["certs", "node", "--ca", &ca, "--name", "No Name", &at("x")]);
    assert_eq!(code, 2);
    assert!(
        err.starts_with("firsthop: `No Name` is not a node name"),
        "{err}"
    );
    let (code, _, err) = run(&[
        "certs",
        "node",
        "--ca",
        &at("none"),
        "--name",
        "x",
        &at("x"),
    ]);
    assert_eq!(code, 2);
    assert!(err.contains("none/ca.pem: No such file"), "{err}");
    assert!(!dir.path().join("x").exists());
}

#[test]
fn certificates_of_a_whole_network() {
    let dir = TempDir::create().unwrap();
    let out = dir.path().join("credentials").display().to_string();
    let made = ["certs", "all", "--topology", LOCAL, "--out", &out];
    let (code, text, _) = run(&made);
    assert_eq!(code, 0);
    assert_eq!(
        text,
        format!("Credentials of 11 nodes are in {out}. Keep ca.key.pem where no node runs.\n")
    );
    for name in [
        "ams/hint.keys",
        "eu-r1/admin.token",
        "us-t1/key.pem",
        "ca.key.pem",
    ] {
        assert_eq!(mode(&format!("{out}/{name}")), 0o600, "{name}");
    }
    assert_eq!(run(&made).0, 2);
}

fn run(arguments: &[&str]) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_firsthop"))
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn mode(path: &str) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn key(text: &str, role: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(role)).unwrap();
    line.strip_prefix(role).unwrap().to_owned()
}

const COMMANDS: [&str; 6] = ["up", "node", "certs", "keys", "topo", "lab"];
