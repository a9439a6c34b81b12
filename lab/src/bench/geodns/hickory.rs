//! hickory-server alone, as its documentation has it: a request handler that looks each client up in the database when it is asked.
//! One current-thread runtime, no cache, no table.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;

use anyhow::Context as _;
use hickory_proto::op::{Edns, Header, HeaderCounts, Metadata, ResponseCode};
use hickory_proto::rr::rdata::opt::{ClientSubnet, EdnsCode, EdnsOption};
use hickory_proto::rr::{LowerName, Name, RData, Record, RecordType};
use hickory_server::Server;
use hickory_server::net::runtime::Time;
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo};
use hickory_server::zone_handler::MessageResponseBuilder;
use maxminddb::{Reader, path};

use super::map::{self, PLACES};
use super::query::NAME;

/// Answers at `at` until killed.
pub(super) fn serve(at: SocketAddr, database: &Path) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let database = Reader::open_readfile(database)?;
    let name = Name::from_ascii(format!("{NAME}."))?;
    let record = |data| Record::from_rdata(name.clone(), 60, data);
    let handler = Handler {
        database,
        v4: PLACES.map(|place| record(RData::A(place.v4().into()))),
        v6: PLACES.map(|place| record(RData::AAAA(place.v6().into()))),
        name: (&name).into(),
    };
    let socket = UdpSocket::bind(at).context("binding the name server")?;
    socket.set_nonblocking(true)?;
    runtime.block_on(async {
        let mut server = Server::new(handler);
        server.register_socket(tokio::net::UdpSocket::from_std(socket)?);
        Ok(server.block_until_done().await?)
    })
}

struct Handler {
    database: Reader<Vec<u8>>,
    name: LowerName,
    v4: [Record; PLACES.len()],
    v6: [Record; PLACES.len()],
}

impl Handler {
    /// Index of a place, and the prefix that the database has an answer for.
    fn locate(&self, client: IpAddr) -> (usize, u8) {
        let Ok(found) = self.database.lookup(client) else {
            return (0, 0);
        };
        let continent = found.decode_path(&path!["continent", "code"]);
        let country = found.decode_path(&path!["country", "iso_code"]);
        let place = match continent {
            Ok(Some(continent)) => map::first(continent, country.ok().flatten()),
            Ok(None) | Err(_) => None,
        };
        let number = place.map_or(1, |place| usize::from(place.number));
        let prefix = found.network().map_or(0, |network| network.prefix());
        (number - 1, prefix)
    }
}

#[async_trait::async_trait]
impl RequestHandler for Handler {
    async fn handle_request<R: ResponseHandler, T: Time>(
        &self,
        request: &Request,
        mut response: R,
    ) -> ResponseInfo {
        let mut metadata = Metadata::response_from_request(&request.metadata);
        metadata.authoritative = true;
        let mut client = request.src().ip();
        let mut subnet = None;
        let mut edns = request.edns.as_ref().map(|asked| {
            if let Some(EdnsOption::Subnet(found)) = asked.option(EdnsCode::Subnet) {
                client = found.addr();
                subnet = Some((found.addr(), found.source_prefix()));
            }
            let mut edns = Edns::new();
            edns.set_max_payload(1232).set_version(0);
            edns
        });
        let (place, scope) = self.locate(client);
        if let (Some(edns), Some((address, source))) = (edns.as_mut(), subnet) {
            let option = ClientSubnet::new(address, source, scope);
            edns.options_mut().insert(EdnsOption::Subnet(option));
        }
        let mut builder = MessageResponseBuilder::from_message_request(request);
        if let Some(edns) = edns.as_ref() {
            builder.edns(edns);
        }
        let record = match request.request_info() {
            Ok(info) if info.query.name() == &self.name => {
                let kind = info.query.query_type();
                let records = match kind == RecordType::AAAA {
                    true => &self.v6,
                    false => &self.v4,
                };
                records
                    .get(place)
                    .filter(|record| record.record_type() == kind)
            }
            Ok(_) | Err(_) => {
                metadata.response_code = ResponseCode::NXDomain;
                None
            }
        };
        let unsent = ResponseInfo::from(Header {
            metadata,
            counts: HeaderCounts::default(),
        });
        let message = builder.build(metadata, record, [], [], []);
        response.send_response(message).await.unwrap_or(unsent)
    }
}
