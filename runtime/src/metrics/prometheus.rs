//! The Prometheus text format, version 0.0.4.
//!
//! ```text
//! # HELP firsthop_pop_packets_total Packets forwarded.
//! # TYPE firsthop_pop_packets_total counter
//! firsthop_pop_packets_total{direction="up"} 7
//! ```

use std::fmt::Write as _;

use super::{Family, Kind, Labels, Registry, Value, histogram};

pub(super) fn render(registry: &Registry) -> String {
    let mut out = String::new();
    let state = registry.state();
    for (name, family) in &state.families {
        render_family(&mut out, &exposed(name, family.kind), family);
    }
    let refused = state.refused;
    let name = "firsthop_metrics_refused_total";
    head(
        &mut out,
        name,
        "counter",
        "Series refused because the registry was full.",
    );
    line(&mut out, name, "", &Vec::new(), None, &refused.to_string());
    out
}

fn render_family(out: &mut String, name: &str, family: &Family) {
    let kind = match family.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram(_) => "histogram",
    };
    head(out, name, kind, family.help);
    for (labels, value) in family.values() {
        match value {
            Value::Total(total) => line(out, name, "", labels, None, &total.to_string()),
            Value::Level(level) => line(out, name, "", labels, None, &number(level)),
            Value::Distribution(distribution) => render_buckets(out, name, labels, &distribution),
        }
    }
}

fn render_buckets(out: &mut String, name: &str, labels: &Labels, values: &histogram::Snapshot) {
    let mut below = 0;
    let bounds = values.buckets.iter().map(|bound| number(*bound));
    let bounds = bounds.chain(std::iter::once("+Inf".to_owned()));
    for (bound, count) in bounds.zip(&values.counts) {
        below += count;
        line(
            out,
            name,
            "_bucket",
            labels,
            Some(&bound),
            &below.to_string(),
        );
    }
    line(out, name, "_sum", labels, None, &number(values.sum));
    line(
        out,
        name,
        "_count",
        labels,
        None,
        &values.count().to_string(),
    );
}

fn exposed(name: &str, kind: Kind) -> String {
    let name = name.replace('.', "_");
    match kind {
        Kind::Counter => format!("firsthop_{name}_total"),
        Kind::Gauge | Kind::Histogram(_) => format!("firsthop_{name}"),
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let help = help.replace('\\', "\\\\").replace('\n', "\\n");
    put(
        out,
        format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"),
    );
}

fn line(
    out: &mut String,
    name: &str,
    suffix: &str,
    labels: &Labels,
    le: Option<&str>,
    value: &str,
) {
    put(out, format_args!("{name}{suffix}"));
    let le = le.map(|bound| ("le", bound));
    let labels = labels.iter().map(|(key, value)| (*key, value.as_str()));
    let mut separator = '{';
    for (key, value) in labels.chain(le) {
        put(out, format_args!("{separator}{key}=\"{}\"", escaped(value)));
        separator = ',';
    }
    if separator == ',' {
        out.push('}');
    }
    put(out, format_args!(" {value}\n"));
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn number(value: f64) -> String {
    if value == f64::INFINITY {
        "+Inf".to_owned()
    } else if value == f64::NEG_INFINITY {
        "-Inf".to_owned()
    } else {
        // `NaN` is spelled like that in both.
        value.to_string()
    }
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a `String` cannot fail.
    let _ = out.write_fmt(text);
}
