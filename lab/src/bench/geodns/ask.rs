//! Asks one server a list of questions, each until it is answered: what tests compare answers with.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::answer::{self, Answer};
use super::query::Query;

/// Every answer, in the order of the questions.
///
/// # Errors
/// One is not answered, however often it is asked.
pub fn all(to: SocketAddr, queries: &[Query]) -> anyhow::Result<Vec<Answer>> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(SILENCE_MAX))?;
    let mut answers = Vec::with_capacity(queries.len());
    for some in queries.chunks(AT_ONCE) {
        answers.extend(chunk(&socket, some)?);
    }
    Ok(answers)
}

/// The id of a message is the question's index. A late answer of the chunk before is that of another question, but ids come again
/// only once all of a chunk are answered, and what was sent twice is answered twice with the same.
fn chunk(socket: &UdpSocket, queries: &[Query]) -> anyhow::Result<Vec<Answer>> {
    let mut answers = vec![None; queries.len()];
    for round in 0..ROUNDS_MAX {
        drain(socket, round)?;
        for (index, query) in queries.iter().enumerate() {
            if answers.get(index).is_some_and(Option::is_none) {
                let mut message = query.write();
                if let Some(head) = message.first_chunk_mut() {
                    *head = u16::try_from(index).unwrap_or_default().to_be_bytes();
                }
                socket.send(&message)?;
            }
        }
        collect(socket, &mut answers);
        if let Some(whole) = answers.iter().copied().collect::<Option<Vec<_>>>() {
            return Ok(whole);
        }
    }
    let silent = answers.iter().position(Option::is_none);
    let silent = silent.and_then(|index| queries.get(index));
    ensure!(silent.is_none(), "no answer to {silent:?}");
    answers
        .into_iter()
        .collect::<Option<_>>()
        .context("answers")
}

fn collect(socket: &UdpSocket, answers: &mut [Option<Answer>]) {
    let mut buffer = [0; 1500];
    while answers.iter().any(Option::is_none) {
        let Ok(len) = socket.recv(&mut buffer) else {
            return;
        };
        let answer = buffer.get(..len).and_then(answer::read);
        let Some(answer) = answer else {
            continue;
        };
        if let Some(slot) = answers.get_mut(usize::from(answer.id)) {
            *slot = Some(answer);
        }
    }
}

/// Before questions are asked again, what comes late has come.
fn drain(socket: &UdpSocket, round: usize) -> anyhow::Result<()> {
    if round > 0 {
        socket.set_nonblocking(true)?;
        while socket.recv(&mut [0; 1500]).is_ok() {}
        socket.set_nonblocking(false)?;
    }
    Ok(())
}

/// Well within what a receive buffer of the kernel's default size holds.
const AT_ONCE: usize = 64;
const SILENCE_MAX: Duration = Duration::from_millis(300);
const ROUNDS_MAX: usize = 10;
