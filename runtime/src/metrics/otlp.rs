//! OTLP push: the same cells, as protobuf over HTTP (`http/protobuf`), to the collector that the environment names.
//!
//! It reads the variables of the OpenTelemetry specification: `OTEL_EXPORTER_OTLP_ENDPOINT` (or `.._METRICS_ENDPOINT`,
//! which is taken as it is), `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_TIMEOUT`, `OTEL_METRIC_EXPORT_INTERVAL`,
//! `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`. Only `http://`: a collector on the same machine takes it from there.
//! The SDK is not used, because its histograms cannot read cells that somebody else writes.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Request, Uri};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{Counter, Family, Kind, Labels, Registry, Value, histogram};
use crate::clock;

const INTERVAL_DEFAULT: Duration = Duration::from_secs(60);
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// Headers and resource attributes read from the environment at most, each.
const PAIRS_MAX: usize = 64;

/// A variable that cannot be used. One line that names it.
#[derive(Debug, thiserror::Error)]
#[error("{variable}: {reason}")]
pub struct PushError {
    variable: &'static str,
    reason: String,
}

/// Pushes a registry to a collector.
pub struct Push {
    registry: Registry,
    settings: Settings,
    client: Client<HttpConnector, Full<Bytes>>,
    pushed: Counter,
    failed: Counter,
    /// Whether the last push failed, so that an outage is two lines in the log.
    failing: bool,
}

struct Settings {
    endpoint: Uri,
    headers: HeaderMap,
    timeout: Duration,
    interval: Duration,
    resource: Vec<(String, String)>,
}

impl Push {
    /// What the environment asks for; `None` when it names no collector.
    ///
    /// # Errors
    /// See [`PushError`].
    pub fn from_env(registry: &Registry) -> Result<Option<Self>, PushError> {
        Self::from_variables(registry, |name| {
            std::env::var(name).ok().filter(|value| !value.is_empty())
        })
    }

    /// The same with another source of variables.
    ///
    /// # Errors
    /// See [`PushError`].
    pub fn from_variables(
        registry: &Registry,
        variable: impl Fn(&'static str) -> Option<String>,
    ) -> Result<Option<Self>, PushError> {
        let Some(settings) = Settings::read(registry, &variable)? else {
            return Ok(None);
        };
        let pushes = |result| {
            registry.counter(
                "otlp.pushes",
                "{push}",
                "Pushes of metrics to the OTLP collector.",
                &[("result", result)],
            )
        };
        Ok(Some(Self {
            registry: registry.clone(),
            settings,
            client: Client::builder(TokioExecutor::new()).build_http(),
            pushed: pushes("ok"),
            failed: pushes("failed"),
            failing: false,
        }))
    }

    /// Pushes at every interval, and a last time when the sender of `end` sends or is dropped.
    pub async fn run(mut self, mut end: oneshot::Receiver<()>) {
        let mut ticks = interval(self.settings.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ended = false;
        while !ended {
            tokio::select! {
                _ = &mut end => ended = true,
                _ = ticks.tick() => {}
            }
            self.push().await;
        }
    }

    /// Pushes once; a failure is counted, and logged when the push before it went well.
    pub async fn push(&mut self) {
        match self.try_push().await {
            Ok(()) => {
                self.pushed.add(1);
                if std::mem::take(&mut self.failing) {
                    tracing::info!("metrics reach the OTLP collector again");
                }
            }
            Err(error) => {
                self.failed.add(1);
                if !std::mem::replace(&mut self.failing, true) {
                    let endpoint = &self.settings.endpoint;
                    tracing::warn!(%endpoint, %error, "metrics do not reach the OTLP collector");
                }
            }
        }
    }

    async fn try_push(&self) -> anyhow::Result<()> {
        let body = self.export().encode_to_vec();
        let mut request = Request::post(self.settings.endpoint.clone())
            .header(CONTENT_TYPE, "application/x-protobuf")
            .body(Full::new(Bytes::from(body)))?;
        request.headers_mut().extend(self.settings.headers.clone());
        let answer = timeout(self.settings.timeout, self.client.request(request)).await??;
        anyhow::ensure!(answer.status().is_success(), "HTTP {}", answer.status());
        Ok(())
    }

    fn export(&self) -> ExportMetricsServiceRequest {
        let times = Times {
            start_ns: self.registry.shared.started_unix_ms * 1_000_000,
            now_ns: clock::unix_ms() * 1_000_000,
        };
        let state = self.registry.state();
        let metrics = state.families.iter();
        let metrics = metrics.map(|(name, family)| family.to_otlp(name, times));
        let scope = ScopeMetrics {
            scope: Some(InstrumentationScope {
                name: "firsthop".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                ..InstrumentationScope::default()
            }),
            metrics: metrics.collect(),
            ..ScopeMetrics::default()
        };
        let resource = self.settings.resource.iter();
        ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(Resource {
                    attributes: resource.map(|(key, value)| attribute(key, value)).collect(),
                    ..Resource::default()
                }),
                scope_metrics: vec![scope],
                ..ResourceMetrics::default()
            }],
        }
    }
}

impl std::fmt::Debug for Push {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Headers may carry a token.
        f.debug_struct("Push")
            .field("endpoint", &self.settings.endpoint)
            .finish_non_exhaustive()
    }
}

impl Settings {
    fn read(
        registry: &Registry,
        variable: &impl Fn(&'static str) -> Option<String>,
    ) -> Result<Option<Self>, PushError> {
        let Some(endpoint) = endpoint(variable)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            endpoint,
            headers: headers(variable)?,
            timeout: millis(variable, "OTEL_EXPORTER_OTLP_TIMEOUT", TIMEOUT_DEFAULT)?,
            interval: millis(variable, "OTEL_METRIC_EXPORT_INTERVAL", INTERVAL_DEFAULT)?,
            resource: resource(registry, variable)?,
        }))
    }
}

fn endpoint(variable: &impl Fn(&'static str) -> Option<String>) -> Result<Option<Uri>, PushError> {
    const METRICS: &str = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT";
    const ALL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let (name, url) = match (variable(METRICS), variable(ALL)) {
        (Some(url), _) => (METRICS, url),
        (None, Some(url)) => (ALL, format!("{}/v1/metrics", url.trim_end_matches('/'))),
        (None, None) => return Ok(None),
    };
    let uri: Uri = url.parse().map_err(|error| wrong(name, error))?;
    if uri.scheme_str() != Some("http") || uri.host().is_none() {
        return Err(wrong(
            name,
            "expected http://HOST:PORT; for https run a collector on this machine",
        ));
    }
    Ok(Some(uri))
}

fn headers(variable: &impl Fn(&'static str) -> Option<String>) -> Result<HeaderMap, PushError> {
    const NAME: &str = "OTEL_EXPORTER_OTLP_HEADERS";
    let mut headers = HeaderMap::new();
    for (key, value) in pairs(NAME, variable)? {
        let key: HeaderName = key.parse().map_err(|error| wrong(NAME, error))?;
        let mut value: HeaderValue = value.parse().map_err(|error| wrong(NAME, error))?;
        value.set_sensitive(true);
        headers.insert(key, value);
    }
    Ok(headers)
}

fn resource(
    registry: &Registry,
    variable: &impl Fn(&'static str) -> Option<String>,
) -> Result<Vec<(String, String)>, PushError> {
    let shared = &registry.shared;
    let service =
        variable("OTEL_SERVICE_NAME").unwrap_or_else(|| format!("firsthop-{}", shared.program));
    let own = [
        ("service.name", service),
        ("service.namespace", "firsthop".to_owned()),
        ("service.instance.id", shared.node.clone()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let mut resource = own.map(|(key, value)| (key.to_owned(), value)).to_vec();
    let given = pairs("OTEL_RESOURCE_ATTRIBUTES", variable)?;
    let more = given.into_iter().filter(|(key, _)| !own_key(key));
    resource.extend(more);
    Ok(resource)
}

/// Attributes that say which node this is cannot be given for many nodes at once.
fn own_key(key: &str) -> bool {
    matches!(
        key,
        "service.name" | "service.instance.id" | "service.version"
    )
}

/// `key=value,key=value`, values percent-encoded (W3C Baggage).
fn pairs(
    name: &'static str,
    variable: &impl Fn(&'static str) -> Option<String>,
) -> Result<Vec<(String, String)>, PushError> {
    let text = variable(name).unwrap_or_default();
    let parts = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    let pairs: Vec<_> = parts
        .map(|part| {
            let (key, value) = part.split_once('=')?;
            Some((key.trim().to_owned(), percent_decoded(value.trim())?))
        })
        .collect::<Option<_>>()
        .ok_or_else(|| wrong(name, "expected key=value,key=value"))?;
    if pairs.len() > PAIRS_MAX {
        return Err(wrong(name, format!("more than {PAIRS_MAX} pairs")));
    }
    Ok(pairs)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let (high, low) = (char::from(rest.next()?), char::from(rest.next()?));
            let value = high.to_digit(16)? << 4 | low.to_digit(16)?;
            bytes.push(u8::try_from(value).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

fn millis(
    variable: &impl Fn(&'static str) -> Option<String>,
    name: &'static str,
    default: Duration,
) -> Result<Duration, PushError> {
    let Some(text) = variable(name) else {
        return Ok(default);
    };
    match text.parse::<u32>() {
        Ok(ms) if ms > 0 => Ok(Duration::from_millis(ms.into())),
        Ok(_) | Err(_) => Err(wrong(name, "expected milliseconds")),
    }
}

fn wrong(variable: &'static str, reason: impl ToString) -> PushError {
    PushError {
        variable,
        reason: reason.to_string(),
    }
}

#[derive(Clone, Copy)]
struct Times {
    start_ns: u64,
    now_ns: u64,
}

impl Family {
    fn to_otlp(&self, name: &str, times: Times) -> Metric {
        let temporality = AggregationTemporality::Cumulative.into();
        let data = match self.kind {
            Kind::Counter => metric::Data::Sum(Sum {
                data_points: self.numbers(times),
                aggregation_temporality: temporality,
                is_monotonic: true,
            }),
            Kind::Gauge => metric::Data::Gauge(Gauge {
                data_points: self.numbers(times),
            }),
            Kind::Histogram(_) => metric::Data::Histogram(Histogram {
                data_points: self.distributions(times),
                aggregation_temporality: temporality,
            }),
        };
        Metric {
            name: format!("firsthop.{name}"),
            description: self.help.to_owned(),
            unit: self.unit.to_owned(),
            data: Some(data),
            ..Metric::default()
        }
    }

    fn numbers(&self, times: Times) -> Vec<NumberDataPoint> {
        let point = |(labels, value): (&Labels, Value)| {
            let value = match value {
                Value::Total(total) => {
                    number_data_point::Value::AsInt(i64::try_from(total).unwrap_or(i64::MAX))
                }
                Value::Level(level) => number_data_point::Value::AsDouble(level),
                Value::Distribution(_) => return None,
            };
            Some(NumberDataPoint {
                attributes: attributes(labels),
                start_time_unix_nano: times.start_ns,
                time_unix_nano: times.now_ns,
                value: Some(value),
                ..NumberDataPoint::default()
            })
        };
        self.values().filter_map(point).collect()
    }

    fn distributions(&self, times: Times) -> Vec<HistogramDataPoint> {
        let point = |(labels, value): (&Labels, Value)| match value {
            Value::Distribution(values) => Some(distribution(labels, &values, times)),
            Value::Total(_) | Value::Level(_) => None,
        };
        self.values().filter_map(point).collect()
    }
}

fn distribution(labels: &Labels, values: &histogram::Snapshot, times: Times) -> HistogramDataPoint {
    HistogramDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: times.start_ns,
        time_unix_nano: times.now_ns,
        count: values.count(),
        sum: Some(values.sum),
        bucket_counts: values.counts.clone(),
        explicit_bounds: values.buckets.to_vec(),
        ..HistogramDataPoint::default()
    }
}

fn attributes(labels: &Labels) -> Vec<KeyValue> {
    let labels = labels.iter();
    labels.map(|(key, value)| attribute(key, value)).collect()
}

fn attribute(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(any_value::Value::StringValue(value.to_owned())),
        }),
        ..KeyValue::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        let registry = Registry::new("pop", "pop-a");
        let read = |name: &'static str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Settings::read(&registry, &read).map_err(|error| error.to_string())
    }

    #[test]
    fn no_endpoint_is_no_push() {
        assert!(settings(&[("OTEL_SERVICE_NAME", "x")]).unwrap().is_none());
    }

    #[test]
    fn variables_mean_what_the_specification_says() {
        let given = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318/"),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "authorization=Bearer%20abc, x-tenant=7",
            ),
            ("OTEL_METRIC_EXPORT_INTERVAL", "500"),
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "deployment.environment=lab,service.name=ignored",
            ),
        ];
        let settings = settings(&given).unwrap().unwrap();
        assert_eq!(settings.endpoint, "http://127.0.0.1:4318/v1/metrics");
        assert_eq!(settings.headers["authorization"], "Bearer abc");
        assert_eq!(settings.headers["x-tenant"], "7");
        assert_eq!(settings.interval, Duration::from_millis(500));
        assert_eq!(settings.timeout, TIMEOUT_DEFAULT);
        let resource = settings.resource;
        assert!(resource.contains(&("service.name".into(), "firsthop-pop".into())));
        assert!(resource.contains(&("deployment.environment".into(), "lab".into())));
        assert_eq!(resource.len(), 5);
    }

    #[test]
    fn wrong_variables_are_one_line_that_names_them() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318");
        for (variable, value) in [
            (
                "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
                "https://collector/v1/metrics",
            ),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "collector:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "token"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=%zz"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "1s"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
        ] {
            let error = settings(&[endpoint, (variable, value)]).err().unwrap();
            assert!(
                error.starts_with(variable) && !error.contains('\n'),
                "{error}"
            );
        }
    }
}
