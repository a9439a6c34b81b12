//! core-relay/server
