//! A fake engine: the queue's other end, with sessions but without media.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use transceiver::engine::handle::{
    Answer, Created, EngineHandle, EngineLoad, EngineQueue, IceParameters, OfferError,
    Precondition, Request, SessionError, SessionKey, SessionSnapshot, SessionState, channel,
};

/// One session of the fake engine.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) id: u64,
    pub(crate) generation: u32,
    pub(crate) ufrag: String,
    pub(crate) ingress: Vec<SocketAddr>,
}

impl Session {
    fn etag(&self) -> String {
        format!("ice-{}-{}", self.id, self.generation)
    }

    fn check(&self, precondition: &Precondition) -> Result<(), SessionError> {
        match precondition {
            Precondition::Any => Ok(()),
            Precondition::Etag(etag) if *etag == self.etag() => Ok(()),
            Precondition::Etag(_) => Err(SessionError::EtagMismatch),
        }
    }
}

/// What a test sees of it and may change.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) sessions: BTreeMap<[u8; 16], Session>,
    /// Offers that reached the engine.
    pub(crate) offers: u64,
    /// Requests of any kind that reached it.
    pub(crate) requests: u64,
    /// What the next offer gets instead of a session.
    pub(crate) refuse: Option<OfferError>,
    pub(crate) load: Option<EngineLoad>,
    /// Requests are taken and never answered.
    pub(crate) stuck: bool,
    held: Vec<Request>,
    last_id: u64,
}

/// A running fake engine.
pub(crate) struct FakeEngine {
    pub(crate) handle: EngineHandle,
    pub(crate) state: Arc<Mutex<State>>,
    wake: SyncSender<()>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FakeEngine {
    pub(crate) fn start() -> Self {
        let (wake, woken) = sync_channel::<()>(1);
        let waker = wake.clone();
        let (handle, queue) = channel(move || {
            let _ = waker.try_send(());
        });
        let state = Arc::new(Mutex::new(State::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let (shared, stopped) = (Arc::clone(&state), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) && woken.recv().is_ok() {
                let mut state = shared.lock().unwrap();
                state.turn(&queue);
            }
        });
        Self {
            handle,
            state,
            wake,
            stop,
            thread: Some(thread),
        }
    }

    /// Changes something and lets the engine publish it.
    pub(crate) fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        let load = self.state.lock().unwrap().load;
        let _ = self.wake.try_send(());
        while load.is_some_and(|load| self.handle.load() != load) {
            std::thread::yield_now();
        }
    }

    pub(crate) fn sessions(&self) -> Vec<Session> {
        let state = self.state.lock().unwrap();
        state.sessions.values().cloned().collect()
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.wake.try_send(());
        drop(self.thread.take().unwrap().join());
    }
}

impl State {
    fn turn(&mut self, queue: &EngineQueue) {
        if let Some(load) = self.load {
            queue.set_load(load);
        }
        while let Some(request) = queue.next_request() {
            self.requests += 1;
            if self.stuck {
                self.held.push(request);
            } else {
                self.answer(request);
            }
        }
    }

    fn answer(&mut self, request: Request) {
        match request {
            Request::Create {
                offer,
                ingress,
                reply,
            } => drop(reply.send(self.create(&offer, ingress))),
            Request::Renegotiate {
                key,
                precondition,
                offer,
                reply,
            } => drop(reply.send(self.renegotiate(key, &precondition, &offer))),
            Request::RestartIce {
                key,
                precondition,
                ufrag,
                reply,
                ..
            } => drop(reply.send(self.restart(key, &precondition, ufrag))),
            Request::Trickle {
                key,
                precondition,
                ufrag,
                reply,
            } => drop(reply.send(self.trickle(key, &precondition, ufrag.as_deref()))),
            Request::End { key, reply } => {
                let ended = self.sessions.remove(&key.0).map(drop);
                let _ = reply.send(ended.ok_or(SessionError::NotFound));
            }
            Request::EndById { id, reply } => {
                let before = self.sessions.len();
                self.sessions.retain(|_, session| session.id != id);
                let gone = self.sessions.len() < before;
                let _ = reply.send(gone.then_some(()).ok_or(SessionError::NotFound));
            }
            Request::List { reply } => drop(reply.send(self.snapshots())),
            Request::Get { id, reply } => {
                let found = self.snapshots().into_iter().find(|s| s.id == id);
                drop(reply.send(found.ok_or(SessionError::NotFound)));
            }
        }
    }

    fn create(&mut self, offer: &str, ingress: Vec<SocketAddr>) -> Result<Created, OfferError> {
        self.offers += 1;
        if let Some(error) = self.refuse {
            return Err(error);
        }
        if !offer.starts_with("v=0") {
            return Err(OfferError::NotSdp);
        }
        if !offer.contains("m=audio") {
            return Err(OfferError::NoAudio);
        }
        self.last_id += 1;
        let session = Session {
            id: self.last_id,
            generation: 1,
            ufrag: ufrag_of(offer),
            ingress,
        };
        let mut key = [0xa5; 16];
        key[..8].copy_from_slice(&self.last_id.to_be_bytes());
        let created = Created {
            key: SessionKey(key),
            id: session.id,
            answer: format!("v=0\r\na=answer-to:{}\r\n", session.id),
            etag: session.etag(),
        };
        self.sessions.insert(key, session);
        Ok(created)
    }

    fn find(&mut self, key: SessionKey) -> Result<&mut Session, SessionError> {
        self.sessions.get_mut(&key.0).ok_or(SessionError::NotFound)
    }

    fn renegotiate(
        &mut self,
        key: SessionKey,
        precondition: &Precondition,
        offer: &str,
    ) -> Result<Answer, SessionError> {
        let session = self.find(key)?;
        session.check(precondition)?;
        if !offer.starts_with("v=0") {
            return Err(SessionError::BadSdp("the body is not an SDP offer"));
        }
        Ok(Answer {
            sdp: "v=0\r\na=renegotiated\r\n".to_owned(),
            etag: session.etag(),
        })
    }

    fn restart(
        &mut self,
        key: SessionKey,
        precondition: &Precondition,
        ufrag: String,
    ) -> Result<IceParameters, SessionError> {
        let session = self.find(key)?;
        session.check(precondition)?;
        session.generation += 1;
        session.ufrag = ufrag;
        Ok(IceParameters {
            ufrag: format!("our{}", session.generation),
            pwd: "serverserverserverserver".to_owned(),
            etag: session.etag(),
        })
    }

    fn trickle(
        &mut self,
        key: SessionKey,
        precondition: &Precondition,
        ufrag: Option<&str>,
    ) -> Result<(), SessionError> {
        let session = self.find(key)?;
        session.check(precondition)?;
        match ufrag {
            Some(ufrag) if ufrag != session.ufrag => Err(SessionError::EtagMismatch),
            Some(_) | None => Ok(()),
        }
    }

    fn snapshots(&self) -> Vec<SessionSnapshot> {
        let snapshot = |session: &Session| SessionSnapshot {
            id: session.id,
            state: SessionState::Pending,
            created_unix_s: 0,
            transceiver: "t".to_owned(),
            region: "eu".to_owned(),
            pop: None,
            worker: None,
            ingress: None,
            core_relay: None,
            client: None,
            paths: 0,
            packets_in: 0,
            bytes_in: 0,
            packets_out: 0,
            bytes_out: 0,
            rtp_in: 0,
            rtp_out: 0,
            rtp_lost: 0,
            rtc_state: "new".to_owned(),
        };
        self.sessions.values().map(snapshot).collect()
    }
}

fn ufrag_of(offer: &str) -> String {
    let line = offer
        .lines()
        .find_map(|line| line.strip_prefix("a=ice-ufrag:"));
    line.unwrap_or_default().to_owned()
}
