use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{metric, number_data_point};
use prost::Message as _;

use super::*;

/// The exposition without what every node has.
fn shown(registry: &Registry) -> String {
    let text = registry.prometheus();
    let own = [
        "firsthop_process_",
        "firsthop_build_info",
        "firsthop_metrics_refused",
    ];
    let lines = text
        .lines()
        .filter(|line| !own.iter().any(|name| line.contains(name)));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn cells_of_one_name_and_labels_add_up() {
    let registry = Registry::new("pop", "pop-a");
    let up = [("direction", "up")];
    let packets =
        |labels| registry.counter("pop.packets", "{packet}", "Packets forwarded.", labels);
    packets(&up).set_total(40);
    packets(&up).add(2);
    packets(&[("direction", "down")]).add(1);
    let flows = || registry.gauge("pop.flows", "{flow}", "Flows\nheld \\ now.", &[]);
    flows().set_count(3);
    flows().set(0.5);
    registry.observe_counter("pop.seen", "", "Seen.", &[("name", "a\"b\\c\nd")], || 7);
    let expected = r#"# HELP firsthop_pop_flows Flows\nheld \\ now.
# TYPE firsthop_pop_flows gauge
firsthop_pop_flows 3.5
# HELP firsthop_pop_packets_total Packets forwarded.
# TYPE firsthop_pop_packets_total counter
firsthop_pop_packets_total{direction="down"} 1
firsthop_pop_packets_total{direction="up"} 42
# HELP firsthop_pop_seen_total Seen.
# TYPE firsthop_pop_seen_total counter
firsthop_pop_seen_total{name="a\"b\\c\nd"} 7
"#;
    assert_eq!(shown(&registry), expected);
}

#[test]
fn histograms_are_cumulative_and_a_bound_belongs_to_its_bucket() {
    let registry = Registry::new("pop", "pop-a");
    let turns = || {
        let labels = [("worker", "0")];
        registry.histogram("pop.turn_us", "us", "Turns.", &labels, &[1.0, 2.5])
    };
    let (one, other) = (turns(), turns());
    for value in [0.5, 1.0, 2.0] {
        one.record(value);
    }
    other.record(100.0);
    let expected = r#"# HELP firsthop_pop_turn_us Turns.
# TYPE firsthop_pop_turn_us histogram
firsthop_pop_turn_us_bucket{worker="0",le="1"} 2
firsthop_pop_turn_us_bucket{worker="0",le="2.5"} 3
firsthop_pop_turn_us_bucket{worker="0",le="+Inf"} 4
firsthop_pop_turn_us_sum{worker="0"} 103.5
firsthop_pop_turn_us_count{worker="0"} 4
"#;
    assert_eq!(shown(&registry), expected);
}

#[test]
fn every_node_says_what_it_is() {
    let text = Registry::new("core-relay", "eu-r1").prometheus();
    let version = env!("CARGO_PKG_VERSION");
    let build = format!(
        "firsthop_build_info{{program=\"core-relay\",node=\"eu-r1\",version=\"{version}\"}} 1\n"
    );
    assert!(text.contains(&build), "{text}");
    for name in ["start_time_s", "resident_memory_bytes", "cpu_s"] {
        let line = format!("\nfirsthop_process_{name}");
        assert!(text.contains(&line), "{name} is missing in {text}");
    }
}

#[test]
fn a_full_registry_refuses_and_counts() {
    let registry = Registry::new("pop", "pop-a");
    for _ in 0..SERIES_MAX + 5 {
        registry.counter("pop.packets", "", "Packets.", &[]).add(1);
    }
    let text = registry.prometheus();
    let own = registry.state().series - text_total(&text, "firsthop_pop_packets_total");
    let refused = text_total(&text, "firsthop_metrics_refused_total");
    assert_eq!(refused, 5 + own);
}

fn text_total(text: &str, name: &str) -> usize {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap().parse().unwrap()
}

/// Answers one request with `status` and returns its head and body.
fn receive_one(listener: &TcpListener, status: &str) -> (String, Vec<u8>) {
    let (mut stream, _) = listener.accept().unwrap();
    let mut request = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let len = stream.read(&mut chunk).unwrap();
        request.extend_from_slice(&chunk[..len]);
        let Some(end) = request.windows(4).position(|part| part == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8(request[..end].to_vec())
            .unwrap()
            .to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.unwrap().parse().unwrap();
        if request.len() >= end + 4 + length {
            let answer =
                format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
            return (head, request[end + 4..].to_vec());
        }
    }
}

#[test]
fn the_same_cells_go_out_as_otlp() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let registry = Registry::new("pop", "pop-a");
    registry
        .counter(
            "pop.packets",
            "{packet}",
            "Packets.",
            &[("direction", "up")],
        )
        .add(42);
    let turns = registry.histogram("pop.turn_us", "us", "Turns.", &[], &[1.0]);
    turns.record(0.5);
    turns.record(3.0);
    let push = Push::from_variables(&registry, |name| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(url.clone()),
        "OTEL_EXPORTER_OTLP_HEADERS" => Some("x-tenant=7".to_owned()),
        _ => None,
    });
    let mut push = push.unwrap().unwrap();
    let control = crate::control::Control::new().unwrap();
    let receiver = std::thread::spawn(move || {
        let good = receive_one(&listener, "200 OK");
        receive_one(&listener, "503 Service Unavailable");
        good
    });
    control.block_on(async {
        push.push().await;
        push.push().await;
    });
    let (head, body) = receiver.join().unwrap();
    assert!(head.starts_with("post /v1/metrics http/1.1"), "{head}");
    assert!(head.contains("content-type: application/x-protobuf") && head.contains("x-tenant: 7"));
    check_export(&ExportMetricsServiceRequest::decode(&*body).unwrap());
    let text = registry.prometheus();
    assert!(text.contains("firsthop_otlp_pushes_total{result=\"ok\"} 1\n"));
    assert!(text.contains("firsthop_otlp_pushes_total{result=\"failed\"} 1\n"));
}

fn check_export(export: &ExportMetricsServiceRequest) {
    let [resource] = export.resource_metrics.as_slice() else {
        panic!("one resource is expected");
    };
    let attributes = &resource.resource.as_ref().unwrap().attributes;
    assert!(
        attributes
            .iter()
            .any(|pair| pair.key == "service.instance.id")
    );
    let metrics = &resource.scope_metrics[0].metrics;
    let data = |name: &str| {
        let metric = metrics.iter().find(|metric| metric.name == name).unwrap();
        metric.data.clone().unwrap()
    };
    let metric::Data::Sum(sum) = data("firsthop.pop.packets") else {
        panic!("a counter is a sum");
    };
    assert!(sum.is_monotonic);
    let point = &sum.data_points[0];
    assert_eq!(point.value, Some(number_data_point::Value::AsInt(42)));
    assert_eq!(point.attributes[0].key, "direction");
    let metric::Data::Histogram(histogram) = data("firsthop.pop.turn_us") else {
        panic!("a histogram is a histogram");
    };
    let point = &histogram.data_points[0];
    assert_eq!((point.count, point.sum), (2, Some(3.5)));
    assert_eq!(point.bucket_counts, [1, 1]);
    assert_eq!(point.explicit_bounds, [1.0]);
}
