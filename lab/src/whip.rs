//! The client side of WHIP (RFC 9725), for the load client and for tests that speak HTTP themselves.

use anyhow::{Context, bail};

use crate::http::{self, Response};

/// Content type of offers and answers.
pub const SDP: &str = "application/sdp";
/// Content type of ICE fragments (RFC 8840 §9).
pub const FRAGMENT: &str = "application/trickle-ice-sdpfrag";

/// A session that a `POST` made.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its URL.
    pub url: String,
    /// Entity tag of its ICE session, with quotes.
    pub etag: String,
    /// `TRANSCEIVER/ID`, for people.
    pub name: String,
    /// The SDP answer.
    pub answer: String,
    bearer: Option<String>,
}

impl Session {
    /// `POST`s an offer.
    ///
    /// # Errors
    /// Anything but a complete `201`.
    pub fn open(endpoint: &str, offer: &str, bearer: Option<&str>) -> anyhow::Result<Self> {
        let response = post(endpoint, offer, bearer)?;
        if response.status != 201 {
            bail!(
                "POST answered {}: {}",
                response.status,
                response.body.trim()
            );
        }
        let field = |name: &str| {
            let value = response.header(name).map(str::to_owned);
            value.with_context(|| format!("the 201 has no {name} header"))
        };
        Ok(Self {
            url: resolve(endpoint, &field("location")?)?,
            etag: field("etag")?,
            name: field("firsthop-session")?,
            answer: response.body.clone(),
            bearer: bearer.map(str::to_owned),
        })
    }

    /// `PATCH`es with a precondition; the entity tag of the response replaces ours.
    ///
    /// # Errors
    /// The server is unreachable.
    pub fn patch(
        &mut self,
        precondition: &str,
        content_type: &str,
        body: &str,
    ) -> anyhow::Result<Response> {
        let headers = [("content-type", content_type), ("if-match", precondition)];
        let response = self.request("PATCH", &headers, body)?;
        if let Some(etag) = response.header("etag") {
            etag.clone_into(&mut self.etag);
        }
        Ok(response)
    }

    /// Ends the session.
    ///
    /// # Errors
    /// The server is unreachable, or does not say `200`.
    pub fn close(&self) -> anyhow::Result<()> {
        match self.request("DELETE", &[], "")?.status {
            200 => Ok(()),
            status => bail!("DELETE answered {status}"),
        }
    }

    /// Value of the first `a=NAME:VALUE` line of the answer.
    ///
    /// # Errors
    /// There is none.
    pub fn attribute(&self, name: &str) -> anyhow::Result<&str> {
        attribute(&self.answer, name).with_context(|| format!("the answer has no a={name}"))
    }

    fn request(
        &self,
        method: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> anyhow::Result<Response> {
        let authorization = self.bearer.as_ref().map(|token| format!("Bearer {token}"));
        let mut headers = headers.to_vec();
        headers.extend(
            authorization
                .iter()
                .map(|value| ("authorization", value.as_str())),
        );
        http::send(method, &self.url, &headers, body.as_bytes())
    }
}

/// `POST`s an offer and returns whatever comes back.
///
/// # Errors
/// The server is unreachable.
pub fn post(endpoint: &str, offer: &str, bearer: Option<&str>) -> anyhow::Result<Response> {
    let authorization = bearer.map(|token| format!("Bearer {token}"));
    let mut headers = vec![("content-type", SDP)];
    headers.extend(
        authorization
            .iter()
            .map(|value| ("authorization", value.as_str())),
    );
    http::send("POST", endpoint, &headers, offer.as_bytes())
}

/// Value of the first `a=NAME:VALUE` line.
#[must_use]
pub fn attribute<'a>(sdp: &'a str, name: &str) -> Option<&'a str> {
    sdp.lines()
        .find_map(|line| {
            line.strip_prefix("a=")?
                .strip_prefix(name)?
                .strip_prefix(':')
        })
        .map(str::trim_end)
}

/// `Location` may be a path (RFC 9110 §10.2.2).
fn resolve(endpoint: &str, location: &str) -> anyhow::Result<String> {
    if location.starts_with("http://") {
        return Ok(location.to_owned());
    }
    let host = endpoint
        .split('/')
        .nth(2)
        .context("the endpoint has no host")?;
    Ok(format!("http://{host}{location}"))
}

/// An offer of one Opus stream and one data channel, as a browser would make it, with a fingerprint of nobody's
/// certificate: enough for a session and its ICE, never for DTLS.
#[must_use]
pub fn bare_offer() -> String {
    let fingerprint = ["AB"; 32].join(":");
    [
        "v=0",
        "o=- 4611731400430051336 2 IN IP4 127.0.0.1",
        "s=-",
        "t=0 0",
        "a=group:BUNDLE 0 1",
        "a=msid-semantic: WMS",
        "m=audio 9 UDP/TLS/RTP/SAVPF 111",
        "c=IN IP4 0.0.0.0",
        "a=rtcp:9 IN IP4 0.0.0.0",
        "a=ice-ufrag:clnt",
        "a=ice-pwd:clientclientclientclient",
        "a=ice-options:trickle",
        &format!("a=fingerprint:sha-256 {fingerprint}"),
        "a=setup:actpass",
        "a=mid:0",
        "a=sendrecv",
        "a=rtcp-mux",
        "a=rtpmap:111 opus/48000/2",
        "a=fmtp:111 minptime=10;useinbandfec=1",
        "a=ssrc:1001 cname:client",
        "m=application 9 UDP/DTLS/SCTP webrtc-datachannel",
        "c=IN IP4 0.0.0.0",
        "a=ice-ufrag:clnt",
        "a=ice-pwd:clientclientclientclient",
        "a=ice-options:trickle",
        &format!("a=fingerprint:sha-256 {fingerprint}"),
        "a=setup:actpass",
        "a=mid:1",
        "a=sctp-port:5000",
        "a=max-message-size:262144",
        "",
    ]
    .join("\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_and_locations() {
        assert_eq!(attribute(&bare_offer(), "ice-ufrag"), Some("clnt"));
        assert_eq!(attribute(&bare_offer(), "nothing"), None);
        let resolved = resolve("http://127.0.0.1:1/whip?pop=a", "/whip/x").unwrap();
        assert_eq!(resolved, "http://127.0.0.1:1/whip/x");
    }
}
