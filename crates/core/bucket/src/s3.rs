//! S3 and what speaks its protocol: settings from the environment and the AWS files, and the client.
//!
//! Invariants
//! - With `AWS_PROFILE`, the credentials come from that profile or not at all.
//! - A container's full address of plain http must be on this machine or one of three link-local services.
//! - Missing credentials are no error here: the first request fails with the reason.
//!
//! Leaves to others: the form of values (`environment.rs`); profiles (`profile.rs`); what all stores have in common
//! (`settings.rs`); getting the credentials (`credentials.rs`, `object_store`).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use longshore_io::Storage;
use object_store::Error as StoreError;
use object_store::aws::{AmazonS3Builder, AwsCredentialProvider, Checksum};
use object_store::client::{HttpClient, HttpConnector};

use crate::connection::{Connection, Ways, base_of};
use crate::credentials::{Lacking, Noted, Process};
use crate::environment::{Environment, Form, check, check_endpoint, read_file, server};
use crate::exchanged::AssumedRole;
use crate::held::Lasting;
use crate::own::{Asking, Sign};
use crate::profile::Profile;
use crate::role::{self, Surroundings};
use crate::source::Source;

const REGION: &str = "us-east-1";
/// A bucket with an object lock takes no body without a checksum; old stores know none of these.
pub const CHECKSUM: &str = "LONGSHORE_S3_CHECKSUM";

/// How requests name the bucket.
pub const ADDRESSING_STYLE: &str = "LONGSHORE_S3_ADDRESSING_STYLE";

/// Where a request has the bucket's name, by the words of AWS's own tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// In the path at a server of one's own, in the host at AWS.
    Auto,
    Path,
    /// In the host: `https://BUCKET.SERVER/KEY`.
    Virtual,
}

/// The settings with which a bucket is reached.
#[derive(Clone)]
pub struct S3 {
    pub endpoint: Option<String>,
    pub style: Style,
    pub region: Option<String>,
    pub source: Result<Source, String>,
    /// The checksum that each body is sent with; the store compares it.
    pub checksum: Option<Checksum>,
}

impl S3 {
    /// `in_profile`: whether the profile may say where the server is, too. Errors: which variable or key cannot be meant,
    /// and why.
    pub fn read(
        storage: &dyn Storage,
        env: &Environment,
        allow_http: bool,
        in_profile: bool,
    ) -> Result<S3, String> {
        let explicit = env.get("AWS_PROFILE", Form::Text)?;
        let name = explicit.clone().unwrap_or_else(|| "default".to_owned());
        let profile = profile(storage, env, &name)?;
        if explicit.is_some() && profile.is_none() {
            return Err(format!(
                "AWS_PROFILE names the profile {name:?}, which neither AWS file has"
            ));
        }
        let profile = profile.unwrap_or_default();
        let place = |key: &str| profile.get(key).filter(|_| in_profile);
        let of_profile = |key: &str, form| match place(key) {
            None => Ok(None),
            Some(value) => {
                let name = format!("{key} of the profile {name:?}");
                check(&name, &value, form).map(|()| Some((name, value)))
            }
        };
        let endpoints = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"];
        let endpoint = match env.first(&endpoints, Form::Signs)? {
            None => of_profile("endpoint_url", Form::Signs)?,
            found => found,
        };
        let endpoint = match endpoint {
            None => None,
            // One server has one spelling: places are compared by it.
            Some((name, endpoint)) => Some(check_endpoint(&name, &endpoint, allow_http)?),
        };
        let has_name = endpoint.as_ref().is_none_or(|url| url.domain().is_some());
        let style = match env.get(ADDRESSING_STYLE, Form::Word)? {
            Some(value) => style_of(ADDRESSING_STYLE, &value, has_name)?,
            None => match of_profile("s3.addressing_style", Form::Word)? {
                None => Style::Auto,
                // As AWS's own tools do where the server is an address.
                Some((_, value)) if value == "virtual" && !has_name => Style::Path,
                Some((name, value)) => style_of(&name, &value, has_name)?,
            },
        };
        let region = match env.first(&["AWS_REGION", "AWS_DEFAULT_REGION"], Form::Word)? {
            None => of_profile("region", Form::Word)?,
            found => found,
        };
        let checksum = match env.get(CHECKSUM, Form::Word)?.as_deref() {
            None | Some("none") => None,
            Some("crc64nvme") => Some(Checksum::CRC64NVME),
            Some("sha256") => Some(Checksum::SHA256),
            Some(_) => {
                return Err(format!(
                    "{CHECKSUM} is neither crc64nvme nor sha256 nor none"
                ));
            }
        };
        Ok(S3 {
            checksum,
            style,
            endpoint: endpoint.map(|url| url.as_str().trim_end_matches('/').to_owned()),
            region: region.map(|(_, value)| value),
            source: source((storage, env), explicit.is_some(), &name, &profile),
        })
    }

    pub fn region(&self) -> &str {
        self.region.as_deref().unwrap_or(REGION)
    }

    /// The server, from the settings' endpoint or region.
    pub fn server(&self) -> String {
        match &self.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => format!("https://s3.{}.amazonaws.com", self.region()),
        }
    }

    /// The client of the bucket `name`. Makes no request.
    pub fn connect<C: HttpConnector>(
        &self,
        name: &str,
        ways: &Ways<C>,
    ) -> Result<Connection, StoreError> {
        let region = self.region();
        let builder = AmazonS3Builder::new()
            .with_bucket_name(name)
            .with_region(region)
            .with_client_options(ways.options.clone())
            // Not every store can remove many objects at once.
            .with_disable_bulk_delete(true)
            .with_retry(ways.retry.clone());
        let builder = match self.checksum {
            Some(checksum) => builder.with_checksum_algorithm(checksum),
            None => builder,
        };
        let soon = builder
            .clone()
            .with_retry(ways.soon.clone())
            .with_client_options(ways.place_options())
            .with_http_connector(ways.to_places());
        let credentials: AwsCredentialProvider = Arc::new(Noted::of_aws(provider(
            &self.source,
            soon,
            (region, &|| ways.place_client()),
        )?));
        let (builder, base) = self.addressed(builder.with_credentials(credentials.clone()), name);
        let asking = Asking {
            base: base_of(&base)?,
            sign: Sign::S3 {
                region: region.to_owned(),
                credentials,
            },
            client: ways.client()?,
            patience: ways.patience,
        };
        let store = builder.with_http_connector(ways.watched()).build()?;
        Ok(Connection::new(self.server(), store, asking))
    }

    /// The builder that knows where the bucket is, and the bucket's own address.
    fn addressed(&self, builder: AmazonS3Builder, name: &str) -> (AmazonS3Builder, String) {
        let base = self.bucket_url(name);
        let is_host = self.is_in_host(name);
        let endpoint = match is_host {
            // The client takes it as the bucket's.
            true => base.trim_end_matches('/').to_owned(),
            false => self.server(),
        };
        let builder = builder
            // TLS protects the body already, and hashing it costs a core for each GB/s.
            .with_unsigned_payload(endpoint.starts_with("https://"))
            .with_virtual_hosted_style_request(is_host)
            .with_endpoint(endpoint);
        (builder, base)
    }

    /// The address that the keys of the bucket `name` are appended to.
    pub fn bucket_url(&self, name: &str) -> String {
        let server = self.server();
        match (self.is_in_host(name), server.split_once("://")) {
            (true, Some((protocol, host))) => format!("{protocol}://{name}.{host}/"),
            _ => format!("{server}/{name}"),
        }
    }

    fn is_in_host(&self, name: &str) -> bool {
        match self.style {
            // The certificate of *.s3.REGION.amazonaws.com does not cover a name with a dot.
            Style::Auto => self.endpoint.is_none() && !name.contains('.'),
            Style::Path => false,
            Style::Virtual => true,
        }
    }
}

/// Errors: the value is no style, or the server has no name that a bucket could go before.
fn style_of(name: &str, value: &str, has_name: bool) -> Result<Style, String> {
    match value {
        "auto" => Ok(Style::Auto),
        "path" => Ok(Style::Path),
        "virtual" if has_name => Ok(Style::Virtual),
        "virtual" => Err(format!(
            "{name} is virtual, which puts the bucket's name before the server's, and this server has an address and no name: set it to path"
        )),
        _ => Err(format!("{name} is neither path nor virtual nor auto")),
    }
}

/// The places are asked through the builder's connector, not as often as the store is.
fn provider(
    source: &Result<Source, String>,
    builder: AmazonS3Builder,
    (region, client): (&str, &dyn Fn() -> Result<HttpClient, StoreError>),
) -> Result<AwsCredentialProvider, StoreError> {
    use object_store::aws::AmazonS3ConfigKey as Key;
    let built = match source.clone() {
        Err(why) => return Ok(Arc::new(Lacking::new(why))),
        Ok(Source::Role { base, role }) => {
            let base = provider(&Ok(*base), builder, (region, client))?;
            let region = region.to_owned();
            return Ok(Arc::new(AssumedRole::new(role, region, base, client()?)));
        }
        Ok(Source::Process { profile, command }) => {
            return Ok(Arc::new(Process::new(profile, command)));
        }
        Ok(Source::Keys { id, secret, token }) => {
            let builder = builder
                .with_access_key_id(id)
                .with_secret_access_key(secret);
            match token {
                Some(token) => builder.with_token(token),
                None => builder,
            }
        }
        Ok(Source::WebIdentity {
            token_file,
            role,
            session,
            sts,
        }) => {
            let builder = builder
                .with_config(Key::WebIdentityTokenFile, token_file)
                .with_config(Key::RoleArn, role);
            let more = [(Key::RoleSessionName, session), (Key::StsEndpoint, sts)];
            more.into_iter()
                .fold(builder, |builder, (key, value)| match value {
                    Some(value) => builder.with_config(key, value),
                    None => builder,
                })
        }
        Ok(Source::ContainerRelative(uri)) => {
            builder.with_config(Key::ContainerCredentialsRelativeUri, uri)
        }
        Ok(Source::ContainerFull { uri, token_file }) => builder
            .with_config(Key::ContainerCredentialsFullUri, uri)
            .with_config(Key::ContainerAuthorizationTokenFile, token_file),
        Ok(Source::Instance { endpoint }) => match endpoint {
            Some(endpoint) => builder.with_metadata_endpoint(endpoint),
            None => builder,
        },
    };
    let provider = built.build()?.credentials().clone();
    Ok(Arc::new(Lasting::new(provider)))
}

/// The profile of the AWS files; `None` if neither has it.
fn profile(
    storage: &dyn Storage,
    env: &Environment,
    name: &str,
) -> Result<Option<Profile>, String> {
    let text = |variable, below| {
        let path = env.path(variable)?.or_else(|| env.home(below));
        let bytes = match path {
            Some(path) => read_file(storage, &path)?.unwrap_or_default(),
            None => Vec::new(),
        };
        Ok::<_, String>(String::from_utf8_lossy(&bytes).into_owned())
    };
    let shared = text("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials")?;
    let config = text("AWS_CONFIG_FILE", ".aws/config")?;
    Ok(Profile::read(name, &shared, &config))
}

/// The first of the places that has credentials. Errors: why a place has none that can be used.
fn source(
    (storage, env): (&dyn Storage, &Environment),
    explicit: bool,
    name: &str,
    profile: &Profile,
) -> Result<Source, String> {
    let get = |name| env.get(name, Form::Signs);
    if !explicit && let Some(keys) = keys(env)? {
        return Ok(keys);
    }
    let place = |place: &str| match place {
        "Environment" => keys(env),
        "EcsContainer" => container(env),
        "Ec2InstanceMetadata" => instance(env).map(Some),
        _ => Ok(None),
    };
    let other = |name: &str| self::profile(storage, env, name);
    let around = Surroundings {
        profile: &other,
        place: &place,
        sts: sts(env)?,
        warn: &warn_once,
    };
    if explicit {
        let of_profile = role::source(name, profile, &around)?;
        return of_profile.ok_or_else(|| format!("the profile {name:?} has no credentials"));
    }
    // A profile that is not used is neither refused nor warned of.
    if let Some(found) = of_machine(env)? {
        return Ok(found);
    }
    if let Some(found) = role::source(name, profile, &around)? {
        return Ok(found);
    }
    let off = get("AWS_EC2_METADATA_DISABLED")?;
    if off.is_some_and(|off| off.eq_ignore_ascii_case("true")) {
        return Err("neither the environment nor the AWS files have any".to_owned());
    }
    instance(env)
}

/// Says it once in a process: settings are read for each bucket.
fn warn_once(text: String) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if !said.contains(&text) {
        tracing::warn!("{text}");
        said.insert(text);
    }
}

/// The keys in the environment.
fn keys(env: &Environment) -> Result<Option<Source>, String> {
    let get = |name| env.get(name, Form::Signs);
    match (get("AWS_ACCESS_KEY_ID")?, get("AWS_SECRET_ACCESS_KEY")?) {
        (Some(id), Some(secret)) => {
            let token = get("AWS_SESSION_TOKEN")?;
            Ok(Some(Source::Keys { id, secret, token }))
        }
        (Some(_), None) => {
            Err("AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not".to_owned())
        }
        _ => Ok(None),
    }
}

/// The service that gives roles, where it is not the region's.
fn sts(env: &Environment) -> Result<Option<String>, String> {
    let name = "AWS_ENDPOINT_URL_STS";
    let sts = env.get(name, Form::Signs)?;
    if let Some(sts) = &sts {
        server(name, sts, &["https"])?;
    }
    Ok(sts)
}

fn instance(env: &Environment) -> Result<Source, String> {
    let get = |name| env.get(name, Form::Signs);
    let endpoint = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
    let is_v6 = get("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE")?
        .is_some_and(|mode| mode.eq_ignore_ascii_case("ipv6"));
    let endpoint = match get(endpoint)? {
        Some(found) => {
            server(endpoint, &found, &["http", "https"])?;
            Some(found.trim_end_matches('/').to_owned())
        }
        None => is_v6.then(|| "http://[fd00:ec2::254]".to_owned()),
    };
    Ok(Source::Instance { endpoint })
}

/// The credentials that Kubernetes or a container service put into the environment.
fn of_machine(env: &Environment) -> Result<Option<Source>, String> {
    let get = |name| env.get(name, Form::Signs);
    let token_file = env.get("AWS_WEB_IDENTITY_TOKEN_FILE", Form::Text)?;
    if let (Some(token_file), Some(role)) = (token_file, get("AWS_ROLE_ARN")?) {
        return Ok(Some(Source::WebIdentity {
            token_file,
            role,
            session: get("AWS_ROLE_SESSION_NAME")?,
            sts: sts(env)?,
        }));
    }
    container(env)
}

/// The credentials of a container service.
fn container(env: &Environment) -> Result<Option<Source>, String> {
    let get = |name| env.get(name, Form::Signs);
    let relative = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
    if let Some(uri) = get(relative)? {
        // Otherwise it could continue the host's name.
        return match uri.starts_with('/') {
            true => Ok(Some(Source::ContainerRelative(uri))),
            false => Err(format!("{relative} does not begin with /")),
        };
    }
    let full = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
    let token_file = env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", Form::Text)?;
    if let (Some(uri), Some(token_file)) = (get(full)?, token_file) {
        check_container(full, &uri)?;
        return Ok(Some(Source::ContainerFull { uri, token_file }));
    }
    Ok(None)
}

/// A container's token goes over TLS, or to this machine and to the services on its own links, as with AWS's tools.
fn check_container(name: &str, uri: &str) -> Result<(), String> {
    // It may have a query.
    let place = uri.split('?').next().unwrap_or_default();
    let url = server(name, place, &["http", "https"])?;
    let host = url.host_str().unwrap_or_default();
    let ip = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    let is_near = match ip {
        Ok(ip) => {
            let services = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];
            ip.is_loopback() || services.iter().any(|near| near.parse() == Ok(ip))
        }
        Err(_) => host == "localhost",
    };
    match url.scheme() == "https" || is_near {
        true => Ok(()),
        false => Err(format!(
            "{name} is plain http to another machine, and https or an address of this machine is allowed"
        )),
    }
}
