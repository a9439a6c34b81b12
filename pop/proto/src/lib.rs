//! pop/proto
