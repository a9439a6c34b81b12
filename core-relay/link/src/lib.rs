//! core-relay/link
