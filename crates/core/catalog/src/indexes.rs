//! What opens the indexes of encrypted sets that this machine made, sealed under the service key.
//!
//! A differential backup reads the index of its base. With this, a machine that has recipients and no identity can make one.
//!
//! Invariants
//! - A secret is bound to its set's identifier and root: one that is moved to another row does not open.
//! - It goes with its set's row. Older ones than the last but one full backup of a database go, too: nothing builds on those
//!   sets, and the keys of what nobody needs are not kept.
//!
//! Leaves to others: which sets are bases (the pipeline), the service key's file (`credentials.rs`), and what the secret
//! opens (`longshore-crypt`).

use longshore_crypt::{IndexSecret, Root};
use longshore_io::{Clock, Storage};
use rusqlite::{OptionalExtension, params};
use uuid::Uuid;

use crate::credentials::ServiceFile;
use crate::{Catalog, Error};

/// All whose set is gone from the history, or is older than the last but one full backup of this database.
const OUTDATED: &str = "DELETE FROM longshore_index WHERE backup_set_uuid NOT IN (SELECT backup_set_uuid FROM backupset)
    OR backup_set_uuid IN (SELECT backup_set_uuid FROM backupset WHERE database_name = ?1 AND longshore_finish_us <
        (SELECT longshore_finish_us FROM backupset WHERE database_name = ?1 AND type = 'D' AND is_copy_only = 0
         ORDER BY longshore_finish_us DESC LIMIT 1 OFFSET 1))";

fn hex(root: &Root) -> String {
    root.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn root_of(text: &str) -> Option<Root> {
    let mut root = Root::default();
    if text.len() != 2 * root.len() || !text.is_ascii() {
        return None;
    }
    for (at, to) in root.iter_mut().enumerate() {
        *to = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(root)
}

impl Catalog {
    /// Keeps what opens the index of a recorded set of `database`.
    ///
    /// Errors: [`Error::ServiceKey`], and those of a change.
    pub fn keep_index(
        &self,
        set: Uuid,
        database: &str,
        secret: &IndexSecret,
        (storage, clock): (&dyn Storage, &dyn Clock),
    ) -> Result<(), Error> {
        let is_needed = self.credentials()?.iter().any(|one| one.has_secret());
        let file = ServiceFile::of(self.path(), storage)?;
        let key = file.read_or_make(!is_needed, clock)?;
        let (set, root) = (set.to_string(), hex(&secret.root));
        let sealed = key.seal(&[&set, &root], &secret.text());
        let sealed = sealed.map_err(|e| file.wrong(e.to_string()))?;
        self.write(|tx| {
            tx.execute(
                "INSERT INTO longshore_index (backup_set_uuid, root, secret) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
                params![set, root, sealed],
            )?;
            tx.execute(OUTDATED, [database])?;
            Ok(())
        })
    }

    /// What opens the index of this set; `None` if nothing is kept of it.
    ///
    /// Errors: [`Error::ServiceKey`], and those of reading.
    pub fn index_of(&self, set: Uuid, storage: &dyn Storage) -> Result<Option<IndexSecret>, Error> {
        let set = set.to_string();
        let row: Option<(String, Vec<u8>)> = self.read(|db| {
            db.query_row(
                "SELECT root, secret FROM longshore_index WHERE backup_set_uuid = ?1",
                [&set],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .optional()
        })?;
        let Some((text, sealed)) = row else {
            return Ok(None);
        };
        let file = ServiceFile::of(self.path(), storage)?;
        let key = file.read()?.ok_or_else(|| file.wrong("it is missing"))?;
        let wrong = || file.wrong("it is not the key that sealed what opens the index of this set");
        let opened = key.open(&[&set, &text], &sealed).map_err(|_| wrong())?;
        let root = root_of(&text).ok_or_else(wrong)?;
        IndexSecret::of_text(root, &opened)
            .map(Some)
            .ok_or_else(wrong)
    }
}
