//! `drain` and `undrain`: orders to a PoP, by its admin address, and what becomes of them, step by step.
//!
//! The admin address of a node is loopback: run this on the PoP's host, or bring the address here (`--at`).

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use axum::http::StatusCode;
use runtime::control::Control;
use runtime::files::read_text;
use serde_json::Value;

use crate::args::DrainArgs;
use crate::command::{Failure, load_topology, refused};
use crate::demo::Upstream;

/// Longest token file.
const TOKEN_BYTES_MAX: usize = 4096;
/// How often the PoP is asked how far it is.
const INTERVAL: Duration = Duration::from_millis(200);
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
    let token = read_text(&args.token, TOKEN_BYTES_MAX)
        .with_context(|| format!("reading {}", args.token.display()))
        .map_err(refused)?;
    let control = Control::new()?;
    control.block_on(follow(verb, args, (admin, token.trim())))
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
    let path = match verb {
        Verb::Drain => "/v1/drain",
        Verb::Undrain => "/v1/undrain",
    };
    let answer = upstream.post(admin, path, token).await;
    let (status, body) = answer.with_context(|| format!("http://{admin} does not answer"))?;
    if status != StatusCode::OK {
        let text = String::from_utf8_lossy(&body).trim().to_owned();
        return Err(refused(anyhow!("http://{admin} says {status}: {text}")));
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
        let step = text(view, "step");
        match self.verb {
            Verb::Undrain if step == "serving" => {
                let announced = view.get("announce").and_then(Value::as_str);
                let announced = announced.map_or(String::new(), |what| format!(", VIPs {what}"));
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
                text(passed, "step"),
                text(passed, "effect")
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
        json!({ "ordered": true, "step": at, "steps": steps, "lost": lost,
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
            (json!({ "ordered": false, "step": "serving" }), true),
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
