//! What must get no answer gets none, and hurts nobody. A proper check afterwards, by the same way, proves that an
//! answer would have arrived.

#![cfg(test)]

use std::time::Duration;

use lab::net::{Network, Shape};
use lab::raw::{Forger, RawClient, Request};
use lab::wait;
use lab::whip::{Session, bare_offer};

const SOON: Duration = Duration::from_secs(10);

struct Target {
    network: Network,
    session: Session,
    ufrag: String,
    password: String,
    client: RawClient,
}

impl Target {
    fn new() -> Self {
        let network = Network::start(&Shape::default()).unwrap();
        let session = Session::open(&network.whip("t1"), &bare_offer(), None).unwrap();
        Self {
            ufrag: session.attribute("ice-ufrag").unwrap().to_owned(),
            password: session.attribute("ice-pwd").unwrap().to_owned(),
            client: RawClient::connect(network.ingress("p1")).unwrap(),
            network,
            session,
        }
    }

    /// Sends it a hundred times; nothing but the answer to the proper check may come back.
    fn assert_silent(&mut self, make: impl Fn(&Self, [u8; 12]) -> Request) {
        for _ in 0..100 {
            let id = self.client.transaction_id();
            let request = make(self, id);
            self.client.send(request.bytes()).unwrap();
        }
        let answers = self
            .client
            .answers_until_check(&self.ufrag, &self.password, SOON);
        let answers = answers.unwrap();
        assert_eq!(
            answers.len(),
            1,
            "something was answered besides the proper check"
        );
    }
}

#[test]
fn a_bare_request_gets_nothing() {
    let mut target = Target::new();
    target.assert_silent(|_, id| Request::bare(id));
}

#[test]
fn a_bad_hint_gets_nothing() {
    let mut target = Target::new();
    let forged = Forger::new(3, &target.ufrag).next_ufrag();
    target.assert_silent(|target, id| Request::check(id, &forged).sign(target.password.as_bytes()));
}

#[test]
fn bad_integrity_gets_nothing_and_ends_nothing() {
    let mut target = Target::new();
    target.assert_silent(|target, id| {
        Request::check(id, target.ufrag.as_bytes()).sign(b"not the password of this session")
    });
    target.assert_silent(|target, id| Request::check(id, target.ufrag.as_bytes()));
    assert_eq!(target.network.sessions("t1").unwrap().len(), 1);
    wait::until_true("the refusals to be counted", SOON, || {
        target.network.drops("t1", "bad_integrity").unwrap() == 200.0
    })
    .unwrap();
    target.session.close().unwrap();
    target.network.wait_no_sessions("t1").unwrap();
}

#[test]
fn a_good_hint_of_no_session_gets_nothing() {
    let mut target = Target::new();
    let gone = Session::open(&target.network.whip("t1"), &bare_offer(), None).unwrap();
    gone.close().unwrap();
    let ufrag = gone.attribute("ice-ufrag").unwrap().to_owned();
    let password = gone.attribute("ice-pwd").unwrap().to_owned();
    target.assert_silent(|_, id| Request::check(id, ufrag.as_bytes()).sign(password.as_bytes()));
}

#[test]
fn a_session_nobody_comes_for_is_reaped() {
    let network = Network::start_with(&Shape::default(), |topology| {
        topology.network.signaling.pending_ttl_s = 2;
    })
    .unwrap();
    let session = Session::open(&network.whip("t1"), &bare_offer(), None).unwrap();
    assert_eq!(network.sessions("t1").unwrap().len(), 1);
    wait::until_true("the session to be reaped", SOON, || {
        network.sessions("t1").unwrap().is_empty()
    })
    .unwrap();
    assert!(session.close().is_err(), "it is gone");
}
