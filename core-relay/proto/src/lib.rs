//! core-relay/proto
