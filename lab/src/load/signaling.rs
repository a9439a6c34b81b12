//! WHIP for the load, on a thread of its own: offers in, answers out, sessions deleted at the end.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use super::{Failures, Plan};
use crate::whip::Session;

/// An answer and the session's name, or why there is none.
type Outcome = (usize, anyhow::Result<(String, String)>);

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
                    let answer = (session.answer.clone(), session.name.clone());
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

    /// Ends the thread, and deletes every session that it opened when `delete` says so. Returns the deletions that failed.
    pub(super) fn end(&mut self, delete: bool) -> Failures {
        self.offers = None;
        let mut failures = Failures::default();
        let open = match self.thread.take().map(JoinHandle::join) {
            Some(Ok(open)) => open,
            Some(Err(_)) => {
                failures.note(&anyhow::anyhow!("the signaling thread panicked"));
                Vec::new()
            }
            None => Vec::new(),
        };
        if delete {
            let closed = open.iter().map(Session::close);
            closed
                .filter_map(Result::err)
                .for_each(|error| failures.note(&error));
        }
        failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::time::Duration;

    const CREATED: &str = "HTTP/1.1 201 Created\r\nlocation: /whip/x\r\netag: \"e\"\r\nfirsthop-session: t1/1\r\n\r\nv=0";

    /// Answers one request a connection with each of `answers` in turn; returns the methods that were asked for.
    fn serve(answers: Vec<&'static str>) -> (String, JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}/whip", listener.local_addr().unwrap());
        let thread = thread::spawn(move || {
            let serve_one = |answer: &str| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    head.push(byte[0]);
                }
                stream.write_all(answer.as_bytes()).unwrap();
                let head = String::from_utf8(head).unwrap();
                head.split(' ').next().unwrap_or_default().to_owned()
            };
            answers.into_iter().map(serve_one).collect()
        });
        (url, thread)
    }

    #[test]
    fn a_session_that_is_gone_does_not_keep_others_from_being_deleted() {
        let gone = "HTTP/1.1 404 Not Found\r\n\r\n";
        let well = "HTTP/1.1 200 OK\r\n\r\n";
        let (url, server) = serve(vec![CREATED, CREATED, CREATED, gone, well, gone]);
        let mut signaling = Signaling::start(&Plan::new(url, 3, Duration::ZERO));
        for index in 0..3 {
            signaling.offer(index, String::new());
        }
        let failures = signaling.end(true);
        assert_eq!(failures.count, 2);
        assert_eq!(failures.reasons, ["DELETE answered 404"; 2]);
        let methods = server.join().unwrap();
        assert_eq!(methods[3..], ["DELETE"; 3]);
        let answers = std::iter::from_fn(|| signaling.next_answer());
        assert!(answers.map(|(_, answer)| answer.unwrap().0).eq(["v=0"; 3]));
    }
}
