//! `longshore serve` through the wire: third-party clients, hostile ones, many at once; the status page in a browser and with
//! Prometheus.

mod browser;
mod clients;
mod ends;
mod guarded;
mod hostile;
mod http;
mod keys;
mod locks;
mod logins;
mod many;
mod page;
mod page_hostile;
mod page_shown;
mod prometheus;
mod raw;
mod requests;
mod routines;
mod scripts;
mod sessions;
mod stage;
mod strict;

#[path = "../sql/answers.rs"]
mod answers;
#[path = "../common/client.rs"]
mod client;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/served.rs"]
mod served;
