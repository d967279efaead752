//! Profiles of the AWS files, as far as they say where keys come from.

use std::collections::BTreeMap;

use crate::environment::{Form, check};
use crate::source::Source;

/// The keys of one profile.
#[derive(Default)]
pub struct Profile(BTreeMap<String, String>);

impl Profile {
    /// The profile `name` of `~/.aws/credentials` and `~/.aws/config`; `None` if neither has it.
    pub fn read(name: &str, credentials: &str, config: &str) -> Option<Profile> {
        let of_config = match name {
            "default" => vec!["default".to_owned(), "profile default".to_owned()],
            name => vec![format!("profile {name}")],
        };
        let mut found = Profile::default();
        let mut is_there = false;
        // The file of credentials comes last and wins.
        for (text, sections) in [(config, of_config), (credentials, vec![name.to_owned()])] {
            is_there |= found.merge(text, &sections);
        }
        is_there.then_some(found)
    }

    fn merge(&mut self, text: &str, sections: &[String]) -> bool {
        let (mut inside, mut is_there) = (false, false);
        // The key whose value is the indented lines below it.
        let mut above = None;
        for line in text.lines() {
            let is_nested = line.starts_with([' ', '\t']);
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if is_nested {
                if let (Some(above), Some((key, value))) = (&above, line.split_once('=')) {
                    let key = format!("{above}.{}", key.trim().to_ascii_lowercase());
                    self.0.insert(key, value.trim().to_owned());
                }
                continue;
            }
            above = None;
            if let Some(section) = line.strip_prefix('[').and_then(|l| l.split_once(']')) {
                let words: Vec<_> = section.0.split_whitespace().collect();
                inside = sections.contains(&words.join(" "));
                is_there |= inside;
            } else if let (true, Some((key, value))) = (inside, line.split_once('=')) {
                let key = key.trim().to_ascii_lowercase();
                let value = value.trim().to_owned();
                above = value.is_empty().then(|| key.clone());
                self.0.insert(key, value);
            }
        }
        is_there
    }

    /// The value of `KEY`, or of a key below another one: `KEY.KEY`.
    pub fn get(&self, key: &str) -> Option<String> {
        self.0.get(key).filter(|value| !value.is_empty()).cloned()
    }

    /// Where this profile's credentials come from; `None` if it has none.
    ///
    /// Errors: why it has some that cannot be used.
    pub fn source(&self, name: &str) -> Result<Option<Source>, String> {
        let get = |key: &str| match self.get(key) {
            None => Ok(None),
            Some(value) => check(
                &format!("{key} of the profile {name:?}"),
                &value,
                Form::Signs,
            )
            .map(|()| Some(value)),
        };
        if let (Some(id), Some(secret)) = (get("aws_access_key_id")?, get("aws_secret_access_key")?)
        {
            let token = get("aws_session_token")?;
            return Ok(Some(Source::Keys { id, secret, token }));
        }
        if let Some(command) = self.get("credential_process") {
            let profile = name.to_owned();
            return Ok(Some(Source::Process { profile, command }));
        }
        let unsupported = ["sso_session", "sso_start_url"]
            .into_iter()
            .find(|key| self.0.contains_key(*key));
        match unsupported {
            None => Ok(None),
            Some(key) => Err(format!(
                "the profile {name:?} uses {key}, which Longshore does not read; a profile with \
                 `credential_process = /ABSOLUTE/PATH/aws configure export-credentials --profile {name}` does the same"
            )),
        }
    }
}
