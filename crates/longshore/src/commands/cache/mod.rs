//! `longshore cache`: making, serving and asking a cache. Its studies are another program's.

mod calibrate;
mod daemon;

use super::forwarded;
use crate::context::Context;
use crate::options::{Cache, CacheAction};
use longshore_terminal::failure::{Exit, Failure};

pub fn run(options: &Cache, context: &Context) -> Result<Exit, Failure> {
    match &options.action {
        CacheAction::Create(create) => daemon::create(create, context),
        CacheAction::Serve(serve) => daemon::serve(serve, context),
        CacheAction::Status(status) => daemon::status(status, context),
        CacheAction::Why(why) => daemon::why(why, context),
        CacheAction::Trace(trace) => daemon::trace(trace, context),
        CacheAction::Policy(policy) => daemon::policy(policy, context),
        CacheAction::Attach(attach) => daemon::attach(attach, context),
        CacheAction::Detach(detach) => daemon::detach(detach, context),
        CacheAction::Resize(resize) => daemon::resize(resize, context),
        CacheAction::Shadow(shadow) => daemon::shadow(shadow, context),
        CacheAction::Verify(verify) => daemon::verify(verify, context),
        CacheAction::Calibrate(calibrate) => calibrate::run(calibrate, context),
        CacheAction::Simulate(_) | CacheAction::Grid(_) => forwarded::run(),
    }
}
