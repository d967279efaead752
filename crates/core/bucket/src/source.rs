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

/// A role, and how it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    pub profile: String,
    pub arn: String,
    pub session: String,
    pub external_id: Option<String>,
    pub seconds: u64,
    /// The service that gives it, where it is not the region's.
    pub sts: Option<String>,
}

impl Role {
    /// The address of the service.
    pub fn service(&self, region: &str) -> String {
        let suffix = match region.starts_with("cn-") {
            true => ".cn",
            false => "",
        };
        match &self.sts {
            Some(sts) => format!("{}/", sts.trim_end_matches('/')),
            None => format!("https://sts.{region}.amazonaws.com{suffix}/"),
        }
    }
}
