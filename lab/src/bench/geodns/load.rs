//! The generator: one thread that never sleeps, some sockets in source networks of their own, `sendmmsg` and `recvmmsg`. Closed
//! loop: a new question leaves when an earlier one is answered; or open: so many a second, answered or not.
//!
//! ```text
//! lane i: 127.0.200+i.1 ──► server      id of a message: 16 bits, in order; its slot: the low bits of it
//! ```

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use runtime::clock;
use runtime::udp::{BindOptions, RecvBatch, SendBatch, UdpSocket};

use super::answer;
use super::query::LEN_MAX;
use super::questions::Questions;

/// How questions leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// So many are on the way on each lane.
    Window(usize),
    /// So many leave a second, on all lanes together.
    Rate(u32),
}

/// What of an answer is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Its code and address.
    Answer,
    /// That it is one: a server that only echoes.
    Echo,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Found {
    /// How long it took.
    pub elapsed: Duration,
    /// Questions sent.
    pub sent: u64,
    /// Of those, what the kernel did not take: it is lost as well.
    pub unsent: u64,
    /// Right answers.
    pub answered: u64,
    /// Questions that were not answered in time, or could not be sent.
    pub lost: u64,
    /// Answers with another code than 0, or cut.
    pub refused: u64,
    /// Answers with another address than the map says.
    pub wrong: u64,
    /// Messages that answer nothing that waits.
    pub strange: u64,
    pub(super) latency_us: Vec<u32>,
}

impl Default for Found {
    fn default() -> Self {
        Self {
            elapsed: Duration::ZERO,
            sent: 0,
            unsent: 0,
            answered: 0,
            lost: 0,
            refused: 0,
            wrong: 0,
            strange: 0,
            latency_us: vec![0; LATENCY_US_MAX],
        }
    }
}

impl Found {
    /// Answers a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.answered as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The time that `thousandths` of the answers do not exceed, in microseconds.
    #[must_use]
    pub fn latency_us(&self, thousandths: u64) -> f64 {
        let all: u64 = self.latency_us.iter().map(|&count| u64::from(count)).sum();
        let mut seen = 0;
        let found = self.latency_us.iter().position(|&count| {
            seen += u64::from(count);
            seen * 1000 >= all * thousandths
        });
        found.unwrap_or_default() as f64
    }

    /// What came after the end of the run counts as of it.
    pub fn add(&mut self, late: &Self) {
        self.answered += late.answered;
        self.lost += late.lost;
        self.refused += late.refused;
        self.wrong += late.wrong;
        self.strange += late.strange;
        for (count, more) in self.latency_us.iter_mut().zip(&late.latency_us) {
            *count += more;
        }
    }

    pub(super) fn note(&mut self, since: Duration) {
        let us = usize::try_from(since.as_micros()).unwrap_or(usize::MAX);
        if let Some(count) = self.latency_us.get_mut(us.min(LATENCY_US_MAX - 1)) {
            *count += 1;
        }
    }
}

/// Sockets and what is on the way.
#[derive(Debug)]
pub struct Load<'a> {
    lanes: Vec<Lane>,
    questions: &'a Questions,
    check: Check,
    pace: Pace,
    next_question: usize,
}

#[derive(Debug)]
struct Lane {
    socket: UdpSocket,
    out: SendBatch,
    batch: RecvBatch,
    /// As many as a power of two.
    waiting: Vec<Waiting>,
    next_id: u16,
    /// The oldest id that may wait.
    oldest: u16,
    on_the_way: usize,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    question: u32,
    id: u16,
    /// `None`: answered, or lost.
    since: Option<Instant>,
}

impl<'a> Load<'a> {
    /// Opens `lanes` sockets towards `to`.
    ///
    /// # Errors
    /// A socket's.
    pub fn open(
        to: SocketAddr,
        lanes: u8,
        pace: Pace,
        check: Check,
        questions: &'a Questions,
    ) -> anyhow::Result<Self> {
        let slots = match pace {
            Pace::Window(window) => (window * 2).next_power_of_two(),
            Pace::Rate(_) => OPEN_SLOTS,
        };
        let lanes = (0..lanes).map(|lane| Lane::open(lane, to, slots));
        Ok(Self {
            lanes: lanes.collect::<anyhow::Result<_>>()?,
            questions,
            check,
            pace,
            next_question: 0,
        })
    }

    /// Asks for `length`. What is on the way at its end stays so, for the next run.
    ///
    /// # Errors
    /// A socket's.
    pub fn run(&mut self, length: Duration) -> anyhow::Result<Found> {
        self.run_while(|elapsed| elapsed < length)
    }

    /// Asks for as long as `goes_on` says so of the time since the start.
    ///
    /// # Errors
    /// A socket's.
    pub fn run_while(
        &mut self,
        mut goes_on: impl FnMut(Duration) -> bool,
    ) -> anyhow::Result<Found> {
        let mut found = Found::default();
        let start = clock::now();
        let mut due_sent = 0;
        loop {
            found.elapsed = clock::now() - start;
            if !goes_on(found.elapsed) {
                return Ok(found);
            }
            let mut due = self.due(found.elapsed, due_sent);
            for lane in &mut self.lanes {
                let room = match self.pace {
                    Pace::Window(window) => window.saturating_sub(lane.on_the_way),
                    Pace::Rate(_) => due.min(BATCH),
                };
                due = due.saturating_sub(room);
                lane.send(room, self.questions, &mut self.next_question, &mut found);
                lane.receive(self.questions, self.check, &mut found)?;
            }
            due_sent = found.sent;
        }
    }

    /// Takes what is on the way and sends nothing, until all has come or is lost.
    ///
    /// # Errors
    /// A socket's.
    pub fn settle(&mut self) -> anyhow::Result<Found> {
        let mut found = Found::default();
        while self.lanes.iter().any(|lane| lane.on_the_way > 0) {
            for lane in &mut self.lanes {
                lane.expire(clock::now(), &mut found);
                lane.receive(self.questions, self.check, &mut found)?;
            }
        }
        Ok(found)
    }

    fn due(&self, elapsed: Duration, sent: u64) -> usize {
        match self.pace {
            Pace::Window(_) => 0,
            Pace::Rate(rate) => {
                let all = elapsed.as_micros() * u128::from(rate) / 1_000_000;
                let all = u64::try_from(all).unwrap_or(u64::MAX);
                usize::try_from(all.saturating_sub(sent)).unwrap_or(usize::MAX)
            }
        }
    }
}

impl Lane {
    fn open(lane: u8, to: SocketAddr, slots: usize) -> anyhow::Result<Self> {
        let from = Ipv4Addr::new(127, 0, FIRST_NETWORK.saturating_add(lane), 1);
        let socket = UdpSocket::bind((from, 0).into(), &BindOptions::default())
            .and_then(|socket| socket.connect(to).map(|()| socket))
            .context("a socket of the generator")?;
        Ok(Self {
            socket,
            out: SendBatch::new(BATCH, LEN_MAX),
            batch: RecvBatch::new(BATCH, ANSWER_BYTES_MAX),
            waiting: vec![
                Waiting {
                    question: 0,
                    id: 0,
                    since: None,
                };
                slots
            ],
            next_id: 0,
            oldest: 0,
            on_the_way: 0,
        })
    }

    fn send(
        &mut self,
        count: usize,
        questions: &Questions,
        next_question: &mut usize,
        found: &mut Found,
    ) {
        if count == 0 {
            return;
        }
        let now = clock::now();
        self.expire(now, found);
        for _ in 0..count.min(BATCH) {
            let (question, id) = (*next_question, self.next_id);
            let message = questions.message(question);
            let written = self.out.push_connected(message.len(), |slot| {
                slot.copy_from_slice(message);
                if let Some(head) = slot.first_chunk_mut() {
                    *head = id.to_be_bytes();
                }
            });
            if !written {
                break;
            }
            self.wait_for(id, question, now, found);
            self.next_id = id.wrapping_add(1);
            *next_question = (question + 1) % questions.len().max(1);
            found.sent += 1;
        }
        // What the kernel does not take is not answered, and lost.
        let report = self.out.flush(&self.socket);
        let unsent = report.failed + report.would_block;
        found.unsent += u64::try_from(unsent).unwrap_or_default();
    }

    fn wait_for(&mut self, id: u16, question: usize, now: Instant, found: &mut Found) {
        let question = u32::try_from(question).unwrap_or_default();
        let Some(slot) = slot(&mut self.waiting, id) else {
            return;
        };
        if slot.since.is_some() {
            found.lost += 1;
            self.on_the_way -= 1;
        }
        *slot = Waiting {
            question,
            id,
            since: Some(now),
        };
        self.on_the_way += 1;
    }

    fn receive(
        &mut self,
        questions: &Questions,
        check: Check,
        found: &mut Found,
    ) -> anyhow::Result<()> {
        if self.on_the_way == 0 || self.batch.recv(&self.socket)? == 0 {
            return Ok(());
        }
        let now = clock::now();
        for (_, message) in self.batch.iter() {
            let id = message.first_chunk().copied().map_or(0, u16::from_be_bytes);
            let waiting = slot(&mut self.waiting, id).filter(|slot| slot.id == id);
            let Some((question, since)) =
                waiting.and_then(|slot| Some((slot.question, slot.since.take()?)))
            else {
                found.strange += 1;
                continue;
            };
            self.on_the_way -= 1;
            found.note(now.saturating_duration_since(since));
            judge(message, question, questions, check, found);
        }
        Ok(())
    }

    /// Gives up on what waits too long, oldest first.
    fn expire(&mut self, now: Instant, found: &mut Found) {
        while self.oldest != self.next_id {
            let oldest = self.oldest;
            if let Some(slot) = slot(&mut self.waiting, oldest).filter(|slot| slot.id == oldest) {
                match slot.since {
                    Some(since) if now.saturating_duration_since(since) < LOST_AFTER => return,
                    Some(_) => {
                        slot.since = None;
                        self.on_the_way -= 1;
                        found.lost += 1;
                    }
                    None => {}
                }
            }
            self.oldest = oldest.wrapping_add(1);
        }
    }
}

fn slot(waiting: &mut [Waiting], id: u16) -> Option<&mut Waiting> {
    let mask = waiting.len().wrapping_sub(1);
    waiting.get_mut(usize::from(id) & mask)
}

fn judge(message: &[u8], question: u32, questions: &Questions, check: Check, found: &mut Found) {
    if check == Check::Echo {
        found.answered += 1;
        return;
    }
    let question = usize::try_from(question).unwrap_or_default();
    match answer::read(message) {
        Some(answer) if answer.code != 0 || answer.is_truncated => found.refused += 1,
        Some(answer)
            if answer
                .address
                .is_some_and(|address| questions.is_right(question, address)) =>
        {
            found.answered += 1;
        }
        Some(_) | None => found.wrong += 1,
    }
}

/// Messages a call.
const BATCH: usize = 64;
const ANSWER_BYTES_MAX: usize = 512;
/// Questions that may wait on a lane of an open load: more than a second of them.
const OPEN_SLOTS: usize = 1 << 14;
/// What is not answered by then is lost.
const LOST_AFTER: Duration = Duration::from_millis(500);
const LATENCY_US_MAX: usize = 20_000;
/// Lanes are networks of their own, so that limits of a source prefix count each alone.
const FIRST_NETWORK: u8 = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_buckets() {
        let mut found = Found::default();
        for us in [10, 20, 30, 40, 1_000_000] {
            found.note(Duration::from_micros(us));
        }
        let at = |thousandths| found.latency_us(thousandths);
        assert_eq!((at(0), at(200), at(500), at(800)), (0.0, 10.0, 30.0, 40.0));
        assert_eq!(at(1000), (LATENCY_US_MAX - 1) as f64);
    }
}
