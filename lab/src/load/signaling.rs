//! WHIP for the load, on a thread of its own: offers in, answers out, sessions deleted at the end.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use super::Plan;
use crate::whip::Session;

/// An answer, or why there is none.
type Outcome = (usize, anyhow::Result<String>);

pub(super) struct Signaling {
    offers: Option<SyncSender<(usize, String)>>,
    answers: Receiver<Outcome>,
    thread: Option<JoinHandle<Vec<Session>>>,
}

impl Signaling {
    pub(super) fn start(plan: &Plan) -> Self {
        let (offers, requests) = sync_channel::<(usize, String)>(plan.sessions);
        let (replies, answers) = sync_channel::<Outcome>(plan.sessions);
        let (whip, bearer) = (plan.whip.clone(), plan.bearer.clone());
        let thread = thread::spawn(move || {
            let mut open = Vec::new();
            for (index, offer) in requests {
                let session = Session::open(&whip, &offer, bearer.as_deref());
                let outcome = session.map(|session| {
                    let answer = session.answer.clone();
                    open.push(session);
                    answer
                });
                if replies.send((index, outcome)).is_err() {
                    break;
                }
            }
            open
        });
        Self {
            offers: Some(offers),
            answers,
            thread: Some(thread),
        }
    }

    /// Never blocks: the queue holds an offer of every session.
    pub(super) fn offer(&self, index: usize, offer: String) {
        if let Some(offers) = &self.offers {
            // The thread ends only when it is told to; its answers would be missing.
            let _ = offers.send((index, offer));
        }
    }

    pub(super) fn next_answer(&self) -> Option<Outcome> {
        self.answers.try_recv().ok()
    }

    /// Ends the thread, and deletes every session that it opened when `delete` says so.
    pub(super) fn end(&mut self, delete: bool) -> anyhow::Result<()> {
        self.offers = None;
        let open = match self.thread.take().map(JoinHandle::join) {
            Some(Ok(open)) => open,
            Some(Err(_)) => anyhow::bail!("the signaling thread panicked"),
            None => Vec::new(),
        };
        if delete {
            open.iter().try_for_each(Session::close)?;
        }
        Ok(())
    }
}
