//! pop/server
