//! Tables for people, plain text.

use std::fmt::Write as _;

use super::closed_loop::{Direction, Load};
use super::latency::Latency;
use super::memory::Memory;
use super::recovery::Recovery;
use super::round_trips::RoundTrips;
use super::saturation::Saturation;

/// A table of text: the first row is its head, the first column is aligned to the left.
#[must_use]
pub fn columns(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = width(column);
            // Writing to a string cannot fail.
            let _ = match column {
                0 => write!(line, "{cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// One table a load.
#[must_use]
pub fn saturation(found: &Saturation) -> String {
    let mut text = String::new();
    let mut rows = Vec::new();
    let mut shown = None;
    for row in &found.rows {
        if shown != Some(row.load) {
            text.push_str(&columns(&rows));
            let _ = writeln!(text, "\n{}", load(row.load));
            rows = vec![head(&[
                "",
                "ns/packet",
                "edge",
                "core",
                "kpps/core",
                "two-hop ratio",
                "tunnel ratio",
                "spread",
                "busy",
                "lost",
            ])];
            shown = Some(row.load);
        }
        let hop = |index: usize| match row.ns_per_hop.get(index) {
            Some(ns) => format!("{ns:.0}"),
            None => "-".to_owned(),
        };
        rows.push(vec![
            row.variant.label().to_owned(),
            format!("{:.0}", row.ns_per_packet),
            hop(0),
            hop(1),
            format!("{:.0}", row.kpps_per_core),
            format!("{:.2}", row.two_hop_ratio),
            format!("{:.2}", row.gso_tunnel_ratio),
            percent(row.spread),
            percent(row.busy),
            format!("{:.2} %", row.lost * 100.0),
        ]);
    }
    text.push_str(&columns(&rows));
    text
}

/// One table.
#[must_use]
pub fn latency(found: &Latency) -> String {
    let mut rows = vec![head(&[
        "",
        "packets/s",
        "p50 us",
        "p99 us",
        "p50 ratio",
        "p99 ratio",
        "spread",
        "ns/packet",
        "lost",
    ])];
    for row in &found.rows {
        rows.push(vec![
            row.variant.label().to_owned(),
            row.rate.to_string(),
            format!("{:.1}", row.p50_us),
            format!("{:.1}", row.p99_us),
            format!("{:.2}", row.p50_ratio),
            format!("{:.2}", row.p99_ratio),
            percent(row.spread),
            format!("{:.0}", row.ns_per_packet),
            row.lost.to_string(),
        ]);
    }
    format!("\nclient to far end, 160 bytes\n{}", columns(&rows))
}

/// One table.
#[must_use]
pub fn memory(found: &Memory) -> String {
    let mut rows = vec![head(&["", "PoP MB", "core relay MB", "bytes a flow"])];
    let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    for row in &found.rows {
        rows.push(vec![
            format!("{} flows", row.flows),
            megabytes(row.pop_rss_bytes),
            megabytes(row.core_relay_rss_bytes),
            format!("{:.0}", row.bytes_per_flow),
        ]);
    }
    let empty = megabytes(found.pop_rss_bytes_empty);
    format!(
        "\nmemory; a PoP without flows has {empty} MB\n{}",
        columns(&rows)
    )
}

/// One table.
#[must_use]
pub fn recovery(found: &Recovery) -> String {
    let mut rows = vec![head(&[
        "",
        "calls",
        "restart ms",
        "silence up ms",
        "of half of the calls",
        "silence down ms",
        "moved",
    ])];
    let ms = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0}"));
    for row in &found.rows {
        rows.push(vec![
            row.case.name().to_owned(),
            row.calls.to_string(),
            ms(row.restart_ms),
            ms(Some(row.silence_up_ms)),
            ms(Some(row.silence_up_ms_median)),
            ms(row.silence_down_ms),
            row.moved.to_string(),
        ]);
    }
    let missing = found.missing.iter().map(|why| format!("missing: {why}\n"));
    let missing: String = missing.collect();
    format!("\nkilled while calls flow\n{}{missing}", columns(&rows))
}

/// One table.
#[must_use]
pub fn round_trips(found: &RoundTrips) -> String {
    let mut rows = vec![head(&[
        "",
        "flows",
        "round trips/s",
        "p50 us",
        "p99 us",
        "",
    ])];
    for row in &found.rows {
        let rate = row.median();
        let remark = row.missing.clone().unwrap_or_default();
        let limited = if row.generator_limited { "or more" } else { "" };
        rows.push(vec![
            row.system.name().to_owned(),
            row.flows.to_string(),
            rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}")),
            row.p50_us.to_string(),
            row.p99_us.to_string(),
            format!("{limited}{remark}"),
        ]);
    }
    format!(
        "\nround trips, everything on one processor\n{}",
        columns(&rows)
    )
}

fn head(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn load(load: Load) -> String {
    let direction = match load.direction {
        Direction::Up => "client to far end",
        Direction::Down => "far end to client",
        Direction::Both => "both ways",
    };
    let burst = match (load.direction, load.burst) {
        (Direction::Down, _) => String::new(),
        (Direction::Up | Direction::Both, 1) => ", one at a time".to_owned(),
        (Direction::Up | Direction::Both, burst) => format!(", {burst} at a time from a client"),
    };
    format!("{direction}, {} bytes{burst}", load.packet_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [head(&["", "a", "long"]), head(&["name", "10", "1"])];
        assert_eq!(columns(&rows), "       a  long\nname  10     1\n");
    }
}
