// A WHIP client (RFC 9725) over fetch, for browsers and Node alike.
// It knows HTTP and the few SDP lines that WHIP itself talks about; media is the caller's.

export class Whip {
  // POSTs the offer. Resolves to the session and its answer; throws with status and problem body otherwise.
  static async open(endpoint, offer) {
    const response = await fetch(endpoint, {
      method: 'POST',
      headers: { 'content-type': 'application/sdp' },
      body: offer,
    });
    const answer = await response.text();
    if (response.status !== 201) throw new Error(`POST ${response.status}: ${answer}`);
    const session = new Whip();
    session.url = new URL(response.headers.get('location'), endpoint).href;
    session.etag = response.headers.get('etag');
    session.name = response.headers.get('firsthop-session');
    return { session, answer };
  }

  // §4.3.3: sends our new ICE credentials, resolves to the fragment with the server's.
  async restartIce(localSdp) {
    const response = await this.#patch('"*"', 'application/trickle-ice-sdpfrag', fragment(localSdp));
    if (response.status !== 200) throw new Error(`PATCH restart ${response.status}: ${response.body}`);
    return response;
  }

  // §4.3.2: candidates one by one. The server is ICE-lite and ignores them, but must answer 204.
  async trickle(localSdp) {
    return this.#patch(this.etag, 'application/trickle-ice-sdpfrag', fragment(localSdp));
  }

  // firsthop's extension: a whole new offer.
  async renegotiate(offer) {
    const response = await this.#patch(this.etag, 'application/sdp', offer);
    if (response.status !== 200) throw new Error(`PATCH offer ${response.status}: ${response.body}`);
    return response;
  }

  async close() {
    return (await fetch(this.url, { method: 'DELETE' })).status;
  }

  async #patch(precondition, type, body) {
    const response = await fetch(this.url, {
      method: 'PATCH',
      headers: { 'content-type': type, 'if-match': precondition },
      body,
    });
    this.etag = response.headers.get('etag') ?? this.etag;
    return { status: response.status, etag: this.etag, body: await response.text() };
  }
}

// The value of the first `a=NAME:VALUE` line.
export function attribute(sdp, name) {
  return sdp.match(new RegExp(`^a=${name}:(.*?)\r?$`, 'm'))?.[1];
}

// `sdp` with the ICE credentials of `source` in every m-section: the remote description after an ICE restart.
export function withIceOf(source, sdp) {
  return ['ice-ufrag', 'ice-pwd'].reduce(
    (text, name) => text.replace(new RegExp(`^a=${name}:.*?(\r?)$`, 'gm'), `a=${name}:${attribute(source, name)}$1`),
    sdp,
  );
}

// RFC 8840 §9 fragment of a description: the first m-section's ICE lines, for the whole bundle.
function fragment(sdp) {
  const section = sdp.slice(sdp.indexOf('m='));
  const media = section.split(/\r?\n/, 1)[0];
  const lines = [`a=ice-ufrag:${attribute(sdp, 'ice-ufrag')}`, `a=ice-pwd:${attribute(sdp, 'ice-pwd')}`];
  return [...lines, media, `a=mid:${attribute(section, 'mid')}`, 'a=end-of-candidates', ''].join('\r\n');
}
