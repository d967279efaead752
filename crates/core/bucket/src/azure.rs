//! Azure Blob Storage: settings from the environment, and the client.
//!
//! Every request is signed when it is sent, and not when it is made: so the headers that a completion gets on its way
//! (`watched.rs`), its condition and the object's label, are under the signature, which a shared key asks for, and a
//! repeated request has a date of its own.
//!
//! Invariants
//! - The variables have the names that `object_store`, the Azure CLI, Azure's libraries and WAL-G give them.
//! - The account is a part of the server's name, and so has letters and digits only.
//! - A shared access signature is in no address that this room or `object_store` holds, but in the one that is sent.
//! - Missing credentials are no error here: the first request fails with the reason.
//!
//! Leaves to others: the form of values (`environment.rs`); what all stores have in common (`settings.rs`); getting
//! tokens and signing (`object_store`).

use std::sync::Arc;

use async_trait::async_trait;
use object_store::azure::{
    AzureAccessKey, AzureAuthorizer, AzureConfigKey as Key, AzureCredentialProvider,
    MicrosoftAzureBuilder, split_sas,
};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{ClientOptions, Error as StoreError};

use crate::connection::{Connection, Ways, base_of};
use crate::credentials::{Lacking, Noted};
use crate::environment::{Environment, Form, server};
use crate::held::Lasting;
use crate::own::{Asking, Sign};

const ACCOUNT: [&str; 2] = ["AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"];
const KEY: [&str; 3] = [
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_KEY",
];
const SAS: [&str; 2] = ["AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"];
const ENDPOINT: [&str; 2] = ["AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_SERVICE_ENDPOINT"];
const TENANT: &str = "AZURE_TENANT_ID";
const CLIENT: &str = "AZURE_CLIENT_ID";
const SECRET: &str = "AZURE_CLIENT_SECRET";
const TOKEN_FILE: &str = "AZURE_FEDERATED_TOKEN_FILE";
const AUTHORITY: &str = "AZURE_AUTHORITY_HOST";

/// The variables that credentials come from: a file of credentials has such lines.
pub const CREDENTIALS: [&str; 10] = [
    KEY[0], KEY[1], KEY[2], SAS[0], SAS[1], TENANT, CLIENT, SECRET, TOKEN_FILE, AUTHORITY,
];

/// The settings with which an Azure container is reached. It has no `Debug`: it holds secrets.
#[derive(Clone)]
pub struct Azure {
    pub account: String,
    pub endpoint: Option<String>,
    pub source: Result<AzureSource, String>,
}

/// Where credentials come from.
#[derive(Clone)]
pub enum AzureSource {
    AccountKey(String),
    /// A shared access signature, as a query without its question mark.
    Signature(String),
    /// An application of Entra ID.
    Application(Application),
    /// The machine's metadata service, or a service's own.
    Managed {
        client: Option<String>,
        endpoint: Option<String>,
    },
}

/// An application of Entra ID, and its proof that it is the one.
#[derive(Clone)]
pub struct Application {
    pub tenant: String,
    pub client: String,
    pub authority: Option<String>,
    pub proof: Proof,
}

#[derive(Clone)]
pub enum Proof {
    Secret(String),
    /// A file with a token that Kubernetes or another service writes.
    TokenFile(String),
}

impl Azure {
    /// Errors: which variable is missing or cannot be meant, and why.
    pub fn read(env: &Environment, allow_http: bool) -> Result<Azure, String> {
        let Some((name, account)) = env.first(&ACCOUNT, Form::Word)? else {
            return Err(format!(
                "{} names no storage account, which an az:// address needs",
                ACCOUNT[0]
            ));
        };
        let is_sign = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        if !(3..=24).contains(&account.len()) || !account.chars().all(is_sign) {
            return Err(format!(
                "{name} is no storage account's name, which has 3 to 24 lower-case letters and digits"
            ));
        }
        Ok(Azure {
            account,
            endpoint: env.endpoint(&ENDPOINT, allow_http)?,
            source: source(env),
        })
    }

    /// The server, without a slash at its end.
    pub fn server(&self) -> String {
        match &self.endpoint {
            Some(endpoint) => endpoint.trim_end_matches('/').to_owned(),
            None => format!("https://{}.blob.core.windows.net", self.account),
        }
    }

    /// The client of the Azure container `name`. Makes no request.
    pub fn connect<C: HttpConnector>(
        &self,
        name: &str,
        ways: &Ways<C>,
    ) -> Result<Connection, StoreError> {
        let endpoint = self.server();
        let builder = MicrosoftAzureBuilder::new()
            .with_account(&self.account)
            .with_container_name(name)
            .with_endpoint(endpoint.clone())
            .with_client_options(ways.options.clone())
            // Tags are a permission of their own.
            .with_disable_tagging(true)
            .with_retry(ways.retry.clone());
        let soon = builder
            .clone()
            .with_retry(ways.soon.clone())
            .with_client_options(ways.place_options())
            .with_http_connector(ways.to_places());
        let credentials: AzureCredentialProvider =
            Arc::new(Noted::of_azure(provider(&self.source, soon)?));
        let signed = || Signed {
            connector: (ways.connector)(),
            account: self.account.clone(),
            credentials: credentials.clone(),
        };
        let client = ways.watching(signed()).connect(&ways.options)?;
        let asking = Asking {
            base: base_of(&format!("{endpoint}/{name}"))?,
            sign: Sign::Client,
            client,
            patience: ways.patience,
        };
        let store = builder
            .with_skip_signature(true)
            .with_http_connector(ways.watching(signed()))
            .build()?;
        Ok(Connection::new(endpoint, store, asking))
    }
}

/// The first of the places that has credentials. Errors: why a place has none that can be used.
fn source(env: &Environment) -> Result<AzureSource, String> {
    if let Some((name, key)) = env.first(&KEY, Form::Signs)? {
        return match AzureAccessKey::try_new(&key) {
            Ok(_) => Ok(AzureSource::AccountKey(key)),
            Err(_) => Err(format!("{name} is no account's key: it is not base64")),
        };
    }
    if let Some((name, sas)) = env.first(&SAS, Form::Signs)? {
        let sas = sas.trim_start_matches('?').to_owned();
        let has = |key: &str| sas.split('&').any(|pair| pair.starts_with(key));
        return match split_sas(&sas) {
            Ok(_) if has("sig=") => Ok(AzureSource::Signature(sas)),
            _ => Err(format!("{name} is no shared access signature")),
        };
    }
    let client = env.get(CLIENT, Form::Signs)?;
    let secret = env.get(SECRET, Form::Signs)?;
    let token_file = env.get(TOKEN_FILE, Form::Text)?;
    let proof = match (secret, token_file) {
        (Some(secret), _) => Some((SECRET, Proof::Secret(secret))),
        (None, Some(file)) => Some((TOKEN_FILE, Proof::TokenFile(file))),
        (None, None) => None,
    };
    if let Some((name, proof)) = proof {
        let needed = |value: Option<String>, other: &str| {
            value.ok_or_else(|| format!("{name} is set and {other} is not"))
        };
        // It becomes a part of an address.
        let tenant = env.get(TENANT, Form::Signs)?;
        let tenant = needed(tenant, TENANT)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if !tenant.chars().all(is_name) {
            return Err(format!("{TENANT} is no tenant's name or number"));
        }
        let authority = match env.get(AUTHORITY, Form::Signs)? {
            None => None,
            Some(value) => Some(server(AUTHORITY, &value, &["https"])?),
        };
        return Ok(AzureSource::Application(Application {
            tenant,
            client: needed(client, CLIENT)?,
            authority: authority.map(|url| url.as_str().trim_end_matches('/').to_owned()),
            proof,
        }));
    }
    let endpoint = match env.first(&["IDENTITY_ENDPOINT", "MSI_ENDPOINT"], Form::Signs)? {
        None => None,
        Some((name, value)) => Some(server(&name, &value, &["http", "https"])?.to_string()),
    };
    // `object_store` reads it from the environment by itself.
    env.get("IDENTITY_HEADER", Form::Signs)?;
    Ok(AzureSource::Managed { client, endpoint })
}

/// The places are asked through the builder's connector, not as often as the store is.
fn provider(
    source: &Result<AzureSource, String>,
    builder: MicrosoftAzureBuilder,
) -> Result<AzureCredentialProvider, StoreError> {
    let built = match source.clone() {
        Err(why) => return Ok(Arc::new(Lacking::new(why))),
        Ok(AzureSource::AccountKey(key)) => builder.with_access_key(key),
        Ok(AzureSource::Signature(sas)) => builder.with_config(Key::SasKey, sas),
        Ok(AzureSource::Application(application)) => {
            let builder = builder
                .with_tenant_id(application.tenant)
                .with_client_id(application.client);
            let builder = match application.authority {
                Some(authority) => builder.with_authority_host(authority),
                None => builder,
            };
            match application.proof {
                Proof::Secret(secret) => builder.with_client_secret(secret),
                Proof::TokenFile(file) => builder.with_federated_token_file(file),
            }
        }
        Ok(AzureSource::Managed { client, endpoint }) => {
            let builder = match client {
                Some(client) => builder.with_client_id(client),
                None => builder,
            };
            match endpoint {
                Some(endpoint) => builder.with_msi_endpoint(endpoint),
                None => builder,
            }
        }
    };
    let provider = built.build()?.credentials().clone();
    Ok(Arc::new(Lasting::new(provider)))
}

/// Another connector, whose client signs what it sends.
#[derive(Debug)]
struct Signed<C> {
    connector: C,
    account: String,
    credentials: AzureCredentialProvider,
}

impl<C: HttpConnector> HttpConnector for Signed<C> {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(SigningClient {
            inner: self.connector.connect(options)?,
            account: self.account.clone(),
            credentials: self.credentials.clone(),
        }))
    }
}

#[derive(Debug)]
struct SigningClient {
    inner: HttpClient,
    account: String,
    credentials: AzureCredentialProvider,
}

#[async_trait]
impl HttpService for SigningClient {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // Asked again, they would be as bad.
        let wrong = |error: StoreError| HttpError::new(HttpErrorKind::Unknown, error);
        let credential = self.credentials.get_credential().await.map_err(wrong)?;
        AzureAuthorizer::new(&credential, &self.account)
            .try_authorize(&mut request)
            .map_err(wrong)?;
        self.inner.execute(request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Azure, String> {
        let get = |name: &str| {
            let found = variables.iter().find(|v| v.0 == name);
            found.map(|v| v.1.into())
        };
        Azure::read(&Environment(&get), false)
    }

    const OWN: (&str, &str) = ("AZURE_STORAGE_ACCOUNT_NAME", "acc1");

    fn place(variables: &[(&str, &str)]) -> String {
        let all = [&[OWN], variables].concat();
        match read(&all).unwrap().source {
            Ok(AzureSource::AccountKey(key)) => key,
            Ok(AzureSource::Signature(sas)) => sas,
            Ok(AzureSource::Application(Application { tenant, proof, .. })) => match proof {
                Proof::Secret(secret) => format!("{tenant} {secret}"),
                Proof::TokenFile(file) => format!("{tenant} {file}"),
            },
            Ok(AzureSource::Managed { client, endpoint }) => {
                format!("managed {client:?} {endpoint:?}")
            }
            Err(why) => why,
        }
    }

    #[test]
    fn the_server_is_the_accounts_or_the_one_that_is_named() {
        let server = |more: &[(&str, &str)]| {
            let azure = read(&[&[OWN], more].concat()).unwrap();
            azure.server()
        };
        assert_eq!(server(&[]), "https://acc1.blob.core.windows.net");
        let china = "https://acc1.blob.core.chinacloudapi.cn/";
        assert_eq!(
            server(&[("AZURE_STORAGE_ENDPOINT", china)]),
            china.trim_end_matches('/')
        );
        let other = read(&[("AZURE_STORAGE_ACCOUNT", "other")]).unwrap();
        assert_eq!(other.account, "other");
    }

    #[test]
    fn credentials_come_from_the_first_place_that_has_them() {
        let key = ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5");
        let sas = ("AZURE_STORAGE_SAS_TOKEN", "?sv=1&sig=a%2Fb");
        let tenant = ("AZURE_TENANT_ID", "t-1");
        let client = ("AZURE_CLIENT_ID", "c-1");
        let secret = ("AZURE_CLIENT_SECRET", "s");
        let file = ("AZURE_FEDERATED_TOKEN_FILE", "/var/token");
        assert_eq!(place(&[key, sas, tenant, client, secret]), "a2V5");
        assert_eq!(place(&[("AZURE_STORAGE_KEY", "b3RoZXI=")]), "b3RoZXI=");
        assert_eq!(place(&[sas, tenant, client, secret]), "sv=1&sig=a%2Fb");
        assert_eq!(place(&[tenant, client, secret, file]), "t-1 s");
        assert_eq!(place(&[tenant, client, file]), "t-1 /var/token");
        assert_eq!(place(&[client]), "managed Some(\"c-1\") None");
        let service = ("IDENTITY_ENDPOINT", "http://127.0.0.1:41/msi");
        assert!(place(&[service]).contains("127.0.0.1:41/msi"));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_name_and_says_no_secret() {
        for (variables, word) in [
            (&[][..], "AZURE_STORAGE_ACCOUNT_NAME"),
            (
                &[("AZURE_STORAGE_ACCOUNT", "evil.example")],
                "AZURE_STORAGE_ACCOUNT ",
            ),
            (&[("AZURE_STORAGE_ACCOUNT", "Big")], "lower-case"),
            (
                &[OWN, ("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:1")],
                "LONGSHORE_ALLOW_HTTP",
            ),
            (
                &[OWN, ("AZURE_STORAGE_ENDPOINT", "https://u:verysecret@h")],
                "AZURE_STORAGE_ENDPOINT",
            ),
        ] {
            let why = read(variables).err().unwrap();
            assert!(why.contains(word) && !why.contains("secret"), "{why}");
        }
        let client = ("AZURE_CLIENT_ID", "c");
        let secret = ("AZURE_CLIENT_SECRET", "verysecret");
        for (variables, word) in [
            (
                &[("AZURE_STORAGE_ACCOUNT_KEY", "verysecret!")][..],
                "base64",
            ),
            (
                &[("AZURE_STORAGE_ACCESS_KEY", "verysecret\n")],
                "AZURE_STORAGE_ACCESS_KEY",
            ),
            (
                &[("AZURE_STORAGE_SAS_TOKEN", "verysecret")],
                "AZURE_STORAGE_SAS_TOKEN",
            ),
            (&[client, secret], "AZURE_TENANT_ID is not"),
            (
                &[secret, ("AZURE_TENANT_ID", "t")],
                "AZURE_CLIENT_ID is not",
            ),
            (
                &[client, secret, ("AZURE_TENANT_ID", "t/../verysecret")],
                "AZURE_TENANT_ID",
            ),
            (
                &[client, secret, ("AZURE_TENANT_ID", "{verysecret}")],
                "AZURE_TENANT_ID",
            ),
            (&[("IDENTITY_HEADER", "verysecret\n")], "IDENTITY_HEADER"),
            (
                &[
                    client,
                    secret,
                    ("AZURE_TENANT_ID", "t"),
                    ("AZURE_AUTHORITY_HOST", "http://h"),
                ],
                "AZURE_AUTHORITY_HOST",
            ),
            (
                &[("IDENTITY_ENDPOINT", "http://u:verysecret@h")],
                "IDENTITY_ENDPOINT",
            ),
        ] {
            let why = place(variables);
            assert!(why.contains(word) && !why.contains("verysecret"), "{why}");
        }
    }
}
