//! Settings of a bucket, from the environment and the AWS files.
//!
//! Invariants
//! - No request is made. Only the process's environment is read, and files that the environment names or that are below
//!   the home directory's `.aws`.
//! - A store's endpoint of plain http needs [`ALLOW_HTTP`]. A container's full address of plain http must be on this
//!   machine or one of three link-local services.
//! - With `AWS_PROFILE`, the credentials come from that profile or not at all.
//! - Missing credentials are no error here: the first request fails with the reason.
//! - `Debug` shows the endpoint and the region, never a key.
//!
//! Leaves to others: the form of values (`environment.rs`); profiles (`profile.rs`); proxies (`network.rs`); getting
//! the credentials (`credentials.rs`, `object_store`).

use std::ffi::OsString;
use std::path::Path;

use longshore_io::{SmallFile, Storage};

use crate::Error;
use crate::environment::{Environment, Form, check, server};
use crate::profile::Profile;
use crate::source::Source;

/// The variable that allows plain http.
pub const ALLOW_HTTP: &str = "LONGSHORE_ALLOW_HTTP";
/// The variable that names a file of certificates to trust.
pub const CA_FILE: &str = "LONGSHORE_CA_FILE";
/// The variable that sets the size of a part.
pub const PART_MIB: &str = "LONGSHORE_PART_MIB";

const MIB: u64 = 1 << 20;
/// The smallest that is planned: enough for 156 GiB in each stripe.
const PART_MIN: u64 = 16 * MIB;
/// Where the source's size is not known: enough for 312 GiB in each stripe.
const PART_UNKNOWN: u64 = 32 * MIB;
/// The parts that the plan counts on; a stripe may have [`crate::PARTS_MAX`].
const PARTS: u64 = 9_900;
/// Of the stores: S3 takes parts of 5 MiB to 5 GiB. A part is held in memory.
const PART_MIB_RANGE: std::ops::RangeInclusive<u64> = 5..=4096;

/// The size of one part of a stripe that will have about `stripe_bytes`.
pub fn part_bytes(stripe_bytes: Option<u64>) -> u64 {
    match part_asked() {
        Some(asked) => asked,
        None => planned(stripe_bytes),
    }
}

fn planned(stripe_bytes: Option<u64>) -> u64 {
    let Some(bytes) = stripe_bytes else {
        return PART_UNKNOWN;
    };
    let part = bytes.div_ceil(PARTS).next_multiple_of(MIB);
    part.clamp(PART_MIN, PART_MIB_RANGE.end() * MIB)
}

/// [`PART_MIB`]'s value, if it is one.
fn part_asked() -> Option<u64> {
    let asked = std::env::var(PART_MIB).ok()?.parse().ok()?;
    PART_MIB_RANGE.contains(&asked).then(|| asked * MIB)
}

/// The settings with which a bucket is reached.
#[derive(Clone)]
pub struct Settings {
    pub(crate) endpoint: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) allow_http: bool,
    pub(crate) ca: Option<Vec<u8>>,
    pub(crate) source: Result<Source, String>,
    /// The most and the longest repetitions of one request.
    pub(crate) patience: Patience,
}

/// How long a request is repeated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    pub retries: usize,
    pub total: std::time::Duration,
    pub first_wait: std::time::Duration,
    pub longest_wait: std::time::Duration,
}

impl Patience {
    /// Below five minutes in all: a request is repeated with its first signature.
    pub const USUAL: Patience = Patience {
        // Time ends it.
        retries: usize::MAX,
        total: std::time::Duration::from_secs(180),
        first_wait: std::time::Duration::from_millis(100),
        longest_wait: std::time::Duration::from_secs(15),
    };
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

/// A file's content is not larger than this.
const FILE_MAX: usize = 1 << 20;

impl Settings {
    /// The settings for `bucket`, from this process's environment and the AWS files that it names.
    ///
    /// Errors: [`Error::Settings`]. That there are no credentials is said by the first request.
    pub fn of_environment(bucket: &str, storage: &dyn Storage) -> Result<Settings, Error> {
        Settings::read(bucket, storage, &|name| std::env::var_os(name))
    }

    /// [`Settings::of_environment`] with another environment.
    pub fn read(
        bucket: &str,
        storage: &dyn Storage,
        get: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Settings, Error> {
        Settings::found(storage, &Environment(get)).map_err(|why| Error::Settings {
            bucket: bucket.to_owned(),
            why,
        })
    }

    fn found(storage: &dyn Storage, env: &Environment) -> Result<Settings, String> {
        if let Some(asked) = env.get(PART_MIB, Form::Signs)?
            && !asked.parse().is_ok_and(|n| PART_MIB_RANGE.contains(&n))
        {
            return Err(format!(
                "{PART_MIB} is {asked:?}, and 5 to 4096 are allowed"
            ));
        }
        let explicit = env.get("AWS_PROFILE", Form::Text)?;
        let name = explicit.clone().unwrap_or_else(|| "default".to_owned());
        let profile = profile(storage, env, &name)?;
        if explicit.is_some() && profile.is_none() {
            return Err(format!(
                "AWS_PROFILE names the profile {name:?}, which neither AWS file has"
            ));
        }
        let profile = profile.unwrap_or_default();
        let of_profile = |key: &str, form| match profile.get(key) {
            None => Ok(None),
            Some(value) => {
                let name = format!("{key} of the profile {name:?}");
                check(&name, &value, form).map(|()| Some((name, value)))
            }
        };
        let allow_http = match env.get(ALLOW_HTTP, Form::Signs)?.as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(_) => return Err(format!("{ALLOW_HTTP} is neither 0 nor 1")),
        };
        let endpoints = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"];
        let endpoint = match env.first(&endpoints, Form::Signs)? {
            None => of_profile("endpoint_url", Form::Signs)?,
            found => found,
        };
        if let Some((name, endpoint)) = &endpoint {
            check_endpoint(name, endpoint, allow_http)?;
        }
        let region = match env.first(&["AWS_REGION", "AWS_DEFAULT_REGION"], Form::Word)? {
            None => of_profile("region", Form::Word)?,
            found => found,
        };
        // AWS's may be set for the whole machine.
        let ca = match env.path(CA_FILE)? {
            None => env.path("AWS_CA_BUNDLE")?,
            found => found,
        };
        let ca = match ca {
            None => None,
            Some(path) => Some(
                read_file(storage, &path)?
                    .ok_or_else(|| format!("the certificates' file {path:?} is missing"))?,
            ),
        };
        Ok(Settings {
            endpoint: endpoint.map(|(_, value)| value),
            region: region.map(|(_, value)| value),
            allow_http,
            ca,
            source: source(env, explicit.is_some(), &name, &profile),
            patience: Patience::USUAL,
        })
    }
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

fn check_endpoint(name: &str, endpoint: &str, allow_http: bool) -> Result<(), String> {
    let url = server(name, endpoint, &["https", "http"])?;
    match url.scheme() {
        "http" if !allow_http => Err(format!(
            "{name} is plain http, which everyone on the way can read and change; {ALLOW_HTTP}=1 allows it"
        )),
        _ => Ok(()),
    }
}

/// The first of the places that has credentials. Errors: why a place has none that can be used.
fn source(
    env: &Environment,
    explicit: bool,
    name: &str,
    profile: &Profile,
) -> Result<Source, String> {
    let get = |name| env.get(name, Form::Signs);
    if !explicit {
        match (get("AWS_ACCESS_KEY_ID")?, get("AWS_SECRET_ACCESS_KEY")?) {
            (Some(id), Some(secret)) => {
                let token = get("AWS_SESSION_TOKEN")?;
                return Ok(Source::Keys { id, secret, token });
            }
            (Some(_), None) => {
                return Err("AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not".to_owned());
            }
            _ => {}
        }
    }
    let of_profile = profile.source(name)?;
    if explicit {
        return of_profile.ok_or_else(|| format!("the profile {name:?} has no credentials"));
    }
    if let Some(found) = of_machine(env)? {
        return Ok(found);
    }
    if let Some(found) = of_profile {
        return Ok(found);
    }
    let off = get("AWS_EC2_METADATA_DISABLED")?;
    if off.is_some_and(|off| off.eq_ignore_ascii_case("true")) {
        return Err("neither the environment nor the AWS files have any".to_owned());
    }
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
        let sts = get("AWS_ENDPOINT_URL_STS")?;
        if let Some(sts) = &sts {
            server("AWS_ENDPOINT_URL_STS", sts, &["https"])?;
        }
        return Ok(Some(Source::WebIdentity {
            token_file,
            role,
            session: get("AWS_ROLE_SESSION_NAME")?,
            sts,
        }));
    }
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

/// The file's content; `None` if there is no such file.
fn read_file(storage: &dyn Storage, path: &Path) -> Result<Option<Vec<u8>>, String> {
    let failed = |e: std::io::Error| format!("{} cannot be read: {e}", path.display());
    let Some(name) = path.file_name() else {
        return Err(format!("{} is no file", path.display()));
    };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match storage.dir(parent) {
        Ok(dir) => SmallFile::new(dir, name, FILE_MAX).read().map_err(failed),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_io::SimDisk;

    fn read(disk: &SimDisk, variables: &[(&str, &str)]) -> Result<Settings, Error> {
        let get = |name: &str| {
            let found = variables.iter().find(|v| v.0 == name);
            found.map(|v| v.1.into())
        };
        Settings::read("b", disk, &get)
    }

    fn disk() -> SimDisk {
        let disk = SimDisk::new(1);
        disk.write_file(
            "/home/.aws/credentials",
            b"[default]\naws_access_key_id = AKDEF\naws_secret_access_key=s1\n\
              [other]\naws_access_key_id=AKOTHER\naws_secret_access_key=s2\naws_session_token=t2\n",
        )
        .unwrap();
        disk.write_file(
            "/home/.aws/config",
            b"[default]\nregion = eu-west-1\n[profile tool]\ncredential_process = /bin/x --y\n\
              [profile wide]\nregion = a b\n[profile sso]\nsso_session = a\n[profile role]\nrole_arn = arn\nsource_profile = default\n",
        )
        .unwrap();
        disk
    }

    const HOME: (&str, &str) = ("HOME", "/home");

    fn id(settings: &Settings) -> String {
        match &settings.source {
            Ok(Source::Keys { id, .. }) => id.clone(),
            Ok(Source::Process { command, .. }) => command.clone(),
            Ok(Source::WebIdentity { role, .. }) => role.clone(),
            Ok(Source::Instance { endpoint }) => endpoint.clone().unwrap_or("instance".to_owned()),
            Ok(_) => "container".to_owned(),
            Err(why) => why.clone(),
        }
    }

    #[test]
    fn credentials_come_from_the_first_place_that_has_them() {
        let disk = disk();
        let env = [
            ("AWS_ACCESS_KEY_ID", "AKENV"),
            ("AWS_SECRET_ACCESS_KEY", "s"),
        ];
        let role = [
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/t"),
            ("AWS_ROLE_ARN", "arn:r"),
        ];
        let with = |more: &[&[(&'static str, &'static str)]]| {
            let mut all = vec![HOME];
            all.extend(more.iter().copied().flatten());
            id(&read(&disk, &all).unwrap())
        };
        assert_eq!(with(&[&env, &role]), "AKENV");
        assert_eq!(with(&[&role]), "arn:r");
        assert_eq!(with(&[]), "AKDEF");
        assert_eq!(with(&[&[("AWS_PROFILE", "other")], &env]), "AKOTHER");
        assert_eq!(with(&[&[("AWS_PROFILE", "tool")]]), "/bin/x --y");
        let uri = [("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/x")];
        assert_eq!(with(&[&uri]), "container");
        assert!(with(&[&env[..1]]).contains("AWS_SECRET_ACCESS_KEY is not"));
        assert!(with(&[&[("AWS_PROFILE", "sso")]]).contains("credential_process"));
        assert!(with(&[&[("AWS_PROFILE", "role")]]).contains("credential_process"));
        let none = read(&SimDisk::new(2), &[]).unwrap();
        assert_eq!(id(&none), "instance");
        let other = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://m:1/")];
        assert_eq!(id(&read(&SimDisk::new(2), &other).unwrap()), "http://m:1");
        let six = [("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "IPv6")];
        let six = id(&read(&SimDisk::new(2), &six).unwrap());
        assert_eq!(six, "http://[fd00:ec2::254]");
        let off = [("AWS_EC2_METADATA_DISABLED", "true")];
        assert!(read(&SimDisk::new(2), &off).unwrap().source.is_err());
    }

    #[test]
    fn what_the_settings_cannot_mean_is_refused_and_says_no_secret() {
        let disk = disk();
        for (variables, word) in [
            (&[("AWS_PROFILE", "nobody")][..], "nobody"),
            (&[("AWS_ENDPOINT_URL", "http://h:1")], ALLOW_HTTP),
            (
                &[("AWS_ENDPOINT_URL", "https://u:secret@h")],
                "AWS_ENDPOINT_URL",
            ),
            (&[("AWS_ENDPOINT_URL", "h:1")], "https://"),
            (&[(ALLOW_HTTP, "yes")], ALLOW_HTTP),
            (&[(CA_FILE, "/none/ca.pem")], "/none/ca.pem"),
            (&[(PART_MIB, "4")], PART_MIB),
            (&[(PART_MIB, " 16")], PART_MIB),
            (
                &[("AWS_ENDPOINT_URL", "https://h?secret")],
                "AWS_ENDPOINT_URL",
            ),
            (
                &[("AWS_ENDPOINT_URL_S3", "https://h \n")],
                "AWS_ENDPOINT_URL_S3",
            ),
            (&[("AWS_ENDPOINT_URL", "https://h:0")], "65535"),
            (&[("AWS_REGION", "eu west")], "AWS_REGION"),
            (&[("AWS_DEFAULT_REGION", "eu/secret")], "AWS_DEFAULT_REGION"),
            (&[("AWS_PROFILE", "a\n")], "AWS_PROFILE"),
            (&[("AWS_PROFILE", "wide")], "region of the profile"),
            (&[("AWS_CONFIG_FILE", "/a\n")], "AWS_CONFIG_FILE"),
        ] {
            let all = [&[HOME], variables].concat();
            let refused = read(&disk, &all).unwrap_err().to_string();
            assert!(refused.contains(word), "{refused}");
            assert!(!refused.contains("secret"), "{refused}");
        }
        let http = [("AWS_ENDPOINT_URL", "http://h:1"), (ALLOW_HTTP, "1")];
        assert!(read(&disk, &http).unwrap().allow_http);
    }

    #[test]
    fn credentials_that_cannot_be_sent_are_refused_by_name() {
        let id = ("AWS_ACCESS_KEY_ID", "AK");
        let key = ("AWS_SECRET_ACCESS_KEY", "verysecret");
        let web = ("AWS_WEB_IDENTITY_TOKEN_FILE", "/t");
        let token = ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/t");
        let full = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
        for (variables, word) in [
            (
                &[("AWS_ACCESS_KEY_ID", "A K"), key][..],
                "AWS_ACCESS_KEY_ID",
            ),
            (&[id, (key.0, "verysecret\n")], key.0),
            (&[id, (key.0, " verysecret")], key.0),
            (
                &[id, key, ("AWS_SESSION_TOKEN", "very secret")],
                "AWS_SESSION_TOKEN",
            ),
            (&[web, ("AWS_ROLE_ARN", "arn:\n")], "AWS_ROLE_ARN"),
            (
                &[
                    web,
                    ("AWS_ROLE_ARN", "r"),
                    ("AWS_ENDPOINT_URL_STS", "http://h"),
                ],
                "AWS_ENDPOINT_URL_STS",
            ),
            (
                &[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "@evil")],
                "RELATIVE_URI",
            ),
            (&[token, (full, "http://evil/c")], full),
            (&[token, (full, "http://169.254.170.2.evil/c")], full),
            (&[token, (full, "http://u:verysecret@127.0.0.1/c")], full),
            (
                &[("AWS_EC2_METADATA_SERVICE_ENDPOINT", "h")],
                "AWS_EC2_METADATA_SERVICE_ENDPOINT",
            ),
        ] {
            let why = read(&SimDisk::new(1), variables).unwrap().source;
            let why = why.err().unwrap_or_default();
            assert!(why.contains(word), "{variables:?}: {why}");
            assert!(!why.contains("secret"), "{why}");
        }
        for near in [
            "http://127.0.0.1:1/c?a=b",
            "http://[fd00:ec2::23]/c",
            "https://else/c",
        ] {
            assert!(
                read(&SimDisk::new(1), &[token, (full, near)])
                    .unwrap()
                    .source
                    .is_ok()
            );
        }
    }

    #[test]
    fn no_secret_is_shown() {
        let keys = [
            ("AWS_ACCESS_KEY_ID", "AKENV"),
            ("AWS_SECRET_ACCESS_KEY", "verysecret"),
            ("AWS_SESSION_TOKEN", "verysecret"),
        ];
        let shown = format!("{:?}", read(&disk(), &keys).unwrap());
        assert!(!shown.contains("verysecret"), "{shown}");
    }

    #[test]
    fn parts_are_large_enough_for_the_plan_and_no_larger() {
        let tib = 1u64 << 40;
        for (bytes, mib) in [
            (Some(0), 16),
            (Some(100 << 30), 16),
            (Some(tib), 106),
            (Some(tib / 4), 27),
            (None, 32),
            (Some(u64::MAX), 4096),
        ] {
            assert_eq!(planned(bytes), mib << 20, "{bytes:?}");
        }
        assert!(planned(Some(tib)) * PARTS >= tib);
    }
}
