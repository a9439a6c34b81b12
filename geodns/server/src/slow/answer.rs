//! From the bytes of a query to those of its answer: any query, over any transport.
//!
//! What is said is the zone's ([`Content`]); who the client is and which selection it has is told by the same tables the fast path
//! looks at.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use geodns_proto::cookie::{self, Secrets, Standing};
use geodns_proto::ecs;
use geodns_proto::query::{Cookie, Edns, HEADER_BYTES};
use geodns_proto::render::AnswerId;
use geodns_proto::respond::{ANSWER_BYTES_MAX, ANSWER_BYTES_MIN, NSID_BYTES_MAX};
use geodns_proto::select::{Locate, Place, Served};
use geodns_proto::{Answer, Chaos, Content, Question, Rcode, Sections, Signed};

use super::message::{self, Head, Opt, Reply};
use super::odd::{self, Asked, Refusal};

/// What slow answers are made from, consistent in itself. Immutable.
#[derive(Clone)]
pub struct Snapshot<L> {
    /// Tables and selection.
    pub served: Served<L>,
    /// The zone, and the records of each selection.
    pub content: Arc<Content>,
    /// What cookies are made with.
    pub secrets: Secrets,
}

/// The snapshot of the moment.
pub type Current<L> = Arc<ArcSwap<Snapshot<L>>>;

/// Says in a few lines why a client is sent where it is sent; the prefix is the client's.
pub type Explain = Arc<dyn Fn(IpAddr, u8) -> Vec<String> + Send + Sync>;

/// How a query came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A datagram, answered in one.
    Udp,
    /// TCP in the open.
    Tcp,
    /// DNS over TLS (RFC 7858).
    Tls,
    /// DNS over HTTPS (RFC 8484).
    Https,
}

/// Answers any query.
pub struct Answerer<L> {
    current: Current<L>,
    node: String,
    explain: Explain,
}

/// Lines of an explanation at most, and bytes of each.
const EXPLAIN_LINES_MAX: usize = 32;

/// The name of the program, for those who ask what runs here; its version is nobody's business.
const VERSION: &str = "firsthop";

/// Longest message over a stream.
const STREAM_BYTES_MAX: usize = 65_535;

/// Option code of the server's name (RFC 5001).
const NSID: u16 = 3;

/// Option code of padding (RFC 7830).
const PADDING: u16 = 12;
/// What answers are padded to, to a client that pads (RFC 8467 §4.1).
const PADDING_BLOCK_BYTES: usize = 468;

impl<L: Locate> Answerer<L> {
    /// `node` is the name that NSID and `id.server` tell.
    #[must_use]
    pub fn new(current: Current<L>, node: &str, explain: Explain) -> Self {
        let node = node.get(..NSID_BYTES_MAX).unwrap_or(node).to_owned();
        Self {
            current,
            node,
            explain,
        }
    }

    /// The answer to `packet`; `None` when it deserves none.
    #[must_use]
    pub fn answer(
        &self,
        packet: &[u8],
        source: SocketAddr,
        transport: Transport,
        unix_s: u32,
    ) -> Option<Vec<u8>> {
        self.reply(packet, source, transport, unix_s)
            .map(|reply| reply.bytes)
    }

    pub(super) fn reply(
        &self,
        packet: &[u8],
        source: SocketAddr,
        transport: Transport,
        unix_s: u32,
    ) -> Option<Reply> {
        let source = source.ip().to_canonical();
        let current = self.current.load();
        let asked = match odd::read(packet) {
            Ok(asked) => asked,
            Err(refusal) => {
                let judge = |cookie: &Cookie| current.secrets.judge(cookie, source, unix_s);
                return refuse(packet, refusal, judge);
            }
        };
        let one = One {
            answerer: self,
            packet,
            source,
            transport,
            unix_s,
            asked,
        };
        one.reply(&current)
    }
}

/// What is said to a packet that is no question. Who sends a cookie gets one back, and only who asks for nothing else is told that it
/// is wrong (RFC 7873 §5.4).
pub(super) fn refuse(
    packet: &[u8],
    refusal: Refusal,
    judge: impl FnOnce(&Cookie) -> (Standing, [u8; 16]),
) -> Option<Reply> {
    let (rcode, question, edns) = match refusal {
        Refusal::Silent => return None,
        Refusal::CookieAlone(edns) => (Rcode::NoError, false, Some(edns)),
        Refusal::Code {
            rcode,
            question,
            edns,
        } => (rcode, question, edns),
    };
    let cookie = edns.and_then(|edns| edns.cookie);
    let judged = cookie.map(|cookie| (cookie.client, judge(&cookie)));
    let rcode = match (rcode, judged) {
        (Rcode::NoError, Some((_, (Standing::Bad, _)))) => Rcode::BadCookie,
        (rcode, _) => rcode,
    };
    let options = judged.map(|(client, (_, server))| option_of(client, server));
    let opt = edns.map(|edns| Opt {
        dnssec_ok: edns.dnssec_ok,
        options: options.into_iter().collect(),
    });
    let head = Head {
        rcode: rcode.code(),
        question,
        opt,
        ..Head::default()
    };
    let reply = message::write(packet, head, &Sections::default(), ANSWER_BYTES_MIN)?;
    Some(Reply {
        is_private: judged.is_some(),
        ..reply
    })
}

/// The cookie option of an answer.
fn option_of(client: [u8; 8], server: [u8; 16]) -> (u16, Vec<u8>) {
    (cookie::CODE, [&client[..], &server].concat())
}

/// One question on its way.
struct One<'a, L> {
    answerer: &'a Answerer<L>,
    packet: &'a [u8],
    source: IpAddr,
    transport: Transport,
    unix_s: u32,
    asked: Asked,
}

impl<L: Locate> One<'_, L> {
    fn reply(&self, snapshot: &Snapshot<L>) -> Option<Reply> {
        let edns = self.asked.query.edns;
        if edns.is_some_and(|edns| edns.version != 0) {
            let head = Head {
                rcode: Rcode::BadVers.code(),
                question: true,
                opt: Some(self.opt(Vec::new())),
                ..Head::default()
            };
            return self.write(head, &Sections::default());
        }
        let len = usize::from(self.asked.query.name_len);
        let name = self.packet.get(HEADER_BYTES..)?.get(..len)?;
        let name = name.to_ascii_lowercase();
        let question = Question {
            name: &name,
            rtype: self.asked.rtype,
            class: self.asked.class,
        };
        let answer = snapshot.content.zone().answer(&question, self.source);
        let chosen = self.choose(answer, snapshot);
        let (selection, scope) = chosen.unwrap_or((AnswerId(0), 0));
        let signed = edns.is_some_and(|edns| edns.dnssec_ok);
        let sections = snapshot.content.sections(answer, &name, selection, signed);
        let head = Head {
            rcode: answer.rcode().code(),
            authoritative: answer.is_authoritative(),
            question: true,
            texts: self.texts(answer),
            opt: edns.map(|edns| self.opt(self.options(edns, scope, &snapshot.secrets))),
        };
        let reply = self.write(head, &sections)?;
        let is_own = edns.is_some_and(|edns| edns.subnet.is_some() || edns.cookie.is_some());
        Some(Reply {
            // It depends on who asks, or for whom, or carries what only the asker may have.
            is_private: is_own || chosen.is_some(),
            ..reply
        })
    }

    /// Whom the answer is for: a client's subnet, unless the client does not want to be known (RFC 7871 §7.1.2).
    fn client(&self) -> (IpAddr, u8) {
        let subnet = self.asked.query.edns.and_then(|edns| edns.subnet);
        match subnet.filter(|subnet| !subnet.is_opt_out()) {
            Some(subnet) => (subnet.address(), subnet.source()),
            None => (self.source, if self.source.is_ipv4() { 32 } else { 128 }),
        }
    }

    /// The selection, and the scope of the answer. `None`: it is the same for everybody.
    fn choose(&self, answer: Answer, snapshot: &Snapshot<L>) -> Option<(AnswerId, u8)> {
        match answer {
            Answer::Steered(_) | Answer::Signatures(Signed::Steered) => {
                let (client, _) = self.client();
                let tables = &*snapshot.served.tables;
                let place: Place = match client {
                    IpAddr::V4(v4) => tables.locate_v4(v4.to_bits()),
                    IpAddr::V6(v6) => tables.locate_v6(v6.to_bits()),
                };
                Some(snapshot.served.selection.answer(place, client, tables))
            }
            // What an explanation says is the client's alone.
            Answer::Explain => Some((AnswerId(0), self.client().1)),
            Answer::Set(_)
            | Answer::Signatures(Signed::Set(_))
            | Answer::Chaos(_)
            | Answer::NoData(_)
            | Answer::NoName
            | Answer::CutNoData
            | Answer::CutNoName
            | Answer::Refused
            | Answer::NotImplemented
            | Answer::FormErr => None,
        }
    }

    fn texts(&self, answer: Answer) -> Vec<String> {
        match answer {
            Answer::Explain => {
                let (client, prefix) = self.client();
                let mut lines = (self.answerer.explain)(client, prefix);
                lines.truncate(EXPLAIN_LINES_MAX);
                lines
            }
            Answer::Chaos(Chaos::Identity) => vec![self.answerer.node.clone()],
            Answer::Chaos(Chaos::Version) => vec![VERSION.to_owned()],
            Answer::Set(_)
            | Answer::Steered(_)
            | Answer::Signatures(_)
            | Answer::NoData(_)
            | Answer::NoName
            | Answer::CutNoData
            | Answer::CutNoName
            | Answer::Refused
            | Answer::NotImplemented
            | Answer::FormErr => Vec::new(),
        }
    }

    fn options(&self, edns: Edns, scope: u8, secrets: &Secrets) -> Vec<(u16, Vec<u8>)> {
        let mut options = Vec::new();
        let node = &self.answerer.node;
        if edns.nsid && !node.is_empty() {
            options.push((NSID, node.as_bytes().to_vec()));
        }
        if let Some(subnet) = edns.subnet {
            let scope = if subnet.is_opt_out() { 0 } else { scope };
            let data = subnet.option(scope);
            let data = data.get(..subnet.option_len()).unwrap_or(&data);
            options.push((ecs::CODE, data.to_vec()));
        }
        if let Some(cookie) = edns.cookie {
            let (_, server) = secrets.judge(&cookie, self.source, self.unix_s);
            options.push(option_of(cookie.client, server));
        }
        options
    }

    fn opt(&self, options: Vec<(u16, Vec<u8>)>) -> Opt {
        let edns = self.asked.query.edns;
        Opt {
            dnssec_ok: edns.is_some_and(|edns| edns.dnssec_ok),
            options,
        }
    }

    fn write(&self, head: Head, sections: &Sections<'_>) -> Option<Reply> {
        let len_max = match self.transport {
            Transport::Udp => self.asked.query.edns.map_or(ANSWER_BYTES_MIN, |edns| {
                usize::from(edns.payload_max).clamp(ANSWER_BYTES_MIN, ANSWER_BYTES_MAX)
            }),
            Transport::Tcp | Transport::Tls | Transport::Https => STREAM_BYTES_MAX,
        };
        let reply = message::write(self.packet, head.clone(), sections, len_max)?;
        match (self.padding(reply.bytes.len()), head.opt) {
            (Some(len), Some(mut opt)) => {
                opt.options.push((PADDING, vec![0; len]));
                let head = Head {
                    opt: Some(opt),
                    ..head
                };
                message::write(self.packet, head, sections, len_max)
            }
            (Some(_) | None, Some(_) | None) => Some(reply),
        }
    }

    /// Bytes of padding in an answer of `len` bytes without; `None`: the client did not pad, or everybody on the way reads along.
    fn padding(&self, len: usize) -> Option<usize> {
        let encrypted = match self.transport {
            Transport::Udp | Transport::Tcp => false,
            Transport::Tls | Transport::Https => true,
        };
        if !encrypted || !self.asked.padded {
            return None;
        }
        let with_head = len + 4;
        Some(with_head.next_multiple_of(PADDING_BLOCK_BYTES) - with_head)
    }
}
