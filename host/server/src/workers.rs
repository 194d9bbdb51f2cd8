//! Stands in until its owner's part arrives.
