//! transceiver/proto
