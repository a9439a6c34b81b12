//! The boundary between signaling and the engine: requests on a bounded queue, replies on oneshots.
//!
//! The engine thread owns all sessions. Whoever wants something of a session holds an [`EngineHandle`]; the
//! engine holds the matching [`EngineQueue`]. Nothing here knows how a session works.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use serde::Serialize;
use tokio::sync::oneshot;

/// Requests that wait for the engine at most; one more is answered `Busy`.
pub const QUEUE_LEN_MAX: usize = 256;

/// Names a session towards its client; secret, because whoever knows it may change or end the session.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionKey(pub [u8; 16]);

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(..)")
    }
}

/// A session that was made from an offer.
#[derive(Clone)]
pub struct Created {
    /// For the session's URL.
    pub key: SessionKey,
    /// For people: unique in this process, starts at 1, no secret.
    pub id: u64,
    /// The SDP answer.
    pub answer: String,
    /// Entity tag of the ICE session, without quotes (RFC 9725 §4.3.1).
    pub etag: String,
}

/// Descriptions hold ICE passwords and addresses, so none is shown, here or below.
impl fmt::Debug for Created {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Created")
            .field("id", &self.id)
            .field("etag", &self.etag)
            .finish_non_exhaustive()
    }
}

/// The answer to a renegotiation.
#[derive(Clone)]
pub struct Answer {
    /// The SDP answer.
    pub sdp: String,
    /// Entity tag of the ICE session; changes when the offer asked for an ICE restart.
    pub etag: String,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("etag", &self.etag)
            .finish_non_exhaustive()
    }
}

/// Our side's ICE parameters after a restart.
#[derive(Clone)]
pub struct IceParameters {
    /// `a=ice-ufrag`.
    pub ufrag: String,
    /// `a=ice-pwd`.
    pub pwd: String,
    /// Entity tag of the restarted ICE session.
    pub etag: String,
}

impl fmt::Debug for IceParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IceParameters")
            .field("etag", &self.etag)
            .finish_non_exhaustive()
    }
}

/// What `If-Match` says about the ICE session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// `*`: any ICE session.
    Any,
    /// This entity tag, without quotes.
    Etag(String),
}

/// Why an offer made no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// The body is not a session description.
    #[error("the body is not an SDP offer")]
    NotSdp,
    /// No usable audio m-line.
    #[error("the offer has no audio")]
    NoAudio,
    /// Well-formed, but asks for what we do not do.
    #[error("the offer is not supported: {0}")]
    Unsupported(&'static str),
    /// `signaling.sessions_max` is reached.
    #[error("this transceiver is full")]
    Full,
    /// `signaling.pending_max` is reached.
    #[error("too many sessions wait for their client")]
    Pending,
    /// The node is going away.
    #[error("this transceiver is draining")]
    Draining,
    /// The engine has too much to do, or has stopped.
    #[error("this transceiver is busy")]
    Busy,
}

/// Why a request about a session failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// No such session, or it has ended.
    #[error("no such session")]
    NotFound,
    /// The entity tag names another ICE session than the current one.
    #[error("the ICE session has changed")]
    EtagMismatch,
    /// The offer or fragment cannot be used; says why.
    #[error("unusable description: {0}")]
    BadSdp(&'static str),
    /// The engine has too much to do, or has stopped.
    #[error("this transceiver is busy")]
    Busy,
}

/// How a session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// Answered; no authenticated client yet.
    Pending,
    /// A client has passed an authenticated check; DTLS is not up.
    Connecting,
    /// DTLS is up.
    Connected,
}

/// One session as the admin API and `/state` show it.
#[derive(Clone, Debug, Serialize)]
pub struct SessionSnapshot {
    /// Public id.
    pub id: u64,
    /// Life-cycle state.
    pub state: SessionState,
    /// When it was created, in Unix seconds.
    pub created_unix_s: u64,
    /// Name of this transceiver.
    pub transceiver: String,
    /// Name of the region.
    pub region: String,
    /// PoP of the current return path.
    pub pop: Option<String>,
    /// Worker of that PoP.
    pub worker: Option<u8>,
    /// Ingress address the client speaks to.
    pub ingress: Option<SocketAddr>,
    /// Core relay of the current return path.
    pub core_relay: Option<String>,
    /// Client address, truncated to its network part.
    pub client: Option<String>,
    /// Authenticated paths.
    pub paths: usize,
    /// Client packets received.
    pub packets_in: u64,
    /// Bytes in them.
    pub bytes_in: u64,
    /// Packets sent to the client.
    pub packets_out: u64,
    /// Bytes in them.
    pub bytes_out: u64,
    /// RTP packets received.
    pub rtp_in: u64,
    /// RTP packets sent.
    pub rtp_out: u64,
    /// RTP packets that never came, from gaps in sequence numbers.
    pub rtp_lost: u64,
    /// State of the media engine's connection.
    pub rtc_state: String,
}

/// How loaded the engine is; read without asking it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EngineLoad {
    /// Sessions, pending ones included.
    pub sessions: u32,
    /// Sessions without an authenticated client.
    pub pending: u32,
    /// No new sessions are taken.
    pub draining: bool,
}

/// Reply to one request.
pub type Reply<T> = oneshot::Sender<T>;

/// What signaling asks of the engine.
pub enum Request {
    /// Make a session from an offer.
    Create {
        /// The offer; its size was checked before.
        offer: String,
        /// Candidates to advertise, best first.
        ingress: Vec<SocketAddr>,
        /// Where the outcome goes.
        reply: Reply<Result<Created, OfferError>>,
    },
    /// Answer another offer of an existing session.
    Renegotiate {
        /// The session.
        key: SessionKey,
        /// What `If-Match` says.
        precondition: Precondition,
        /// The offer.
        offer: String,
        /// Where the outcome goes.
        reply: Reply<Result<Answer, SessionError>>,
    },
    /// Restart ICE.
    RestartIce {
        /// The session.
        key: SessionKey,
        /// What `If-Match` says.
        precondition: Precondition,
        /// The client's `ice-ufrag` after the restart.
        ufrag: String,
        /// The client's `ice-pwd` after the restart.
        pwd: String,
        /// Where the outcome goes.
        reply: Reply<Result<IceParameters, SessionError>>,
    },
    /// Candidates of the client: checked against the ICE session, otherwise ignored.
    Trickle {
        /// The session.
        key: SessionKey,
        /// What `If-Match` says.
        precondition: Precondition,
        /// The client's `ice-ufrag` in the fragment.
        ufrag: Option<String>,
        /// Where the outcome goes.
        reply: Reply<Result<(), SessionError>>,
    },
    /// End a session; the client gets a DTLS close.
    End {
        /// The session.
        key: SessionKey,
        /// Where the outcome goes.
        reply: Reply<Result<(), SessionError>>,
    },
    /// End a session by its public id.
    EndById {
        /// The session.
        id: u64,
        /// Where the outcome goes.
        reply: Reply<Result<(), SessionError>>,
    },
    /// All sessions.
    List {
        /// Where the outcome goes.
        reply: Reply<Vec<SessionSnapshot>>,
    },
    /// One session by its public id.
    Get {
        /// The session.
        id: u64,
        /// Where the outcome goes.
        reply: Reply<Result<SessionSnapshot, SessionError>>,
    },
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Create { .. } => "Create",
            Self::Renegotiate { .. } => "Renegotiate",
            Self::RestartIce { .. } => "RestartIce",
            Self::Trickle { .. } => "Trickle",
            Self::End { .. } => "End",
            Self::EndById { .. } => "EndById",
            Self::List { .. } => "List",
            Self::Get { .. } => "Get",
        };
        f.debug_struct(name).finish_non_exhaustive()
    }
}

/// Asks the engine. Cloned freely; every method is cancel-safe.
#[derive(Clone)]
pub struct EngineHandle {
    requests: SyncSender<Request>,
    wake: Arc<dyn Fn() + Send + Sync>,
    load: Arc<LoadCells>,
}

impl fmt::Debug for EngineHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineHandle")
            .field("load", &self.load())
            .finish_non_exhaustive()
    }
}

/// The engine's end of the queue.
#[derive(Debug)]
pub struct EngineQueue {
    requests: Receiver<Request>,
    load: Arc<LoadCells>,
}

#[derive(Debug, Default)]
struct LoadCells {
    sessions: AtomicU32,
    pending: AtomicU32,
    draining: AtomicBool,
}

/// Makes the two ends. `wake` is called after a request was queued, so that a sleeping engine looks.
pub fn channel(wake: impl Fn() + Send + Sync + 'static) -> (EngineHandle, EngineQueue) {
    let (sender, receiver) = sync_channel(QUEUE_LEN_MAX);
    let load = Arc::new(LoadCells::default());
    let handle = EngineHandle {
        requests: sender,
        wake: Arc::new(wake),
        load: Arc::clone(&load),
    };
    let queue = EngineQueue {
        requests: receiver,
        load,
    };
    (handle, queue)
}

impl EngineQueue {
    /// The next request; `None` when there is none.
    #[must_use]
    pub fn next_request(&self) -> Option<Request> {
        self.requests.try_recv().ok()
    }

    /// Publishes how loaded the engine is.
    pub fn set_load(&self, load: EngineLoad) {
        self.load.sessions.store(load.sessions, Ordering::Relaxed);
        self.load.pending.store(load.pending, Ordering::Relaxed);
        self.load.draining.store(load.draining, Ordering::Relaxed);
    }
}

impl EngineHandle {
    /// How loaded the engine is; costs three relaxed loads. Asked before an offer is parsed.
    #[must_use]
    pub fn load(&self) -> EngineLoad {
        EngineLoad {
            sessions: self.load.sessions.load(Ordering::Relaxed),
            pending: self.load.pending.load(Ordering::Relaxed),
            draining: self.load.draining.load(Ordering::Relaxed),
        }
    }

    /// Makes a session that advertises `ingress` as candidates, in this order.
    ///
    /// # Errors
    /// See [`OfferError`].
    pub async fn create(
        &self,
        offer: String,
        ingress: Vec<SocketAddr>,
    ) -> Result<Created, OfferError> {
        self.ask(|reply| Request::Create {
            offer,
            ingress,
            reply,
        })
        .await
        .unwrap_or(Err(OfferError::Busy))
    }

    /// Answers another offer: more or fewer m-lines, possibly an ICE restart.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub async fn renegotiate(
        &self,
        key: SessionKey,
        precondition: Precondition,
        offer: String,
    ) -> Result<Answer, SessionError> {
        self.ask(|reply| Request::Renegotiate {
            key,
            precondition,
            offer,
            reply,
        })
        .await
        .unwrap_or(Err(SessionError::Busy))
    }

    /// Restarts ICE: `ufrag` and `pwd` are the client's, the result holds ours.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub async fn restart_ice(
        &self,
        key: SessionKey,
        precondition: Precondition,
        ufrag: String,
        pwd: String,
    ) -> Result<IceParameters, SessionError> {
        self.ask(|reply| Request::RestartIce {
            key,
            precondition,
            ufrag,
            pwd,
            reply,
        })
        .await
        .unwrap_or(Err(SessionError::Busy))
    }

    /// A trickle fragment came. We are ICE-lite, so its candidates are ignored; a `ufrag` other than the client's
    /// current one is [`SessionError::EtagMismatch`]: it belongs to another ICE session.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub async fn trickle(
        &self,
        key: SessionKey,
        precondition: Precondition,
        ufrag: Option<String>,
    ) -> Result<(), SessionError> {
        self.ask(|reply| Request::Trickle {
            key,
            precondition,
            ufrag,
            reply,
        })
        .await
        .unwrap_or(Err(SessionError::Busy))
    }

    /// Ends a session; its client gets a DTLS close.
    ///
    /// # Errors
    /// [`SessionError::NotFound`], [`SessionError::Busy`].
    pub async fn end(&self, key: SessionKey) -> Result<(), SessionError> {
        self.ask(|reply| Request::End { key, reply })
            .await
            .unwrap_or(Err(SessionError::Busy))
    }

    /// As [`Self::end`], by public id.
    ///
    /// # Errors
    /// [`SessionError::NotFound`], [`SessionError::Busy`].
    pub async fn end_by_id(&self, id: u64) -> Result<(), SessionError> {
        self.ask(|reply| Request::EndById { id, reply })
            .await
            .unwrap_or(Err(SessionError::Busy))
    }

    /// All sessions, by ascending id.
    ///
    /// # Errors
    /// [`SessionError::Busy`].
    pub async fn list(&self) -> Result<Vec<SessionSnapshot>, SessionError> {
        self.ask(|reply| Request::List { reply })
            .await
            .ok_or(SessionError::Busy)
    }

    /// One session.
    ///
    /// # Errors
    /// [`SessionError::NotFound`], [`SessionError::Busy`].
    pub async fn get(&self, id: u64) -> Result<SessionSnapshot, SessionError> {
        self.ask(|reply| Request::Get { id, reply })
            .await
            .unwrap_or(Err(SessionError::Busy))
    }

    /// `None` when the queue is full or the engine is gone.
    async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.requests.try_send(request(reply)).ok()?;
        (self.wake)();
        answer.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_description_and_no_credentials() {
        const SECRET: &str = "sEcReT";
        let (secret, key) = (SECRET.to_owned(), SessionKey([0x5e; 16]));
        let precondition = Precondition::Etag("tag".to_owned());
        let shown = [
            format!(
                "{:?}",
                Created {
                    key,
                    id: 7,
                    answer: secret.clone(),
                    etag: "tag".to_owned()
                }
            ),
            format!(
                "{:?}",
                Answer {
                    sdp: secret.clone(),
                    etag: "tag".to_owned()
                }
            ),
            format!(
                "{:?}",
                IceParameters {
                    ufrag: secret.clone(),
                    pwd: secret.clone(),
                    etag: "tag".to_owned()
                }
            ),
            format!(
                "{:?}",
                Request::Create {
                    offer: secret.clone(),
                    ingress: vec![],
                    reply: oneshot::channel().0
                }
            ),
            format!(
                "{:?}",
                Request::Renegotiate {
                    key,
                    precondition: precondition.clone(),
                    offer: secret.clone(),
                    reply: oneshot::channel().0
                }
            ),
            format!(
                "{:?}",
                Request::RestartIce {
                    key,
                    precondition: precondition.clone(),
                    ufrag: secret.clone(),
                    pwd: secret.clone(),
                    reply: oneshot::channel().0
                }
            ),
            format!(
                "{:?}",
                Request::Trickle {
                    key,
                    precondition,
                    ufrag: Some(secret),
                    reply: oneshot::channel().0
                }
            ),
        ];
        for text in shown {
            assert!(!text.contains(SECRET) && !text.contains("94"), "{text}");
        }
    }

    #[tokio::test]
    async fn a_full_queue_is_busy() {
        let (handle, queue) = channel(|| {});
        let mut asks: Vec<_> = (0..=QUEUE_LEN_MAX)
            .map(|_| Box::pin(handle.end_by_id(1)))
            .collect();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let last = asks.pop().unwrap();
        for ask in &mut asks {
            assert!(ask.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(last.await, Err(SessionError::Busy));
        drop(queue);
        for ask in asks {
            assert_eq!(ask.await, Err(SessionError::Busy));
        }
    }

    #[tokio::test]
    async fn a_request_wakes_the_engine_and_gets_its_reply() {
        let woken = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&woken);
        let (handle, queue) = channel(move || seen.store(true, Ordering::Relaxed));
        let ask = tokio::spawn(async move { handle.end(SessionKey([7; 16])).await });
        tokio::task::yield_now().await;
        assert!(woken.load(Ordering::Relaxed));
        let Some(Request::End { key, reply }) = queue.next_request() else {
            panic!("one request is queued")
        };
        assert_eq!(key, SessionKey([7; 16]));
        reply.send(Err(SessionError::NotFound)).unwrap();
        assert_eq!(ask.await.unwrap(), Err(SessionError::NotFound));
    }
}
