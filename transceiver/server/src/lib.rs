//! transceiver/server
