//! The cut of the code, held by a test: which crate may reach which, and in which files a large dependency is imported; that
//! links between pages lead somewhere, and that pages name every metric.
//!
//! Facts come from `cargo tree`, the manifests and the sources. The checkers are functions of text, so the last tests
//! show on invented text that they can fail.

#![cfg(test)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Crates that decide: no socket, task, clock or TLS, however far down.
const PURE: &[&str] = &[
    "wire",
    "topology",
    "pop-proto",
    "core-relay-proto",
    "transceiver-proto",
    "geodns-policy",
    "geodns-proto",
];

/// What a pure crate never reaches. `*` stands for any text at that end.
const SHELL: &[&str] = &[
    "tokio*",
    "async-*",
    "smol",
    "mio",
    "socket2",
    "nix",
    "rustix",
    "quinn*",
    "rustls*",
    "hyper*",
    "axum*",
    "redis*",
    "hickory*",
    "rtc*",
    "webrtc*",
    "opentelemetry*",
    "tracing-subscriber",
    "runtime",
    "core-relay-link",
    "*rand",
];

/// What a pure crate does not name itself; `ring` brings `libc` for its random source, which is never called.
const SHELL_DIRECT: &[&str] = &["libc", "getrandom"];

/// Programs that forward media and never terminate it.
const FORWARDERS: &[&str] = &["pop", "core-relay"];

/// What can terminate media.
const MEDIA: &[&str] = &[
    "rtc*",
    "webrtc*",
    "str0m*",
    "*dtls*",
    "*srtp*",
    "*sctp*",
    "transceiver*",
];

/// An external crate and the only places that may import it (path prefixes from the root of the repository).
const IMPORTS: &[(&str, &[&str])] = &[
    ("quinn_proto", &["core-relay/link/src/"]),
    ("redis", &["runtime/src/redis_client"]),
    (
        "maxminddb",
        &["geodns/policy/src/databases/", "lab/src/bench/geodns/"],
    ),
    ("rtc", &["transceiver/server/src/peer", "lab/src/load"]),
    (
        "serde_yaml",
        &[
            "topology/src/load.rs",
            "geodns/policy/tests/cases.rs",
            "lab/src/wan/plan.rs",
            "lab/src/yaml.rs",
        ],
    ),
    ("yaml_serde", &[]),
    ("saphyr_parser", &["topology/src/lines.rs"]),
];

#[test]
fn pure_crates_reach_no_shell() {
    for package in PURE {
        let reached = reaches(&tree(package, &[]), SHELL);
        assert!(reached.is_empty(), "{package} reaches {reached:?}");
        let direct = reaches(&tree(package, &["--depth", "1"]), SHELL_DIRECT);
        assert!(direct.is_empty(), "{package} names {direct:?}");
    }
}

#[test]
fn forwarders_hold_no_media_engine() {
    for package in FORWARDERS {
        let reached = reaches(&tree(package, &[]), MEDIA);
        assert!(reached.is_empty(), "{package} reaches {reached:?}");
    }
}

#[test]
fn large_dependencies_are_imported_in_few_files() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        for (name, places) in IMPORTS {
            let allowed = places.iter().any(|place| path.starts_with(place));
            if !allowed && imports(&text, name) {
                wrong.push(format!("{path} imports {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn unsafe_code_is_in_runtime_only() {
    let outside = sources()
        .into_iter()
        .filter(|(path, _)| !path.starts_with("runtime/src/"));
    let wrong: Vec<_> = outside
        .filter(|(_, text)| has_unsafe(text))
        .map(|(path, _)| path)
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A simulation has virtual time and paths in memory: nothing in it may reach for the machine's.
#[test]
fn simulations_use_nothing_of_the_machine() {
    let simulated =
        |path: &str| path.starts_with("lab/src/sim") || path.starts_with("lab/tests/sim_");
    let sources: Vec<_> = sources()
        .into_iter()
        .filter(|(path, _)| simulated(path))
        .collect();
    assert!(sources.len() > 10, "sources are missing");
    let found = sources.iter().flat_map(|(path, text)| {
        let found = of_the_machine(text).into_iter();
        found.map(move |what| format!("{path}: {what}"))
    });
    let found: Vec<_> = found.collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn manifests_inherit_lints_and_dependencies() {
    for member in members() {
        let manifest = read(&root().join(&member).join("Cargo.toml"));
        let wrong = not_inherited(&manifest);
        assert!(wrong.is_empty(), "{member}/Cargo.toml: {wrong:#?}");
    }
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut pages = Vec::new();
    collect(&root(), "md", &mut pages);
    assert!(pages.len() > 15, "pages are missing: {pages:?}");
    let mut wrong = Vec::new();
    for (path, text) in pages {
        let folder = root().join(&path).parent().map(Path::to_path_buf);
        let folder = folder.expect("a page lies in a folder");
        for link in relative_links(&text) {
            if !folder.join(link).exists() {
                wrong.push(format!("{path}: {link}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn pages_name_every_metric() {
    let mut pages = Vec::new();
    collect(&root().join("docs"), "md", &mut pages);
    let named: BTreeSet<_> = pages
        .iter()
        .flat_map(|(_, text)| text.lines())
        .flat_map(metrics_named)
        .collect();
    let mut declared = BTreeSet::new();
    for (path, text) in sources() {
        let shipped = !path.starts_with("lab/") && path.contains("/src/");
        if shipped && !path.contains("/tests") {
            declared.extend(metrics_declared(&text));
        }
    }
    assert!(declared.len() > 100, "metrics are missing: {declared:?}");
    let unnamed: Vec<_> = declared.difference(&named).collect();
    assert!(unnamed.is_empty(), "on no page: {unnamed:#?}");
}

// What is asked.

/// Targets of links to files, without fragments. Code blocks hold none.
fn relative_links(page: &str) -> Vec<&str> {
    let prose = page.split("\n```").step_by(2);
    prose
        .flat_map(|text| text.split("](").skip(1))
        .filter_map(|rest| rest.split([')', ' ', '\n']).next())
        .filter(|target| !target.contains(':'))
        .filter_map(|target| target.split('#').next())
        .filter(|file| !file.is_empty())
        .collect()
}

/// How names of metrics begin.
const METRICS: &[&str] = &[
    "config.",
    "core_relay.",
    "credentials.",
    "geodns.",
    "log.",
    "metrics.",
    "otlp.",
    "pop.",
    "process.",
    "service.beats",
    "service.messages",
    "transceiver.",
    "udp.",
    "worker.",
];

/// The metrics that a source declares, tests inside it left out, as a scrape calls them but without `_total`: `"pop.packets"` is
/// `firsthop_pop_packets`.
fn metrics_declared(source: &str) -> Vec<String> {
    let shipped = source.split("#[cfg(test)]\nmod ").next().unwrap_or(source);
    let is_metric = |text: &&str| {
        let named = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.".contains(c);
        let begins = METRICS.iter().any(|begin| text.starts_with(begin));
        begins && !text.ends_with('.') && text.chars().all(named)
    };
    let texts = shipped.split('"').filter(is_metric);
    texts.map(scraped).collect()
}

/// `pop.packets` is `firsthop_pop_packets`; the end of a name may stand alone, with its dot.
fn scraped(name: &str) -> String {
    let begins = METRICS.iter().any(|begin| name.starts_with(begin));
    let program = if begins { "firsthop_" } else { "" };
    format!("{program}{}", name.replace('.', "_"))
}

/// The metrics that a line of a page names, without labels and `_total`. `firsthop_a_{b,c}` is two; `_d` after `firsthop_a_b` is
/// `firsthop_a_d`, and whatever else shares a beginning with it.
fn metrics_named(line: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for span in line.split('`').skip(1).step_by(2) {
        let wholes = names.clone();
        for name in spread(span) {
            let name = scraped(&name);
            let name = name.strip_suffix("_total").unwrap_or(&name);
            if name.starts_with("firsthop_") {
                names.push(name.to_owned());
            } else if name.starts_with('_') {
                let ends = |whole: &String| {
                    let cuts: Vec<_> = whole.match_indices('_').map(|(at, _)| at).collect();
                    let whole = whole.clone();
                    cuts.into_iter()
                        .map(move |at| format!("{}{name}", whole.get(..at).unwrap_or_default()))
                };
                names.extend(wholes.iter().flat_map(ends));
            }
        }
    }
    names
}

/// Choices in braces after `_` spelled out, labels in any other braces left out.
fn spread(span: &str) -> Vec<String> {
    let Some((before, (inside, after))) = span
        .split_once('{')
        .and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    else {
        return vec![span.to_owned()];
    };
    if !before.ends_with('_') {
        return vec![before.to_owned()];
    }
    let choices = inside.split(',');
    choices
        .flat_map(|choice| spread(&format!("{before}{choice}{after}")))
        .collect()
}

/// Names in the output of `cargo tree --prefix none` that match one of `patterns`.
fn reaches(tree: &str, patterns: &[&str]) -> Vec<String> {
    let names = tree
        .lines()
        .skip(1)
        .filter_map(|line| line.split(' ').next());
    let mut reached: Vec<_> = names
        .filter(|name| patterns.iter().any(|pattern| matches(pattern, name)))
        .map(str::to_owned)
        .collect();
    reached.sort();
    reached.dedup();
    reached
}

fn matches(pattern: &str, name: &str) -> bool {
    let stem = pattern.trim_matches('*');
    match (pattern.starts_with('*'), pattern.ends_with('*')) {
        (true, true) => name.contains(stem),
        (true, false) => name.ends_with(stem),
        (false, true) => name.starts_with(stem),
        (false, false) => name == stem,
    }
}

/// Whether a source names `package` in a `use` or in a path.
fn imports(source: &str, package: &str) -> bool {
    code_lines(source).any(|line| {
        let item = line.trim_start().trim_start_matches("pub ");
        let used = ["use ", "extern crate "].iter().any(|keyword| {
            item.strip_prefix(keyword)
                .is_some_and(|rest| word_at(rest.trim_start_matches("::"), package))
        });
        used || line.match_indices(&format!("{package}::")).any(|(at, _)| {
            let before = line.get(..at).and_then(|head| head.chars().next_back());
            before.is_none_or(|c| !c.is_alphanumeric() && !"_\"`".contains(c))
                && !line
                    .get(..at)
                    .is_some_and(|head| head.ends_with("crate::") || head.ends_with("self::"))
        })
    })
}

fn word_at(text: &str, word: &str) -> bool {
    text.strip_prefix(word)
        .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

fn has_unsafe(source: &str) -> bool {
    let keywords = [
        "unsafe {",
        "unsafe fn",
        "unsafe impl",
        "unsafe extern",
        "unsafe(",
    ];
    code_lines(source)
        .any(|line| keywords.iter().any(|keyword| line.contains(keyword)) && !line.contains('"'))
}

/// What of the machine a source names.
fn of_the_machine(source: &str) -> Vec<&'static str> {
    let machine = [
        "UdpSocket",
        "TcpStream",
        "sleep(",
        "thread::spawn",
        "spawn_worker",
        "tokio",
        "Instant::now",
        "HashMap",
    ];
    let named = machine.into_iter();
    named
        .filter(|what| code_lines(source).any(|line| line.contains(what)))
        .collect()
}

fn code_lines(source: &str) -> impl Iterator<Item = &str> {
    source
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
}

/// What a member's manifest does not take from the workspace.
fn not_inherited(manifest: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut section = "";
    let mut lints = false;
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
            if section.contains("dependencies.") {
                wrong.push(format!("{section}: write a dependency on one line"));
            }
        } else if section == "[lints]" && line == "workspace = true" {
            lints = true;
        } else if section.ends_with("dependencies]")
            && !line.is_empty()
            && !line.starts_with('#')
            && !line.contains("workspace = true")
        {
            wrong.push(format!("{section} {line}"));
        }
    }
    if !lints {
        wrong.push("[lints] workspace = true is missing".to_owned());
    }
    wrong
}

// Where the facts come from.

fn tree(package: &str, arguments: &[&str]) -> String {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "tree",
            "--locked",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--package",
            package,
        ])
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo tree of {package}: {error}");
    let tree = String::from_utf8(output.stdout).expect("cargo prints UTF-8");
    assert!(
        tree.starts_with(&format!("{package} v")),
        "not a tree: {tree}"
    );
    tree
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .expect("the workspace exists")
}

fn members() -> Vec<String> {
    let manifest = read(&root().join("Cargo.toml"));
    let list = manifest
        .split("members = [")
        .nth(1)
        .and_then(|rest| rest.split(']').next());
    let members: Vec<_> = list
        .expect("the workspace has members")
        .split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect();
    assert!(members.len() >= 10, "{members:?}");
    members
}

/// Every Rust source of the members: path from the root, text. This file quotes what it looks for, so it is left out.
fn sources() -> Vec<(String, String)> {
    let mut sources = Vec::new();
    for member in members() {
        collect(&root().join(member), "rs", &mut sources);
    }
    sources.retain(|(path, _)| path != "lab/tests/layering.rs");
    assert!(sources.len() > 20, "sources are missing");
    sources
}

/// Files of a kind below a folder, but not what is built, installed or hidden.
fn collect(directory: &Path, kind: &str, files: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(directory).expect("a directory of the workspace") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if !name.starts_with('.') && !["target", "node_modules"].contains(&&*name) {
                collect(&path, kind, files);
            }
        } else if path.extension().is_some_and(|extension| extension == kind) {
            let relative = path.strip_prefix(root()).expect("inside the workspace");
            files.push((relative.display().to_string(), read(&path)));
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

// The checkers can fail.

#[test]
fn a_forbidden_edge_is_found() {
    let tree = "pop-proto v0.0.0 (/x)\nwire v0.0.0 (/x)\nquinn-proto v0.11.9\ntokio v1.2.3\nmio v1.0.0 (*)\n\
                foldhash v0.2.0\nasync-trait v0.1.0 (proc-macro)\n";
    assert_eq!(
        reaches(tree, SHELL),
        ["async-trait", "mio", "quinn-proto", "tokio"]
    );
    assert_eq!(
        reaches("runtime v0.0.0\nwire v0.0.0\n", SHELL),
        [""; 0],
        "the root is no edge"
    );
    let tree = "pop v0.0.0 (/x)\nrtc-dtls v0.21.1\nwebrtc-srtp v0.1.0\nportc v1.0.0\n";
    assert_eq!(reaches(tree, MEDIA), ["rtc-dtls", "webrtc-srtp"]);
}

#[test]
fn a_stray_import_is_found() {
    for stray in [
        "use rtc::peer;",
        "pub use rtc;",
        "    use rtc as engine;",
        "let x = rtc::Peer::new();",
        "fn f(x: &rtc::Peer) {}",
        "use ::rtc::x;",
        "extern crate rtc;",
    ] {
        assert!(imports(stray, "rtc"), "{stray}");
    }
    for fine in [
        "// use rtc::peer;",
        "/// See rtc::peer.",
        "use rtc_shared::x;",
        "use crate::rtc::x;",
        "let x = my_rtc::f();",
        "let rtc = 1;",
        "\"rtc::peer\"",
    ] {
        assert!(!imports(fine, "rtc"), "{fine}");
    }
}

#[test]
fn links_are_found() {
    let page = "See [a](a.md#x) and [b](../b/), not [c](https://c.example) or [d](#d).\n\n```sh\n[e](e.md)\n```\n[f](f.md)\n";
    assert_eq!(relative_links(page), ["a.md", "../b/", "f.md"]);
}

#[test]
fn metrics_are_found() {
    let source = "counter(\"pop.packets\", \"{packet}\"); file(\"pop.rs.html/\")\n#[cfg(test)]\nmod tests { gauge(\"pop.test\") }";
    assert_eq!(metrics_declared(source), ["firsthop_pop_packets"]);
    let line = "| `firsthop_pop_a_{b,c}_total{pop,worker}`, `_d_total`, `.g` | `pop.h`, `e` and firsthop_pop_f |";
    let named = metrics_named(line);
    for name in [
        "firsthop_pop_a_b",
        "firsthop_pop_a_c",
        "firsthop_pop_d",
        "firsthop_pop_a_d",
        "firsthop_pop_g",
        "firsthop_pop_h",
    ] {
        assert!(named.iter().any(|it| it == name), "{name}: {named:?}");
    }
    for name in ["firsthop_pop_f", "e", "firsthop_pop_a"] {
        assert!(!named.iter().any(|it| it == name), "{name}: {named:?}");
    }
}

#[test]
fn stray_unsafe_code_is_found() {
    assert!(has_unsafe("let x = unsafe { f() };"));
    assert!(has_unsafe("unsafe impl Send for X {}"));
    assert!(!has_unsafe("#![forbid(unsafe_code)]\n// unsafe { }\n"));
}

#[test]
fn what_is_of_the_machine_is_found() {
    assert_eq!(
        of_the_machine("use std::net::UdpSocket;\n// tokio"),
        ["UdpSocket"]
    );
    assert_eq!(of_the_machine("thread::sleep(MS);"), ["sleep("]);
}

#[test]
fn a_manifest_of_its_own_mind_is_found() {
    let good = "[lints]\nworkspace = true\n\n[dependencies]\nwire.workspace = true\n# why\nx = { workspace = true, features = [\"y\"] }\n";
    assert_eq!(not_inherited(good), [""; 0]);
    let bad = "[dependencies]\nserde = \"1\"\n[dev-dependencies.x]\nversion = \"1\"\n";
    assert_eq!(
        not_inherited(bad),
        [
            "[dependencies] serde = \"1\"",
            "[dev-dependencies.x]: write a dependency on one line",
            "[lints] workspace = true is missing",
        ]
    );
}
