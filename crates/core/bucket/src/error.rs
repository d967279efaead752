//! Errors of object stores, with one hint for each.
//!
//! Invariants
//! - A variant names the object or the bucket, and the action that failed. The hint is one sentence that says what to
//!   do next.
//! - `is_refusal` is true only where the store certainly did nothing: its one answer said so, and no earlier request
//!   can have been done.
//! - `may_pass` is true where the same request may succeed later.
//!
//! Leaves to others: turning an answer of the store into a variant (`store.rs`, `watched.rs`).

use crate::scheme::Scheme;

/// How a message goes on that names the credential: its name follows, in single quotation marks.
pub(crate) const BY: &str = " by the credential '";

/// Every variant says which object, and what was tried.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{text} is not an address of an object: {why}")]
    Address { text: String, why: &'static str },

    /// The environment or a file of the configuration.
    #[error("the settings for {bucket} cannot be used: {why}")]
    Settings { bucket: String, why: String },

    /// The address names a server that the process does not know.
    #[error(
        "the server of {bucket} is not known: no [target.{server}] of this kind of store with a server of its own is configured"
    )]
    NoServer { server: String, bucket: String },

    #[error("cannot {action} {at}: there are no usable credentials: {why}")]
    Credentials {
        action: &'static str,
        at: String,
        why: String,
    },

    #[error("cannot {action} {at}: the bucket does not exist (HTTP 404)")]
    NoBucket { action: &'static str, at: String },

    #[error("cannot {action} {at}: nothing is there (HTTP 404)")]
    Missing { action: &'static str, at: String },

    /// The store answered, and not with what was asked for.
    #[error("cannot {action} {at}: {endpoint} answered HTTP {status}{}{}", detail(code, message), asked(*tries))]
    Refused {
        action: &'static str,
        at: String,
        endpoint: String,
        status: u16,
        code: String,
        message: String,
        tries: u32,
    },

    /// The answer names another place. The request has a signature, which no other host may see.
    #[error(
        "cannot {action} {at}: {endpoint} sends the request elsewhere (HTTP {status}), and redirects are not followed{}",
        place(region, host)
    )]
    Redirected {
        action: &'static str,
        at: String,
        endpoint: String,
        status: u16,
        region: Option<String>,
        host: Option<String>,
    },

    /// The store did not answer, or its answer broke off.
    #[error("cannot {action} {at}: no usable answer from {endpoint}: {why}{}", asked(*tries))]
    Silent {
        action: &'static str,
        at: String,
        endpoint: String,
        why: String,
        tries: u32,
    },

    #[error("{at} was replaced while it was in use")]
    Changed { at: String },

    #[error("cannot read {at} as it was: the bucket keeps no versions")]
    NoVersions { at: String },

    /// [`crate::as_of`] was called.
    #[error("cannot {action} {at}: the bucket is read as it was, and the past does not change")]
    Past { action: &'static str, at: String },

    /// Of two writers to one name, the other was first, or came after.
    #[error("another writer replaced {at} while this backup was written: {now}")]
    Overtaken { at: String, now: String },

    /// The object has the label of whoever began its upload, and the answer to the completion did not tell its tag.
    #[error(
        "nothing tells whether {at} is what was completed now: it has another label, as where an older version of Longshore or another program began the upload: {now}"
    )]
    OtherLabel { at: String, now: String },

    #[error("the store said that {at} is complete, and nothing is there")]
    NotKept { at: String },

    #[error("the request to {action} {at} was ended from outside")]
    Cancelled { action: &'static str, at: String },

    #[error("cannot start the threads that speak to object stores")]
    Threads { source: std::io::Error },
}

fn detail(code: &str, message: &str) -> String {
    match (code, message) {
        ("", "") => String::new(),
        ("", message) => format!(": {message}"),
        (code, "") => format!(" {code}"),
        (code, message) => format!(" {code}: {message}"),
    }
}

fn place(region: &Option<String>, host: &Option<String>) -> String {
    match (region, host) {
        (Some(region), _) => format!(": the bucket is in the region {region}"),
        (None, Some(host)) => format!(": it names the host {host}"),
        (None, None) => String::new(),
    }
}

fn asked(tries: u32) -> String {
    match tries {
        0 | 1 => String::new(),
        n => format!(" ({n} requests were made)"),
    }
}

impl Error {
    /// Whether the store's one answer says that the request was not done. Where it was asked again, an earlier request
    /// may have been done, and its answer lost.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Error::Refused { status, tries, .. } => *tries < 2 && (400..500).contains(status),
            _ => false,
        }
    }

    /// Whether the same may succeed a little later: the store is away or has too much to do.
    pub fn may_pass(&self) -> bool {
        match self {
            Error::Silent { why, .. } => {
                !why.contains("certificate") && !why.contains("CaUsedAsEndEntity")
            }
            Error::Refused { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }

    /// The kind of the store, by the object's address.
    fn scheme(&self) -> Scheme {
        Scheme::of(self.at()).unwrap_or(Scheme::S3)
    }

    /// Whether the object is at a server that the configuration names: its settings are no variables.
    fn is_named(&self) -> bool {
        Scheme::split(self.at()).is_some_and(|split| split.1.is_some())
    }

    /// The address that the request was about; empty: none.
    pub fn at(&self) -> &str {
        match self {
            Error::Credentials { at, .. }
            | Error::NoBucket { at, .. }
            | Error::Missing { at, .. }
            | Error::Refused { at, .. }
            | Error::Redirected { at, .. }
            | Error::Silent { at, .. } => at,
            _ => "",
        }
    }

    /// The operator's next step, in one sentence.
    pub fn hint(&self) -> &'static str {
        let words = match (self.at().contains(BY), self.is_named()) {
            (true, _) => &OF_CREDENTIALS,
            (_, true) => &OF_TARGETS,
            (false, false) => words(self.scheme()),
        };
        match self {
            Error::NoServer { .. } => {
                "name the configuration that has this target with --config FILE or LONGSHORE_CONFIG; docs/buckets.md says what such an address means"
            }
            Error::Address { .. } => {
                "name objects as s3://BUCKET/KEY, az://CONTAINER/KEY or gs://BUCKET/KEY; a file of that name is file:NAME"
            }
            Error::Settings { .. } => "correct the setting; docs/buckets.md lists all of them",
            Error::Credentials { .. } => words.credentials,
            Error::NoBucket { .. } => words.no_bucket,
            Error::Missing { .. } => words.missing,
            Error::Refused { status, code, .. } if self.at().contains(BY) => {
                given_hint(*status, code).unwrap_or_else(|| refused_hint(*status, code))
            }
            Error::Redirected {
                region: Some(_), ..
            } if self.at().contains(BY) => OF_CREDENTIALS.elsewhere,
            Error::Refused { status, code, .. } if self.is_named() => {
                named_hint(code).unwrap_or_else(|| refused_hint(*status, code))
            }
            Error::Refused { status, code, .. } => match (self.scheme(), *status) {
                (Scheme::Azure, _) => {
                    azure_hint(code).unwrap_or_else(|| refused_hint(*status, code))
                }
                (Scheme::Google, 401) => words.credentials,
                _ => refused_hint(*status, code),
            },
            Error::Redirected {
                region: Some(_), ..
            } if self.is_named() => {
                "set `region` of the target to that region, then run the command again"
            }
            Error::Redirected {
                region: Some(_), ..
            } => "set AWS_REGION to that region, then run the command again",
            Error::Redirected { .. } => words.elsewhere,
            // OpenSSL's `req -x509` makes such a certificate by default.
            Error::Silent { why, .. } if why.contains("CaUsedAsEndEntity") => {
                "the server's certificate is an authority's own: let that authority sign another for the server, or make one with `openssl req -x509 ... -addext basicConstraints=critical,CA:FALSE`"
            }
            Error::Silent { why, .. } if why.contains("certificate") => words.certificate,
            Error::Silent { .. } => words.silent,
            Error::NoVersions { .. } => {
                "leave out --as-of; a bucket keeps versions from the moment on at which `aws s3api put-bucket-versioning` or `gcloud \
                 storage buckets update --versioning` enables them"
            }
            Error::Past { .. } => "leave out --as-of, then run the command again",
            Error::Changed { .. } => {
                "another backup wrote it: run the command again, or name another key"
            }
            Error::Overtaken { .. } => {
                "give each backup names of its own, then run the command again"
            }
            Error::OtherLabel { .. } => {
                "run the command again, which copies what is not there as a whole; then check the copy with `longshore verify`"
            }
            Error::NotKept { .. } => "back up to another store: this one loses what it took",
            Error::Cancelled { .. } => "run the command again when it suits",
            Error::Threads { .. } => "raise the limit on threads, then run the command again",
        }
    }
}

/// The hints in which one kind of store has other words than the next.
struct Words {
    credentials: &'static str,
    no_bucket: &'static str,
    missing: &'static str,
    elsewhere: &'static str,
    certificate: &'static str,
    silent: &'static str,
}

/// The words for servers that the configuration names.
const OF_TARGETS: Words = Words {
    credentials: "correct `profile` or `credentials_file` of the target that the address names, or set the credentials in the environment; docs/buckets.md says where they are looked for",
    no_bucket: "check `buckets`, `endpoint`, `region` and `account` of the target that the address names, then run `longshore config check`",
    missing: "check the key; a restore needs every stripe, and `longshore info --target NAME` lists the target's backups",
    elsewhere: "set `region` or `endpoint` of the target that the address names, then run the command again",
    certificate: "name the file of the authority that signed the server's certificate in `ca_file` of the target, and in `endpoint` a host that the certificate is for",
    silent: "check the network, the proxy and `endpoint` of the target that the address names, then run the command again",
};

/// The words for servers that the address itself names.
const OF_CREDENTIALS: Words = Words {
    credentials: "correct the credential with ALTER CREDENTIAL",
    no_bucket: "check the bucket's name in the address: no statement makes a bucket",
    missing: "check the key in the address; a restore needs every stripe",
    elsewhere: "name the bucket's region with BACKUP_OPTIONS or RESTORE_OPTIONS, '{\"s3\": {\"region\": \"...\"}}', or the server that has the bucket in the address",
    certificate: "name the file of the authority that signed the server's certificate in LONGSHORE_CA_FILE, and in the address a host that the certificate is for",
    silent: "check the network, the proxy and the server in the address, which is spoken to over https, then run the statement again",
};

/// The hints for refusals that another credential can end.
fn given_hint(status: u16, code: &str) -> Option<&'static str> {
    Some(match (status, code) {
        (_, "AuthorizationHeaderMalformed" | "PermanentRedirect") => OF_CREDENTIALS.elsewhere,
        (401 | 403, _) | (_, "InvalidAccessKeyId" | "SignatureDoesNotMatch") => {
            "check the credential's key and secret, which ALTER CREDENTIAL replaces, what they may do, and this machine's clock"
        }
        _ => return None,
    })
}

/// The hints for refusals that a target's own settings can end.
fn named_hint(code: &str) -> Option<&'static str> {
    Some(match code {
        "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "AuthenticationFailed" => {
            "check the credentials of the target that the address names: `profile`, `credentials_file`, or those of the environment where it has neither"
        }
        "AuthorizationHeaderMalformed" | "PermanentRedirect" => {
            "set `region` of the target that the address names to the bucket's region"
        }
        _ => return None,
    })
}

fn words(scheme: Scheme) -> &'static Words {
    match scheme {
        Scheme::S3 => &Words {
            credentials: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; docs/buckets.md says where credentials are looked for",
            no_bucket: "check the bucket's name, AWS_REGION and AWS_ENDPOINT_URL; make the bucket with `aws s3 mb s3://BUCKET`",
            missing: "check the key; `aws s3 ls s3://BUCKET/` lists what is there, and a restore needs every stripe",
            elsewhere: "set AWS_REGION to the bucket's region, or AWS_ENDPOINT_URL to the server that has the bucket, then run the command again",
            certificate: "name the file of the authority that signed the server's certificate in LONGSHORE_CA_FILE, and in AWS_ENDPOINT_URL a host that the certificate is for",
            silent: "check the network, the proxy and AWS_ENDPOINT_URL, then run the command again",
        },
        Scheme::Azure => &Words {
            credentials: "set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or an application's AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET; docs/buckets.md says where credentials are looked for",
            no_bucket: "check the container's name and AZURE_STORAGE_ACCOUNT_NAME; make the container with `az storage container create --name CONTAINER`",
            missing: "check the key; `az storage blob list --container-name CONTAINER` lists what is there, and a restore needs every stripe",
            elsewhere: "set AZURE_STORAGE_ENDPOINT to the server that has the container, then run the command again",
            certificate: "name the file of the authority that signed the server's certificate in LONGSHORE_CA_FILE, and in AZURE_STORAGE_ENDPOINT a host that the certificate is for",
            silent: "check the network, the proxy, AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ENDPOINT, then run the command again",
        },
        Scheme::Google => &Words {
            credentials: "name a service account's key file in GOOGLE_APPLICATION_CREDENTIALS, or log in with `gcloud auth application-default login`; docs/buckets.md says where credentials are looked for",
            no_bucket: "check the bucket's name; make the bucket with `gcloud storage buckets create gs://BUCKET`",
            missing: "check the key; `gcloud storage ls gs://BUCKET/` lists what is there, and a restore needs every stripe",
            elsewhere: "set GOOGLE_BASE_URL to the server that has the bucket, then run the command again",
            certificate: "name the file of the authority that signed the server's certificate in LONGSHORE_CA_FILE, and in GOOGLE_BASE_URL a host that the certificate is for",
            silent: "check the network, the proxy and GOOGLE_BASE_URL, then run the command again",
        },
    }
}

/// The hints for what only Azure answers.
fn azure_hint(code: &str) -> Option<&'static str> {
    Some(match code {
        "AuthenticationFailed" | "InvalidAuthenticationInfo" | "NoAuthenticationInformation" => {
            "check AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, whether it has ended, and this machine's clock"
        }
        "AuthorizationFailure"
        | "AuthorizationPermissionMismatch"
        | "InsufficientAccountPermissions" => {
            "allow these credentials what docs/buckets.md lists, and this machine in the account's firewall"
        }
        "KeyBasedAuthenticationNotPermitted" => {
            "the account takes no keys: set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or use a managed identity"
        }
        "AccountIsDisabled" | "ResourceNotFound" => {
            "check AZURE_STORAGE_ACCOUNT_NAME and the account"
        }
        "RequestBodyTooLarge" => {
            "the store takes no blocks of this size: set LONGSHORE_PART_MIB lower"
        }
        "ContainerBeingDeleted" => "the container is being deleted: name another one",
        "BlobImmutableDueToPolicy" => {
            "a policy of the container keeps the blob: name another key, or wait until the policy lets it go"
        }
        _ => return None,
    })
}

fn refused_hint(status: u16, code: &str) -> &'static str {
    match (status, code) {
        (_, "InvalidAccessKeyId" | "SignatureDoesNotMatch") => {
            "check the credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile that AWS_PROFILE names"
        }
        (_, "ExpiredToken" | "TokenRefreshRequired" | "InvalidToken") => {
            "the session's credentials are no longer valid: get new ones, then run the command again"
        }
        (_, "RequestTimeTooSkewed") => "set this machine's clock, then run the command again",
        (_, "EntityTooLarge") => {
            "the store takes no parts of this size: set LONGSHORE_PART_MIB lower"
        }
        // So AWS answers a body without a checksum, where a bucket has an object lock.
        (400, "InvalidRequest") => {
            "if the bucket has an object lock, set LONGSHORE_S3_CHECKSUM=crc64nvme, then run the command again"
        }
        (_, "EntityTooSmall") => "the store wants larger parts: set LONGSHORE_PART_MIB higher",
        (_, "AuthorizationHeaderMalformed" | "PermanentRedirect") => {
            "set AWS_REGION to the bucket's region: `aws s3api get-bucket-location --bucket BUCKET`"
        }
        (401 | 403, _) => {
            "check the key, its secret and this machine's clock, and allow these credentials what docs/buckets.md lists"
        }
        (409, _) => {
            "another writer was at work on the same name: give each backup names of its own, then run the command again"
        }
        (501, _) | (_, "NotImplemented") => {
            "the store lacks what docs/buckets.md lists, such as completions with If-None-Match: back up to another one"
        }
        (429 | 503, _) => {
            "the store is overloaded: run the command again later, or lower --max-rate"
        }
        (500.., _) => "the store is at fault: run the command again later",
        _ => "docs/buckets.md lists what the store must support",
    }
}
