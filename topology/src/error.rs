//! What can be wrong with a topology file, one line each: `FILE:LINE: field.path: message`.
//!
//! [`Problem`] is the closed list of kinds. Where in the text a problem lies is found by `lines`, not here.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

/// Errors one load reports at most; the last line says so when there were more.
pub const ERRORS_MAX: usize = 100;

/// Everything found wrong with one file, in the order of its lines. Prints one line per error.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadErrors {
    errors: Vec<LoadError>,
}

/// One error with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadError {
    /// The name the caller gave the file.
    pub file_name: String,
    /// Line in the file, from 1.
    pub line: usize,
    /// Path of the field, as in `regions[0].core_relays[1].address`.
    pub field: String,
    /// What is wrong.
    pub problem: Problem,
}

/// The kinds of error.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    // Shape: the text is not a topology at all.
    /// Larger than [`crate::TEXT_BYTES_MAX`].
    #[error("{found} bytes, at most {max} are read")]
    TooLarge {
        /// Length of the text.
        found: usize,
        /// The bound.
        max: usize,
    },
    /// A line longer than [`crate::LINE_BYTES_MAX`].
    #[error("line of {found} bytes, at most {max} are read")]
    LongLine {
        /// Length of the line.
        found: usize,
        /// The bound.
        max: usize,
    },
    /// Nested deeper than any topology.
    #[error("more than {max} brackets are open here")]
    TooDeep {
        /// The bound.
        max: usize,
    },
    /// No document in the file.
    #[error("the file is empty")]
    Empty,
    /// A second YAML document.
    #[error("a second YAML document starts here; a topology is exactly one")]
    SecondDocument,
    /// A YAML anchor or alias.
    #[error("YAML anchors and aliases are not allowed; write the value out")]
    Alias,
    /// Not YAML.
    #[error("not YAML: {message}")]
    Syntax {
        /// What the parser said.
        message: String,
    },
    /// A key the format does not have.
    #[error("unknown key, expected {expected}")]
    UnknownKey {
        /// The keys there are.
        expected: String,
    },
    /// A key given twice.
    #[error("key given twice, first in line {first_line}")]
    DuplicateKey {
        /// Where it was given first.
        first_line: usize,
    },
    /// A required key is absent.
    #[error("required key is missing")]
    MissingKey,
    /// Wrong type or unreadable value.
    #[error("{message}")]
    BadValue {
        /// What the deserialiser said.
        message: String,
    },

    // Meaning: well-formed, but no network can look like this.
    /// `version` is not one we read.
    #[error("version {found} is not supported, this program reads version 1")]
    UnsupportedVersion {
        /// The version in the file.
        found: u32,
    },
    /// A number outside its range.
    #[error("{found} is outside {min}..={max}")]
    OutOfRange {
        /// The value.
        found: u64,
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
    },
    /// Degrees outside their range.
    #[error("{found} is outside -{max}..={max} degrees")]
    DegreesOutOfRange {
        /// The value.
        found: f64,
        /// Largest magnitude allowed.
        max: f64,
    },
    /// A list with too few or too many entries.
    #[error("{found} entries, {min}..={max} are allowed")]
    Count {
        /// Entries in the file.
        found: usize,
        /// Fewest allowed.
        min: usize,
        /// Most allowed.
        max: usize,
    },
    /// A duration too short for what it is measured in.
    #[error("{found} is less than three heartbeats ({min})")]
    UnderThreeHeartbeats {
        /// The value.
        found: u32,
        /// Smallest allowed.
        min: u32,
    },
    /// A link whose heartbeats are further apart would be suspect all the time.
    #[error("{found} is less than two heartbeats ({min})")]
    UnderTwoHeartbeats {
        /// The value.
        found: u32,
        /// Smallest allowed.
        min: u32,
    },
    /// A link that is down is past being suspect.
    #[error("{found} is more than down_after_ms ({max})")]
    OverDownAfter {
        /// The value.
        found: u32,
        /// Largest allowed.
        max: u32,
    },
    /// Names end up in certificates as dNSName.
    #[error(
        "`{name}` is not a name: lower-case letters, digits, `-` and `.`, at most 63 between dots"
    )]
    NotAName {
        /// The name.
        name: String,
    },
    /// Not an `http` or `https` URL.
    #[error("not an http:// or https:// URL with a host")]
    NotAUrl,
    /// Not two upper-case letters.
    #[error("`{code}` is not an ISO 3166-1 alpha-2 country code")]
    NotACountry {
        /// The text.
        code: String,
    },
    /// A name used before.
    #[error("name `{name}` is taken by {first}")]
    DuplicateName {
        /// The name.
        name: String,
        /// Field that has it first.
        first: String,
    },
    /// A number used before.
    #[error("id {id} is taken by {first}")]
    DuplicateId {
        /// The number.
        id: u16,
        /// Field that has it first.
        first: String,
    },
    /// No region at all.
    #[error("at least one region is needed")]
    NoRegion,
    /// No PoP at all.
    #[error("at least one PoP is needed")]
    NoPop,
    /// A region nothing can reach.
    #[error("region `{region}` has no core relay")]
    NoCoreRelay {
        /// The region.
        region: String,
    },
    /// A region that can hold no session.
    #[error("region `{region}` has no transceiver")]
    NoTransceiver {
        /// The region.
        region: String,
    },
    /// A PoP names a region that does not exist.
    #[error("no region is named `{name}`")]
    UnknownRegion {
        /// The name.
        name: String,
    },
    /// A PoP names a failover group that does not exist.
    #[error("no failover group is named `{name}`")]
    UnknownFailoverGroup {
        /// The name.
        name: String,
    },
    /// GeoDNS nodes and nothing to answer for.
    #[error("GeoDNS nodes need a zone: `dns` is missing")]
    NoZone,
    /// A rule that no client matches.
    #[error("the rule names no client: give cidrs, asns, countries or continents")]
    RuleWithoutClients,
    /// A rule that says nothing.
    #[error("the rule says nothing: give regions, pops, avoid or residency")]
    RuleWithoutEffect,
    /// A rule or list names a PoP that does not exist.
    #[error("no PoP is named `{name}`")]
    UnknownPop {
        /// The name.
        name: String,
    },
    /// `avoid` names neither a region nor a PoP.
    #[error("neither a region nor a PoP is named `{name}`")]
    UnknownPlace {
        /// The name.
        name: String,
    },
    /// A rule demands a residency that no region has.
    #[error("no region has the residency `{name}`")]
    UnknownResidency {
        /// The residency.
        name: String,
    },
    /// A duration too short for what it is a multiple of.
    #[error("{found} s is less than three intervals ({min} s)")]
    UnderThreeIntervals {
        /// The value.
        found: u32,
        /// Smallest allowed.
        min: u32,
    },
    /// A load that would be full before it is high.
    #[error("{found} is not above soft_percent ({soft})")]
    FullBelowSoft {
        /// The value.
        found: u32,
        /// The other.
        soft: u32,
    },
    /// Glue outside the zone, or none inside.
    #[error("a name server {place} the zone has {found} addresses, expected {expected}")]
    Glue {
        /// `inside` or `outside`.
        place: &'static str,
        /// Addresses given.
        found: usize,
        /// What is allowed.
        expected: &'static str,
    },
    /// A text too long for a DNS character string.
    #[error("{found} bytes, at most 255 fit a DNS character string")]
    LongText {
        /// Its length.
        found: usize,
    },
    /// A protocol without a name.
    #[error("a protocol has a name")]
    NoProtocol,
    /// Not `user@host`.
    #[error("`{text}` is not a mailbox, expected user@host")]
    NotAMailbox {
        /// The text.
        text: String,
    },
    /// A CAA tag of other characters.
    #[error("`{tag}` is not a CAA tag: 1..=15 letters and digits")]
    NotACaaTag {
        /// The tag.
        tag: String,
    },
    /// One label is another's.
    #[error("`{name}` is taken by {first}")]
    DuplicateLabel {
        /// The label.
        name: String,
        /// Field that has it.
        first: &'static str,
    },
    /// TLS for some servers of a group and not for others.
    #[error("redis:// and rediss:// in one group")]
    RedisSchemes,
    /// A PoP names a region twice.
    #[error("region `{name}` is listed twice")]
    RegionListedTwice {
        /// The name.
        name: String,
    },
    /// The CIDR does not start at its network address.
    #[error("{cidr} has bits set behind its prefix, write {network}")]
    CidrHostBits {
        /// As written.
        cidr: IpNet,
        /// As it should be.
        network: IpNet,
    },
    /// Two regions would own one address.
    #[error("{cidr} overlaps {other} of region `{region}`")]
    CidrOverlap {
        /// This CIDR.
        cidr: IpNet,
        /// The earlier one.
        other: IpNet,
        /// The earlier region.
        region: String,
    },
    /// A transceiver that core relays would never send to.
    #[error("{address} lies outside the region's transceiver CIDR {cidr}")]
    OutsideCidr {
        /// The transceiver.
        address: IpAddr,
        /// The CIDR.
        cidr: IpNet,
    },
    /// Offset 0 is never issued.
    #[error("{address} is the network address of {cidr}, which no transceiver can have")]
    NetworkAddress {
        /// The transceiver.
        address: IpAddr,
        /// The CIDR.
        cidr: IpNet,
    },
    /// The last address of an IPv4 CIDR.
    #[error("{address} is the broadcast address of {cidr}, which no transceiver can have")]
    BroadcastAddress {
        /// The transceiver.
        address: IpAddr,
        /// The CIDR.
        cidr: IpNet,
    },
    /// The hint has 32 bits for the offset.
    #[error("{address} is more than 2^32 addresses into {cidr}; a hint cannot name it")]
    BeyondHint {
        /// The transceiver.
        address: IpAddr,
        /// The CIDR.
        cidr: IpNet,
    },
    /// An address that a region's CIDR gives to transceivers.
    #[error("{address} lies in the transceiver CIDR {cidr} of region `{region}`")]
    InsideCidr {
        /// The address.
        address: IpAddr,
        /// The CIDR.
        cidr: IpNet,
        /// Its region.
        region: String,
    },
    /// An address used before.
    #[error("address {address} is taken by {first}")]
    DuplicateAddress {
        /// The address.
        address: IpAddr,
        /// Field that has it first.
        first: String,
    },
    /// A socket address used before.
    #[error("{socket} is taken by {first}")]
    DuplicateSocket {
        /// The socket address.
        socket: SocketAddr,
        /// Field that has it first.
        first: String,
    },
    /// A VIP is shared by PoPs, so no node can have it for its own.
    #[error("VIP {address} is an address of its own in {first}")]
    VipClash {
        /// The VIP.
        address: IpAddr,
        /// Field that has it.
        first: String,
    },
    /// A VIP that nobody announces.
    #[error("VIP {address} lies in none of network.anycast.prefixes")]
    VipNotAnnounced {
        /// The VIP.
        address: IpAddr,
    },
    /// A prefix that leads nowhere.
    #[error("no VIP lies in {prefix}")]
    PrefixWithoutVip {
        /// The prefix.
        prefix: IpNet,
    },
    /// Announcing it would draw the traffic of others.
    #[error("{prefix} is shorter than /{min}")]
    PrefixTooShort {
        /// The prefix.
        prefix: IpNet,
        /// Shortest length allowed.
        min: u8,
    },
    /// Two announced prefixes of which one holds the other.
    #[error("{prefix} overlaps {other} of {first}")]
    PrefixOverlap {
        /// This prefix.
        prefix: IpNet,
        /// The earlier one.
        other: IpNet,
        /// Field that has it.
        first: String,
    },
    /// A cover that covers nothing, or stands in for the prefix itself.
    #[error("{cover} is not a shorter prefix around one of network.anycast.prefixes")]
    CoverOfNothing {
        /// The cover.
        cover: IpNet,
    },
    /// A PoP that announces the VIPs serves each of them beside its own addresses.
    #[error(
        "{ingress} addresses and {vips} of network.vips: a PoP that announces serves {max} together at most"
    )]
    AddressesAndVips {
        /// Its own.
        ingress: usize,
        /// VIPs.
        vips: usize,
        /// The bound.
        max: usize,
    },
    /// A node's own address inside what every PoP announces.
    #[error(
        "{address} of {other_field} lies in {prefix}: its packets would go to whichever PoP is nearest"
    )]
    UnicastAnnounced {
        /// The address.
        address: IpAddr,
        /// Field that has it.
        other_field: String,
        /// The announced prefix.
        prefix: IpNet,
    },
    /// A number that is no AS number.
    #[error("AS {asn} is reserved")]
    ReservedAsn {
        /// The number.
        asn: u32,
    },
    /// The announcements would come back as loops.
    #[error("AS {asn} is the network's own; sessions are with other networks")]
    OwnAsn {
        /// The number.
        asn: u32,
    },
    /// A routing table the kernel has for itself.
    #[error("table {table} belongs to the kernel")]
    KernelTable {
        /// The table.
        table: u32,
    },
    /// A wait that could not be as long as it starts.
    #[error("{found} is less than up_after_s ({min})")]
    UnderUpAfter {
        /// The value.
        found: u32,
        /// Smallest allowed.
        min: u32,
    },
    /// Sessions with nothing to say.
    #[error("sessions announce what `network.anycast` says, which is missing")]
    NoAnycast,
    /// A session of a family that nothing is announced in.
    #[error("a session over {family}, and none of network.anycast.prefixes is {family}")]
    NothingToAnnounce {
        /// `IPv4` or `IPv6`.
        family: &'static str,
    },
    /// Nothing to identify the PoP by.
    #[error("a PoP with BGP sessions and no IPv4 address needs a router_id")]
    NoRouterId,
    /// BIRD names a protocol after it.
    #[error("`{name}` is not a session name: lower-case letters, digits and `-`, at most 32")]
    NotASessionName {
        /// The name.
        name: String,
    },
    /// The mark of a drain, at all times.
    #[error("65535:0 says that a PoP drains, and is added when it does")]
    AlwaysDraining,
    /// Not a path that a line of bird.conf can name.
    #[error("not an absolute path of letters, digits and `/._-`")]
    NotAFilePath,
    /// Two ends that could never exchange a packet.
    #[error("{address} and {other} ({other_field}) are of different address families")]
    FamilyMismatch {
        /// This end.
        address: IpAddr,
        /// The other end.
        other: IpAddr,
        /// Field of the other end.
        other_field: String,
    },
    /// Port 0 means "any" to a socket, and nothing to a peer.
    #[error("port 0 cannot be reached")]
    PortZero,
    /// The ports of the workers do not fit below 65536.
    #[error("port {first} and {workers} workers pass port 65535")]
    PortsOverflow {
        /// Port of worker 0.
        first: u16,
        /// Workers.
        workers: u8,
    },
    /// Admin HTTP is not for the network.
    #[error("admin address {address} is not loopback")]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// An address nobody can send to.
    #[error("{address} is {kind}, not an address a peer can send to")]
    Unreachable {
        /// The address.
        address: IpAddr,
        /// What it is instead.
        kind: &'static str,
    },
    /// More errors than [`ERRORS_MAX`].
    #[error("more errors follow; the first {ERRORS_MAX} are shown")]
    More,
}

impl LoadErrors {
    /// Sorts by line; an empty list is not an error and is the caller's mistake.
    pub(crate) fn new(mut errors: Vec<LoadError>) -> Self {
        debug_assert!(!errors.is_empty(), "an error without a reason");
        errors.sort_by_key(|error| error.line);
        Self { errors }
    }

    /// The errors, in the order of their lines.
    #[must_use]
    pub fn as_slice(&self) -> &[LoadError] {
        &self.errors
    }
}

impl std::error::Error for LoadErrors {}
impl std::error::Error for LoadError {}

impl fmt::Display for LoadErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, error) in self.errors.iter().enumerate() {
            if position > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = format!(
            "{}:{}: {}: {}",
            self.file_name, self.line, self.field, self.problem
        );
        f.write_str(&one_line(&line))
    }
}

/// Characters of one printed error; texts of the file are quoted in it and can be long.
const LINE_CHARS_MAX: usize = 500;

/// Control characters escaped, length bounded: a file cannot break the log line that reports it.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len().min(LINE_CHARS_MAX));
    for (position, character) in text.chars().enumerate() {
        if position == LINE_CHARS_MAX {
            line.push('…');
            break;
        }
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}
