//! Where in the file a refused key stands, and what may stand there instead.
//!
//! Invariants
//! - A place is for people only: a key that is not found gets its table's line, and a table that is not found none.
//!
//! Leaves to others: reading the file (`mod.rs`).

/// A key's place in the text of a configuration.
pub struct ConfigPlace {
    line: usize,
    column: usize,
    /// With its table; `None`: the mistake is in a line without a key.
    key: Option<String>,
}

impl ConfigPlace {
    /// The place at an offset, as the parser reports it.
    pub fn at(text: &str, at: usize) -> ConfigPlace {
        let before = text.get(..at).unwrap_or(text);
        let begin = before.rfind('\n').map_or(0, |end| end + 1);
        let of_line = text[begin..].lines().next().unwrap_or_default();
        let headers = before[..begin].lines().rev().find_map(table);
        let key = key(of_line).map(|key| match headers {
            Some(table) => format!("{table}.{key}"),
            None => key.to_owned(),
        });
        ConfigPlace {
            line: before.matches('\n').count() + 1,
            column: before[begin..].chars().count() + 1,
            key,
        }
    }

    /// The place of what a check of the tables says: `[TABLE]: …`, with the key in backquotes if it is about one.
    pub fn of(text: &str, what: &str) -> Option<ConfigPlace> {
        let (wanted, said) = what.strip_prefix('[')?.split_once(']')?;
        let mut offset = 0;
        let mut header = None;
        for line in text.split_inclusive('\n') {
            let indent = line.len() - line.trim_start().len();
            match table(line) {
                Some(found) if found == wanted => header = Some(offset + indent),
                Some(_) if header.is_some() => break,
                _ => {}
            }
            let is_meant = |key: &str| said.split('`').skip(1).step_by(2).any(|word| word == key);
            if header.is_some() && key(line).is_some_and(is_meant) {
                return Some(ConfigPlace::at(text, offset + indent));
            }
            offset += line.len();
        }
        header.map(|at| ConfigPlace::at(text, at))
    }

    /// The key without its table.
    pub fn last_word(&self) -> Option<&str> {
        self.key.as_deref()?.rsplit('.').next()
    }

    /// `line 5, column 12: defaults.max_rate`
    pub fn shown(&self) -> String {
        let place = format!("line {}, column {}", self.line, self.column);
        match &self.key {
            Some(key) => format!("{place}: `{key}`"),
            None => place,
        }
    }
}

/// The table that a line begins.
fn table(line: &str) -> Option<&str> {
    let inner = line.trim().strip_prefix('[')?;
    inner.split(']').next()
}

/// The key that a line gives a value to.
fn key(line: &str) -> Option<&str> {
    let (key, _) = line.split_once('=')?;
    let key = key.trim();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    (!key.is_empty() && key.chars().all(is_plain)).then_some(key)
}

/// A value that a key takes, as it stands in the file.
pub fn example(key: &str) -> Option<&'static str> {
    Some(match key {
        "url" => "url = \"sqlite:/srv/shop/shop.db\"",
        "algorithm" => "algorithm = \"ZSTD\"",
        "level" => "level = \"MEDIUM\"",
        "trust_locks" => "trust_locks = true",
        "may_be_empty" => "may_be_empty = true",
        "server_config" => "server_config = false",
        "async" => "async = true",
        "queue_max" => "queue_max = \"1G\"",
        "prefetch" => "prefetch = \"256M\"",
        "workers" => "workers = 4",
        "copy_at_once" => "copy_at_once = true",
        "copy_behind" => "copy_behind = \"4G\"",
        "home_behind" => "home_behind = \"4G\"",
        "directories" => "directories = [\"/mnt/disk1/backup\"]",
        "buckets" => "buckets = [\"s3://my-bucket/backup\"]",
        "keys" => "keys = [\"/mnt/keys1/shop\", \"/mnt/keys2/shop\"]",
        "parity" => "parity = 1",
        "tolerate" => "tolerate = 1",
        "endpoint" => "endpoint = \"https://minio.example:9000\"",
        "region" => "region = \"eu-west-1\"",
        "profile" => "profile = \"backup\"",
        "account" => "account = \"myaccount\"",
        "credentials_file" => "credentials_file = \"/etc/longshore/offsite.keys\"",
        "ca_file" => "ca_file = \"/etc/longshore/ca.pem\"",
        "allow_http" => "allow_http = true",
        "patience" => "patience = 60",
        "addressing_style" => "addressing_style = \"virtual\"",
        "copies" => "copies = [\"offsite\"]",
        "keep_full" => "keep_full = 4",
        "keep_days" => "keep_days = 30",
        "keep_wal" => "keep_wal = 2",
        "buffer_count" => "buffer_count = 24",
        "max_transfer_size" => "max_transfer_size = \"512K\"",
        "max_rate" => "max_rate = \"200M\"",
        "max_cpu" => "max_cpu = 25",
        "low_io_priority" => "low_io_priority = true",
        "recipients" => "recipients = [\"@/etc/longshore/recipients\"]",
        "identities" => "identities = [\"/etc/longshore/identity\"]",
        "require" => "require = true",
        "require_recipients" => "require_recipients = [\"@/etc/longshore/escrow\"]",
        "sign" => "sign = \"/etc/longshore/signing-key\"",
        "signers" => "signers = [\"lssigner1...\"]",
        "require_signature" => "require_signature = true",
        "wrap_command" => "wrap_command = [\"/usr/local/bin/key-service\", \"wrap\"]",
        "unwrap_command" => "unwrap_command = [\"/usr/local/bin/key-service\", \"unwrap\"]",
        "retain_days" => "retain_days = 7",
        "listen" => "listen = \"127.0.0.1:1433\"",
        "encrypt" => "encrypt = true",
        "sessions" | "login_sessions" => "sessions = 32",
        "batch_size" => "batch_size = \"16M\"",
        "memory" => "memory = \"256M\"",
        "login_time" => "login_time = 15",
        "idle_time" => "idle_time = 600",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_line_column_and_the_key_with_its_table() {
        let text = "[defaults]\n\nmax_rate = \"ä\"\n[database.a]\n url = 1\n";
        let shown = |part: &str| ConfigPlace::at(text, text.find(part).unwrap()).shown();
        assert_eq!(shown("\"ä"), "line 3, column 12: `defaults.max_rate`");
        assert_eq!(shown("url"), "line 5, column 2: `database.a.url`");
        let shown = |what: &str| ConfigPlace::of(text, what).map(|p| p.shown());
        let url = Some("line 5, column 2: `database.a.url`".to_owned());
        assert_eq!(shown("[database.a]: `url` is wrong"), url);
        let table = Some("line 4, column 1".to_owned());
        assert_eq!(shown("[database.a] needs a `target`"), table);
        assert_eq!(shown("[database.b] needs a `target`"), None);
    }
}
