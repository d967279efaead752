//! Settings of a bucket: what all stores have in common, and those of its store.
//!
//! Invariants
//! - No request is made. Only the process's environment is read, and files that it names or that are at their usual
//!   places below the home directory.
//! - Missing credentials are no error here: the first request fails with the reason.
//! - `Debug` shows the server, never a key.
//!
//! Leaves to others: what is the store's own (`s3.rs`, `azure.rs`, `google.rs`); the form of values
//! (`environment.rs`); proxies (`network.rs`).

use std::ffi::OsString;

use longshore_io::Storage;

use crate::Error;
use crate::azure::Azure;
use crate::environment::{ALLOW_HTTP, Environment, Form, PATIENCE, read_file};
use crate::google::Google;
use crate::patience::Patience;
use crate::s3::S3;
use crate::scheme::Scheme;

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
    pub(crate) provider: Provider,
    pub(crate) origin: Origin,
    pub(crate) allow_http: bool,
    pub(crate) ca: Option<Vec<u8>>,
    /// The most and the longest repetitions of one request.
    pub(crate) patience: Patience,
}

/// The server of S3 that this process's settings name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Server {
    /// Its host, with the port if the settings have one.
    pub host: String,
    pub region: String,
}

impl S3Server {
    /// `None` if the settings cannot be read.
    pub fn of_environment(storage: &dyn Storage) -> Option<S3Server> {
        let settings = Settings::of_environment(Scheme::S3, "", storage).ok()?;
        let server = settings.server();
        let (_, rest) = server.split_once("://")?;
        Some(S3Server {
            host: rest.split('/').next()?.to_owned(),
            region: settings.region().to_owned(),
        })
    }
}

/// The place that named the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Environment,
    /// The configuration, by this name.
    Named(String),
    /// The address itself. `before`: its text up to the key. `credential`: the name of the key that it is read with.
    Given {
        before: String,
        credential: String,
    },
}

/// The settings of one kind of store.
#[derive(Clone)]
pub(crate) enum Provider {
    S3(S3),
    Azure(Azure),
    Google(Google),
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("server", &self.server())
            .finish_non_exhaustive()
    }
}

impl Settings {
    /// The settings for `bucket`, from this process's environment and the files that it names.
    ///
    /// Errors: [`Error::Settings`]. That there are no credentials is said by the first request.
    pub fn of_environment(
        scheme: Scheme,
        bucket: &str,
        storage: &dyn Storage,
    ) -> Result<Settings, Error> {
        Settings::read(scheme, bucket, storage, &|name| std::env::var_os(name))
    }

    /// [`Settings::of_environment`] with another environment.
    pub fn read(
        scheme: Scheme,
        bucket: &str,
        storage: &dyn Storage,
        get: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Settings, Error> {
        let found = Settings::found(scheme, storage, get, true);
        found.map_err(|why| Error::Settings {
            bucket: bucket.to_owned(),
            why,
        })
    }

    /// `of_profile`: whether a profile may say where the server is, too.
    pub(crate) fn found(
        scheme: Scheme,
        storage: &dyn Storage,
        get: &dyn Fn(&str) -> Option<OsString>,
        of_profile: bool,
    ) -> Result<Settings, String> {
        let env = &Environment(get);
        if let Some(asked) = env.get(PART_MIB, Form::Signs)?
            && !asked.parse().is_ok_and(|n| PART_MIB_RANGE.contains(&n))
        {
            return Err(format!(
                "{PART_MIB} is {asked:?}, and 5 to 4096 are allowed"
            ));
        }
        let allow_http = match env.get(ALLOW_HTTP, Form::Signs)?.as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(_) => return Err(format!("{ALLOW_HTTP} is neither 0 nor 1")),
        };
        let patience = match env.get(PATIENCE, Form::Signs)? {
            None => Patience::USUAL,
            Some(asked) => asked.parse().ok().and_then(Patience::of).ok_or_else(|| {
                let (first, last) = Patience::SECONDS.into_inner();
                format!("{PATIENCE} is {asked:?}, and {first} to {last} seconds are allowed")
            })?,
        };
        let ca = match env.path(CA_FILE)? {
            // AWS's may be set for the whole machine.
            None if scheme == Scheme::S3 => env.path("AWS_CA_BUNDLE")?,
            found => found,
        };
        let ca = match ca {
            None => None,
            Some(path) => Some(
                read_file(storage, &path)?
                    .ok_or_else(|| format!("the certificates' file {path:?} is missing"))?,
            ),
        };
        let provider = match scheme {
            Scheme::S3 => Provider::S3(S3::read(storage, env, allow_http, of_profile)?),
            Scheme::Azure => Provider::Azure(Azure::read(env, allow_http)?),
            Scheme::Google => Provider::Google(Google::read(storage, env, allow_http)?),
        };
        Ok(Settings {
            provider,
            origin: Origin::Environment,
            allow_http,
            ca,
            patience,
        })
    }

    pub(crate) fn scheme(&self) -> Scheme {
        match &self.provider {
            Provider::S3(_) => Scheme::S3,
            Provider::Azure(_) => Scheme::Azure,
            Provider::Google(_) => Scheme::Google,
        }
    }

    /// The server as the settings name it.
    pub(crate) fn server(&self) -> String {
        match &self.provider {
            Provider::S3(s3) => s3.server(),
            Provider::Azure(azure) => azure.server(),
            Provider::Google(google) => google.server(),
        }
    }

    /// The region by which a request is signed; empty where there is none.
    pub(crate) fn region(&self) -> &str {
        match &self.provider {
            Provider::S3(s3) => s3.region(),
            Provider::Azure(_) | Provider::Google(_) => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;
    use longshore_io::SimDisk;

    fn place(settings: &Settings) -> Result<Source, String> {
        match &settings.provider {
            Provider::S3(s3) => s3.source.clone(),
            _ => Err("another store's".to_owned()),
        }
    }

    fn read(disk: &SimDisk, variables: &[(&str, &str)]) -> Result<Settings, Error> {
        let get = |name: &str| {
            let found = variables.iter().find(|v| v.0 == name);
            found.map(|v| v.1.into())
        };
        Settings::read(Scheme::S3, "b", disk, &get)
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
              [profile hosted]\ns3 =\n  addressing_style = virtual\n  addressing_styles = x\nregion = eu-west-2\n\
              [profile wide]\nregion = a b\n[profile sso]\nsso_session = a\n[profile role]\nrole_arn = arn\nsource_profile = default\n",
        )
        .unwrap();
        disk
    }

    const HOME: (&str, &str) = ("HOME", "/home");

    fn id(settings: &Settings) -> String {
        match &place(settings) {
            Ok(Source::Keys { id, .. }) => id.clone(),
            Ok(Source::Process { command, .. }) => command.clone(),
            Ok(Source::WebIdentity { role, .. }) => role.clone(),
            Ok(Source::Role { base, role }) => match &**base {
                Source::Keys { id, .. } => format!("{} of {id}", role.arn),
                _ => panic!("another source"),
            },
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
        assert_eq!(with(&[&[("AWS_PROFILE", "role")]]), "arn of AKDEF");
        let none = read(&SimDisk::new(2), &[]).unwrap();
        assert_eq!(id(&none), "instance");
        let other = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://m:1/")];
        assert_eq!(id(&read(&SimDisk::new(2), &other).unwrap()), "http://m:1");
        let six = [("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "IPv6")];
        let six = id(&read(&SimDisk::new(2), &six).unwrap());
        assert_eq!(six, "http://[fd00:ec2::254]");
        let off = [("AWS_EC2_METADATA_DISABLED", "true")];
        assert!(place(&read(&SimDisk::new(2), &off).unwrap()).is_err());
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
    fn the_bucket_is_named_where_the_settings_say() {
        let disk = disk();
        let at = |variables: &[(&str, &str)], bucket: &str| {
            let all = [&[HOME], variables].concat();
            let settings = read(&disk, &all).map_err(|e| e.to_string())?;
            let Provider::S3(s3) = &settings.provider else {
                return Err("another store's".to_owned());
            };
            Ok(s3.bucket_url(bucket))
        };
        const STYLE: &str = crate::s3::ADDRESSING_STYLE;
        let own = ("AWS_ENDPOINT_URL", "https://store.example:9000/x");
        let ip = ("AWS_ENDPOINT_URL", "https://[::1]:9000");
        for (variables, bucket, url) in [
            (&[][..], "abc", "https://abc.s3.eu-west-1.amazonaws.com/"),
            (&[], "a.c", "https://s3.eu-west-1.amazonaws.com/a.c"),
            (
                &[(STYLE, "path")],
                "abc",
                "https://s3.eu-west-1.amazonaws.com/abc",
            ),
            (
                &[(STYLE, "virtual")],
                "a.c",
                "https://a.c.s3.eu-west-1.amazonaws.com/",
            ),
            (&[own], "abc", "https://store.example:9000/x/abc"),
            (
                &[own, (STYLE, "virtual")],
                "abc",
                "https://abc.store.example:9000/x/",
            ),
            (
                &[own, (STYLE, "auto")],
                "abc",
                "https://store.example:9000/x/abc",
            ),
            (
                &[own, ("AWS_PROFILE", "hosted")],
                "abc",
                "https://abc.store.example:9000/x/",
            ),
            (
                &[own, ("AWS_PROFILE", "hosted"), (STYLE, "path")],
                "abc",
                "https://store.example:9000/x/abc",
            ),
        ] {
            let found = at(variables, bucket);
            // The profile of the last two has no credentials, which is no matter here.
            assert_eq!(found.as_deref(), Ok(url), "{variables:?}");
        }
        let refused = |variables: &[(&str, &str)]| at(variables, "abc").unwrap_err();
        assert!(refused(&[own, (STYLE, "host")]).contains("neither path nor virtual"));
        assert!(refused(&[ip, (STYLE, "virtual")]).contains("no name"));
        // A profile's is for all of its servers.
        let of_profile = at(&[ip, ("AWS_PROFILE", "hosted")], "abc");
        assert_eq!(of_profile.as_deref(), Ok("https://[::1]:9000/abc"));
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
            let why = place(&read(&SimDisk::new(1), variables).unwrap());
            let why = why.err().unwrap_or_default();
            assert!(why.contains(word), "{variables:?}: {why}");
            assert!(!why.contains("secret"), "{why}");
        }
        for near in [
            "http://127.0.0.1:1/c?a=b",
            "http://[fd00:ec2::23]/c",
            "https://else/c",
        ] {
            assert!(place(&read(&SimDisk::new(1), &[token, (full, near)]).unwrap()).is_ok());
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
