//! The places that credentials come from.

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
    },
    ContainerRelative(String),
    ContainerFull {
        uri: String,
        token_file: String,
    },
    /// The instance's metadata service.
    Instance,
}
