//! Batches on their way to Redis and back: lookups, and writes.

use std::time::{Duration, Instant};

use pop_proto::Answer;
use redis::{Cmd, Value};
use runtime::clock;
use tokio::time::timeout;
use wire::hint::Minute;

use crate::flow_cache::connection::{Connection, PATIENCE, Said};
use crate::flow_cache::entry::{Entries, Found, best};
use crate::flow_cache::health::{Outcome, Trouble};
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
        Err(_) => unavailable(asks, Outcome::Timeout),
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
    for (write, span) in writes.iter().zip(spans) {
        let said = said.get(span).unwrap_or_default();
        outcomes.push((*write, outcome_of(said)));
        if write.what == What::Forget {
            let names_owner = |index: usize| match said.get(index) {
                Some(Ok(Value::BulkString(value))) => {
                    matches!(entries.open(write.place, value, now), Found::Record(record) if record.owner == write.owner)
                }
                Some(_) | None => false,
            };
            deletions.extend(entries.deletions(write.place, names_owner));
        }
    }
    if !deletions.is_empty()
        && let Err(trouble) = run(&mut connection, &deletions, start).await
    {
        return failed(writes, trouble);
    }
    Written {
        outcomes,
        result: Ok(()),
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
            .map(|write| (write, Outcome::Timeout))
            .collect(),
        result: Err(trouble),
    }
}

/// Shows that Redis is still there when nothing else does.
pub(crate) async fn ping(mut connection: Connection) -> Written {
    let ping = redis::cmd("PING");
    let result = run(&mut connection, &[ping], clock::now()).await;
    Written {
        outcomes: Vec::new(),
        result: result.map(|_| ()),
    }
}
