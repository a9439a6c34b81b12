//! Just enough of DNS to ask odd questions and to read what comes back. Not a resolver: names are skipped, not decoded.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use anyhow::{Context as _, ensure};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// A query to be.
#[derive(Clone, Debug)]
pub struct Query {
    /// Flags of the header, with the opcode.
    pub flags: u16,
    /// Name asked for.
    pub name: String,
    /// Type asked for.
    pub rtype: u16,
    /// Class asked for.
    pub class: u16,
    /// The OPT record, if there is one.
    pub edns: Option<Edns>,
}

/// An OPT record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edns {
    /// UDP payload.
    pub payload: u16,
    /// Upper bits of the response code.
    pub code: u8,
    /// Version.
    pub version: u8,
    /// DO and the bits without a meaning.
    pub flags: u16,
    /// Codes and data.
    pub options: Vec<(u16, Vec<u8>)>,
}

/// An answer, as far as anybody here cares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Flags of the header.
    pub flags: u16,
    /// Response code with its upper bits.
    pub code: u16,
    /// Questions echoed.
    pub questions: u16,
    /// Types of the records of each section, without OPT.
    pub sections: [Vec<u16>; 3],
    /// The OPT record.
    pub edns: Option<Edns>,
    /// Bytes of the message.
    pub len: usize,
}

impl Default for Edns {
    fn default() -> Self {
        Self {
            payload: 1_232,
            code: 0,
            version: 0,
            flags: 0,
            options: Vec::new(),
        }
    }
}

impl Query {
    /// For `name`, without OPT.
    #[must_use]
    pub fn new(name: &str, rtype: u16) -> Self {
        Self {
            flags: 0,
            name: name.to_owned(),
            rtype,
            class: 1,
            edns: None,
        }
    }

    /// In wire form.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let additional = u16::from(self.edns.is_some());
        for number in [ID, self.flags, 1, 0, 0, additional] {
            out.extend(number.to_be_bytes());
        }
        for label in self.name.split('.').filter(|label| !label.is_empty()) {
            out.push(u8::try_from(label.len()).unwrap_or(u8::MAX));
            out.extend(label.bytes());
        }
        out.push(0);
        out.extend(self.rtype.to_be_bytes());
        out.extend(self.class.to_be_bytes());
        if let Some(edns) = &self.edns {
            edns.write(&mut out);
        }
        out
    }

    /// Asks over UDP.
    ///
    /// # Errors
    /// No answer, or one that cannot be read.
    pub fn udp(&self, server: SocketAddr) -> anyhow::Result<Answer> {
        let answer = udp(server, &self.bytes())?.context("no answer")?;
        Answer::read(&answer)
    }

    /// Asks over TCP.
    ///
    /// # Errors
    /// No answer, or one that cannot be read.
    pub fn tcp(&self, server: SocketAddr) -> anyhow::Result<Answer> {
        let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&framed(&self.bytes()))?;
        Answer::read(&next(&mut stream)?)
    }
}

/// The id of every query.
const ID: u16 = 0x4242;

/// Sends a datagram, and waits for one. `None`: none came.
///
/// # Errors
/// There is no socket to be had.
pub fn udp(server: SocketAddr, packet: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
    let any = if server.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(packet)?;
    let mut buffer = [0; 4_096];
    let len = socket.recv(&mut buffer).ok();
    Ok(len.and_then(|len| buffer.get(..len)).map(<[u8]>::to_vec))
}

/// A message behind its length.
#[must_use]
pub fn framed(message: &[u8]) -> Vec<u8> {
    let len = u16::try_from(message.len()).unwrap_or(u16::MAX);
    [&len.to_be_bytes(), message].concat()
}

/// The next message of a stream.
///
/// # Errors
/// It ends.
pub fn next(stream: &mut TcpStream) -> anyhow::Result<Vec<u8>> {
    let mut len = [0; 2];
    stream.read_exact(&mut len).context("length")?;
    let mut message = vec![0; u16::from_be_bytes(len).into()];
    stream.read_exact(&mut message).context("message")?;
    Ok(message)
}

impl Edns {
    fn write(&self, out: &mut Vec<u8>) {
        let mut data = Vec::new();
        for (code, option) in &self.options {
            data.extend(code.to_be_bytes());
            data.extend(
                u16::try_from(option.len())
                    .unwrap_or(u16::MAX)
                    .to_be_bytes(),
            );
            data.extend(option);
        }
        out.extend([0, 0, 41]);
        out.extend(self.payload.to_be_bytes());
        out.extend([self.code, self.version]);
        out.extend(self.flags.to_be_bytes());
        out.extend(u16::try_from(data.len()).unwrap_or(u16::MAX).to_be_bytes());
        out.extend(data);
    }
}

impl Answer {
    /// Reads a whole message.
    ///
    /// # Errors
    /// It is not one, is no response, or has another id.
    pub fn read(bytes: &[u8]) -> anyhow::Result<Self> {
        let mut at = Reader { bytes, at: 0 };
        ensure!(at.u16()? == ID, "another id");
        let flags = at.u16()?;
        ensure!(flags & 0x8000 != 0, "no response");
        let counts = [at.u16()?, at.u16()?, at.u16()?, at.u16()?];
        let [questions, answers, authority, additional] = counts;
        for _ in 0..questions {
            at.name()?;
            at.take(4)?;
        }
        let mut edns = None;
        let mut sections = [Vec::new(), Vec::new(), Vec::new()];
        for (section, count) in sections.iter_mut().zip([answers, authority, additional]) {
            for _ in 0..count {
                at.record(section, &mut edns)?;
            }
        }
        ensure!(at.at == bytes.len(), "bytes behind the message");
        let upper = edns.as_ref().map_or(0, |edns| u16::from(edns.code));
        Ok(Self {
            flags,
            code: upper << 4 | flags & 0x0f,
            questions,
            sections,
            edns,
            len: bytes.len(),
        })
    }

    /// Whether it is authoritative.
    #[must_use]
    pub const fn is_authoritative(&self) -> bool {
        self.flags & 0x0400 != 0
    }

    /// Whether it was cut.
    #[must_use]
    pub const fn is_truncated(&self) -> bool {
        self.flags & 0x0200 != 0
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> anyhow::Result<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at + len);
        self.at += len;
        taken.context("the message ends too early")
    }

    fn u8(&mut self) -> anyhow::Result<u8> {
        self.take(1).map(|bytes| bytes.iter().sum())
    }

    fn u16(&mut self) -> anyhow::Result<u16> {
        Ok(u16::from(self.u8()?) << 8 | u16::from(self.u8()?))
    }

    fn name(&mut self) -> anyhow::Result<()> {
        loop {
            match self.u8()? {
                0 => return Ok(()),
                0xc0.. => return self.take(1).map(drop),
                len => self.take(len.into())?,
            };
        }
    }

    fn record(&mut self, section: &mut Vec<u16>, edns: &mut Option<Edns>) -> anyhow::Result<()> {
        self.name()?;
        let (rtype, class) = (self.u16()?, self.u16()?);
        let (code, version, flags) = (self.u8()?, self.u8()?, self.u16()?);
        let len = self.u16()?;
        let data = self.take(len.into())?;
        if rtype != 41 {
            section.push(rtype);
            return Ok(());
        }
        ensure!(edns.is_none(), "two OPT records");
        let mut options = Vec::new();
        let mut at = Reader { bytes: data, at: 0 };
        while at.at < data.len() {
            let (code, len) = (at.u16()?, at.u16()?);
            options.push((code, at.take(len.into())?.to_vec()));
        }
        *edns = Some(Edns {
            payload: class,
            code,
            version,
            flags,
            options,
        });
        Ok(())
    }
}
