//! Batches on their way to Redis and back: lookups, and writes.

use std::time::{Duration, Instant};

use pop_proto::Answer;
use runtime::clock;
use runtime::redis_client::{Cmd, Connection, PATIENCE, Said, Trouble, Value, cmd};
use tokio::time::timeout;
use wire::hint::Minute;

use crate::flow_cache::entry::{Entries, Found, best};
use crate::flow_cache::health::Outcome;
use crate::flow_cache::queues::{Ask, What, Write};

/// Questions in one batch.
pub(crate) const LOOKUPS_MAX: usize = 128;
/// Stores and forgets in one batch.
pub(crate) const WRITES_MAX: usize = 256;

/// A batch of lookups that has come back.
pub(crate) struct Looked {
    pub(crate) answers: Vec<(Ask, Answer, Outcome)>,
    pub(crate) took: Duration,
    pub(crate) result: Result<(), Trouble>,
}

/// Looks clients up; what has not come after `limit` is unavailable.
pub(crate) async fn look_up(
    mut connection: Connection,
    entries: Entries,
    asks: Vec<Ask>,
    limit: Duration,
) -> Looked {
    let start = clock::now();
    let reads: Vec<Vec<Cmd>> = asks.iter().map(|ask| entries.reads(ask.place)).collect();
    let commands: Vec<Cmd> = reads.iter().flatten().cloned().collect();
    let result = match timeout(limit, connection.run(&commands)).await {
        Ok(result) => result,
        Err(_) => Err(Trouble::Timeout),
    };
    let took = clock::now().saturating_duration_since(start);
    let answers = match &result {
        Ok(said) => {
            let now = Minute::from_unix_s(clock::unix_s());
            let mut said = said.iter();
            let each = asks.into_iter().zip(&reads).map(|(ask, reads)| {
                let values: Vec<&Said> = said.by_ref().take(reads.len()).collect();
                let (answer, outcome) = answer_of(&entries, ask, &values, now);
                (ask, answer, outcome)
            });
            each.collect()
        }
        Err(trouble) => unavailable(asks, Outcome::of_batch(*trouble)),
    };
    Looked {
        answers,
        took,
        result: result.map(|_| ()),
    }
}

fn unavailable(asks: Vec<Ask>, outcome: Outcome) -> Vec<(Ask, Answer, Outcome)> {
    let each = asks.into_iter();
    each.map(|ask| (ask, Answer::Unavailable, outcome))
        .collect()
}

fn answer_of(entries: &Entries, ask: Ask, said: &[&Said], now: Minute) -> (Answer, Outcome) {
    let found = said.iter().filter_map(|said| match said {
        Ok(Value::BulkString(value)) => Some(entries.open(ask.place, value, now)),
        Ok(Value::Nil) => Some(Found::Nothing),
        Ok(_) => Some(Found::Bad),
        Err(_) => None,
    });
    let refused = said.iter().find_map(|said| said.as_ref().err());
    match (best(found, now), refused) {
        ((answer @ Answer::Owner(_), _), _) => (answer, Outcome::Ok),
        ((_, _), Some(refusal)) => (Answer::Unavailable, Outcome::Refused(*refusal)),
        ((answer, true), None) => (answer, Outcome::BadValue),
        ((answer, false), None) => (answer, Outcome::Miss),
    }
}

/// A batch of writes that has come back.
pub(crate) struct Written {
    pub(crate) outcomes: Vec<(Write, Outcome)>,
    pub(crate) result: Result<(), Trouble>,
}

/// Writes a batch in which no flow comes twice, so that the order within it does not matter. Entries are deleted only where they name
/// the owner whose session ended: another PoP may have stored the next session of this client.
pub(crate) async fn write(
    mut connection: Connection,
    entries: Entries,
    writes: Vec<Write>,
) -> Written {
    let start = clock::now();
    let (first, spans) = first_phase(&entries, &writes);
    let said = match run(&mut connection, &first, start).await {
        Ok(said) => said,
        Err(trouble) => return failed(writes, trouble),
    };
    let now = Minute::from_unix_s(clock::unix_s());
    let mut outcomes = Vec::with_capacity(writes.len());
    let mut deletions: Vec<Cmd> = Vec::new();
    let mut deleting = Vec::new();
    for (write, span) in writes.iter().zip(spans) {
        let said = said.get(span).unwrap_or_default();
        outcomes.push((*write, outcome_of(said)));
        if write.what == What::Forget {
            let values: Vec<_> = said
                .iter()
                .map(|said| value_of(&entries, write, said, now))
                .collect();
            let from = deletions.len();
            deletions.extend(entries.deletions(write.place, &values));
            deleting.push((outcomes.len() - 1, from..deletions.len()));
        }
    }
    if !deletions.is_empty() {
        match run(&mut connection, &deletions, start).await {
            Ok(said) => note_refused(&mut outcomes, deleting, &said),
            Err(trouble) => return failed(writes, trouble),
        }
    }
    Written {
        outcomes,
        result: Ok(()),
    }
}

/// The value that was read, if it names the owner that is to be forgotten.
fn value_of<'a>(entries: &Entries, write: &Write, said: &'a Said, now: Minute) -> Option<&'a [u8]> {
    let Ok(Value::BulkString(value)) = said else {
        return None;
    };
    match entries.open(write.place, value, now) {
        Found::Record(record) if record.owner == write.owner => Some(value),
        Found::Record(_) | Found::Bad | Found::Nothing => None,
    }
}

/// A deletion that was refused is what became of its forget.
fn note_refused(
    outcomes: &mut [(Write, Outcome)],
    deleting: Vec<(usize, std::ops::Range<usize>)>,
    said: &[Said],
) {
    for (index, span) in deleting {
        let outcome = outcome_of(said.get(span).unwrap_or_default());
        if outcome != Outcome::Ok
            && let Some((_, own)) = outcomes.get_mut(index)
        {
            *own = outcome;
        }
    }
}

/// Stores, and the reads that precede deletions, with the part of the answers that belongs to each write.
fn first_phase(entries: &Entries, writes: &[Write]) -> (Vec<Cmd>, Vec<std::ops::Range<usize>>) {
    let mut commands = Vec::with_capacity(writes.len());
    let mut spans = Vec::with_capacity(writes.len());
    for write in writes {
        let from = commands.len();
        match write.what {
            What::Store => commands.extend(entries.store(write.place, write.owner)),
            What::Forget => commands.extend(entries.reads(write.place)),
        }
        spans.push(from..commands.len());
    }
    (commands, spans)
}

async fn run(
    connection: &mut Connection,
    commands: &[Cmd],
    start: Instant,
) -> Result<Vec<Said>, Trouble> {
    let left = PATIENCE.saturating_sub(clock::now().saturating_duration_since(start));
    match timeout(left, connection.run(commands)).await {
        Ok(result) => result,
        Err(_) => Err(Trouble::Timeout),
    }
}

fn outcome_of(said: &[Said]) -> Outcome {
    let refused = said.iter().find_map(|said| said.as_ref().err());
    refused.map_or(Outcome::Ok, |refusal| Outcome::Refused(*refusal))
}

fn failed(writes: Vec<Write>, trouble: Trouble) -> Written {
    Written {
        outcomes: writes
            .into_iter()
            .map(|write| (write, Outcome::of_batch(trouble)))
            .collect(),
        result: Err(trouble),
    }
}

/// Shows that Redis is still there when nothing else does.
pub(crate) async fn ping(mut connection: Connection) -> Written {
    let ping = cmd("PING");
    let result = run(&mut connection, &[ping], clock::now()).await;
    Written {
        outcomes: Vec::new(),
        result: result.map(|_| ()),
    }
}

#[cfg(test)]
#[path = "../../../../runtime/tests/support/redis_server.rs"]
mod redis_server;

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::Arc;

    use super::redis_server::RedisServer;
    use super::*;
    use crate::flow_cache::queues::Place;
    use runtime::redis_client::Refusal;
    use wire::flow_record::VALUE_LEN;
    use wire::hint::{KeyId, KeyRing};
    use wire::{ClientAddr, Owner, RegionId, TransceiverId};

    fn write(what: What) -> Write {
        Write {
            what,
            place: Place {
                client: ClientAddr::new(([192, 0, 2, 1], 9).into()),
                ingress: 0,
            },
            owner: Owner {
                region: RegionId(1),
                transceiver: TransceiverId(1),
            },
            said: clock::now(),
        }
    }

    #[test]
    fn what_became_of_a_failed_batch_is_said_as_it_is() {
        let became = |trouble| failed(vec![write(What::Forget)], trouble).outcomes[0].1;
        assert_eq!(became(Trouble::Timeout), Outcome::Timeout);
        assert_eq!(became(Trouble::Closed), Outcome::Refused(Refusal::Lost));
        assert_eq!(became(Trouble::Auth), Outcome::Refused(Refusal::Denied));
        for trouble in Trouble::ALL {
            assert!(became(trouble).may_be_undone(), "{trouble:?}");
        }
    }

    /// Between the read and the deletion another PoP stores the next session of this client.
    #[test]
    fn only_what_was_read_is_deleted() {
        let redis = RedisServer::start(&[]);
        let url = redis.url();
        let address = url.strip_prefix("redis://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let mut run = |command: Option<&Cmd>| {
            let command = command.unwrap().get_packed_command();
            stream.write_all(&command).unwrap();
            let mut answer = vec![0; 1024];
            let len = stream.read(&mut answer).unwrap();
            answer.truncate(len);
            answer
        };
        let ingress = SocketAddr::from(([192, 0, 2, 9], 3478));
        let keys = KeyRing::single(KeyId::new(1).unwrap(), [7; 16]);
        let entries = Entries::of(Arc::new(keys), [ingress].into(), Duration::from_secs(60));
        let Write { place, owner, .. } = write(What::Forget);
        let next = Owner {
            transceiver: TransceiverId(2),
            ..owner
        };
        for (stored, left) in [(owner, "0"), (next, "1")] {
            run(entries.store(place, owner).as_ref());
            let read = run(entries.reads(place).first());
            let value = read.strip_prefix(b"$17\r\n").unwrap().get(..VALUE_LEN);
            run(entries.store(place, stored).as_ref());
            run(entries.deletions(place, &[value]).first());
            assert_eq!(redis.cli(&["DBSIZE"]).trim(), left);
        }
    }

    #[test]
    fn a_refused_deletion_is_no_success() {
        let mut outcomes = vec![
            (write(What::Store), Outcome::Ok),
            (write(What::Forget), Outcome::Ok),
            (write(What::Forget), Outcome::Refused(Refusal::WrongType)),
            (write(What::Forget), Outcome::Ok),
        ];
        let said = [Ok(Value::Int(1)), Err(Refusal::ReadOnly), Ok(Value::Int(1))];
        note_refused(&mut outcomes, vec![(1, 0..2), (2, 2..2), (3, 2..3)], &said);
        let outcomes: Vec<_> = outcomes.iter().map(|(_, outcome)| *outcome).collect();
        assert_eq!(
            outcomes,
            [
                Outcome::Ok,
                Outcome::Refused(Refusal::ReadOnly),
                Outcome::Refused(Refusal::WrongType),
                Outcome::Ok
            ]
        );
    }
}
