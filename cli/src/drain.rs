//! `drain` and `undrain`: orders to a PoP, by its admin address, and what becomes of them, step by step.
//!
//! The admin address of a node is loopback: run this on the PoP's host, or bring the address here (`--at`).

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use axum::body::Bytes;
use axum::http::StatusCode;
use runtime::control::Control;
use runtime::files::read_text;
use serde_json::Value;

use crate::args::DrainArgs;
use crate::command::{Failure, load_topology, refused};
use crate::demo::{NoAnswer, Upstream};

/// Longest token file.
const TOKEN_BYTES_MAX: usize = 4096;
/// How often the PoP is asked how far it is.
const INTERVAL: Duration = Duration::from_millis(200);
/// Of what a node says in a line of its own, so much is shown.
const SHOWN_CHARS_MAX: usize = 400;
/// Questions in a row without an answer, after which it is given up.
const SILENT_MAX: u32 = 25;

/// What is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Hand clients over to other PoPs.
    Drain,
    /// Serve again.
    Undrain,
}

/// Orders, and follows.
pub(crate) fn run(verb: Verb, args: &DrainArgs) -> Result<(), Failure> {
    let admin = admin_of(args)?;
    let token = token_of(&args.token).map_err(refused)?;
    let control = Control::new()?;
    control.block_on(follow(verb, args, (admin, &token)))
}

fn token_of(file: &Path) -> anyhow::Result<String> {
    let name = file.display();
    let text = read_text(file, TOKEN_BYTES_MAX).with_context(|| format!("reading {name}"))?;
    let token = text.trim();
    ensure!(
        !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()),
        "{name}: an admin token is one line of characters without spaces"
    );
    Ok(token.to_owned())
}

fn admin_of(args: &DrainArgs) -> Result<SocketAddr, Failure> {
    let topology = load_topology(&args.topology)?;
    let pop = topology.pop_named(&args.pop).ok_or_else(|| {
        let file = args.topology.display();
        refused(anyhow!("{file}: no PoP is named `{}`", args.pop))
    })?;
    Ok(args.at.unwrap_or(pop.admin))
}

async fn follow(
    verb: Verb,
    args: &DrainArgs,
    (admin, token): (SocketAddr, &str),
) -> Result<(), Failure> {
    let upstream = Upstream::new();
    let answer = upstream.post(admin, &path_of(verb, args), token).await;
    let body = accepted(admin, answer)?;
    if verb == Verb::Drain {
        say(&others_of(&args.pop, &body))?;
    }
    if args.no_wait {
        return say(&format!("{}: ordered\n", args.pop));
    }
    let mut progress = Progress::new(verb, &args.pop);
    let mut silent = 0;
    loop {
        match upstream.admin_json(admin, "/v1/drain").await {
            Some(view) => {
                silent = 0;
                let (text, end) = progress.take(&view);
                say(&text)?;
                if let Some(end) = end {
                    return end.map_err(|why| anyhow!("{}: {why}", args.pop).into());
                }
            }
            None => silent += 1,
        }
        if silent > SILENT_MAX {
            return Err(anyhow!("http://{admin} answers no more").into());
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// The name goes with the order: the address may lead to another PoP.
fn path_of(verb: Verb, args: &DrainArgs) -> String {
    let (pop, force) = (&args.pop, args.force);
    match verb {
        Verb::Drain => format!("/v1/drain?node={pop}&force={force}"),
        Verb::Undrain => format!("/v1/undrain?node={pop}"),
    }
}

/// What the PoP says to an order that it has taken.
fn accepted(
    admin: SocketAddr,
    answer: Result<(StatusCode, Bytes), NoAnswer>,
) -> Result<Value, Failure> {
    match answer {
        Ok((StatusCode::OK, body)) => Ok(serde_json::from_slice(&body).unwrap_or_default()),
        Ok((status, body)) => {
            let text = plain(&String::from_utf8_lossy(&body));
            let error = anyhow!("http://{admin} says {status}: {text}");
            if status.is_server_error() {
                return Err(error.into());
            }
            Err(refused(error))
        }
        Err(NoAnswer::Refused) => {
            let text = format!("http://{admin}: nobody is there, so nothing is ordered");
            Err(refused(anyhow!(text)))
        }
        Err(NoAnswer::Broken) => {
            let text = "gives no answer. It may have taken the order all the same, and follow it later: \
                        ask again, with the same order or the opposite";
            Err(anyhow!("http://{admin} {text}").into())
        }
    }
}

/// Who takes the clients over, as far as that is known.
fn others_of(pop: &str, view: &Value) -> String {
    match view.get("others_up") {
        None => String::new(),
        Some(up) if up.is_u64() => format!("{pop}: {up} other PoPs are up\n"),
        Some(_) => format!("{pop}: nobody can tell how many other PoPs are up\n"),
    }
}

/// What a node says is printed on a terminal, which obeys control characters.
fn plain(text: &str) -> String {
    let shown = text.trim().chars().map(|character| match character {
        ' '..='~' => character,
        _ => '?',
    });
    shown.take(SHOWN_CHARS_MAX).collect()
}

fn say(text: &str) -> Result<(), Failure> {
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// What has been told of an order so far.
struct Progress<'a> {
    verb: Verb,
    pop: &'a str,
    told: usize,
    /// The drain has been seen to begin.
    began: bool,
}

/// How following ends: well, or why not.
type End = Result<(), String>;

impl<'a> Progress<'a> {
    const fn new(verb: Verb, pop: &'a str) -> Self {
        Self {
            verb,
            pop,
            told: 0,
            began: false,
        }
    }

    /// What is new in what the PoP shows, and whether that is the end.
    fn take(&mut self, view: &Value) -> (String, Option<End>) {
        let node = text(view, "node");
        if node != self.pop {
            let why = format!("it is `{}` that answers there now", plain(node));
            return (String::new(), Some(Err(why)));
        }
        let step = text(view, "step");
        match self.verb {
            Verb::Undrain if step == "serving" => {
                let announced = view.get("announce").and_then(Value::as_str);
                let announced =
                    announced.map_or(String::new(), |what| format!(", VIPs {}", plain(what)));
                (format!("{}: serving{announced}\n", self.pop), Some(Ok(())))
            }
            Verb::Undrain => (String::new(), None),
            Verb::Drain => self.take_drain(step, view),
        }
    }

    fn take_drain(&mut self, step: &str, view: &Value) -> (String, Option<End>) {
        let ordered = view.get("ordered") == Some(&Value::Bool(true));
        if !ordered {
            let why = "somebody has ordered it to serve again".to_owned();
            return (String::new(), Some(Err(why)));
        }
        // The order may not have been seen yet: what is shown is of an earlier drain.
        if step == "serving" && !self.began {
            return (String::new(), None);
        }
        self.began = true;
        let steps = view.get("steps").and_then(Value::as_array);
        let steps = steps.map_or(&[][..], Vec::as_slice);
        let mut out = String::new();
        for passed in steps.iter().skip(self.told) {
            let took_ms = number(passed, "took_ms");
            let (seconds, tenths) = (took_ms / 1000, took_ms % 1000 / 100);
            let _infallible = writeln!(
                out,
                "{}: {:<9}{seconds:>4}.{tenths} s  {}",
                self.pop,
                plain(text(passed, "step")),
                plain(text(passed, "effect"))
            );
        }
        self.told = steps.len().max(self.told);
        if step != "done" {
            return (out, None);
        }
        let (lost, unstored) = (number(view, "lost"), number(view, "flows_unstored"));
        let left = number(view, "flows_left");
        let _infallible = writeln!(
            out,
            "{}: drained; {lost} packets lost, {left} flows left, {unstored} not stored",
            self.pop
        );
        (out, Some(verdict(steps, lost, unstored)))
    }
}

/// A rung that upstream ignored is no failure: the next was taken. Flows that are not stored, packets that are lost, or still come at the end, are.
fn verdict(steps: &[Value], lost: u64, unstored: u64) -> End {
    let last_is_good = steps
        .last()
        .is_some_and(|step| step.get("good") == Some(&Value::Bool(true)));
    let flushed = steps
        .iter()
        .filter(|step| text(step, "step") == "flush")
        .all(|step| step.get("good") == Some(&Value::Bool(true)));
    if lost > 0 || unstored > 0 || !flushed {
        return Err("it has drained, but not without a trace".to_owned());
    }
    if !last_is_good {
        return Err("it has drained, but packets for it still arrive".to_owned());
    }
    Ok(())
}

fn text<'v>(view: &'v Value, key: &str) -> &'v str {
    view.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn number(view: &Value, key: &str) -> u64 {
    view.get(key).and_then(Value::as_u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn step(step: &str, effect: &str, good: bool) -> Value {
        json!({ "step": step, "took_ms": 2_040, "effect": effect, "good": good })
    }

    fn view(at: &str, steps: &[Value], lost: u64) -> Value {
        json!({ "node": "lon", "ordered": true, "step": at, "steps": steps, "lost": lost,
                "flows_left": 3, "flows_unstored": 0, "announce": "up" })
    }

    #[test]
    fn steps_are_told_once_and_the_end_says_what_is_left() {
        let mut progress = Progress::new(Verb::Drain, "lon");
        let first = [step("flush", "stored", true)];
        let (text, end) = progress.take(&view("shift", &first, 0));
        assert_eq!(
            (text.as_str(), end),
            ("lon: flush       2.0 s  stored\n", None)
        );
        assert_eq!(
            progress.take(&view("shift", &first, 0)),
            (String::new(), None)
        );
        let all = [
            step("flush", "stored", true),
            step("shift", "ignored", false),
            step("linger", "silent", true),
        ];
        let (text, end) = progress.take(&view("done", &all, 0));
        assert_eq!(end, Some(Ok(())), "the next rung was taken");
        assert_eq!(text.lines().count(), 3);
        assert!(text.ends_with("lon: drained; 0 packets lost, 3 flows left, 0 not stored\n"));
    }

    #[test]
    fn what_a_node_says_moves_no_cursor() {
        let steps = [step("\u{1b}[2Jflush", "sto\u{9b}31mred\r\n", true)];
        let (text, _) = Progress::new(Verb::Drain, "lon").take(&view("shift", &steps, 0));
        assert_eq!(text, "lon: ?[2Jflush   2.0 s  sto?31mred\n");
        let serving = json!({ "node": "lon", "step": "serving", "announce": "\u{7}up" });
        let (text, _) = Progress::new(Verb::Undrain, "lon").take(&serving);
        assert_eq!(text, "lon: serving, VIPs ?up\n");
        let long = "\u{1b}".repeat(2 * SHOWN_CHARS_MAX);
        let answer = Ok((StatusCode::CONFLICT, Bytes::from(long)));
        let said = accepted("127.0.0.1:9100".parse().unwrap(), answer);
        let Err(Failure::Refused(said)) = said else {
            panic!("it was no order");
        };
        assert!(said.ends_with('?') && said.len() < 2 * SHOWN_CHARS_MAX);
        assert!(
            said.bytes()
                .all(|byte| byte.is_ascii_graphic() || byte == b' ')
        );
    }

    #[test]
    fn what_is_known_of_an_order_is_said() {
        let admin = "127.0.0.1:9100".parse().unwrap();
        let end = |answer| match accepted(admin, answer) {
            Ok(_) => (0, String::new()),
            Err(Failure::Refused(text)) => (2, text),
            Err(Failure::Broken(error)) => (1, error.to_string()),
        };
        let said = |status| Ok((status, Bytes::from_static(b"why\n")));
        assert_eq!(end(said(StatusCode::OK)).0, 0);
        let (code, text) = end(said(StatusCode::CONFLICT));
        assert!(code == 2 && text.ends_with("409 Conflict: why"), "{text}");
        assert_eq!(end(said(StatusCode::INTERNAL_SERVER_ERROR)).0, 1);
        let (code, text) = end(Err(NoAnswer::Refused));
        assert!(code == 2 && text.contains("nothing is ordered"), "{text}");
        let (code, text) = end(Err(NoAnswer::Broken));
        assert!(code == 1 && text.contains("may have taken"), "{text}");
        for (view, line) in [
            (json!({}), ""),
            (json!({ "others_up": 2 }), "lon: 2 other PoPs are up\n"),
            (
                json!({ "others_up": "unknown" }),
                "lon: nobody can tell how many other PoPs are up\n",
            ),
        ] {
            assert_eq!(others_of("lon", &view), line);
        }
    }

    #[test]
    fn a_token_file_that_holds_none_is_named() {
        let dir = std::env::temp_dir().join(format!("firsthop-token-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("admin.token");
        for (text, good) in [
            ("abc\n", true),
            ("abc\ndef\n", false),
            ("a b", false),
            ("\n", false),
        ] {
            std::fs::write(&file, text).unwrap();
            let token = token_of(&file);
            assert_eq!(token.is_ok(), good, "{text:?}");
            let error = token.err().map(|error| error.to_string());
            assert!(error.is_none_or(|error| error.contains("admin.token: ")));
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn loss_late_packets_and_an_order_taken_back_are_failures() {
        let silent = [step("linger", "silent", true)];
        let arrives = [step("linger", "still_arrives", false)];
        let unstored = [
            step("flush", "not_stored", false),
            step("linger", "silent", true),
        ];
        for (view, fails) in [
            (view("done", &silent, 0), false),
            (view("done", &silent, 1), true),
            (view("done", &arrives, 0), true),
            (view("done", &unstored, 0), true),
            (
                json!({ "node": "lon", "ordered": false, "step": "serving" }),
                true,
            ),
            (
                json!({ "node": "fra", "ordered": true, "step": "serving" }),
                true,
            ),
        ] {
            let (_, end) = Progress::new(Verb::Drain, "lon").take(&view);
            assert_eq!(end.map(|end| end.is_err()), Some(fails), "{view}");
        }
    }

    #[test]
    fn a_drain_that_has_not_begun_is_waited_for_and_undrain_ends_with_serving() {
        let mut drain = Progress::new(Verb::Drain, "lon");
        assert_eq!(drain.take(&view("serving", &[], 0)), (String::new(), None));
        let mut undrain = Progress::new(Verb::Undrain, "lon");
        assert_eq!(undrain.take(&view("linger", &[], 0)), (String::new(), None));
        let (text, end) = undrain.take(&view("serving", &[], 0));
        assert_eq!(
            (text.as_str(), end),
            ("lon: serving, VIPs up\n", Some(Ok(())))
        );
    }
}
