//! Google's files of the type `external_account`: who gives the token that Google takes for its own (workload identity
//! federation).
//!
//! Invariants
//! - Tokens go over https only, or to this machine where plain http is allowed. A token comes from a file, over https, or, also
//!   over plain http, from this machine and the service on its own link: metadata services speak nothing else.
//! - Files that need a program, a key of AWS's or a client's secret are refused by the name of what they need.
//! - No text has the content of the file in it.
//!
//! Leaves to others: the exchange itself (`exchanged.rs`).

use std::path::PathBuf;

use http::{HeaderName, HeaderValue};
use serde_json::Value;

use crate::environment::{Form, check, server};

/// The exchange of a token, and its places.
#[derive(Clone)]
pub struct External {
    pub audience: String,
    pub subject_type: String,
    pub token_url: String,
    pub subject: Subject,
    /// The service that gives a service account's token for the one that was exchanged.
    pub impersonated: Option<String>,
    /// How long that token is asked for.
    pub seconds: Option<u64>,
}

/// Where the other service's token is. `field`: its name in JSON; `None`: it is the text.
#[derive(Clone)]
pub enum Subject {
    File {
        path: PathBuf,
        field: Option<String>,
    },
    Url {
        url: String,
        headers: Vec<(HeaderName, HeaderValue)>,
        field: Option<String>,
    },
}

impl External {
    /// Errors: what of `value`, which `shown` has, cannot be used.
    pub fn read(value: &Value, shown: &str, allow_http: bool) -> Result<External, String> {
        let text = |of: &Value, key: &str| -> Result<Option<String>, String> {
            match of[key].as_str() {
                None if of[key].is_null() => Ok(None),
                None => Err(format!("{key} in {shown} is no text")),
                Some(text) => {
                    check(&format!("{key} in {shown}"), text, Form::Text)?;
                    Ok(Some(text.to_owned()))
                }
            }
        };
        let needed = |key: &str| text(value, key)?.ok_or_else(|| format!("{shown} has no {key}"));
        for key in ["client_id", "client_secret", "workforce_pool_user_project"] {
            if !value[key].is_null() {
                return Err(format!(
                    "{shown} has {key}, which Longshore does not read: use a provider of workload identities"
                ));
            }
        }
        let address = |key: &str, text: &str| {
            let name = format!("{key} in {shown}");
            let url = server(&name, text, &["https", "http"])?;
            let is_own = is_own_machine(url.host_str());
            match url.scheme() == "https" || (allow_http && is_own) {
                true => Ok(text.to_owned()),
                false => Err(format!(
                    "{name} is plain http, which everyone on the way can read"
                )),
            }
        };
        let impersonated = match text(value, "service_account_impersonation_url")? {
            None => None,
            Some(text) => Some(address("service_account_impersonation_url", &text)?),
        };
        let lifetime = &value["service_account_impersonation"]["token_lifetime_seconds"];
        Ok(External {
            audience: needed("audience")?,
            subject_type: needed("subject_token_type")?,
            token_url: address("token_url", &needed("token_url")?)?,
            subject: subject(&value["credential_source"], shown, &text)?,
            impersonated,
            seconds: lifetime.as_u64(),
        })
    }
}

/// The text of a key of an object, if it has one; the error says what else it has.
type TextOf<'a> = dyn Fn(&Value, &str) -> Result<Option<String>, String> + 'a;

fn subject(source: &Value, shown: &str, text: &TextOf<'_>) -> Result<Subject, String> {
    for (key, what) in [
        ("executable", "a program"),
        ("environment_id", "keys of AWS's"),
        ("certificate", "a certificate"),
    ] {
        if !source[key].is_null() {
            return Err(format!(
                "credential_source in {shown} takes its token from {what} ({key}), which Longshore does not: let a file or an address give it"
            ));
        }
    }
    let form = &source["format"];
    let field = match text(form, "type")?.as_deref() {
        None | Some("text") => None,
        Some("json") => {
            let field = text(form, "subject_token_field_name")?;
            Some(field.ok_or_else(|| format!("{shown} has no subject_token_field_name"))?)
        }
        Some(_) => {
            return Err(format!(
                "the format of credential_source in {shown} is neither text nor json"
            ));
        }
    };
    match (text(source, "file")?, text(source, "url")?) {
        (Some(path), None) => Ok(Subject::File {
            path: path.into(),
            field,
        }),
        (None, Some(url)) => {
            check_near(&url, shown)?;
            let headers = source["headers"].as_object().into_iter().flatten();
            let headers = headers.map(|(name, value)| {
                let odd = || format!("a header of credential_source in {shown} cannot be sent");
                let value = value.as_str().and_then(|v| HeaderValue::from_str(v).ok());
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| odd())?;
                Ok((name, value.ok_or_else(odd)?))
            });
            Ok(Subject::Url {
                url,
                headers: headers.collect::<Result<_, String>>()?,
                field,
            })
        }
        _ => Err(format!(
            "credential_source in {shown} has neither file nor url, or both"
        )),
    }
}

/// Errors: a token would come over plain http from another machine.
fn check_near(url: &str, shown: &str) -> Result<(), String> {
    let name = format!("url of credential_source in {shown}");
    // It may have a query.
    let place = url.split('?').next().unwrap_or_default();
    let at = server(&name, place, &["https", "http"])?;
    let link = "169.254.169.254";
    let is_near = is_own_machine(at.host_str()) || at.host_str() == Some(link);
    match at.scheme() == "https" || is_near {
        true => Ok(()),
        false => Err(format!("{name} is plain http to another machine")),
    }
}

fn is_own_machine(host: Option<&str>) -> bool {
    let host = host.unwrap_or_default();
    let ip = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    ip.map_or(host == "localhost", |ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(change: impl FnOnce(&mut Value)) -> Result<External, String> {
        let mut value = serde_json::json!({
            "type": "external_account",
            "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": "https://sts.googleapis.com/v1/token",
            "credential_source": { "file": "/run/token" },
        });
        change(&mut value);
        External::read(&value, "the file", false)
    }

    #[test]
    fn a_file_or_an_address_on_this_machines_links_gives_the_token() {
        let plain = read(|_| {}).unwrap();
        assert!(matches!(&plain.subject, Subject::File { field: None, .. }));
        assert!(plain.impersonated.is_none());
        let url = read(|v| {
            v["credential_source"] = serde_json::json!({
                "url": "http://169.254.169.254/token?a=b", "headers": { "Metadata": "True" },
                "format": { "type": "json", "subject_token_field_name": "access_token" },
            });
            v["service_account_impersonation_url"] =
                "https://iamcredentials.googleapis.com/v1/x:generateAccessToken".into();
            v["service_account_impersonation"] =
                serde_json::json!({ "token_lifetime_seconds": 900 });
        });
        let url = url.unwrap();
        assert!(
            matches!(&url.subject, Subject::Url { field: Some(f), headers, .. } if f == "access_token" && headers.len() == 1)
        );
        assert_eq!(url.seconds, Some(900));
    }

    #[test]
    fn what_is_not_read_is_refused_by_name() {
        type Change = (&'static str, Value, &'static str);
        let changes: [Change; 10] = [
            ("token_url", "http://sts.example/x".into(), "plain http"),
            ("token_url", "https://u:verysecret@h".into(), "password"),
            ("token_url", Value::Null, "no token_url"),
            ("audience", 7.into(), "no text"),
            ("client_secret", "verysecret".into(), "client_secret"),
            (
                "credential_source",
                serde_json::json!({ "executable": { "command": "verysecret" } }),
                "a program",
            ),
            (
                "credential_source",
                serde_json::json!({ "environment_id": "aws1" }),
                "AWS",
            ),
            (
                "credential_source",
                serde_json::json!({ "url": "http://example/t" }),
                "another machine",
            ),
            ("credential_source", serde_json::json!({}), "neither file"),
            (
                "credential_source",
                serde_json::json!({ "file": "/t", "format": { "type": "json" } }),
                "subject_token_field_name",
            ),
        ];
        for (key, value, word) in changes {
            let why = read(|v| v[key] = value).err().unwrap();
            assert!(
                why.contains(word) && !why.contains("verysecret"),
                "{key}: {why}"
            );
        }
    }
}
