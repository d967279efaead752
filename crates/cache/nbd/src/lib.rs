//! The block cache as a plugin of nbdkit, over the files and the clock of this machine.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

longshore_serving::plugin!(longshore_serving::Here);
