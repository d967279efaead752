//! Profiles of the AWS files that take a role: with the credentials of another profile, of the environment, of a container or of
//! an instance, or with a web identity's token.
//!
//! Invariants
//! - A chain of profiles ends: none is asked for its credentials twice.
//! - A profile that names itself as its source gives its own keys.
//! - A role that needs a person, as for a second factor, is refused by the name of its key.
//! - With `web_identity_token_file`, the keys about other sources and about the role's session count as little as with AWS's own
//!   tools, and are told by name.
//!
//! Leaves to others: keys and programs of a profile (`profile.rs`); asking for the role (`exchanged.rs`).

use crate::environment::{Form, check};
use crate::profile::Profile;
use crate::source::{Role, Source};

/// The seconds for which a role is asked for, and how many a profile may name.
const SECONDS: u64 = 3600;
const SECONDS_ALLOWED: std::ops::RangeInclusive<u64> = 900..=43_200;
/// The name of a session, where the profile has none.
const SESSION: &str = "longshore";

/// The keys that AWS's own tools do not look at in a profile with `web_identity_token_file`.
const NOT_WITH_TOKEN: [&str; 5] = [
    "source_profile",
    "credential_source",
    "external_id",
    "mfa_serial",
    "duration_seconds",
];

/// Where a profile's credentials may come from, beyond itself.
pub struct Surroundings<'a> {
    /// Another profile by its name.
    pub profile: &'a dyn Fn(&str) -> Result<Option<Profile>, String>,
    /// The place that `credential_source` names; `None`: there is no such place.
    pub place: &'a dyn Fn(&str) -> Result<Option<Source>, String>,
    pub sts: Option<String>,
    /// Tells the operator what does not count.
    pub warn: &'a dyn Fn(String),
}

/// Where the credentials of the profile `name` come from; `None` if it has none.
///
/// Errors: why it has some that cannot be used.
pub fn source(
    name: &str,
    profile: &Profile,
    around: &Surroundings,
) -> Result<Option<Source>, String> {
    of_chain(name, profile, around, &mut Vec::new())
}

fn of_chain(
    name: &str,
    profile: &Profile,
    around: &Surroundings,
    asked: &mut Vec<String>,
) -> Result<Option<Source>, String> {
    let get = |key: &str, form| match profile.get(key) {
        None => Ok(None),
        Some(value) => {
            let named = format!("{key} of the profile {name:?}");
            check(&named, &value, form).map(|()| Some(value))
        }
    };
    let token_file = get("web_identity_token_file", Form::Text)?;
    let Some(arn) = get("role_arn", Form::Signs)? else {
        return match (profile.source(name)?, token_file) {
            (None, Some(_)) => Err(format!(
                "the profile {name:?} has web_identity_token_file and no role_arn: add it"
            )),
            (found, _) => Ok(found),
        };
    };
    let session = get("role_session_name", Form::Signs)?;
    if let Some(token_file) = token_file {
        let unused = NOT_WITH_TOKEN.into_iter();
        let unused: Vec<&str> = unused.filter(|key| profile.get(key).is_some()).collect();
        if !unused.is_empty() {
            (around.warn)(format!(
                "the profile {name:?} has web_identity_token_file: as with AWS's own tools, its {} {} not used",
                unused.join(", "),
                if unused.len() == 1 { "is" } else { "are" }
            ));
        }
        return Ok(Some(Source::WebIdentity {
            token_file,
            role: arn,
            session,
            sts: around.sts.clone(),
        }));
    }
    let of = (
        get("source_profile", Form::Text)?,
        get("credential_source", Form::Word)?,
    );
    let base = match of {
        (Some(_), Some(_)) => {
            return Err(format!(
                "the profile {name:?} has both source_profile and credential_source: remove one of them"
            ));
        }
        (Some(source), None) => of_profile(name, profile, &source, around, asked)?,
        (None, Some(place)) => {
            let found = (around.place)(&place)?;
            found.ok_or_else(|| {
                format!(
                    "credential_source of the profile {name:?} is neither Environment nor EcsContainer nor Ec2InstanceMetadata, or \
                     there is no such place here"
                )
            })?
        }
        (None, None) => {
            // Keys next to a role that nobody is named for count as before.
            return match profile.source(name)? {
                Some(found) => Ok(Some(found)),
                None => Err(format!(
                    "the profile {name:?} has role_arn and neither source_profile nor credential_source nor \
                     web_identity_token_file: add one of them"
                )),
            };
        }
    };
    if profile.get("mfa_serial").is_some() {
        return Err(format!(
            "the profile {name:?} uses mfa_serial, which needs a person each time: give Longshore a role without it"
        ));
    }
    let seconds = match get("duration_seconds", Form::Word)? {
        None => SECONDS,
        Some(text) => text
            .parse()
            .ok()
            .filter(|seconds| SECONDS_ALLOWED.contains(seconds))
            .ok_or_else(|| {
                format!(
                    "duration_seconds of the profile {name:?} is not a number from 900 to 43200"
                )
            })?,
    };
    Ok(Some(Source::Role {
        base: Box::new(base),
        role: Role {
            profile: name.to_owned(),
            arn,
            session: session.unwrap_or_else(|| SESSION.to_owned()),
            external_id: get("external_id", Form::Signs)?,
            seconds,
            sts: around.sts.clone(),
        },
    }))
}

/// The credentials of the profile that `name` names as its source.
fn of_profile(
    name: &str,
    profile: &Profile,
    source: &str,
    around: &Surroundings,
    asked: &mut Vec<String>,
) -> Result<Source, String> {
    asked.push(name.to_owned());
    let none =
        || format!("the profile {source:?}, the source_profile of {name:?}, has no credentials");
    if source == name {
        return profile.source(name)?.ok_or_else(none);
    }
    if asked.iter().any(|asked| asked == source) {
        return Err(format!(
            "the source_profile of {name:?} leads back to {source:?}: one of them needs credentials of its own"
        ));
    }
    let next = (around.profile)(source)?;
    let next = next.ok_or_else(|| {
        format!("the profile {source:?}, the source_profile of {name:?}, is in neither AWS file")
    })?;
    of_chain(source, &next, around, asked)?.ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "[profile a]\nrole_arn = arn:a\nsource_profile = b\nexternal_id = x/1\nrole_session_name = night\n\
        duration_seconds = 900\n[profile b]\nrole_arn = arn:b\nsource_profile = keys\n\
        [profile own]\nrole_arn = arn:own\nsource_profile = own\naws_access_key_id = OWN\naws_secret_access_key = s\n\
        [profile round]\nrole_arn = arn:r\nsource_profile = trip\n[profile trip]\nrole_arn = arn:t\nsource_profile = round\n\
        [profile mfa]\nrole_arn = arn:m\nsource_profile = keys\nmfa_serial = arn:mfa\n\
        [profile both]\nrole_arn = r\nsource_profile = keys\ncredential_source = Environment\n\
        [profile none]\nrole_arn = arn:n\n[profile lost]\nrole_arn = arn:l\nsource_profile = nowhere\n\
        [profile bare]\nrole_arn = arn:l\nsource_profile = empty\n[profile empty]\nregion = x\n\
        [profile long]\nrole_arn = arn:l\nsource_profile = keys\nduration_seconds = 5\n\
        [profile place]\nrole_arn = arn:p\ncredential_source = Environment\n\
        [profile other]\nrole_arn = arn:p\ncredential_source = Elsewhere\n\
        [profile web]\nrole_arn = arn:w\nweb_identity_token_file = /run/token\n\
        [profile more]\nrole_arn = arn:w\nweb_identity_token_file = /run/token\nduration_seconds = 900\nmfa_serial = arn:mfa\n\
        external_id = x\nsource_profile = keys\ncredential_source = Environment\nrole_session_name = night\n\
        [profile one]\nrole_arn = arn:w\nweb_identity_token_file = /run/token\nduration_seconds = 900\n\
        [profile roleless]\nweb_identity_token_file = /run/token\n";
    const SHARED: &str = "[keys]\naws_access_key_id = KEYS\naws_secret_access_key = verysecret\n";

    fn found(name: &str) -> Result<Option<Source>, String> {
        told(name).0
    }

    /// The source, and the warnings.
    fn told(name: &str) -> (Result<Option<Source>, String>, Vec<String>) {
        let warned = std::cell::RefCell::new(Vec::new());
        let warn = |text: String| warned.borrow_mut().push(text);
        let found = found_with(name, &warn);
        (found, warned.into_inner())
    }

    fn found_with(name: &str, warn: &dyn Fn(String)) -> Result<Option<Source>, String> {
        let profile = |name: &str| Ok(Profile::read(name, SHARED, CONFIG));
        let place = |place: &str| {
            let keys = Source::Keys {
                id: "ENV".to_owned(),
                secret: "s".to_owned(),
                token: None,
            };
            Ok((place == "Environment").then_some(keys))
        };
        let around = Surroundings {
            profile: &profile,
            place: &place,
            sts: None,
            warn,
        };
        source(name, &profile(name)?.unwrap_or_default(), &around)
    }

    /// The roles from the last to the first, and the key that begins.
    fn chain(name: &str) -> (Vec<Role>, String) {
        let mut source = found(name).unwrap().unwrap();
        let mut roles = Vec::new();
        loop {
            match source {
                Source::Role { base, role } => {
                    roles.push(role);
                    source = *base;
                }
                Source::Keys { id, .. } => return (roles, id),
                _ => panic!("another source"),
            }
        }
    }

    #[test]
    fn roles_are_taken_one_after_the_other_from_the_first_keys_on() {
        let (roles, id) = chain("a");
        assert_eq!(
            (roles[0].arn.as_str(), roles[1].arn.as_str()),
            ("arn:a", "arn:b")
        );
        assert_eq!((roles.len(), id.as_str()), (2, "KEYS"));
        assert_eq!(
            (roles[0].session.as_str(), roles[1].session.as_str()),
            ("night", "longshore")
        );
        assert_eq!((roles[0].seconds, roles[1].seconds), (900, 3600));
        assert_eq!(roles[0].external_id.as_deref(), Some("x/1"));
        assert_eq!(
            roles[0].service("eu-west-1"),
            "https://sts.eu-west-1.amazonaws.com/"
        );
        assert_eq!(
            roles[0].service("cn-north-1"),
            "https://sts.cn-north-1.amazonaws.com.cn/"
        );
        assert_eq!(chain("own").1, "OWN");
        assert_eq!(chain("place").1, "ENV");
        let web = found("web").unwrap();
        assert!(
            matches!(web, Some(Source::WebIdentity { token_file, .. }) if token_file == "/run/token")
        );
        assert!(matches!(found("keys").unwrap(), Some(Source::Keys { .. })));
        assert!(found("empty").unwrap().is_none());
    }

    /// Goal: keys that AWS's own tools ignore next to a web identity's token are ignored here, too, and not in silence.
    #[test]
    fn what_does_not_count_next_to_a_token_s_file_is_told_by_name() {
        for (name, keys) in [
            ("one", "its duration_seconds is not used"),
            (
                "more",
                "its source_profile, credential_source, external_id, mfa_serial, duration_seconds are not used",
            ),
        ] {
            let (source, warned) = told(name);
            let Ok(Some(Source::WebIdentity { session, .. })) = source else {
                panic!("{name} has another source");
            };
            assert_eq!(session.is_some(), name == "more");
            assert_eq!(warned.len(), 1);
            assert!(
                warned[0].contains(keys) && warned[0].contains(name),
                "{warned:?}"
            );
        }
        assert_eq!(told("web").1, [""; 0]);
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_name() {
        for (name, word) in [
            ("round", "leads back"),
            ("mfa", "mfa_serial"),
            ("both", "remove one"),
            ("none", "add one"),
            ("lost", "neither AWS file"),
            ("bare", "no credentials"),
            ("long", "900 to 43200"),
            ("roleless", "no role_arn"),
            ("other", "Environment nor"),
        ] {
            let why = found(name).err().unwrap();
            assert!(why.contains(word) && why.contains(name), "{why}");
            assert!(!why.contains("verysecret"), "{why}");
        }
    }
}
