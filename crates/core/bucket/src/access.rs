//! Keys that a caller brings along for addresses that name their server: SQL Server's credentials.
//!
//! Invariants
//! - Neither the environment's credentials nor a profile counts where such a key is used.
//! - `Debug` and messages show the key's name, and nothing of the secret.
//!
//! Leaves to others: which key fits which address, and keeping keys (`longshore-tsql`, `longshore-catalog`); connections
//! (`store.rs`).

use std::ffi::OsString;
use std::fmt;

use longshore_io::Storage;

use crate::Error;
use crate::environment::{ALLOW_HTTP, Form, check};
use crate::s3::CHECKSUM;
use crate::scheme::Scheme;
use crate::server_url::ServerUrl;
use crate::settings::{CA_FILE, Origin, PART_MIB, Settings};

/// SQL Server's name for a key of S3.
const S3_IDENTITY: &str = "S3 Access Key";
/// SQL Server's name for a signature of Azure.
const SAS_IDENTITY: &str = "SHARED ACCESS SIGNATURE";

/// The variables that count at such a server, too.
const COMMON: [&str; 4] = [CA_FILE, "AWS_CA_BUNDLE", PART_MIB, CHECKSUM];

/// A key and its name.
pub struct Access {
    name: String,
    key: AccessKey,
    region: Option<String>,
}

enum AccessKey {
    S3 {
        id: String,
        secret: String,
    },
    /// A shared access signature of Azure.
    Signature(String),
    /// An account of Azure, and its key.
    Account {
        name: String,
        key: String,
    },
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Access({:?})", self.name)
    }
}

impl Access {
    /// The key of this name for addresses such as `url`. `identity` and `secret` are as SQL Server has them; `region`: that
    /// of S3, in place of the host's or us-east-1.
    ///
    /// Errors: what does not fit. Nothing of the secret is repeated.
    pub fn new(
        name: &str,
        (identity, secret): (&str, &str),
        url: &ServerUrl,
        region: Option<String>,
    ) -> Result<Access, String> {
        let is_identity = |wanted: &str| identity.trim().eq_ignore_ascii_case(wanted);
        let key = match url.scheme() {
            Scheme::S3 if !is_identity(S3_IDENTITY) => {
                return Err(format!("its IDENTITY is not '{S3_IDENTITY}'"));
            }
            Scheme::S3 => match secret.split_once(':') {
                Some((id, key)) if !id.is_empty() && !key.is_empty() && !key.contains(':') => {
                    AccessKey::S3 {
                        id: id.to_owned(),
                        secret: key.to_owned(),
                    }
                }
                _ => return Err("its SECRET is not of the form 'KEYID:SECRETKEY'".to_owned()),
            },
            Scheme::Azure if is_identity(SAS_IDENTITY) => {
                AccessKey::Signature(secret.trim_start_matches('?').to_owned())
            }
            Scheme::Azure if is_identity(url.account()) => AccessKey::Account {
                name: url.account().to_owned(),
                key: secret.to_owned(),
            },
            Scheme::Azure => {
                return Err(format!(
                    "its IDENTITY is neither '{SAS_IDENTITY}' nor the storage account's name"
                ));
            }
            Scheme::Google => return Err("no credential is for Google's store".to_owned()),
        };
        if let Some(region) = &region {
            check("the region", region, Form::Word)?;
        }
        Ok(Access {
            name: name.to_owned(),
            key,
            region,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The region that was given in place of the host's.
    pub fn region(&self) -> Option<&str> {
        self.region.as_deref()
    }

    /// Whether it is a key of the address's kind of store, and of its account.
    fn fits(&self, url: &ServerUrl) -> bool {
        match (&self.key, url.scheme()) {
            (AccessKey::S3 { .. }, Scheme::S3) | (AccessKey::Signature(_), Scheme::Azure) => true,
            (AccessKey::Account { name, .. }, Scheme::Azure) => name == url.account(),
            _ => false,
        }
    }

    /// The settings for a bucket of this server. Errors: [`Error::Settings`], also where it is a key of another kind.
    pub(crate) fn settings(
        &self,
        url: &ServerUrl,
        storage: &dyn Storage,
    ) -> Result<Settings, Error> {
        let wrong = |why: String| Error::Settings {
            bucket: format!("{} and the credential '{}'", url.before(), self.name),
            why,
        };
        if !self.fits(url) {
            return Err(wrong(
                "it is a key of another kind of store, or of another account".to_owned(),
            ));
        }
        let region = self.region.as_deref().or_else(|| url.region());
        let value = |name: &str| -> Option<String> {
            let text = |text: &str| Some(text.to_owned());
            match (name, &self.key) {
                ("AWS_ENDPOINT_URL_S3" | "AZURE_STORAGE_ENDPOINT", _) => text(url.endpoint()),
                ("AWS_REGION", _) => region.and_then(text),
                ("AWS_ACCESS_KEY_ID", AccessKey::S3 { id, .. }) => text(id),
                ("AWS_SECRET_ACCESS_KEY", AccessKey::S3 { secret, .. }) => text(secret),
                ("AZURE_STORAGE_ACCOUNT_NAME", AccessKey::Account { name, .. }) => text(name),
                ("AZURE_STORAGE_ACCOUNT_NAME", _) => text(url.account()),
                ("AZURE_STORAGE_ACCOUNT_KEY", AccessKey::Account { key, .. }) => text(key),
                ("AZURE_STORAGE_SAS_TOKEN", AccessKey::Signature(signature)) => text(signature),
                (ALLOW_HTTP, _) => url
                    .endpoint()
                    .starts_with("http://")
                    .then(|| "1".to_owned()),
                _ => None,
            }
        };
        let get = |name: &str| match COMMON.contains(&name) {
            true => std::env::var_os(name),
            false => value(name).map(OsString::from),
        };
        let settings = Settings::found(url.scheme(), storage, &get, false).map_err(wrong)?;
        Ok(Settings {
            origin: Origin::Given {
                before: url.before().to_owned(),
                credential: self.name.clone(),
            },
            ..settings
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Provider;
    use crate::source::Source;
    use longshore_io::Host;

    fn url(text: &str) -> ServerUrl {
        ServerUrl::parse(text).unwrap().unwrap()
    }

    #[test]
    fn a_key_goes_before_everything_in_the_environment_and_shows_nothing() {
        let at = url("s3://minio.example:9000/nightly/a");
        let access = Access::new("c", ("s3 access key", "AK:verysecret"), &at, None).unwrap();
        let settings = access.settings(&at, &Host::new()).unwrap();
        let Provider::S3(s3) = &settings.provider else {
            panic!("another store's");
        };
        assert_eq!(s3.server(), "https://minio.example:9000");
        assert_eq!(s3.region(), "us-east-1");
        assert!(matches!(&s3.source, Ok(Source::Keys { id, .. }) if id == "AK"));
        assert!(!format!("{access:?}{settings:?}").contains("verysecret"));

        let at = url("s3://nightly.s3.eu-west-1.amazonaws.com/a");
        let access = Access::new("c", ("S3 Access Key", "AK:verysecret"), &at, None).unwrap();
        let settings = access.settings(&at, &Host::new()).unwrap();
        assert_eq!(settings.region(), "eu-west-1");

        let at = url("https://vault.blob.core.windows.net/nightly/a");
        let signature = ("Shared Access Signature", "?sv=1&sig=verysecret");
        let access = Access::new("c", signature, &at, None).unwrap();
        let settings = access.settings(&at, &Host::new()).unwrap();
        assert_eq!(settings.server(), "https://vault.blob.core.windows.net");
        assert!(!format!("{access:?}{settings:?}").contains("verysecret"));
    }

    #[test]
    fn a_key_is_for_one_kind_of_store_and_one_account() {
        let s3 = url("s3://minio.example:9000/nightly/a");
        let azure = url("https://vault.blob.core.windows.net/nightly/a");
        let other = url("https://other.blob.core.windows.net/nightly/a");
        let disk = Host::new();
        let of_s3 = Access::new("c", ("S3 Access Key", "AK:verysecret"), &s3, None).unwrap();
        let of_azure = Access::new("c", ("vault", "dmVyeXNlY3JldA=="), &azure, None).unwrap();
        for (access, at) in [(&of_s3, &azure), (&of_azure, &s3), (&of_azure, &other)] {
            let refused = access.settings(at, &disk).unwrap_err();
            assert!(refused.to_string().contains("another kind"), "{refused}");
        }
    }

    #[test]
    fn a_credential_that_does_not_fit_is_refused_without_its_secret() {
        let s3 = url("s3://minio.example:9000/nightly/a");
        let azure = url("https://vault.blob.core.windows.net/nightly/a");
        for (at, identity, secret) in [
            (&s3, "SHARED ACCESS SIGNATURE", "AK:verysecret"),
            (&s3, "S3 Access Key", "verysecret"),
            (&s3, "S3 Access Key", ":verysecret"),
            (&s3, "S3 Access Key", "a:verysecret:b"),
            (&azure, "S3 Access Key", "AK:verysecret"),
            (&azure, "another", "verysecret"),
        ] {
            let why = Access::new("c", (identity, secret), at, None).unwrap_err();
            assert!(!why.contains("verysecret"), "{why}");
        }
        let spaced = Access::new("c", ("S3 Access Key", "AK:very secret"), &s3, None).unwrap();
        let disk = Host::new();
        let settings = spaced.settings(&s3, &disk).unwrap();
        let Provider::S3(of_s3) = &settings.provider else {
            panic!("another store's");
        };
        let why = of_s3.source.as_ref().err().cloned().unwrap_or_default();
        assert!(!why.is_empty() && !why.contains("very"), "{why}");
    }
}
