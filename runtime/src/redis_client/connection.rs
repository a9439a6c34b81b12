//! A connection to Redis, to one server or to a Cluster: opens, runs batches of commands, and sorts what can go wrong.
//!
//! TLS trusts what the credentials say and nothing else.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionInfo, ErrorKind,
    IntoConnectionInfo as _, Pipeline, RedisConnectionInfo, RedisError, ServerErrorKind,
    TlsCertificates, Value,
};
use rustls_pki_types::PrivateKeyDer;
use topology::RedisUrl;

use super::{Refusal, Servers, Trouble};
use crate::credentials::{Credentials, Secret};

/// How long opening a connection may take, and any batch of writes.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// Clones share the connection.
#[derive(Clone)]
pub struct Connection(Kind);

#[derive(Clone)]
enum Kind {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// What a server said to one command.
pub type Said = Result<Value, Refusal>;

impl Connection {
    /// Opens a connection to `servers[turn % len]`, or to the Cluster, and proves within `answer_max` that it answers.
    ///
    /// # Errors
    /// See [`Trouble`].
    pub async fn open(
        servers: Servers<'_>,
        turn: usize,
        credentials: &Credentials,
        answer_max: Duration,
    ) -> Result<Self, Trouble> {
        let opening = async {
            if servers.cluster {
                open_cluster(servers, credentials).await.map(Kind::Cluster)
            } else {
                let server = servers.redis.get(turn % servers.redis.len().max(1));
                let server = server.ok_or_else(|| {
                    RedisError::from((ErrorKind::InvalidClientConfig, "no server"))
                })?;
                open_single(server, credentials).await.map(Kind::Single)
            }
        };
        let opened = tokio::time::timeout(PATIENCE, opening).await;
        let mut connection = opened
            .map_err(|_| Trouble::Timeout)?
            .map(Self)
            .map_err(|error| trouble(&error))?;
        let ping = redis::cmd("PING");
        let answer = tokio::time::timeout(answer_max, connection.run(&[ping])).await;
        match answer.map_err(|_| Trouble::Slow)??.into_iter().next() {
            Some(Ok(_)) => Ok(connection),
            Some(Err(Refusal::Denied)) => Err(Trouble::Auth),
            Some(Err(_)) | None => Err(Trouble::Unfit),
        }
    }

    /// Runs commands that do not depend on each other; says what each came to, in their order.
    ///
    /// # Errors
    /// The connection is of no use. See [`Trouble`].
    pub async fn run(&mut self, commands: &[Cmd]) -> Result<Vec<Said>, Trouble> {
        match &mut self.0 {
            Kind::Single(connection) => {
                let mut pipeline = Pipeline::with_capacity(commands.len());
                for command in commands {
                    pipeline.add_command(command.clone());
                }
                let values = connection
                    .req_packed_commands(&pipeline, 0, commands.len())
                    .await
                    .map_err(|error| trouble(&error))?;
                Ok(values.into_iter().map(said).collect())
            }
            Kind::Cluster(connection) => {
                let each = commands.iter().map(|command| {
                    let mut connection = connection.clone();
                    async move { connection.req_packed_command(command).await }
                });
                let values = join_all(each).await;
                // A node of a cluster may be gone; with all of them gone so is the connection.
                let errors = || values.iter().filter_map(|value| value.as_ref().err());
                let all_lost = errors()
                    .filter(|error| refusal(error) == Refusal::Lost)
                    .count()
                    == values.len();
                match errors().next() {
                    Some(error) if all_lost => Err(trouble(error)),
                    Some(_) | None => Ok(values.into_iter().map(said_by_node).collect()),
                }
            }
        }
    }
}

async fn open_single(
    server: &RedisUrl,
    credentials: &Credentials,
) -> Result<MultiplexedConnection, RedisError> {
    let redis = &credentials.redis;
    let mut settings = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some(user) = text(redis.user.as_ref()) {
        settings = settings.set_username(user);
    }
    if let Some(password) = text(redis.password.as_ref()) {
        settings = settings.set_password(password);
    }
    let info = info(server)?.set_redis_settings(settings);
    let client = if server.tls {
        Client::build_with_tls(info, certificates(credentials))?
    } else {
        Client::open(info)?
    };
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

async fn open_cluster(
    servers: Servers<'_>,
    credentials: &Credentials,
) -> Result<ClusterConnection, RedisError> {
    let nodes: Vec<ConnectionInfo> = servers.redis.iter().map(info).collect::<Result<_, _>>()?;
    let mut builder: ClusterClientBuilder = ClusterClient::builder(nodes)
        .connection_timeout(PATIENCE)
        .response_timeout(PATIENCE)
        .retries(2);
    let redis = &credentials.redis;
    if let Some(user) = text(redis.user.as_ref()) {
        builder = builder.username(user);
    }
    if let Some(password) = text(redis.password.as_ref()) {
        builder = builder.password(password);
    }
    if servers.redis.first().is_some_and(|server| server.tls) {
        builder = builder.certs(certificates(credentials));
    }
    builder.build()?.get_async_connection().await
}

fn info(server: &RedisUrl) -> Result<ConnectionInfo, RedisError> {
    server.to_string().into_connection_info()
}

fn text(secret: Option<&Secret>) -> Option<&str> {
    std::str::from_utf8(secret?.expose()).ok()
}

/// The roots are always given: without them the library would trust the public ones.
fn certificates(credentials: &Credentials) -> TlsCertificates {
    let pem = |label: &str, ders: &mut dyn Iterator<Item = &[u8]>| -> Vec<u8> {
        let block = |der| {
            let text = STANDARD.encode(der);
            format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
        };
        ders.map(block).collect::<String>().into_bytes()
    };
    let key = credentials.key.der();
    TlsCertificates {
        client_tls: Some(ClientTlsConfig {
            client_cert: pem(
                "CERTIFICATE",
                &mut credentials.chain.iter().map(AsRef::as_ref),
            ),
            client_key: pem(label_of(&key), &mut std::iter::once(key.secret_der())),
        }),
        root_cert: Some(pem(
            "CERTIFICATE",
            &mut credentials.redis.ca.iter().map(AsRef::as_ref),
        )),
    }
}

const fn label_of(key: &PrivateKeyDer<'_>) -> &'static str {
    if matches!(key, PrivateKeyDer::Pkcs1(_)) {
        "RSA PRIVATE KEY"
    } else if matches!(key, PrivateKeyDer::Sec1(_)) {
        "EC PRIVATE KEY"
    } else {
        "PRIVATE KEY"
    }
}

fn said(value: Value) -> Said {
    value.extract_error().map_err(|error| refusal(&error))
}

fn said_by_node(value: Result<Value, RedisError>) -> Said {
    said(value.map_err(|error| refusal(&error))?)
}

/// Why one command was not done.
fn refusal(error: &RedisError) -> Refusal {
    match (error.code(), error.kind()) {
        (Some("OOM"), _) => Refusal::Oom,
        (Some("WRONGTYPE"), _) => Refusal::WrongType,
        (Some("NOAUTH" | "NOPERM"), _) => Refusal::Denied,
        (Some("READONLY"), _) | (_, ErrorKind::Server(ServerErrorKind::ReadOnly)) => {
            Refusal::ReadOnly
        }
        (Some(_), _) => Refusal::Other,
        (None, _) => Refusal::Lost,
    }
}

/// Why a connection is of no use.
fn trouble(error: &RedisError) -> Trouble {
    tracing::debug!(%error, "Redis");
    if error.is_timeout() {
        return Trouble::Timeout;
    }
    if error.kind() == ErrorKind::AuthenticationFailed
        || matches!(error.code(), Some("NOAUTH" | "NOPERM" | "WRONGPASS"))
    {
        return Trouble::Auth;
    }
    match io_kind(error) {
        Some(io::ErrorKind::InvalidData) => Trouble::Tls,
        Some(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => {
            Trouble::Refused
        }
        _ if error.is_connection_refusal() => Trouble::Refused,
        _ if error.is_connection_dropped() => Trouble::Closed,
        _ => Trouble::Unfit,
    }
}

/// The library keeps the cause in an `Arc`.
fn io_kind(error: &RedisError) -> Option<io::ErrorKind> {
    let cause = error
        .source()?
        .downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    cause.downcast_ref::<io::Error>().map(io::Error::kind)
}
