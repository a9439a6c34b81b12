//! nginx as a UDP proxy (`ngx_stream_proxy_module`): one worker, a connected socket to the far end for each client.

use std::fs;
use std::net::SocketAddr;

use super::program::{Missing, Process, debian, free_port, work_dir};

/// Running.
#[derive(Debug)]
pub(crate) struct Nginx {
    /// Where clients send to.
    pub(crate) address: SocketAddr,
    process: Process,
}

impl Nginx {
    /// Whether it is installed.
    pub(crate) fn find() -> Result<(), Missing> {
        debian(PROGRAM, "nginx-light")?;
        debian(MODULE, "libnginx-mod-stream").map(|_| ())
    }

    /// Between clients and `to`.
    pub(crate) fn start(to: SocketAddr) -> anyhow::Result<Self> {
        let dir = work_dir("nginx")?;
        let address = free_port()?;
        let file = dir.join("nginx.conf");
        fs::write(&file, configuration(address, to))?;
        let process = Process::start(&debian(PROGRAM, "nginx-light")?, &dir, |command| {
            command.arg("-p").arg(&dir).arg("-c").arg(&file);
        })?;
        Ok(Self { address, process })
    }

    /// Fails when it has ended.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        self.process.check()
    }
}

/// One process without a master is one worker. Two connections for each client, and descriptors for as many as a process
/// may have; sessions outlive every pause of the load; as many answers as there are; buffers as large as ours.
fn configuration(address: SocketAddr, to: SocketAddr) -> String {
    format!(
        "load_module {MODULE};
         daemon off; master_process off; pid nginx.pid; error_log stderr crit;
         worker_rlimit_nofile {DESCRIPTORS};
         events {{ use epoll; multi_accept on; worker_connections {CONNECTIONS}; }}
         stream {{
           access_log off;
           server {{
             listen {address} udp rcvbuf=4m sndbuf=4m;
             proxy_pass {to};
             proxy_timeout 10m;
             proxy_buffer_size 2k;
           }}
         }}\n"
    )
}

const PROGRAM: &str = "/usr/sbin/nginx";
const MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";
const DESCRIPTORS: u32 = 20_000;
const CONNECTIONS: u32 = 65_536;
