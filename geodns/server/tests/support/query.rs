//! Queries as bytes.

/// A query with an OPT record that has these options.
pub(crate) fn query(id: u16, name: &str, qtype: u16, options: &[u8]) -> Vec<u8> {
    let mut packet = id.to_be_bytes().to_vec();
    packet.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
    for label in name.split('.') {
        packet.push(u8::try_from(label.len()).unwrap());
        packet.extend(label.as_bytes());
    }
    packet.push(0);
    packet.extend(qtype.to_be_bytes());
    packet.extend([0, 1, 0, 0, 41, 4, 208, 0, 0, 0, 0]);
    packet.extend(u16::try_from(options.len()).unwrap().to_be_bytes());
    packet.extend(options);
    packet
}
