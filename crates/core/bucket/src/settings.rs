//! What the environment and the AWS files say about a bucket.

use std::path::{Path, PathBuf};

use longshore_io::{SmallFile, Storage};

use crate::Error;
use crate::profile::Profile;
use crate::source::Source;

/// The variable without which no object store is used.
pub const TRY: &str = "LONGSHORE_TRY_OBJECT_STORES";
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

/// What is needed to speak to a bucket.
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

/// The environment, as [`Settings::read`] sees it. An empty variable counts as none.
struct Environment<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Environment<'_> {
    fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    fn home(&self, below: &str) -> Option<PathBuf> {
        let home = PathBuf::from(self.get("HOME")?);
        home.is_absolute().then(|| home.join(below))
    }
}

impl Settings {
    /// The settings for `bucket`, from this process's environment and the AWS files that it names.
    ///
    /// Errors: [`Error::Settings`]. That there are no credentials is said by the first request.
    pub fn of_environment(bucket: &str, storage: &dyn Storage) -> Result<Settings, Error> {
        Settings::read(bucket, storage, &|name| std::env::var(name).ok())
    }

    /// [`Settings::of_environment`] with another environment.
    pub fn read(
        bucket: &str,
        storage: &dyn Storage,
        get: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Settings, Error> {
        let env = Environment(get);
        let wrong = |why| Error::Settings {
            bucket: bucket.to_owned(),
            why,
        };
        if let Some(asked) = env.get(PART_MIB)
            && !asked.parse().is_ok_and(|n| PART_MIB_RANGE.contains(&n))
        {
            return Err(wrong(format!(
                "{PART_MIB} is {asked:?}, and 5 to 4096 are allowed"
            )));
        }
        let file = |path: Option<PathBuf>| match path {
            Some(path) => read_file(storage, &path).map_err(wrong),
            None => Ok(None),
        };
        let explicit = env.get("AWS_PROFILE");
        let name = explicit.clone().unwrap_or_else(|| "default".to_owned());
        let place = |variable, below| {
            let path = env.get(variable).map(PathBuf::from);
            path.or_else(|| env.home(below))
        };
        let shared = file(place("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"))?;
        let config = file(place("AWS_CONFIG_FILE", ".aws/config"))?;
        let text = |bytes: Option<Vec<u8>>| {
            let bytes = bytes.unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let profile = Profile::read(&name, &text(shared), &text(config));
        if explicit.is_some() && profile.is_none() {
            return Err(wrong(format!(
                "AWS_PROFILE names the profile {name:?}, which neither AWS file has"
            )));
        }
        let profile = profile.unwrap_or_default();
        let endpoint = env
            .get("AWS_ENDPOINT_URL_S3")
            .or_else(|| env.get("AWS_ENDPOINT_URL"))
            .or_else(|| profile.get("endpoint_url"));
        let allow_http = match env.get(ALLOW_HTTP).as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(other) => return Err(wrong(format!("{ALLOW_HTTP} is {other:?}, not 0 or 1"))),
        };
        if let Some(endpoint) = &endpoint {
            check_endpoint(endpoint, allow_http).map_err(wrong)?;
        }
        let ca = env.get("AWS_CA_BUNDLE").or_else(|| env.get(CA_FILE));
        let ca = match ca {
            None => None,
            Some(path) => match file(Some(PathBuf::from(&path)))? {
                Some(bytes) => Some(bytes),
                None => return Err(wrong(format!("the certificates' file {path} is missing"))),
            },
        };
        Ok(Settings {
            endpoint,
            region: env
                .get("AWS_REGION")
                .or_else(|| env.get("AWS_DEFAULT_REGION"))
                .or_else(|| profile.get("region")),
            allow_http,
            ca,
            source: source(&env, explicit.is_some(), &name, &profile),
            patience: Patience::USUAL,
        })
    }
}

/// An endpoint is a scheme and a host. What else it has would be lost, or would be a secret in each message.
fn check_endpoint(endpoint: &str, allow_http: bool) -> Result<(), String> {
    let Some((scheme, rest)) = endpoint.split_once("://") else {
        return Err("AWS_ENDPOINT_URL does not begin with https://".to_owned());
    };
    if rest.contains('@') {
        return Err("AWS_ENDPOINT_URL must not hold a name or a password".to_owned());
    }
    match scheme {
        "https" => Ok(()),
        "http" if allow_http => Ok(()),
        "http" => Err(format!(
            "AWS_ENDPOINT_URL is plain http, which everyone on the way can read and change; {ALLOW_HTTP}=1 allows it"
        )),
        _ => Err("AWS_ENDPOINT_URL does not begin with https://".to_owned()),
    }
}

/// The first of the places that has credentials. Errors: why a place has none that can be used.
fn source(
    env: &Environment,
    explicit: bool,
    name: &str,
    profile: &Profile,
) -> Result<Source, String> {
    let keys = (
        env.get("AWS_ACCESS_KEY_ID"),
        env.get("AWS_SECRET_ACCESS_KEY"),
    );
    match keys {
        (Some(id), Some(secret)) if !explicit => {
            let token = env.get("AWS_SESSION_TOKEN");
            return Ok(Source::Keys { id, secret, token });
        }
        (Some(_), None) if !explicit => {
            return Err("AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not".to_owned());
        }
        _ => {}
    }
    let of_profile = profile.source(name)?;
    if explicit {
        return of_profile.ok_or_else(|| format!("the profile {name:?} has no credentials"));
    }
    if let (Some(token_file), Some(role)) = (
        env.get("AWS_WEB_IDENTITY_TOKEN_FILE"),
        env.get("AWS_ROLE_ARN"),
    ) {
        let session = env.get("AWS_ROLE_SESSION_NAME");
        return Ok(Source::WebIdentity {
            token_file,
            role,
            session,
        });
    }
    if let Some(uri) = env.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
        return Ok(Source::ContainerRelative(uri));
    }
    if let (Some(uri), Some(token_file)) = (
        env.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"),
        env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
    ) {
        return Ok(Source::ContainerFull { uri, token_file });
    }
    if let Some(found) = of_profile {
        return Ok(found);
    }
    let off = env.get("AWS_EC2_METADATA_DISABLED");
    if off.is_some_and(|off| off.eq_ignore_ascii_case("true")) {
        return Err("neither the environment nor the AWS files have any".to_owned());
    }
    Ok(Source::Instance)
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
            found.map(|v| v.1.to_owned())
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
              [profile sso]\nsso_session = a\n[profile role]\nrole_arn = arn\nsource_profile = default\n",
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
            Ok(Source::Instance) => "instance".to_owned(),
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
