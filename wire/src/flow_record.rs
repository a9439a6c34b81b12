//! flow_record
