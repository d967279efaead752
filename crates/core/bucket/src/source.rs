//! The places that credentials come from.

use crate::role::Role;

/// Where credentials come from. Its `Debug` shows no secret.
#[derive(Clone)]
pub(crate) enum Source {
    Keys {
        id: String,
        secret: String,
        token: Option<String>,
    },
    /// A program that prints them.
    Process {
        profile: String,
        command: String,
    },
    WebIdentity {
        token_file: String,
        role: String,
        session: Option<String>,
        /// The service that gives credentials for it, where it is not the region's.
        sts: Option<String>,
    },
    /// A role that is given to the identity of another place.
    Role {
        base: Box<Source>,
        role: Role,
    },
    ContainerRelative(String),
    ContainerFull {
        uri: String,
        token_file: String,
    },
    /// The instance's metadata service, perhaps at another address than the usual one.
    Instance {
        endpoint: Option<String>,
    },
}
