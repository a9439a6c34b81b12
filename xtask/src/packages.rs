//! Debian packages that tests run programs of. Installs what is missing, and nothing on a machine that has it all.

use std::path::Path;

use crate::step::Step;
use crate::workspace::Workspace;

/// A file that a package brings, and the package.
type Wanted = (&'static str, &'static str);

/// What tests in a process of their own start.
pub(crate) const IN_PROCESS: &[Wanted] = &[
    ("/usr/bin/redis-server", "redis-server"),
    ("/usr/bin/redis-cli", "redis-tools"),
];

/// What end-to-end tests start: clients, observers, and the relays and name servers the benchmarks compare with. Tests start
/// servers of their own, with their own files and ports; the ones of the system stay as they are.
pub(crate) const END_TO_END: &[Wanted] = &[
    ("/usr/bin/redis-server", "redis-server"),
    ("/usr/bin/curl", "curl"),
    ("/usr/bin/chromium", "chromium"),
    ("/usr/bin/firefox-esr", "firefox-esr"),
    ("/usr/bin/setpriv", "util-linux"),
    ("/usr/sbin/mkfs.ext4", "e2fsprogs"),
    ("/usr/sbin/ip", "iproute2"),
    ("/usr/sbin/bird", "bird2"),
    ("/usr/bin/node", "nodejs"),
    ("/usr/bin/strace", "strace"),
    ("/usr/sbin/nginx", "nginx-light"),
    (
        "/usr/lib/nginx/modules/ngx_stream_module.so",
        "libnginx-mod-stream",
    ),
    ("/usr/bin/turnserver", "coturn"),
    ("/usr/sbin/gdnsd", "gdnsd"),
    ("/usr/sbin/knotd", "knot"),
    ("/usr/share/doc/knot-module-geoip", "knot-module-geoip"),
    ("/usr/bin/kdig", "knot-dnsutils"),
    ("/usr/bin/dig", "bind9-dnsutils"),
    ("/usr/bin/delv", "bind9-dnsutils"),
    ("/usr/bin/zonemaster-cli", "zonemaster-cli"),
];

/// Installs those of `wanted` that are missing. Needs root only then.
pub(crate) fn install(workspace: &Workspace, wanted: &[Wanted]) -> anyhow::Result<()> {
    let missing: Vec<_> = wanted
        .iter()
        .filter(|(file, _)| !Path::new(file).exists())
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Step::new("package lists", "apt-get", &workspace.root)
        .args(["update", "--quiet"])
        .run()?;
    Step::new("packages", "apt-get", &workspace.root)
        .args(["install", "--yes", "--quiet", "--no-install-recommends"])
        .args(missing)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .run()
}
