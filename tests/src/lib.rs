//! Through the front door: tests that use the `longshore` binary and independent tools only.
