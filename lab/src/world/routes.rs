//! Routes of a kernel, as /proc tells them: by which device a packet for an address leaves.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::Context as _;
use ipnet::IpNet;

/// Routes of one namespace.
#[derive(Clone, Debug, Default)]
pub(super) struct Routes {
    /// Network, metric, device.
    all: Vec<(IpNet, u32, String)>,
}

impl Routes {
    /// Those of the calling thread's namespace.
    pub(super) fn read() -> anyhow::Result<Self> {
        let text = |file: &str| {
            let path = format!("/proc/thread-self/net/{file}");
            fs::read_to_string(&path).context(path)
        };
        Ok(Self::parse(&text("route")?, &text("ipv6_route")?))
    }

    fn parse(v4: &str, v6: &str) -> Self {
        let v4 = v4.lines().skip(1).filter_map(v4_route);
        let v6 = v6.lines().filter_map(v6_route);
        Self {
            all: v4.chain(v6).collect(),
        }
    }

    /// Of the longest prefix the one with the lowest metric.
    pub(super) fn device(&self, to: IpAddr) -> Option<&str> {
        let holding = self.all.iter().filter(|(net, ..)| net.contains(&to));
        let best = holding.min_by_key(|(net, metric, _)| (u8::MAX - net.prefix_len(), *metric));
        best.map(|(.., device)| device.as_str())
    }
}

/// `Iface Destination Gateway Flags RefCnt Use Metric Mask ...`, addresses as the machine keeps them.
fn v4_route(line: &str) -> Option<(IpNet, u32, String)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [device, to, _, flags, _, _, metric, mask, ..] = fields.as_slice() else {
        return None;
    };
    let number = |field: &str| u32::from_str_radix(field, 16).ok();
    let bits = |field: &str| Some(u32::from_be(number(field)?));
    let up = number(flags)? & 1 == 1;
    let len = u8::try_from(bits(mask)?.count_ones()).ok()?;
    let net = IpNet::new(Ipv4Addr::from(bits(to)?).into(), len).ok()?;
    up.then_some((net, metric.parse().ok()?, (*device).to_owned()))
}

/// `destination length source length gateway metric refcnt use flags device`.
fn v6_route(line: &str) -> Option<(IpNet, u32, String)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [to, len, _, _, _, metric, _, _, flags, device] = fields.as_slice() else {
        return None;
    };
    let number = |field: &str| u32::from_str_radix(field, 16).ok();
    let to = Ipv6Addr::from(u128::from_str_radix(to, 16).ok()?);
    let net = IpNet::new(to.into(), u8::from_str_radix(len, 16).ok()?).ok()?;
    let up = number(flags)? & 1 == 1;
    // What is unreachable leads to `lo`.
    (up && *device != "lo").then_some((net, number(metric)?, (*device).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
to-r-lon\t00000000\t0100FE0A\t0003\t0\t0\t100\t00000000\t0\t0\t0
to-r-fra\t000200C0\t0300FE0A\t0003\t0\t0\t32\t00FFFFFF\t0\t0\t0
to-lon\t6402 00C0
to-lon\t640200C0\t0500FE0A\t0007\t0\t0\t32\tFFFFFFFF\t0\t0\t0
down\t650200C0\t0500FE0A\t0006\t0\t0\t32\tFFFFFFFF\t0\t0\t0
";
    const V6: &str = "\
20010db8010000000000000000000000 30 00000000000000000000000000000000 00 fd000254000000000000000000000001 00000020 00000001 00000000 00000003 to-r-wdc
20010db8010000000000000000000000 30 00000000000000000000000000000000 00 fd000254000000000000000000000003 00000010 00000001 00000000 00000003 to-lon
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
";

    #[test]
    fn the_longest_prefix_then_the_lowest_metric() {
        let routes = Routes::parse(V4, V6);
        let device = |to: &str| routes.device(to.parse().unwrap());
        assert_eq!(device("192.0.2.100"), Some("to-lon"));
        assert_eq!(device("192.0.2.101"), Some("to-r-fra"), "one that is down");
        assert_eq!(device("203.0.113.1"), Some("to-r-lon"));
        assert_eq!(device("2001:db8:100::1"), Some("to-lon"));
        assert_eq!(device("2001:db8:200::1"), None);
    }
}
