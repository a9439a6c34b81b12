//! `explain steer`: which region and PoPs a client gets, and why. From a running GeoDNS node, or worked out here from the same
//! topology and databases.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Context;
use axum::http::StatusCode;
use geodns::explain::{Explanation, offline};
use runtime::clock;
use runtime::control::Control;
use runtime::files::read_text;
use serde_json::Value;

use crate::args::ExplainSteer;
use crate::command::{Failure, load_topology, refused};
use crate::demo::Upstream;

/// Longest file with what a node's `/state` said.
const STATE_BYTES_MAX: usize = 16 << 20;

/// Explains.
pub(crate) fn steer(args: &ExplainSteer) -> Result<(), Failure> {
    let explanation = match &args.at {
        Some(at) if at.starts_with("http://") => asked(at, args)?,
        at => worked_out(at.as_deref().map(Path::new), args)?,
    };
    let text = if args.json {
        format!("{explanation:#}\n")
    } else {
        table(&explanation)
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// What a running node says.
fn asked(admin: &str, args: &ExplainSteer) -> Result<Value, Failure> {
    let mut query = format!("client={}", args.client);
    for (key, value) in [("region", &args.region), ("residency", &args.residency)] {
        if let Some(value) = value {
            // Names of the topology need no percent-encoding; others are refused by the node.
            let _infallible = write!(query, "&{key}={value}");
        }
    }
    let authority = admin.trim_start_matches("http://").trim_end_matches('/');
    let address = authority
        .parse()
        .with_context(|| format!("--at {admin}: not http://ADDRESS:PORT"))
        .map_err(refused)?;
    let control = Control::new()?;
    let path = format!("/v1/explain?{query}");
    let answer = control.block_on(async { Upstream::new().admin(address, &path).await });
    let (status, body) = answer.with_context(|| format!("{admin} does not answer"))?;
    if status != StatusCode::OK {
        let text = String::from_utf8_lossy(&body).trim().to_owned();
        return Err(Failure::Refused(format!(
            "firsthop: {admin} says {status}: {text}"
        )));
    }
    Ok(serde_json::from_slice(&body).context("the answer is no JSON")?)
}

/// What a node with this topology and these databases would say.
fn worked_out(state: Option<&Path>, args: &ExplainSteer) -> Result<Value, Failure> {
    let file = args
        .topology
        .as_ref()
        .context("--topology FILE is needed, or --at http://ADDRESS:PORT of a running node")
        .map_err(refused)?;
    let topology = load_topology(file)?;
    let state = state
        .map(|file| {
            let text = read_text(file, STATE_BYTES_MAX)?;
            anyhow::Ok(serde_json::from_str::<Value>(&text)?)
        })
        .transpose()
        .with_context(|| format!("--at {}", args.at.as_deref().unwrap_or_default()))
        .map_err(refused)?;
    let wanted = (args.region.as_deref(), args.residency.as_deref());
    let explanation: Explanation = offline(
        &topology,
        &args.geo_db,
        state.as_ref(),
        args.client,
        wanted,
        clock::unix_s(),
    )
    .map_err(refused)?;
    Ok(serde_json::to_value(explanation).context("writing the explanation")?)
}

/// For people.
fn table(explanation: &Value) -> String {
    let at = |path: &str| text(explanation.pointer(path));
    let mut out = String::new();
    let mut line = |label: &str, value: String| {
        let _infallible = writeln!(out, "{label:<10}{value}");
    };
    line("client", at("/prefix"));
    line("region", at("/region"));
    line("scope", at("/scope"));
    line(
        "known",
        format!(
            "country {}, continent {}, AS {}",
            at("/facts/country"),
            at("/facts/continent"),
            at("/facts/asn")
        ),
    );
    for rule in list(explanation, "rules") {
        line(
            "rule",
            format!(
                "{} by {}",
                text(rule.get("rule")),
                text(rule.get("matched_by"))
            ),
        );
    }
    for database in list(explanation, "databases") {
        line(
            "database",
            format!(
                "{}, {} days old",
                text(database.get("kind")),
                text(database.get("age_days"))
            ),
        );
    }
    if let Some(tried) = explanation.get("exploration").filter(|it| !it.is_null()) {
        line("explored", format!("by HTTP {}", words(tried, "")));
    }
    for unknown in list(explanation, "unknown") {
        let what = text(Some(unknown)).replace('_', " ");
        line("unknown", format!("{what}: a running node may know (--at)"));
    }
    for kind in ["regions", "ingresses"] {
        out.push('\n');
        out.push_str(&candidates(kind, list(explanation, kind)));
    }
    let flips = list(explanation, "flips");
    if !flips.is_empty() {
        out.push_str("\nwould flip it\n");
    }
    for flip in flips {
        let _infallible = writeln!(out, "  {}", words(flip, "when"));
    }
    out
}

fn candidates(kind: &str, candidates: &[Value]) -> String {
    let mut out = format!(
        "{kind:<12} {:>8}  {:<10} {:<28} MADE OF\n",
        "COST", "STANDING", "WHY NOT"
    );
    for candidate in candidates {
        let of = |key: &str| text(candidate.get(key));
        let cost = candidate.get("cost_ms").and_then(Value::as_u64);
        let cost = cost.map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms"));
        let lost = match candidate.get("lost") {
            None | Some(Value::Null) => "chosen".to_owned(),
            Some(lost) => words(lost, "reason"),
        };
        let terms = list(candidate, "terms").iter();
        let terms: Vec<_> = terms.map(|term| words(term, "term")).collect();
        let _infallible = writeln!(
            out,
            "  {:<10} {cost:>8}  {:<10} {lost:<28} {}",
            of("name"),
            of("standing"),
            terms.join("; ")
        );
    }
    out
}

/// A string as it is, anything else as JSON, nothing as a dash.
fn text(value: Option<&Value>) -> String {
    let value = value.filter(|value| !value.is_null());
    value.map_or_else(
        || "-".to_owned(),
        |value| {
            value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned)
        },
    )
}

/// An object as words: its tag, then its other fields.
fn words(value: &Value, tag: &str) -> String {
    let Some(fields) = value.as_object() else {
        return value.to_string();
    };
    let tagged = fields.get(tag).and_then(Value::as_str).unwrap_or_default();
    let others = fields.iter().filter(|(key, _)| *key != tag);
    let others = others.map(|(key, value)| {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        format!(" {key}={value}")
    });
    tagged.to_owned() + &others.collect::<String>()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORLD: &str = include_str!("../../topology/samples/world.yaml");

    fn explained(client: &str, state: Option<&Value>) -> Value {
        let topology = topology::load(WORLD, "world.yaml").unwrap();
        let client = client.parse().unwrap();
        let explanation = offline(&topology, &[], state, client, (None, None), 0).unwrap();
        serde_json::to_value(explanation).unwrap()
    }

    #[test]
    fn a_table_says_rule_choice_and_what_would_flip_it() {
        let text = table(&explained("198.18.0.7", None));
        for part in [
            "client    198.18.0.0/24",
            "region    eu",
            "rule      bank by cidr",
            "residency",
            "chosen",
            "would flip it",
            "unknown   measured round trips",
            "unknown   live state",
        ] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
        assert!(!text.contains("198.18.0.7"), "{text}");
    }

    #[test]
    fn the_state_of_a_file_counts() {
        let state = serde_json::json!({
            "regions": [{ "name": "eu", "condition": { "healthy": true, "draining": true, "load_percent": 3 } }],
            "pops": [{ "name": "ams", "condition": { "healthy": false, "draining": false, "load_percent": 0 },
                       "backbone": [{ "region": "us-east", "rtt_ms": 77 }] }],
        });
        let well = explained("192.0.2.77", None);
        let drained = explained("192.0.2.77", Some(&state));
        assert_eq!(well["region"], "eu");
        assert_ne!(drained["region"], "eu");
        let eu = drained["regions"].as_array().unwrap();
        let eu = eu.iter().find(|region| region["name"] == "eu").unwrap();
        assert_eq!(eu["standing"], "draining");
    }
}
