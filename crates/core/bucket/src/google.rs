//! Google Cloud Storage: settings from the environment and Google's files, and the client.
//!
//! The store is spoken to by its XML protocol, which has uploads in parts. Requests carry a bearer's token and no
//! signature, so a completion's condition may be added on its way (`watched.rs`).
//!
//! Invariants
//! - The file of credentials names no server: an address in it is not read.
//! - Missing credentials are no error here: the first request fails with the reason.
//!
//! Leaves to others: the form of values (`environment.rs`); what all stores have in common (`settings.rs`); getting
//! tokens (`object_store`).

use std::path::PathBuf;
use std::sync::Arc;

use longshore_io::Storage;
use object_store::Error as StoreError;
use object_store::client::HttpConnector;
use object_store::gcp::{GcpCredentialProvider, GoogleCloudStorageBuilder};

use crate::connection::{Connection, Ways, base_of};
use crate::credentials::{Lacking, Noted};
use crate::environment::{Environment, Form, read_file, server};
use crate::exchanged::Federated;
use crate::external::External;
use crate::held::Lasting;
use crate::own::{Asking, Sign};

const FILE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
const ENDPOINT: &str = "GOOGLE_BASE_URL";
/// Where `gcloud auth application-default login` leaves its file, below the home directory.
const USUAL: &str = ".config/gcloud/application_default_credentials.json";
const SERVER: &str = "https://storage.googleapis.com";

/// The settings with which a bucket is reached. It has no `Debug`: it holds secrets.
#[derive(Clone)]
pub struct Google {
    pub endpoint: Option<String>,
    pub source: Result<GoogleSource, String>,
}

/// Where credentials come from.
#[derive(Clone)]
pub enum GoogleSource {
    /// The content of a service account's key file.
    ServiceAccount(String),
    /// The file of a user who has logged in.
    User(String),
    /// Another service's identity.
    External(Box<External>),
    /// The machine's metadata service.
    Instance,
}

impl Google {
    /// Errors: which variable cannot be meant, and why.
    pub fn read(
        storage: &dyn Storage,
        env: &Environment,
        allow_http: bool,
    ) -> Result<Google, String> {
        Ok(Google {
            endpoint: env.endpoint(&[ENDPOINT], allow_http)?,
            source: source(storage, env, allow_http),
        })
    }

    /// The server, without a slash at its end.
    pub fn server(&self) -> String {
        let endpoint = self.endpoint.as_deref().unwrap_or(SERVER);
        endpoint.trim_end_matches('/').to_owned()
    }

    /// The client of the bucket `name`. Makes no request.
    pub fn connect<C: HttpConnector>(
        &self,
        name: &str,
        ways: &Ways<C>,
    ) -> Result<Connection, StoreError> {
        let endpoint = self.server();
        let builder = GoogleCloudStorageBuilder::new()
            .with_bucket_name(name)
            .with_base_url(&endpoint)
            .with_client_options(ways.options.clone())
            .with_retry(ways.retry.clone());
        let soon = builder
            .clone()
            .with_retry(ways.soon.clone())
            .with_client_options(ways.place_options())
            .with_http_connector(ways.to_places());
        let credentials: GcpCredentialProvider =
            Arc::new(Noted::of_google(provider(&self.source, soon, ways)?));
        let asking = Asking {
            base: base_of(&format!("{endpoint}/{name}"))?,
            sign: Sign::Bearer(credentials.clone()),
            client: ways.client()?,
            patience: ways.patience,
        };
        let store = builder
            .with_credentials(credentials)
            .with_http_connector(ways.watched())
            .build()?;
        Ok(Connection::new(endpoint, store, asking))
    }
}

/// The first of the places that has credentials. Errors: why a place has none that can be used.
fn source(
    storage: &dyn Storage,
    env: &Environment,
    allow_http: bool,
) -> Result<GoogleSource, String> {
    let named = env.path(FILE)?;
    let is_named = named.is_some();
    let found: Option<(PathBuf, Vec<u8>)> = match named.or_else(|| env.home(USUAL)) {
        None => None,
        Some(path) => read_file(storage, &path)?.map(|bytes| (path, bytes)),
    };
    let Some((path, bytes)) = found else {
        if is_named {
            return Err(format!("the file that {FILE} names is missing"));
        }
        // `object_store` makes an address of it.
        for name in ["GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP"] {
            if let Some(host) = env.get(name, Form::Signs)? {
                let url = server(name, &format!("http://{host}"), &["http"])?;
                if url.path() != "/" {
                    return Err(format!("{name} must be HOST:PORT, without a path"));
                }
            }
        }
        return Ok(GoogleSource::Instance);
    };
    let shown = match is_named {
        true => format!("the file that {FILE} names"),
        false => format!("~/{USUAL}"),
    };
    let value: serde_json::Value = serde_json::from_slice(&bytes)
        .map_err(|_| format!("{shown} is no file of credentials: it is not JSON"))?;
    match value["type"].as_str() {
        Some("service_account") => {
            let has = |key: &str| value[key].is_string();
            match ["private_key", "private_key_id", "client_email"]
                .into_iter()
                .find(|key| !has(key))
            {
                None => Ok(GoogleSource::ServiceAccount(
                    String::from_utf8_lossy(&bytes).into_owned(),
                )),
                Some(key) => Err(format!("{shown} has no {key}")),
            }
        }
        Some("authorized_user") => match path.into_os_string().into_string() {
            Ok(path) => Ok(GoogleSource::User(path)),
            Err(_) => Err(format!("{shown} has a name that is not UTF-8")),
        },
        Some("external_account") => {
            let external = External::read(&value, &shown, allow_http)?;
            Ok(GoogleSource::External(Box::new(external)))
        }
        Some("impersonated_service_account" | "external_account_authorized_user") => Err(format!(
            "{shown} is of a type that Longshore does not read: use a service account's key, a user's login, an external \
             account or the machine's metadata service"
        )),
        _ => Err(format!(
            "{shown} is no file of credentials: its type is unknown"
        )),
    }
}

/// The places are asked through the builder's connector, not as often as the store is.
fn provider<C: HttpConnector>(
    source: &Result<GoogleSource, String>,
    builder: GoogleCloudStorageBuilder,
    ways: &Ways<C>,
) -> Result<GcpCredentialProvider, StoreError> {
    let built = match source.clone() {
        Err(why) => return Ok(Arc::new(Lacking::new(why))),
        Ok(GoogleSource::External(external)) => {
            let clients = (ways.place_client()?, ways.near_client()?);
            return Ok(Arc::new(Federated::new(*external, clients)));
        }
        Ok(GoogleSource::ServiceAccount(text)) => builder.with_service_account_key(text).build(),
        Ok(GoogleSource::User(path)) => builder.with_application_credentials(path).build(),
        Ok(GoogleSource::Instance) => builder.build(),
    };
    match built {
        Ok(store) => Ok(Arc::new(Lasting::new(store.credentials().clone()))),
        // Its own message may have a part of the key.
        Err(_) => Ok(Arc::new(Lacking::new(
            "the file of credentials lacks what its type needs, or its private key cannot be read"
                .to_owned(),
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_io::SimDisk;

    fn place(disk: &SimDisk, variables: &[(&str, &str)]) -> String {
        let get = |name: &str| {
            let found = variables.iter().find(|v| v.0 == name);
            found.map(|v| v.1.into())
        };
        match Google::read(disk, &Environment(&get), false) {
            Ok(google) => match google.source {
                Ok(GoogleSource::ServiceAccount(text)) => text,
                Ok(GoogleSource::User(path)) => path,
                Ok(GoogleSource::External(external)) => external.token_url,
                Ok(GoogleSource::Instance) => format!("instance at {}", google.server()),
                Err(why) => why,
            },
            Err(why) => why,
        }
    }

    #[test]
    fn credentials_come_from_the_first_place_that_has_them() {
        let disk = SimDisk::new(1);
        let home = ("HOME", "/home");
        assert_eq!(
            place(&disk, &[home]),
            "instance at https://storage.googleapis.com"
        );
        let user = format!("/home/{USUAL}");
        disk.write_file(&user, b"{\"type\": \"authorized_user\"}")
            .unwrap();
        assert_eq!(place(&disk, &[home]), user);
        let key = "{\"type\": \"service_account\", \"private_key\": \"k\", \
                   \"private_key_id\": \"i\", \"client_email\": \"e\"}";
        disk.write_file("/key.json", key.as_bytes()).unwrap();
        assert_eq!(place(&disk, &[home, (FILE, "/key.json")]), key);
    }

    #[test]
    fn what_cannot_be_meant_is_refused_and_says_no_secret() {
        let disk = SimDisk::new(1);
        for (text, word) in [
            ("verysecret", "not JSON"),
            ("{\"type\": \"verysecret\"}", "its type is unknown"),
            ("{\"type\": \"external_account\"}", "no audience"),
            (
                "{\"type\": \"impersonated_service_account\"}",
                "does not read",
            ),
            (
                "{\"type\": \"service_account\", \"private_key\": \"verysecret\"}",
                "no private_key_id",
            ),
        ] {
            disk.write_file("/key.json", text.as_bytes()).unwrap();
            let why = place(&disk, &[(FILE, "/key.json")]);
            assert!(why.contains(word) && why.contains(FILE), "{why}");
            assert!(!why.contains("verysecret"), "{why}");
        }
        for (variable, word) in [
            ((FILE, "/none.json"), "is missing"),
            ((ENDPOINT, "http://h"), "LONGSHORE_ALLOW_HTTP"),
            ((ENDPOINT, "https://h?verysecret"), ENDPOINT),
            (("GCE_METADATA_HOST", "u:verysecret@h"), "GCE_METADATA_HOST"),
            (("GCE_METADATA_IP", "h/{verysecret}"), "GCE_METADATA_IP"),
        ] {
            let why = place(&disk, &[variable]);
            assert!(why.contains(word) && !why.contains("verysecret"), "{why}");
        }
    }
}
